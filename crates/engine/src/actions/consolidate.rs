//! Makes room by moving pods: every pod that has a place keeps one.

use fixedbitset::FixedBitSet;

use super::victim_action::{self, IneligibleJob, VictimAction, run as run_victim_action};
use crate::gang::Gang;
use crate::ids::{JobId, NodeId, TaskId};
use crate::ledger::TaskState;
use crate::outcome::Ineligibility;
use crate::policy::Action;
use crate::queues::job_index::Scratch;
use crate::session::Session;
use crate::snapshot::{Column, GpuAsk};
use crate::solve::loss_bound::LossBound;
use crate::solve::search::Trial;
use crate::solve::victims::{VictimRule, VictimScope};
use crate::units::GPU;

/// Runs the action.
pub fn run(session: &mut Session<'_>) {
    if session.policy.consolidation_moves_max != Some(0) {
        run_victim_action(session, &action(session));
    }
}

fn action(session: &Session<'_>) -> VictimAction {
    VictimAction {
        action: Action::Consolidate,
        depth: session.policy.depth.consolidate,
        budget: session.policy.budget.consolidate,
        considers: |session, job| session.snapshot.job(job).preemptible,
        check_eligible,
        eligible,
        loss_bound: |_, _| LossBound::MoveOnly,
        accept: |session, _, trial, _| accept(session, trial),
        victims_have_lower_priority: false,
        shared_failures: true,
    }
}

/// Makes room for one job by moving pods among these nodes only.
pub fn among(session: &mut Session<'_>, job: JobId, nodes: &FixedBitSet) -> bool {
    let is_on = session.policy.actions.contains(&Action::Consolidate);
    let may_move = is_on && session.policy.consolidation_moves_max != Some(0);
    if !may_move || !session.snapshot.job(job).preemptible || victim_action::delayed_until(session, job).is_some() {
        return false;
    }
    let chunk = Gang::new(&session.ledger, job).chunk(false);
    let action = action(session);
    let Some(budget) = victim_action::budget(session, &action, 0) else { return false };
    let mut scratch = session.scratch.take().unwrap_or_else(|| Scratch::new(&session.ledger, session.policy));
    let report = victim_action::solve(session, &action, job, &chunk, &mut scratch, budget, Some(nodes));
    session.scratch = Some(scratch);
    report.stop.is_none()
}

/// Moving cannot help if all that is free together is too little.
fn check_eligible(session: &mut Session<'_>, _: JobId, chunk: &[TaskId]) -> Option<IneligibleJob> {
    let snapshot = session.snapshot;
    let (mut asked, mut asked_memory) = (0, 0);
    for task in chunk {
        let shape = snapshot.shape(snapshot.task(*task).shape);
        asked += shape.quota_gpu;
        if let GpuAsk::Memory { devices, mib } = shape.gpu {
            asked_memory += i64::from(devices) * mib;
        }
        for (need, column) in shape.need.iter().zip(&snapshot.columns) {
            if let Column::Mig { memory, .. } = column {
                asked_memory += need * i64::from(*memory);
            }
        }
    }
    let free = session.ledger.gpus_free_ready();
    let why = if asked > free {
        Ineligibility::FreeGpus { asked, free }
    } else {
        let free = if asked_memory > 0 { memory_free(session) } else { i64::MAX };
        if asked_memory <= free {
            return None;
        }
        Ineligibility::FreeMemory { asked: asked_memory, free }
    };
    Some(IneligibleJob { why, counts_as_failure: true })
}

/// GPU memory that is free on ready nodes, now or later.
fn memory_free(session: &Session<'_>) -> i64 {
    let nodes = &session.snapshot.nodes;
    let free = |node: NodeId| {
        let (idle, releasing) = session.ledger.gpus_free(node);
        let memory = nodes.device_memory[node.index()];
        (i128::from(idle + releasing) * i128::from(memory) / i128::from(GPU)) as i64
    };
    nodes.ids().filter(|node| nodes.ready[node.index()]).map(free).sum()
}

fn eligible(session: &Session<'_>, job: JobId, _: &[TaskId]) -> VictimScope {
    VictimScope { preemptor: job, queues: session.leaves.clone(), rule: VictimRule::Move }
}

fn accept(session: &Session<'_>, trial: &Trial<'_>) -> bool {
    let victims = || trial.batches.iter().flat_map(|batch| &batch.tasks);
    let moved = victims().filter(|task| !matches!(session.ledger.state(**task), TaskState::Allocated(_))).count();
    victims().all(|task| session.ledger.state(*task).is_active())
        && session.policy.consolidation_moves_max.is_none_or(|most| moved <= most as usize)
}
