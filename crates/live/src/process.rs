//! A process: one or more components that share a connection and end together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kai_control::component::Component as Named;
use kai_control::registry::{POD_GROUPER, QUEUE_CONTROLLER, SCHEDULER};
use tokio::runtime::{Builder, Handle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::controller_loop::Context;
use crate::controllers::{self, ControllerOptions};
use crate::leader_election::LeaseClient;
use crate::planned_channel::{PlannedReceiver, PlannedSender, planned_channel};
use crate::watch::SharedWatches;
use crate::write_priority::PriorityGate;
use crate::{
    AdmissionOptions, ApiLimits, FatalError, Health, QueueStatusOptions, SchedulerOptions, admission, client,
    scheduler, status_controllers,
};

/// What a process does and with what.
#[derive(Clone, Debug)]
pub struct Process {
    pub kubeconfig: Option<PathBuf>,
    /// Where health and metrics are served, if anywhere.
    pub listen: Option<SocketAddr>,
    /// Prefix of metrics.
    pub metrics_namespace: String,
    /// Sustained API requests per second of each component; 0 means unlimited.
    pub qps: f64,
    /// Requests allowed in a burst above `qps`.
    pub burst: u32,
    pub components: Vec<Component>,
}

#[derive(Clone, Debug)]
pub enum Component {
    /// A controller of the registry as it is.
    Controller(Box<ControllerOptions>),
    /// With usage, metrics and `/get-snapshot`.
    Scheduler(Box<SchedulerOptions>),
    /// With metrics of queues.
    QueueStatus(Box<QueueStatusOptions>),
    /// With a webhook server and its certificate.
    Admission(Box<AdmissionOptions>),
}

impl Component {
    fn named(&self) -> &'static Named {
        match self {
            Self::Controller(options) => options.registered.component,
            Self::Scheduler(_) => SCHEDULER.component,
            Self::QueueStatus(_) => QUEUE_CONTROLLER.component,
            Self::Admission(_) => &kai_control::admission::COMPONENT,
        }
    }

    fn is_grouper(&self) -> bool {
        self.named().name == POD_GROUPER.component.name
    }
}

/// For components to end: writes in flight and the release of a lease have 5 s each, requests on ports 3 s. Less than the
/// grace period of a pod, so that what does not end is reported.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);
/// For a thread that is busy with a cycle whose outcome no longer matters.
const THREAD_TIMEOUT: Duration = Duration::from_secs(1);

impl Process {
    /// Runs until a shutdown signal, or until one component fails: half a process is worse than a restart.
    pub fn run(self) -> Result<(), FatalError> {
        let runtime = Builder::new_multi_thread().enable_all().build().map_err(FatalError::Runtime)?;
        // A thread of its own: leases are renewed however busy the others are.
        let leases = Builder::new_multi_thread().worker_threads(1).thread_name("leases").enable_all().build();
        let leases = leases.map_err(FatalError::Runtime)?;
        let ended = runtime.block_on(self.run_here(leases.handle().clone()));
        leases.shutdown_background();
        runtime.shutdown_timeout(THREAD_TIMEOUT);
        ended
    }

    async fn run_here(self, leases: Handle) -> Result<(), FatalError> {
        let health = Health::new(&self.metrics_namespace);
        let metrics = health.api_metrics();
        let config = client::config(self.kubeconfig.as_deref()).await?;
        let leases = LeaseClient::connect(leases, config.clone(), metrics.clone()).await?;
        let client = client::connect(config, metrics)?;
        let stop = CancellationToken::new();
        let watches = SharedWatches::new(client.clone(), metrics.clone(), self.components.len() > 1);
        let gate = Arc::new(PriorityGate::default());
        let mut running = JoinSet::new();
        let (mut planned_to, mut planned_from) = planned_channel_for(&self.components).unzip();
        // All of them before the first one starts: a process is ready when the last one is.
        for component in &self.components {
            health.add_component(component.named().name);
        }
        for component in self.components {
            let limits = Arc::new(ApiLimits::new(self.qps, self.burst, Arc::clone(&gate), metrics.clone()));
            let context = Context {
                client: client.clone(),
                leases: leases.clone(),
                watches: watches.clone(),
                limits,
                health: health.clone(),
                stop: stop.clone(),
            };
            let planned_to = if component.is_grouper() { planned_to.take() } else { None };
            match component {
                Component::Controller(options) => running.spawn(controllers::run(*options, planned_to, context)),
                Component::Scheduler(options) => running.spawn(scheduler::run(*options, planned_from.take(), context)),
                Component::QueueStatus(options) => running.spawn(status_controllers::run(*options, context)),
                Component::Admission(options) => running.spawn(admission::run(*options, context)),
            };
        }
        if let Some(address) = self.listen {
            running.spawn(health.serve(address, stop.clone()));
        }
        let mut first = tokio::select! {
            end = shutdown_signal() => end,
            Some(ended) = running.join_next() => ended.unwrap_or_else(|error| panicked(&error)),
        };
        stop.cancel();
        let all_ended = async {
            while let Some(ended) = running.join_next().await {
                first = std::mem::replace(&mut first, Ok(())).and(ended.unwrap_or_else(|error| panicked(&error)));
            }
        };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, all_ended).await.is_err() {
            let timeout = SHUTDOWN_TIMEOUT.as_secs();
            tracing::warn!(timeout, "some components did not stop in time, ending without them");
        }
        first
    }
}

/// For a grouper and the one scheduler of all pods that it groups, if both run here.
fn planned_channel_for(components: &[Component]) -> Option<(PlannedSender, PlannedReceiver)> {
    let schedules_all = |component: &Component| match component {
        Component::Scheduler(options) => options.settings.node_pool_value.is_none(),
        _ => false,
    };
    let has_grouper = components.iter().any(Component::is_grouper);
    (has_grouper && components.iter().any(schedules_all)).then(planned_channel)
}

fn panicked(error: &JoinError) -> Result<(), FatalError> {
    Err(FatalError::ComponentPanicked(error.to_string()))
}

async fn shutdown_signal() -> Result<(), FatalError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(FatalError::Runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(FatalError::Runtime)?;
    let signal = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    tracing::info!(signal, "shutdown signal received, stopping");
    Ok(())
}
