//! Decodes the outcome of a cycle, the inverse of `lower`: ids become names again, decisions effects, reasons data with
//! names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kai_api::keys::annotation;
use kai_engine::ids::{JobId, QueueId, TaskId};
use kai_engine::outcome::{self, Assignment, Decision, DeviceRef, EvictionCause, Outcome, Reason, Verdict};
use kai_engine::policy::Action;
use kai_engine::snapshot::{GpuAsk, Status, possible_time};
use kai_engine::units::compat::memory_to_share;
use kai_engine::units::{GPU, QueueResource, ResourceQuantities, Timestamp};

use super::collect::{Collector, queue_ref};
use super::effect::{
    BindExtras, Blocked, ClaimedDevices, CycleResult, Effect, GpuGroup, NumaZone, PendingJob, Problem, QueueView,
    Received, ResourceType,
};
use super::explain::amounts::as_quantity;
use super::explain::cache::ExplanationCache;
use super::gpu_groups::fresh_name;
use super::lower::{JobFault, Lowered};
use super::reasons::{
    BindReason, EvictionReason, PendingReason, PipelineReason, ProblemReason, QueueHolding, ReclaimSide,
};
use crate::devices::ClaimSource;
use crate::kinds::ObjectId;
use crate::objects::PodGroup;
use crate::world::World;

/// The result of a cycle; and by job the explanations that depend on the reasons alone, for the next cycle.
pub(super) fn decode<'w>(
    world: &'w World,
    lowered: &Lowered<'w>,
    outcome: &Outcome,
    now: Timestamp,
    last: Option<&ExplanationCache>,
) -> (CycleResult, Vec<Option<Arc<PendingJob>>>) {
    let decoder = OutcomeDecoder {
        collector: Collector::new(world, lowered),
        world,
        lowered,
        outcome,
        bound_together: bound_together(lowered, outcome),
        groups: group_names(world, lowered, outcome, now),
        now,
    };
    let decided = outcome.decisions.iter().map(|decision| decoder.decision(decision));
    let noted = outcome.job_timestamps.iter().filter_map(|note| {
        Some(Effect::SetGroupTimestamps {
            job: lowered.names.job(note.job.index())?.clone(),
            last_start: note.last_start,
            stale_since: note.stale_since,
            last_eviction: note.last_eviction,
        })
    });
    let nominated = outcome.nominations.iter().map(|nomination| Effect::Nominate {
        pod: lowered.names.tasks[nomination.task.index()].clone(),
        node: nomination.node.map(|node| lowered.names.nodes[node.index()].to_owned()),
    });
    let effects = lowered.effects.iter().cloned().chain(decided).chain(noted).chain(nominated).collect();
    let ((pending, explained), queues) = (decoder.pending(last), decoder.queues());
    let next_change_at = outcome.next_change_at.into_iter().chain(lowered.next_change_at).min();
    let problems = problems(lowered, now);
    (CycleResult { effects, pending, queues, problems, next_change_at }, explained)
}

/// What is wrong with objects, and with the times that are noted on them.
fn problems(lowered: &Lowered<'_>, now: Timestamp) -> Vec<Problem> {
    let mut problems = lowered.problems.clone();
    for (index, job) in lowered.snapshot.jobs.iter().enumerate() {
        let noted = [
            (annotation::LAST_EVICTION_TIMESTAMP, job.last_eviction),
            (annotation::LAST_START_TIMESTAMP, job.last_start),
            (annotation::STALE_POD_GROUP_TIMESTAMP, job.stale_since),
        ];
        for (annotation, time) in noted {
            let Some(key) = lowered.names.job(index) else { continue };
            if time.is_some() && possible_time(time, now).is_none() {
                let annotation = annotation.to_owned();
                problems.push(Problem {
                    object: ObjectId::PodGroup(key.clone()),
                    reason: ProblemReason::ImpossibleTime { annotation },
                });
            }
        }
    }
    if problems.len() > lowered.problems.len() {
        problems.sort_by_cached_key(|problem| problem.object.to_string());
    }
    problems
}

struct OutcomeDecoder<'a, 'w> {
    world: &'a World,
    collector: Collector<'a, 'w>,
    lowered: &'a Lowered<'w>,
    outcome: &'a Outcome,
    /// Pods bound in this cycle, by job.
    bound_together: BTreeMap<JobId, u32>,
    /// Names of the shared GPUs opened in this cycle.
    groups: BTreeMap<u32, String>,
    now: Timestamp,
}

fn bound_together(lowered: &Lowered<'_>, outcome: &Outcome) -> BTreeMap<JobId, u32> {
    let mut counts = BTreeMap::new();
    for decision in &outcome.decisions {
        if let Decision::Bind { task, .. } = decision {
            *counts.entry(lowered.snapshot.task(*task).job).or_insert(0) += 1;
        }
    }
    counts
}

/// Names each new shared GPU after the first pod that goes there.
fn group_names(world: &World, lowered: &Lowered<'_>, outcome: &Outcome, now: Timestamp) -> BTreeMap<u32, String> {
    let mut taken: BTreeSet<String> = lowered.names.devices.iter().map(|name| (*name).to_owned()).collect();
    let mut names = BTreeMap::new();
    for decision in &outcome.decisions {
        let (Decision::Bind { task, assignment } | Decision::Pipeline { task, assignment }) = decision else {
            continue;
        };
        for device in &assignment.devices {
            let DeviceRef::Fresh(number) = device else { continue };
            if !names.contains_key(number) {
                let pod = lowered.names.tasks[task.index()];
                let uid = world.pods.get(pod).map_or("", |pod| &pod.uid);
                let name = fresh_name(lowered.names.nodes[assignment.node.index()], uid, *number, now, &taken);
                taken.insert(name.clone());
                names.insert(*number, name);
            }
        }
    }
    names
}

impl OutcomeDecoder<'_, '_> {
    fn decision(&self, decision: &Decision) -> Effect {
        match decision {
            Decision::Bind { task, assignment } => Effect::Bind {
                pod: self.lowered.names.tasks[task.index()].clone(),
                job: self.job_of(*task),
                node: self.lowered.names.nodes[assignment.node.index()].to_owned(),
                received: self.received(*task, assignment),
                gpu_groups: self.gpu_groups(assignment),
                extras: self.extras(*task, assignment),
                why: self.bind_reason(*task),
            },
            Decision::Pipeline { task, assignment } => Effect::Pipeline {
                pod: self.lowered.names.tasks[task.index()].clone(),
                job: self.job_of(*task),
                node: self.lowered.names.nodes[assignment.node.index()].to_owned(),
                gpu_groups: self.gpu_groups(assignment),
                why: self.pipeline_reason(*task),
            },
            Decision::Evict { task, cause } => Effect::Evict {
                pod: self.lowered.names.tasks[task.index()].clone(),
                job: self.job_of(*task),
                node: self
                    .lowered
                    .snapshot
                    .task(*task)
                    .node
                    .map(|node| self.lowered.names.nodes[node.index()].to_owned()),
                action: cause.action,
                preemptor: cause.preemptor.and_then(|job| self.lowered.names.job(job.index()).cloned()),
                gang_size: cause.gang_size,
                why: self.eviction_reason(*task, cause),
            },
        }
    }

    fn job_of(&self, task: TaskId) -> crate::key::GroupKey {
        let job = self.lowered.snapshot.task(task).job;
        self.lowered.names.job(job.index()).cloned().expect("nothing is decided about pods outside of jobs")
    }

    fn gpu_groups(&self, assignment: &Assignment) -> Vec<GpuGroup> {
        let name = |device: &DeviceRef| match device {
            DeviceRef::Existing(id) => {
                GpuGroup { name: self.lowered.names.devices[id.index()].to_owned(), fresh: false }
            }
            DeviceRef::Fresh(number) => GpuGroup { name: self.groups[number].clone(), fresh: true },
        };
        assignment.devices.iter().map(name).collect()
    }

    fn extras(&self, task: TaskId, assignment: &Assignment) -> BindExtras {
        let mut extras = BindExtras { numa_zones: self.numa_zones(assignment), ..BindExtras::default() };
        let pod = self.world.pods.get(self.lowered.names.tasks[task.index()]);
        let (Some(devices), Some(pod)) = (&self.lowered.devices, pod) else { return extras };
        for grant in &assignment.grants {
            match &devices.sources[grant.claim.index()] {
                ClaimSource::Claim(claim) => {
                    let key = &claim.key;
                    let own = pod.claims.iter().find(|own| own.claim.as_deref() == Some(key.name.as_str()));
                    // An existing allocation is passed on unchanged.
                    let allocation = claim.allocation.as_ref().map(|allocation| allocation.raw.clone());
                    extras.claims.extend(own.map(|own| {
                        ClaimedDevices {
                            name: own.name.clone(),
                            claim: key.clone(),
                            allocation: allocation
                                .unwrap_or_else(|| devices.inventory.allocation(&claim.spec, grant, assignment.node)),
                        }
                    }));
                }
                ClaimSource::Extended(spec) if !grant.picks.is_empty() => {
                    extras.extended = Some(devices.inventory.extended(spec, grant, assignment.node, pod));
                }
                ClaimSource::Extended(_) => {}
            }
        }
        extras
    }

    fn numa_zones(&self, assignment: &Assignment) -> Vec<NumaZone> {
        let mut zones: Vec<NumaZone> = Vec::new();
        for share in &assignment.zones {
            let zone = self.lowered.names.zones[&assignment.node][share.zone as usize];
            let (resource, quantity) = as_quantity(share.column as usize, &self.lowered.names.columns, share.amount);
            // Shares come in order of zones.
            match zones.last_mut() {
                Some(last) if last.zone == zone => _ = last.amount.insert(resource, quantity),
                _ => zones.push(NumaZone { zone: zone.to_owned(), amount: BTreeMap::from([(resource, quantity)]) }),
            }
        }
        zones
    }

    fn received(&self, task: TaskId, assignment: &Assignment) -> Received {
        let snapshot = &self.lowered.snapshot;
        let shape = snapshot.shape(snapshot.task(task).shape);
        match shape.gpu {
            GpuAsk::Fraction { devices, portion } => Received { kind: ResourceType::Fraction, devices, portion },
            GpuAsk::Memory { devices, mib } => {
                let portion = memory_to_share(mib, snapshot.nodes.device_memory[assignment.node.index()]);
                Received { kind: ResourceType::Fraction, devices, portion }
            }
            GpuAsk::Mig => Received { kind: ResourceType::MigInstance, devices: 0, portion: 0 },
            GpuAsk::Whole | GpuAsk::None => {
                let devices = u32::try_from(shape.need[kai_engine::snapshot::GPUS] / GPU).unwrap_or(u32::MAX);
                Received { kind: ResourceType::Regular, devices, portion: if devices > 0 { GPU } else { 0 } }
            }
        }
    }

    fn bind_reason(&self, task: TaskId) -> BindReason {
        let job = self.lowered.snapshot.task(task).job;
        BindReason { together: self.bound_together.get(&job).copied().unwrap_or(1), queue: self.queue_holding(task) }
    }

    /// What the queue of a pod holds of the pod's main resource.
    fn queue_holding(&self, task: TaskId) -> Option<QueueHolding> {
        let queue = self.lowered.snapshot.job(self.lowered.snapshot.task(task).job).queue?;
        let state = self.outcome.queue_states.get(queue.index())?;
        Some(self.holding(task, queue, state.allocated, state.fair_share))
    }

    fn holding(
        &self,
        task: TaskId,
        queue: QueueId,
        allocated: ResourceQuantities,
        fair_share: ResourceQuantities,
    ) -> QueueHolding {
        let snapshot = &self.lowered.snapshot;
        let needs_gpu = snapshot.shape(snapshot.task(task).shape).needs_gpu();
        let resource = if needs_gpu { QueueResource::Gpu } else { QueueResource::Cpu };
        QueueHolding {
            queue: queue_ref(self.lowered, queue),
            resource,
            allocated: allocated.get(resource),
            fair_share: fair_share.get(resource),
        }
    }

    fn pipeline_reason(&self, task: TaskId) -> PipelineReason {
        match self.lowered.snapshot.task(task).status {
            Status::Running | Status::Bound | Status::Binding => PipelineReason::Moves,
            _ => PipelineReason::Waits,
        }
    }

    fn eviction_reason(&self, task: TaskId, cause: &EvictionCause) -> EvictionReason {
        let snapshot = &self.lowered.snapshot;
        let own = snapshot.job(snapshot.task(task).job);
        let preemptor = cause.preemptor.and_then(|job| Some((self.lowered.names.job(job.index())?.clone(), job)));
        match (cause.action, preemptor) {
            (Action::Preempt, Some((preemptor, job))) => EvictionReason::Preemption {
                preemptor,
                preemptor_priority: snapshot.job(job).priority,
                priority: own.priority,
            },
            (Action::Consolidate, Some((preemptor, _))) => EvictionReason::Consolidation { preemptor },
            (Action::Reclaim, Some((preemptor, _))) => {
                let side = |side: &outcome::ReclaimSide| self.reclaim_side(task, side);
                let sides = cause.reclaim_sides.as_ref();
                EvictionReason::Reclaim {
                    preemptor,
                    victim_queue: sides.map(|(victim, _)| side(victim)),
                    preemptor_queue: sides.map(|(_, preemptor)| side(preemptor)),
                }
            }
            (Action::EvictStale, _) => {
                EvictionReason::StaleGang { since: own.stale_since.map(|since| self.now.since(since)) }
            }
            (_, preemptor) => EvictionReason::Other { preemptor: preemptor.map(|(key, _)| key) },
        }
    }

    fn reclaim_side(&self, task: TaskId, side: &outcome::ReclaimSide) -> ReclaimSide {
        let row = &self.lowered.snapshot.queues[side.queue.index()];
        let holding = self.holding(task, side.queue, side.allocated, side.fair_share);
        ReclaimSide { quota: row.quota[holding.resource as usize], priority: row.priority, holding }
    }

    fn group(&self, job: JobId) -> Option<&PodGroup> {
        self.world.pod_groups.get(self.lowered.names.job(job.index())?)
    }

    /// Jobs with pending pods, and why; and by job the explanations that depend on the reasons alone.
    fn pending(&self, last: Option<&ExplanationCache>) -> (Vec<Arc<PendingJob>>, Vec<Option<Arc<PendingJob>>>) {
        let jobs = self.lowered.snapshot.jobs.len();
        let mut verdicts: Vec<Option<&Verdict>> = vec![None; jobs];
        for verdict in &self.outcome.verdicts {
            verdicts[verdict.job.index()] = Some(verdict);
        }
        let mut explained = vec![None; jobs];
        let faults: BTreeMap<usize, &JobFault> = self.lowered.faults.iter().map(|(job, fault)| (*job, fault)).collect();
        let placed = self.placed();
        let snapshot = &self.lowered.snapshot;
        let waits = |task: &TaskId| matches!(snapshot.task(*task).status, Status::Pending | Status::Gated);
        let mut pending = Vec::new();
        for job in snapshot.job_ids() {
            let (mut waiting, mut pipelined) = (0, 0);
            for task in snapshot.job_tasks(job).filter(waits) {
                let placed = placed.get(&task);
                waiting += u32::from(placed != Some(&Placed::Bound));
                pipelined += u32::from(placed == Some(&Placed::Pipelined));
            }
            if waiting == 0 {
                continue;
            }
            let fault = faults.get(&job.index());
            let verdict = verdicts[job.index()].filter(|_| fault.is_none());
            let known = verdict.and_then(|verdict| last?.get(job, &verdict.reasons)).filter(|_| pipelined == 0);
            if let Some(known) = known {
                explained[job.index()] = Some(Arc::clone(known));
                pending.push(Arc::clone(known));
                continue;
            }
            let Some(group) = self.group(job) else { continue };
            let mut reasons = match (fault, verdict) {
                (Some(fault), _) => vec![fault.pending_reason(group)],
                (None, Some(verdict)) => self.collector.reasons(group, &verdict.reasons),
                (None, None) => Vec::new(),
            };
            if pipelined > 0 {
                reasons.insert(0, PendingReason::Pipelined { pipelined, waiting });
            }
            if reasons.is_empty() {
                reasons.push(PendingReason::NotAttempted);
            }
            let blocked = verdict.and_then(|verdict| self.blocked(verdict));
            let waits = Arc::new(PendingJob::new(group.key.clone(), group.queue.clone(), reasons, blocked));
            if verdict.is_some() && pipelined == 0 {
                explained[job.index()] = Some(Arc::clone(&waits));
            }
            pending.push(waits);
        }
        (pending, explained)
    }

    fn blocked(&self, verdict: &Verdict) -> Option<Blocked> {
        verdict.reasons.iter().find_map(|reason| match reason {
            Reason::OverLimit(block) | Reason::NonPreemptibleOverQuota(block) => Some(Blocked {
                queue: self.lowered.names.queues[block.queue.index()].name().to_owned(),
                request: block.request,
                preemptible: self.lowered.snapshot.job(verdict.job).preemptible,
            }),
            _ => None,
        })
    }

    fn placed(&self) -> BTreeMap<TaskId, Placed> {
        self.outcome
            .decisions
            .iter()
            .filter_map(|decision| match decision {
                Decision::Bind { task, .. } => Some((*task, Placed::Bound)),
                Decision::Pipeline { task, .. } => Some((*task, Placed::Pipelined)),
                Decision::Evict { .. } => None,
            })
            .collect()
    }

    fn queues(&self) -> Vec<QueueView> {
        let Lowered { snapshot, names, .. } = self.lowered;
        let rows = snapshot.queues.iter().zip(&names.queues).zip(&self.outcome.queue_states);
        rows.map(|((row, name), state)| QueueView {
            name: name.name().to_owned(),
            display_name: name.shown().to_owned(),
            parent: row.parent.map(|parent| names.queues[parent.index()].name().to_owned()),
            priority: row.priority,
            quota: row.quota,
            limit: row.limit,
            weight: row.weight,
            fair_share: state.fair_share,
            allocated: state.allocated,
            allocated_non_preemptible: state.allocated_non_preemptible,
            request: state.request,
        })
        .collect()
    }
}

/// What a cycle did with a waiting pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Placed {
    Bound,
    Pipelined,
}
