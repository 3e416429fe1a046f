//! Objects that are not watched: the owners of pods.

use std::collections::BTreeMap;

use kai_control::controller::CallError;
use kai_workloads::ObjectRef;
use kube::Error;
use kube::api::{Api, ApiResource};
use kube::core::GroupVersionKind;
use serde_json::Value;
use tokio::sync::RwLock;

use super::call_error;
use crate::api_error::status_code;
use crate::api_writer::ApiWriter;
use crate::stripped_object::{ConfigMapData, StrippedObject};

/// Reads objects of any kind. Asks once for each kind where the API server serves it.
#[derive(Debug, Default)]
pub(super) struct OwnerReader(RwLock<BTreeMap<(String, String), (ApiResource, bool)>>);

impl OwnerReader {
    /// Nothing if the object does not exist.
    pub(super) async fn get(&self, writer: &ApiWriter, object: &ObjectRef) -> Result<Option<Value>, CallError> {
        match self.fetch(writer, object).await {
            // A kind that is not served, or may not be read, ends the walk to the top owner.
            Err(Error::Discovery(error)) => Err(CallError::Forbidden(error.to_string())),
            Err(error) if status_code(&error) == Some(404) => Err(CallError::Forbidden(error.to_string())),
            done => done.map_err(call_error),
        }
    }

    async fn fetch(&self, writer: &ApiWriter, object: &ObjectRef) -> Result<Option<Value>, Error> {
        let (resource, namespaced) = self.locate(writer, object).await?;
        let client = writer.client.clone();
        let api: Api<StrippedObject> = if namespaced {
            Api::namespaced_with(client, &object.namespace, &resource)
        } else {
            Api::all_with(client, &resource)
        };
        let found = writer.call(|| api.get_opt(&object.name)).await?;
        Ok(found.map(|object| object.into_value(&resource, ConfigMapData::Keep)))
    }

    async fn locate(&self, writer: &ApiWriter, object: &ObjectRef) -> Result<(ApiResource, bool), Error> {
        let key = (object.api_version.clone(), object.kind.clone());
        if let Some(known) = self.0.read().await.get(&key) {
            return Ok(known.clone());
        }
        let (group, version) = object.api_version.rsplit_once('/').unwrap_or(("", &object.api_version));
        let kind = GroupVersionKind::gvk(group, version, &object.kind);
        let (resource, capabilities) = writer.call(|| kube::discovery::pinned_kind(&writer.client, &kind)).await?;
        let namespaced = capabilities.scope == kube::discovery::Scope::Namespaced;
        self.0.write().await.insert(key, (resource.clone(), namespaced));
        Ok((resource, namespaced))
    }
}
