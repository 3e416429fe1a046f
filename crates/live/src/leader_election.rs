//! One leader among replicas, by a Lease object.
#![allow(clippy::disallowed_types, reason = "a lease is about time")]

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Error};
use tokio_util::sync::CancellationToken;

use crate::FatalError;
use crate::api_error::conflict_as_false;

#[derive(Clone, Debug)]
pub struct LeaderElectionOptions {
    pub namespace: String,
    pub name: String,
    /// Tells replicas apart.
    pub identity: String,
    /// For how long the lease is held without being renewed.
    pub duration: Duration,
    /// After so long without success the holder gives up, before others take over.
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

/// Does the work, after the lease is ours and for as long as it is; at once if no lease is wanted.
pub(crate) async fn run_as_leader(
    client: Client,
    lease: Option<LeaderElectionOptions>,
    stop: CancellationToken,
    work: impl Future<Output = ()>,
) -> Result<(), FatalError> {
    let Some(options) = lease else {
        work.await;
        return Ok(());
    };
    let mut leadership = LeaderElector::new(client, options);
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = leadership.acquire() => {}
    }
    tokio::select! {
        // Writes under way may still arrive, as they may after a crash.
        lost = leadership.renew_until_lost() => return Err(lost),
        () = work => {}
    }
    leadership.release().await;
    Ok(())
}

/// Our hold on a lease, or hope for one.
struct LeaderElector {
    api: Api<Lease>,
    options: LeaderElectionOptions,
    /// The last renewal by somebody else, and when we saw it: only our own clock counts.
    last_observed_renewal: Option<(Option<MicroTime>, Instant)>,
}

impl LeaderElector {
    fn new(client: Client, options: LeaderElectionOptions) -> Self {
        Self { api: Api::namespaced(client, &options.namespace), options, last_observed_renewal: None }
    }

    /// Waits until the lease is ours.
    async fn acquire(&mut self) {
        let LeaderElectionOptions { name, identity, .. } = self.options.clone();
        tracing::info!(lease = name, identity, "waiting to lead");
        loop {
            match self.try_acquire_or_renew(Instant::now()).await {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => tracing::warn!(lease = name, %error, "cannot ask for the lease"),
            }
            tokio::time::sleep(self.options.retry_period).await;
        }
        tracing::info!(lease = name, identity, "leading");
    }

    /// Renews the lease for as long as that works.
    async fn renew_until_lost(&mut self) -> FatalError {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(self.options.retry_period).await;
            match tokio::time::timeout(self.options.renew_deadline, self.try_acquire_or_renew(Instant::now())).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => return FatalError::LeaseLost(self.options.name.clone()),
                Ok(Err(error)) => tracing::warn!(lease = self.options.name, %error, "cannot renew the lease"),
                Err(_) => tracing::warn!(lease = self.options.name, "renewing the lease takes too long"),
            }
            if renewed.elapsed() > self.options.renew_deadline {
                return FatalError::LeaseLost(self.options.name.clone());
            }
        }
    }

    /// Lets others lead at once.
    async fn release(&mut self) {
        let Ok(Some(mut lease)) = self.api.get_opt(&self.options.name).await else { return };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_ref() == Some(&self.options.identity) {
            spec.holder_identity = None;
            // If it fails, the lease runs out by itself.
            let _ = self.api.replace(&self.options.name, &PostParams::default(), &lease).await;
        }
    }

    /// Takes or renews the lease if nobody else holds it.
    async fn try_acquire_or_renew(&mut self, now: Instant) -> Result<bool, Error> {
        let name = self.options.name.clone();
        let Some(mut lease) = self.api.get_opt(&name).await? else {
            let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.renewed(&LeaseSpec::default())) };
            return conflict_as_false(self.api.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.take().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty());
        if holder.is_some_and(|holder| holder != self.options.identity) && !self.is_expired(&spec, now) {
            return Ok(false);
        }
        lease.spec = Some(self.renewed(&spec));
        // It carries the version we read: whoever was faster wins.
        conflict_as_false(self.api.replace(&name, &PostParams::default(), &lease).await)
    }

    /// Whether its holder has not renewed it for as long as it said, by our clock.
    fn is_expired(&mut self, spec: &LeaseSpec, now: Instant) -> bool {
        let seen = match &self.last_observed_renewal {
            Some((renewed, seen)) if *renewed == spec.renew_time => *seen,
            _ => {
                self.last_observed_renewal = Some((spec.renew_time.clone(), now));
                now
            }
        };
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        now.duration_since(seen) > seconds.map_or(self.options.duration, Duration::from_secs)
    }

    fn renewed(&self, before: &LeaseSpec) -> LeaseSpec {
        let now = MicroTime(jiff::Timestamp::now());
        let ours = before.holder_identity.as_ref() == Some(&self.options.identity);
        LeaseSpec {
            holder_identity: Some(self.options.identity.clone()),
            lease_duration_seconds: Some(self.options.duration.as_secs() as i32),
            acquire_time: if ours { before.acquire_time.clone() } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(before.lease_transitions.unwrap_or(0) + i32::from(!ours)),
            ..before.clone()
        }
    }
}
