//! A queue below its share takes back from queues above theirs.

use std::collections::BTreeMap;

use super::victim_action::{IneligibleJob, VictimAction, run as run_victim_action};
use crate::ids::{JobId, PodSetId, QueueId, TaskId};
use crate::ledger::QueueAccounts;
use crate::policy::Action;
use crate::queues::job_info::requested;
use crate::queues::reclaim_rules::{self, Reclaimer};
use crate::session::Session;
use crate::solve::loss_bound::{LossBound, QueueShareBound};
use crate::solve::min_runtime;
use crate::solve::search::Trial;
use crate::solve::victim_scope::{VictimRule, VictimScope};
use crate::solve::victims;
use crate::units::ResourceQuantities;

/// Runs the action.
pub fn run(session: &mut Session<'_>) {
    if session.policy.proportion.is_none() {
        return;
    }
    let action = VictimAction {
        action: Action::Reclaim,
        depth: session.policy.depth.reclaim,
        budget: session.policy.budget.reclaim,
        considers: |_, _| true,
        check_eligible,
        victim_scope,
        loss_bound,
        accept,
        victims_have_lower_priority: false,
        shared_failures: false,
    };
    run_victim_action(session, &action);
}

fn reclaimer(session: &Session<'_>, job: JobId, chunk: &[TaskId]) -> Option<Reclaimer> {
    let row = session.snapshot.job(job);
    let smallest = session.device_memory.0;
    let required = requested(&session.ledger, chunk, smallest);
    Some(Reclaimer { queue: row.queue?, preemptible: row.preemptible, required })
}

fn check_eligible(session: &mut Session<'_>, job: JobId, chunk: &[TaskId]) -> Option<IneligibleJob> {
    let own = reclaimer(session, job, chunk)?;
    reclaim_rules::ineligibility(&session.ledger.queues, own).map(|why| IneligibleJob { why, counts_as_failure: false })
}

fn victim_scope(session: &Session<'_>, job: JobId, chunk: &[TaskId]) -> VictimScope {
    let own = reclaimer(session, job, chunk);
    let may_be_reclaimed = |queue: &QueueId| {
        own.is_some_and(|own| {
            *queue != own.queue && reclaim_rules::may_be_reclaimed(&session.ledger.queues, own, *queue)
        })
    };
    let queues = session.leaves.iter().copied().filter(may_be_reclaimed).collect();
    VictimScope { preemptor: job, queues, rule: VictimRule::OtherQueue }
}

fn loss_bound(session: &Session<'_>, job: JobId) -> LossBound {
    match session.snapshot.job(job).queue {
        Some(queue) => {
            LossBound::ByQueueShares(QueueShareBound::new(&session.ledger.queues, queue, multiplier(session)))
        }
        None => LossBound::MoveOnly,
    }
}

fn multiplier(session: &Session<'_>) -> i64 {
    session.policy.proportion.map_or(crate::units::ONE, |rules| rules.saturation_multiplier)
}

fn accept(session: &Session<'_>, job: JobId, trial: &Trial<'_>, before: &QueueAccounts) -> bool {
    let Some(own) = reclaimer(session, job, trial.pending) else { return false };
    let protected = |job| min_runtime::protected_from_reclaim(session, own.queue, job);
    victims::keeps_min_members(session, &trial.batches, protected)
        && reclaim_rules::reclaimable(before, own, &units(session, trial), multiplier(session))
}

/// What each victim queue loses, batch by batch; pods that found another place are not lost.
fn units(session: &Session<'_>, trial: &Trial<'_>) -> Vec<(QueueId, ResourceQuantities)> {
    let counted = |task: &TaskId| !session.policy.consolidating_reclaim || !session.ledger.state(*task).is_active();
    let costs = trial.batches.iter().flat_map(|batch| batch.tasks.iter().copied().zip(batch.costs.iter().copied()));
    let costs: BTreeMap<TaskId, ResourceQuantities> = costs.collect();
    let mut units = Vec::new();
    for (job, lost) in split(session, trial) {
        let lost: Vec<_> = lost.into_iter().filter(counted).collect();
        let Some(queue) = session.snapshot.job(job).queue else { continue };
        if !lost.is_empty() {
            let amount = lost.iter().fold(ResourceQuantities::ZERO, |sum, task| sum + costs[task]);
            units.push((queue, amount));
        }
    }
    units
}

/// Victims as the rules take them: batch by batch.
fn split(session: &Session<'_>, trial: &Trial<'_>) -> Vec<(JobId, Vec<TaskId>)> {
    if session.policy.repairs.gang_trees {
        return trial.batches.iter().map(|batch| (batch.job, batch.tasks.clone())).collect();
    }
    // KAI calls the first pods of each pod set core, up to the minimum, and takes the others first, one by one.
    let mut jobs: Vec<(JobId, BTreeMap<PodSetId, Vec<TaskId>>)> = Vec::new();
    for batch in &trial.batches {
        let index = jobs.iter().position(|(job, _)| *job == batch.job).unwrap_or_else(|| {
            jobs.push((batch.job, BTreeMap::new()));
            jobs.len() - 1
        });
        for task in &batch.tasks {
            jobs[index].1.entry(session.snapshot.task(*task).pod_set).or_default().push(*task);
        }
    }
    let mut units = Vec::new();
    for (job, pod_sets) in jobs {
        let mut core = Vec::new();
        for (pod_set, tasks) in pod_sets {
            let min = (session.snapshot.pod_sets[pod_set.index()].min as usize).min(tasks.len());
            core.extend_from_slice(&tasks[..min]);
            units.extend(tasks[min..].iter().map(|task| (job, vec![*task])));
        }
        units.push((job, core));
    }
    units
}
