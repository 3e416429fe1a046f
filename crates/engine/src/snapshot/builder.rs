//! The one way to make a [`Snapshot`]: rows in, columns out, every documented invariant checked.
//!
//! The caller brings nodes, queues and jobs in name order, because ids follow names. Equal requests, device
//! lists, ports, port sets and constraints are stored once. [`Builder::finish`] refuses a snapshot that the
//! engine could misread: a wrong one is a bug of the caller, so it panics and names the row.

use core::net::IpAddr;

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

use crate::ids::{
    DeviceId, GroupId, IdRange, JobId, NodeFilterId, NodeId, PodMatcherId, PodSetId, PortId, QueueId, ShapeId, TaskId,
    TopologyId, TopologyKeyId,
};
use crate::snapshot::validate;
use crate::snapshot::{
    Claims, Constraint, Device, Extras, Group, Job, Member, NodeFilter, NumaAsk, NumaNode, PodSet, Queue, ResourceKind,
    Shape, Snapshot, Status, Task, Topology, VolumeNeed,
};
use crate::snapshot::{InterPodRules, PodMatcher, TopologyKey, UnmanagedPod};
use crate::units::compat::DEVICE_MEMORY_DEFAULT;
use crate::units::{ResourceQuantities, Span, Timestamp};

/// Collects rows of a snapshot.
#[derive(Debug)]
pub struct Builder {
    snapshot: Snapshot,
    shapes: BTreeMap<Shape, ShapeId>,
    device_lists: BTreeMap<Vec<DeviceId>, u32>,
    ports: BTreeMap<HostPort, PortId>,
    port_sets: BTreeMap<Vec<PortId>, u32>,
    matcher_lists: BTreeMap<Vec<PodMatcherId>, u32>,
    inter_pod: BTreeMap<InterPodRules, u32>,
    numa_asks: BTreeMap<NumaAsk, u32>,
    volume_needs: BTreeMap<VolumeNeed, u32>,
}

/// A node. Vectors hold one amount per column.
#[derive(Clone, Debug)]
pub struct NodeRow {
    /// What can be used.
    pub allocatable: Vec<i64>,
    /// Held by pods that belong to no job here.
    pub unmanaged_used: Vec<i64>,
    /// The part of `unmanaged_used` that is being released.
    pub unmanaged_releasing: Vec<i64>,
    /// What pods of other schedulers ask for: not divided among queues.
    pub other_schedulers_requested: ResourceQuantities,
    /// Whether the node counts towards the capacity that queues divide.
    pub ready: bool,
    /// MiB of each GPU.
    pub device_memory: i64,
    /// Host ports held by pods that belong to no job here.
    pub ports: Vec<PortId>,
}

impl NodeRow {
    /// An idle ready node whose GPU memory is unknown.
    pub fn idle(allocatable: Vec<i64>) -> Self {
        let nothing = vec![0; allocatable.len()];
        Self {
            allocatable,
            unmanaged_used: nothing.clone(),
            unmanaged_releasing: nothing,
            other_schedulers_requested: ResourceQuantities::ZERO,
            ready: true,
            device_memory: DEVICE_MEMORY_DEFAULT,
            ports: Vec::new(),
        }
    }
}

/// A host port as a pod asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// Port number.
    pub number: u16,
    /// Ports of different protocols never conflict.
    pub protocol: Protocol,
    /// The address it is bound to; `None` is every address.
    pub address: Option<IpAddr>,
}

/// Protocol of a host port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP, which is the default.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl HostPort {
    /// Whether both cannot be open on one node.
    pub fn collides(self, other: Self) -> bool {
        self.number == other.number
            && self.protocol == other.protocol
            && (self.address.is_none() || other.address.is_none() || self.address == other.address)
    }
}

/// A job; fields as in [`Job`].
#[derive(Clone, Debug)]
pub struct JobRow {
    /// Its queue, unless that does not exist.
    pub queue: Option<QueueId>,
    /// Higher first, inside a queue.
    pub priority: i32,
    /// Whether it may be moved or evicted, and may exceed its queue's quota.
    pub preemptible: bool,
    /// Older first.
    pub created: Timestamp,
    /// When it last went from nothing running to something running.
    pub last_start: Option<Timestamp>,
    /// Since when it lacks its minimum.
    pub stale_since: Option<Timestamp>,
    /// When one of its pods was last evicted.
    pub last_eviction: Option<Timestamp>,
    /// How long it waits before others may be evicted for it.
    pub preemption_delay: Span,
    /// How long it may lack its minimum; `None` takes the policy's, `Some(None)` is for ever.
    pub staleness_grace: Option<Option<Span>>,
    /// Jobs with equal numbers are alike in everything but amounts, queue and priority.
    pub signature: u32,
    /// Its pods.
    pub root: GroupRow,
}

impl JobRow {
    /// A preemptible job that never ran.
    pub fn new(queue: QueueId, created: Timestamp, root: GroupRow) -> Self {
        Self {
            queue: Some(queue),
            priority: 0,
            preemptible: true,
            created,
            last_start: None,
            stale_since: None,
            last_eviction: None,
            preemption_delay: Span(0),
            staleness_grace: None,
            signature: 0,
            root,
        }
    }
}

/// An inner group of a job's tree.
#[derive(Clone, Debug, Default)]
pub struct GroupRow {
    /// How many direct members must be satisfied; `None` is all of them.
    pub min_members: Option<u32>,
    /// Where it must stay together, from [`Builder::constraint`].
    pub constraint: Option<u32>,
    /// Direct members, in name order.
    pub members: Vec<MemberRow>,
}

/// A direct member of a group.
#[derive(Clone, Debug)]
pub enum MemberRow {
    /// An inner group.
    Group(GroupRow),
    /// A leaf.
    PodSet(PodSetRow),
}

/// A leaf of a job's tree.
#[derive(Clone, Debug, Default)]
pub struct PodSetRow {
    /// How many pods must run.
    pub min: u32,
    /// Where it must stay together, from [`Builder::constraint`].
    pub constraint: Option<u32>,
    /// Its pods, in task order.
    pub tasks: Vec<TaskRow>,
}

/// A pod.
#[derive(Clone, Debug)]
pub struct TaskRow {
    /// What it asks for.
    pub shape: ShapeId,
    /// Where it may run.
    pub node_filter: NodeFilterId,
    /// Its state when the cycle begins.
    pub status: Status,
    /// Its node, if that is part of this snapshot.
    pub node: Option<NodeId>,
    /// The shared GPUs it holds.
    pub devices: Vec<DeviceId>,
    /// The host ports it asks for, from [`Builder::port_set`].
    pub ports: Option<u32>,
    /// What it asks of other pods, and they of it, from [`Builder::inter_pod`].
    pub inter_pod: Option<u32>,
    /// The matchers that it is part of, from [`Builder::matcher_list`].
    pub matchers: Option<u32>,
    /// A node nominated for it in an earlier cycle, mostly because pods were evicted for it there.
    pub nominated: Option<NodeId>,
    /// What it holds beyond amounts and shared GPUs.
    pub extras: Extras,
    /// Its resource claims: an index into the lists of [`Builder::claims`].
    pub claims: Option<u32>,
    /// What its volumes take, from [`Builder::volume_need`].
    pub volumes: Option<u32>,
}

impl TaskRow {
    /// A pod that waits for a node.
    pub fn pending(shape: ShapeId, node_filter: NodeFilterId) -> Self {
        Self {
            shape,
            node_filter,
            status: Status::Pending,
            node: None,
            devices: Vec::new(),
            ports: None,
            inter_pod: None,
            matchers: None,
            nominated: None,
            extras: Extras::default(),
            claims: None,
            volumes: None,
        }
    }

    /// A pod that runs and shares no GPU.
    pub fn running(shape: ShapeId, node_filter: NodeFilterId, node: NodeId) -> Self {
        Self { status: Status::Running, node: Some(node), ..Self::pending(shape, node_filter) }
    }
}

impl Builder {
    /// Starts a snapshot whose vectors have these resources after CPU, memory, GPUs and pod slots.
    pub fn new(extra_resources: Vec<ResourceKind>) -> Self {
        let mut resources = vec![ResourceKind::Cpu, ResourceKind::Memory, ResourceKind::Gpu, ResourceKind::Pods];
        resources.extend(extra_resources);
        Self {
            snapshot: Snapshot { resources, ..Snapshot::default() },
            shapes: BTreeMap::new(),
            device_lists: BTreeMap::new(),
            ports: BTreeMap::new(),
            port_sets: BTreeMap::new(),
            matcher_lists: BTreeMap::new(),
            inter_pod: BTreeMap::new(),
            numa_asks: BTreeMap::new(),
            volume_needs: BTreeMap::new(),
        }
    }

    /// Amounts in a resource vector.
    pub fn width(&self) -> usize {
        self.snapshot.resources.len()
    }

    /// How many nodes were added.
    pub fn node_count(&self) -> usize {
        self.snapshot.nodes.len()
    }

    /// The id that the next pod will get; pods are numbered as they are written in a [`JobRow`].
    pub fn next_task(&self) -> TaskId {
        TaskId::at(self.snapshot.tasks.len())
    }

    /// Adds a node; nodes come in name order.
    pub fn node(&mut self, row: NodeRow) -> NodeId {
        let width = self.width();
        let nodes = &mut self.snapshot.nodes;
        let id = NodeId::at(nodes.len());
        for vector in [&row.allocatable, &row.unmanaged_used, &row.unmanaged_releasing] {
            assert_eq!(vector.len(), width, "node {id:?}: a vector has one amount per column");
        }
        nodes.allocatable.extend(row.allocatable);
        nodes.unmanaged_used.extend(row.unmanaged_used);
        nodes.unmanaged_releasing.extend(row.unmanaged_releasing);
        nodes.other_schedulers_requested.push(row.other_schedulers_requested);
        nodes.ready.push(row.ready);
        nodes.device_memory.push(row.device_memory);
        nodes.ports.push(row.ports);
        id
    }

    /// Adds a queue; queues come in name order, so that a parent may be one that follows.
    pub fn queue(&mut self, queue: Queue) -> QueueId {
        self.snapshot.queues.push(queue);
        QueueId::at(self.snapshot.queues.len() - 1)
    }

    /// The id of a request.
    pub fn shape(&mut self, shape: Shape) -> ShapeId {
        assert_eq!(shape.need.len(), self.width(), "a request has one amount per column");
        if let Some(id) = self.shapes.get(&shape) {
            return *id;
        }
        let id = ShapeId::at(self.snapshot.shapes.len());
        self.snapshot.shapes.push(shape.clone());
        self.shapes.insert(shape, id);
        id
    }

    /// Adds a set of placement rules. Callers know a cheaper key than the node sets, so they keep one row per key.
    pub fn add_node_filter(&mut self, node_filter: NodeFilter) -> NodeFilterId {
        self.snapshot.node_filters.push(node_filter);
        NodeFilterId::at(self.snapshot.node_filters.len() - 1)
    }

    /// Adds a filter that every node added so far passes.
    pub fn add_node_filter_of_all(&mut self) -> NodeFilterId {
        let mut feasible = FixedBitSet::with_capacity(self.node_count());
        feasible.insert_range(..);
        self.add_node_filter(NodeFilter { feasible, excluded: Vec::new() })
    }

    /// Adds a GPU that is shared already.
    pub fn device(&mut self, node: NodeId) -> DeviceId {
        self.snapshot.devices.push(Device { node });
        DeviceId::at(self.snapshot.devices.len() - 1)
    }

    /// The id of a host port.
    pub fn port(&mut self, port: HostPort) -> PortId {
        if let Some(id) = self.ports.get(&port) {
            return *id;
        }
        let id = PortId::at(self.snapshot.port_conflicts.len());
        let others: Vec<PortId> =
            self.ports.iter().filter(|(other, _)| port.collides(**other)).map(|(_, id)| *id).collect();
        for other in &others {
            self.snapshot.port_conflicts[other.index()].push(id);
        }
        let mut conflicts = others;
        conflicts.push(id);
        conflicts.sort_unstable();
        self.snapshot.port_conflicts.push(conflicts);
        self.ports.insert(port, id);
        id
    }

    /// The number of a set of host ports, for a pod; `None` if it is empty.
    pub fn port_set(&mut self, mut ports: Vec<PortId>) -> Option<u32> {
        ports.sort_unstable();
        ports.dedup();
        intern(&mut self.port_sets, &mut self.snapshot.port_sets, ports)
    }

    /// Adds a tree of node domains, made for all nodes.
    pub fn topology(&mut self, topology: Topology) -> TopologyId {
        self.snapshot.topologies.push(topology);
        TopologyId::at(self.snapshot.topologies.len() - 1)
    }

    /// The number of a topology constraint.
    pub fn constraint(&mut self, constraint: Constraint) -> u32 {
        // A cluster has a handful of distinct constraints: looking through them costs less than a key.
        let constraints = &mut self.snapshot.constraints;
        let index = constraints.iter().position(|known| *known == constraint).unwrap_or_else(|| {
            constraints.push(constraint);
            constraints.len() - 1
        });
        u32::try_from(index).expect("constraints are few")
    }

    /// Adds a node label: the domain of each node, numbered from 0, made for all nodes.
    pub fn topology_key(&mut self, domains: Vec<Option<u32>>) -> TopologyKeyId {
        self.snapshot.topology_keys.push(TopologyKey { domains });
        TopologyKeyId::at(self.snapshot.topology_keys.len() - 1)
    }

    /// Adds a matcher. Callers know which pods it matches, so they keep one row for each.
    pub fn matcher(&mut self, topology_key: TopologyKeyId) -> PodMatcherId {
        self.snapshot.matchers.push(PodMatcher { topology_key });
        PodMatcherId::at(self.snapshot.matchers.len() - 1)
    }

    /// The number of a list of matchers, for a pod that is part of them; `None` if it is empty.
    pub fn matcher_list(&mut self, mut matchers: Vec<PodMatcherId>) -> Option<u32> {
        matchers.sort_unstable();
        matchers.dedup();
        intern(&mut self.matcher_lists, &mut self.snapshot.matcher_lists, matchers)
    }

    /// The number of a set of rules about other pods; `None` if there are none.
    pub fn inter_pod(&mut self, inter_pod: InterPodRules) -> Option<u32> {
        if inter_pod.is_empty() {
            return None;
        }
        if let Some(known) = self.inter_pod.get(&inter_pod) {
            return Some(*known);
        }
        let number = u32::try_from(self.snapshot.inter_pod.len()).expect("distinct rules are fewer than tasks");
        self.snapshot.inter_pod.push(inter_pod.clone());
        self.inter_pod.insert(inter_pod, number);
        Some(number)
    }

    /// Adds a pod of no job here that inter-pod rules or volume limits count.
    pub fn unmanaged_pod(&mut self, unmanaged_pod: UnmanagedPod) {
        self.snapshot.unmanaged_pods.push(unmanaged_pod);
    }

    /// Adds a driver of volumes: how many each node takes, made for all nodes.
    pub fn volume_driver(&mut self, limits: Vec<Option<u32>>) -> u32 {
        next(&mut self.snapshot.volumes.limits, limits)
    }

    /// Adds a volume of a driver.
    pub fn volume(&mut self, driver: u32) -> u32 {
        next(&mut self.snapshot.volumes.drivers, driver)
    }

    /// Adds a storage pool that has so much.
    pub fn add_storage_pool(&mut self, amount: i64) -> u32 {
        next(&mut self.snapshot.volumes.storage_pools, amount)
    }

    /// Adds a kind of storage: the store of each node, made for all nodes.
    pub fn add_storage_class(&mut self, pools: Vec<Option<u32>>) -> u32 {
        next(&mut self.snapshot.volumes.storage_classes, pools)
    }

    /// The number of what the volumes of a pod take; `None` if that is nothing.
    pub fn volume_need(&mut self, mut need: VolumeNeed) -> Option<u32> {
        let volumes = &mut self.snapshot.volumes;
        need.attached.sort_unstable_by_key(|volume| (volumes.drivers[*volume as usize], *volume));
        need.attached.dedup();
        if need.is_empty() {
            return None;
        }
        let number = self.volume_needs.entry(need);
        Some(*number.or_insert_with_key(|need| next(&mut volumes.needs, need.clone())))
    }

    /// Says what is known of a node's NUMA zones, after the node was added.
    pub fn zones(&mut self, node: NodeId, row: NumaNode) {
        let nodes = &mut self.snapshot.numa.nodes;
        nodes.resize(nodes.len().max(node.index() + 1), None);
        nodes[node.index()] = Some(row);
    }

    /// The number of what a pod asks of NUMA zones; `None` if that is nothing.
    pub fn numa_ask(&mut self, ask: NumaAsk) -> Option<u32> {
        if ask.pod.is_empty() {
            return None;
        }
        if let Some(known) = self.numa_asks.get(&ask) {
            return Some(*known);
        }
        let index = u32::try_from(self.snapshot.numa.asks.len()).expect("distinct requests are few");
        self.snapshot.numa.asks.push(ask.clone());
        self.numa_asks.insert(ask, index);
        Some(index)
    }

    /// Says which claims there are and which devices; once, after all nodes.
    pub fn claims(&mut self, mut claims: Claims) {
        claims.devices_by_node = vec![Vec::new(); self.snapshot.nodes.len()];
        for (index, device) in claims.devices.iter().enumerate() {
            for node in claims.node_sets[device.nodes as usize].ones() {
                claims.devices_by_node[node].push(u32::try_from(index).expect("devices are few"));
            }
        }
        claims.incomplete_pools.grow(self.snapshot.nodes.len());
        self.snapshot.claims = claims;
    }

    /// Adds a job with its tree and pods; jobs come in name order.
    pub fn job(&mut self, row: JobRow) -> JobId {
        let id = JobId::at(self.snapshot.jobs.len());
        let groups_start = self.snapshot.groups.len();
        let pod_sets_start = self.snapshot.pod_sets.len();
        self.group(id, row.root);
        self.snapshot.jobs.push(Job {
            queue: row.queue,
            priority: row.priority,
            preemptible: row.preemptible,
            created: row.created,
            last_start: row.last_start,
            stale_since: row.stale_since,
            last_eviction: row.last_eviction,
            preemption_delay: row.preemption_delay,
            staleness_grace: row.staleness_grace,
            groups: span(groups_start, self.snapshot.groups.len()),
            pod_sets: span(pod_sets_start, self.snapshot.pod_sets.len()),
            signature: row.signature,
        });
        id
    }

    /// The id comes before the ids of everything inside, so a job's root is the first of its groups.
    fn group(&mut self, job: JobId, row: GroupRow) -> GroupId {
        let id = GroupId::at(self.snapshot.groups.len());
        self.snapshot.groups.push(Group {
            min_members: row.min_members,
            members: IdRange::default(),
            constraint: row.constraint,
        });
        let members: Vec<Member> = row
            .members
            .into_iter()
            .map(|member| match member {
                MemberRow::Group(group) => Member::Group(self.group(job, group)),
                MemberRow::PodSet(pod_set) => Member::PodSet(self.pod_set(job, pod_set)),
            })
            .collect();
        let start = self.snapshot.members.len();
        self.snapshot.members.extend(members);
        self.snapshot.groups[id.index()].members = span(start, self.snapshot.members.len());
        id
    }

    fn pod_set(&mut self, job: JobId, row: PodSetRow) -> PodSetId {
        let id = PodSetId::at(self.snapshot.pod_sets.len());
        let start = self.snapshot.tasks.len();
        for task in row.tasks {
            let devices = intern(&mut self.device_lists, &mut self.snapshot.device_lists, task.devices);
            let extras = (!task.extras.is_empty()).then(|| {
                self.snapshot.extras.push(task.extras);
                u32::try_from(self.snapshot.extras.len() - 1).expect("fewer than tasks")
            });
            self.snapshot.tasks.push(Task {
                job,
                pod_set: id,
                shape: task.shape,
                node_filter: task.node_filter,
                status: task.status,
                node: task.node,
                devices,
                ports: task.ports,
                inter_pod: task.inter_pod,
                matchers: task.matchers,
                nominated: task.nominated,
                extras,
                claims: task.claims,
                volumes: task.volumes,
            });
        }
        let tasks = span(start, self.snapshot.tasks.len());
        self.snapshot.pod_sets.push(PodSet { job, min: row.min, tasks, constraint: row.constraint });
        id
    }

    /// The rows as they are, to become part of a snapshot that is checked as a whole.
    pub fn unchecked(self) -> Snapshot {
        self.snapshot
    }

    /// The snapshot, checked.
    ///
    /// Panics where a row contradicts another: that is a mistake of the caller, not of a user.
    pub fn finish(self) -> Snapshot {
        validate::snapshot(&self.snapshot);
        self.snapshot
    }
}

/// Panics where rows of a snapshot that was put together otherwise contradict each other.
pub fn check(snapshot: &Snapshot) {
    validate::snapshot(snapshot);
}

/// Rows `start..end` of a column.
fn span(start: usize, end: usize) -> IdRange {
    let narrow = |index: usize| u32::try_from(index).expect("a snapshot has fewer than 2³² rows");
    IdRange { start: narrow(start), end: narrow(end) }
}

/// Adds a row; answers with its number.
fn next<T>(table: &mut Vec<T>, row: T) -> u32 {
    table.push(row);
    u32::try_from(table.len() - 1).expect("a snapshot has fewer than 2³² rows")
}

/// The number of a non-empty list in its table.
fn intern<T: Clone + Ord>(known: &mut BTreeMap<Vec<T>, u32>, table: &mut Vec<Vec<T>>, list: Vec<T>) -> Option<u32> {
    if list.is_empty() {
        return None;
    }
    if let Some(index) = known.get(&list) {
        return Some(*index);
    }
    let index = u32::try_from(table.len()).expect("distinct lists are fewer than tasks");
    table.push(list.clone());
    known.insert(list, index);
    Some(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{GpuAsk, NodeRule};
    use crate::units::{Ceiling, GPU, ONE};

    fn queue(parent: Option<u32>) -> Queue {
        Queue {
            parent: parent.map(QueueId),
            priority: 100,
            created: Timestamp(0),
            quota: [Ceiling::Unlimited; 3],
            limit: [Ceiling::Unlimited; 3],
            weight: [ONE; 3],
            usage: [0; 3],
            preempt_min_runtime: None,
            reclaim_min_runtime: None,
        }
    }

    fn one_gpu() -> Shape {
        Shape { need: vec![1000, 0, GPU, 1], gpu: GpuAsk::Whole, quota_gpu: GPU, numa: None }
    }

    fn pods(builder: &mut Builder, count: usize) -> MemberRow {
        let shape = builder.shape(one_gpu());
        let tasks = vec![TaskRow::pending(shape, NodeFilterId(0)); count];
        MemberRow::PodSet(PodSetRow { min: 1, constraint: None, tasks })
    }

    fn one_node() -> Builder {
        let mut builder = Builder::new(Vec::new());
        builder.node(NodeRow::idle(vec![8000, 1 << 30, 8 * GPU, 110]));
        builder.queue(queue(None));
        builder.add_node_filter_of_all();
        builder
    }

    #[test]
    fn a_nested_tree_keeps_sets_and_tasks_together() {
        let mut builder = one_node();
        let inner = GroupRow {
            min_members: Some(1),
            constraint: None,
            members: vec![pods(&mut builder, 2), pods(&mut builder, 1)],
        };
        let root = GroupRow { members: vec![MemberRow::Group(inner), pods(&mut builder, 3)], ..GroupRow::default() };
        let single = GroupRow { members: vec![pods(&mut builder, 1)], ..GroupRow::default() };
        let first = builder.job(JobRow::new(QueueId(0), Timestamp(1), single));
        assert_eq!(builder.next_task(), TaskId(1));
        let second = builder.job(JobRow::new(QueueId(0), Timestamp(2), root));
        let snapshot = builder.finish();

        assert_eq!(snapshot.shapes.len(), 1);
        assert_eq!(snapshot.job_tasks(first).collect::<Vec<_>>(), [TaskId(0)]);
        assert_eq!(snapshot.job_tasks(second).count(), 6);
        let root = &snapshot.groups[snapshot.root(second).index()];
        assert_eq!(snapshot.members[root.members.indices()], [Member::Group(GroupId(2)), Member::PodSet(PodSetId(3))]);
        let inner = &snapshot.groups[2];
        assert_eq!(
            snapshot.members[inner.members.indices()],
            [Member::PodSet(PodSetId(1)), Member::PodSet(PodSetId(2))]
        );
        assert_eq!(snapshot.pod_sets[3].tasks, IdRange { start: 4, end: 7 });
    }

    #[test]
    fn a_port_on_every_address_collides_with_all_of_its_number() {
        let mut builder = Builder::new(Vec::new());
        let on = |address: Option<&str>| HostPort {
            number: 80,
            protocol: Protocol::Tcp,
            address: address.map(|text| text.parse().expect("a literal address")),
        };
        let left = builder.port(on(Some("10.0.0.1")));
        let right = builder.port(on(Some("10.0.0.2")));
        let every = builder.port(on(None));
        let udp = builder.port(HostPort { protocol: Protocol::Udp, ..on(None) });
        assert_eq!(builder.port(on(None)), every);
        assert_eq!(builder.port_set(vec![every, left, every]), builder.port_set(vec![left, every]));
        assert_eq!(builder.port_set(Vec::new()), None);
        let conflicts = builder.finish().port_conflicts;
        assert_eq!(conflicts, [vec![left, every], vec![right, every], vec![left, right, every], vec![udp]]);
    }

    #[test]
    #[should_panic(expected = "is above itself")]
    fn a_cycle_of_queues_is_refused() {
        let mut builder = Builder::new(Vec::new());
        builder.queue(queue(Some(1)));
        builder.queue(queue(Some(0)));
        builder.finish();
    }

    #[test]
    #[should_panic(expected = "fails a rule")]
    fn a_node_filter_covers_every_node() {
        let mut builder = one_node();
        builder.add_node_filter(NodeFilter { feasible: FixedBitSet::with_capacity(1), excluded: Vec::new() });
        builder.finish();
    }

    #[test]
    fn a_node_filter_may_exclude_every_node() {
        let mut builder = one_node();
        let mut out = FixedBitSet::with_capacity(1);
        out.insert(0);
        builder.add_node_filter(NodeFilter {
            feasible: FixedBitSet::with_capacity(1),
            excluded: vec![(NodeRule::Taint, out)],
        });
        assert_eq!(builder.finish().node_filters.len(), 2);
    }

    #[test]
    #[should_panic(expected = "two wider domains")]
    fn domains_are_nested() {
        let mut builder = Builder::new(Vec::new());
        for _ in 0..2 {
            builder.node(NodeRow::idle(vec![0; 4]));
        }
        builder.topology(Topology { levels: vec![vec![Some(0), Some(1)], vec![Some(7), Some(7)]] });
        builder.finish();
    }
}
