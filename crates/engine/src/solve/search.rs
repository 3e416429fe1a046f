//! The search: for growing prefixes of a job's pods, which victims make room?
//!
//! Everything happens on one ledger under a mark; a probe that is not the last is rolled back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::ahead::Ahead;
use super::filters::{Admission, FreeGpus, Parts, Volume};
use super::index::{JobIndex, Scratch};
use super::losses::{Losable, Losses, Unit, Wish};
use super::players::{Partial, fill};
use super::scenario::{Gathered, Scenario, gpu_demand, node_of};
use super::spare;
use super::victims::{Batch, Eligible, VictimOrder, Victims, everyone};
use crate::finder::NodeSet;
use crate::gang::{Gang, Need};
use crate::ids::{JobId, NodeId, PodSetId, TaskId};
use crate::ledger::{Ledger, Standing};
use crate::order::jobs::JobFacts;
use crate::order::tree::JobTree;
use crate::outcome::{Refusals, SearchStop};
use crate::place::Attempt;
use crate::policy::Generator;
use crate::session::Session;
use crate::snapshot::{Status, Task};
use crate::units::Triple;

/// Victims that a probe gathers before it asks whether all of them together could help, or whether some should be
/// tried before the others: most probes need few, and asking means to look at all of them.
const PATIENCE: u32 = 64;

/// Victims that a probe gathers before it asks what is known of queues alone, or of a single queue.
const FIRST_PATIENCE: u32 = 4;

/// Victims that are looked at, without being played, in the time of one step.
const VICTIMS_A_STEP: u64 = 16;

/// A job that needs room, and who may be asked to make it.
pub struct Problem<'p> {
    /// The job.
    pub job: JobId,
    /// The pods to place.
    pub chunk: &'p [TaskId],
    /// Jobs that may lose pods.
    pub eligible: &'p Eligible,
    /// Nodes on which pods may be placed, besides those of victims; `None` is what the rules say.
    pub nodes: Option<&'p FixedBitSet>,
    /// Who could lose a place for these pods.
    pub losses: &'p Losses,
    /// Whether the rules accept what a scenario did.
    pub accept: &'p dyn Fn(&Session<'_>, &Trial<'_>) -> bool,
    /// Steps left.
    pub budget: Budget,
}

/// A scenario after it was played.
pub struct Trial<'t> {
    /// The pods that found a place.
    pub pending: &'t [TaskId],
    /// The victims, in eviction order.
    pub batches: Vec<&'t Arc<Batch>>,
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
pub struct Report {
    /// `None`: the job has its room, and the ledger shows it.
    pub stop: Option<SearchStop>,
    /// Victim scenarios tried.
    pub scenarios: u32,
    /// Victim scenarios that were known not to work without trying.
    pub spared: u32,
    /// Most pods that a scenario made room for.
    pub placed: u32,
    /// Steps used.
    pub steps: u64,
    /// Victims of the solution.
    pub batch: u32,
    /// Why scenarios were refused.
    pub refused: Refusals,
}

/// Looks for victims. On success the ledger holds the solution; otherwise it is as before.
pub fn search<'p>(session: &mut Session<'_>, problem: &'p Problem<'p>, scratch: &'p mut Scratch) -> Report {
    let Scratch { index, facts, tree } = scratch;
    let index = &*index;
    let free: Vec<i64> = session.snapshot.nodes.ids().map(|node| gpus_free(&session.ledger, node)).collect();
    let mut search = Search {
        problem,
        report: Report::default(),
        failed: BTreeSet::new(),
        everyone: None,
        index,
        facts,
        tree,
        order: VictimOrder::new(session, index, problem.eligible),
        feasible: feasible_nodes(session, problem),
        free_in_all: free.iter().map(|free| (*free).max(0)).sum(),
        free,
        parts: if problem.chunk.iter().any(|task| shares(session, *task)) { Parts::new(&session.ledger) } else { None },
        rooms: BTreeMap::new(),
        ahead: Ahead::default(),
        behind: None,
        is_late: false,
        allowed: 0,
        // Where other pods or their volumes stand in the way, GPUs alone do not tell what could work.
        plain: session.plain_search || problem.chunk.iter().map(|task| session.snapshot.task(*task)).any(minds_others),
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
    task.bond.is_some() || task.volumes.is_some()
}

struct Search<'p> {
    problem: &'p Problem<'p>,
    report: Report,
    /// Scenarios that failed: number of pods and a signature of the victims.
    failed: BTreeSet<(usize, u128)>,
    /// Everyone who may be asked to make room; `None` until somebody wants to know.
    everyone: Option<Vec<Batch>>,
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
    parts: Option<Parts>,
    /// How many pods of a size fit on all nodes together, for the sizes that were asked about.
    rooms: BTreeMap<i64, i64>,
    /// What waits ahead of the job and of its victims.
    ahead: Ahead,
    /// The largest job ahead.
    behind: Option<JobId>,
    /// Whether nobody could be lost who has not an earlier turn.
    is_late: bool,
    /// Steps at which the current generator must stop.
    allowed: u64,
    /// Try even what cannot work.
    plain: bool,
}

/// What a probe found.
enum Probe {
    Solved(Solution),
    /// There are more victims to look at.
    Cut,
    Unsolved,
}

/// A scenario that worked out; the ledger shows it.
struct Solution {
    /// Victims to start from when more pods are tried.
    victims: Vec<Arc<Batch>>,
    /// Whether these are all who were evicted, so that trying them again would end in the same way.
    is_all: bool,
}

/// Where a probe starts.
#[derive(Clone, Copy)]
struct Start<'s> {
    /// Victims of the last prefix that worked out.
    recorded: &'s [Arc<Batch>],
    /// Ask only these, not all who are eligible.
    among: Option<&'s Eligible>,
    /// Victims to gather at most.
    most: u32,
}

impl<'s> Start<'s> {
    fn all(recorded: &'s [Arc<Batch>]) -> Self {
        Self { recorded, among: None, most: u32::MAX }
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
        Err(self.behind.filter(|_| self.is_late).map_or(SearchStop::Exhausted, SearchStop::Behind))
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
                && !self.plain
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
                Probe::Cut | Probe::Unsolved => fails = next,
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
        recorded: &[Arc<Batch>],
    ) -> Result<Probe, SearchStop> {
        let soon = Start { most: PATIENCE, ..Start::all(recorded) };
        let found = self.probe_from(session, generator, count, &soon)?;
        if !matches!(found, Probe::Cut) {
            return Ok(found);
        }
        if let Some(relatives) = self.relatives(session, &self.problem.chunk[..count]) {
            let is_one = |batch: &&Arc<Batch>| relatives.queues.contains(&batch.unit.queue);
            let recorded: Vec<Arc<Batch>> = recorded.iter().filter(is_one).map(Arc::clone).collect();
            let among = Start { among: Some(&relatives), ..Start::all(&recorded) };
            if let Probe::Solved(solution) = self.probe_from(session, generator, count, &among)? {
                return Ok(Probe::Solved(solution));
            }
        }
        self.probe_from(session, generator, count, &Start::all(recorded))
    }

    /// Queues that could lose what these pods lack, see [`Losses::nearest`].
    fn relatives(&mut self, session: &Session<'_>, pending: &[TaskId]) -> Option<Eligible> {
        let volume = Volume::new(&session.ledger, self.free_in_all, self.parts, pending);
        let required = self.facts.requested(&session.ledger, pending);
        let eligible = self.problem.eligible;
        let queues = &eligible.queues;
        let nearest = self.problem.losses.nearest(&session.ledger.book, required, volume.missing(), queues)?;
        (nearest.len() < queues.len()).then(|| Eligible { queues: nearest, ..eligible.clone() })
    }

    fn probe_from(
        &mut self,
        session: &mut Session<'_>,
        generator: Generator,
        count: usize,
        start: &Start<'_>,
    ) -> Result<Probe, SearchStop> {
        let recorded = start.recorded;
        let pending = &self.problem.chunk[..count];
        let demands: Vec<_> = pending.iter().map(|task| gpu_demand(&session.ledger, *task)).collect();
        let required = self.facts.requested(&session.ledger, pending);
        let volume = Volume::new(&session.ledger, self.free_in_all, self.parts, pending);
        let feasible = self.feasible_with(session, recorded);
        let mut gathered = Gathered::new(recorded.to_vec(), &self.free, feasible.ones().map(NodeId::at), &demands);
        // What recorded victims give back, and with all potential ones on top.
        let mut least = FreeGpus::new(&self.free, &demands, &mut self.rooms);
        let stays = self.all_stay();
        for batch in recorded {
            least.give_back(batch, stays, 1);
        }
        let mut most = least.clone();
        let mut admission = Admission::new(&session.ledger, pending, &feasible);
        let patience = if self.problem.eligible.queues.len() == 1 { FIRST_PATIENCE } else { PATIENCE };
        let mut victims = Victims::new(session, self.index, recorded, start.among, self.problem.eligible);
        let mut seen = BTreeSet::new();
        let mut kept = BTreeSet::new();
        for state in 0.. {
            if state == start.most {
                return Ok(Probe::Cut);
            }
            let may_ask = start.among.is_none() && volume.is_short() && !self.plain;
            if state == FIRST_PATIENCE && may_ask && self.nobody_loses(session, required) {
                break;
            }
            if state == patience && may_ask {
                match self.must_be_moved(session, pending, volume, &demands) {
                    Some(jobs) => kept = jobs,
                    None => break,
                }
            }
            self.step(1)?;
            let possible = most.suffice() && admission.suffices();
            let mut listed = Vec::new();
            let mut prefixes = None;
            if !possible {
            } else if gathered.potential.is_empty() {
                listed.extend((!recorded.is_empty()).then(Scenario::new));
            } else {
                match generator {
                    Generator::NodeLocalGreedy => {
                        let lost = recorded.iter().filter(|batch| !kept.contains(&batch.job)).map(|batch| batch.gpus());
                        let missing = if self.plain { 0 } else { volume.missing() - lost.sum::<i64>() };
                        listed = gathered.node_local(&session.ledger, missing);
                    }
                    Generator::MultiNodeGang if gathered.take_news() => {
                        prefixes = gathered.multi_node(&session.ledger, &mut seen);
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
                if gives_enough(&mut least, &gathered, &scenario, stays)
                    && let Some(earlier) = self.weigh(session, pending, volume, &mut least, &gathered, &scenario)
                    && let Some(solution) = self.play(session, pending, &gathered, &scenario, &earlier, generator)?
                {
                    return Ok(Probe::Solved(solution));
                }
                self.report.spared += u32::from(self.report.scenarios == tried);
            }
            match victims.next(session, &mut self.order) {
                Some(batch) => {
                    most.give_back(&batch, stays, 1);
                    admission.add(&session.ledger, &batch);
                    let could_be_lost = !kept.contains(&batch.job);
                    gathered.push(batch, could_be_lost);
                }
                None => break,
            }
        }
        Ok(Probe::Unsolved)
    }

    /// Whether all victims would have to be moved.
    fn nobody_loses(&self, session: &Session<'_>, required: Triple) -> bool {
        self.problem.losses.nobody(&session.ledger.book, required, &self.problem.eligible.queues)
    }

    /// Whether all victims must find another place.
    fn all_stay(&self) -> bool {
        !self.plain && matches!(self.problem.losses, Losses::Nobody)
    }

    /// What could be lost of these victims for the first so many pods; the ledger must be as it was when the search began.
    fn losable(&mut self, session: &Session<'_>, pending: &[TaskId], batches: &[&Batch]) -> Losable {
        let required = self.facts.requested(&session.ledger, pending);
        let mut wish = Wish { required, before: None };
        let mut units: Vec<Unit> = batches.iter().map(|batch| batch.unit).collect();
        // Riders play as well, in whatever queue they are.
        if self.minds_turns(session) && batches.iter().all(|batch| batch.riders.is_empty()) {
            let queue = session.snapshot.job(self.problem.job).queue.expect("reclaimers have a queue");
            let place = self.facts.key_with(&session.ledger, self.problem.job, self.need(session, pending));
            let ahead = self.ahead.of(session, self.index, self.facts, queue, place);
            wish.before = ahead.map(|front| front.largest);
            self.behind = ahead.map(|front| front.job);
            for (unit, batch) in units.iter_mut().zip(batches) {
                unit.turn = self.ahead.turn(session, self.index, self.facts, batch.job);
            }
        }
        self.problem.losses.of(&session.ledger.book, self.tree, wish, &units)
    }

    /// Whether nobody may lose a place to somebody who comes after: the loser would be the first to want it back.
    fn minds_turns(&self, session: &Session<'_>) -> bool {
        session.policy.repairs.lasting_moves && matches!(self.problem.losses, Losses::Sides(_))
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
        volume: Volume,
        least: &mut FreeGpus,
        gathered: &Gathered,
        scenario: &Scenario,
    ) -> Option<Vec<bool>> {
        let is_short = !self.plain && volume.is_short();
        if !is_short && !self.minds_turns(session) {
            return Some(Vec::new());
        }
        let potential = scenario.iter().map(|index| &gathered.potential[*index]);
        let batches: Vec<&Batch> = gathered.recorded.iter().chain(potential).map(AsRef::as_ref).collect();
        let losable = self.losable(session, pending, &batches);
        if !is_short {
            return Some(losable.earlier);
        }
        let lost = batches.iter().zip(&losable.units).filter(|(_, losable)| **losable);
        if !volume.suffices(losable.gpus, lost.map(|(batch, _)| batch.tasks.len()).sum()) {
            return None;
        }
        if volume.has_parts() {
            return Some(losable.earlier);
        }
        let change = |least: &mut FreeGpus, sign: i64| {
            for (index, (batch, losable)) in batches.iter().zip(&losable.units).enumerate() {
                let is_recorded = index < gathered.recorded.len();
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
        enough.then_some(losable.earlier)
    }

    /// Jobs that cannot lose anything for these pods; `None` if not even all victims together could make room, since
    /// those who must find another place make none.
    fn must_be_moved(
        &mut self,
        session: &Session<'_>,
        pending: &[TaskId],
        volume: Volume,
        demands: &[i64],
    ) -> Option<BTreeSet<JobId>> {
        let problem = self.problem;
        let everyone = self.everyone.take().unwrap_or_else(|| everyone(session, self.index, problem.eligible));
        let losable = self.losable(session, pending, &everyone.iter().collect::<Vec<_>>());
        self.is_late = !losable.units.contains(&true) && losable.earlier.contains(&true);
        let mut most = FreeGpus::new(&self.free, demands, &mut self.rooms);
        let mut kept = BTreeSet::new();
        let mut lost = 0;
        for (batch, losable) in everyone.iter().zip(&losable.units) {
            most.give_back(batch, !losable && !volume.has_parts(), 1);
            if *losable {
                lost += batch.tasks.len();
            } else {
                kept.insert(batch.job);
            }
        }
        self.everyone = Some(everyone);
        (volume.suffices(losable.gpus, lost) && most.suffice()).then_some(kept)
    }

    /// Feasible nodes and those where recorded victims make room.
    fn feasible_with(&self, session: &Session<'_>, recorded: &[Arc<Batch>]) -> FixedBitSet {
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
    fn play(
        &mut self,
        session: &mut Session<'_>,
        pending: &[TaskId],
        gathered: &Gathered,
        scenario: &Scenario,
        earlier: &[bool],
        generator: Generator,
    ) -> Result<Option<Solution>, SearchStop> {
        let potential = scenario.iter().map(|index| &gathered.potential[*index]);
        let batches: Vec<&Arc<Batch>> = gathered.recorded.iter().chain(potential).collect();
        let mut victims: Vec<TaskId> = batches.iter().flat_map(|batch| batch.tasks.iter().copied()).collect();
        let riders = riders(&batches, &victims);
        victims.extend(&riders);
        let key = (pending.len(), signature(&victims));
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
                self.report.refused.no_room += 1;
            } else if !self.allows(session, &trial, &riders) {
                self.report.refused.by_rules += 1;
            } else if !self.settles(session, &trial, &victims, &riders, &nodes)? {
                self.report.refused.fleeting += 1;
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
        let minds = session.policy.repairs.lasting_moves && matches!(self.problem.losses, Losses::Nobody);
        let starts = |task: &TaskId| session.snapshot.task(*task).status == Status::Pending && is_held(session, *task);
        victims.iter().copied().filter(|task| minds && starts(task)).collect()
    }

    /// Whether the action's rules accept what a scenario did, and pods that were moved for a job that now gives way keep
    /// a place: at home, or where consolidation may move them for the new one.
    fn allows(&self, session: &Session<'_>, trial: &Trial<'_>, riders: &[TaskId]) -> bool {
        let moved = riders.len() - riders.iter().filter(|task| is_held(session, **task)).count();
        let most = session.policy.consolidation_moves_max.map_or(usize::MAX, |most| most as usize);
        let keeps_place = |task: &TaskId| session.ledger.standing(*task).is_active();
        (self.problem.accept)(session, trial)
            && riders.iter().chain(&trial.earlier).all(keeps_place)
            && trial.starting.iter().all(|task| is_held(session, *task))
            && (moved == 0 || session.snapshot.job(self.problem.job).preemptible && moved <= most)
    }

    /// Lets victims stay who can; whether the rest lasts.
    fn settles(
        &mut self,
        session: &mut Session<'_>,
        trial: &Trial<'_>,
        victims: &[TaskId],
        riders: &[TaskId],
        nodes: &FixedBitSet,
    ) -> Result<bool, SearchStop> {
        if trial.pending.len() < self.problem.chunk.len() {
            return Ok(true);
        }
        let mark = session.ledger.mark();
        if session.policy.repairs.spare_victims && spare::spare(session, &trial.batches, riders, nodes) {
            if self.allows(session, trial, riders) && self.lasts(session, trial.pending, &trial.batches, victims)? {
                return Ok(true);
            }
            session.ledger.rollback(mark);
        }
        self.lasts(session, trial.pending, &trial.batches, victims)
    }

    /// Whether the job gets its place, and nobody loses one who has one now, if all players start anew.
    fn lasts(
        &mut self,
        session: &mut Session<'_>,
        pending: &[TaskId],
        batches: &[&Arc<Batch>],
        victims: &[TaskId],
    ) -> Result<bool, SearchStop> {
        if !session.policy.repairs.lasting_moves {
            return Ok(true);
        }
        let mark = session.ledger.mark();
        let stays = |session: &Session<'_>, task: TaskId| session.ledger.standing(task).is_active();
        let settled: Vec<TaskId> = victims.iter().copied().filter(|task| stays(session, *task)).collect();
        for task in victims.iter().chain(pending) {
            if !matches!(session.ledger.standing(*task), Standing::Held(_)) {
                session.ledger.shift(*task, Standing::Waiting);
            }
        }
        let mut everywhere = FixedBitSet::with_capacity(session.snapshot.nodes.len());
        everywhere.insert_range(..);
        let placed = self.attempt(session, pending, batches, &everywhere)?;
        let lasts = placed && settled.iter().all(|task| stays(session, *task));
        session.ledger.rollback(mark);
        Ok(lasts)
    }

    fn nodes_with(&self, session: &Session<'_>, victims: &[TaskId]) -> FixedBitSet {
        let mut nodes = self.feasible.clone();
        for standing in victims.iter().map(|task| session.ledger.standing(*task)) {
            if let Standing::Moving { from, .. } = standing {
                nodes.insert(from.node.index());
            }
            if let Some(spot) = standing.spot() {
                nodes.insert(spot.node.index());
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
        batches: &[&Arc<Batch>],
        nodes: &FixedBitSet,
    ) -> Result<bool, SearchStop> {
        let job = self.problem.job;
        let need = self.need(session, pending);
        let required = self.facts.requested(&session.ledger, pending);
        let mut jobs = Partial { job, need, required, facts: self.facts };
        let tasks = batches.iter().flat_map(|batch| batch.all());
        let mut playing: BTreeSet<JobId> = tasks.map(|task| session.snapshot.task(task).job).collect();
        playing.insert(job);
        self.tree.clear();
        fill(self.tree, session, &mut jobs, &playing, self.index);
        let mut steps = 0;
        let mut placed = false;
        let mut left = playing.len();
        while left > 0
            && let Some(next) = self.tree.pop(&session.ledger, &mut jobs)
        {
            if !playing.contains(&next) {
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
fn gives_enough(least: &mut FreeGpus, gathered: &Gathered, scenario: &Scenario, stays: bool) -> bool {
    let batches = || scenario.iter().map(|index| &gathered.potential[*index]);
    batches().for_each(|batch| least.give_back(batch, stays, 1));
    let enough = least.suffice();
    batches().for_each(|batch| least.give_back(batch, stays, -1));
    enough
}

/// Tells sets of pods apart; their order does not matter.
fn signature(tasks: &[TaskId]) -> u128 {
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
        let standing = match ledger.standing(*task) {
            Standing::Held(spot) if was_placed_before => Standing::Leaving(spot),
            Standing::Held(spot) | Standing::Promised(spot) if !ledger.repairs.drop_placements => {
                Standing::Leaving(spot)
            }
            // Placed in this very cycle: the placement is dropped, nobody is deleted.
            Standing::Held(_) | Standing::Promised(_) => Standing::Waiting,
            Standing::Moving { from, .. } => Standing::Leaving(from),
            Standing::Waiting | Standing::Leaving(_) | Standing::Stuck(_) | Standing::Away { .. } => return false,
        };
        ledger.shift(*task, standing);
    }
    true
}

/// Pods that ride with the batches, without those that are victims themselves.
fn riders(batches: &[&Arc<Batch>], victims: &[TaskId]) -> Vec<TaskId> {
    let mut riders: Vec<TaskId> = batches.iter().flat_map(|batch| batch.riders.iter().copied()).collect();
    riders.retain(|task| !victims.contains(task));
    riders.sort_unstable();
    riders.dedup();
    riders
}

fn is_held(session: &Session<'_>, task: TaskId) -> bool {
    matches!(session.ledger.standing(task), Standing::Held(_))
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
fn remember(generator: Generator, batches: &[&Arc<Batch>], lost: &BTreeSet<TaskId>) -> Vec<Arc<Batch>> {
    let hit = |batch: &Batch| batch.tasks.iter().any(|task| lost.contains(task));
    let jobs: BTreeSet<_> = batches.iter().filter(|batch| hit(batch)).map(|batch| batch.job).collect();
    let keep = |batch: &Batch| match generator {
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
