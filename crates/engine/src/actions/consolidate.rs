//! Makes room by moving pods: every pod that has a place keeps one.

use super::victim_action::{IneligibleJob, VictimAction, run as run_victim_action};
use crate::ids::{JobId, NodeId, TaskId};
use crate::ledger::TaskState;
use crate::outcome::Ineligibility;
use crate::policy::Action;
use crate::session::Session;
use crate::snapshot::{GpuAsk, ResourceKind};
use crate::solve::loss_bound::LossBound;
use crate::solve::search::Trial;
use crate::solve::victim_scope::{VictimRule, VictimScope};
use crate::units::GPU;

/// Runs the action.
pub fn run(session: &mut Session<'_>) {
    run_victim_action(session, &action(session));
}

/// The action, for one job of another action as well.
pub(super) fn action(session: &Session<'_>) -> VictimAction {
    VictimAction {
        action: Action::Consolidate,
        depth: session.policy.depth.consolidate,
        budget: session.policy.budget.consolidate,
        considers: |session, job| {
            session.snapshot.job(job).preemptible && session.policy.consolidation_moves_max != Some(0)
        },
        check_eligible,
        victim_scope,
        loss_bound: |_, _| LossBound::MoveOnly,
        accept: |session, _, trial, _| accept(session, trial),
        victims_have_lower_priority: false,
        shared_failures: true,
    }
}

/// Moving cannot help if all that is free together is too little.
fn check_eligible(session: &mut Session<'_>, _: JobId, chunk: &[TaskId]) -> Option<IneligibleJob> {
    if session.policy.disruption.moves_left == Some(0) {
        return Some(IneligibleJob { why: Ineligibility::MoveBudgetSpent, counts_as_failure: false });
    }
    let snapshot = session.snapshot;
    let (mut asked, mut asked_memory) = (0, 0);
    for task in chunk {
        let shape = snapshot.shape(snapshot.task(*task).shape);
        asked += shape.quota_gpu;
        if let GpuAsk::Memory { devices, mib } = shape.gpu {
            asked_memory += i64::from(devices) * mib;
        }
        for (need, column) in shape.need.iter().zip(&snapshot.resources) {
            if let ResourceKind::Mig { memory, .. } = column {
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

fn victim_scope(session: &Session<'_>, job: JobId, _: &[TaskId]) -> VictimScope {
    VictimScope { preemptor: job, queues: session.leaves.clone(), rule: VictimRule::Move }
}

fn accept(session: &Session<'_>, trial: &Trial<'_>) -> bool {
    let victims = || trial.batches.iter().flat_map(|batch| &batch.tasks);
    let moved = victims().filter(|task| !matches!(session.ledger.state(**task), TaskState::Allocated(_))).count();
    victims().all(|task| session.ledger.state(*task).is_active())
        && session.policy.consolidation_moves_max.is_none_or(|most| moved <= most as usize)
}
