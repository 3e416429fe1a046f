//! A process: one or more components that share a connection and end together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::controller_loop::Context;
use crate::draft_channel::{DraftReceiver, DraftSender, draft_channel};
use crate::watch::SharedWatches;
use crate::write_priority::PriorityGate;
use crate::{
    AdmissionOptions, ApiLimits, BinderOptions, FatalError, GrouperOptions, Health, NodeScaleOptions, SchedulerOptions,
    StatusOptions, admission, binder, client, grouper, node_scale, scheduler, status,
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
    Scheduler(Box<SchedulerOptions>),
    Binder(Box<BinderOptions>),
    Grouper(Box<GrouperOptions>),
    /// Status of pod groups.
    PodGroupStatus(Box<StatusOptions>),
    /// Status of queues.
    QueueStatus(Box<StatusOptions>),
    Admission(Box<AdmissionOptions>),
    /// Scaling pods for cluster autoscalers.
    NodeScale(Box<NodeScaleOptions>),
}

impl Process {
    /// Runs until a shutdown signal, or until one component fails: half a process is worse than a restart.
    pub fn run(self) -> Result<(), FatalError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(FatalError::Runtime)?;
        runtime.block_on(self.run_here())
    }

    async fn run_here(self) -> Result<(), FatalError> {
        let health = Health::new(&self.metrics_namespace);
        let metrics = health.api_metrics();
        let client = client::connect(self.kubeconfig.as_deref(), metrics).await?;
        let stop = CancellationToken::new();
        let watches = SharedWatches::new(client.clone(), metrics.clone(), self.components.len() > 1);
        let gate = Arc::new(PriorityGate::default());
        let mut running = JoinSet::new();
        let (mut draft_sender, mut draft_receiver) = draft_channel_for(&self.components).unzip();
        for component in self.components {
            let limits = Arc::new(ApiLimits::new(self.qps, self.burst, Arc::clone(&gate), metrics.clone()));
            let context = Context {
                client: client.clone(),
                watches: watches.clone(),
                limits,
                health: health.clone(),
                stop: stop.clone(),
            };
            match component {
                Component::Scheduler(options) => {
                    running.spawn(scheduler::run(*options, draft_receiver.take(), context))
                }
                Component::Binder(options) => running.spawn(binder::run(*options, context)),
                Component::Grouper(options) => running.spawn(grouper::run(*options, draft_sender.take(), context)),
                Component::PodGroupStatus(options) => running.spawn(status::run_pod_group_status(*options, context)),
                Component::QueueStatus(options) => running.spawn(status::run_queue_status(*options, context)),
                Component::Admission(options) => {
                    let Context { client, watches, limits, health, stop } = context;
                    running.spawn(admission::run(client, watches, *options, limits, health, stop))
                }
                Component::NodeScale(options) => running.spawn(node_scale::run(*options, context)),
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
        while let Some(ended) = running.join_next().await {
            first = first.and(ended.unwrap_or_else(|error| panicked(&error)));
        }
        first
    }
}

/// For a grouper and the one scheduler of all pods that it groups, if both run here.
fn draft_channel_for(components: &[Component]) -> Option<(DraftSender, DraftReceiver)> {
    let schedules_all = |component: &Component| match component {
        Component::Scheduler(options) => options.settings.node_pool_value.is_none(),
        _ => false,
    };
    let has_grouper = components.iter().any(|component| matches!(component, Component::Grouper(_)));
    (has_grouper && components.iter().any(schedules_all)).then(draft_channel)
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
