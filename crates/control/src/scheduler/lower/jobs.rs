//! Jobs with their trees and pods.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;
use kai_api::keys::label;
use kai_engine::builder::{Builder, GroupRow, JobRow, MemberRow, PodSetRow, TaskRow};
use kai_engine::ids::{DeviceId, NodeId, QueueId};
use kai_engine::snapshot::UnmanagedPod;
use kai_engine::snapshot::{Extras, Status};
use kai_engine::units::{Span, Timestamp};

use super::claims::Devices;
use super::columns::ExtraColumn;
use super::inter_pod::InterPodIndex;
use super::node_filters::{ClaimRule, NodeFilterTable, NodeFilters};
use super::numa::Zones;
use super::pod_partition::{Charge, JobFault, JobPod, JobPods, PodPartition};
use super::shapes::Shapes;
use super::signatures::{LastPodMemo, Signatures};
use super::status::is_placed;
use super::sub_group_tree::{InnerGroup, TreeChild};
use super::topologies::Topologies;
use super::volumes::{RuleTable, Volumes};
use super::{Names, nodes};
use crate::objects::{Pod, PriorityClass, TopologyConstraint};
use crate::scheduler::settings::{Settings, TaskOrder};
use crate::world::World;

/// Everything that turning a job into rows needs.
struct Maker<'a, 'w> {
    world: &'w World,
    settings: &'a Settings,
    nodes: &'a nodes::ShardNodes<'w>,
    columns: &'a [ExtraColumn<'w>],
    devices: BTreeMap<(NodeId, &'w str), DeviceId>,
    topologies: Topologies<'w>,
    node_filters: NodeFilters<'a, 'w>,
    shapes: Shapes<'w>,
    signatures: &'a mut Signatures,
    last_pod: LastPodMemo<'w>,
    inter_pod: InterPodIndex<'w>,
    volumes: Volumes<'a, 'w>,
    zones: Zones<'w>,
    claims: Option<&'a Devices<'w>>,
    builder: &'a mut Builder,
    names: &'a mut Names<'w>,
}

/// What jobs have in common, kept from one time to the next as long as no node changes.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) node_filters: NodeFilterTable,
    pub(super) signatures: Signatures,
    volume_rules: RuleTable,
}

/// What is known of the jobs added.
pub(super) struct Added {
    /// Jobs that cannot be scheduled as written.
    pub(super) faults: Vec<(usize, JobFault)>,
    /// The numbers in the table by id.
    pub(super) node_filters: Vec<u32>,
}

/// Adds all jobs of the shard.
#[expect(clippy::too_many_arguments, reason = "the last step brings together what the others made")]
pub(super) fn add<'w>(
    world: &'w World,
    settings: &Settings,
    nodes: &nodes::ShardNodes<'w>,
    partition: &PodPartition<'w>,
    columns: &[ExtraColumn<'w>],
    queues: &BTreeMap<&'w str, QueueId>,
    topologies: Topologies<'w>,
    tables: &mut Tables,
    zones: Zones<'w>,
    claims: Option<&Devices<'w>>,
    builder: &mut Builder,
    names: &mut Names<'w>,
) -> Added {
    let devices = devices(partition, builder, names);
    let legacy = legacy_mig_nodes(nodes, partition);
    let inter_pod = InterPodIndex::collect(world, nodes, partition, builder, names);
    let mut volumes = Volumes::new(world, nodes, &mut tables.volume_rules);
    add_bystanders(partition, &inter_pod, &mut volumes, builder, names);
    let mut maker = Maker {
        world,
        settings,
        nodes,
        columns,
        devices,
        topologies,
        node_filters: NodeFilters::new(&mut tables.node_filters, legacy, settings.restrict_node_scheduling),
        shapes: Shapes::default(),
        signatures: &mut tables.signatures,
        last_pod: LastPodMemo::default(),
        inter_pod,
        volumes,
        zones,
        claims,
        builder,
        names,
    };
    if !partition.non_job_gpu_sharers.is_empty() {
        maker.add_gpu_sharer_job(&partition.non_job_gpu_sharers);
    }
    let mut faults = Vec::new();
    let standard = PriorityClass::global_default_value(&world.priority_classes);
    for job in &partition.jobs {
        faults.extend(job.fault().map(|fault| (maker.names.jobs.len(), fault)));
        let queue = queues.get(job.group.queue.as_str()).copied();
        let value = job.group.priority_class.as_ref().and_then(|name| world.priority_classes.get(name));
        maker.job(job, queue, value.map_or(standard, |class| class.value));
    }
    maker.names.volume_drivers = maker.volumes.driver_names;
    maker.names.storage_kinds = maker.volumes.kind_names;
    Added { faults, node_filters: maker.node_filters.numbers }
}

/// Every shared GPU that a pod holds, by node and name.
fn devices<'w>(
    partition: &PodPartition<'w>,
    builder: &mut Builder,
    names: &mut Names<'w>,
) -> BTreeMap<(NodeId, &'w str), DeviceId> {
    let mut devices: BTreeMap<(NodeId, &str), DeviceId> = BTreeMap::new();
    let members =
        partition.jobs.iter().flat_map(|job| job.leaves.iter().flatten()).chain(&partition.non_job_gpu_sharers);
    for member in members {
        let Some(node) = member.node else { continue };
        devices.extend(member.gpu_groups.iter().map(|group| ((node, *group), DeviceId(0))));
    }
    for ((node, group), id) in &mut devices {
        *id = builder.device(*node);
        names.devices.push(group);
    }
    devices
}

fn legacy_mig_nodes(nodes: &nodes::ShardNodes<'_>, partition: &PodPartition<'_>) -> FixedBitSet {
    let mut set = FixedBitSet::with_capacity(nodes.list.len());
    if !partition.features.extended_resources {
        return set;
    }
    for (index, non_job_pod) in partition.non_job_pods.iter().enumerate() {
        set.set(index, non_job_pod.iter().any(|non_job_pod| non_job_pod.pod.request.legacy_mig));
    }
    for member in partition.jobs.iter().flat_map(|job| job.leaves.iter().flatten()) {
        if let Some(node) =
            member.node.filter(|_| member.pod.request.legacy_mig && super::status::holds_room(member.status))
        {
            set.insert(node.index());
        }
    }
    set
}

/// Adds pods that belong to no job, but that others mind or whose volumes count.
fn add_bystanders<'w>(
    partition: &PodPartition<'w>,
    inter_pod: &InterPodIndex<'w>,
    volumes: &mut Volumes<'_, 'w>,
    builder: &mut Builder,
    names: &mut Names<'w>,
) {
    for (index, non_job_pod) in partition.non_job_pods.iter().enumerate() {
        for non_job_pod in non_job_pod.iter().filter(|non_job_pod| non_job_pod.charge != Charge::Elsewhere) {
            let (_, matchers) = inter_pod.of(non_job_pod.pod, builder);
            let volumes = volumes.of(non_job_pod.pod, builder).taken;
            if matchers.is_some() || volumes.is_some() {
                builder.unmanaged_pod(UnmanagedPod {
                    node: NodeId::at(index),
                    matchers,
                    volumes,
                    releasing: non_job_pod.leaving,
                });
                names.unmanaged_pods.push(&non_job_pod.pod.key);
            }
        }
    }
}

impl<'w> Maker<'_, 'w> {
    /// A job that is never scheduled nor evicted, for pods that hold shared GPUs and belong to no job here.
    fn add_gpu_sharer_job(&mut self, members: &[JobPod<'w>]) {
        let tasks = members.iter().map(|member| self.task(member, false).0).collect();
        self.names.tasks.extend(members.iter().map(|member| &member.pod.key));
        self.names.pod_sets.push("");
        self.names.jobs.push(None);
        let leaf = PodSetRow { min: 0, constraint: None, tasks };
        let root = GroupRow { members: vec![MemberRow::PodSet(leaf)], ..GroupRow::default() };
        self.builder.job(JobRow {
            queue: None,
            priority: 0,
            preemptible: false,
            created: Timestamp::EARLIEST,
            last_start: None,
            stale_since: None,
            last_eviction: None,
            preemption_delay: Span(0),
            staleness_grace: Some(None),
            signature: 0,
            root,
        });
    }

    fn job(&mut self, job: &JobPods<'w>, queue: Option<QueueId>, value: i32) {
        let mut leaves = Vec::new();
        let root = self.group(job, &job.tree.root, &mut Vec::new(), &mut leaves);
        let group = job.group;
        self.names.jobs.push(Some(&group.key));
        let signature = self.signatures.job(leaves);
        self.builder.job(JobRow {
            queue,
            // Without a queue there is nothing to be ordered or reclaimed in.
            priority: queue.map_or(0, |_| value),
            preemptible: queue.is_some() && group.is_preemptible(value),
            created: group.created,
            last_start: group.last_start,
            stale_since: group.stale_since,
            last_eviction: group.last_eviction,
            preemption_delay: group.preemption_delay,
            staleness_grace: group.staleness_grace,
            signature,
            root,
        });
    }

    /// `above` holds the constraints of the groups around this one.
    fn group(
        &mut self,
        job: &JobPods<'w>,
        branch: &InnerGroup<'w>,
        above: &mut Vec<Option<&'w TopologyConstraint>>,
        leaves: &mut Vec<u32>,
    ) -> GroupRow {
        let constraint = self.topologies.constraint(branch.constraint, self.builder, self.names);
        above.push(branch.constraint);
        let members = branch
            .members
            .iter()
            .map(|child| match child {
                TreeChild::InnerGroup(inner) => MemberRow::Group(self.group(job, inner, above, leaves)),
                TreeChild::Leaf { index, min, constraint } => {
                    MemberRow::PodSet(self.pod_set(job, *index, *min, *constraint, above, leaves))
                }
            })
            .collect();
        above.pop();
        GroupRow { min_members: branch.need, constraint, members }
    }

    fn pod_set(
        &mut self,
        job: &JobPods<'w>,
        index: usize,
        min: u32,
        constraint: Option<&'w TopologyConstraint>,
        above: &[Option<&'w TopologyConstraint>],
        leaves: &mut Vec<u32>,
    ) -> PodSetRow {
        let mut members: Vec<&JobPod<'w>> = job.leaves[index].iter().collect();
        members.sort_by_cached_key(|member| task_order(member.pod, self.settings.task_order));
        let around = [constraint].into_iter().chain(above.iter().rev().copied());
        let mut tasks: Vec<TaskRow> = Vec::with_capacity(members.len());
        let mut numbers: Vec<u32> = Vec::new();
        for member in &members {
            let (task, rules) = self.task(member, job.is_held_back());
            if !is_placed(member.status) {
                numbers.push(self.signatures.pod(member.pod, &task, rules, self.world, &mut self.last_pod));
            }
            tasks.push(task);
        }
        leaves.push(self.signatures.leaf(around, numbers));
        self.names.pod_sets.push(job.tree.leaves[index]);
        self.names.tasks.extend(members.iter().map(|member| &member.pod.key));
        let min = min_of_the_living(min, &tasks);
        PodSetRow { min, constraint: self.topologies.constraint(constraint, self.builder, self.names), tasks }
    }

    /// A pod's row, and the number of the rules that its volumes make.
    fn task(&mut self, member: &JobPod<'w>, held_back: bool) -> (TaskRow, u32) {
        let JobPod { pod, status, node, gpu_groups, .. } = member;
        let ports = pod.host_ports.iter().map(|port| self.builder.port(*port)).collect();
        let (inter_pod, matchers) = self.inter_pod.of(pod, self.builder);
        let volumes = self.volumes.of(pod, self.builder);
        let devices = gpu_groups.iter().filter_map(|group| Some(self.devices[&((*node)?, *group)])).collect();
        let claimed = self.claims.and_then(|claims| claims.of(&pod.key));
        let fault = claimed.and_then(|claimed| self.claims?.fault(claimed));
        let needs_gpu = claimed.is_some_and(|claimed| claimed.needs_gpu);
        let row = TaskRow {
            shape: self.shapes.id(&pod.request, self.columns, &self.zones, claimed, self.builder),
            node_filter: self.node_filters.id(pod, ClaimRule { needs_gpu, fault }, &volumes, self.nodes, self.builder),
            status: if held_back && *status == Status::Pending { Status::Gated } else { *status },
            node: *node,
            devices,
            ports: self.builder.port_set(ports),
            inter_pod,
            matchers,
            nominated: pod.nominated_node.as_deref().and_then(|name| self.nodes.id(name)),
            extras: Extras {
                zones: self.zones.held_by(member, self.columns),
                grants: claimed.map_or_else(Vec::new, |claimed| claimed.grants.clone()),
            },
            claims: claimed.and_then(|claimed| claimed.list),
            volumes: volumes.taken,
        };
        (row, volumes.number)
    }
}

/// Pods that have done their work never come back: without them the rest would wait for its minimum for ever.
fn min_of_the_living(min: u32, tasks: &[TaskRow]) -> u32 {
    let done = tasks.iter().filter(|task| task.status == Status::Succeeded).count();
    let living = tasks.len() - done;
    if tasks.len() >= min as usize { min.min(living as u32) } else { min }
}

const KUBEFLOW_ROLE: &str = "training.kubeflow.org/job-role";
const RAY_NODE_TYPE: &str = "ray.io/node-type";

/// Leaders first, then by the label made for it, then by age.
fn task_order(pod: &Pod, order: TaskOrder) -> impl Ord + use<'_> {
    let is = |key: &str, values: &[&str]| pod.labels.get(key).is_some_and(|value| values.contains(&value.as_str()));
    let follows = (
        order.kubeflow && !is(KUBEFLOW_ROLE, &["master", "launcher"]),
        order.ray && !is(RAY_NODE_TYPE, &["head"]),
        if order.label { label_rank(pod) } else { LabelRank::Absent },
    );
    (follows, pod.created, &pod.uid, &pod.key)
}

/// Where the priority label puts a pod, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LabelRank {
    /// Higher first.
    Number(Reverse<i64>),
    NotANumber,
    Absent,
}

fn label_rank(pod: &Pod) -> LabelRank {
    match pod.labels.get(label::TASK_PRIORITY).map(|text| text.parse()) {
        Some(Ok(number)) => LabelRank::Number(Reverse(number)),
        Some(Err(_)) => LabelRank::NotANumber,
        None => LabelRank::Absent,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, labels: &Value, created: &str) -> Pod {
        let metadata = json!({"name": name, "labels": labels, "creationTimestamp": created});
        Pod::parse(&json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn leaders_then_labels_then_age() {
        let (old, new) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let mut pods = [
            pod("young", &json!({}), new),
            pod("old-b", &json!({}), old),
            pod("old-a", &json!({}), old),
            pod("odd", &json!({"kai.scheduler/task-priority": "high"}), new),
            pod("five", &json!({"kai.scheduler/task-priority": "5"}), new),
            pod("ten", &json!({"kai.scheduler/task-priority": "10"}), new),
            pod("head", &json!({"ray.io/node-type": "head"}), new),
            pod("master", &json!({"training.kubeflow.org/job-role": "master"}), new),
        ];
        let mut order = |order: TaskOrder| {
            pods.sort_by(|left, right| task_order(left, order).cmp(&task_order(right, order)));
            pods.iter().map(|pod| pod.key.name.clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order(TaskOrder::default()), "master head ten five odd old-a old-b young");
        let by_age = TaskOrder { kubeflow: false, ray: false, label: false };
        assert_eq!(order(by_age), "old-a old-b five head master odd ten young");
    }
}
