//! Health of the process for probes and dashboards: `/healthz`, `/readyz`, `/metrics`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::FatalError;
use crate::api_metrics::ApiMetrics;
use crate::http_server::{HttpServer, ServerLimits};

/// Shared by all components of a process.
#[derive(Clone, Debug)]
pub(crate) struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    components: Mutex<BTreeMap<&'static str, ComponentHealth>>,
    registry: Mutex<Registry>,
    api_metrics: ApiMetrics,
}

#[derive(Debug)]
struct ComponentHealth {
    readiness: Readiness,
    /// Since when it has been handling what was due.
    busy_since: Option<Instant>,
    /// Kinds whose first list is late.
    late_kinds: Vec<&'static str>,
    /// Cycles that have failed since the last one that succeeded.
    failures: Option<Failures>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    since: Instant,
    count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    /// Has not listed everything yet.
    Syncing,
    /// Waits for the lease, and has observed who holds it: it is able to take over. That is ready: otherwise a rolling
    /// update, which awaits the new replica before it ends the old one, would never end. It lists nothing before it leads.
    Standby,
    /// Has become the leader and lists everything. Still ready: it must not take the webhooks of its process out of
    /// service.
    NewLeader,
    Ready,
}

/// With this a component reports how it is.
#[derive(Debug)]
pub(crate) struct ReadinessHandle {
    health: Health,
    component: &'static str,
    ready: bool,
}

/// A component counts as busy until this is dropped.
#[derive(Debug)]
pub(crate) struct BusyGuard(Health, &'static str);

/// A cycle takes seconds at most on the largest clusters. A component that is busy for so long is stuck, and a restart is
/// better than to wait.
pub(crate) const STUCK_AFTER: Duration = Duration::from_mins(5);

/// Cycles that fail for so long, and so often, in a row: not because of an object that is corrected at once. A restart
/// forgets what the component remembers wrongly; where the cause is in the cluster, restarts raise an alert.
const FAILING_AFTER: Duration = Duration::from_mins(2);
const FAILURES_IN_A_ROW: u32 = 5;

impl Health {
    /// Metrics get this prefix.
    pub(crate) fn new(metrics_namespace: &str) -> Self {
        let mut registry = Registry::with_prefix(metrics_namespace);
        let api_metrics = ApiMetrics::default();
        api_metrics.register(&mut registry);
        Self(Arc::new(Inner { components: Mutex::default(), registry: Mutex::new(registry), api_metrics }))
    }

    pub(crate) fn add_component(&self, component: &'static str) -> ReadinessHandle {
        let health =
            ComponentHealth { readiness: Readiness::Syncing, busy_since: None, late_kinds: Vec::new(), failures: None };
        self.components().insert(component, health);
        ReadinessHandle { health: self.clone(), component, ready: false }
    }

    /// The component waits for the lease.
    pub(crate) fn standby(&self, component: &'static str) {
        self.set_readiness(component, Readiness::Standby);
    }

    /// The component holds the lease now.
    pub(crate) fn leading(&self, component: &'static str) {
        let waited = self.components().get(component).is_some_and(|health| health.readiness == Readiness::Standby);
        if waited {
            self.set_readiness(component, Readiness::NewLeader);
        }
    }

    /// A cycle of the component has ended, well or with a panic.
    pub(crate) fn cycle_ended(&self, component: &'static str, succeeded: bool, now: Instant) {
        let mut components = self.components();
        let Some(health) = components.get_mut(component) else { return };
        if succeeded {
            health.failures = None;
        } else {
            health.failures.get_or_insert(Failures { since: now, count: 0 }).count += 1;
        }
    }

    pub(crate) fn register(&self, with: impl FnOnce(&mut Registry)) {
        with(&mut self.0.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn api_metrics(&self) -> &ApiMetrics {
        &self.0.api_metrics
    }

    fn components(&self) -> MutexGuard<'_, BTreeMap<&'static str, ComponentHealth>> {
        self.0.components.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_readiness(&self, component: &'static str, readiness: Readiness) {
        if let Some(health) = self.components().get_mut(component) {
            health.readiness = readiness;
        }
    }

    pub(crate) fn readiness(&self) -> (StatusCode, String) {
        let components = self.components();
        if components.is_empty() {
            return (StatusCode::SERVICE_UNAVAILABLE, "not ready: no component has started yet".to_owned());
        }
        let of = |readiness: Readiness| {
            let found = components.iter().filter(|(_, health)| health.readiness == readiness);
            let names = found.map(|(name, health)| match &health.late_kinds[..] {
                [] => (*name).to_owned(),
                kinds => format!("{name} ({})", kinds.join(", ")),
            });
            Some(names.collect::<Vec<_>>().join(", ")).filter(|names| !names.is_empty())
        };
        if let Some(names) = of(Readiness::Syncing) {
            let text = format!("not ready: waiting for the first lists of {names}");
            return (StatusCode::SERVICE_UNAVAILABLE, text);
        }
        let text = if let Some(names) = of(Readiness::NewLeader) {
            format!("ready (new leader, waiting for the first lists of {names})")
        } else if of(Readiness::Standby).is_some() {
            "ready (standby)".to_owned()
        } else {
            "ok".to_owned()
        };
        (StatusCode::OK, text)
    }

    pub(crate) fn liveness(&self, now: Instant) -> (StatusCode, String) {
        let components = self.components();
        let stuck = components.iter().find_map(|(name, health)| {
            let busy = now.saturating_duration_since(health.busy_since?);
            (busy >= STUCK_AFTER).then(|| format!("{name} is stuck: busy for {} s", busy.as_secs()))
        });
        let failing = || {
            components.iter().find_map(|(name, health)| {
                let Failures { since, count } = health.failures?;
                let time = now.saturating_duration_since(since);
                let failing = time >= FAILING_AFTER && count >= FAILURES_IN_A_ROW;
                failing
                    .then(|| format!("{name} is failing: its last {count} cycles panicked, for {} s", time.as_secs()))
            })
        };
        match stuck.or_else(failing) {
            Some(text) => (StatusCode::INTERNAL_SERVER_ERROR, text),
            None => (StatusCode::OK, "ok".to_owned()),
        }
    }

    pub(crate) fn metrics(&self) -> String {
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
        let (live, ready, metrics) = (self.clone(), self.clone(), self);
        let routes = Router::new()
            .route("/healthz", get(move || async move { live.liveness(Instant::now()) }))
            .route("/readyz", get(move || async move { ready.readiness() }))
            .route("/metrics", get(move || async move { as_metrics(metrics.metrics()) }));
        HttpServer::new(listener, routes, ServerLimits::HEALTH, stop).serve().await;
        Ok(())
    }
}

impl ReadinessHandle {
    pub(crate) fn ready(&mut self) {
        self.ready = true;
        self.health.set_readiness(self.component, Readiness::Ready);
        self.late(Vec::new());
    }

    /// Kinds that have not been listed for the first time, though there was time for it.
    pub(crate) fn late(&self, kinds: Vec<&'static str>) {
        if let Some(health) = self.health.components().get_mut(self.component) {
            health.late_kinds = kinds;
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready
    }

    /// For the time in which the component handles what is due: a cycle, or the updates of a moment.
    pub(crate) fn busy(&self) -> BusyGuard {
        if let Some(health) = self.health.components().get_mut(self.component) {
            health.busy_since = Some(Instant::now());
        }
        BusyGuard(self.health.clone(), self.component)
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        if let Some(health) = self.0.components().get_mut(self.1) {
            health.busy_since = None;
        }
    }
}

fn as_metrics(text: String) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: StatusCode = StatusCode::OK;
    const NOT_READY: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

    fn is(health: &Health, code: StatusCode, text: &str) {
        assert_eq!(health.readiness(), (code, text.to_owned()));
    }

    #[test]
    fn a_process_is_ready_when_all_its_components_are() {
        let health = Health::new("kai");
        let (mut binder, mut scheduler) = (health.add_component("binder"), health.add_component("scheduler"));
        binder.ready();
        binder.ready();
        is(&health, NOT_READY, "not ready: waiting for the first lists of scheduler");
        scheduler.ready();
        is(&health, READY, "ok");
    }

    #[test]
    fn a_standby_is_ready_and_stays_so_when_it_becomes_the_leader() {
        let health = Health::new("kai");
        let mut binder = health.add_component("binder");
        is(&health, NOT_READY, "not ready: waiting for the first lists of binder");
        health.standby("binder");
        is(&health, READY, "ready (standby)");
        health.leading("binder");
        is(&health, READY, "ready (new leader, waiting for the first lists of binder)");
        binder.ready();
        is(&health, READY, "ok");
    }

    #[test]
    fn a_process_whose_components_have_not_started_is_not_ready() {
        is(&Health::new("kai"), NOT_READY, "not ready: no component has started yet");
    }

    #[test]
    fn who_leads_at_once_is_ready_after_the_first_lists() {
        let health = Health::new("kai");
        let _binder = health.add_component("binder");
        health.leading("binder");
        is(&health, NOT_READY, "not ready: waiting for the first lists of binder");
    }

    #[test]
    fn kinds_whose_first_list_is_late_are_named() {
        let health = Health::new("kai");
        let mut scheduler = health.add_component("scheduler");
        scheduler.late(vec!["Pod", "Queue"]);
        is(&health, NOT_READY, "not ready: waiting for the first lists of scheduler (Pod, Queue)");
        health.standby("scheduler");
        health.leading("scheduler");
        is(&health, READY, "ready (new leader, waiting for the first lists of scheduler (Pod, Queue))");
        scheduler.ready();
        is(&health, READY, "ok");
    }

    #[test]
    fn a_component_whose_cycles_fail_for_minutes_is_not_healthy() {
        let health = Health::new("kai");
        let _scheduler = health.add_component("scheduler");
        let (began, ok) = (Instant::now(), (StatusCode::OK, "ok".to_owned()));
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let fail = |times: u32, seconds: u64| {
            for _ in 0..times {
                health.cycle_ended("scheduler", false, at(seconds));
            }
        };
        fail(100, 0);
        assert_eq!(health.liveness(at(100)), ok, "not for long yet");
        let text = "scheduler is failing: its last 100 cycles panicked, for 120 s".to_owned();
        assert_eq!(health.liveness(at(120)), (StatusCode::INTERNAL_SERVER_ERROR, text));
        health.cycle_ended("scheduler", true, at(121));
        assert_eq!(health.liveness(at(121)), ok);
        fail(4, 130);
        assert_eq!(health.liveness(at(600)), ok, "not often in a row");
        fail(1, 600);
        assert_ne!(health.liveness(at(600)), ok);
    }

    #[test]
    fn a_stuck_component_is_not_healthy() {
        let health = Health::new("kai");
        let scheduler = health.add_component("scheduler");
        let busy = scheduler.busy();
        let ok = (StatusCode::OK, "ok".to_owned());
        assert_eq!(health.liveness(Instant::now() + Duration::from_mins(1)), ok);
        let (code, text) = health.liveness(Instant::now() + STUCK_AFTER);
        assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(text.starts_with("scheduler is stuck: busy for "), "{text}");
        drop(busy);
        assert_eq!(health.liveness(Instant::now() + STUCK_AFTER), ok);
    }
}
