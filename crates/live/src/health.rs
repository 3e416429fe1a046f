//! Health of the process for probes and dashboards: `/healthz`, `/readyz`, `/metrics`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::FatalError;

/// Shared by all components of a process.
#[derive(Clone, Debug)]
pub(crate) struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Components that have not listed everything yet.
    not_ready: Mutex<BTreeSet<&'static str>>,
    registry: Mutex<Registry>,
}

/// With this a component reports that it is ready.
#[derive(Debug)]
pub(crate) struct ReadinessHandle {
    health: Health,
    component: &'static str,
    ready: bool,
}

impl Health {
    /// Metrics get this prefix.
    pub(crate) fn new(metrics_namespace: &str) -> Self {
        let registry = Mutex::new(Registry::with_prefix(metrics_namespace));
        Self(Arc::new(Inner { not_ready: Mutex::default(), registry }))
    }

    pub(crate) fn add_component(&self, component: &'static str) -> ReadinessHandle {
        self.not_ready().insert(component);
        ReadinessHandle { health: self.clone(), component, ready: false }
    }

    pub(crate) fn register(&self, with: impl FnOnce(&mut Registry)) {
        with(&mut self.0.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn not_ready(&self) -> MutexGuard<'_, BTreeSet<&'static str>> {
        self.0.not_ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn readiness(&self) -> (StatusCode, String) {
        let not_ready = self.not_ready().iter().copied().collect::<Vec<_>>().join(", ");
        if not_ready.is_empty() {
            (StatusCode::OK, "ok".to_owned())
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: waiting for the first lists of {not_ready}"))
        }
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        let registry = self.0.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &registry);
        text
    }

    /// Serves until stopped.
    pub(crate) async fn serve(self, address: SocketAddr, stop: CancellationToken) -> Result<(), FatalError> {
        let listener = TcpListener::bind(address).await.map_err(|source| FatalError::Bind { address, source })?;
        let bound = listener.local_addr().unwrap_or(address);
        tracing::info!(address = %bound, "serving /healthz, /readyz and /metrics");
        let (ready, metrics) = (self.clone(), self);
        let routes = Router::new()
            .route("/healthz", get(|| async { "ok" }))
            .route("/readyz", get(move || async move { ready.readiness() }))
            .route("/metrics", get(move || async move { as_metrics(metrics.metrics()) }));
        let served = axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned()).await;
        served.map_err(|source| FatalError::Bind { address, source })
    }
}

impl ReadinessHandle {
    pub(crate) fn ready(&mut self) {
        self.ready = true;
        self.health.not_ready().remove(self.component);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready
    }
}

fn as_metrics(text: String) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_when_all_its_components_are() {
        let health = Health::new("kai");
        let (mut binder, mut scheduler) = (health.add_component("binder"), health.add_component("scheduler"));
        binder.ready();
        binder.ready();
        let expected = "not ready: waiting for the first lists of scheduler".to_owned();
        assert_eq!(health.readiness(), (StatusCode::SERVICE_UNAVAILABLE, expected));
        scheduler.ready();
        assert_eq!(health.readiness(), (StatusCode::OK, "ok".to_owned()));
    }
}
