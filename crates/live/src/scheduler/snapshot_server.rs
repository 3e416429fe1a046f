//! What the scheduler serves on its own machine: `/get-snapshot`, the cluster in a file for `kai replay`; `/cycles` and
//! `/cycles/N`, what the last cycles decided and why.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use kai_api::keys::phase;
use kai_control::Kind;
use kai_control::scheduler::record::CycleHistory;
use kai_control::scheduler::{Settings, Usage};
use kube::Client;
use serde::Serialize;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::http_server::{HttpServer, ServerLimits, limit_concurrency};
use crate::snapshot::{ClusterSnapshot, list_all};

/// A snapshot lists the whole cluster and stays in memory until it has been sent.
const SNAPSHOTS_AT_ONCE: usize = 1;
/// Records of cycles are kept anyway; as text they are a few megabytes each.
const RECORDS_AT_ONCE: usize = 2;

/// Where snapshots are served and how they are encoded.
#[derive(Clone)]
pub struct SnapshotOptions {
    /// Of 127.0.0.1 only: it shows everything to those who may forward ports.
    pub port: u16,
    pub encoder: Arc<SnapshotEncoder>,
}

/// Makes a file of a snapshot.
pub type SnapshotEncoder = dyn Fn(ClusterSnapshot, Usage) -> io::Result<Vec<u8>> + Send + Sync;

impl fmt::Debug for SnapshotOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "port {}", self.port)
    }
}

/// Serves until stopped. A port in use does not keep the scheduler from scheduling.
pub(super) async fn serve(
    client: Client,
    options: SnapshotOptions,
    settings: Settings,
    usage: impl Fn() -> Usage + Clone + Send + Sync + 'static,
    history: Arc<Mutex<CycleHistory>>,
    stop: CancellationToken,
) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, options.port));
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(%address, %error, "cannot listen, /get-snapshot and /cycles are disabled; set --plugin-server-port");
            return;
        }
    };
    tracing::info!(%address, "serving /get-snapshot and /cycles");
    let settings = Arc::new(settings);
    let answer = move || {
        let (client, options, settings, usage) = (client.clone(), options.clone(), Arc::clone(&settings), usage());
        async move { snapshot(&client, &options, &settings, usage).await }
    };
    let nothing = || async { (StatusCode::NOT_FOUND, "plugin not found") };
    let listed = Arc::clone(&history);
    let list = move || async move { json(&lock(&listed).list()) };
    let one = move |Path(cycle): Path<u64>| async move {
        // The record is shared: the scheduler does not wait while it is written.
        let record = lock(&history).get(cycle);
        match record {
            Some(record) => json(&*record),
            None => (StatusCode::NOT_FOUND, "no record of this cycle is kept, see /cycles").into_response(),
        }
    };
    let snapshots = limit_concurrency(Router::new().route("/get-snapshot", any(answer)), SNAPSHOTS_AT_ONCE);
    let records = Router::new().route("/cycles", any(list)).route("/cycles/{cycle}", any(one));
    let routes = snapshots.merge(limit_concurrency(records, RECORDS_AT_ONCE)).fallback(nothing);
    HttpServer::new(listener, routes, ServerLimits::SNAPSHOTS, stop).serve().await;
}

fn lock(history: &Mutex<CycleHistory>) -> MutexGuard<'_, CycleHistory> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn snapshot(client: &Client, options: &SnapshotOptions, settings: &Settings, usage: Usage) -> Response {
    let failed = |why: String| (StatusCode::INTERNAL_SERVER_ERROR, why).into_response();
    let mut snapshot = match list_all(client, |_| {}).await {
        Ok(snapshot) => snapshot,
        Err(fault) => return failed(fault.to_string()),
    };
    snapshot.objects.retain(|object| in_shard(object, settings));
    let encoder = Arc::clone(&options.encoder);
    match tokio::task::spawn_blocking(move || encoder(snapshot, usage)).await {
        Ok(Ok(file)) => {
            let disposition = "attachment; filename=snapshot.zip";
            ([(header::CONTENT_TYPE, "application/zip"), (header::CONTENT_DISPOSITION, disposition)], file)
                .into_response()
        }
        Ok(Err(error)) => failed(format!("cannot write the snapshot: {error}")),
        Err(error) => failed(format!("cannot write the snapshot: {error}")),
    }
}

/// Whether a cycle of this shard depends on it.
fn in_shard(object: &Value, settings: &Settings) -> bool {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    match Kind::of(text("apiVersion"), text("kind")) {
        Some(Kind::Pod) => object["status"]["phase"] != phase::FAILED,
        Some(Kind::Node | Kind::Queue | Kind::PodGroup) => {
            let key = &settings.node_pool_label_key;
            key.is_empty() || object["metadata"]["labels"][key].as_str() == settings.node_pool_value.as_deref()
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_shard_has_its_nodes_and_all_that_is_not_divided() {
        let settings = Settings { node_pool_value: Some("blue".to_owned()), ..Settings::default() };
        let node =
            |pool: &str| json!({"kind": "Node", "metadata": {"labels": {settings.node_pool_label_key.as_str(): pool}}});
        assert!(in_shard(&node("blue"), &settings) && !in_shard(&node("red"), &settings));
        assert!(in_shard(&json!({"kind": "Pod"}), &settings));
        assert!(!in_shard(&json!({"kind": "Pod", "status": {"phase": "Failed"}}), &settings));
        let whole = Settings { node_pool_value: None, ..settings.clone() };
        assert!(!in_shard(&node("red"), &whole) && in_shard(&json!({"kind": "Node"}), &whole));
    }
}
