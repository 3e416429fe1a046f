//! Everything that a scheduling cycle depends on, read from a cluster once.

use std::path::Path;

use kai_control::Kind;
use kube::api::{Api, ApiResource, ListParams};
use kube::{Client, Error};
use serde_json::Value;

use crate::api_error::status_code;
use crate::stripped_object::{ConfigMapData, StrippedObject};
use crate::{FatalError, client, kinds};

/// Objects a call, so that no answer is too large.
const PAGE_SIZE: u32 = 500;

/// A cluster as it was within a moment.
#[derive(Clone, Debug, Default)]
pub struct ClusterSnapshot {
    /// By kind, in the order in which snapshot files hold them.
    pub objects: Vec<Value>,
    /// What the API server says about itself.
    pub server_version: Value,
}

/// Reads a cluster; `on_listed` hears of each kind how many objects there are.
pub fn take_snapshot(
    kubeconfig: Option<&Path>,
    on_listed: impl Fn(&str, usize),
) -> Result<ClusterSnapshot, FatalError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(FatalError::Runtime)?;
    runtime.block_on(async {
        let client = client::connect(kubeconfig).await?;
        list_all(&client, on_listed).await
    })
}

/// The same with a connection that is there.
pub(crate) async fn list_all(client: &Client, on_listed: impl Fn(&str, usize)) -> Result<ClusterSnapshot, FatalError> {
    let version = client.apiserver_version().await.map_err(|error| FatalError::Client(Box::new(error)))?;
    let mut snapshot =
        ClusterSnapshot { objects: Vec::new(), server_version: serde_json::to_value(version).unwrap_or_default() };
    for kind in Kind::ALL.iter().map(|kind| kinds::resource(*kind)) {
        let before = snapshot.objects.len();
        let unread = |source| FatalError::List { kind: kind.kind.clone(), source: Box::new(source) };
        all(client, &kind, &mut snapshot.objects).await.map_err(unread)?;
        on_listed(&kind.plural, snapshot.objects.len() - before);
    }
    Ok(snapshot)
}

async fn all(client: &Client, kind: &ApiResource, objects: &mut Vec<Value>) -> Result<(), Error> {
    let api: Api<StrippedObject> = Api::all_with(client.clone(), kind);
    let mut page = ListParams::default().limit(PAGE_SIZE);
    loop {
        let list = match api.list(&page).await {
            // This cluster does not know the kind.
            Err(error) if status_code(&error) == Some(404) => return Ok(()),
            list => list?,
        };
        objects.extend(list.items.into_iter().map(|object| object.into_value(kind, ConfigMapData::Drop)));
        let Some(next) = list.metadata.continue_.filter(|next| !next.is_empty()) else { return Ok(()) };
        page = page.continue_token(&next);
    }
}
