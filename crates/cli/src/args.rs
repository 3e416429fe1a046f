//! What can be typed, and the help that teaches it.
#![allow(clippy::doc_markdown, reason = "doc comments are printed as help, where backticks would show")]

use std::path::PathBuf;

use clap::builder::Styles;
use clap::{Parser, Subcommand, ValueEnum};
use kai_sim::time::parse_span;

const STYLES: Styles = Styles::styled()
    .header(anstyle::Style::new().bold())
    .usage(anstyle::Style::new().bold())
    .literal(anstyle::AnsiColor::Cyan.on_default())
    .placeholder(anstyle::AnsiColor::Cyan.on_default());

/// A scheduler for GPU clusters, and what surrounds it.
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
    /// Print the custom resource definitions as YAML
    ///
    /// Pipe it to `kubectl apply -f -` to let a cluster know the kinds: Queue, PodGroup, BindRequest, Topology,
    /// SchedulingShard, Config.
    Crds,
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
    /// Seed for what varies by chance; only scenarios with `podStartJitter` have such things
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    pub(crate) seed: u64,
}

/// Microseconds; clap wants a type of its own to print defaults and errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span(pub(crate) i64);

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
    /// Tells everything that prints.
    pub(crate) fn write_global(self) {
        match self {
            Self::Auto => anstream::ColorChoice::Auto,
            Self::Always => anstream::ColorChoice::Always,
            Self::Never => anstream::ColorChoice::Never,
        }
        .write_global();
    }
}

fn span(text: &str) -> Result<Span, String> {
    parse_span(text).map(|span| Span(span.0)).ok_or_else(|| "write a time such as 90s, 5m or 1h30m".to_owned())
}

const SIMULATE_ABOUT: &str = "\
Run a cluster described in YAML and show what the scheduler does with it.

Reads ordinary Kubernetes manifests, many documents a file: Node, Queue, PriorityClass, Topology, PodGroup, Pod, Job, \
Deployment and ReplicaSet. Controllers, kubelets and nodes are simulated on a virtual clock; grouping and scheduling \
are the real thing. Prints a timeline of what was decided and why, then nodes, queues and who still waits.";

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
