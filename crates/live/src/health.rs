//! Tells the outside how a component does: `/healthz`, `/readyz`, `/metrics`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::Fault;

/// Shared by everything that runs in a process.
#[derive(Clone, Debug)]
pub(crate) struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Parts that have not seen the cluster yet.
    waiting: AtomicU32,
    registry: Mutex<Registry>,
}

/// One part of the process; ready once told so.
#[derive(Debug)]
pub(crate) struct Part {
    health: Health,
    ready: bool,
}

impl Health {
    /// Metrics get this prefix.
    pub(crate) fn new(metrics_namespace: &str) -> Self {
        let registry = Mutex::new(Registry::with_prefix(metrics_namespace));
        Self(Arc::new(Inner { waiting: AtomicU32::new(0), registry }))
    }

    pub(crate) fn part(&self) -> Part {
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        Part { health: self.clone(), ready: false }
    }

    pub(crate) fn register(&self, with: impl FnOnce(&mut Registry)) {
        with(&mut self.0.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn is_ready(&self) -> bool {
        self.0.waiting.load(Ordering::SeqCst) == 0
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        let registry = self.0.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &registry);
        text
    }

    /// Answers until stopped.
    pub(crate) async fn serve(self, address: SocketAddr, stop: CancellationToken) -> Result<(), Fault> {
        let listener = TcpListener::bind(address).await.map_err(|source| Fault::Listen { address, source })?;
        let bound = listener.local_addr().unwrap_or(address);
        tracing::info!(address = %bound, "answering /healthz, /readyz and /metrics");
        let (ready, metrics) = (self.clone(), self);
        let routes = Router::new()
            .route("/healthz", get(|| async { "ok" }))
            .route("/readyz", get(move || async move { readiness(ready.is_ready()) }))
            .route("/metrics", get(move || async move { as_metrics(metrics.metrics()) }));
        let served = axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned()).await;
        served.map_err(|source| Fault::Listen { address, source })
    }
}

impl Part {
    pub(crate) fn ready(&mut self) {
        if !std::mem::replace(&mut self.ready, true) {
            self.health.0.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready
    }
}

fn readiness(ready: bool) -> impl IntoResponse {
    if ready { (StatusCode::OK, "ok") } else { (StatusCode::SERVICE_UNAVAILABLE, "the cluster has not been read yet") }
}

fn as_metrics(text: String) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_when_every_part_is() {
        let health = Health::new("kai");
        let (mut one, mut other) = (health.part(), health.part());
        one.ready();
        one.ready();
        assert!(!health.is_ready());
        other.ready();
        assert!(health.is_ready());
    }
}
