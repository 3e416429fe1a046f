//! One process: some components, one connection, one end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::pace::Deeds;
use crate::watch::Watches;
use crate::{
    AdmissionOptions, BinderOptions, Fault, GrouperOptions, Health, NodeScaleOptions, Pace, SchedulerOptions,
    StatusOptions, admission, binder, client, drafts, grouper, node_scale, scheduler, status,
};

/// What a process does and with what.
#[derive(Clone, Debug)]
pub struct Process {
    pub kubeconfig: Option<PathBuf>,
    /// Where health and metrics are told, if anywhere.
    pub listen: Option<SocketAddr>,
    /// Prefix of metrics.
    pub metrics_namespace: String,
    /// API calls a second that each component may make on average; 0 is no limit.
    pub qps: f64,
    /// And at once, after a quiet time.
    pub burst: u32,
    pub components: Vec<Component>,
}

#[derive(Clone, Debug)]
pub enum Component {
    Scheduler(Box<SchedulerOptions>),
    Binder(Box<BinderOptions>),
    Grouper(Box<GrouperOptions>),
    /// Status of pod groups.
    Groups(Box<StatusOptions>),
    /// Status of queues.
    Queues(Box<StatusOptions>),
    Admission(Box<AdmissionOptions>),
    /// Stand-ins for autoscalers to see.
    NodeScale(Box<NodeScaleOptions>),
}

impl Process {
    /// Runs until told to end, or until one component cannot go on: half a process is worse than a restart.
    pub fn run(self) -> Result<(), Fault> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Fault::Runtime)?;
        runtime.block_on(self.run_here())
    }

    async fn run_here(self) -> Result<(), Fault> {
        let client = client::connect(self.kubeconfig.as_deref()).await?;
        let stop = CancellationToken::new();
        let health = Health::new(&self.metrics_namespace);
        let watches = Watches::new(client.clone(), self.components.len() > 1);
        let deeds = Arc::new(Deeds::default());
        let mut parts = JoinSet::new();
        let (mut outbox, mut inbox) = draft_boxes(&self.components).unzip();
        for component in self.components {
            let pace = Arc::new(Pace::new(self.qps, self.burst, Arc::clone(&deeds)));
            let (client, watches, health, stop) = (client.clone(), watches.clone(), health.clone(), stop.clone());
            match component {
                Component::Scheduler(options) => {
                    parts.spawn(scheduler::run(client, watches, *options, inbox.take(), pace, health, stop))
                }
                Component::Binder(options) => parts.spawn(binder::run(client, watches, *options, pace, health, stop)),
                Component::Grouper(options) => {
                    parts.spawn(grouper::run(client, watches, *options, outbox.take(), pace, health, stop))
                }
                Component::Groups(options) => {
                    parts.spawn(status::run_groups(client, watches, *options, pace, health, stop))
                }
                Component::Queues(options) => {
                    parts.spawn(status::run_queues(client, watches, *options, pace, health, stop))
                }
                Component::Admission(options) => {
                    parts.spawn(admission::run(client, watches, *options, pace, health, stop))
                }
                Component::NodeScale(options) => {
                    parts.spawn(node_scale::run(client, watches, *options, pace, health, stop))
                }
            };
        }
        if let Some(address) = self.listen {
            parts.spawn(health.serve(address, stop.clone()));
        }
        let mut first = tokio::select! {
            end = told_to_end() => end,
            Some(ended) = parts.join_next() => ended.unwrap_or_else(|error| Err(Fault::Ended(error.to_string()))),
        };
        stop.cancel();
        while let Some(ended) = parts.join_next().await {
            first = first.and(ended.unwrap_or_else(|error| Err(Fault::Ended(error.to_string()))));
        }
        first
    }
}

/// For a grouper and the one scheduler that takes all pods it groups, if that is here.
fn draft_boxes(components: &[Component]) -> Option<(drafts::Outbox, drafts::Inbox)> {
    let takes_all = |component: &Component| match component {
        Component::Scheduler(options) => options.settings.node_pool_value.is_none(),
        _ => false,
    };
    let groups = components.iter().any(|component| matches!(component, Component::Grouper(_)));
    (groups && components.iter().any(takes_all)).then(drafts::boxes)
}

async fn told_to_end() -> Result<(), Fault> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Fault::Runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Fault::Runtime)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("told to end");
    Ok(())
}
