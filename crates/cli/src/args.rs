//! What can be typed, and the help that teaches it.
#![allow(clippy::doc_markdown, reason = "doc comments are printed as help, where backticks would show")]

use std::path::{Path, PathBuf};

use clap::builder::Styles;
use clap::{Parser, Subcommand, ValueEnum};
use kai_control::scheduler::config::action_named;
use kai_engine::units::Timestamp;
use kai_generate::{SCENARIOS, Scenario};

use crate::components::ComponentCommand;
use crate::values::{Span, span};

const STYLES: Styles = Styles::styled()
    .header(anstyle::Style::new().bold())
    .usage(anstyle::Style::new().bold())
    .literal(anstyle::AnsiColor::Cyan.on_default())
    .placeholder(anstyle::AnsiColor::Cyan.on_default());

/// A GPU scheduler for Kubernetes, its controllers, and a simulator.
///
/// The same scheduler that runs in a cluster can be run here on plain YAML, with no cluster at all.
#[derive(Debug, Parser)]
#[command(name = "kai", version, styles = STYLES, max_term_width = 100, arg_required_else_help = true)]
#[command(after_long_help = "Try it:\n  kai simulate examples/consolidation")]
pub(crate) struct Args {
    /// When to use colours; NO_COLOR turns them off too
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: Color,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a cluster described in YAML and show what the scheduler does with it
    #[command(long_about = SIMULATE_ABOUT, after_long_help = SIMULATE_HELP, after_help = "See `kai simulate --help` for examples.")]
    Simulate(SimulateArgs),
    /// Run the scheduling cycle of a recorded cluster once more and show what it decides
    #[command(long_about = REPLAY_ABOUT, after_long_help = REPLAY_HELP, after_help = "See `kai replay --help` for examples.")]
    Replay(ReplayArgs),
    /// Write the input of a cluster's scheduler to a file, for `kai replay`
    ///
    /// Lists every kind of object that scheduling depends on, changes nothing, and leaves out the data of config maps.
    Snapshot(SnapshotArgs),
    /// Write a synthetic cluster of any size, for `kai replay` or `kai simulate`
    #[command(long_about = GENERATE_ABOUT, after_long_help = generate_help(), after_help = "See `kai generate --help` for the scenarios.")]
    Generate(GenerateArgs),
    /// Check a configuration file of the scheduler and show what it means
    #[command(long_about = CHECK_CONFIG_ABOUT, after_long_help = CHECK_CONFIG_HELP, after_help = "See `kai check-config --help` for examples.")]
    CheckConfig(CheckConfigArgs),
    /// Print the custom resource definitions as YAML
    ///
    /// Pipe it to `kubectl apply -f -` to install the kinds: Queue, PodGroup, BindRequest, Topology,
    /// SchedulingShard, Config.
    Crds,
    /// Print namespaces, service accounts and roles of all components as YAML
    ///
    /// Each component has its own service account with no more than the permissions it needs. Policies keep others
    /// from writing what components note on pods and pod groups. Pipe it to `kubectl apply -f -`.
    Rbac(RbacArgs),
    #[command(flatten)]
    Component(ComponentCommand),
}

/// What `kai rbac` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct RbacArgs {
    /// Let the pod grouper read a kind that is declared in the config map kai-workload-kinds as well, named as in
    /// `kubectl api-resources`: group and plural; may be given several times
    #[arg(long = "kind", value_name = "GROUP/PLURAL", value_parser = resource)]
    kinds: Vec<(String, String)>,
}

impl RbacArgs {
    pub(crate) fn kinds(&self) -> &[(String, String)] {
        &self.kinds
    }
}

fn resource(text: &str) -> Result<(String, String), String> {
    let good = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.'))
    };
    match text.split_once('/') {
        Some((group, plural)) if good(group) && good(plural) => Ok((group.to_owned(), plural.to_owned())),
        _ => Err("write group and plural, such as ml.example.com/trainers".to_owned()),
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct SimulateArgs {
    /// Files or folders with Kubernetes YAML; `-` is standard input
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Stop at this virtual time, such as 90s or 1h; otherwise when nothing more happens
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(crate) until: Option<Span>,
    /// Random seed; only matters with podStartJitter
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    pub(crate) seed: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// A snapshot: zip archive, gzipped JSON or JSON
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Run the cycle N times and report the fastest
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// Run only this action; may be repeated, and then runs them in this order
    #[arg(long, value_name = "NAME", value_parser = action)]
    pub(crate) action: Vec<String>,
    /// Another configuration of the scheduler, instead of the recorded one
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The time of the cycle, such as 2026-01-31T12:00:00Z; otherwise as recorded, or the latest time in the objects
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) now: Option<Moment>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotArgs {
    /// Archive to write
    #[arg(short, long, default_value = "snapshot.zip", value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// How to reach the cluster; otherwise KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The configuration of its scheduler; otherwise the default one
    #[arg(long, value_name = "FILE")]
    pub(crate) scheduler_conf: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GenerateArgs {
    /// What the cluster is like
    #[arg(value_name = "SCENARIO", value_parser = scenario)]
    pub(crate) scenario: &'static Scenario,
    /// Nodes of 8 GPUs
    #[arg(long, default_value_t = 100, value_name = "NUMBER", value_parser = count)]
    pub(crate) nodes: usize,
    /// Leaf queues; otherwise about one for ten nodes
    #[arg(long, value_name = "NUMBER", value_parser = count)]
    pub(crate) queues: Option<usize>,
    /// Pending workloads (pods in an empty cluster); otherwise as many as the scenario is known for
    #[arg(long, value_name = "NUMBER")]
    pub(crate) pending: Option<usize>,
    /// Start of every random sequence; equal arguments give equal files
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
    /// What to write; otherwise by the extension of the file
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<FileFormat>,
    /// Where to write it; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckConfigArgs {
    /// The file that the scheduler is started with
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileFormat {
    /// A snapshot that `kai replay` and KAI's own tools read
    Zip,
    /// Manifests for `kai simulate`
    Yaml,
}

impl FileFormat {
    /// By the extension of a file.
    pub(crate) fn of(path: &Path) -> Self {
        let yaml = path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
        if yaml || path.as_os_str() == "-" { Self::Yaml } else { Self::Zip }
    }
}

/// A point in time; clap wants a type of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(pub(crate) Timestamp);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables and a timeline for people
    #[default]
    Table,
    /// One JSON document
    Json,
    /// The same as YAML
    Yaml,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal that can show them
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    /// Applies to everything that prints.
    pub(crate) fn write_global(self) {
        match self {
            Self::Auto => anstream::ColorChoice::Auto,
            Self::Always => anstream::ColorChoice::Always,
            Self::Never => anstream::ColorChoice::Never,
        }
        .write_global();
    }
}

fn moment(text: &str) -> Result<Moment, String> {
    let instant =
        text.parse::<jiff::Timestamp>().map_err(|_| "write a time such as 2026-01-31T12:00:00Z".to_owned())?;
    Ok(Moment(Timestamp(instant.as_microsecond())))
}

fn action(name: &str) -> Result<String, String> {
    match action_named(name) {
        Some(_) => Ok(name.to_owned()),
        None => Err("use allocate, consolidation, reclaim, preempt or stalegangeviction".to_owned()),
    }
}

fn scenario(name: &str) -> Result<&'static Scenario, String> {
    let names = || SCENARIOS.iter().map(|scenario| scenario.name).collect::<Vec<_>>().join(", ");
    Scenario::named(name).ok_or_else(|| format!("there are {}", names()))
}

/// A number of things of which there must be some; the bound keeps a slip of the finger from filling a disk.
fn count(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=99_999).contains(number));
    number.ok_or_else(|| "use a number from 1 to 99999".to_owned())
}

const REPLAY_ABOUT: &str = "\
Run the scheduling cycle of a recorded cluster once more and show what it decides.

Reads the snapshots that KAI's scheduler serves at /get-snapshot and those of `kai generate`, runs the recorded actions \
with the recorded configuration, and prints every decision with its reason, the shares of queues, and why the rest is pending. \
Nothing is written anywhere; the same file always gives the same decisions.";

const REPLAY_HELP: &str = "\
Times are CPU time of this process: `open` is from tables of objects to the first action, `cycle` is that and all actions. \
Reading the file before and rendering the reasons after it are `read_ms` and `close_ms` in JSON and YAML.

Examples:
  kubectl port-forward -n kai-scheduler deploy/kai-scheduler-default 8081 &
  curl -o snapshot.zip http://localhost:8081/get-snapshot
  kai replay snapshot.zip
  kai replay snapshot.zip --action allocate --repeat 10 -o json | jq .cycle_ms
  kai replay snapshot.zip --config new-config.yaml

Exit status: 0 on success, 1 if the file cannot be used, 2 if the command line cannot be used.";

const CHECK_CONFIG_ABOUT: &str = "\
Check a configuration file of the scheduler and show what it means.

Reads the file as `kai scheduler --scheduler-conf FILE` reads it, and prints actions, plugins and the settings that follow. \
What the scheduler passes over is listed as a warning, such as a misspelt plugin; what it refuses is an error with the name of the \
field. No cluster is needed.";

const CHECK_CONFIG_HELP: &str = "\
A file, all of whose keys are optional:

  actions: allocate, consolidation, reclaim, preempt, stalegangeviction
  tiers:                               # replaces the default list of plugins
  - plugins:
    - {name: predicates}
    - {name: proportion}
    - {name: nodeplacement, arguments: {gpu: spread, cpu: binpack}}
  queueDepthPerAction: {allocate: 100} # jobs tried per queue
  keepNodesWhole: true

Examples:
  kai check-config config.yaml
  kai check-config config.yaml -o json | jq '.warnings | length'
  kai replay snapshot.zip --config config.yaml

Exit status: 0 if the scheduler would start with the file, 2 if it would refuse it.";

const GENERATE_ABOUT: &str = "\
Write a synthetic cluster of any size, for `kai replay` or `kai simulate`.

Nodes have 8 GPUs; leaf queues share them evenly; what runs and what waits depends on the scenario.";

fn generate_help() -> String {
    let row = |scenario: &Scenario| format!("  {:<20}{}", scenario.name, scenario.about);
    let rows = SCENARIOS.iter().map(row).collect::<Vec<_>>().join("\n");
    format!("Scenarios:\n{rows}\n{GENERATE_EXAMPLES}")
}

const GENERATE_EXAMPLES: &str = "
Examples:
  kai generate allocate --nodes 1000 -o allocate.zip
  kai replay allocate.zip -o json | jq '.bound, .cycle_ms'
  kai generate reclaim --nodes 50 -o - | kai simulate - --until 1h";

const SIMULATE_ABOUT: &str = "\
Run a cluster described in YAML and show what the scheduler does with it.

Reads ordinary Kubernetes manifests, many documents a file: Node, Queue, PriorityClass, Topology, PodGroup, Pod, Job, \
Deployment, ReplicaSet, StatefulSet, RayCluster, RayJob, RayService, PyTorchJob, TFJob, XGBoostJob, JAXJob, MPIJob, \
JobSet, LeaderWorkerSet and what they refer to. Controllers, operators, kubelets and nodes are simulated on a virtual \
clock; grouping and scheduling are the real thing. Prints a timeline of what was decided and why, then nodes, queues, and which pods are pending.";

const SIMULATE_HELP: &str = "\
A Scenario document says what happens and when. All keys are optional:

  apiVersion: kai.scheduler/v1alpha1
  kind: Scenario
  spec:
    until: 1h                          # end of the simulation
    duration: 10m                      # how long pods run; for ever if absent
    durations:                         # … for the pods of one workload
    - {kind: Job, name: train, namespace: team-a, duration: 30m}
    running:                           # pods that run when it begins
    - {name: train-0, namespace: team-a, node: node-1}
    scheduler:                         # as in the scheduler's configuration file
      keepNodesWhole: true
    podStartDelay: 1s                  # from bound to running
    podStopDelay: 1s                   # from evicted to gone
    steps:
    - {at: 10s, apply: more.yaml}      # relative to this file, not applied before
    - {at: 2m, scale: {kind: Deployment, name: web, replicas: 4}}
    - {at: 5m, nodeDown: node-2}
    - {at: 9m, nodeUp: node-2}
    - {at: 12m, delete: {kind: Job, name: train, namespace: team-a}}

Pods made by controllers are numbered: `train-0`, `train-1` …  A pod can say itself how long it runs, with the \
annotation `kai.scheduler/sim-duration: 5m`. Pods with a `spec.nodeName` run from the start.

Examples:
  kai simulate examples/consolidation
  kai simulate nodes.yaml queues.yaml jobs/ --until 1h
  kai simulate cluster/ -o json | jq .pending
  kubectl get nodes,queues,podgroups,pods -A -o yaml | kai simulate -

Exit status: 0 on success, 1 if the input cannot be used, 2 if the command line cannot be used.";
