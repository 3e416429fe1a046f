//! Writes of the grouper.

use k8s_openapi::api::core::v1::Pod;
use kai_api::PodGroup;
use kai_control::controller::CallError;
use kai_control::grouper::GroupEffect;
use kube::api::{Api, Patch};
use serde_json::json;

use super::{Calls, call_error};
use crate::api_error::{ignore_not_found, is_already_exists, status_code};
use crate::api_writer::{PATCH, POST};

impl Calls<'_> {
    pub(super) async fn group(&self, effect: &GroupEffect) -> Result<(), CallError> {
        match effect {
            GroupEffect::CreatePodGroup(group) => {
                let (api, name) = self.pod_groups(group);
                match self.writer.call(|| api.create(&POST, group)).await {
                    Ok(_) => {
                        tracing::info!(group = name, queue = group.spec.queue, "pod group created");
                        Ok(())
                    }
                    // By another pod of it, or by an attempt whose reply was lost.
                    Err(error) if is_already_exists(&error) => Ok(()),
                    Err(error) => Err(call_error(error)),
                }
            }
            GroupEffect::ReplacePodGroup(group) => {
                if group.metadata.resource_version.is_none() {
                    return Err(CallError::Conflict("the pod group is known only as one to be created".to_owned()));
                }
                let (api, name) = self.pod_groups(group);
                match self.writer.call(|| api.replace(&name, &POST, group)).await {
                    Err(error) if matches!(status_code(&error), Some(404 | 409)) => {
                        Err(CallError::Conflict(error.to_string()))
                    }
                    done => done.map(|_| ()).map_err(call_error),
                }
            }
            GroupEffect::LinkPod { pod, annotations, labels } => {
                let api: Api<Pod> = Api::namespaced(self.writer.client.clone(), &pod.namespace);
                let patch = Patch::Merge(json!({"metadata": {"annotations": annotations, "labels": labels}}));
                ignore_not_found(self.writer.call(|| api.patch(&pod.name, &PATCH, &patch)).await).map_err(call_error)
            }
        }
    }

    fn pod_groups(&self, group: &PodGroup) -> (Api<PodGroup>, String) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let api = Api::namespaced(self.writer.client.clone(), &text(&group.metadata.namespace));
        (api, text(&group.metadata.name))
    }
}
