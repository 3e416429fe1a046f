//! What a cycle wants written, as API calls.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kai_api::keys::{phase, reason};
use kai_api::{BindRequest, PodGroup};
use kai_control::bind_batch;
use kai_control::controller::CallError;
use kai_control::key::Key;
use kai_control::scheduler::Write;
use kube::api::{Api, DeleteParams, Patch, Preconditions};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Calls, call_error, pod_event};
use crate::api_error::{ignore_not_found, is_already_exists, status_code};
use crate::api_writer::{DELETE, PATCH, POST};
use crate::retry::{Attempt, retry_on_conflict};

impl Calls<'_> {
    /// Writes what a cycle wants written.
    pub(super) async fn schedule(&self, write: &Write) -> Result<(), CallError> {
        let done = match write {
            Write::CreateBindRequest(request) => return self.request_bind(request).await,
            Write::CreateBindBatch { batch, pods } => return self.request_binds(batch, pods).await,
            Write::DeleteBindRequest(request) if let Some((batch, annotation)) = bind_batch::batch_of(request) => {
                self.patch::<BindRequest>(&batch, &bind_batch::removal_patch(&annotation)).await
            }
            Write::DeleteBindRequest(request) => {
                tracing::info!(%request, "deleting failed bind request");
                let api: Api<BindRequest> = self.api(request);
                ignore_not_found(self.writer.call(|| api.delete(&request.name, &DELETE)).await)
            }
            Write::LabelPod { pod, key, value } => {
                let labels = BTreeMap::from([(key, value)]);
                self.patch::<Pod>(pod, &json!({"metadata": {"labels": labels}})).await
            }
            Write::Evict { pod, uid, message } => {
                tracing::info!(%pod, message, "evicting pod");
                self.evict(pod, uid).await
            }
            Write::Nominate { pod, node } => self.patch_pod_status(pod, json!({"nominatedNodeName": node})).await,
            Write::PatchGroupTimestamps { group, annotations } => {
                self.patch::<PodGroup>(group, &json!({"metadata": {"annotations": annotations}})).await
            }
            Write::SetGroupConditions { group, conditions, .. } => {
                let api: Api<PodGroup> = self.api(group);
                let patch = Patch::Merge(json!({"status": {"schedulingConditions": conditions}}));
                let patched = self.writer.call(|| api.patch_status(&group.name, &PATCH, &patch)).await;
                ignore_not_found(patched)
            }
            Write::SetUnschedulable { pod, reason, message, .. } => {
                let condition = json!({
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": reason,
                    "message": message,
                    "lastTransitionTime": jiff::Timestamp::now().strftime("%FT%TZ").to_string(),
                });
                self.patch_pod_status(pod, json!({"conditions": [condition]})).await
            }
            // Events go to the recorder.
            Write::Emit(_) => Ok(()),
        };
        done.map_err(call_error)
    }

    async fn request_bind(&self, request: &BindRequest) -> Result<(), CallError> {
        let (key, node) = (key_of(request), &request.spec.selected_node);
        let api: Api<BindRequest> = self.api(&key);
        let started = Instant::now();
        match self.writer.call(|| api.create(&POST, request)).await {
            Ok(_) => self.executor.bind_request_latency.observe(milliseconds_since(started)),
            // Lost replies end here, too: then the stored one is the requested one.
            Err(error) if status_code(&error) == Some(409) => {
                let stored = self.writer.call(|| api.get_opt(&key.name)).await.map_err(call_error)?;
                let stored =
                    stored.ok_or_else(|| rejected("a bind request of this name existed, and was deleted meanwhile"))?;
                if owner_of(&stored) != owner_of(request) {
                    let done = self.writer.call(|| api.delete(&key.name, &DELETE)).await;
                    ignore_not_found(done).map_err(call_error)?;
                    return Err(rejected("a bind request for an earlier pod of this name existed"));
                }
                if stored.spec.selected_node != *node {
                    return Err(rejected(format!("the pod is being bound to {} already", stored.spec.selected_node)));
                }
            }
            Err(error) => {
                let message = format!("Failed to bind pod {key} to node {node}. {error}");
                let uid = owner_of(request).unwrap_or_default();
                self.executor.events.publish(pod_event(&key, uid, true, reason::FAILED_BINDING, message));
                return Err(call_error(error));
            }
        }
        tracing::info!(pod = %key, node, "bind requested");
        Ok(())
    }

    async fn request_binds(&self, batch: &BindRequest, pods: &[Key]) -> Result<(), CallError> {
        let key = key_of(batch);
        let api: Api<BindRequest> = self.api(&key);
        let started = Instant::now();
        match self.writer.call(|| api.create(&POST, batch)).await {
            Ok(_) => self.executor.bind_request_latency.observe(milliseconds_since(started)),
            // No other client makes one of this name.
            Err(error) if is_already_exists(&error) => {}
            Err(error) => return Err(call_error(error)),
        }
        tracing::info!(batch = %key, pods = pods.len(), "binds requested");
        Ok(())
    }

    /// Not a pod that has terminated: its work would count as lost with it.
    async fn evict(&self, pod: &Key, uid: &str) -> Result<(), kube::Error> {
        let api: Api<Pod> = self.api(pod);
        retry_on_conflict(|| async {
            let Some(stored) = self.writer.call(|| api.get_opt(&pod.name)).await? else {
                return Ok(Attempt::Done(()));
            };
            let reached = stored.status.and_then(|status| status.phase);
            let terminated = matches!(reached.as_deref(), Some(phase::SUCCEEDED | phase::FAILED));
            // Nor another one that has taken its name meanwhile.
            if terminated || stored.metadata.uid.as_deref() != Some(uid) {
                return Ok(Attempt::Done(()));
            }
            let resource_version = stored.metadata.resource_version;
            let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version });
            let delete = DeleteParams { preconditions, ..DeleteParams::default() };
            let done = if self.executor.evict_by_delete {
                self.writer.call(|| api.delete(&pod.name, &delete)).await.map(|_| ())
            } else {
                self.writer.evict(&api, &pod.name, delete).await
            };
            Attempt::of(ignore_not_found(done))
        })
        .await
    }

    /// Conditions are merged by type: those of others stay.
    async fn patch_pod_status(&self, pod: &Key, status: Value) -> Result<(), kube::Error> {
        let api: Api<Pod> = self.api(pod);
        let patch = Patch::Strategic(json!({"status": status}));
        ignore_not_found(self.writer.call(|| api.patch_status(&pod.name, &PATCH, &patch)).await)
    }

    async fn patch<K>(&self, key: &Key, patch: &Value) -> Result<(), kube::Error>
    where
        K: Namespaced,
    {
        let api: Api<K> = self.api(key);
        let patch = Patch::Merge(patch);
        ignore_not_found(self.writer.call(|| api.patch(&key.name, &PATCH, &patch)).await)
    }

    fn api<K: Namespaced>(&self, key: &Key) -> Api<K> {
        Api::namespaced(self.writer.client.clone(), &key.namespace)
    }
}

/// Kinds that live in namespaces.
trait Namespaced:
    kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
    + Clone
    + std::fmt::Debug
    + serde::de::DeserializeOwned
{
}

impl Namespaced for Pod {}
impl Namespaced for PodGroup {}
impl Namespaced for BindRequest {}

fn milliseconds_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1000.0
}

fn rejected(why: impl Into<String>) -> CallError {
    CallError::Rejected(why.into())
}

pub(super) fn key_of(request: &BindRequest) -> Key {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Key::new(text(&request.metadata.namespace), text(&request.metadata.name))
}

fn owner_of(request: &BindRequest) -> Option<&str> {
    Some(request.metadata.owner_references.as_ref()?.first()?.uid.as_str())
}
