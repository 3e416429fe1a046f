//! Calls of controllers, made with the API server. The only code that knows which call is which request.

mod bind;
mod fields;
mod group;
mod owner_reader;
mod schedule;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kai_api::keys::reason;
use kai_control::controller::{ApiCall, CallError, NewEvent, Regarding};
use kai_control::kinds::Scope;
use kai_control::{Key, Kind};
use kube::Error;
use kube::api::{Api, Patch};
use prometheus_client::metrics::histogram::Histogram;
use serde_json::{Value, json};

use crate::api_error::{ignore_not_found, is_already_exists};
use crate::api_resource::resource;
use crate::api_writer::{ApiWriter, DELETE, PATCH, POST};
use crate::events::EventRecorder;
use crate::stripped_object::StrippedObject;
pub(crate) use fields::CallFields;
use owner_reader::OwnerReader;

/// Makes the calls of a controller.
#[derive(Clone)]
pub(crate) struct Executor {
    events: EventRecorder,
    owners: Arc<OwnerReader>,
    /// Delete victims instead of evicting them.
    evict_by_delete: bool,
    /// Milliseconds that creating a bind request takes.
    bind_request_latency: Histogram,
}

/// Calls with a writer of their priority.
struct Calls<'a> {
    writer: &'a ApiWriter,
    executor: &'a Executor,
}

impl Executor {
    pub(crate) fn new(events: EventRecorder) -> Self {
        let bind_request_latency = Histogram::new([]);
        Self { events, owners: Arc::default(), evict_by_delete: false, bind_request_latency }
    }

    /// For the scheduler.
    pub(crate) fn with_scheduling(self, evict_by_delete: bool, bind_request_latency: Histogram) -> Self {
        Self { evict_by_delete, bind_request_latency, ..self }
    }

    /// Makes a call; a GET returns what it found.
    pub(crate) async fn call(&self, writer: &ApiWriter, call: &ApiCall) -> Result<Option<Value>, CallError> {
        let calls = Calls { writer, executor: self };
        match call {
            ApiCall::Get(object) => return self.owners.get(writer, object).await,
            ApiCall::Schedule(write) => calls.schedule(write).await?,
            ApiCall::Bind(effect) => calls.bind_step(effect).await?,
            ApiCall::Group(effect) => calls.group(effect).await?,
            ApiCall::PatchStatus { kind, key, patch } => {
                calls.patch_status(*kind, key, patch).await.map_err(call_error)?;
            }
            ApiCall::CreateScalingPod(pod) => calls.create_scaling_pod(pod).await.map_err(call_error)?,
            ApiCall::DeleteScalingPod(pod) => calls.delete_scaling_pod(pod).await.map_err(call_error)?,
        }
        Ok(None)
    }
}

impl Calls<'_> {
    async fn patch_status(&self, kind: Kind, key: &Key, patch: &Value) -> Result<(), Error> {
        let (client, resource) = (self.writer.client.clone(), resource(kind));
        let api: Api<StrippedObject> = match kind.row().scope {
            Scope::Cluster => Api::all_with(client, &resource),
            Scope::Namespaced => Api::namespaced_with(client, &key.namespace, &resource),
        };
        let patch = Patch::Merge(patch);
        ignore_not_found(self.writer.call(|| api.patch_status(&key.name, &PATCH, &patch)).await)
    }

    /// Autoscalers look at pods that a scheduler has given up on; the default scheduler may take its time.
    async fn create_scaling_pod(&self, pod: &Value) -> Result<(), Error> {
        let key = Key::of(pod);
        let api: Api<Pod> = Api::namespaced(self.writer.client.clone(), &key.namespace);
        let typed: Pod = serde_json::from_value(pod.clone()).map_err(Error::SerdeError)?;
        match self.writer.call(|| api.create(&POST, &typed)).await {
            Err(error) if !is_already_exists(&error) => return Err(error),
            _ => {}
        }
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": reason::UNSCHEDULABLE,
            "message": "stands in for a pod that shares GPUs"});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        self.writer.call(|| api.patch_status(&key.name, &PATCH, &patch)).await?;
        tracing::info!(pod = %key, "created scaling pod");
        Ok(())
    }

    async fn delete_scaling_pod(&self, pod: &Key) -> Result<(), Error> {
        let api: Api<Pod> = Api::namespaced(self.writer.client.clone(), &pod.namespace);
        ignore_not_found(self.writer.call(|| api.delete(&pod.name, &DELETE)).await)?;
        tracing::info!(%pod, "deleted scaling pod");
        Ok(())
    }
}

/// An event about a pod.
fn pod_event(pod: &Key, uid: &str, warning: bool, reason: &'static str, message: String) -> NewEvent {
    let regarding = Regarding { kind: Kind::Pod, key: pod.clone(), uid: uid.to_owned() };
    NewEvent { regarding, warning, reason, message, annotations: BTreeMap::new() }
}

/// What an error means for a controller.
fn call_error(error: Error) -> CallError {
    match error {
        Error::Api(status) => match status.code {
            403 => CallError::Forbidden(status.message),
            404 => CallError::NotFound(status.message),
            409 => CallError::Conflict(status.message),
            // The API server did not wait for the end.
            504 => CallError::Unknown(status.message),
            _ => CallError::Rejected(status.message),
        },
        error => CallError::Unknown(error.to_string()),
    }
}
