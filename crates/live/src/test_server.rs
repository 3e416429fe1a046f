//! A client of an API server that a test plays.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use kube::Client;
use tokio::net::TcpListener;

use crate::{Health, client};

/// Serves on loopback until the end of the test, and connects to it as components do.
pub(crate) async fn connect_to(routes: Router, health: &Health) -> Client {
    static SERVERS: AtomicU32 = AtomicU32::new(0);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let server = SERVERS.fetch_add(1, Ordering::SeqCst);
    let path = std::env::temp_dir().join(format!("kai-live-{}-{server}.json", std::process::id()));
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    });
    fs::write(&path, kubeconfig.to_string()).unwrap();
    let config = client::config(Some(&path)).await.unwrap();
    fs::remove_file(&path).unwrap();
    client::connect(config, health.api_metrics()).unwrap()
}
