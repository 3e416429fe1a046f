//! The working state of a cycle: the state of every pod, and all sums that follow from it.
//!
//! State changes through one function, [`Ledger::shift`]; undo is that same function, backwards. What is free on
//! nodes and devices, what queues hold and how complete gangs are: all are sums over states, and
//! [`Ledger::recomputed`] computes them from nothing for the tests to compare.

mod claims;
mod devices;
mod pod_counts;
mod queue_accounts;
mod volumes;
mod zones;

use std::collections::BTreeMap;

pub use claims::{AllocationRef, ClaimState};
pub use devices::{DeviceUsage, HoldKind};
pub use pod_counts::PodCounts;
use pod_counts::PodMatchCounts;
pub use queue_accounts::{QueueAccounts, QueueRow};
pub use volumes::UsageTotals;

use crate::ids::{DeviceId, NodeId, PodMatcherId, PodSetId, PortId, TaskId};
use crate::policy::{Policy, Repairs};
use crate::snapshot::{Extras, GPUS, GpuAsk, Snapshot, Status};
use crate::units::{GPU, ResourceQuantities, compat};

/// Where a pod is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The node.
    pub node: NodeId,
    /// The shared GPUs there: a list of the ledger, see [`Ledger::devices_of`].
    pub devices: Option<u32>,
    /// What else it has there: an entry of the ledger, see [`Ledger::extras_of`].
    pub extras: Option<u32>,
}

/// State of a pod during the cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Has no node and holds nothing.
    Unplaced,
    /// Holds its resources on a node.
    Allocated(Placement),
    /// Assigned to a node, waits for resources that are being released there.
    Pipelined(Placement),
    /// Evicted or terminating: its resources will be free.
    Releasing(Placement),
    /// Evicted from one node and pipelined to another.
    Moving {
        /// Where it still is.
        from: Placement,
        /// Where it goes.
        to: Placement,
    },
    /// Terminating for far too long: its resources cannot be counted on.
    StuckReleasing(Placement),
    /// Holds a place outside this snapshot.
    OutsideSnapshot {
        /// Whether it is about to leave it.
        releasing: bool,
    },
}

impl TaskState {
    /// Runs or will: counts for the gang and may be evicted.
    pub fn is_active(self) -> bool {
        matches!(
            self,
            Self::Allocated(_) | Self::Pipelined(_) | Self::Moving { .. } | Self::OutsideSnapshot { releasing: false }
        )
    }

    /// Where it is, or goes if it moves.
    pub fn placement(self) -> Option<Placement> {
        match self {
            Self::Allocated(placement)
            | Self::Pipelined(placement)
            | Self::Releasing(placement)
            | Self::StuckReleasing(placement) => Some(placement),
            Self::Moving { to, .. } => Some(to),
            Self::Unplaced | Self::OutsideSnapshot { .. } => None,
        }
    }
}

/// Pods of a pod set by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodSetCounts {
    /// Hold a place.
    pub allocated: u32,
    /// Pipelined, moving ones included.
    pub pipelined: u32,
    /// Give up their place.
    pub releasing: u32,
    /// Wait for a place and may be scheduled.
    pub pending: u32,
}

impl PodSetCounts {
    /// Run or will.
    pub fn active(self) -> u32 {
        self.allocated + self.pipelined
    }

    /// Run, will, or are about to leave.
    pub fn used(self) -> u32 {
        self.allocated + self.pipelined + self.releasing
    }
}

/// When a place must be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Right now.
    Now,
    /// Once everything that is being released is free.
    Later,
}

/// A point to roll back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    journal: usize,
    lists: usize,
    devices: usize,
    extras: usize,
}

/// The working state of a cycle.
#[derive(Clone, Debug)]
pub struct Ledger<'s> {
    /// The input.
    pub snapshot: &'s Snapshot,
    /// Which unintended behaviours of KAI are repaired.
    pub repairs: Repairs,
    /// Queue counters.
    pub queues: QueueAccounts,
    states: Vec<TaskState>,
    idle: Vec<i64>,
    releasing: Vec<i64>,
    /// GPUs free on each node (now, later), parts of shared ones and MIG slices included, in millionths.
    gpus_free: Vec<(i64, i64)>,
    /// The same summed over ready nodes, now and later together.
    gpus_free_ready: i64,
    devices: Vec<DeviceUsage>,
    node_devices: Vec<Vec<DeviceId>>,
    device_lists: Vec<Vec<DeviceId>>,
    zones: zones::ZoneUsage,
    claims: claims::ClaimUsage,
    extras: Vec<Extras>,
    counts: Vec<PodSetCounts>,
    /// Evicted for good: not to be placed again in this cycle.
    evicted: Vec<bool>,
    ports: BTreeMap<(NodeId, PortId), u32>,
    matches: PodMatchCounts,
    volumes: volumes::VolumeUsage,
    job_versions: Vec<u32>,
    journal: Vec<(TaskId, TaskState)>,
    /// Nodes whose sums changed recently, in order.
    changed_nodes: Vec<NodeId>,
    /// Changes before those.
    log_start: usize,
    /// The last change of each node.
    last_change: Vec<usize>,
}

impl<'s> Ledger<'s> {
    /// The state when the cycle begins; fair shares are not divided yet.
    pub fn open(snapshot: &'s Snapshot, policy: &Policy) -> Self {
        let mut ledger = Self::empty(snapshot, policy.repairs);
        let reference = snapshot.device_memory_range().0;
        for index in 0..snapshot.tasks.len() {
            let id = TaskId::at(index);
            ledger.set(id, initial(snapshot, id));
            let task = snapshot.task(id);
            if task.status == Status::Pending
                && let Some(queue) = snapshot.job(task.job).queue
            {
                let amount = snapshot.shape(task.shape).requested_with_memory(reference);
                ledger.queues.ask(queue, amount);
            }
        }
        for row in 0..ledger.queues.rows.len() {
            let held = ledger.queues.rows[row].allocated;
            ledger.queues.rows[row].request += held;
        }
        ledger.journal.clear();
        ledger.log_start += ledger.changed_nodes.len();
        ledger.changed_nodes.clear();
        ledger
    }

    fn empty(snapshot: &'s Snapshot, repairs: Repairs) -> Self {
        let nodes = &snapshot.nodes;
        let mut node_devices = vec![Vec::new(); nodes.len()];
        for (index, device) in snapshot.devices.iter().enumerate() {
            node_devices[device.node.index()].push(DeviceId::at(index));
        }
        let mut ports = BTreeMap::new();
        for node in nodes.ids() {
            for port in &nodes.ports[node.index()] {
                *ports.entry((node, *port)).or_insert(0) += 1;
            }
        }
        let mut counts = vec![PodSetCounts::default(); snapshot.pod_sets.len()];
        for task in snapshot.tasks.iter().filter(|task| task.status == Status::Pending) {
            counts[task.pod_set.index()].pending += 1;
        }
        let mut idle: Vec<i64> =
            nodes.allocatable.iter().zip(&nodes.unmanaged_used).map(|(all, taken)| all - taken).collect();
        let claims = claims::ClaimUsage::new(snapshot);
        for node in claims.externally_held_gpus(snapshot) {
            idle[node.index() * snapshot.resources.len() + GPUS] -= GPU;
        }
        let quota = |node: NodeId, column: &[i64]| -> i64 {
            let row = snapshot.row(column, node).iter().zip(&snapshot.resources);
            row.map(|(amount, column)| column.quota_gpu(*amount)).sum()
        };
        let gpus_free: Vec<_> =
            nodes.ids().map(|node| (quota(node, &idle), quota(node, &nodes.unmanaged_releasing))).collect();
        let ready = nodes.ids().filter(|node| nodes.ready[node.index()]);
        let gpus_free_ready = ready.map(|node| gpus_free[node.index()].0 + gpus_free[node.index()].1).sum();
        Self {
            snapshot,
            repairs,
            queues: QueueAccounts::new(&snapshot.queues, snapshot.capacity()),
            states: vec![TaskState::Unplaced; snapshot.tasks.len()],
            idle,
            releasing: nodes.unmanaged_releasing.clone(),
            gpus_free,
            gpus_free_ready,
            devices: snapshot.devices.iter().map(|device| DeviceUsage::new(device.node)).collect(),
            node_devices,
            device_lists: snapshot.device_lists.clone(),
            zones: zones::ZoneUsage::new(snapshot),
            claims,
            extras: snapshot.extras.clone(),
            counts,
            evicted: vec![false; snapshot.tasks.len()],
            ports,
            matches: PodMatchCounts::of_unmanaged_pods(snapshot),
            volumes: volumes::VolumeUsage::of_unmanaged_pods(snapshot),
            job_versions: vec![0; snapshot.jobs.len()],
            journal: Vec::new(),
            changed_nodes: Vec::new(),
            log_start: 0,
            last_change: vec![usize::MAX; nodes.len()],
        }
    }

    /// State of the pod.
    pub fn state(&self, task: TaskId) -> TaskState {
        self.states[task.index()]
    }

    /// Free now, per column.
    pub fn idle(&self, node: NodeId) -> &[i64] {
        self.snapshot.row(&self.idle, node)
    }

    /// Free later, beyond what is free now; negative where more is pipelined than is being released.
    pub fn releasing(&self, node: NodeId) -> &[i64] {
        self.snapshot.row(&self.releasing, node)
    }

    /// Pods of a pod set by state.
    pub fn counts(&self, pod_set: PodSetId) -> PodSetCounts {
        self.counts[pod_set.index()]
    }

    /// Shared GPUs of a node, those without pods included.
    pub fn devices_on(&self, node: NodeId) -> &[DeviceId] {
        &self.node_devices[node.index()]
    }

    /// A shared GPU.
    pub fn device(&self, device: DeviceId) -> &DeviceUsage {
        &self.devices[device.index()]
    }

    /// The shared GPUs of a place.
    pub fn devices_of(&self, placement: Placement) -> &[DeviceId] {
        placement.devices.map_or(&[], |list| &self.device_lists[list as usize])
    }

    /// What a place has beyond amounts and shared GPUs.
    pub fn extras_of(&self, placement: Placement) -> Option<&Extras> {
        placement.extras.map(|at| &self.extras[at as usize])
    }

    /// Remembers what a [`Placement`] has beyond amounts and shared GPUs.
    pub fn keep(&mut self, extras: Extras) -> Option<u32> {
        if extras.is_empty() {
            return None;
        }
        self.extras.push(extras);
        Some(u32::try_from(self.extras.len() - 1).expect("fewer than 2³² placements"))
    }

    /// Whether a pod holds the port, or one that conflicts with it, on the node.
    pub fn port_taken(&self, node: NodeId, port: PortId) -> bool {
        self.snapshot.port_conflicts[port.index()].iter().any(|other| self.ports.contains_key(&(node, *other)))
    }

    /// How many pods of a matcher are in a domain.
    pub fn matching_pods(&self, matcher: PodMatcherId, domain: u32) -> PodCounts {
        self.matches.count_in(matcher, domain)
    }

    /// Domains with pods of a matcher, by number.
    pub fn domains_with_matches(&self, matcher: PodMatcherId) -> impl Iterator<Item = (u32, PodCounts)> + '_ {
        self.matches.domains(matcher)
    }

    /// Changes whenever a pod of the job is shifted.
    pub fn job_version(&self, job: crate::ids::JobId) -> u32 {
        self.job_versions[job.index()]
    }

    /// Generation of the nodes: how often the sums of any node changed.
    pub fn generation(&self) -> usize {
        self.log_start + self.changed_nodes.len()
    }

    /// Nodes whose sums changed since that generation, each once; `None` if that is not known any more.
    pub fn nodes_changed_since(&self, generation: usize) -> Option<impl Iterator<Item = NodeId> + '_> {
        let start = generation.checked_sub(self.log_start)?;
        let recent = self.changed_nodes.iter().enumerate().skip(start);
        let is_last = |(index, node): &(usize, &NodeId)| self.last_change[node.index()] == self.log_start + index;
        Some(recent.filter(is_last).map(|(_, node)| *node))
    }

    fn note_node_change(&mut self, node: NodeId) {
        // A reader this far behind looks at all nodes just as well.
        if self.changed_nodes.len() > 1024 + 4 * self.last_change.len() {
            self.log_start += self.changed_nodes.len();
            self.changed_nodes.clear();
        }
        self.last_change[node.index()] = self.generation();
        self.changed_nodes.push(node);
    }

    /// Whether the pod may be placed: it waits, or, in a what-if, was evicted in the same what-if.
    pub fn is_placeable(&self, task: TaskId, what_if: bool) -> bool {
        match self.states[task.index()] {
            TaskState::Unplaced => match self.snapshot.task(task).status {
                Status::Pending => true,
                // Evicted, and simulated anew.
                Status::Running | Status::Bound | Status::Binding => what_if,
                _ => false,
            },
            TaskState::Releasing(_) => {
                what_if && !self.evicted[task.index()] && self.snapshot.task(task).status != Status::Releasing
            }
            _ => false,
        }
    }

    /// What the pod costs its queue on this node.
    pub fn cost(&self, task: TaskId, node: NodeId) -> ResourceQuantities {
        let shape = self.snapshot.shape(self.snapshot.task(task).shape);
        let mut cost = shape.requested();
        if let GpuAsk::Memory { devices, mib } = shape.gpu {
            let share = compat::memory_to_share(mib, self.snapshot.nodes.device_memory[node.index()]);
            cost.0[2] += share * i64::from(devices);
        }
        cost
    }

    /// Device memory that a shared request takes on each device of this node.
    pub fn memory_on(&self, gpu: GpuAsk, node: NodeId) -> i64 {
        match gpu {
            GpuAsk::Fraction { portion, .. } => {
                compat::share_to_memory(portion, self.snapshot.nodes.device_memory[node.index()])
            }
            GpuAsk::Memory { mib, .. } => mib,
            GpuAsk::None | GpuAsk::Whole | GpuAsk::Mig => 0,
        }
    }

    /// Remembers a list of devices for a [`Placement`].
    pub fn list(&mut self, devices: Vec<DeviceId>) -> u32 {
        self.device_lists.push(devices);
        u32::try_from(self.device_lists.len() - 1).expect("fewer than 2³² placements")
    }

    /// Opens a device that is not shared yet.
    pub fn open_device(&mut self, node: NodeId) -> DeviceId {
        let device = DeviceId::at(self.devices.len());
        self.devices.push(DeviceUsage::new(node));
        self.node_devices[node.index()].push(device);
        device
    }

    /// A point to roll back to.
    pub fn mark(&self) -> Mark {
        Mark {
            journal: self.journal.len(),
            lists: self.device_lists.len(),
            devices: self.devices.len(),
            extras: self.extras.len(),
        }
    }

    /// Changes the state of a pod, and every sum with it.
    pub fn shift(&mut self, task: TaskId, to: TaskState) {
        self.journal.push((task, self.states[task.index()]));
        self.set(task, to);
    }

    /// Undoes everything since the mark.
    pub fn rollback(&mut self, mark: Mark) {
        while self.journal.len() > mark.journal {
            let (task, old) = self.journal.pop().expect("longer than the mark");
            self.set(task, old);
        }
        while self.devices.len() > mark.devices {
            let device = self.devices.pop().expect("more than at the mark");
            self.node_devices[device.node.index()].pop();
        }
        self.device_lists.truncate(mark.lists);
        self.extras.truncate(mark.extras);
    }

    /// Pods shifted since the mark, each once, with where they stood at the mark.
    pub fn changes_since(&self, mark: Mark) -> Vec<(TaskId, TaskState)> {
        let mut seen = std::collections::BTreeSet::new();
        self.journal[mark.journal..].iter().filter(|(task, _)| seen.insert(*task)).copied().collect()
    }

    /// Where the pod stood before it was last shifted.
    pub fn previous(&self, task: TaskId) -> Option<TaskState> {
        self.journal.iter().rev().find(|(shifted, _)| *shifted == task).map(|(_, old)| *old)
    }

    /// Makes everything since the mark final: evicted pods are not placed again in this cycle.
    pub fn commit(&mut self, mark: Mark) {
        for index in mark.journal..self.journal.len() {
            let task = self.journal[index].0;
            self.evicted[task.index()] |= matches!(self.states[task.index()], TaskState::Releasing(_));
        }
    }

    fn set(&mut self, task: TaskId, to: TaskState) {
        let from = std::mem::replace(&mut self.states[task.index()], to);
        self.count(task, from, false);
        self.count(task, to, true);
        self.occupy(task, from, -1);
        self.occupy(task, to, 1);
        let row = self.snapshot.task(task);
        self.job_versions[row.job.index()] = self.job_versions[row.job.index()].wrapping_add(1);
        if let Some(queue) = self.snapshot.job(row.job).queue {
            let amount = self.charged(task, to) - self.charged(task, from);
            if !amount.is_zero() {
                self.queues.charge(queue, amount, self.snapshot.job(row.job).preemptible);
            }
        }
    }

    fn charged(&self, task: TaskId, state: TaskState) -> ResourceQuantities {
        match state {
            TaskState::Allocated(placement)
            | TaskState::Pipelined(placement)
            | TaskState::Moving { to: placement, .. } => self.cost(task, placement.node),
            TaskState::Unplaced
            | TaskState::Releasing(_)
            | TaskState::StuckReleasing(_)
            | TaskState::OutsideSnapshot { .. } => ResourceQuantities::ZERO,
        }
    }

    fn count(&mut self, task: TaskId, state: TaskState, entering: bool) {
        let row = self.snapshot.task(task);
        let counts = &mut self.counts[row.pod_set.index()];
        let counter = match state {
            TaskState::Allocated(_) | TaskState::OutsideSnapshot { releasing: false } => &mut counts.allocated,
            TaskState::Pipelined(_) | TaskState::Moving { .. } => &mut counts.pipelined,
            TaskState::Releasing(_) | TaskState::StuckReleasing(_) | TaskState::OutsideSnapshot { releasing: true } => {
                &mut counts.releasing
            }
            TaskState::Unplaced if row.status == Status::Pending => &mut counts.pending,
            TaskState::Unplaced => return,
        };
        *counter = if entering { *counter + 1 } else { *counter - 1 };
    }

    fn occupy(&mut self, task: TaskId, state: TaskState, sign: i64) {
        match state {
            TaskState::Unplaced | TaskState::OutsideSnapshot { .. } => {}
            TaskState::Allocated(placement) | TaskState::StuckReleasing(placement) => {
                self.hold(task, placement, HoldKind::Allocated, sign);
            }
            TaskState::Pipelined(placement) => self.hold(task, placement, HoldKind::Pipelined, sign),
            TaskState::Releasing(placement) => self.hold(task, placement, HoldKind::Releasing, sign),
            TaskState::Moving { from, to } => {
                self.hold(task, from, HoldKind::Releasing, sign);
                self.hold(task, to, HoldKind::Pipelined, sign);
            }
        }
    }

    fn hold(&mut self, task: TaskId, placement: Placement, kind: HoldKind, sign: i64) {
        let row = self.snapshot.task(task);
        let shape = self.snapshot.shape(row.shape);
        let (idle, releasing) = match kind {
            HoldKind::Allocated => (-sign, 0),
            HoldKind::Pipelined => (0, -sign),
            HoldKind::Releasing => (-sign, sign),
        };
        let start = placement.node.index() * self.snapshot.resources.len();
        // GPUs that come as devices of claims are booked with these devices.
        let granted = placement.extras.map_or(0, |at| self.gpus_granted(&self.extras[at as usize].grants));
        for (column, need) in shape.need.iter().enumerate() {
            let need = if column == GPUS { &(*need - granted).max(0) } else { need };
            // A column that the node does not have is provided in another way, or not at all.
            if *need == 0 || self.snapshot.nodes.allocatable[start + column] == 0 {
                continue;
            }
            if column == GPUS && shape.gpu == GpuAsk::Mig {
                continue;
            }
            self.idle[start + column] += idle * need;
            self.releasing[start + column] += releasing * need;
            let gpus = self.snapshot.resources[column].quota_gpu(*need);
            if gpus != 0 {
                self.free_gpus(placement.node, idle * gpus, releasing * gpus);
            }
        }
        if shape.gpu.shared_devices().is_some()
            && let Some(list) = placement.devices
        {
            let memory = self.memory_on(shape.gpu, placement.node) * sign;
            for index in 0..self.device_lists[list as usize].len() {
                let device = self.device_lists[list as usize][index];
                let device_memory = self.snapshot.nodes.device_memory[placement.node.index()];
                let device = &mut self.devices[device.index()];
                let before = device.parts_free(device_memory);
                let (idle, releasing) = device.load(kind, memory);
                let after = device.parts_free(device_memory);
                self.idle[start + GPUS] += idle;
                self.releasing[start + GPUS] += releasing;
                self.free_gpus(placement.node, idle + after.0 - before.0, releasing + after.1 - before.1);
            }
        }
        if let Some(at) = placement.extras {
            let Extras { zones, grants } = &self.extras[at as usize];
            for share in zones {
                self.zones.load(self.snapshot, placement.node, *share, kind, sign);
            }
            let mut whole = (0, 0);
            for grant in grants {
                let (idle, releasing) = self.claims.load(self.snapshot, task, at, grant, kind, sign);
                whole = (whole.0 + idle, whole.1 + releasing);
            }
            self.idle[start + GPUS] += whole.0;
            self.releasing[start + GPUS] += whole.1;
            self.free_gpus(placement.node, whole.0, whole.1);
        }
        if let Some(set) = row.ports {
            for port in &self.snapshot.port_sets[set as usize] {
                let count = self.ports.entry((placement.node, *port)).or_insert(0);
                *count = if sign > 0 { *count + 1 } else { *count - 1 };
                if *count == 0 {
                    self.ports.remove(&(placement.node, *port));
                }
            }
        }
        if let Some(list) = row.matchers {
            self.matches.count(self.snapshot, list, placement.node, kind, sign);
        }
        if let Some(need) = row.volumes {
            self.volumes.load(self.snapshot, need, placement.node, kind, sign);
        }
        self.note_node_change(placement.node);
    }

    fn free_gpus(&mut self, node: NodeId, idle: i64, releasing: i64) {
        let free = &mut self.gpus_free[node.index()];
        *free = (free.0 + idle, free.1 + releasing);
        if self.snapshot.nodes.ready[node.index()] {
            self.gpus_free_ready += idle + releasing;
        }
    }

    /// The same states booked from nothing: what the running sums must equal.
    #[must_use]
    pub fn recomputed(&self) -> Self {
        let mut fresh = Self::empty(self.snapshot, self.repairs);
        fresh.device_lists.clone_from(&self.device_lists);
        fresh.extras.clone_from(&self.extras);
        fresh.devices = self.devices.iter().map(|device| DeviceUsage::new(device.node)).collect();
        fresh.node_devices.clone_from(&self.node_devices);
        for (index, state) in self.states.iter().enumerate() {
            fresh.set(TaskId::at(index), *state);
        }
        for (fresh, row) in fresh.queues.rows.iter_mut().zip(&self.queues.rows) {
            (fresh.request, fresh.fair_share, fresh.version) = (row.request, row.fair_share, row.version);
        }
        fresh.queues.version = self.queues.version;
        fresh
    }

    /// Panics if a running sum differs from the recomputed one.
    pub fn assert_consistent(&self) {
        let fresh = self.recomputed();
        assert_eq!(self.idle, fresh.idle, "idle amounts drifted");
        assert_eq!(self.releasing, fresh.releasing, "releasing amounts drifted");
        assert_eq!(self.gpus_free, fresh.gpus_free, "free GPUs drifted");
        assert_eq!(self.gpus_free_ready, fresh.gpus_free_ready, "the sum of free GPUs drifted");
        assert_eq!(self.devices, fresh.devices, "shared GPUs drifted");
        assert_eq!(self.counts, fresh.counts, "gang counts drifted");
        assert_eq!(self.ports, fresh.ports, "host ports drifted");
        assert_eq!(self.matches, fresh.matches, "matchers drifted");
        assert_eq!(self.volumes, fresh.volumes, "volumes drifted");
        assert_eq!(self.zones, fresh.zones, "NUMA zones drifted");
        assert_eq!(self.claims, fresh.claims, "claims drifted");
        assert_eq!(self.queues, fresh.queues, "queue counters drifted");
    }

    /// Whole GPUs and parts of shared ones that are free now and later, in millionths: (idle, releasing).
    pub fn gpus_free(&self, node: NodeId) -> (i64, i64) {
        self.gpus_free[node.index()]
    }

    /// The same over all ready nodes, now and later together.
    pub fn gpus_free_ready(&self) -> i64 {
        self.gpus_free_ready
    }
}

fn initial(snapshot: &Snapshot, id: TaskId) -> TaskState {
    let task = snapshot.task(id);
    let placement = task.node.map(|node| Placement { node, devices: task.devices, extras: task.extras });
    match (task.status, placement) {
        (Status::Pending | Status::Gated | Status::Succeeded | Status::FailedOrUnknown, _) => TaskState::Unplaced,
        (Status::Binding | Status::Bound | Status::Running, Some(placement)) => TaskState::Allocated(placement),
        (Status::Pipelined, Some(placement)) => TaskState::Pipelined(placement),
        (Status::Releasing, Some(placement)) => TaskState::Releasing(placement),
        (Status::StuckInReleasing, Some(placement)) => TaskState::StuckReleasing(placement),
        (Status::Binding | Status::Bound | Status::Running | Status::Pipelined, None) => {
            TaskState::OutsideSnapshot { releasing: false }
        }
        (Status::Releasing | Status::StuckInReleasing, None) => TaskState::OutsideSnapshot { releasing: true },
    }
}
