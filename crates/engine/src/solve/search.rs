//! The search: for growing prefixes of a job's pods, which victims make room?
//!
//! Everything happens on one ledger under a mark; a probe that is not the last is rolled back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::filters::{FeasibleNodeCheck, NodeGpuCheck, SharedGpuTotals, TotalGpuCheck};
use super::loss_bound::LossBound;
use super::queue_backlog::QueueBacklog;
use super::scenario::{Scenario, VictimPool, gpu_demand, node_of};
use super::victim_scope::VictimScope;
use super::victims::{VictimBatch, VictimOrder, Victims};
use crate::gang::Gang;
use crate::ids::{JobId, NodeId, TaskId};
use crate::ledger::Ledger;
use crate::outcome::{ScenarioRejections, SearchStop};
use crate::policy::Generator;
use crate::queues::job_index::{JobIndex, Scratch};
use crate::queues::job_info::JobInfoCache;
use crate::queues::job_order::JobTree;
use crate::session::Session;
use crate::snapshot::Task;

/// Victims that a probe collects before it pays for the bound over all victims (`must_be_moved`). The bound visits
/// every victim; most probes succeed earlier.
const VICTIMS_BEFORE_FULL_BOUND: u32 = 64;

/// Victims that a probe collects before it asks for the bound over queues, or over all victims of a single queue.
const VICTIMS_BEFORE_QUEUE_BOUND: u32 = 4;

/// Victims that are looked at, without being simulated, in the time of one step.
const VICTIMS_A_STEP: u64 = 16;

/// A job that needs room, and its possible victims.
pub(crate) struct Problem<'p> {
    /// The job.
    pub job: JobId,
    /// The pods to place.
    pub chunk: &'p [TaskId],
    /// Jobs that may lose pods.
    pub victim_scope: &'p VictimScope,
    /// The only nodes that may be used; `None`: no restriction.
    pub nodes: Option<&'p FixedBitSet>,
    /// Which jobs could lose a place for these pods.
    pub loss_bound: &'p LossBound,
    /// Whether the rules accept what a scenario did.
    pub accept: &'p dyn Fn(&Session<'_>, &Trial<'_>) -> bool,
    /// Steps that it may use.
    pub budget: Budget,
}

/// A scenario after it was simulated.
pub(crate) struct Trial<'t> {
    /// The pods that found a place.
    pub pending: &'t [TaskId],
    /// The victims, in eviction order.
    pub batches: Vec<&'t Arc<VictimBatch>>,
    /// Pods that must have a place afterwards, since they would be scheduled before the job.
    pub(super) earlier: Vec<TaskId>,
    /// Victims that were bound earlier in this cycle. Consolidation must not postpone their start: it could do so in
    /// every cycle, and they would starve.
    pub(super) starting: Vec<TaskId>,
}

/// Bounds of one search, in steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// For the whole search.
    pub job: u64,
    /// Of generator `NodeLocalGreedy`, per pending job.
    pub node_local_greedy: u64,
    /// Of generator `MultiNodeGang`, per pending job.
    pub multi_node_gang: u64,
}

/// How a search ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SearchReport {
    /// `None`: solved; the ledger holds the solution.
    pub stop: Option<SearchStop>,
    /// Victim scenarios tried.
    pub scenarios: u32,
    /// Victim scenarios that were known not to work without trying.
    pub filtered: u32,
    /// Most pods that a scenario made room for.
    pub placed: u32,
    /// Steps used.
    pub steps: u64,
    /// Victims of the solution.
    pub victims: u32,
    /// Why scenarios were refused.
    pub refused: ScenarioRejections,
}

/// Searches for victims. On success the ledger holds the solution; otherwise it is as before.
pub(crate) fn search<'p>(
    session: &mut Session<'_>,
    problem: &'p Problem<'p>,
    scratch: &'p mut Scratch,
) -> SearchReport {
    let Scratch { index, facts, tree } = scratch;
    let index = &*index;
    let free: Vec<i64> = session.snapshot.nodes.ids().map(|node| gpus_free(&session.ledger, node)).collect();
    let asks_for_parts = problem.chunk.iter().any(|task| shares(session, *task));
    let has_rules = problem.chunk.iter().any(|task| has_inter_pod_or_volume_rules(session.snapshot.task(*task)));
    let mut search = Search {
        problem,
        report: SearchReport::default(),
        failed: BTreeSet::new(),
        order: VictimOrder::new(session, index, problem.victim_scope),
        feasible: feasible_nodes(session, problem),
        jobs: JobLookup { index, info: facts, tree },
        gpus: GpuTotals {
            free: free.iter().map(|free| (*free).max(0)).sum(),
            free_by_node: free,
            shared_totals: asks_for_parts.then(|| SharedGpuTotals::new(&session.ledger)).flatten(),
            pods_by_size: BTreeMap::new(),
        },
        pruning: Pruning {
            // For pods with inter-pod or volume rules, a victim that only moves may make room without freeing a GPU, so
            // the loss bounds, which count GPUs, are off.
            use_loss_bounds: !session.victim_search.no_loss_bounds && !has_rules,
            all_victims: None,
            backlog: QueueBacklog::default(),
            blocking_job: None,
            only_earlier_victims: false,
        },
        allowed: 0,
    };
    let mark = session.ledger.mark();
    search.report.stop = search.run(session).err();
    if search.report.stop.is_some() {
        // A search may run out of steps in the middle of a what-if.
        session.ledger.rollback(mark);
    }
    search.report
}

/// Whether the pod asks for parts of GPUs.
fn shares(session: &Session<'_>, task: TaskId) -> bool {
    session.snapshot.shape(session.snapshot.task(task).shape).gpu.shared_devices().is_some()
}

fn has_inter_pod_or_volume_rules(task: &Task) -> bool {
    task.inter_pod.is_some() || task.volumes.is_some()
}

pub(super) struct Search<'p> {
    pub(super) problem: &'p Problem<'p>,
    pub(super) report: SearchReport,
    /// Scenarios that failed: number of pods and a fingerprint of the victims.
    pub(super) failed: BTreeSet<(usize, u128)>,
    pub(super) order: VictimOrder<'p>,
    pub(super) feasible: FixedBitSet,
    pub(super) jobs: JobLookup<'p>,
    pub(super) gpus: GpuTotals,
    pub(super) pruning: Pruning,
    /// Steps at which the current generator must stop.
    pub(super) allowed: u64,
}

/// What is known of jobs, kept between searches.
pub(super) struct JobLookup<'p> {
    pub(super) index: &'p JobIndex,
    pub(super) info: &'p mut JobInfoCache,
    pub(super) tree: &'p mut JobTree,
}

/// GPUs that are free, now or later, when the search begins.
pub(super) struct GpuTotals {
    pub(super) free_by_node: Vec<i64>,
    /// On all nodes together.
    pub(super) free: i64,
    /// The same with parts of GPUs counted exactly, if the job asks for any.
    pub(super) shared_totals: Option<SharedGpuTotals>,
    /// How many pods of a size fit on all nodes together, for the sizes that were asked about.
    pub(super) pods_by_size: BTreeMap<i64, i64>,
}

/// What the bounds on losses have found out.
pub(super) struct Pruning {
    /// Whether scenarios that cannot work are left out.
    pub(super) use_loss_bounds: bool,
    /// All possible victims; `None` until the first bound over all of them.
    pub(super) all_victims: Option<Vec<VictimBatch>>,
    /// Requests ahead of the job and of its victims in their queues.
    pub(super) backlog: QueueBacklog,
    /// The largest job ahead.
    pub(super) blocking_job: Option<JobId>,
    /// No victim may be lost, and for at least one the only reason is that it would be scheduled before this job.
    pub(super) only_earlier_victims: bool,
}

/// What a probe found.
pub(super) enum Probe {
    Solved(Solution),
    /// There are more victims to look at.
    VictimLimit,
    Unsolved,
}

/// A scenario that worked out; the ledger holds it.
pub(super) struct Solution {
    /// Victims to start from when more pods are tried.
    pub(super) victims: Vec<Arc<VictimBatch>>,
    /// Whether these are all evicted pods, so that trying them again would end in the same way.
    pub(super) is_all: bool,
}

/// Where a probe starts.
#[derive(Clone, Copy)]
struct ProbeScope<'s> {
    /// Victims of the last prefix that worked out.
    recorded: &'s [Arc<VictimBatch>],
    /// Only these victims, not all in scope.
    within: Option<&'s VictimScope>,
    /// Victims to gather at most.
    max_victims: u32,
}

impl<'s> ProbeScope<'s> {
    fn all(recorded: &'s [Arc<VictimBatch>]) -> Self {
        Self { recorded, within: None, max_victims: u32::MAX }
    }
}

impl Search<'_> {
    fn run(&mut self, session: &mut Session<'_>) -> Result<(), SearchStop> {
        if self.order.get(session, 0).is_none() {
            return Err(SearchStop::NoCandidates);
        }
        if session.policy.generators.is_empty() {
            return Err(SearchStop::NoGenerator);
        }
        let used_before = used(session, self.problem.job);
        for generator in session.policy.generators.clone() {
            let own = match generator {
                Generator::NodeLocalGreedy => self.problem.budget.node_local_greedy,
                Generator::MultiNodeGang => self.problem.budget.multi_node_gang,
            };
            self.allowed = self.problem.budget.job.min(self.report.steps.saturating_add(own));
            let mark = session.ledger.mark();
            if self.prefixes(session, generator)? {
                // KAI misjudges jobs with optional sub-groups here, yet leaves its session as the search made it.
                let satisfied = Gang::new(&session.ledger, self.problem.job).is_present();
                if (satisfied || !session.policy.repairs.gang_trees) && used(session, self.problem.job) > used_before {
                    return Ok(());
                }
            }
            session.ledger.rollback(mark);
        }
        Err(self
            .pruning
            .blocking_job
            .filter(|_| self.pruning.only_earlier_victims)
            .map_or(SearchStop::Exhausted, SearchStop::HeadOfLineBlocked))
    }

    /// Doubles the number of pods while it works out, then halves the gap; the last probe stays in the ledger.
    fn prefixes(&mut self, session: &mut Session<'_>, generator: Generator) -> Result<bool, SearchStop> {
        let count = self.problem.chunk.len();
        let mut recorded = Vec::new();
        let (mut works, mut fails, mut next) = (0, count + 1, 1);
        while fails - works > 1 && works < count {
            let mark = session.ledger.mark();
            let probe = self.probe(session, generator, next, &recorded)?;
            if next == count
                && self.pruning.use_loss_bounds
                && let Probe::Solved(Solution { is_all: true, .. }) = probe
            {
                return Ok(true);
            }
            session.ledger.rollback(mark);
            match probe {
                Probe::Solved(solution) => {
                    recorded = solution.victims;
                    works = next;
                    self.report.placed = self.report.placed.max(works as u32);
                }
                Probe::VictimLimit | Probe::Unsolved => fails = next,
            }
            next = if fails > count { (2 * works).min(count) } else { usize::midpoint(works, fails) };
        }
        if works == 0 {
            return Ok(false);
        }
        Ok(matches!(self.probe(session, generator, count, &recorded)?, Probe::Solved(_)))
    }

    /// Probes in up to three passes. (1) The first `VICTIMS_BEFORE_FULL_BOUND` victims in eviction order: enough for
    /// most probes. (2) Only victims of the closest queues that together could lose enough GPUs; victims recorded for a
    /// smaller prefix are dropped if they are from other queues, since they may block a larger prefix. (3) All victims,
    /// without a limit.
    fn probe(
        &mut self,
        session: &mut Session<'_>,
        generator: Generator,
        count: usize,
        recorded: &[Arc<VictimBatch>],
    ) -> Result<Probe, SearchStop> {
        let soon = ProbeScope { max_victims: VICTIMS_BEFORE_FULL_BOUND, ..ProbeScope::all(recorded) };
        let found = self.probe_from(session, generator, count, &soon)?;
        if !matches!(found, Probe::VictimLimit) {
            return Ok(found);
        }
        if let Some(closest) = self.closest_scope(session, &self.problem.chunk[..count]) {
            let is_one = |batch: &&Arc<VictimBatch>| closest.queues.contains(&batch.loss.queue);
            let recorded: Vec<Arc<VictimBatch>> = recorded.iter().filter(is_one).map(Arc::clone).collect();
            let among = ProbeScope { within: Some(&closest), ..ProbeScope::all(&recorded) };
            if let Probe::Solved(solution) = self.probe_from(session, generator, count, &among)? {
                return Ok(Probe::Solved(solution));
            }
        }
        self.probe_from(session, generator, count, &ProbeScope::all(recorded))
    }

    fn probe_from(
        &mut self,
        session: &mut Session<'_>,
        generator: Generator,
        count: usize,
        start: &ProbeScope<'_>,
    ) -> Result<Probe, SearchStop> {
        let recorded = start.recorded;
        let pending = &self.problem.chunk[..count];
        let demands: Vec<_> = pending.iter().map(|task| gpu_demand(&session.ledger, *task)).collect();
        let required = self.jobs.info.requested(&session.ledger, pending);
        let total_check = TotalGpuCheck::new(&session.ledger, self.gpus.free, self.gpus.shared_totals, pending);
        let feasible = self.feasible_with(session, recorded);
        let mut pool =
            VictimPool::new(recorded.to_vec(), &self.gpus.free_by_node, feasible.ones().map(NodeId::at), &demands);
        // What recorded victims give back, and with all potential ones on top.
        let mut least = NodeGpuCheck::new(&self.gpus.free_by_node, &demands, &mut self.gpus.pods_by_size);
        let stays = self.all_stay();
        for batch in recorded {
            least.give_back(batch, stays, 1);
        }
        let mut most = least.clone();
        let mut node_check = FeasibleNodeCheck::new(&session.ledger, pending, &feasible);
        let victims_before_bound = if self.problem.victim_scope.queues.len() == 1 {
            VICTIMS_BEFORE_QUEUE_BOUND
        } else {
            VICTIMS_BEFORE_FULL_BOUND
        };
        let mut victims = Victims::new(session, self.jobs.index, recorded, start.within, self.problem.victim_scope);
        let mut seen = BTreeSet::new();
        let mut kept = BTreeSet::new();
        for state in 0.. {
            if state == start.max_victims {
                return Ok(Probe::VictimLimit);
            }
            let may_ask = start.within.is_none() && total_check.is_short() && self.pruning.use_loss_bounds;
            if state == VICTIMS_BEFORE_QUEUE_BOUND && may_ask && self.no_loss_possible(session, required) {
                break;
            }
            if state == victims_before_bound && may_ask {
                match self.must_be_moved(session, pending, total_check, &demands) {
                    Some(jobs) => kept = jobs,
                    None => break,
                }
            }
            self.step(1)?;
            let possible = most.suffice() && node_check.suffices();
            let mut listed = Vec::new();
            let mut prefixes = None;
            if !possible {
            } else if pool.potential.is_empty() {
                listed.extend((!recorded.is_empty()).then(Scenario::new));
            } else {
                match generator {
                    Generator::NodeLocalGreedy => {
                        let lost = recorded.iter().filter(|batch| !kept.contains(&batch.job)).map(|batch| batch.gpus());
                        let missing =
                            if self.pruning.use_loss_bounds { total_check.missing() - lost.sum::<i64>() } else { 0 };
                        listed = pool.node_local(&session.ledger, missing);
                    }
                    Generator::MultiNodeGang if pool.take_new_candidates() => {
                        prefixes = pool.multi_node(&session.ledger, &mut seen);
                    }
                    Generator::MultiNodeGang => {}
                }
            }
            for scenario in listed.into_iter().chain(prefixes.into_iter().flatten()) {
                self.step(1 + scenario.len() as u64 / VICTIMS_A_STEP)?;
                if self.report.steps >= self.allowed {
                    return Ok(Probe::Unsolved);
                }
                let tried = self.report.scenarios;
                if pool.frees_enough(&scenario, &mut least, stays)
                    && let Some(earlier) = self.weigh(session, pending, total_check, &mut least, &pool, &scenario)
                    && let Some(solution) = self.simulate(session, pending, &pool, &scenario, &earlier, generator)?
                {
                    return Ok(Probe::Solved(solution));
                }
                self.report.filtered += u32::from(self.report.scenarios == tried);
            }
            match victims.next(session, &mut self.order) {
                Some(batch) => {
                    most.give_back(&batch, stays, 1);
                    node_check.add(&session.ledger, &batch);
                    let could_be_lost = !kept.contains(&batch.job);
                    pool.push(batch, could_be_lost);
                }
                None => break,
            }
        }
        Ok(Probe::Unsolved)
    }

    /// Feasible nodes and those where recorded victims make room.
    fn feasible_with(&self, session: &Session<'_>, recorded: &[Arc<VictimBatch>]) -> FixedBitSet {
        let mut nodes = self.feasible.clone();
        let freed = recorded.iter().flat_map(|batch| &batch.tasks).filter_map(|task| node_of(&session.ledger, *task));
        freed.for_each(|node| nodes.insert(node.index()));
        nodes
    }

    pub(super) fn step(&mut self, steps: u64) -> Result<(), SearchStop> {
        self.report.steps += steps;
        if self.report.steps > self.problem.budget.job { Err(SearchStop::Budget) } else { Ok(()) }
    }
}

fn used(session: &Session<'_>, job: JobId) -> u32 {
    session.snapshot.pod_sets_of(job).map(|pod_set| session.ledger.counts(pod_set).used()).sum()
}

/// Nodes with any GPU free or freeing; all nodes if a pod of the job needs no GPU.
fn feasible_nodes(session: &Session<'_>, problem: &Problem<'_>) -> FixedBitSet {
    let snapshot = session.snapshot;
    let all = snapshot.job_tasks(problem.job).any(|task| !snapshot.shape(snapshot.task(task).shape).needs_gpu());
    let has_room = |node: &NodeId| {
        let (idle, releasing) = session.ledger.gpus_free(*node);
        all || idle > 0 || releasing > 0
    };
    let allowed = |node: &NodeId| problem.nodes.is_none_or(|only| only.contains(node.index()));
    let mut nodes = FixedBitSet::with_capacity(snapshot.nodes.len());
    nodes.extend(snapshot.nodes.ids().filter(has_room).filter(allowed).map(NodeId::index));
    nodes
}

fn gpus_free(ledger: &Ledger<'_>, node: NodeId) -> i64 {
    let (idle, releasing) = ledger.gpus_free(node);
    idle + releasing
}
