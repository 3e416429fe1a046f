//! Everything that a scheduling cycle depends on, listed from a cluster once.

use std::path::Path;
use std::time::Duration;

use kai_control::Kind;
use kube::api::{Api, ApiResource, ListParams};
use kube::{Client, Error};
use serde_json::Value;

use crate::api_error::status_code;
use crate::api_metrics::ApiMetrics;
use crate::deadline::with_deadline;
use crate::retry::{Retry, retry};
use crate::stripped_object::{ConfigMapData, StrippedObject};
use crate::{FatalError, api_resource, client};

/// Objects per call, so that no answer is too large.
const PAGE_SIZE: u32 = 500;

/// All objects of a cluster, listed one kind after the other.
#[derive(Clone, Debug, Default)]
pub struct ClusterSnapshot {
    /// By kind, in the order in which snapshot files hold them.
    pub objects: Vec<Value>,
    /// The version of the API server.
    pub server_version: Value,
}

/// How far a snapshot is.
#[derive(Clone, Copy, Debug)]
pub enum SnapshotProgress<'p> {
    /// So many objects of a kind were listed.
    Listed { kind: &'p str, count: usize },
    /// A list failed and is repeated after a while.
    Retrying { kind: &'p str, delay: Duration, error: &'p Error },
}

/// Lists everything in a cluster.
pub fn take_snapshot(
    kubeconfig: Option<&Path>,
    on_progress: impl Fn(SnapshotProgress<'_>),
) -> Result<ClusterSnapshot, FatalError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(FatalError::Runtime)?;
    runtime.block_on(async {
        let client = client::connect(client::config(kubeconfig).await?, &ApiMetrics::default())?;
        list_all(&client, on_progress).await
    })
}

/// The same with an open connection.
pub(crate) async fn list_all(
    client: &Client,
    on_progress: impl Fn(SnapshotProgress<'_>),
) -> Result<ClusterSnapshot, FatalError> {
    let version =
        with_deadline(client.apiserver_version()).await.map_err(|error| FatalError::Client(Box::new(error)))?;
    let mut snapshot =
        ClusterSnapshot { objects: Vec::new(), server_version: serde_json::to_value(version).unwrap_or_default() };
    for resource in Kind::CYCLE_INPUTS.iter().map(|kind| api_resource::resource(*kind)) {
        let before = snapshot.objects.len();
        let kind = &resource.plural;
        let failed = |source| FatalError::List { kind: resource.kind.clone(), source: Box::new(source) };
        list(client, &resource, &mut snapshot.objects, &on_progress).await.map_err(failed)?;
        on_progress(SnapshotProgress::Listed { kind, count: snapshot.objects.len() - before });
    }
    Ok(snapshot)
}

async fn list(
    client: &Client,
    resource: &ApiResource,
    objects: &mut Vec<Value>,
    on_progress: impl Fn(SnapshotProgress<'_>),
) -> Result<(), Error> {
    let api: Api<StrippedObject> = Api::all_with(client.clone(), resource);
    let mut page = ListParams::default().limit(PAGE_SIZE);
    loop {
        let on_retry = |Retry { delay, error, .. }: &Retry<'_>| {
            on_progress(SnapshotProgress::Retrying { kind: &resource.plural, delay: *delay, error });
        };
        let listed = match retry(|| with_deadline(api.list(&page)), on_retry).await {
            // This cluster does not know the kind.
            Err(error) if status_code(&error) == Some(404) => return Ok(()),
            listed => listed?,
        };
        objects.extend(listed.items.into_iter().map(|object| object.into_value(resource, ConfigMapData::Drop)));
        let Some(next) = listed.metadata.continue_.filter(|next| !next.is_empty()) else { return Ok(()) };
        page = page.continue_token(&next);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::Router;
    use axum::http::{StatusCode, Uri};

    use super::*;
    use crate::Health;
    use crate::test_server::connect_to;

    #[tokio::test]
    async fn a_busy_api_server_is_asked_a_few_times_and_the_wait_is_reported() {
        static LISTS: AtomicU32 = AtomicU32::new(0);
        let answer = |uri: Uri| async move {
            if uri.path() == "/version" {
                let version = serde_json::json!({"major": "1", "minor": "34", "gitVersion": "v1.34.0", "gitCommit": "",
                    "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
                return (StatusCode::OK, version.to_string());
            }
            LISTS.fetch_add(1, Ordering::SeqCst);
            let status = serde_json::json!({"kind": "Status", "status": "Failure", "message": "busy", "code": 429});
            (StatusCode::TOO_MANY_REQUESTS, status.to_string())
        };
        let client = connect_to(Router::new().fallback(answer), &Health::new("kai")).await;
        let reported = Mutex::new(Vec::new());
        let failed = list_all(&client, |progress| reported.lock().unwrap().push(format!("{progress:?}"))).await;
        assert!(failed.is_err());
        assert_eq!(LISTS.load(Ordering::SeqCst), 4);
        let reported = reported.into_inner().unwrap();
        assert_eq!(reported.len(), 3);
        assert!(reported.iter().all(|line| line.starts_with("Retrying")), "{reported:?}");
    }
}
