//! What a cycle saw, decided and why, as data: `live`, the simulator and `kai replay` make the same record of the same
//! cycle. `docs/reference/cycle-record.md` describes its fields.

mod history;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use kai_engine::ActionStats;
use kai_engine::policy::{Action, DeviceOrder, ReclaimMethod, Strategy};
use kai_engine::units::{GPU, Span, Timestamp};
use serde::{Deserialize, Serialize};

use super::config::action_name;
use super::effect::{CycleResult, Effect, GpuGroup, PendingJob, Problem, QueueView};
use super::reasons::{BindReason, EvictionReason, PipelineReason, wire};
use super::settings::{Settings, Usage};
use crate::key::{GroupKey, PodKey};
use crate::world::World;

pub use history::{CycleHistory, CycleSummary};

/// Version of the format. It grows when a field changes its meaning or goes; new fields and reasons may come without.
pub const FORMAT_VERSION: u32 = 1;

/// One scheduling cycle. Amounts are milli-cores, bytes and millionths of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CycleRecord {
    pub format_version: u32,
    /// Number of the cycle, from 1 on, since its scheduler started.
    pub cycle: u64,
    #[serde(with = "wire::time")]
    pub now: Timestamp,
    pub input: CycleInput,
    pub policy: CyclePolicy,
    /// What was decided, in order.
    pub outcome: Vec<OutcomeEntry>,
    /// Queues that take part, by name, as the cycle leaves them.
    pub queues: Vec<QueueView>,
    /// Jobs that wait, by name, and why.
    #[serde(with = "shared_jobs")]
    pub pending: Vec<Arc<PendingJob>>,
    /// Objects that could not be used as written.
    pub problems: Vec<Problem>,
    /// What each action did, in order.
    pub statistics: Vec<ActionRecord>,
}

/// The cluster that a cycle saw, in numbers. The cluster itself is in a snapshot file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CycleInput {
    /// Objects by kind.
    pub objects: BTreeMap<String, usize>,
    /// Sums over all nodes.
    pub allocatable: NodeTotals,
    /// Past usage of queues, as a share of the cluster in millionths: CPU, memory, GPU.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub usage: BTreeMap<String, [i64; 3]>,
}

/// Amounts of all nodes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeTotals {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub gpu_micro: i64,
}

/// The configuration, as far as it decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CyclePolicy {
    pub scheduler_name: String,
    /// The shard; absent for nodes, queues and pod groups without a label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_pool: Option<String>,
    pub actions: Vec<String>,
    pub full_hierarchy_fairness: bool,
    /// `binpack` or `spread`, for pods with and without GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementPolicy>,
    /// `binpack` or `spread`, for shared GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_order: Option<String>,
    /// Millionths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k_value: Option<i64>,
    /// Millionths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation_multiplier: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_runtime: Option<MinRuntimePolicy>,
    pub queue_depth_per_action: DepthPolicy,
    /// Absent for ever.
    #[serde(default, with = "wire::maybe_micros", skip_serializing_if = "Option::is_none")]
    pub staleness_grace_micros: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_consolidation_preemptees: Option<u32>,
    pub allow_consolidating_reclaim: bool,
    pub placement_rules: PlacementRules,
    pub keep_nodes_whole: bool,
}

/// Which rules about more than one pod or device are obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacementRules {
    pub topology: bool,
    pub numa: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacementPolicy {
    pub gpu: String,
    pub cpu: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MinRuntimePolicy {
    #[serde(with = "wire::micros")]
    pub preempt_micros: Span,
    #[serde(with = "wire::micros")]
    pub reclaim_micros: Span,
    /// `lca` or `queue`.
    pub reclaim_resolve_method: String,
}

/// Jobs tried per queue; absent is all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DepthPolicy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocate: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consolidation: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempt: Option<u32>,
}

/// One decision about a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum OutcomeEntry {
    Bind {
        pod: PodKey,
        job: GroupKey,
        node: String,
        /// Names of shared GPUs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        gpu_groups: Vec<String>,
        reason: BindReason,
    },
    Pipeline {
        pod: PodKey,
        job: GroupKey,
        node: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        gpu_groups: Vec<String>,
        reason: PipelineReason,
    },
    Evict {
        pod: PodKey,
        job: GroupKey,
        /// Where it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        #[serde(with = "wire::action")]
        action: Action,
        /// The job that gets the room.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preemptor: Option<GroupKey>,
        /// Pods evicted or moved together with this one, itself included.
        gang_size: u32,
        reason: EvictionReason,
    },
}

/// What an action did in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActionRecord {
    #[serde(with = "wire::action")]
    pub action: Action,
    /// Turns of jobs.
    pub job_attempts: u64,
    /// Sets of victims that were tried out.
    pub simulated: u64,
    /// Sets of victims that could not help, as was known without trying.
    pub filtered: u64,
}

impl ActionRecord {
    pub fn new(action: Action, stats: ActionStats) -> Self {
        let ActionStats { job_attempts, simulated, filtered } = stats;
        Self { action, job_attempts, simulated, filtered }
    }
}

impl CycleRecord {
    /// The record of a cycle. `world` is what the cycle saw: without its own effects.
    pub fn new(
        number: u64,
        now: Timestamp,
        (world, settings, usage): (&World, &Settings, &Usage),
        cycle: &CycleResult,
        statistics: Vec<ActionRecord>,
    ) -> Self {
        Self {
            format_version: FORMAT_VERSION,
            cycle: number,
            now,
            input: input(world, usage),
            policy: policy(settings),
            outcome: cycle.effects.iter().filter_map(entry).collect(),
            queues: cycle.queues.clone(),
            pending: cycle.pending.clone(),
            problems: cycle.problems.clone(),
            statistics,
        }
    }
}

fn input(world: &World, usage: &Usage) -> CycleInput {
    let mut allocatable = NodeTotals::default();
    for node in world.nodes.values() {
        allocatable.cpu_milli += node.allocatable.cpu_milli;
        allocatable.memory_bytes += node.allocatable.memory_bytes;
        allocatable.gpu_micro += node.allocatable.gpus * GPU;
    }
    let objects = [
        ("Node", world.nodes.len()),
        ("Pod", world.pods.len()),
        ("PodGroup", world.pod_groups.len()),
        ("Queue", world.queues.len()),
        ("BindRequest", world.bind_requests.len()),
    ];
    CycleInput {
        objects: objects.into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect(),
        allocatable,
        usage: usage.queues.clone(),
    }
}

fn policy(settings: &Settings) -> CyclePolicy {
    let policy = &settings.policy;
    let strategy = |strategy: Strategy| spell(strategy == Strategy::Pack);
    CyclePolicy {
        scheduler_name: settings.scheduler_name.clone(),
        node_pool: settings.node_pool_value.clone(),
        actions: policy.actions.iter().map(|action| action_name(*action).to_owned()).collect(),
        full_hierarchy_fairness: settings.full_hierarchy_fairness,
        placement: policy
            .scores
            .placement
            .map(|placement| PlacementPolicy { gpu: strategy(placement.gpu), cpu: strategy(placement.cpu) }),
        gpu_order: policy.device_order.map(|order| spell(order == DeviceOrder::Pack)),
        k_value: policy.proportion.map(|proportion| proportion.k_value),
        saturation_multiplier: policy.proportion.map(|proportion| proportion.saturation_multiplier),
        min_runtime: policy.min_runtime.map(|rule| MinRuntimePolicy {
            preempt_micros: rule.preempt_default,
            reclaim_micros: rule.reclaim_default,
            reclaim_resolve_method: match rule.reclaim_method {
                ReclaimMethod::LowestCommonAncestor => "lca".to_owned(),
                ReclaimMethod::Queue => "queue".to_owned(),
            },
        }),
        queue_depth_per_action: DepthPolicy {
            allocate: policy.depth.allocate,
            consolidation: policy.depth.consolidate,
            reclaim: policy.depth.reclaim,
            preempt: policy.depth.preempt,
        },
        staleness_grace_micros: policy.staleness_grace,
        max_consolidation_preemptees: policy.consolidation_moves_max,
        allow_consolidating_reclaim: policy.consolidating_reclaim,
        placement_rules: PlacementRules { topology: policy.topology, numa: policy.numa },
        keep_nodes_whole: policy.keep_nodes_whole,
    }
}

fn spell(pack: bool) -> String {
    if pack { "binpack" } else { "spread" }.to_owned()
}

fn entry(effect: &Effect) -> Option<OutcomeEntry> {
    let names = |groups: &[GpuGroup]| groups.iter().map(|group| group.name.clone()).collect();
    Some(match effect {
        Effect::Bind { pod, job, node, gpu_groups, why, .. } => OutcomeEntry::Bind {
            pod: pod.clone(),
            job: job.clone(),
            node: node.clone(),
            gpu_groups: names(gpu_groups),
            reason: why.clone(),
        },
        Effect::Pipeline { pod, job, node, gpu_groups, why } => OutcomeEntry::Pipeline {
            pod: pod.clone(),
            job: job.clone(),
            node: node.clone(),
            gpu_groups: names(gpu_groups),
            reason: *why,
        },
        Effect::Evict { pod, job, node, action, beneficiary, batch, why } => OutcomeEntry::Evict {
            pod: pod.clone(),
            job: job.clone(),
            node: node.clone(),
            action: *action,
            preemptor: beneficiary.clone(),
            gang_size: *batch,
            reason: why.clone(),
        },
        _ => return None,
    })
}

mod shared_jobs {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::PendingJob;

    pub(super) fn serialize<S: Serializer>(jobs: &[Arc<PendingJob>], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(jobs.iter().map(Arc::as_ref))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Arc<PendingJob>>, D::Error> {
        Ok(Vec::<PendingJob>::deserialize(from)?.into_iter().map(Arc::new).collect())
    }
}
