//! Places pending jobs on free or releasing resources: queues furthest below their share first, each gang as a whole.
//!
//! Jobs with nominated pods come first, on their nominated nodes only: pods were evicted for them in an earlier cycle,
//! and a job ahead of them would otherwise take the room.
//!
//! With `keep_nodes_whole`, a gang of pods smaller than a node goes to nodes in use; if it does not fit there, pods are
//! moved among these nodes; only then is an empty node opened.

use fixedbitset::FixedBitSet;

use super::early_exit::EarlyExitBackoff;
use super::{consolidate, victim_action};
use crate::gang::{self, Gang};
use crate::ids::{JobId, NodeId, NodeSet, TaskId};
use crate::ledger::TaskState;
use crate::policy::Action;
use crate::queues::job_info::JobInfoCache;
use crate::queues::job_order::JobTree;
use crate::session::Session;
use crate::session::place::{Attempt, Precheck};
use crate::snapshot::{GPUS, Status};

/// Runs the action.
pub fn run(session: &mut Session<'_>) {
    if session.policy.repairs.stable_moves {
        place_nominated(session);
    }
    let mut facts = JobInfoCache::new(&session.ledger, session.policy, false);
    let mut tree = JobTree::new(&session.ledger, session.policy);
    tree.full_scan = session.finder.full_scan;
    for job in session.waiting.iter().copied() {
        if gang::has_pending(&session.ledger, job) && Gang::new(&session.ledger, job).is_ready() {
            tree.push(&session.ledger, &mut facts, job, session.policy.depth.allocate);
        }
    }
    let mut early_exit = EarlyExitBackoff::default();
    loop {
        if early_exit.should_check() && !session.finder.full_scan && refuse_all(session, &mut tree) {
            return;
        }
        let Some(job) = tree.pop(&session.ledger, &mut facts) else { return };
        if !start(session, job, place) {
            early_exit.record_idle_turn();
            continue;
        }
        early_exit.reset_idle();
        // Growing step by step lets elastic jobs compete for each single pod.
        if gang::has_pending(&session.ledger, job) {
            tree.push(&session.ledger, &mut facts, job, None);
        }
    }
}

/// Places jobs whose waiting pods are nominated, on those nodes only. Without room, a nomination is dropped.
fn place_nominated(session: &mut Session<'_>) {
    let snapshot = session.snapshot;
    let is_nominated = |task: &TaskId| {
        let row = snapshot.task(*task);
        row.status == Status::Pending && row.nominated.is_some()
    };
    let waiting = session.waiting.iter().copied();
    let jobs: Vec<JobId> = waiting
        .filter(|job| {
            gang::has_pending(&session.ledger, *job) && snapshot.job_tasks(*job).any(|task| is_nominated(&task))
        })
        .filter(|job| Gang::new(&session.ledger, *job).is_ready())
        .collect();
    if jobs.is_empty() {
        return;
    }
    let mut facts = JobInfoCache::new(&session.ledger, session.policy, false);
    let mut tree = JobTree::new(&session.ledger, session.policy);
    for job in jobs {
        tree.push(&session.ledger, &mut facts, job, None);
    }
    while let Some(job) = tree.pop(&session.ledger, &mut facts) {
        let chunk = Gang::new(&session.ledger, job).chunk(false);
        let mut nodes = FixedBitSet::with_capacity(snapshot.nodes.len());
        let nominated =
            chunk.iter().filter(|task| is_nominated(task)).filter_map(|task| snapshot.task(*task).nominated);
        nodes.extend(nominated.map(NodeId::index));
        if nodes.is_clear()
            || !start(session, job, |session, job| place_on(session, job, NodeSet::Only(&nodes), Attempt::Quiet))
        {
            continue;
        }
        // Later actions must not choose the job as a victim.
        session.preemptors.evicted_for.insert(job);
        tree.push(&session.ledger, &mut facts, job, None);
    }
}

/// Places the job's next pods and notes if that is its start.
fn start(session: &mut Session<'_>, job: JobId, place: impl FnOnce(&mut Session<'_>, JobId) -> bool) -> bool {
    session.stats.job_attempts += 1;
    let held_before = gang::holds(&session.ledger, job);
    let placed = place(session, job);
    if placed && !held_before && gang::holds(&session.ledger, job) {
        session.times.last_start[job.index()] = Some(session.now);
    }
    placed
}

/// Whether no remaining job can be placed: then nothing changes any more, and the order of jobs does not matter.
fn refuse_all(session: &mut Session<'_>, tree: &mut JobTree) -> bool {
    if session.policy.keep_nodes_whole {
        return false;
    }
    let mut checked = Vec::new();
    for job in tree.jobs() {
        match session.precheck(job) {
            Precheck::MayFit => return false,
            precheck => checked.push((job, precheck)),
        }
    }
    for (job, precheck) in checked {
        session.stats.job_attempts += 1;
        if let Precheck::Refused(reason) = precheck {
            session.explain_once(job, reason);
        }
    }
    true
}

fn place(session: &mut Session<'_>, job: JobId) -> bool {
    if session.policy.keep_nodes_whole && leaves_part_of_a_node(session, job) {
        let used = nodes_in_use(session);
        let consolidate = consolidate::action(session);
        if place_on(session, job, NodeSet::Only(&used), Attempt::Quiet)
            || victim_action::run_for(session, &consolidate, job, &used)
        {
            return true;
        }
        // The next cycle that may consolidate decides whether it has to open an empty node.
        if !session.policy.disruption.allowed && session.policy.actions.contains(&Action::Consolidate) {
            return false;
        }
    }
    place_on(session, job, NodeSet::All, Attempt::Real)
}

fn place_on(session: &mut Session<'_>, job: JobId, nodes: NodeSet<'_>, attempt: Attempt) -> bool {
    let mark = session.ledger.mark();
    let Some(chunk) = session.place_job(job, nodes, attempt) else { return false };
    if Gang::new(&session.ledger, job).must_wait(&chunk) {
        pipeline_instead(session, &chunk);
    }
    session.commit(mark);
    true
}

/// Part of the gang has to wait, so all of it does.
fn pipeline_instead(session: &mut Session<'_>, chunk: &[TaskId]) {
    for task in chunk {
        if let TaskState::Allocated(placement) = session.ledger.state(*task) {
            session.ledger.shift(*task, TaskState::Pipelined(placement));
        }
    }
}

/// Whether each pod that comes next is smaller than the largest node.
fn leaves_part_of_a_node(session: &Session<'_>, job: JobId) -> bool {
    let snapshot = session.snapshot;
    let gpus = |node| snapshot.row(&snapshot.nodes.allocatable, node)[GPUS];
    let largest = snapshot.nodes.ids().map(gpus).max().unwrap_or(0);
    let chunk = Gang::new(&session.ledger, job).chunk(false);
    chunk.iter().all(|task| {
        let need = snapshot.shape(snapshot.task(*task).shape).need[GPUS];
        need == 0 || need < largest
    })
}

/// Nodes on which a job holds, releases or was assigned resources.
fn nodes_in_use(session: &Session<'_>) -> FixedBitSet {
    let (snapshot, ledger) = (session.snapshot, &session.ledger);
    let mut used = FixedBitSet::with_capacity(snapshot.nodes.len());
    for node in snapshot.nodes.ids() {
        let all = snapshot.row(&snapshot.nodes.allocatable, node);
        let untouched =
            all.iter().zip(snapshot.row(&snapshot.nodes.unmanaged_used, node)).map(|(all, taken)| all - taken);
        let busy = !untouched.eq(ledger.idle(node).iter().copied())
            || ledger.releasing(node) != snapshot.row(&snapshot.nodes.unmanaged_releasing, node);
        used.set(node.index(), busy);
    }
    used
}
