//! The search: for growing prefixes of a job's pods, which victims make room?
//!
//! Everything happens on one ledger under a mark; a probe that is not the last is rolled back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::filters::{FeasibleNodeCheck, NodeGpuCheck, SharedGpuTotals, TotalGpuCheck};
use super::index::{JobIndex, Scratch};
use super::loss_bound::{LossBound, LossEstimate, PendingDemand, VictimLoss};
use super::queue_backlog::QueueBacklog;
use super::reprieve;
use super::scenario::{Scenario, VictimPool, gpu_demand, node_of};
use super::simulation_order::{PartialJobInfo, fill_job_order};
use super::victims::{VictimBatch, VictimOrder, VictimScope, Victims, all_victims};
use crate::finder::NodeSet;
use crate::gang::{Gang, Need};
use crate::ids::{JobId, NodeId, PodSetId, TaskId};
use crate::ledger::{Ledger, TaskState};
use crate::order::jobs::JobFacts;
use crate::order::tree::JobTree;
use crate::outcome::{ScenarioRejections, SearchStop};
use crate::place::Attempt;
use crate::policy::Generator;
use crate::session::Session;
use crate::snapshot::{Status, Task};
use crate::units::Triple;

/// Victims that a probe gathers before it asks whether all of them together could help, or whether some should be
/// tried before the others: most probes need few, and asking means to look at all of them.
const VICTIMS_BEFORE_FULL_BOUND: u32 = 64;

/// Victims that a probe gathers before it asks what is known of queues alone, or of a single queue.
const VICTIMS_BEFORE_QUEUE_BOUND: u32 = 4;

/// Victims that are looked at, without being simulated, in the time of one step.
const VICTIMS_A_STEP: u64 = 16;

/// A job that needs room, and who may be asked to make it.
pub struct Problem<'p> {
    /// The job.
    pub job: JobId,
    /// The pods to place.
    pub chunk: &'p [TaskId],
    /// Jobs that may lose pods.
    pub eligible: &'p VictimScope,
    /// Nodes on which pods may be placed, besides those of victims; `None` is what the rules say.
    pub nodes: Option<&'p FixedBitSet>,
    /// Who could lose a place for these pods.
    pub loss_bound: &'p LossBound,
    /// Whether the rules accept what a scenario did.
    pub accept: &'p dyn Fn(&Session<'_>, &Trial<'_>) -> bool,
    /// Steps left.
    pub budget: Budget,
}

/// A scenario after it was simulated.
pub struct Trial<'t> {
    /// The pods that found a place.
    pub pending: &'t [TaskId],
    /// The victims, in eviction order.
    pub batches: Vec<&'t Arc<VictimBatch>>,
    /// Pods that must have a place afterwards, since their turn comes before the job's.
    earlier: Vec<TaskId>,
    /// Pods that start in this very cycle: to move others is no reason to let them wait, perhaps in every cycle.
    starting: Vec<TaskId>,
}

/// Bounds of one search, in steps.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// For the whole search.
    pub job: u64,
    /// For each generator.
    pub node_local_greedy: u64,
    /// For each generator.
    pub multi_node_gang: u64,
}

/// How a search ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct SearchReport {
    /// `None`: the job has its room, and the ledger shows it.
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
    pub batch: u32,
    /// Why scenarios were refused.
    pub refused: ScenarioRejections,
}

/// Looks for victims. On success the ledger holds the solution; otherwise it is as before.
pub fn search<'p>(session: &mut Session<'_>, problem: &'p Problem<'p>, scratch: &'p mut Scratch) -> SearchReport {
    let Scratch { index, facts, tree } = scratch;
    let index = &*index;
    let free: Vec<i64> = session.snapshot.nodes.ids().map(|node| gpus_free(&session.ledger, node)).collect();
    let mut search = Search {
        problem,
        report: SearchReport::default(),
        failed: BTreeSet::new(),
        all_victims: None,
        index,
        facts,
        tree,
        order: VictimOrder::new(session, index, problem.eligible),
        feasible: feasible_nodes(session, problem),
        free_in_all: free.iter().map(|free| (*free).max(0)).sum(),
        free,
        parts: if problem.chunk.iter().any(|task| shares(session, *task)) {
            SharedGpuTotals::new(&session.ledger)
        } else {
            None
        },
        rooms: BTreeMap::new(),
        backlog: QueueBacklog::default(),
        blocking_job: None,
        only_earlier_victims: false,
        allowed: 0,
        // Where other pods or their volumes stand in the way, GPUs alone do not tell what could work.
        use_loss_bounds: !session.no_loss_bounds
            && !problem.chunk.iter().map(|task| session.snapshot.task(*task)).any(minds_others),
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

fn minds_others(task: &Task) -> bool {
    task.inter_pod.is_some() || task.volumes.is_some()
}

struct Search<'p> {
    problem: &'p Problem<'p>,
    report: SearchReport,
    /// Scenarios that failed: number of pods and a fingerprint of the victims.
    failed: BTreeSet<(usize, u128)>,
    /// Everyone who may be asked to make room; `None` until somebody wants to know.
    all_victims: Option<Vec<VictimBatch>>,
    index: &'p JobIndex,
    facts: &'p mut JobFacts,
    tree: &'p mut JobTree,
    order: VictimOrder<'p>,
    feasible: FixedBitSet,
    /// GPUs free on each node, now or later, when the search began.
    free: Vec<i64>,
    /// The same of all nodes together.
    free_in_all: i64,
    /// The same with parts of GPUs counted exactly, if the job asks for any.
    parts: Option<SharedGpuTotals>,
    /// How many pods of a size fit on all nodes together, for the sizes that were asked about.
    rooms: BTreeMap<i64, i64>,
    /// What waits ahead of the job and of its victims.
    backlog: QueueBacklog,
    /// The largest job ahead.
    blocking_job: Option<JobId>,
    /// Whether nobody could be lost who has not an earlier turn.
    only_earlier_victims: bool,
    /// Steps at which the current generator must stop.
    allowed: u64,
    /// Whether scenarios that cannot work are left out.
    use_loss_bounds: bool,
}

/// What a probe found.
enum Probe {
    Solved(Solution),
    /// There are more victims to look at.
    VictimLimit,
    Unsolved,
}

/// A scenario that worked out; the ledger shows it.
struct Solution {
    /// Victims to start from when more pods are tried.
    victims: Vec<Arc<VictimBatch>>,
    /// Whether these are all who were evicted, so that trying them again would end in the same way.
    is_all: bool,
}

/// Where a probe starts.
#[derive(Clone, Copy)]
struct ProbeScope<'s> {
    /// Victims of the last prefix that worked out.
    recorded: &'s [Arc<VictimBatch>],
    /// Ask only these, not all who are eligible.
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
            .blocking_job
            .filter(|_| self.only_earlier_victims)
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
                && self.use_loss_bounds
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

    /// Whoever is to be found soon is found first. Else those are asked who together could lose as much and are closest to
    /// the job, since who made room for fewer pods may be in the way of more; then everybody, however long that takes.
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
        if let Some(relatives) = self.relatives(session, &self.problem.chunk[..count]) {
            let is_one = |batch: &&Arc<VictimBatch>| relatives.queues.contains(&batch.unit.queue);
            let recorded: Vec<Arc<VictimBatch>> = recorded.iter().filter(is_one).map(Arc::clone).collect();
            let among = ProbeScope { within: Some(&relatives), ..ProbeScope::all(&recorded) };
            if let Probe::Solved(solution) = self.probe_from(session, generator, count, &among)? {
                return Ok(Probe::Solved(solution));
            }
        }
        self.probe_from(session, generator, count, &ProbeScope::all(recorded))
    }

    /// Queues that could lose what these pods lack, see [`LossBound::closest_sufficient`].
    fn relatives(&mut self, session: &Session<'_>, pending: &[TaskId]) -> Option<VictimScope> {
        let total_check = TotalGpuCheck::new(&session.ledger, self.free_in_all, self.parts, pending);
        let required = self.facts.requested(&session.ledger, pending);
        let eligible = self.problem.eligible;
        let queues = &eligible.queues;
        let nearest = self.problem.loss_bound.closest_sufficient(
            &session.ledger.queues,
            required,
            total_check.missing(),
            queues,
        )?;
        (nearest.len() < queues.len()).then(|| VictimScope { queues: nearest, ..eligible.clone() })
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
        let required = self.facts.requested(&session.ledger, pending);
        let total_check = TotalGpuCheck::new(&session.ledger, self.free_in_all, self.parts, pending);
        let feasible = self.feasible_with(session, recorded);
        let mut pool = VictimPool::new(recorded.to_vec(), &self.free, feasible.ones().map(NodeId::at), &demands);
        // What recorded victims give back, and with all potential ones on top.
        let mut least = NodeGpuCheck::new(&self.free, &demands, &mut self.rooms);
        let stays = self.all_stay();
        for batch in recorded {
            least.give_back(batch, stays, 1);
        }
        let mut most = least.clone();
        let mut admission = FeasibleNodeCheck::new(&session.ledger, pending, &feasible);
        let victims_before_bound = if self.problem.eligible.queues.len() == 1 {
            VICTIMS_BEFORE_QUEUE_BOUND
        } else {
            VICTIMS_BEFORE_FULL_BOUND
        };
        let mut victims = Victims::new(session, self.index, recorded, start.within, self.problem.eligible);
        let mut seen = BTreeSet::new();
        let mut kept = BTreeSet::new();
        for state in 0.. {
            if state == start.max_victims {
                return Ok(Probe::VictimLimit);
            }
            let may_ask = start.within.is_none() && total_check.is_short() && self.use_loss_bounds;
            if state == VICTIMS_BEFORE_QUEUE_BOUND && may_ask && self.nobody_loses(session, required) {
                break;
            }
            if state == victims_before_bound && may_ask {
                match self.must_be_moved(session, pending, total_check, &demands) {
                    Some(jobs) => kept = jobs,
                    None => break,
                }
            }
            self.step(1)?;
            let possible = most.suffice() && admission.suffices();
            let mut listed = Vec::new();
            let mut prefixes = None;
            if !possible {
            } else if pool.potential.is_empty() {
                listed.extend((!recorded.is_empty()).then(Scenario::new));
            } else {
                match generator {
                    Generator::NodeLocalGreedy => {
                        let lost = recorded.iter().filter(|batch| !kept.contains(&batch.job)).map(|batch| batch.gpus());
                        let missing = if self.use_loss_bounds { total_check.missing() - lost.sum::<i64>() } else { 0 };
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
                if gives_enough(&mut least, &pool, &scenario, stays)
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
                    admission.add(&session.ledger, &batch);
                    let could_be_lost = !kept.contains(&batch.job);
                    pool.push(batch, could_be_lost);
                }
                None => break,
            }
        }
        Ok(Probe::Unsolved)
    }

    /// Whether all victims would have to be moved.
    fn nobody_loses(&self, session: &Session<'_>, required: Triple) -> bool {
        self.problem.loss_bound.none_possible(&session.ledger.queues, required, &self.problem.eligible.queues)
    }

    /// Whether all victims must find another place.
    fn all_stay(&self) -> bool {
        self.use_loss_bounds && matches!(self.problem.loss_bound, LossBound::MoveOnly)
    }

    /// What could be lost of these victims for the first so many pods; the ledger must be as it was when the search began.
    fn losable(&mut self, session: &Session<'_>, pending: &[TaskId], batches: &[&VictimBatch]) -> LossEstimate {
        let required = self.facts.requested(&session.ledger, pending);
        let mut demand = PendingDemand { required, before: None };
        let mut units: Vec<VictimLoss> = batches.iter().map(|batch| batch.unit).collect();
        // Riders play as well, in whatever queue they are.
        if self.minds_turns(session) && batches.iter().all(|batch| batch.dependent_moves.is_empty()) {
            let queue = session.snapshot.job(self.problem.job).queue.expect("reclaimers have a queue");
            let place = self.facts.key_with(&session.ledger, self.problem.job, self.need(session, pending));
            let ahead = self.backlog.before(session, self.index, self.facts, queue, place);
            demand.before = ahead.map(|front| front.largest);
            self.blocking_job = ahead.map(|front| front.job);
            for (unit, batch) in units.iter_mut().zip(batches) {
                unit.max_request = self.backlog.max_request_up_to(session, self.index, self.facts, batch.job);
            }
        }
        self.problem.loss_bound.of(&session.ledger.queues, self.tree, demand, &units)
    }

    /// Whether nobody may lose a place to somebody who comes after: the loser would be the first to want it back.
    fn minds_turns(&self, session: &Session<'_>) -> bool {
        session.policy.repairs.stable_moves && matches!(self.problem.loss_bound, LossBound::ByQueueShares(_))
    }

    /// How complete the job would be with these pods.
    fn need(&self, session: &Session<'_>, pending: &[TaskId]) -> Need {
        Gang::new(&session.ledger, self.problem.job).only(&sizes(session, pending)).state()
    }

    /// Who of a scenario's victims has an earlier turn than the pods; `None` if those who may lose their place do not
    /// hold enough, on nodes that the pods could use.
    fn weigh(
        &mut self,
        session: &Session<'_>,
        pending: &[TaskId],
        total_check: TotalGpuCheck,
        least: &mut NodeGpuCheck,
        pool: &VictimPool,
        scenario: &Scenario,
    ) -> Option<Vec<bool>> {
        let is_short = self.use_loss_bounds && total_check.is_short();
        if !is_short && !self.minds_turns(session) {
            return Some(Vec::new());
        }
        let potential = scenario.iter().map(|index| &pool.potential[*index]);
        let batches: Vec<&VictimBatch> = pool.recorded.iter().chain(potential).map(AsRef::as_ref).collect();
        let losable = self.losable(session, pending, &batches);
        if !is_short {
            return Some(losable.scheduled_first);
        }
        let lost = batches.iter().zip(&losable.evictable).filter(|(_, losable)| **losable);
        if !total_check.suffices(losable.gpus, lost.map(|(batch, _)| batch.tasks.len()).sum()) {
            return None;
        }
        if total_check.has_parts() {
            return Some(losable.scheduled_first);
        }
        let change = |least: &mut NodeGpuCheck, sign: i64| {
            for (index, (batch, losable)) in batches.iter().zip(&losable.evictable).enumerate() {
                let is_recorded = index < pool.recorded.len();
                match (is_recorded, *losable) {
                    (true, true) => {}
                    (false, losable) => least.give_back(batch, !losable, sign),
                    (true, false) => {
                        least.give_back(batch, false, -sign);
                        least.give_back(batch, true, sign);
                    }
                }
            }
        };
        change(least, 1);
        let enough = least.suffice();
        change(least, -1);
        enough.then_some(losable.scheduled_first)
    }

    /// Jobs that cannot lose anything for these pods; `None` if not even all victims together could make room, since
    /// those who must find another place make none.
    fn must_be_moved(
        &mut self,
        session: &Session<'_>,
        pending: &[TaskId],
        total_check: TotalGpuCheck,
        demands: &[i64],
    ) -> Option<BTreeSet<JobId>> {
        let problem = self.problem;
        let all_victims = self.all_victims.take().unwrap_or_else(|| all_victims(session, self.index, problem.eligible));
        let losable = self.losable(session, pending, &all_victims.iter().collect::<Vec<_>>());
        self.only_earlier_victims = !losable.evictable.contains(&true) && losable.scheduled_first.contains(&true);
        let mut most = NodeGpuCheck::new(&self.free, demands, &mut self.rooms);
        let mut kept = BTreeSet::new();
        let mut lost = 0;
        for (batch, losable) in all_victims.iter().zip(&losable.evictable) {
            most.give_back(batch, !losable && !total_check.has_parts(), 1);
            if *losable {
                lost += batch.tasks.len();
            } else {
                kept.insert(batch.job);
            }
        }
        self.all_victims = Some(all_victims);
        (total_check.suffices(losable.gpus, lost) && most.suffice()).then_some(kept)
    }

    /// Feasible nodes and those where recorded victims make room.
    fn feasible_with(&self, session: &Session<'_>, recorded: &[Arc<VictimBatch>]) -> FixedBitSet {
        let mut nodes = self.feasible.clone();
        let freed = recorded.iter().flat_map(|batch| &batch.tasks).filter_map(|task| node_of(&session.ledger, *task));
        freed.for_each(|node| nodes.insert(node.index()));
        nodes
    }

    fn step(&mut self, steps: u64) -> Result<(), SearchStop> {
        self.report.steps += steps;
        if self.report.steps > self.problem.budget.job { Err(SearchStop::Budget) } else { Ok(()) }
    }

    /// Evicts the victims, lets the job and then its victims find places, and asks the rules.
    fn simulate(
        &mut self,
        session: &mut Session<'_>,
        pending: &[TaskId],
        pool: &VictimPool,
        scenario: &Scenario,
        earlier: &[bool],
        generator: Generator,
    ) -> Result<Option<Solution>, SearchStop> {
        let potential = scenario.iter().map(|index| &pool.potential[*index]);
        let batches: Vec<&Arc<VictimBatch>> = pool.recorded.iter().chain(potential).collect();
        let mut victims: Vec<TaskId> = batches.iter().flat_map(|batch| batch.tasks.iter().copied()).collect();
        let dependent_moves = dependent_moves(&batches, &victims);
        victims.extend(&dependent_moves);
        let key = (pending.len(), fingerprint(&victims));
        if victims.is_empty() || self.failed.contains(&key) {
            return Ok(None);
        }
        self.report.scenarios += 1;
        let earlier = batches.iter().zip(earlier).filter(|(_, earlier)| **earlier);
        let earlier = earlier.flat_map(|(batch, _)| batch.tasks.iter().copied()).collect();
        let starting = self.starting(session, &victims);
        let mark = session.ledger.mark();
        let nodes = self.nodes_with(session, &victims);
        if evict(&mut session.ledger, &victims) {
            let placed = self.attempt(session, pending, &batches, &nodes)?;
            let trial = Trial { pending, batches, earlier, starting };
            if !placed {
                self.report.refused.unplaced += 1;
            } else if !self.allows(session, &trial, &dependent_moves) {
                self.report.refused.by_rules += 1;
            } else if !self.reprieve_and_check_stable(session, &trial, &victims, &dependent_moves, &nodes)? {
                self.report.refused.unstable += 1;
            } else {
                let lost = lost_or_moved(session, &victims);
                self.report.batch = victims.len() as u32;
                let victims = remember(generator, &trial.batches, &lost);
                let is_all = victims.len() == trial.batches.len();
                return Ok(Some(Solution { victims, is_all }));
            }
        }
        session.ledger.rollback(mark);
        self.failed.insert(key);
        Ok(None)
    }

    /// Pods that were placed in this cycle and could be kept from starting by moving others.
    fn starting(&self, session: &Session<'_>, victims: &[TaskId]) -> Vec<TaskId> {
        let minds = session.policy.repairs.stable_moves && matches!(self.problem.loss_bound, LossBound::MoveOnly);
        let starts = |task: &TaskId| session.snapshot.task(*task).status == Status::Pending && is_held(session, *task);
        victims.iter().copied().filter(|task| minds && starts(task)).collect()
    }

    /// Whether the action's rules accept what a scenario did, and pods that were moved for a job that now gives way keep
    /// a place: at home, or where consolidation may move them for the new one.
    fn allows(&self, session: &Session<'_>, trial: &Trial<'_>, dependent_moves: &[TaskId]) -> bool {
        let moved = dependent_moves.len() - dependent_moves.iter().filter(|task| is_held(session, **task)).count();
        let most = session.policy.consolidation_moves_max.map_or(usize::MAX, |most| most as usize);
        let keeps_place = |task: &TaskId| session.ledger.state(*task).is_active();
        (self.problem.accept)(session, trial)
            && dependent_moves.iter().chain(&trial.earlier).all(keeps_place)
            && trial.starting.iter().all(|task| is_held(session, *task))
            && (moved == 0 || session.snapshot.job(self.problem.job).preemptible && moved <= most)
    }

    /// Lets victims stay who can; whether the rest is_stable.
    fn reprieve_and_check_stable(
        &mut self,
        session: &mut Session<'_>,
        trial: &Trial<'_>,
        victims: &[TaskId],
        dependent_moves: &[TaskId],
        nodes: &FixedBitSet,
    ) -> Result<bool, SearchStop> {
        if trial.pending.len() < self.problem.chunk.len() {
            return Ok(true);
        }
        let mark = session.ledger.mark();
        if session.policy.repairs.reprieve_victims
            && reprieve::reprieve(session, &trial.batches, dependent_moves, nodes)
        {
            if self.allows(session, trial, dependent_moves)
                && self.is_stable(session, trial.pending, &trial.batches, victims)?
            {
                return Ok(true);
            }
            session.ledger.rollback(mark);
        }
        self.is_stable(session, trial.pending, &trial.batches, victims)
    }

    /// Whether the job gets its place, and nobody loses one who has one now, if all players start anew.
    fn is_stable(
        &mut self,
        session: &mut Session<'_>,
        pending: &[TaskId],
        batches: &[&Arc<VictimBatch>],
        victims: &[TaskId],
    ) -> Result<bool, SearchStop> {
        if !session.policy.repairs.stable_moves {
            return Ok(true);
        }
        let mark = session.ledger.mark();
        let stays = |session: &Session<'_>, task: TaskId| session.ledger.state(task).is_active();
        let staying: Vec<TaskId> = victims.iter().copied().filter(|task| stays(session, *task)).collect();
        for task in victims.iter().chain(pending) {
            if !matches!(session.ledger.state(*task), TaskState::Allocated(_)) {
                session.ledger.shift(*task, TaskState::Unplaced);
            }
        }
        let mut everywhere = FixedBitSet::with_capacity(session.snapshot.nodes.len());
        everywhere.insert_range(..);
        let placed = self.attempt(session, pending, batches, &everywhere)?;
        let is_stable = placed && staying.iter().all(|task| stays(session, *task));
        session.ledger.rollback(mark);
        Ok(is_stable)
    }

    fn nodes_with(&self, session: &Session<'_>, victims: &[TaskId]) -> FixedBitSet {
        let mut nodes = self.feasible.clone();
        for state in victims.iter().map(|task| session.ledger.state(*task)) {
            if let TaskState::Moving { from, .. } = state {
                nodes.insert(from.node.index());
            }
            if let Some(placement) = state.placement() {
                nodes.insert(placement.node.index());
            }
        }
        if let Some(only) = self.problem.nodes {
            nodes.intersect_with(only);
        }
        nodes
    }

    /// The job and its victims are placed in the order in which their queues and priorities say.
    fn attempt(
        &mut self,
        session: &mut Session<'_>,
        pending: &[TaskId],
        batches: &[&Arc<VictimBatch>],
        nodes: &FixedBitSet,
    ) -> Result<bool, SearchStop> {
        let job = self.problem.job;
        let need = self.need(session, pending);
        let required = self.facts.requested(&session.ledger, pending);
        let mut jobs = PartialJobInfo { job, need, required, facts: self.facts };
        let tasks = batches.iter().flat_map(|batch| batch.all());
        let mut simulated_jobs: BTreeSet<JobId> = tasks.map(|task| session.snapshot.task(task).job).collect();
        simulated_jobs.insert(job);
        self.tree.clear();
        fill_job_order(self.tree, session, &mut jobs, &simulated_jobs, self.index);
        let mut steps = 0;
        let mut placed = false;
        let mut left = simulated_jobs.len();
        while left > 0
            && let Some(next) = self.tree.pop(&session.ledger, &mut jobs)
        {
            if !simulated_jobs.contains(&next) {
                continue;
            }
            left -= 1;
            if next == job {
                steps += pending.len() as u64;
                let chunk = if session.policy.repairs.gang_trees {
                    pending.to_vec()
                } else {
                    Gang::new(&session.ledger, job).only(&sizes(session, pending)).chunk(true)
                };
                placed = session.place_chunk(job, &chunk, NodeSet::Only(nodes), Attempt::WhatIf);
                if !placed {
                    break;
                }
            } else {
                let chunk = session.place_job(next, NodeSet::Only(nodes), Attempt::WhatIf);
                steps += chunk.map_or(1, |chunk| chunk.len() as u64);
            }
        }
        self.step(steps)?;
        Ok(placed)
    }
}

/// Whether this scenario alone would free enough GPUs.
fn gives_enough(least: &mut NodeGpuCheck, pool: &VictimPool, scenario: &Scenario, stays: bool) -> bool {
    let batches = || scenario.iter().map(|index| &pool.potential[*index]);
    batches().for_each(|batch| least.give_back(batch, stays, 1));
    let enough = least.suffice();
    batches().for_each(|batch| least.give_back(batch, stays, -1));
    enough
}

/// Tells sets of pods apart; their order does not matter.
fn fingerprint(tasks: &[TaskId]) -> u128 {
    let mix = |task: &TaskId| {
        let spread = (u128::from(task.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        (spread ^ (spread >> 67)).wrapping_mul(0xc2b2_ae3d_27d4_eb4f_1656_67b1_9e37_79f9)
    };
    tasks.iter().fold(0, |sum, task| sum.wrapping_add(mix(task)))
}

/// Takes the victims' places away; false if one cannot be evicted.
fn evict(ledger: &mut Ledger<'_>, victims: &[TaskId]) -> bool {
    for task in victims {
        let was_placed_before = ledger.snapshot.task(*task).status != Status::Pending;
        let state = match ledger.state(*task) {
            TaskState::Allocated(placement) if was_placed_before => TaskState::Releasing(placement),
            TaskState::Allocated(placement) | TaskState::Pipelined(placement) if !ledger.repairs.drop_placements => {
                TaskState::Releasing(placement)
            }
            // Placed in this very cycle: the placement is dropped, nobody is deleted.
            TaskState::Allocated(_) | TaskState::Pipelined(_) => TaskState::Unplaced,
            TaskState::Moving { from, .. } => TaskState::Releasing(from),
            TaskState::Unplaced
            | TaskState::Releasing(_)
            | TaskState::StuckReleasing(_)
            | TaskState::OutsideSnapshot { .. } => return false,
        };
        ledger.shift(*task, state);
    }
    true
}

/// Pods that ride with the batches, without those that are victims themselves.
fn dependent_moves(batches: &[&Arc<VictimBatch>], victims: &[TaskId]) -> Vec<TaskId> {
    let mut dependent_moves: Vec<TaskId> =
        batches.iter().flat_map(|batch| batch.dependent_moves.iter().copied()).collect();
    dependent_moves.retain(|task| !victims.contains(task));
    dependent_moves.sort_unstable();
    dependent_moves.dedup();
    dependent_moves
}

fn is_held(session: &Session<'_>, task: TaskId) -> bool {
    matches!(session.ledger.state(task), TaskState::Allocated(_))
}

/// How many pods of each pod set these are.
fn sizes(session: &Session<'_>, pending: &[TaskId]) -> BTreeMap<PodSetId, u32> {
    let mut sizes: BTreeMap<PodSetId, u32> = BTreeMap::new();
    for task in pending {
        *sizes.entry(session.snapshot.task(*task).pod_set).or_insert(0) += 1;
    }
    sizes
}

/// Victims that do not stay where they were.
fn lost_or_moved(session: &Session<'_>, victims: &[TaskId]) -> BTreeSet<TaskId> {
    victims.iter().copied().filter(|task| !is_held(session, *task)).collect()
}

/// Victims to start from when more pods are tried.
fn remember(generator: Generator, batches: &[&Arc<VictimBatch>], lost: &BTreeSet<TaskId>) -> Vec<Arc<VictimBatch>> {
    let hit = |batch: &VictimBatch| batch.tasks.iter().any(|task| lost.contains(task));
    let jobs: BTreeSet<_> = batches.iter().filter(|batch| hit(batch)).map(|batch| batch.job).collect();
    let keep = |batch: &VictimBatch| match generator {
        Generator::NodeLocalGreedy => jobs.contains(&batch.job),
        Generator::MultiNodeGang => hit(batch),
    };
    batches.iter().filter(|batch| keep(batch)).map(|batch| Arc::clone(batch)).collect()
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
