//! Steps of binds.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use kai_api::BindRequest;
use kai_api::keys::{phase, reason};
use kai_control::Key;
use kai_control::bind_batch;
use kai_control::binder::{BindEffect, gpu_group_label_changes};
use kai_control::controller::CallError;
use kai_control::gpu_config_maps::refusal;
use kube::api::{Api, DeleteParams, Patch, Preconditions};
use kube::core::{NamespaceResourceScope, Status};
use kube::{Error, Resource};
use serde_json::{Value, json};

use super::{Calls, call_error, pod_event};
use crate::api_error::{ignore_not_found, is_already_exists, not_found_as_none, status_code};
use crate::api_writer::{DELETE, PATCH, POST};
use crate::retry::{Attempt, retry_on_conflict};

/// Shows a provisioner for which node a volume is needed.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

impl Calls<'_> {
    /// Carries out a step of a bind.
    pub(super) async fn bind_step(&self, effect: &BindEffect) -> Result<(), CallError> {
        self.bind_done(effect).await.map_err(|error| match error {
            Error::Api(status) if status.code == 404 && matches!(effect, BindEffect::CreatePod(_)) => {
                CallError::Rejected(format!("{}; `kai rbac | kubectl apply -f -` creates it", status.message))
            }
            error => call_error(error),
        })
    }

    async fn bind_done(&self, effect: &BindEffect) -> Result<(), Error> {
        match effect {
            BindEffect::CreatePod(pod) => {
                let pod: Pod = serde_json::from_value((**pod).clone()).map_err(Error::SerdeError)?;
                let api: Api<Pod> = self.within(pod.metadata.namespace.as_deref().unwrap_or_default());
                match self.writer.call(|| api.create(&POST, &pod)).await {
                    Err(error) if is_already_exists(&error) => Ok(()),
                    done => done.map(|_| ()),
                }
            }
            BindEffect::DeletePod { pod, uid, version } => self.delete(pod, uid, version.as_deref()).await,
            BindEffect::LabelPod { pod, uid, node, labels } => self.label_gpu_groups(pod, uid, node, labels).await,
            BindEffect::WriteConfigMap(map) => self.write_config_map(map).await,
            BindEffect::SetSelectedNode { claim, node } => {
                let annotations = BTreeMap::from([(SELECTED_NODE, node)]);
                self.merge::<PersistentVolumeClaim>(claim, &json!({"metadata": {"annotations": annotations}})).await
            }
            BindEffect::PrebindVolume { volume, claim, uid } => self.mark_volume(volume, claim, uid).await,
            BindEffect::AllocateClaim { claim, pod, uid, allocation } => {
                self.claim_devices(claim, pod, uid, allocation).await
            }
            BindEffect::Bind { pod, uid, node, annotations } => self.bind_pod(pod, uid, node, annotations).await,
            BindEffect::SetPhase { request, phase, .. } if let Some((batch, place)) = bind_batch::batch_of(request) => {
                if *phase == phase::SUCCEEDED {
                    return Ok(());
                }
                ignore_not_found(self.merge::<BindRequest>(&batch, &bind_batch::removal_patch(&place)).await)
            }
            BindEffect::SetPhase { request, version, phase, reason, failed_attempts } => {
                // What there is not is left out, as KAI does.
                let reason = Some(reason).filter(|reason| !reason.is_empty());
                let failed_attempts = Some(failed_attempts).filter(|attempts| **attempts > 0);
                let status = json!({"phase": phase, "reason": reason, "failedAttempts": failed_attempts});
                let api: Api<BindRequest> = self.within(&request.namespace);
                let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "status": status}));
                ignore_not_found(self.writer.call(|| api.patch_status(&request.name, &PATCH, &patch)).await)
            }
            BindEffect::DeleteRequest(request) => {
                let api: Api<BindRequest> = self.within(&request.namespace);
                ignore_not_found(self.writer.call(|| api.delete(&request.name, &DELETE)).await)
            }
            BindEffect::ReportResult { pod, bound, message } => self.report_result(pod, *bound, message).await,
        }
    }

    async fn delete(&self, pod: &Key, uid: &str, version: Option<&str>) -> Result<(), Error> {
        let known = Some(uid.to_owned()).filter(|uid| !uid.is_empty());
        let preconditions = Some(Preconditions { uid: known, resource_version: version.map(str::to_owned) });
        let params = DeleteParams { preconditions, ..DeleteParams::default().grace_period(0) };
        let api: Api<Pod> = self.within(&pod.namespace);
        let error = match self.writer.call(|| api.delete(&pod.name, &params)).await {
            Err(error) if status_code(&error) == Some(409) => error,
            done => return ignore_not_found(done),
        };
        // Another one of this name by now, or the same, and nothing was done.
        let stored = self.writer.call(|| api.get_opt(&pod.name)).await?;
        let same = stored.is_some_and(|stored| uid.is_empty() || stored.metadata.uid.as_deref() == Some(uid));
        if same { Err(error) } else { Ok(()) }
    }

    async fn bind_pod(
        &self,
        pod: &Key,
        uid: &str,
        node: &str,
        annotations: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let api: Api<Pod> = self.within(&pod.namespace);
        // The API server checks the uid, and copies the annotations to the pod as it binds it.
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": uid, "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let call = || api.create_subresource::<Value, Value>("binding", &pod.name, &POST, &binding);
        retry_on_conflict(|| async {
            let error = match Attempt::of(self.writer.call(call).await)? {
                Attempt::Conflict(error) => error,
                Attempt::Done(_) => return Ok(Attempt::Done(())),
            };
            let stored = self.writer.call(|| api.get_opt(&pod.name)).await?;
            match stored.and_then(|pod| pod.spec?.node_name).as_deref() {
                // Bound by an attempt whose reply was lost is bound all the same.
                Some(bound) if bound == node => Ok(Attempt::Done(())),
                // Another client wrote the pod at the same time. One pod that is not bound may stop its whole gang.
                None => Ok(Attempt::Conflict(error)),
                Some(_) => Err(error),
            }
        })
        .await?;
        tracing::info!(%pod, node, "bound");
        Ok(())
    }

    /// Never writes a map of others, whatever the pod says.
    async fn write_config_map(&self, map: &Value) -> Result<(), Error> {
        let key = Key::of(map);
        let api: Api<ConfigMap> = self.within(&key.namespace);
        let typed: ConfigMap = serde_json::from_value(map.clone()).map_err(Error::SerdeError)?;
        retry_on_conflict(|| async {
            let Some(stored) = self.writer.call(|| api.get_opt(&key.name)).await? else {
                return Attempt::of(self.writer.call(|| api.create(&POST, &typed)).await.map(|_| ()));
            };
            if let Some(why) = refusal(&serde_json::to_value(&stored).map_err(Error::SerdeError)?, map) {
                return Err(Error::Api(Box::new(Status::failure(&why, "Invalid").with_code(422))));
            }
            // As after a failed attempt.
            if stored.data.unwrap_or_default() == typed.data.clone().unwrap_or_default() {
                return Ok(Attempt::Done(()));
            }
            let changed =
                json!({"metadata": {"resourceVersion": stored.metadata.resource_version}, "data": map["data"]});
            Attempt::of(self.merge::<ConfigMap>(&key, &changed).await)
        })
        .await
    }

    async fn label_gpu_groups(
        &self,
        pod: &Key,
        uid: &str,
        node: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let api: Api<Pod> = self.within(&pod.namespace);
        retry_on_conflict(|| async {
            let stored = self.writer.call(|| api.get(&pod.name)).await?;
            if stored.metadata.uid.as_deref() != Some(uid) {
                return Err(conflict("it is another pod by now"));
            }
            match stored.spec.and_then(|spec| spec.node_name) {
                Some(found) if found == node => return Ok(Attempt::Done(())),
                Some(found) => return Err(conflict(&format!("the pod is already bound to node {found}"))),
                None => {}
            }
            let changes = gpu_group_label_changes(stored.metadata.labels.iter().flatten(), labels);
            if changes.is_empty() {
                return Ok(Attempt::Done(()));
            }
            let version = stored.metadata.resource_version;
            let patch = json!({"metadata": {"resourceVersion": version, "labels": changes}});
            Attempt::of(self.merge::<Pod>(pod, &patch).await)
        })
        .await
    }

    /// The controllers of Kubernetes see the mark and bind claim and volume to each other.
    async fn mark_volume(&self, volume: &str, claim: &Key, uid: &str) -> Result<(), Error> {
        let api: Api<PersistentVolume> = Api::all(self.writer.client.clone());
        let stored = self.writer.call(|| api.get(volume)).await?;
        if let Some(holder) = stored.spec.and_then(|spec| spec.claim_ref) {
            if holder.uid.as_deref() == Some(uid) {
                return Ok(());
            }
            return Err(conflict(&format!("volume {volume} was given to another claim meanwhile")));
        }
        let patch = Patch::Merge(json!({
            "metadata": {
                "resourceVersion": stored.metadata.resource_version,
                "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
            },
            "spec": {"claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace,
                "name": claim.name,
                "uid": uid,
            }},
        }));
        self.writer.call(|| api.patch(volume, &PATCH, &patch)).await.map(|_| ())
    }

    async fn claim_devices(&self, claim: &Key, pod: &Key, uid: &str, allocation: &Value) -> Result<(), Error> {
        let api: Api<ResourceClaim> = self.within(&claim.namespace);
        retry_on_conflict(|| async {
            let mut stored = self.writer.call(|| api.get(&claim.name)).await?;
            let status = stored.status.get_or_insert_default();
            let reserved = status.reserved_for.get_or_insert_default();
            if !reserved.iter().any(|user| user.uid == uid) {
                reserved.push(ResourceClaimConsumerReference {
                    resource: "pods".to_owned(),
                    name: pod.name.clone(),
                    uid: uid.to_owned(),
                    ..ResourceClaimConsumerReference::default()
                });
            }
            if status.allocation.is_none() {
                status.allocation = Some(serde_json::from_value(allocation.clone()).map_err(Error::SerdeError)?);
            }
            let replaced = self.writer.call(|| api.replace_status(&claim.name, &POST, &stored)).await;
            Attempt::of(replaced.map(|_| ()))
        })
        .await
    }

    async fn report_result(&self, pod: &Key, bound: bool, message: &str) -> Result<(), Error> {
        if !bound {
            tracing::warn!(%pod, message, "pod was not bound");
        }
        let reason = if bound { reason::BOUND } else { reason::BINDING_ERROR };
        let api: Api<Pod> = self.within(&pod.namespace);
        let condition = json!({
            "type": reason::POD_BOUND,
            "status": if bound { "True" } else { "False" },
            "reason": reason,
            "message": message,
            "lastTransitionTime": jiff::Timestamp::now().strftime("%FT%TZ").to_string(),
        });
        // Conditions are merged by type: those of others stay.
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        let patched = self.writer.call(|| api.patch_status(&pod.name, &PATCH, &patch)).await;
        let Some(stored) = not_found_as_none(patched)? else { return Ok(()) };
        let uid = stored.metadata.uid.as_deref().unwrap_or_default();
        self.executor.events.publish(pod_event(pod, uid, !bound, reason, message.to_owned()));
        Ok(())
    }

    async fn merge<K>(&self, key: &Key, patch: &Value) -> Result<(), Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = self.within(&key.namespace);
        let patch = Patch::Merge(patch);
        self.writer.call(|| api.patch(&key.name, &PATCH, &patch)).await.map(|_| ())
    }

    fn within<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.writer.client.clone(), namespace)
    }
}

fn conflict(why: &str) -> Error {
    Error::Api(Box::new(Status::failure(why, "Conflict").with_code(409)))
}
