//! How to decide: the scheduler configuration, resolved to switches and numbers.
//!
//! Names of actions and plugins, their text arguments and their misspellings are read outside.

use crate::units::{ONE, Span};

/// The resolved scheduler configuration.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "switches of the configuration, each on its own")]
pub struct Policy {
    /// Actions, in order.
    pub actions: Vec<Action>,
    /// Per-node filters: queue capacity on the node, placement rules, pod slots, ports.
    pub filters: bool,
    /// Queue accounting; without it there are no shares, limits or reclaim.
    pub proportion: Option<Proportion>,
    /// Jobs of higher priority first.
    pub order_by_priority: bool,
    /// Jobs below their minimum before jobs that only grow.
    pub order_below_min_first: bool,
    /// Node scores.
    pub scores: Scores,
    /// Which shared GPU to use first.
    pub device_order: Option<DeviceOrder>,
    /// Topology constraints are obeyed.
    pub topology: bool,
    /// NUMA zones are aligned as kubelets do it.
    pub numa: bool,
    /// Protection of young jobs.
    pub min_runtime: Option<MinRuntime>,
    /// Generators of victim scenarios, in order.
    pub generators: Vec<Generator>,
    /// Jobs tried per queue, for each action; `None` is all of them.
    pub depth: Depth,
    /// How many pods consolidation may move for one job; `None` is any number.
    pub consolidation_moves_max: Option<u32>,
    /// A reclaim victim that finds another place in the same scenario is not counted as reclaimed.
    pub consolidating_reclaim: bool,
    /// Skip jobs that are no easier than one that failed already.
    pub skip_no_easier: bool,
    /// How long a gang may lack its minimum; `None` is for ever.
    pub staleness_grace: Option<Span>,
    /// Fill nodes in use, and consolidate among them, before opening an empty node.
    pub keep_nodes_whole: bool,
    /// Bounds on the victim search.
    pub budget: SearchBudget,
    /// Bounds on what is taken from running jobs.
    pub disruption: Disruption,
    /// Which unintended behaviours of KAI are repaired.
    pub repairs: Repairs,
}

/// Deliberate departures from KAI, see `docs/compat/repairs.md`. All on in production; side-by-side comparisons turn them
/// off, so that every difference that is left is a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "switches, each on its own")]
pub struct Repairs {
    /// Gangs are judged by their tree, not by every leaf: optional sub-groups neither make a job stale nor hold it
    /// back, a gang is never started in part, and a sub-group without pods does not block the others.
    pub gang_trees: bool,
    /// A pod placed in this cycle and then chosen as a victim only loses that placement.
    pub drop_placements: bool,
    /// Only pods that share GPUs are drawn to nodes with partly used GPUs, and a used GPU needs no second pod slot.
    pub gpu_sharing: bool,
    /// Pods are evicted for a job only if the job would still get its place when the job and its victims are scheduled
    /// anew, as in the next cycle. Otherwise the same pods could be moved again and again.
    pub stable_moves: bool,
    /// A victim whose place turns out to be free is not evicted.
    pub reprieve_victims: bool,
    /// A pod that is being released counts for anti-affinity only until it is gone, and a pipelined one does not
    /// satisfy affinity yet.
    pub ignore_releasing_neighbours: bool,
}

impl Repairs {
    /// Decides as KAI does.
    pub const NONE: Self = Self {
        gang_trees: false,
        drop_placements: false,
        gpu_sharing: false,
        stable_moves: false,
        reprieve_victims: false,
        ignore_releasing_neighbours: false,
    };
    /// All repairs on.
    pub const ALL: Self = Self {
        gang_trees: true,
        drop_placements: true,
        gpu_sharing: true,
        stable_moves: true,
        reprieve_victims: true,
        ignore_releasing_neighbours: true,
    };
}

/// An action of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Place jobs on free or freeing resources.
    Allocate,
    /// Make room by moving pods.
    Consolidate,
    /// Take back from queues above their share.
    Reclaim,
    /// Take from lower priority in the same queue.
    Preempt,
    /// Remove gangs that lack their minimum.
    EvictStale,
}

impl Action {
    /// Whether it takes capacity from running jobs for others.
    pub fn is_disruptive(self) -> bool {
        matches!(self, Self::Consolidate | Self::Reclaim | Self::Preempt)
    }
}

/// Queue accounting.
#[derive(Clone, Copy, Debug)]
pub struct Proportion {
    /// Influence of past usage on over-quota weights, in millionths.
    pub k_value: i64,
    /// How much less saturated than a victim the reclaimer must stay, in millionths.
    pub saturation_multiplier: i64,
}

/// Which node scores are on.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "switches of the configuration, each on its own")]
pub struct Scores {
    /// Pack or spread over nodes.
    pub placement: Option<PlacementStrategies>,
    /// CPU-only pods to CPU-only nodes.
    pub resource_type: bool,
    /// Nodes with room now before nodes that must wait.
    pub availability: bool,
    /// Nodes with a fitting shared GPU.
    pub gpu_sharing: bool,
    /// Preferred inter-pod affinity, anti-affinity and topology spread.
    pub pod_affinity: bool,
    /// The node nominated earlier.
    pub nominated: bool,
    /// Nodes with small GPUs, for pods that ask for GPU memory.
    pub gpu_memory_fit: bool,
}

impl Scores {
    /// All off.
    pub const NONE: Self = Self {
        placement: None,
        resource_type: false,
        availability: false,
        gpu_sharing: false,
        pod_affinity: false,
        nominated: false,
        gpu_memory_fit: false,
    };

    /// The names of those that are on, other than `placement`.
    pub fn names(self) -> Vec<&'static str> {
        let Self { placement: _, resource_type, availability, gpu_sharing, pod_affinity, nominated, gpu_memory_fit } =
            self;
        let all = [
            ("resourceType", resource_type),
            ("availability", availability),
            ("gpuSharing", gpu_sharing),
            ("podAffinity", pod_affinity),
            ("nominated", nominated),
            ("gpuMemoryFit", gpu_memory_fit),
        ];
        all.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect()
    }
}

/// Pack or spread, by the resource that the pod is about.
#[derive(Clone, Copy, Debug)]
pub struct PlacementStrategies {
    /// For pods that need GPUs.
    pub gpu: Strategy,
    /// For the others.
    pub cpu: Strategy,
}

/// Pack or spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Fullest node first.
    Pack,
    /// Emptiest node first.
    Spread,
}

/// Which shared GPU to use first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceOrder {
    /// Fullest fitting device first, a whole one last.
    Pack,
    /// A whole device first, then the emptiest.
    Spread,
}

/// Protection of young jobs.
#[derive(Clone, Copy, Debug)]
pub struct MinRuntime {
    /// Where no queue says otherwise: against jobs of the same queue.
    pub preempt_default: Span,
    /// Where no queue says otherwise: against other queues.
    pub reclaim_default: Span,
    /// Whose setting counts against other queues.
    pub reclaim_method: ReclaimMethod,
}

/// Whose minimum runtime counts when another queue reclaims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimMethod {
    /// The victim's side just below the lowest common ancestor.
    LowestCommonAncestor,
    /// The victim's own queue.
    Queue,
}

/// A generator of victim scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generator {
    /// All victims around one node at a time.
    NodeLocalGreedy,
    /// Growing sets of nodes, for gangs that fill several.
    MultiNodeGang,
}

/// Bounds on what is taken from running jobs, beyond the rules of each action. The first two are about one cycle: a caller
/// that knows the cycles before sets them. The default leaves alone what was just evicted, and has no other bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disruption {
    /// Whether consolidation, reclaim and preemption run in this cycle.
    pub allowed: bool,
    /// Pods that consolidation may move in this cycle, for all jobs together; `None` is any number.
    pub moves_left: Option<u32>,
    /// So long a job that was evicted is not evicted again by reclaim or preemption, and takes no more from others than it
    /// has lost.
    pub eviction_cooldown: Span,
    /// So long a job that was evicted is not moved by consolidation.
    pub move_cooldown: Span,
    /// How long the pods that consolidation moves for a job may have run, for each GPU of the job that starts: run time
    /// times GPUs is what they lose. `None` is any time.
    pub lost_work_per_gpu_max: Option<Span>,
    /// Of victims of equal priority, those first that lose the least work.
    pub least_work_first: bool,
}

impl Default for Disruption {
    fn default() -> Self {
        Self {
            allowed: true,
            moves_left: None,
            eviction_cooldown: Span::seconds(20),
            move_cooldown: Span::seconds(300),
            lost_work_per_gpu_max: None,
            least_work_first: false,
        }
    }
}

/// Jobs tried per queue, for each action.
#[derive(Clone, Copy, Debug, Default)]
pub struct Depth {
    /// In allocate.
    pub allocate: Option<u32>,
    /// In consolidation.
    pub consolidate: Option<u32>,
    /// In reclaim.
    pub reclaim: Option<u32>,
    /// In preempt.
    pub preempt: Option<u32>,
}

/// Bounds on the victim search, in steps: scenarios offered plus placements tried. `None` is no bound.
#[derive(Clone, Copy, Debug)]
pub struct SearchBudget {
    /// For one reclaim action.
    pub reclaim: Option<u64>,
    /// For one preempt action.
    pub preempt: Option<u64>,
    /// For one consolidation action.
    pub consolidate: Option<u64>,
    /// For one pending job.
    pub job_max: Option<u64>,
    /// Guaranteed to every pending job.
    pub job_min: u64,
    /// Of generator `NodeLocalGreedy`, per pending job.
    pub node_local_greedy: Option<u64>,
    /// Of generator `MultiNodeGang`, per pending job.
    pub multi_node_gang: Option<u64>,
}

impl SearchBudget {
    /// Steps that stand for one second of a configured duration.
    ///
    /// KAI tries a few hundred placements a second on a thousand nodes, so a configured duration buys more search here
    /// than there; a step takes a few microseconds, so it also ends much earlier. Steps are counted rather than timed:
    /// equal input gives equal decisions on any machine.
    pub const STEPS_PER_SECOND: u64 = 2_000;
}

impl Default for SearchBudget {
    fn default() -> Self {
        let seconds = |count: u64| Some(count * Self::STEPS_PER_SECOND);
        Self {
            reclaim: seconds(300),
            preempt: seconds(300),
            consolidate: seconds(300),
            job_max: seconds(240),
            job_min: 0,
            node_local_greedy: seconds(30),
            multi_node_gang: seconds(120),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            actions: vec![Action::Allocate, Action::Consolidate, Action::Reclaim, Action::Preempt, Action::EvictStale],
            filters: true,
            proportion: Some(Proportion { k_value: ONE, saturation_multiplier: ONE }),
            order_by_priority: true,
            order_below_min_first: true,
            scores: Scores {
                placement: Some(PlacementStrategies { gpu: Strategy::Pack, cpu: Strategy::Pack }),
                resource_type: true,
                availability: true,
                gpu_sharing: true,
                pod_affinity: true,
                nominated: true,
                gpu_memory_fit: false,
            },
            device_order: Some(DeviceOrder::Pack),
            topology: true,
            numa: false,
            min_runtime: Some(MinRuntime {
                preempt_default: Span(0),
                reclaim_default: Span(0),
                reclaim_method: ReclaimMethod::LowestCommonAncestor,
            }),
            generators: vec![Generator::NodeLocalGreedy, Generator::MultiNodeGang],
            depth: Depth::default(),
            consolidation_moves_max: Some(16),
            consolidating_reclaim: true,
            skip_no_easier: true,
            staleness_grace: Some(Span::seconds(60)),
            keep_nodes_whole: false,
            budget: SearchBudget::default(),
            disruption: Disruption::default(),
            repairs: Repairs::ALL,
        }
    }
}
