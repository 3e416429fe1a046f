//! Partitions pods: members of this shard's jobs, and pods that only occupy a node.

use std::collections::BTreeMap;

use kai_api::keys::{label, name};
use kai_engine::ids::NodeId;
use kai_engine::snapshot::Status;
use kai_engine::units::Timestamp;

use super::sub_group_tree::SubGroupTree;
use super::{in_shard, nodes, status};
use crate::key::{GroupKey, PodKey};
use crate::kinds::ObjectId;
use crate::objects::{BindRequest, Pod, PodGroup, Queue, Request};
use crate::scheduler::effect::{Effect, Problem};
use crate::scheduler::reasons::{PendingReason, ProblemReason, StaleBindRequest, SubGroupFault};
use crate::scheduler::settings::Settings;
use crate::world::World;

/// All pods that matter, sorted into where they matter.
pub(super) struct PodPartition<'w> {
    /// Pod groups of the shard with their pods, in name order.
    pub(super) jobs: Vec<JobPods<'w>>,
    /// Pods outside of jobs, by node.
    pub(super) non_job_pods: Vec<Vec<NonJobPod<'w>>>,
    /// Pods outside of jobs that hold shared GPUs on a node: they are accounted for like members of a job.
    pub(super) non_job_gpu_sharers: Vec<JobPod<'w>>,
    pub(super) effects: Vec<Effect>,
    pub(super) problems: Vec<Problem>,
    pub(super) features: FeaturesInUse,
    /// When the status of a pod changes though nothing happens.
    pub(super) next_change_at: Option<Timestamp>,
}

/// Features that at least one pod uses; the others are skipped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FeaturesInUse {
    /// Resources beside CPU, memory and GPUs, such as MIG profiles.
    pub(super) extended_resources: bool,
    pub(super) resource_claims: bool,
    /// Rules about other pods.
    pub(super) inter_pod_rules: bool,
}

impl FeaturesInUse {
    fn record(&mut self, pod: &Pod) {
        self.extended_resources |= !pod.request.resources.scalars.is_empty();
        self.resource_claims |= !pod.claims.is_empty();
        self.inter_pod_rules |= pod.inter_pod.is_some();
    }
}

/// A job with its pods, by leaf of its tree.
pub(super) struct JobPods<'w> {
    pub(super) group: &'w PodGroup,
    pub(super) tree: SubGroupTree<'w>,
    pub(super) leaves: Vec<Vec<JobPod<'w>>>,
    /// The queue, its own or one above, that its namespace may not use.
    pub(super) refused_by: Option<&'w Queue>,
}

/// Why nothing of a job is scheduled; what runs goes on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JobFault {
    SubGroups(SubGroupFault),
    /// A queue is not for its namespace.
    Namespace {
        queue: String,
        allowed: String,
    },
}

impl JobPods<'_> {
    pub(super) fn is_held_back(&self) -> bool {
        self.tree.fault.is_some() || self.refused_by.is_some()
    }

    pub(super) fn fault(&self) -> Option<JobFault> {
        let of_namespace = |queue: &Queue| JobFault::Namespace {
            queue: queue.name.clone(),
            allowed: queue.namespaces.as_ref().map(ToString::to_string).unwrap_or_default(),
        };
        let of_tree = self.tree.fault.clone().map(JobFault::SubGroups);
        of_tree.or_else(|| self.refused_by.map(of_namespace))
    }
}

impl JobFault {
    /// What is wrong with the pod group itself.
    pub(super) fn problem(&self, group: &GroupKey) -> Option<Problem> {
        let Self::SubGroups(fault) = self else { return None };
        let reason = ProblemReason::PodGroup { fault: fault.clone() };
        Some(Problem { object: ObjectId::PodGroup(group.clone()), reason })
    }

    /// Why the job waits.
    pub(crate) fn pending_reason(&self, group: &PodGroup) -> PendingReason {
        match self {
            Self::SubGroups(fault) => PendingReason::InvalidPodGroup { fault: fault.clone() },
            Self::Namespace { queue, allowed } => PendingReason::NamespaceNotAllowed {
                namespace: group.key.namespace.clone(),
                queue: queue.clone(),
                allowed: allowed.clone(),
            },
        }
    }
}

/// A pod of a job.
#[derive(Clone)]
pub(super) struct JobPod<'w> {
    pub(super) pod: &'w Pod,
    pub(super) status: Status,
    pub(super) node: Option<NodeId>,
    /// Names of the shared GPUs it holds; empty unless it has a node.
    pub(super) gpu_groups: Vec<&'w str>,
    /// Its bind request, while it is not bound.
    pub(super) request: Option<&'w BindRequest>,
}

/// A pod outside of jobs that holds resources on a node.
pub(super) struct NonJobPod<'w> {
    pub(super) pod: &'w Pod,
    pub(super) leaving: bool,
    /// Belongs to another scheduler, so that what it asks for is not divided among queues.
    pub(super) foreign: bool,
    pub(super) charge: Charge,
}

/// What a pod outside of jobs is charged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charge {
    Everything,
    /// It holds a whole GPU on behalf of the pods that share it; these are charged for the GPU instead.
    AllButGpus,
    /// It is charged as one of [`PodPartition::non_job_gpu_sharers`].
    Elsewhere,
}

impl<'w> PodPartition<'w> {
    /// All pods that matter; those that share GPUs outside of jobs come twice.
    pub(super) fn pods(&self) -> impl Iterator<Item = &'w Pod> {
        let members = self.jobs.iter().flat_map(|job| job.leaves.iter().flatten()).chain(&self.non_job_gpu_sharers);
        let non_job_pod = self.non_job_pods.iter().flatten().map(|non_job_pod| non_job_pod.pod);
        members.map(|member| member.pod).chain(non_job_pod)
    }

    /// Requests of all pods that matter.
    pub(super) fn requests(&self) -> impl Iterator<Item = &'w Request> {
        self.pods().map(|pod| &pod.request)
    }
}

/// Partitions all pods.
pub(super) fn partition<'w>(
    world: &'w World,
    settings: &Settings,
    nodes: &nodes::ShardNodes<'w>,
    now: Timestamp,
) -> PodPartition<'w> {
    partition_subset(world, world.pod_groups.values(), world.pods.values(), settings, nodes, now)
}

/// Partitions these pods, in name order, with all pod groups that they may belong to.
pub(super) fn partition_subset<'w>(
    world: &'w World,
    groups: impl Iterator<Item = &'w PodGroup>,
    pods: impl Iterator<Item = &'w Pod>,
    settings: &Settings,
    nodes: &nodes::ShardNodes<'w>,
    now: Timestamp,
) -> PodPartition<'w> {
    let mut cursor = JobCursor::default();
    let mut partition = PodPartition {
        jobs: jobs(world, groups, settings),
        non_job_pods: nodes.list.iter().map(|_| Vec::new()).collect(),
        non_job_gpu_sharers: Vec::new(),
        effects: Vec::new(),
        problems: Vec::new(),
        features: FeaturesInUse::default(),
        next_change_at: None,
    };
    let requests = pending_bind_requests(world, settings, nodes, &mut partition.effects);
    for pod in pods {
        partition.features.record(pod);
        let change = status::next_change_at(pod, settings.stuck_in_releasing_threshold, now);
        partition.next_change_at = partition.next_change_at.into_iter().chain(change).min();
        let request = requests.get(&pod.key).copied();
        let (request, outlived) = match request {
            Some(request) if !request.is_for(pod) => (None, Some(request)),
            request => (request, None),
        };
        partition.effects.extend(outlived.map(|request| Effect::DeleteBindRequest {
            request: request.key.clone(),
            why: StaleBindRequest::EarlierPod,
        }));
        let Some(status) = status::of(pod, request.is_some(), settings.stuck_in_releasing_threshold, now) else {
            continue;
        };
        let member = member(pod, status, request, nodes);
        if let Some((job, leaf)) = find_leaf(&member, settings, &mut cursor, &mut partition) {
            partition.jobs[job].leaves[leaf].push(member);
        } else if let Some((node, non_job_pod)) = non_job_pod(&member, settings) {
            if non_job_pod.charge == Charge::Elsewhere {
                partition.non_job_gpu_sharers.push(member);
            }
            partition.non_job_pods[node.index()].push(non_job_pod);
        }
    }
    partition
}

/// A pod that belongs to no job, if it holds resources.
fn non_job_pod<'w>(member: &JobPod<'w>, settings: &Settings) -> Option<(NodeId, NonJobPod<'w>)> {
    let JobPod { pod, status, node, gpu_groups, .. } = member;
    let node = node.filter(|_| status::holds_room(*status))?;
    // Users may write `app`, but not the other label: a pod of theirs is charged for its GPUs whatever it is called.
    let is_app = |app: &str, state: &str| {
        pod.labels.get(label::APP).is_some_and(|found| found == app) && pod.labels.contains_key(state)
    };
    // One that reserves a GPU asks for no more than that GPU.
    let reserves_gpu = is_app(&settings.reservation_app_label, label::GPU_GROUP) && pod.request.resources.gpus <= 1;
    let stands_in = is_app(name::SCALING_POD, label::SHARED_GPU_POD_NAME);
    let non_job_pod = NonJobPod {
        pod,
        leaving: *status == Status::Releasing,
        foreign: pod.scheduler != settings.scheduler_name && !reserves_gpu && !stands_in,
        charge: match (!gpu_groups.is_empty(), reserves_gpu) {
            (true, _) => Charge::Elsewhere,
            (false, true) => Charge::AllButGpus,
            (false, false) => Charge::Everything,
        },
    };
    Some((node, non_job_pod))
}

/// The pod group that a pod of this scheduler names.
pub(super) fn pod_group_named_by<'w>(pod: &'w Pod, settings: &Settings) -> Option<&'w str> {
    if pod.scheduler != settings.scheduler_name {
        return None;
    }
    let group = pod.annotations.get(kai_api::keys::annotation::POD_GROUP_NAME).filter(|name| !name.is_empty())?;
    Some(group.as_str())
}

/// Where the last job was found. Pods come in name order, so that the next one often belongs to the same or to the next.
#[derive(Default)]
struct JobCursor(usize);

impl JobCursor {
    /// Position of a job, which are in name order.
    fn find(&mut self, jobs: &[JobPods<'_>], namespace: &str, name: &str) -> Option<usize> {
        let is_it = |at: &usize| {
            let key = jobs.get(*at).map(|job| &job.group.key);
            key.is_some_and(|key| key.name == name && key.namespace == namespace)
        };
        let close_by = [self.0, self.0 + 1].into_iter().find(is_it);
        let found = close_by.or_else(|| {
            let key = |job: &JobPods<'_>| {
                let key = &job.group.key;
                (key.namespace.as_str(), key.name.as_str()).cmp(&(namespace, name))
            };
            jobs.binary_search_by(key).ok()
        });
        self.0 = found.unwrap_or(self.0);
        found
    }
}

/// Jobs in name order, without their pods.
fn jobs<'w>(world: &'w World, groups: impl Iterator<Item = &'w PodGroup>, settings: &Settings) -> Vec<JobPods<'w>> {
    let mut jobs = Vec::new();
    let restricted = world.queues.values().any(|queue| queue.namespaces.is_some());
    for group in groups {
        if !in_shard(&group.labels, settings) || is_backed_off(group, settings) {
            continue;
        }
        let tree = SubGroupTree::of(group);
        let leaves = tree.leaves.iter().map(|_| Vec::new()).collect();
        let refused_by = if restricted { world.queue_refusing(group) } else { None };
        jobs.push(JobPods { group, tree, leaves, refused_by });
    }
    jobs
}

/// Whether the group asked not to be tried again on the node pool that it is labelled with.
fn is_backed_off(group: &PodGroup, settings: &Settings) -> bool {
    let pool = || group.labels.get(&settings.node_pool_label_key).map_or(name::DEFAULT_SHARD, String::as_str);
    group.backed_off_on.as_ref().is_some_and(|given_up| given_up == pool())
}

/// The job and leaf of a pod. Reports pods of this scheduler that can belong to none.
fn find_leaf(
    member: &JobPod<'_>,
    settings: &Settings,
    cursor: &mut JobCursor,
    partition: &mut PodPartition<'_>,
) -> Option<(usize, usize)> {
    let pod = member.pod;
    let group = pod_group_named_by(pod, settings)?;
    let waits = matches!(member.status, Status::Pending | Status::Gated);
    let Some(job) = cursor.find(&partition.jobs, &pod.key.namespace, group) else {
        if waits {
            let group = GroupKey::new(pod.key.namespace.as_str(), group);
            partition.problems.push(Problem {
                object: ObjectId::Pod(pod.key.clone()),
                reason: ProblemReason::PodGroupMissing { group },
            });
        }
        return None;
    };
    let leaf = partition.jobs[job].tree.leaf_of(pod);
    if leaf.is_none() && waits {
        let tree = &partition.jobs[job].tree;
        partition.effects.push(Effect::MarkPod { pod: pod.key.clone(), reason: tree.explain_no_leaf(pod, group) });
    }
    leaf.map(|leaf| (job, leaf))
}

fn member<'w>(
    pod: &'w Pod,
    status: Status,
    request: Option<&'w BindRequest>,
    nodes: &nodes::ShardNodes<'w>,
) -> JobPod<'w> {
    let name = pod.node.as_deref().or(request.map(|request| request.node.as_str()));
    let waits = matches!(status, Status::Pending | Status::Gated);
    let node = name.filter(|_| !waits).and_then(|name| nodes.id(name));
    let shares = pod.request.sharing.is_some() && node.is_some() && status::holds_room(status);
    let gpu_groups = match (pod.gpu_groups(), request) {
        _ if !shares => Vec::new(),
        // The labels of a bound pod win: its bind request may be older and name other groups.
        (labelled, _) if pod.node.is_some() && pod.knows_gpu_groups() => labelled,
        (_, Some(request)) if !request.gpu_groups.is_empty() => request.gpu_groups.iter().map(String::as_str).collect(),
        (labelled, _) => labelled,
    };
    JobPod { pod, status, node, gpu_groups, request }
}

/// Bind requests in flight, by pod. Those that can no longer succeed are to be deleted; their pods are pending again.
fn pending_bind_requests<'w>(
    world: &'w World,
    settings: &Settings,
    nodes: &nodes::ShardNodes<'w>,
    effects: &mut Vec<Effect>,
) -> BTreeMap<&'w PodKey, &'w BindRequest> {
    let mut live = BTreeMap::new();
    for request in world.bind_requests.values() {
        let known = nodes.id(&request.node).is_some();
        if !known && !in_shard(&request.labels, settings) {
            continue;
        }
        if !known || request.given_up() {
            let why = if known {
                StaleBindRequest::Failed { node: request.node.clone() }
            } else {
                StaleBindRequest::NodeGone { node: request.node.clone() }
            };
            effects.push(Effect::DeleteBindRequest { request: request.key.clone(), why });
        } else {
            live.insert(&request.pod, request);
        }
    }
    live
}
