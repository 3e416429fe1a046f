//! `kai scheduler`, `kai binder` and the other parts that run in a cluster.
#![allow(clippy::doc_markdown, reason = "doc comments are printed as help, where backticks would show")]

mod admission;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use kai_api::keys::{label, name};
use kai_control::Key;
use kai_control::scheduler::{Configured, Settings};
use kai_live::{
    BinderOptions, Component, GrouperOptions, LeaderElectionOptions, LogFormat, NodeScaleOptions, Process, QueueLabel,
    SchedulerOptions, SnapshotOptions, StatusOptions, start_logs,
};
use serde_json::Value;

use crate::args::{Span, span};
use crate::complaint::Complaint;
use crate::snapshot::packer;
use admission::AdmissionArgs;

/// What every part takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CommonArgs {
    /// How to reach the cluster; otherwise KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Where to answer /healthz, /readyz and /metrics; `:8080` is port 8080 of every address, `off` is nowhere
    #[arg(long, alias = "metrics-bind-address", default_value = ":8080", value_name = "ADDRESS", value_parser = listen)]
    listen_address: Listen,
    /// Prefix of metrics
    #[arg(long, default_value = "kai", value_name = "NAME")]
    metrics_namespace: String,
    /// API calls a second, on average; 0 is no limit
    #[arg(long, default_value_t = 50.0, value_name = "NUMBER")]
    qps: f64,
    /// API calls at once, after a quiet time
    #[arg(long, default_value_t = 300, value_name = "NUMBER")]
    burst: u32,
    /// API calls at the same time
    #[arg(long, alias = "max-concurrent-reconciles", default_value_t = 32, value_name = "NUMBER")]
    workers: usize,
    /// Only the replica that holds the lease works
    #[arg(long)]
    leader_elect: bool,
    /// Our own namespace: of leases and certificates
    #[arg(long, default_value = name::NAMESPACE, value_name = "NAME")]
    namespace: String,
    /// Pods that ask for this scheduler are ours
    #[arg(long, default_value = name::SCHEDULER, value_name = "NAME")]
    scheduler_name: String,
    /// Log one JSON object a line
    #[arg(long)]
    log_json: bool,
    /// Least important messages to log: error, warn, info, debug or trace; RUST_LOG says more
    #[arg(long, default_value = "info", value_name = "LEVEL")]
    log_level: String,
}

/// What the scheduler takes beside that.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SchedulerArgs {
    /// Actions, plugins and their arguments; further flags by name under `args`
    #[arg(long, value_name = "FILE")]
    scheduler_conf: Option<PathBuf>,
    /// From one cycle to the next
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = span)]
    schedule_period: Span,
    /// Label that assigns nodes, queues and groups to shards
    #[arg(long, default_value = label::NODE_POOL, value_name = "KEY")]
    nodepool_label_key: String,
    /// The shard to serve; by default everything without the label
    #[arg(long, default_value = "", value_name = "VALUE")]
    partition_label_value: String,
    /// Delete pods instead of evicting them, whatever their disruption budgets say
    #[arg(long)]
    evict_by_delete: bool,
    /// Ask for so many binds of one cycle and namespace in one BindRequest instead of one each; 0 never does
    #[arg(long, default_value_t = Settings::default().batch_binds, value_name = "NUMBER")]
    batch_binds: usize,
    /// Port of 127.0.0.1 where /get-snapshot answers with what `kai replay` reads; 0 is nowhere
    #[arg(long, default_value_t = 8081, value_name = "PORT")]
    plugin_server_port: u16,
}

/// What the binder takes beside that.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BinderArgs {
    /// Where pods that reserve shared GPUs live
    #[arg(long, default_value = name::RESOURCE_RESERVATION, value_name = "NAME")]
    resource_reservation_namespace: String,
    /// As whom they run
    #[arg(long, default_value = name::RESOURCE_RESERVATION, value_name = "NAME")]
    resource_reservation_service_account: String,
    /// What they run
    #[arg(long, default_value = "", value_name = "IMAGE")]
    resource_reservation_pod_image: String,
    /// GPUs are pretended: reservation pods only sleep
    #[arg(long)]
    fake_gpu_nodes: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunScheduler {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    scheduler: SchedulerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunBinder {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    binder: BinderArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunGrouper {
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunGroups {
    #[command(flatten)]
    common: CommonArgs,
}

/// What the queue controller takes beside that.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct QueueArgs {
    /// Labels of queues that their metrics carry: label=metric label, several with commas
    #[arg(long, value_name = "PAIRS", value_delimiter = ',', value_parser = pair)]
    queue_label_to_metric_label: Vec<Pair>,
    /// What these say of queues without the label: label=value, several with commas
    #[arg(long, value_name = "PAIRS", value_delimiter = ',', value_parser = pair)]
    queue_label_to_default_metric_value: Vec<Pair>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunQueues {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    queues: QueueArgs,
}

/// What the node-scale adjuster takes beside that.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct NodeScaleArgs {
    /// Where stand-ins for pods that share GPUs are made
    #[arg(long, default_value = name::SCALE_ADJUST, value_name = "NAME")]
    scale_adjust_namespace: String,
    /// What they run; it should end at once, and well
    #[arg(long, default_value = "registry/local/kai-scheduler/scalingpod", value_name = "IMAGE")]
    scaling_pod_image: String,
    /// Value of their label `app`
    #[arg(long, default_value = "scaling-pod", value_name = "NAME")]
    scaling_pod_app_label: String,
    /// As whom they run
    #[arg(long, default_value = name::SCALE_ADJUST, value_name = "NAME")]
    scaling_pod_service_account: String,
    /// Part of a GPU to assume for a request in memory, from 0 to 1
    #[arg(long, default_value = "0.1", value_name = "NUMBER", value_parser = hundredths)]
    gpu_memory_to_fraction_ratio: u32,
}

/// A part of one, in hundredths, rounded up: less than one would be nothing.
fn hundredths(text: &str) -> Result<u32, String> {
    let part = text.parse::<f64>().ok().filter(|part| (0.0..=1.0).contains(part));
    part.map(|part| (part * 100.0).ceil() as u32).ok_or_else(|| "write a number from 0 to 1".to_owned())
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunNodeScale {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    node_scale: NodeScaleArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunAdmission {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    admission: AdmissionArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunAll {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    scheduler: SchedulerArgs,
    #[command(flatten)]
    binder: BinderArgs,
    #[command(flatten)]
    queues: QueueArgs,
    /// Register and answer the webhooks of `kai admission`, too
    #[arg(long)]
    webhooks: bool,
    #[command(flatten)]
    admission: AdmissionArgs,
}

/// `key=value`.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    key: String,
    value: String,
}

fn pair(text: &str) -> Result<Pair, String> {
    let (key, value) = text.split_once('=').ok_or("write label=value")?;
    Ok(Pair { key: key.to_owned(), value: value.to_owned() })
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Listen(Option<SocketAddr>);

fn listen(text: &str) -> Result<Listen, String> {
    if text == "off" || text == "0" {
        return Ok(Listen(None));
    }
    let everywhere = text.strip_prefix(':').and_then(|port| port.parse().ok());
    let address = everywhere.map(|port| SocketAddr::new(IpAddr::from(Ipv6Addr::UNSPECIFIED), port));
    let address = address.or_else(|| text.parse().ok());
    address.map(|address| Listen(Some(address))).ok_or_else(|| "write :8080, 127.0.0.1:8080, or off".to_owned())
}

pub(crate) fn scheduler(args: &RunScheduler) -> Result<(), Complaint> {
    run(&args.common, vec![args.scheduler.component(&args.common)?])
}

pub(crate) fn binder(args: &RunBinder) -> Result<(), Complaint> {
    run(&args.common, vec![args.binder.component(&args.common)])
}

pub(crate) fn grouper(args: &RunGrouper) -> Result<(), Complaint> {
    run(&args.common, vec![args.common.grouper()])
}

pub(crate) fn groups(args: &RunGroups) -> Result<(), Complaint> {
    run(&args.common, vec![args.common.groups()])
}

pub(crate) fn queues(args: &RunQueues) -> Result<(), Complaint> {
    run(&args.common, vec![args.queues.component(&args.common)])
}

pub(crate) fn admission(args: &RunAdmission) -> Result<(), Complaint> {
    run(&args.common, vec![args.admission.component(&args.common)])
}

pub(crate) fn node_scale(args: &RunNodeScale) -> Result<(), Complaint> {
    run(&args.common, vec![args.node_scale.component(&args.common)])
}

pub(crate) fn all_in_one(args: &RunAll) -> Result<(), Complaint> {
    let RunAll { common, scheduler, binder, queues, webhooks, admission } = args;
    let scheduler = scheduler.component(common)?;
    let (binder, queues) = (binder.component(common), queues.component(common));
    let mut components = vec![common.grouper(), scheduler, binder, common.groups(), queues];
    if *webhooks {
        components.push(admission.component(common));
    }
    run(common, components)
}

fn run(common: &CommonArgs, components: Vec<Component>) -> Result<(), Complaint> {
    let color = AutoStream::choice(&std::io::stderr()) != ColorChoice::Never;
    start_logs(if common.log_json { LogFormat::Json } else { LogFormat::Text { color } }, &common.log_level);
    let process = Process {
        kubeconfig: common.kubeconfig.clone(),
        listen: common.listen_address.0,
        metrics_namespace: common.metrics_namespace.clone(),
        qps: common.qps,
        burst: common.burst,
        components,
    };
    process.run().map_err(|fault| Complaint::input(fault.to_string(), "the log above tells what led to it"))
}

impl CommonArgs {
    fn grouper(&self) -> Component {
        let settings = kai_workloads::Settings {
            scheduler_name: self.scheduler_name.clone(),
            ..kai_workloads::Settings::default()
        };
        let election = self.lease("54dff599.kai.scheduler", 2);
        let declarations = Key::new(&self.namespace, name::WORKLOAD_KINDS);
        Component::Grouper(Box::new(GrouperOptions { settings, declarations, workers: self.workers, election }))
    }

    fn groups(&self) -> Component {
        Component::PodGroupStatus(Box::new(self.status("o1x22tjj.kai.scheduler")))
    }

    fn status(&self, lease: &str) -> StatusOptions {
        let scheduler_name = self.scheduler_name.clone();
        StatusOptions {
            scheduler_name,
            workers: self.workers,
            queue_labels: Vec::new(),
            election: self.lease(lease, 2),
        }
    }

    fn lease(&self, lease: &str, retry_seconds: u64) -> Option<LeaderElectionOptions> {
        self.leader_elect.then(|| LeaderElectionOptions {
            namespace: self.namespace.clone(),
            name: lease.to_owned(),
            identity: identity(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(retry_seconds),
        })
    }
}

/// The pod's name, as KAI has it, and something that tells two processes of one host apart.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "localhost".to_owned());
    format!("{host}_{}", std::process::id())
}

impl NodeScaleArgs {
    fn component(&self, common: &CommonArgs) -> Component {
        let settings = kai_control::node_scale::Settings {
            namespace: self.scale_adjust_namespace.clone(),
            app: self.scaling_pod_app_label.clone(),
            service_account: self.scaling_pod_service_account.clone(),
            image: self.scaling_pod_image.clone(),
            memory_hundredths: self.gpu_memory_to_fraction_ratio,
        };
        let scheduler_name = common.scheduler_name.clone();
        let election = common.lease("7n7h49uc.kai.scheduler", 2);
        Component::NodeScale(Box::new(NodeScaleOptions { settings, scheduler_name, workers: common.workers, election }))
    }
}

impl SchedulerArgs {
    fn component(&self, common: &CommonArgs) -> Result<Component, Complaint> {
        let file = self.scheduler_conf.as_deref().map_or(Ok(Value::Null), read_yaml)?;
        let wrong = |malformed: kai_control::Malformed| {
            let place = self.scheduler_conf.as_ref().map(|path| path.display().to_string());
            Complaint::Input { problem: malformed.to_string(), place, help: Some(malformed.hint) }
        };
        let Configured { settings, warnings } = Configured::read(&file).map_err(wrong)?;
        for warning in warnings {
            crate::complaint::warn(&warning);
        }
        let shard = Some(self.partition_label_value.clone()).filter(|shard| !shard.is_empty());
        let lease =
            shard.as_ref().map_or(common.scheduler_name.clone(), |shard| format!("{}-{shard}", common.scheduler_name));
        let settings = Settings {
            scheduler_name: common.scheduler_name.clone(),
            node_pool_label_key: self.nodepool_label_key.clone(),
            node_pool_value: shard,
            batch_binds: self.batch_binds,
            ..settings
        };
        let snapshots = (self.plugin_server_port != 0)
            .then(|| SnapshotOptions { port: self.plugin_server_port, pack: packer(file, &settings) });
        Ok(Component::Scheduler(Box::new(SchedulerOptions {
            settings,
            period: Duration::from_micros(self.schedule_period.0.max(1000).unsigned_abs()),
            evict_by_delete: self.evict_by_delete,
            writers: common.workers,
            election: common.lease(&lease, 5),
            snapshots,
        })))
    }
}

impl BinderArgs {
    fn component(&self, common: &CommonArgs) -> Component {
        let settings = kai_control::binder::Settings {
            reservation_namespace: self.resource_reservation_namespace.clone(),
            reservation_service_account: self.resource_reservation_service_account.clone(),
            reservation_image: self.resource_reservation_pod_image.clone(),
            fake_gpu_nodes: self.fake_gpu_nodes,
            ..kai_control::binder::Settings::default()
        };
        let election = common.lease("2ad35f9c.kai.scheduler", 2);
        Component::Binder(Box::new(BinderOptions { settings, workers: common.workers, election }))
    }
}

impl QueueArgs {
    fn component(&self, common: &CommonArgs) -> Component {
        let default = |label: &str| {
            let given = self.queue_label_to_default_metric_value.iter().find(|pair| pair.key == label);
            given.map_or_else(String::new, |pair| pair.value.clone())
        };
        let mut queue_labels: Vec<QueueLabel> = self
            .queue_label_to_metric_label
            .iter()
            .map(|Pair { key, value }| QueueLabel {
                label: key.clone(),
                metric_label: value.clone(),
                default: default(key),
            })
            .collect();
        queue_labels.sort_by(|one, other| one.label.cmp(&other.label));
        Component::QueueStatus(Box::new(StatusOptions { queue_labels, ..common.status("ov3xj497.kai.scheduler") }))
    }
}

pub(crate) fn read_yaml(path: &Path) -> Result<Value, Complaint> {
    let place = Some(path.display().to_string());
    let wrong = |problem: String| Complaint::Input { problem, place, help: None };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return Err(wrong(format!("cannot be read: {error}"))),
    };
    yaml_serde::from_str(&text).map_err(|error| wrong(format!("is not YAML: {error}")))
}
