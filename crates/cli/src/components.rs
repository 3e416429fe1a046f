//! `kai scheduler`, `kai binder` and the other components that run in a cluster.
#![allow(clippy::doc_markdown, reason = "doc comments are printed as help, where backticks would show")]

mod admission;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use clap::{Subcommand, ValueEnum};
use kai_api::keys::{label, name};
use kai_control::registry::{
    self, BINDER, NODE_SCALE_ADJUSTER, POD_GROUP_CONTROLLER, POD_GROUPER, QUEUE_CONTROLLER, Registered,
};
use kai_control::scheduler::{Configured, Settings};
use kai_live::{
    Component, ControllerOptions, LeaderElectionOptions, LogFormat, Process, QueueLabel, QueueStatusOptions,
    SchedulerOptions, SnapshotOptions, start_logs,
};
use kai_workloads::ObjectRef;
use serde_json::Value;

use crate::error::CliError;
use crate::files::read_yaml;
use crate::snapshot_file::snapshot_encoder;
use crate::values::{Span, everywhere, span};
use admission::AdmissionArgs;

/// Components of a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ComponentCommand {
    /// Run the scheduler of a cluster
    Scheduler(Run<SchedulerArgs>),
    /// Run the binder: carry out bind requests, reserve shared GPUs
    Binder(Run<BinderArgs>),
    /// Run the pod grouper: create the pod groups of workloads
    Podgrouper(Run<GrouperArgs>),
    /// Run the pod group controller: keep the status of pod groups, what their pods request and hold
    Podgroupcontroller(Run<PodGroupStatusArgs>),
    /// Run the queue controller: keep the status and the metrics of queues, at every level
    Queuecontroller(Run<QueueStatusArgs>),
    /// Run the admission webhooks: validate pods, queues, pod groups and topologies, inject GPU sharing
    Admission(Run<AdmissionArgs>),
    /// Run the node-scale adjuster: show pending pods that share GPUs to cluster autoscalers
    Nodescaleadjuster(Run<NodeScaleArgs>),
    /// Run scheduler, binder, podgrouper and both status controllers in one process (and admission with --webhooks)
    AllInOne(Box<Run<AllInOneArgs>>),
}

/// Runs the components of a command until a shutdown signal.
pub(crate) fn run(command: &ComponentCommand) -> Result<(), CliError> {
    match command {
        ComponentCommand::Scheduler(args) => args.run(),
        ComponentCommand::Binder(args) => args.run(),
        ComponentCommand::Podgrouper(args) => args.run(),
        ComponentCommand::Podgroupcontroller(args) => args.run(),
        ComponentCommand::Queuecontroller(args) => args.run(),
        ComponentCommand::Admission(args) => args.run(),
        ComponentCommand::Nodescaleadjuster(args) => args.run(),
        ComponentCommand::AllInOne(args) => args.run(),
    }
}

/// A command that runs components: its own arguments beside those of all components.
#[derive(Debug, clap::Args)]
pub(crate) struct Run<A: clap::Args> {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    own: A,
}

impl<A: clap::Args + Components> Run<A> {
    fn run(&self) -> Result<(), CliError> {
        let Self { common, own } = self;
        let components = own.components(common)?;
        let color = AutoStream::choice(&std::io::stderr()) != ColorChoice::Never;
        let json = common.log_json || common.log_format == Format::Json;
        start_logs(if json { LogFormat::Json } else { LogFormat::Text { color } }, &common.log_level);
        let process = Process {
            kubeconfig: common.kubeconfig.clone(),
            listen: common.listen_address.0,
            metrics_namespace: common.metrics_namespace.clone(),
            qps: common.qps,
            burst: common.burst,
            components,
        };
        process.run().map_err(|error| CliError::input(error.to_string(), "see the log above for the cause"))
    }
}

/// The components of a command.
pub(crate) trait Components {
    fn components(&self, common: &CommonArgs) -> Result<Vec<Component>, CliError>;
}

/// What every component takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CommonArgs {
    /// How to reach the cluster; otherwise KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Address of /healthz, /readyz and /metrics; `:8080` is port 8080 of every address, `off` disables them
    #[arg(long, alias = "metrics-bind-address", default_value = ":8080", value_name = "ADDRESS", value_parser = listen)]
    listen_address: Listen,
    /// Prefix of metrics
    #[arg(long, default_value = "kai", value_name = "NAME")]
    metrics_namespace: String,
    /// Sustained API requests per second, per component; 0 means unlimited
    #[arg(long, default_value_t = 50.0, value_name = "NUMBER")]
    qps: f64,
    /// Requests allowed in a burst above --qps
    #[arg(long, default_value_t = 300, value_name = "NUMBER")]
    burst: u32,
    /// Concurrent API writes per component
    #[arg(long, alias = "max-concurrent-reconciles", default_value_t = 32, value_name = "NUMBER")]
    workers: usize,
    /// Enable leader election: of several replicas one is active, the others stand by
    #[arg(long)]
    leader_elect: bool,
    /// Namespace of kai itself: Leases, certificate Secret, kai-workload-kinds
    #[arg(long, default_value = name::NAMESPACE, value_name = "NAME")]
    namespace: String,
    /// Handle pods with this spec.schedulerName
    #[arg(long, default_value = name::SCHEDULER, value_name = "NAME")]
    scheduler_name: String,
    /// Format of logs
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    log_format: Format,
    /// The same as --log-format json
    #[arg(long, hide = true)]
    log_json: bool,
    /// Log level: error, warn, info, debug or trace; RUST_LOG overrides it, per module
    #[arg(long, default_value = "info", value_name = "LEVEL")]
    log_level: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SchedulerArgs {
    /// Actions, plugins and their arguments; further flags by name under `args`
    #[arg(long, value_name = "FILE")]
    scheduler_conf: Option<PathBuf>,
    /// Longest time between two cycles; changes start one sooner, after 100 ms
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = span)]
    schedule_period: Span,
    /// Label that assigns nodes, queues and pod groups to shards
    #[arg(long, default_value = label::NODE_POOL, value_name = "KEY")]
    nodepool_label_key: String,
    /// Schedule only nodes, queues and pod groups with this node-pool label value; empty: those without the label
    #[arg(long, default_value = "", value_name = "VALUE")]
    partition_label_value: String,
    /// Delete pods instead of evicting them, regardless of PodDisruptionBudgets
    #[arg(long)]
    evict_by_delete: bool,
    /// Binds of one cycle and namespace from which one BindRequest is created for all; 0 always creates one each
    #[arg(long, default_value_t = Settings::default().batch_binds, value_name = "NUMBER")]
    batch_binds: usize,
    /// Serve /get-snapshot (input of kai replay) on 127.0.0.1:PORT; 0 disables it
    #[arg(long, default_value_t = 8081, value_name = "PORT")]
    plugin_server_port: u16,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BinderArgs {
    /// Namespace of GPU reservation pods
    #[arg(long, default_value = name::RESOURCE_RESERVATION, value_name = "NAME")]
    resource_reservation_namespace: String,
    /// Service account of GPU reservation pods
    #[arg(long, default_value = name::RESOURCE_RESERVATION, value_name = "NAME")]
    resource_reservation_service_account: String,
    /// Image of GPU reservation pods
    #[arg(long, default_value = "", value_name = "IMAGE")]
    resource_reservation_pod_image: String,
    /// For nodes with simulated GPUs: reservation pods only sleep
    #[arg(long)]
    fake_gpu_nodes: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GrouperArgs {
    /// Group pods of kinds without a rule as their Karta (run.ai) describes; true or false
    #[arg(
        long,
        default_value_t = true,
        default_missing_value = "true",
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        hide_possible_values = true,
        value_name = "BOOL"
    )]
    generic_karta_fallback: bool,
    /// ConfigMap with priority class and preemptibility per workload kind, in its key `types`; empty: none
    #[arg(
        long,
        default_value = "",
        requires = "default_priorities_configmap_namespace",
        value_name = "NAME",
        hide_default_value = true
    )]
    default_priorities_configmap_name: String,
    /// Namespace of that ConfigMap
    #[arg(
        long,
        default_value = "",
        requires = "default_priorities_configmap_name",
        value_name = "NAME",
        hide_default_value = true
    )]
    default_priorities_configmap_namespace: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PodGroupStatusArgs {}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct QueueStatusArgs {
    /// Queue labels to add to queue metrics: label=metric label,…
    #[arg(long, value_name = "PAIRS", value_delimiter = ',', value_parser = pair)]
    queue_label_to_metric_label: Vec<Pair>,
    /// Default metric label values for queues without the label: label=value,…
    #[arg(long, value_name = "PAIRS", value_delimiter = ',', value_parser = pair)]
    queue_label_to_default_metric_value: Vec<Pair>,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct NodeScaleArgs {
    /// Namespace of scaling pods, which stand in for pods that share GPUs
    #[arg(long, default_value = name::SCALE_ADJUST, value_name = "NAME")]
    scale_adjust_namespace: String,
    /// Image of scaling pods; must exit 0 immediately
    #[arg(long, default_value = "registry/local/kai-scheduler/scalingpod", value_name = "IMAGE")]
    scaling_pod_image: String,
    /// Value of the label `app` of scaling pods
    #[arg(long, default_value = name::SCALING_POD, value_name = "NAME")]
    scaling_pod_app_label: String,
    /// Service account of scaling pods
    #[arg(long, default_value = name::SCALE_ADJUST, value_name = "NAME")]
    scaling_pod_service_account: String,
    /// Fraction of a GPU to assume for a request of GPU memory, from 0 to 1
    #[arg(long, default_value = "0.1", value_name = "NUMBER", value_parser = hundredths)]
    gpu_memory_to_fraction_ratio: u32,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AllInOneArgs {
    #[command(flatten)]
    scheduler: SchedulerArgs,
    #[command(flatten)]
    binder: BinderArgs,
    #[command(flatten)]
    grouper: GrouperArgs,
    #[command(flatten)]
    queues: QueueStatusArgs,
    /// Run the admission webhooks, too, as `kai admission` does
    #[arg(long)]
    webhooks: bool,
    #[command(flatten)]
    admission: AdmissionArgs,
}

impl CommonArgs {
    /// Nothing without `--leader-elect`.
    fn election(&self, lease: &str, retry_seconds: u64) -> Option<LeaderElectionOptions> {
        self.leader_elect.then(|| LeaderElectionOptions {
            namespace: self.namespace.clone(),
            name: lease.to_owned(),
            identity: identity(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(retry_seconds),
        })
    }

    /// What every controller is started with.
    fn settings(&self) -> registry::Settings {
        let mut settings = registry::Settings { namespace: self.namespace.clone(), ..registry::Settings::default() };
        settings.scheduler.scheduler_name.clone_from(&self.scheduler_name);
        settings.grouper.scheduler_name.clone_from(&self.scheduler_name);
        settings
    }

    /// A controller that needs nothing of its process.
    fn controller(&self, registered: &'static Registered, settings: registry::Settings) -> Component {
        let election = registered.component.lease.and_then(|lease| self.election(lease, 2));
        Component::Controller(Box::new(ControllerOptions { registered, settings, workers: self.workers, election }))
    }
}

/// The pod's name, as KAI has it, and something that tells two processes of one host apart.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "localhost".to_owned());
    format!("{host}_{}", std::process::id())
}

impl Components for SchedulerArgs {
    fn components(&self, common: &CommonArgs) -> Result<Vec<Component>, CliError> {
        let file = self.scheduler_conf.as_deref().map_or(Ok(Value::Null), read_yaml)?;
        let invalid = |malformed: kai_control::Malformed| {
            let location = self.scheduler_conf.as_ref().map(|path| path.display().to_string());
            CliError::Input { problem: malformed.to_string(), location, help: Some(malformed.hint) }
        };
        let Configured { settings, warnings } = Configured::read(&file).map_err(invalid)?;
        for warning in warnings {
            crate::error::warn(&warning);
        }
        let shard = Some(self.partition_label_value.clone()).filter(|shard| !shard.is_empty());
        let name = &common.scheduler_name;
        let lease = shard.as_ref().map_or(name.clone(), |shard| format!("{name}-{shard}"));
        let settings = Settings {
            scheduler_name: name.clone(),
            node_pool_label_key: self.nodepool_label_key.clone(),
            node_pool_value: shard,
            batch_binds: self.batch_binds,
            ..settings
        };
        let snapshots = (self.plugin_server_port != 0)
            .then(|| SnapshotOptions { port: self.plugin_server_port, encoder: snapshot_encoder(file, &settings) });
        Ok(vec![Component::Scheduler(Box::new(SchedulerOptions {
            settings,
            period: Duration::from_micros(self.schedule_period.0.max(1000).unsigned_abs()),
            evict_by_delete: self.evict_by_delete,
            writers: common.workers,
            election: common.election(&lease, 5),
            snapshots,
        }))])
    }
}

impl Components for BinderArgs {
    fn components(&self, common: &CommonArgs) -> Result<Vec<Component>, CliError> {
        let mut settings = common.settings();
        settings.binder = kai_control::binder::Settings {
            reservation_namespace: self.resource_reservation_namespace.clone(),
            reservation_service_account: self.resource_reservation_service_account.clone(),
            reservation_image: self.resource_reservation_pod_image.clone(),
            fake_gpu_nodes: self.fake_gpu_nodes,
            ..settings.binder
        };
        Ok(vec![common.controller(&BINDER, settings)])
    }
}

impl Components for GrouperArgs {
    fn components(&self, common: &CommonArgs) -> Result<Vec<Component>, CliError> {
        let (name, namespace) = (&self.default_priorities_configmap_name, &self.default_priorities_configmap_namespace);
        let named = !name.is_empty() && !namespace.is_empty();
        let mut settings = common.settings();
        settings.grouper.karta_fallback = self.generic_karta_fallback;
        settings.grouper.kind_defaults_config_map = named.then(|| ObjectRef::new("v1", "ConfigMap", namespace, name));
        Ok(vec![common.controller(&POD_GROUPER, settings)])
    }
}

impl Components for PodGroupStatusArgs {
    fn components(&self, common: &CommonArgs) -> Result<Vec<Component>, CliError> {
        Ok(vec![common.controller(&POD_GROUP_CONTROLLER, common.settings())])
    }
}

impl Components for QueueStatusArgs {
    fn components(&self, common: &CommonArgs) -> Result<Vec<Component>, CliError> {
        let default = |label: &str| {
            let given = self.queue_label_to_default_metric_value.iter().find(|pair| pair.key == label);
            given.map_or_else(String::new, |pair| pair.value.clone())
        };
        let queue_label = |Pair { key, value }: &Pair| QueueLabel {
            label: key.clone(),
            metric_label: value.clone(),
            default: default(key),
        };
        let mut queue_labels: Vec<QueueLabel> = self.queue_label_to_metric_label.iter().map(queue_label).collect();
        queue_labels.sort_by(|one, other| one.label.cmp(&other.label));
        let election = QUEUE_CONTROLLER.component.lease.and_then(|lease| common.election(lease, 2));
        let options = QueueStatusOptions { workers: common.workers, queue_labels, election };
        Ok(vec![Component::QueueStatus(Box::new(options))])
    }
}

impl Components for NodeScaleArgs {
    fn components(&self, common: &CommonArgs) -> Result<Vec<Component>, CliError> {
        let mut settings = common.settings();
        settings.node_scale = kai_control::node_scale::Settings {
            namespace: self.scale_adjust_namespace.clone(),
            app: self.scaling_pod_app_label.clone(),
            service_account: self.scaling_pod_service_account.clone(),
            image: self.scaling_pod_image.clone(),
            memory_hundredths: self.gpu_memory_to_fraction_ratio,
        };
        Ok(vec![common.controller(&NODE_SCALE_ADJUSTER, settings)])
    }
}

impl Components for AllInOneArgs {
    fn components(&self, common: &CommonArgs) -> Result<Vec<Component>, CliError> {
        let mut components = self.grouper.components(common)?;
        components.extend(self.scheduler.components(common)?);
        components.extend(self.binder.components(common)?);
        components.extend(PodGroupStatusArgs {}.components(common)?);
        components.extend(self.queues.components(common)?);
        if self.webhooks {
            components.extend(self.admission.components(common)?);
        }
        Ok(components)
    }
}

/// `key=value`.
#[derive(Clone, Debug)]
struct Pair {
    key: String,
    value: String,
}

fn pair(text: &str) -> Result<Pair, String> {
    let (key, value) = text.split_once('=').ok_or("write label=value")?;
    Ok(Pair { key: key.to_owned(), value: value.to_owned() })
}

#[derive(Clone, Copy, Debug)]
struct Listen(Option<SocketAddr>);

fn listen(text: &str) -> Result<Listen, String> {
    if text == "off" || text == "0" {
        return Ok(Listen(None));
    }
    let port = text.strip_prefix(':').and_then(|port| port.parse().ok());
    let address = port.map(everywhere).or_else(|| text.parse().ok());
    address.map(|address| Listen(Some(address))).ok_or_else(|| "write :8080, 127.0.0.1:8080, or off".to_owned())
}

/// A fraction in hundredths, rounded up: less than one hundredth would be nothing.
fn hundredths(text: &str) -> Result<u32, String> {
    let fraction = text.parse::<f64>().ok().filter(|fraction| (0.0..=1.0).contains(fraction));
    fraction.map(|fraction| (fraction * 100.0).ceil() as u32).ok_or_else(|| "write a number from 0 to 1".to_owned())
}
