//! The common part of consolidation, reclaim and preemption: waiting jobs are tried in order, and for each a search
//! looks for victims, until the action's step budget is used up.

use fixedbitset::FixedBitSet;

use super::early_exit::EarlyExitBackoff;
use super::failed_jobs::FailedJobs;
use crate::gang::{self, Gang};
use crate::ids::{JobId, QueueId, TaskId};
use crate::ledger::TaskState;
use crate::outcome::{EvictionCause, Ineligibility, Protection, Reason, ReclaimSide, ScenarioRejections, SearchStop};
use crate::policy::Action;
use crate::queues::job_index::Scratch;
use crate::queues::job_info::JobInfoCache;
use crate::queues::job_order::JobTree;
use crate::session::Session;
use crate::solve::loss_bound::LossBound;
use crate::solve::search::{Budget, Problem, SearchReport, Trial, search};
use crate::solve::victim_scope::VictimScope;
use crate::solve::victims;
use crate::units::Timestamp;

/// One such action.
pub(crate) struct VictimAction {
    /// Its name.
    pub action: Action,
    /// Jobs tried per queue.
    pub depth: Option<u32>,
    /// Steps for the whole action.
    pub budget: Option<u64>,
    /// Whether the job is looked at, before everything else.
    pub considers: fn(&Session<'_>, JobId) -> bool,
    /// Why the job may not search, although it is looked at.
    pub check_eligible: fn(&mut Session<'_>, JobId, &[TaskId]) -> Option<IneligibleJob>,
    /// Jobs that may lose pods for it.
    pub victim_scope: fn(&Session<'_>, JobId, &[TaskId]) -> VictimScope,
    /// Which jobs could lose a place for the job, rather than be moved.
    pub loss_bound: fn(&Session<'_>, JobId) -> LossBound,
    /// Whether the rules accept a scenario; the last argument is the state before the search.
    pub accept: fn(&Session<'_>, JobId, &Trial<'_>, &crate::ledger::QueueAccounts) -> bool,
    /// Victims are jobs of the same queue and of lower priority.
    pub victims_have_lower_priority: bool,
    /// One table of known failures for all queues, or one each.
    pub shared_failures: bool,
}

/// A job that may not search.
pub(crate) struct IneligibleJob {
    /// Why.
    pub why: Ineligibility,
    /// Whether others like it need not try.
    pub counts_as_failure: bool,
}

/// Runs the action.
pub(crate) fn run(session: &mut Session<'_>, action: &VictimAction) {
    let mut facts = JobInfoCache::new(&session.ledger, session.policy, false);
    let mut tree = JobTree::new(&session.ledger, session.policy);
    tree.full_scan = session.finder.full_scan;
    for job in session.waiting.clone() {
        if !gang::has_pending(&session.ledger, job)
            || !(action.considers)(session, job)
            || !Gang::new(&session.ledger, job).is_ready()
        {
            continue;
        }
        if let Some(until) = delayed_until(session, job) {
            let delay = session.snapshot.job(job).preemption_delay;
            session.explain_once(job, Reason::PreemptionDelay { delay, until });
            session.may_change_at(until);
            continue;
        }
        tree.push(&session.ledger, &mut facts, job, action.depth);
    }
    let mut search = VictimActionRun {
        action,
        failures: FailedJobs::default(),
        below: action.victims_have_lower_priority.then(|| LowestPriority::new(session)),
        steps: 0,
    };
    let mut early_exit = EarlyExitBackoff::default();
    loop {
        if early_exit.should_check() && !session.finder.full_scan && no_job_can_search(session, &mut search, &mut tree)
        {
            // No remaining job can search, so the order of queues no longer matters; within a queue it does, because
            // `NoEasierThan` names the job that failed first.
            for job in tree.drain() {
                search.try_job(session, job);
            }
            return;
        }
        let Some(job) = tree.pop(&session.ledger, &mut facts) else { return };
        if search.try_job(session, job) { early_exit.reset_idle() } else { early_exit.record_idle_turn() }
    }
}

fn no_job_can_search(session: &mut Session<'_>, search: &mut VictimActionRun<'_>, tree: &mut JobTree) -> bool {
    tree.jobs().all(|job| {
        let chunk = Gang::new(&session.ledger, job).chunk(false);
        chunk.is_empty()
            || search.has_no_victims(session, job)
            || (search.action.check_eligible)(session, job, &chunk).is_some()
    })
}

/// One run of an action.
struct VictimActionRun<'a> {
    action: &'a VictimAction,
    failures: FailedJobs,
    below: Option<LowestPriority>,
    steps: u64,
}

impl VictimActionRun<'_> {
    /// Whether a search would find no victim to begin with.
    fn has_no_victims(&self, session: &Session<'_>, job: JobId) -> bool {
        self.below.as_ref().is_some_and(|below| !below.has(session, job))
    }

    /// Tries one job; true if room was made for it.
    fn try_job(&mut self, session: &mut Session<'_>, job: JobId) -> bool {
        let action = self.action;
        let chunk = Gang::new(&session.ledger, job).chunk(false);
        if chunk.is_empty() {
            return false;
        }
        session.stats.job_attempts += 1;
        let table = if action.shared_failures { None } else { session.snapshot.job(job).queue };
        if let Some(ineligible) = (action.check_eligible)(session, job, &chunk) {
            explain(session, action, job, &chunk, SearchStop::Ineligible(ineligible.why), None);
            if ineligible.counts_as_failure {
                self.failures.add(session, table, job);
            }
            return false;
        }
        if let Some(alike) = self.failures.easier_failure(session, table, job) {
            explain(session, action, job, &chunk, SearchStop::NoEasierThan(alike), None);
            return false;
        }
        let Some(budget) = budget(session, action, self.steps) else {
            explain(session, action, job, &chunk, SearchStop::Budget, None);
            return false;
        };
        if !session.finder.full_scan && self.has_no_victims(session, job) {
            explain(session, action, job, &chunk, SearchStop::NoCandidates, None);
            self.failures.add(session, table, job);
            return false;
        }
        let mut scratch = take_scratch(session);
        let report = solve(session, action, job, &chunk, &mut scratch, budget, None);
        let protected = report.stop.and_then(|_| {
            let victim_scope = (action.victim_scope)(session, job, &chunk);
            victims::protection(session, &victim_scope, &scratch.index)
        });
        if let Some(protection) = protected {
            session.may_change_at(protection.until);
        }
        session.victim_search.scratch = Some(scratch);
        self.steps += report.steps;
        if let Some(stop) = report.stop {
            explain(session, action, job, &chunk, stop, Some((&report, protected)));
            if stop != SearchStop::Budget {
                self.failures.add(session, table, job);
            }
            return false;
        }
        if let Some(below) = &mut self.below {
            below.add(session, job);
        }
        true
    }
}

/// The lowest priority of jobs that could be preempted, by queue.
struct LowestPriority(Vec<i32>);

impl LowestPriority {
    fn new(session: &Session<'_>) -> Self {
        let mut lowest = Self(vec![i32::MAX; session.snapshot.queues.len()]);
        for job in session.snapshot.job_ids() {
            lowest.add(session, job);
        }
        lowest
    }

    /// Takes a job into account, which may have a place by now.
    fn add(&mut self, session: &Session<'_>, job: JobId) {
        let row = session.snapshot.job(job);
        if let Some(queue) = row.queue.filter(|_| row.preemptible && gang::has_active(&session.ledger, job)) {
            let lowest = &mut self.0[queue.index()];
            *lowest = row.priority.min(*lowest);
        }
    }

    /// Whether a job of lower priority runs in the job's queue.
    fn has(&self, session: &Session<'_>, job: JobId) -> bool {
        let row = session.snapshot.job(job);
        row.queue.is_some_and(|queue| self.0[queue.index()] < row.priority)
    }
}

/// Makes room for one job on these nodes only, if the action is on and considers the job.
pub(crate) fn run_for(session: &mut Session<'_>, action: &VictimAction, job: JobId, nodes: &FixedBitSet) -> bool {
    let is_on = session.policy.disruption.allowed && session.policy.actions.contains(&action.action);
    if !is_on || !(action.considers)(session, job) || delayed_until(session, job).is_some() {
        return false;
    }
    let chunk = Gang::new(&session.ledger, job).chunk(false);
    let Some(budget) = budget(session, action, 0) else { return false };
    let mut scratch = take_scratch(session);
    let report = solve(session, action, job, &chunk, &mut scratch, budget, Some(nodes));
    session.victim_search.scratch = Some(scratch);
    report.stop.is_none()
}

fn take_scratch(session: &mut Session<'_>) -> Scratch {
    let known = session.victim_search.scratch.take();
    known.unwrap_or_else(|| Scratch::new(&session.ledger, session.policy))
}

/// Makes room for one job, on all nodes or on these, and commits it if that works out.
fn solve(
    session: &mut Session<'_>,
    action: &VictimAction,
    job: JobId,
    chunk: &[TaskId],
    scratch: &mut Scratch,
    budget: Budget,
    nodes: Option<&FixedBitSet>,
) -> SearchReport {
    let before = session.ledger.queues.clone();
    let victim_scope = (action.victim_scope)(session, job, chunk);
    let mark = session.ledger.mark();
    let accept = |session: &Session<'_>, trial: &Trial<'_>| (action.accept)(session, job, trial, &before);
    let loss_bound = (action.loss_bound)(session, job);
    let problem =
        Problem { job, chunk, victim_scope: &victim_scope, nodes, loss_bound: &loss_bound, accept: &accept, budget };
    let report = search(session, &problem, scratch);
    session.stats.simulated += u64::from(report.scenarios);
    session.stats.filtered += u64::from(report.filtered);
    if report.stop.is_none() {
        let cause = EvictionCause {
            action: action.action,
            preemptor: Some(job),
            gang_size: report.victims,
            reclaim_sides: None,
        };
        let changes = session.ledger.changes_since(mark);
        let changed = session.commit_evictions(mark, |session, victim| EvictionCause {
            reclaim_sides: (action.action == Action::Reclaim)
                .then(|| reclaim_sides(session, &before, job, victim))
                .flatten(),
            ..cause.clone()
        });
        // A move can be repeated in a later cycle; what a pod was evicted for must not be lost.
        if action.action != Action::Consolidate {
            session.preemptors.evicted_for.insert(job);
        }
        note_moves(session, job, &changes, &cause);
        for job in changed {
            scratch.index.update(&session.ledger, session.policy, job);
        }
    }
    report
}

/// Records the preemptor of each move: of this search's moves, and of dependent moves whose preemptor became a victim.
fn note_moves(session: &mut Session<'_>, job: JobId, changes: &[(TaskId, TaskState)], cause: &EvictionCause) {
    let moves = |session: &Session<'_>, task: TaskId| matches!(session.ledger.state(task), TaskState::Moving { .. });
    if cause.action == Action::Consolidate {
        let is_new = |(task, before): &&(TaskId, TaskState)| {
            !matches!(before, TaskState::Moving { .. }) && moves(session, *task)
        };
        let moved: Vec<TaskId> = changes.iter().filter(is_new).map(|(task, _)| *task).collect();
        session.preemptors.moves.entry(job).or_default().extend(moved);
    }
    for (task, before) in changes {
        let was_evicted = matches!(before, TaskState::Pipelined(_)) && !session.ledger.state(*task).is_active();
        let dependent_moves =
            if was_evicted { session.preemptors.moves.remove(&session.snapshot.task(*task).job) } else { None };
        for dependent in dependent_moves.into_iter().flatten() {
            if moves(session, dependent) {
                let cause = EvictionCause { action: Action::Consolidate, reclaim_sides: None, ..cause.clone() };
                session.evicted_for(dependent, cause);
            }
        }
    }
}

/// The queues that a reclaim compares: the leaves if they are siblings, else their parents.
fn reclaim_sides(
    session: &Session<'_>,
    before: &crate::ledger::QueueAccounts,
    job: JobId,
    victim: TaskId,
) -> Option<(ReclaimSide, ReclaimSide)> {
    let ours = session.snapshot.job(job).queue?;
    let theirs = session.snapshot.job(session.snapshot.task(victim).job).queue?;
    let siblings = before.row(ours).parent == before.row(theirs).parent;
    let side = |queue: QueueId| {
        let queue = if siblings { queue } else { before.row(queue).parent.unwrap_or(queue) };
        let row = before.row(queue);
        ReclaimSide { queue, allocated: row.allocated, fair_share: row.fair_share }
    };
    Some((side(theirs), side(ours)))
}

fn explain(
    session: &mut Session<'_>,
    action: &VictimAction,
    job: JobId,
    chunk: &[TaskId],
    stop: SearchStop,
    searched: Option<(&SearchReport, Option<Protection>)>,
) {
    let (action, wanted) = (action.action, chunk.len() as u32);
    let (scenarios, placed, refused, protected) = searched
        .map_or((0, 0, ScenarioRejections::default(), None), |(report, protected)| {
            (report.scenarios, report.placed, report.refused, protected)
        });
    session.explain(job, Reason::NoVictims { action, stop, scenarios, placed, wanted, refused, protected });
}

/// What the next job may use; `None` if the action has nothing left for it.
fn budget(session: &Session<'_>, action: &VictimAction, steps: u64) -> Option<Budget> {
    let limits = session.policy.budget;
    let rest = action.budget.map_or(u64::MAX, |all| all.saturating_sub(steps));
    let job = rest.min(limits.job_max.unwrap_or(u64::MAX)).max(limits.job_min);
    (job > 0).then(|| Budget {
        job,
        node_local_greedy: limits.node_local_greedy.unwrap_or(u64::MAX),
        multi_node_gang: limits.multi_node_gang.unwrap_or(u64::MAX),
    })
}

/// Until when others may not be evicted for the job.
fn delayed_until(session: &Session<'_>, job: JobId) -> Option<Timestamp> {
    let row = session.snapshot.job(job);
    let since = session.times.last_eviction[job.index()].map_or(row.created, |last| last.max(row.created));
    let until = since.plus(row.preemption_delay);
    (row.preemption_delay.0 > 0 && session.now < until).then_some(until)
}
