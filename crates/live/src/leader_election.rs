//! Leader election among replicas by a Lease object, as client-go does it: only the own clock counts, and a lease is taken
//! over when its holder has not renewed it for its duration.
//!
//! ```text
//!   holder    renewal sent            renew_deadline: no write after this       duration
//!             ├───────────────────────┤─── calls in flight may still arrive ────┤
//!   observer  └──▶ stored ──▶ observed ├──────────────────── duration ────────────────────┤ takes over
//! ```
//!
//! The holder counts from when it sent its last successful renewal, an observer from when it had the answer that showed it:
//! however slow the network is, the first is earlier. The difference of deadline and duration is for writes in flight.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Config, Error};
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api_error::conflict_as_false;
use crate::api_metrics::ApiMetrics;
use crate::write_fence::WriteFence;
use crate::{FatalError, Health, client};

#[derive(Clone, Debug)]
pub struct LeaderElectionOptions {
    pub namespace: String,
    pub name: String,
    /// Tells replicas apart.
    pub identity: String,
    /// For how long the lease is held without being renewed.
    pub duration: Duration,
    /// So long after it sent its last successful renewal the leader stops to write, before others take over.
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

/// Less than the grace period of a pod, with the calls in flight before.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Of the deadline: an answer that is lost leaves time for another attempt, on another connection.
const ATTEMPTS_UNTIL_DEADLINE: u32 = 2;

/// A connection to the API server of its own, used by a thread of its own: components that are busy, or many writes, must
/// not delay a renewal.
#[derive(Clone)]
pub(crate) struct LeaseClient {
    runtime: Handle,
    client: Client,
}

impl LeaseClient {
    pub(crate) async fn connect(runtime: Handle, config: Config, metrics: ApiMetrics) -> Result<Self, FatalError> {
        let connecting = runtime.spawn(async move { client::connect(config, &metrics) });
        let client = connecting.await.map_err(|error| panicked(&error))??;
        Ok(Self { runtime, client })
    }

    /// Without a thread of its own.
    #[cfg(test)]
    pub(crate) fn here(client: Client) -> Self {
        Self { runtime: Handle::current(), client }
    }
}

/// Runs this while the lease is held; at once if there is no leader election. `fence` is open while it is held.
pub(crate) async fn run_as_leader(
    leases: LeaseClient,
    (health, component): (&Health, &'static str),
    election: Option<LeaderElectionOptions>,
    fence: &WriteFence,
    stop: CancellationToken,
    work: impl Future<Output = ()> + Send + 'static,
) -> Result<(), FatalError> {
    let Some(options) = election else {
        work.await;
        return Ok(());
    };
    let (lease, metrics) = (options.name.clone(), health.api_metrics());
    let elector = || LeaderElector::new(leases.client.clone(), options.clone(), fence.clone());
    metrics.set_leader(&lease, false);
    fence.extend_to(Instant::now());
    let standby = {
        let health = health.clone();
        move || health.standby(component)
    };
    let mut acquiring = JoinSet::new();
    acquiring.spawn_on(elector().acquire(standby), &leases.runtime);
    let acquired = tokio::select! {
        () = stop.cancelled() => return Ok(()),
        Some(acquired) = acquiring.join_next() => acquired.map_err(|error| panicked(&error))?,
    };
    metrics.set_leader(&lease, true);
    health.leading(component);
    let mut renewal = JoinSet::new();
    renewal.spawn_on(acquired.renew_until_lost(), &leases.runtime);
    // A task of its own: the loss is noticed even while a cycle keeps its thread busy.
    let mut working = JoinSet::new();
    working.spawn(work);
    let ended = tokio::select! {
        Some(lost) = renewal.join_next() => Err(lost.unwrap_or_else(|error| panicked(&error))),
        Some(done) = working.join_next() => done.map_err(|error| panicked(&error)),
    };
    // Also for calls that were abandoned at shutdown: others may lead in a moment.
    fence.close();
    metrics.set_leader(&lease, false);
    match &ended {
        Ok(()) => {
            // Its last call must not come after the release.
            renewal.shutdown().await;
            let mut releasing = JoinSet::new();
            releasing.spawn_on(elector().release(), &leases.runtime);
            releasing.join_next().await;
        }
        Err(error) => tracing::error!(lease, component, %error, "leading ended, nothing more is written"),
    }
    ended
}

fn panicked(error: &JoinError) -> FatalError {
    FatalError::ComponentPanicked(error.to_string())
}

struct LeaderElector {
    api: Api<Lease>,
    options: LeaderElectionOptions,
    fence: WriteFence,
    /// The last renewal by another replica, and when it was observed.
    last_observed_renewal: Option<(LeaseSpec, Instant)>,
    /// When the last renewal that succeeded was sent.
    renewed: Instant,
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
    fn new(client: Client, options: LeaderElectionOptions, fence: WriteFence) -> Self {
        let api = Api::namespaced(client, &options.namespace);
        Self { api, options, fence, last_observed_renewal: None, renewed: Instant::now() }
    }

    /// Waits until the lease is held; `on_standby` is called whenever another replica holds it.
    async fn acquire(mut self, on_standby: impl Fn() + Send) -> Self {
        let LeaderElectionOptions { name: lease, identity, .. } = self.options.clone();
        tracing::info!(lease, identity, "attempting to acquire leader lease");
        loop {
            match self.attempt(None).await {
                Some(Ok(Attempt::Held)) => break,
                Some(Ok(Attempt::HeldBy(_))) => on_standby(),
                Some(Ok(Attempt::Conflict)) => {}
                Some(Err(error)) => tracing::warn!(lease, %error, "cannot acquire leader lease, retrying"),
                None => tracing::warn!(lease, "leader lease request timed out, retrying"),
            }
            tokio::time::sleep(self.options.retry_period).await;
        }
        tracing::info!(lease, identity, "became leader");
        self
    }

    /// Renews the lease for as long as that works.
    async fn renew_until_lost(mut self) -> FatalError {
        let LeaderElectionOptions { name: lease, renew_deadline, retry_period, .. } = self.options.clone();
        loop {
            let deadline = self.renewed + renew_deadline;
            tokio::time::sleep_until(deadline.min(Instant::now() + retry_period)).await;
            // Also if this process, or its machine, was stopped for a while.
            if Instant::now() >= deadline {
                return FatalError::LeaseNotRenewed { lease, within: renew_deadline };
            }
            match self.attempt(Some(deadline)).await {
                Some(Ok(Attempt::Held)) => {}
                Some(Ok(Attempt::HeldBy(holder))) => return FatalError::LeaseTaken { lease, holder },
                Some(Ok(Attempt::Conflict)) => {
                    tracing::debug!(lease, "leader lease was written at the same time, retrying");
                }
                Some(Err(error)) => tracing::warn!(lease, %error, "cannot renew leader lease, retrying"),
                None => tracing::warn!(lease, "leader lease renewal timed out, retrying"),
            }
        }
    }

    /// Takes or renews the lease; nothing without an answer in time, at the deadline at the latest.
    async fn attempt(&mut self, deadline: Option<Instant>) -> Option<Result<Attempt, Error>> {
        let sent = Instant::now();
        let end = sent + self.options.renew_deadline / ATTEMPTS_UNTIL_DEADLINE;
        let end = deadline.map_or(end, |deadline| deadline.min(end));
        let attempt = tokio::time::timeout_at(end, self.try_acquire_or_renew()).await.ok()?;
        if matches!(attempt, Ok(Attempt::Held)) {
            self.renewed = sent;
            self.fence.extend_to(sent + self.options.renew_deadline);
        }
        Some(attempt)
    }

    /// Lets another replica lead at once. If that takes too long, the lease expires by itself.
    async fn release(self) {
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
    async fn try_acquire_or_renew(&mut self) -> Result<Attempt, Error> {
        let name = self.options.name.clone();
        let attempt = |written: bool| if written { Attempt::Held } else { Attempt::Conflict };
        let Some(mut lease) = self.api.get_opt(&name).await? else {
            let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.renewal_of(&LeaseSpec::default())) };
            return conflict_as_false(self.api.create(&PostParams::default(), &lease).await).map(attempt);
        };
        let spec = lease.spec.take().unwrap_or_default();
        let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty());
        let other = holder.filter(|holder| *holder != self.options.identity);
        if let Some(other) = other.filter(|_| !self.is_expired(&spec, Instant::now())) {
            return Ok(Attempt::HeldBy(other));
        }
        lease.spec = Some(self.renewal_of(&spec));
        // It carries the resource version that was read, so of two replicas one gets a conflict.
        conflict_as_false(self.api.replace(&name, &PostParams::default(), &lease).await).map(attempt)
    }

    /// Whether its holder has not changed it for its duration, by the own clock: `now` is after the answer that showed it.
    /// The times in the lease are of another clock, and only compared with each other.
    fn is_expired(&mut self, spec: &LeaseSpec, now: Instant) -> bool {
        let observed = match &self.last_observed_renewal {
            Some((renewal, at)) if renewal == spec => *at,
            _ => {
                self.last_observed_renewal = Some((spec.clone(), now));
                now
            }
        };
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        now.duration_since(observed) > seconds.map_or(self.options.duration, Duration::from_secs)
    }

    fn renewal_of(&self, before: &LeaseSpec) -> LeaseSpec {
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
mod tests;
