//! What `kai replay` says, for people and programs.

use std::time::Duration;

use kai_control::World;
use kai_control::scheduler::record::CycleRecord;
use kai_control::scheduler::{CycleResult, Effect, GpuGroup, PendingJob};
use kai_sim::report::{QueueRow, queue_rows};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::Cost;

/// Times are milliseconds of CPU time.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) open_ms: f64,
    pub(crate) actions_ms: Actions,
    /// Opening and all actions.
    pub(crate) cycle_ms: f64,
    pub(crate) bound: usize,
    pub(crate) pipelined: usize,
    pub(crate) evicted: usize,
    /// Most memory in use at once during the cycle.
    pub(crate) rss_mb: f64,
    pub(crate) decisions: Vec<Decision>,
    pub(crate) pending: Vec<Pending>,
    pub(crate) shares: Vec<QueueRow>,
    /// Objects that could not be used as written.
    pub(crate) problems: Vec<String>,
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    /// From the file to tables of objects, before the cycle.
    pub(crate) read_ms: f64,
    /// From decisions to words, after the cycle.
    pub(crate) close_ms: f64,
    /// What the cycle saw, decided and why, as data.
    pub(crate) record: CycleRecord,
}

/// Actions in the order in which they ran.
#[derive(Debug)]
pub(crate) struct Actions(pub(crate) Vec<(&'static str, f64)>);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Decision {
    /// `namespace/name`.
    pub(crate) pod: String,
    pub(crate) kind: &'static str,
    /// Where it goes; of an evicted pod where it was.
    pub(crate) node: Option<String>,
    pub(crate) gpu_groups: Vec<String>,
    /// The job for which a pod is evicted.
    pub(crate) preemptor: Option<String>,
    pub(crate) why: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Pending {
    /// `namespace/name`.
    pub(crate) job: String,
    pub(crate) reasons: Vec<String>,
}

impl Serialize for Actions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, ms) in &self.0 {
            map.serialize_entry(name, ms)?;
        }
        map.end()
    }
}

impl Report {
    pub(super) fn new(cycle: &CycleResult, cost: &Cost, read: Duration, world: &World, record: CycleRecord) -> Self {
        let decisions: Vec<Decision> = cycle.effects.iter().filter_map(decision).collect();
        let count = |kind: &str| decisions.iter().filter(|decision| decision.kind == kind).count();
        Self {
            open_ms: ms(cost.open),
            actions_ms: Actions(cost.actions.iter().map(|(name, time)| (*name, ms(*time))).collect()),
            cycle_ms: ms(cost.total()),
            nodes: world.nodes.len(),
            pods: world.pods.len(),
            bound: count(BIND),
            pipelined: count(PIPELINED),
            evicted: count(EVICT),
            rss_mb: (cost.peak_bytes as f64 / 1e5).round() / 10.0,
            decisions,
            pending: cycle.pending.iter().map(|job| pending(job)).collect(),
            shares: queue_rows(&cycle.queues),
            problems: cycle.problems.iter().map(ToString::to_string).collect(),
            read_ms: ms(read),
            close_ms: ms(cost.close),
            record,
        }
    }
}

pub(crate) const BIND: &str = "bind";
pub(crate) const PIPELINED: &str = "pipelined";
pub(crate) const EVICT: &str = "evict";

fn decision(effect: &Effect) -> Option<Decision> {
    let groups = |groups: &[GpuGroup]| groups.iter().map(|group| group.name.clone()).collect();
    Some(match effect {
        Effect::Bind { pod, node, gpu_groups, why, .. } => Decision {
            pod: pod.to_string(),
            kind: BIND,
            node: Some(node.clone()),
            gpu_groups: groups(gpu_groups),
            preemptor: None,
            why: why.to_string(),
        },
        Effect::Pipeline { pod, node, gpu_groups, why, .. } => Decision {
            pod: pod.to_string(),
            kind: PIPELINED,
            node: Some(node.clone()),
            gpu_groups: groups(gpu_groups),
            preemptor: None,
            why: why.to_string(),
        },
        Effect::Evict { pod, node, preemptor, why, .. } => Decision {
            pod: pod.to_string(),
            kind: EVICT,
            node: node.clone(),
            gpu_groups: Vec::new(),
            preemptor: preemptor.as_ref().map(ToString::to_string),
            why: why.to_string(),
        },
        _ => return None,
    })
}

fn pending(job: &PendingJob) -> Pending {
    Pending {
        job: job.job.to_string(),
        reasons: job.explanations().iter().map(|explanation| explanation.message.clone()).collect(),
    }
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
