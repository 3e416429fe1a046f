//! Leader election among replicas by a Lease object, as client-go does it: only the own clock counts, and a lease is taken
//! over when its holder has not renewed it for its duration.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Error};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api_error::conflict_as_false;
use crate::{FatalError, Health};

#[derive(Clone, Debug)]
pub struct LeaderElectionOptions {
    pub namespace: String,
    pub name: String,
    /// Tells replicas apart.
    pub identity: String,
    /// For how long the lease is held without being renewed.
    pub duration: Duration,
    /// After so long without a renewal the leader gives up, before others take over.
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

/// Less than the grace period of a pod, with the calls in flight before.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs this while the lease is held; at once if there is no leader election.
pub(crate) async fn run_as_leader(
    client: Client,
    (health, component): (&Health, &'static str),
    election: Option<LeaderElectionOptions>,
    stop: CancellationToken,
    work: impl Future<Output = ()>,
) -> Result<(), FatalError> {
    let Some(options) = election else {
        work.await;
        return Ok(());
    };
    let (lease, metrics) = (options.name.clone(), health.api_metrics());
    let mut elector = LeaderElector::new(client.clone(), options.clone());
    metrics.set_leader(&lease, false);
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = elector.acquire(|| health.standby(component)) => {}
    }
    metrics.set_leader(&lease, true);
    health.leading(component);
    // A task of its own: the work may keep its thread busy for longer than a renewal may be late.
    let mut renewal = tokio::spawn(elector.renew_until_lost());
    let ended = tokio::select! {
        // Writes in flight may still arrive, as they may after a crash.
        lost = &mut renewal => Err(lost.unwrap_or_else(|error| FatalError::ComponentPanicked(error.to_string()))),
        () = work => Ok(()),
    };
    metrics.set_leader(&lease, false);
    if ended.is_ok() {
        renewal.abort();
        // Its last call must not come after the release.
        let _ = renewal.await;
        LeaderElector::new(client, options).release().await;
    }
    ended
}

struct LeaderElector {
    api: Api<Lease>,
    options: LeaderElectionOptions,
    /// The last renewal by another replica, and when it was observed.
    last_observed_renewal: Option<(Option<MicroTime>, Instant)>,
}

/// What became of an attempt to acquire or renew the lease.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    Held,
    HeldBy(String),
    /// Another replica wrote it at the same time.
    Conflict,
}

impl LeaderElector {
    fn new(client: Client, options: LeaderElectionOptions) -> Self {
        Self { api: Api::namespaced(client, &options.namespace), options, last_observed_renewal: None }
    }

    /// Waits until the lease is held; `on_standby` is called whenever another replica holds it.
    async fn acquire(&mut self, on_standby: impl Fn()) {
        let LeaderElectionOptions { name: lease, identity, .. } = self.options.clone();
        tracing::info!(lease, identity, "attempting to acquire leader lease");
        loop {
            // Without an end, a connection that hangs would keep this replica from taking over.
            let deadline = self.options.renew_deadline;
            match tokio::time::timeout(deadline, self.try_acquire_or_renew(Instant::now())).await {
                Ok(Ok(Attempt::Held)) => break,
                Ok(Ok(Attempt::HeldBy(_))) => on_standby(),
                Ok(Ok(Attempt::Conflict)) => {}
                Ok(Err(error)) => tracing::warn!(lease, %error, "cannot acquire leader lease, retrying"),
                Err(_) => tracing::warn!(lease, "leader lease request timed out, retrying"),
            }
            tokio::time::sleep(self.options.retry_period).await;
        }
        tracing::info!(lease, identity, "became leader");
    }

    /// Renews the lease for as long as that works.
    async fn renew_until_lost(mut self) -> FatalError {
        let LeaderElectionOptions { name: lease, renew_deadline, retry_period, .. } = self.options.clone();
        let mut renewed = Instant::now();
        loop {
            let deadline = renewed + renew_deadline;
            tokio::time::sleep_until(deadline.min(Instant::now() + retry_period)).await;
            let started = Instant::now();
            match tokio::time::timeout_at(deadline, self.try_acquire_or_renew(started)).await {
                Ok(Ok(Attempt::Held)) => renewed = started,
                Ok(Ok(Attempt::HeldBy(holder))) => return FatalError::LeaseTaken { lease, holder },
                Ok(Ok(Attempt::Conflict)) => {
                    tracing::debug!(lease, "leader lease was written at the same time, retrying");
                }
                Ok(Err(error)) => tracing::warn!(lease, %error, "cannot renew leader lease, retrying"),
                Err(_) => tracing::warn!(lease, "leader lease renewal timed out"),
            }
            if renewed.elapsed() >= renew_deadline {
                return FatalError::LeaseNotRenewed { lease, within: renew_deadline };
            }
        }
    }

    /// Lets another replica lead at once. If that takes too long, the lease expires by itself.
    async fn release(&self) {
        let lease = &self.options.name;
        if tokio::time::timeout(self.options.renew_deadline.min(RELEASE_TIMEOUT), self.clear_holder()).await.is_err() {
            tracing::warn!(lease, "leader lease release timed out, the lease will expire");
        }
    }

    async fn clear_holder(&self) {
        let Ok(Some(mut lease)) = self.api.get_opt(&self.options.name).await else { return };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_ref() == Some(&self.options.identity) {
            spec.holder_identity = None;
            // If it fails, the lease expires by itself.
            let _ = self.api.replace(&self.options.name, &PostParams::default(), &lease).await;
        }
    }

    /// Takes or renews the lease unless another replica holds it.
    async fn try_acquire_or_renew(&mut self, now: Instant) -> Result<Attempt, Error> {
        let name = self.options.name.clone();
        let attempt = |written: bool| if written { Attempt::Held } else { Attempt::Conflict };
        let Some(mut lease) = self.api.get_opt(&name).await? else {
            let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.renewed(&LeaseSpec::default())) };
            return conflict_as_false(self.api.create(&PostParams::default(), &lease).await).map(attempt);
        };
        let spec = lease.spec.take().unwrap_or_default();
        let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty());
        let other = holder.filter(|holder| *holder != self.options.identity);
        if let Some(other) = other.filter(|_| !self.is_expired(&spec, now)) {
            return Ok(Attempt::HeldBy(other));
        }
        lease.spec = Some(self.renewed(&spec));
        // It carries the resource version that was read, so of two replicas one gets a conflict.
        conflict_as_false(self.api.replace(&name, &PostParams::default(), &lease).await).map(attempt)
    }

    /// Whether its holder has not renewed it for its duration, by the own clock.
    fn is_expired(&mut self, spec: &LeaseSpec, now: Instant) -> bool {
        let observed = match &self.last_observed_renewal {
            Some((renewal, at)) if *renewal == spec.renew_time => *at,
            _ => {
                self.last_observed_renewal = Some((spec.renew_time.clone(), now));
                now
            }
        };
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        now.duration_since(observed) > seconds.map_or(self.options.duration, Duration::from_secs)
    }

    fn renewed(&self, before: &LeaseSpec) -> LeaseSpec {
        let now = MicroTime(jiff::Timestamp::now());
        let held = before.holder_identity.as_ref() == Some(&self.options.identity);
        LeaseSpec {
            holder_identity: Some(self.options.identity.clone()),
            lease_duration_seconds: Some(self.options.duration.as_secs().max(1) as i32),
            acquire_time: if held { before.acquire_time.clone() } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(before.lease_transitions.unwrap_or(0) + i32::from(!held)),
            ..before.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::extract::State;
    use axum::http::{Method, StatusCode};
    use serde_json::{Value, json};
    use tokio::task::JoinHandle;

    use super::*;
    use crate::test_server::connect_to;

    /// The API server: one lease, or no answer but errors.
    #[derive(Clone, Default)]
    struct Server(Arc<Mutex<Stored>>);

    #[derive(Default)]
    struct Stored {
        lease: Option<Value>,
        version: u64,
        unreachable: bool,
        hangs: bool,
    }

    impl Server {
        fn answer(&self, method: &Method, body: Option<Value>) -> (StatusCode, String) {
            let mut stored = self.0.lock().unwrap();
            let failed = |code: StatusCode, reason: &str| {
                let status = json!({"kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": code.as_u16()});
                (code, status.to_string())
            };
            if stored.unreachable {
                return failed(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable");
            }
            let Some(mut lease) = body else {
                return match &stored.lease {
                    Some(lease) => (StatusCode::OK, lease.to_string()),
                    None => failed(StatusCode::NOT_FOUND, "NotFound"),
                };
            };
            let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
            let fits = match &stored.lease {
                Some(known) => *method == Method::PUT && version(known) == version(&lease),
                None => *method == Method::POST,
            };
            if !fits {
                return failed(StatusCode::CONFLICT, "Conflict");
            }
            stored.version += 1;
            lease["metadata"]["resourceVersion"] = json!(stored.version.to_string());
            stored.lease = Some(lease.clone());
            (StatusCode::OK, lease.to_string())
        }

        fn holder(&self) -> Option<String> {
            Some(self.0.lock().unwrap().lease.as_ref()?["spec"]["holderIdentity"].as_str()?.to_owned())
        }

        /// Requests get no answer at all: a connection that is half open.
        fn set_hanging(&self, hangs: bool) {
            self.0.lock().unwrap().hangs = hangs;
        }

        fn set_unreachable(&self) {
            self.0.lock().unwrap().unreachable = true;
        }

        /// Another replica takes the lease from its holder.
        fn take_over(&self, identity: &str) {
            let mut stored = self.0.lock().unwrap();
            stored.version += 1;
            let version = stored.version.to_string();
            let lease = stored.lease.as_mut().unwrap();
            lease["spec"]["holderIdentity"] = json!(identity);
            lease["metadata"]["resourceVersion"] = json!(version);
        }

        /// A replica that leads until stopped.
        async fn replica(&self, identity: &str) -> Replica {
            async fn answer(State(server): State<Server>, method: Method, body: String) -> (StatusCode, String) {
                if server.0.lock().unwrap().hangs {
                    std::future::pending::<()>().await;
                }
                server.answer(&method, serde_json::from_str(&body).ok())
            }
            let routes = Router::new().fallback(answer).with_state(self.clone());
            let (health, stop) = (Health::new("kai"), CancellationToken::new());
            let client = connect_to(routes, &health).await;
            let _readiness = health.add_component("scheduler");
            let options = LeaderElectionOptions {
                namespace: "kai-scheduler".to_owned(),
                name: "kai-scheduler".to_owned(),
                identity: identity.to_owned(),
                duration: Duration::from_secs(1),
                renew_deadline: Duration::from_millis(500),
                retry_period: Duration::from_millis(50),
            };
            let (shared, stopped) = (health.clone(), stop.clone());
            let ended = tokio::spawn(async move {
                let work = stopped.clone().cancelled_owned();
                run_as_leader(client, (&shared, "scheduler"), Some(options), stopped, work).await
            });
            Replica { health, stop, ended }
        }
    }

    struct Replica {
        health: Health,
        stop: CancellationToken,
        ended: JoinHandle<Result<(), FatalError>>,
    }

    impl Replica {
        fn leads(&self) -> bool {
            self.health.metrics().contains("kai_leader{lease=\"kai-scheduler\"} 1")
        }

        fn is_standby(&self) -> bool {
            self.health.readiness() == (StatusCode::OK, "ready (standby)".to_owned())
        }

        async fn ended(self) -> String {
            self.ended.await.unwrap().unwrap_err().to_string()
        }
    }

    async fn eventually(what: &str, holds: impl Fn() -> bool) {
        let started = Instant::now();
        while !holds() {
            assert!(started.elapsed() < Duration::from_secs(10), "{what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn one_leads_and_the_other_stands_by_ready_until_the_lease_is_released() {
        let server = Server::default();
        let one = server.replica("one").await;
        eventually("one leads", || one.leads()).await;
        let other = server.replica("other").await;
        eventually("the other is a ready standby", || other.is_standby()).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(one.leads() && !other.leads());
        one.stop.cancel();
        one.ended.await.unwrap().unwrap();
        eventually("the other leads", || other.leads()).await;
        assert_eq!(server.holder().as_deref(), Some("other"));
    }

    #[tokio::test]
    async fn the_lease_of_a_dead_leader_is_taken_over_after_it_has_expired() {
        let server = Server::default();
        let one = server.replica("one").await;
        eventually("one leads", || one.leads()).await;
        one.ended.abort();
        let _ = one.ended.await;
        server.take_over("dead");
        let (other, started) = (server.replica("other").await, Instant::now());
        eventually("the other leads", || other.leads()).await;
        assert!(started.elapsed() > Duration::from_secs(1), "not before it has expired");
    }

    #[tokio::test]
    async fn a_leader_ends_when_another_replica_has_taken_the_lease() {
        let server = Server::default();
        let one = server.replica("one").await;
        eventually("one leads", || one.leads()).await;
        server.take_over("other");
        assert_eq!(one.ended().await, "leader lease kai-scheduler was taken by other");
    }

    #[tokio::test]
    async fn a_leader_ends_when_the_api_server_cannot_be_reached_for_too_long() {
        let server = Server::default();
        let one = server.replica("one").await;
        eventually("one leads", || one.leads()).await;
        server.set_unreachable();
        let expected = "could not renew leader lease kai-scheduler within 0.5 s";
        assert_eq!(one.ended().await, expected);
    }

    #[tokio::test]
    async fn a_request_without_an_answer_does_not_keep_a_replica_from_taking_over() {
        let server = Server::default();
        server.set_hanging(true);
        let one = server.replica("one").await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!one.leads());
        server.set_hanging(false);
        eventually("one leads", || one.leads()).await;
    }

    #[tokio::test]
    async fn a_request_without_an_answer_does_not_keep_a_leader_from_ending() {
        let server = Server::default();
        let one = server.replica("one").await;
        eventually("one leads", || one.leads()).await;
        server.set_hanging(true);
        one.stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(5), one.ended).await;
        ended.expect("the release has an end").unwrap().unwrap();
    }
}
