//! A cluster as a test describes it: plain data with names, read from text and written back to it.

use std::collections::BTreeMap;

use kai_engine::snapshot::Status;
use kai_engine::units::Ceiling;

/// Everything a test says about a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cluster {
    /// Scheduler settings, in order.
    pub(crate) settings: Vec<(String, String)>,
    /// Levels of the one topology, wide to narrow; each is a key of nodes.
    pub(crate) levels: Vec<String>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) jobs: Vec<Job>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) cpu_milli: i64,
    pub(crate) memory: i64,
    pub(crate) gpus: i64,
    pub(crate) pods: i64,
    /// MiB of each GPU, if known.
    pub(crate) gpu_memory: Option<i64>,
    /// MIG profiles (`mig-…`) and other resources (`+…`).
    pub(crate) extra: BTreeMap<String, i64>,
    /// GPUs held by unmanaged pods, and how many of those are being released.
    pub(crate) taken: i64,
    pub(crate) leaving: i64,
    /// Domain by topology level.
    pub(crate) domains: BTreeMap<String, String>,
    pub(crate) flags: Vec<Flag>,
}

/// What a node may be besides ordinary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    Cordoned,
    NotReady,
    Tainted,
    MigMixed,
    MigSingle,
}

impl Flag {
    pub(crate) const WORDS: [(&'static str, Self); 5] = [
        ("cordoned", Self::Cordoned),
        ("not-ready", Self::NotReady),
        ("tainted", Self::Tainted),
        ("mig-mixed", Self::MigMixed),
        ("mig-single", Self::MigSingle),
    ];
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) parent: Option<String>,
    pub(crate) priority: i32,
    /// Seconds since it was created.
    pub(crate) age: i64,
    pub(crate) quota: [Ceiling; 3],
    pub(crate) limit: [Ceiling; 3],
    /// Millionths, of every resource alike.
    pub(crate) weight: i64,
    /// Millionths of the cluster, of every resource alike.
    pub(crate) usage: i64,
    pub(crate) preempt_min: Option<i64>,
    pub(crate) reclaim_min: Option<i64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) queue: String,
    pub(crate) priority: i32,
    pub(crate) preemptible: bool,
    /// Times are seconds before now.
    pub(crate) age: i64,
    pub(crate) started: Option<i64>,
    pub(crate) stale: Option<i64>,
    pub(crate) evicted: Option<i64>,
    pub(crate) delay: i64,
    pub(crate) grace: Grace,
    /// Nodes it may use, by selector or affinity.
    pub(crate) only: Option<Vec<String>>,
    pub(crate) tolerates: bool,
    pub(crate) root: Group,
}

/// How long a job may lack its minimum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Grace {
    /// As the policy says.
    Default,
    /// For ever.
    Never,
    Seconds(i64),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) need: Option<u32>,
    pub(crate) bounds: LevelConstraint,
    pub(crate) members: Vec<Member>,
}

/// Topology levels that must or should hold a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LevelConstraint {
    pub(crate) required: Option<String>,
    pub(crate) preferred: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Member {
    Group(Group),
    Set(Set),
}

impl Member {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Group(group) => &group.name,
            Self::Set(set) => &set.name,
        }
    }
}

/// A pod set; its pods are alike in everything but their state. The only set of a plain job has no name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Set {
    pub(crate) name: String,
    pub(crate) min: u32,
    pub(crate) bounds: LevelConstraint,
    pub(crate) ask: Ask,
    /// TCP host ports.
    pub(crate) ports: Vec<u16>,
    /// What it is, for others to ask for.
    pub(crate) tags: Vec<String>,
    /// What it asks of others.
    pub(crate) pod_rules: Vec<PodRule>,
    pub(crate) nominated: Option<String>,
    pub(crate) pods: Vec<Pod>,
}

/// What a pod asks of others: `kind=tag@level`, `node` being the narrowest level.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodRule {
    pub(crate) kind: PodRuleKind,
    pub(crate) tag: String,
    pub(crate) level: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PodRuleKind {
    Affinity,
    AntiAffinity,
    /// With a weight: `prefer=web@zone*-10`.
    Prefer(i64),
    /// With the largest skew: `spread=web@zone*1`; a minimum of domains may follow: `*1/3`.
    Spread(u32, u32),
    SoftSpread(u32),
}

/// What one pod asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ask {
    pub(crate) cpu_milli: i64,
    pub(crate) memory: i64,
    pub(crate) gpu: Gpu,
    /// MIG profiles (`mig-…`) and other resources (`+…`).
    pub(crate) extra: BTreeMap<String, i64>,
}

impl Ask {
    pub(crate) fn is_mig(&self) -> bool {
        self.extra.keys().any(|name| name.starts_with("mig-"))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Gpu {
    #[default]
    None,
    Whole(i64),
    /// Millionths of each device.
    Share {
        devices: u32,
        portion: i64,
    },
    /// MiB of each device.
    Memory {
        devices: u32,
        mib: i64,
    },
}

/// The state of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pod {
    pub(crate) status: Status,
    /// Node and, for shared GPUs, their numbers on it.
    pub(crate) place: Option<(String, Vec<u32>)>,
}

impl Pod {
    pub(crate) const PENDING: Self = Self { status: Status::Pending, place: None };

    /// Words of states that come with a node.
    pub(crate) const PLACED: [(&'static str, Status); 5] = [
        ("running", Status::Running),
        ("bound", Status::Bound),
        ("binding", Status::Binding),
        ("releasing", Status::Releasing),
        ("stuck", Status::StuckInReleasing),
    ];
    /// Words of states that come with a number of pods.
    pub(crate) const COUNTED: [(&'static str, Status); 3] =
        [("pending", Status::Pending), ("gated", Status::Gated), ("succeeded", Status::Succeeded)];
}

impl Cluster {
    pub(crate) fn node(&self, name: &str) -> &Node {
        self.nodes.iter().find(|node| node.name == name).unwrap_or_else(|| panic!("there is no node {name}"))
    }
}
