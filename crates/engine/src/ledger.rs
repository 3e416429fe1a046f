//! The working state of a cycle: where every pod stands, and all sums that follow from it.
//!
//! State changes through one function, [`Ledger::shift`]; undo is that same function, backwards. What is free on
//! nodes and devices, what queues hold and how complete gangs are: all are sums over standings, and
//! [`Ledger::recomputed`] computes them from nothing for the tests to compare.

mod claims;
mod crowds;
mod devices;
mod volumes;
mod zones;

use std::collections::BTreeMap;

pub use claims::{Bound, Held};
use crowds::Crowds;
pub use devices::{DeviceLoad, DeviceState};
pub use volumes::Taken;
pub use zones::ZoneShare;

use crate::bonds::Heads;
use crate::ids::{CrowdId, DeviceId, NodeId, PodSetId, PortId, TaskId};
use crate::policy::{Policy, Repairs};
use crate::queues::QueueBook;
use crate::share;
use crate::snapshot::{Extras, GPUS, GpuAsk, Snapshot, Status};
use crate::units::{GPU, Triple, compat};

/// A place on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The node.
    pub node: NodeId,
    /// The shared GPUs there: a list of the ledger, see [`Ledger::devices_of`].
    pub devices: Option<u32>,
    /// What else it has there: an entry of the ledger, see [`Ledger::extras_of`].
    pub extras: Option<u32>,
}

/// Where a pod stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Has no place and holds nothing.
    Waiting,
    /// Holds a place.
    Held(Spot),
    /// Will get a place once it is free.
    Promised(Spot),
    /// Gives up its place.
    Leaving(Spot),
    /// Gives up one place and was promised another.
    Moving {
        /// Where it still is.
        from: Spot,
        /// Where it goes.
        to: Spot,
    },
    /// Should have left long ago; holds a place that nobody can count on.
    Stuck(Spot),
    /// Holds a place outside this snapshot.
    Away {
        /// Whether it is about to leave it.
        leaving: bool,
    },
}

impl Standing {
    /// Runs or will: counts for the gang and may be evicted.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Held(_) | Self::Promised(_) | Self::Moving { .. } | Self::Away { leaving: false })
    }

    /// Where it is, or goes if it moves.
    pub fn spot(self) -> Option<Spot> {
        match self {
            Self::Held(spot) | Self::Promised(spot) | Self::Leaving(spot) | Self::Stuck(spot) => Some(spot),
            Self::Moving { to, .. } => Some(to),
            Self::Waiting | Self::Away { .. } => None,
        }
    }
}

/// How many pods of a pod set stand where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Hold a place.
    pub held: u32,
    /// Were promised a place, moving ones included.
    pub promised: u32,
    /// Give up their place.
    pub leaving: u32,
    /// Wait for a place and may be scheduled.
    pub pending: u32,
}

impl Counts {
    /// Run or will.
    pub fn active(self) -> u32 {
        self.held + self.promised
    }

    /// Run, will, or are about to leave.
    pub fn used(self) -> u32 {
        self.held + self.promised + self.leaving
    }
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
    /// Which of KAI's accidents are repaired.
    pub repairs: Repairs,
    /// Queue counters.
    pub book: QueueBook,
    standings: Vec<Standing>,
    idle: Vec<i64>,
    releasing: Vec<i64>,
    /// GPUs free on each node (now, later), parts of shared ones and MIG slices included, in millionths.
    gpus_free: Vec<(i64, i64)>,
    /// The same summed over ready nodes, now and later together.
    gpus_free_ready: i64,
    devices: Vec<DeviceState>,
    node_devices: Vec<Vec<DeviceId>>,
    device_lists: Vec<Vec<DeviceId>>,
    zones: zones::ZoneBook,
    claims: claims::ClaimBook,
    extras: Vec<Extras>,
    counts: Vec<Counts>,
    /// Evicted for good: not to be placed again in this cycle.
    gone: Vec<bool>,
    ports: BTreeMap<(NodeId, PortId), u32>,
    crowds: Crowds,
    volumes: volumes::VolumeBook,
    job_versions: Vec<u32>,
    journal: Vec<(TaskId, Standing)>,
    /// Nodes whose sums changed lately, in order.
    touched: Vec<NodeId>,
    /// How many touches came before those.
    forgotten: usize,
    /// The last touch of each node.
    last_touch: Vec<usize>,
}

impl<'s> Ledger<'s> {
    /// The state when the cycle begins, fair shares included.
    pub fn open(snapshot: &'s Snapshot, policy: &Policy) -> Self {
        let mut ledger = Self::empty(snapshot, policy.repairs);
        let k_value = policy.proportion.map_or(0, |proportion| proportion.k_value);
        let reference = snapshot.device_memory_range().0;
        for index in 0..snapshot.tasks.len() {
            let id = TaskId::at(index);
            ledger.set(id, initial(snapshot, id));
            let task = snapshot.task(id);
            if task.status == Status::Pending
                && let Some(queue) = snapshot.job(task.job).queue
            {
                let amount = snapshot.shape(task.shape).requested_with_memory(reference);
                ledger.book.ask(queue, amount);
            }
        }
        for row in 0..ledger.book.rows.len() {
            let held = ledger.book.rows[row].allocated;
            ledger.book.rows[row].request += held;
        }
        share::divide_tree(&mut ledger.book, k_value);
        ledger.journal.clear();
        ledger.forgotten += ledger.touched.len();
        ledger.touched.clear();
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
        let mut counts = vec![Counts::default(); snapshot.pod_sets.len()];
        for task in snapshot.tasks.iter().filter(|task| task.status == Status::Pending) {
            counts[task.pod_set.index()].pending += 1;
        }
        let mut idle: Vec<i64> = nodes.allocatable.iter().zip(&nodes.taken).map(|(all, taken)| all - taken).collect();
        let claims = claims::ClaimBook::new(snapshot);
        for node in claims.kept_gpus(snapshot) {
            idle[node.index() * snapshot.columns.len() + GPUS] -= GPU;
        }
        let quota = |node: NodeId, column: &[i64]| -> i64 {
            let row = snapshot.row(column, node).iter().zip(&snapshot.columns);
            row.map(|(amount, column)| column.quota_gpu(*amount)).sum()
        };
        let gpus_free: Vec<_> = nodes.ids().map(|node| (quota(node, &idle), quota(node, &nodes.leaving))).collect();
        let ready = nodes.ids().filter(|node| nodes.ready[node.index()]);
        let gpus_free_ready = ready.map(|node| gpus_free[node.index()].0 + gpus_free[node.index()].1).sum();
        Self {
            snapshot,
            repairs,
            book: QueueBook::new(&snapshot.queues, snapshot.capacity()),
            standings: vec![Standing::Waiting; snapshot.tasks.len()],
            idle,
            releasing: nodes.leaving.clone(),
            gpus_free,
            gpus_free_ready,
            devices: snapshot.devices.iter().map(|device| DeviceState::new(device.node)).collect(),
            node_devices,
            device_lists: snapshot.device_lists.clone(),
            zones: zones::ZoneBook::new(snapshot),
            claims,
            extras: snapshot.extras.clone(),
            counts,
            gone: vec![false; snapshot.tasks.len()],
            ports,
            crowds: Crowds::of_bystanders(snapshot),
            volumes: volumes::VolumeBook::of_bystanders(snapshot),
            job_versions: vec![0; snapshot.jobs.len()],
            journal: Vec::new(),
            touched: Vec::new(),
            forgotten: 0,
            last_touch: vec![usize::MAX; nodes.len()],
        }
    }

    /// Where the pod stands.
    pub fn standing(&self, task: TaskId) -> Standing {
        self.standings[task.index()]
    }

    /// Free now, per column.
    pub fn idle(&self, node: NodeId) -> &[i64] {
        self.snapshot.row(&self.idle, node)
    }

    /// Free later, beyond what is free now; negative where promises exceed what is being released.
    pub fn releasing(&self, node: NodeId) -> &[i64] {
        self.snapshot.row(&self.releasing, node)
    }

    /// Pods of a pod set by standing.
    pub fn counts(&self, pod_set: PodSetId) -> Counts {
        self.counts[pod_set.index()]
    }

    /// Shared GPUs of a node, those without pods included.
    pub fn devices_on(&self, node: NodeId) -> &[DeviceId] {
        &self.node_devices[node.index()]
    }

    /// A shared GPU.
    pub fn device(&self, device: DeviceId) -> &DeviceState {
        &self.devices[device.index()]
    }

    /// The shared GPUs of a place.
    pub fn devices_of(&self, spot: Spot) -> &[DeviceId] {
        spot.devices.map_or(&[], |list| &self.device_lists[list as usize])
    }

    /// What a place has beyond amounts and shared GPUs.
    pub fn extras_of(&self, spot: Spot) -> Option<&Extras> {
        spot.extras.map(|at| &self.extras[at as usize])
    }

    /// Remembers what a [`Spot`] has beyond amounts and shared GPUs.
    pub fn keep(&mut self, extras: Extras) -> Option<u32> {
        if extras.is_empty() {
            return None;
        }
        self.extras.push(extras);
        Some(u32::try_from(self.extras.len() - 1).expect("fewer than 2³² placements"))
    }

    /// How many pods hold the port, or one that conflicts with it, on the node.
    pub fn port_taken(&self, node: NodeId, port: PortId) -> bool {
        self.snapshot.port_conflicts[port.index()].iter().any(|other| self.ports.contains_key(&(node, *other)))
    }

    /// How many pods of a crowd are in a domain.
    pub fn heads(&self, crowd: CrowdId, domain: u32) -> Heads {
        self.crowds.heads(crowd, domain)
    }

    /// Domains with pods of a crowd, by number.
    pub fn crowd(&self, crowd: CrowdId) -> impl Iterator<Item = (u32, Heads)> + '_ {
        self.crowds.domains(crowd)
    }

    /// Changes whenever a pod of the job is shifted.
    pub fn job_version(&self, job: crate::ids::JobId) -> u32 {
        self.job_versions[job.index()]
    }

    /// How often the sums of some node changed.
    pub fn touches(&self) -> usize {
        self.forgotten + self.touched.len()
    }

    /// Nodes whose sums changed since there were so many touches, each once; `None` if that is not known any more.
    pub fn touched_since(&self, touches: usize) -> Option<impl Iterator<Item = NodeId> + '_> {
        let start = touches.checked_sub(self.forgotten)?;
        let recent = self.touched.iter().enumerate().skip(start);
        let is_last = |(index, node): &(usize, &NodeId)| self.last_touch[node.index()] == self.forgotten + index;
        Some(recent.filter(is_last).map(|(_, node)| *node))
    }

    fn touch(&mut self, node: NodeId) {
        // Who asks this late looks at all nodes just as well.
        if self.touched.len() > 1024 + 4 * self.last_touch.len() {
            self.forgotten += self.touched.len();
            self.touched.clear();
        }
        self.last_touch[node.index()] = self.touches();
        self.touched.push(node);
    }

    /// Whether the pod may be given a place: it waits, or, in a what-if, was evicted in the same what-if.
    pub fn is_placeable(&self, task: TaskId, what_if: bool) -> bool {
        match self.standings[task.index()] {
            Standing::Waiting => match self.snapshot.task(task).status {
                Status::Pending => true,
                // Evicted, and imagined to start anew.
                Status::Running | Status::Bound | Status::Binding => what_if,
                _ => false,
            },
            Standing::Leaving(_) => {
                what_if && !self.gone[task.index()] && self.snapshot.task(task).status != Status::Releasing
            }
            _ => false,
        }
    }

    /// What the pod costs its queue on this node.
    pub fn cost(&self, task: TaskId, node: NodeId) -> Triple {
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
            GpuAsk::Share { portion, .. } => {
                compat::share_to_memory(portion, self.snapshot.nodes.device_memory[node.index()])
            }
            GpuAsk::Memory { mib, .. } => mib,
            GpuAsk::None | GpuAsk::Whole | GpuAsk::Mig => 0,
        }
    }

    /// Remembers a list of devices for a [`Spot`].
    pub fn list(&mut self, devices: Vec<DeviceId>) -> u32 {
        self.device_lists.push(devices);
        u32::try_from(self.device_lists.len() - 1).expect("fewer than 2³² placements")
    }

    /// Opens a device that is not shared yet.
    pub fn open_device(&mut self, node: NodeId) -> DeviceId {
        let device = DeviceId::at(self.devices.len());
        self.devices.push(DeviceState::new(node));
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

    /// Changes where a pod stands, and every sum with it.
    pub fn shift(&mut self, task: TaskId, to: Standing) {
        self.journal.push((task, self.standings[task.index()]));
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
    pub fn changes_since(&self, mark: Mark) -> Vec<(TaskId, Standing)> {
        let mut seen = std::collections::BTreeSet::new();
        self.journal[mark.journal..].iter().filter(|(task, _)| seen.insert(*task)).copied().collect()
    }

    /// Where the pod stood before it was last shifted.
    pub fn previous(&self, task: TaskId) -> Option<Standing> {
        self.journal.iter().rev().find(|(shifted, _)| *shifted == task).map(|(_, old)| *old)
    }

    /// Makes everything since the mark final: pods that leave are not placed again in this cycle.
    pub fn settle(&mut self, mark: Mark) {
        for index in mark.journal..self.journal.len() {
            let task = self.journal[index].0;
            self.gone[task.index()] |= matches!(self.standings[task.index()], Standing::Leaving(_));
        }
    }

    fn set(&mut self, task: TaskId, to: Standing) {
        let from = std::mem::replace(&mut self.standings[task.index()], to);
        self.count(task, from, false);
        self.count(task, to, true);
        self.occupy(task, from, -1);
        self.occupy(task, to, 1);
        let row = self.snapshot.task(task);
        self.job_versions[row.job.index()] = self.job_versions[row.job.index()].wrapping_add(1);
        if let Some(queue) = self.snapshot.job(row.job).queue {
            let amount = self.charged(task, to) - self.charged(task, from);
            if !amount.is_zero() {
                self.book.charge(queue, amount, self.snapshot.job(row.job).preemptible);
            }
        }
    }

    fn charged(&self, task: TaskId, standing: Standing) -> Triple {
        match standing {
            Standing::Held(spot) | Standing::Promised(spot) | Standing::Moving { to: spot, .. } => {
                self.cost(task, spot.node)
            }
            Standing::Waiting | Standing::Leaving(_) | Standing::Stuck(_) | Standing::Away { .. } => Triple::ZERO,
        }
    }

    fn count(&mut self, task: TaskId, standing: Standing, entering: bool) {
        let row = self.snapshot.task(task);
        let counts = &mut self.counts[row.pod_set.index()];
        let counter = match standing {
            Standing::Held(_) | Standing::Away { leaving: false } => &mut counts.held,
            Standing::Promised(_) | Standing::Moving { .. } => &mut counts.promised,
            Standing::Leaving(_) | Standing::Stuck(_) | Standing::Away { leaving: true } => &mut counts.leaving,
            Standing::Waiting if row.status == Status::Pending => &mut counts.pending,
            Standing::Waiting => return,
        };
        *counter = if entering { *counter + 1 } else { *counter - 1 };
    }

    fn occupy(&mut self, task: TaskId, standing: Standing, sign: i64) {
        match standing {
            Standing::Waiting | Standing::Away { .. } => {}
            Standing::Held(spot) | Standing::Stuck(spot) => self.hold(task, spot, DeviceLoad::Held, sign),
            Standing::Promised(spot) => self.hold(task, spot, DeviceLoad::Promised, sign),
            Standing::Leaving(spot) => self.hold(task, spot, DeviceLoad::Leaving, sign),
            Standing::Moving { from, to } => {
                self.hold(task, from, DeviceLoad::Leaving, sign);
                self.hold(task, to, DeviceLoad::Promised, sign);
            }
        }
    }

    fn hold(&mut self, task: TaskId, spot: Spot, load: DeviceLoad, sign: i64) {
        let row = self.snapshot.task(task);
        let shape = self.snapshot.shape(row.shape);
        let (idle, releasing) = match load {
            DeviceLoad::Held => (-sign, 0),
            DeviceLoad::Promised => (0, -sign),
            DeviceLoad::Leaving => (-sign, sign),
        };
        let start = spot.node.index() * self.snapshot.columns.len();
        // GPUs that come as devices of claims are booked with these devices.
        let granted = spot.extras.map_or(0, |at| self.gpus_granted(&self.extras[at as usize].grants));
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
            let gpus = self.snapshot.columns[column].quota_gpu(*need);
            if gpus != 0 {
                self.free_gpus(spot.node, idle * gpus, releasing * gpus);
            }
        }
        if shape.gpu.shared_devices().is_some()
            && let Some(list) = spot.devices
        {
            let memory = self.memory_on(shape.gpu, spot.node) * sign;
            for index in 0..self.device_lists[list as usize].len() {
                let device = self.device_lists[list as usize][index];
                let device_memory = self.snapshot.nodes.device_memory[spot.node.index()];
                let device = &mut self.devices[device.index()];
                let before = device.parts_free(device_memory);
                let (idle, releasing) = device.load(load, memory);
                let after = device.parts_free(device_memory);
                self.idle[start + GPUS] += idle;
                self.releasing[start + GPUS] += releasing;
                self.free_gpus(spot.node, idle + after.0 - before.0, releasing + after.1 - before.1);
            }
        }
        if let Some(at) = spot.extras {
            let Extras { zones, grants } = &self.extras[at as usize];
            for share in zones {
                self.zones.load(self.snapshot, spot.node, *share, load, sign);
            }
            let mut whole = (0, 0);
            for grant in grants {
                let (idle, releasing) = self.claims.load(self.snapshot, task, at, grant, load, sign);
                whole = (whole.0 + idle, whole.1 + releasing);
            }
            self.idle[start + GPUS] += whole.0;
            self.releasing[start + GPUS] += whole.1;
            self.free_gpus(spot.node, whole.0, whole.1);
        }
        if let Some(set) = row.ports {
            for port in &self.snapshot.port_sets[set as usize] {
                let count = self.ports.entry((spot.node, *port)).or_insert(0);
                *count = if sign > 0 { *count + 1 } else { *count - 1 };
                if *count == 0 {
                    self.ports.remove(&(spot.node, *port));
                }
            }
        }
        if let Some(list) = row.crowds {
            self.crowds.count(self.snapshot, list, spot.node, load, sign);
        }
        if let Some(need) = row.volumes {
            self.volumes.load(self.snapshot, need, spot.node, load, sign);
        }
        self.touch(spot.node);
    }

    fn free_gpus(&mut self, node: NodeId, idle: i64, releasing: i64) {
        let free = &mut self.gpus_free[node.index()];
        *free = (free.0 + idle, free.1 + releasing);
        if self.snapshot.nodes.ready[node.index()] {
            self.gpus_free_ready += idle + releasing;
        }
    }

    /// The same standings booked from nothing: what the running sums must equal.
    #[must_use]
    pub fn recomputed(&self) -> Self {
        let mut fresh = Self::empty(self.snapshot, self.repairs);
        fresh.device_lists.clone_from(&self.device_lists);
        fresh.extras.clone_from(&self.extras);
        fresh.devices = self.devices.iter().map(|device| DeviceState::new(device.node)).collect();
        fresh.node_devices.clone_from(&self.node_devices);
        for (index, standing) in self.standings.iter().enumerate() {
            fresh.set(TaskId::at(index), *standing);
        }
        for (fresh, row) in fresh.book.rows.iter_mut().zip(&self.book.rows) {
            (fresh.request, fresh.fair_share, fresh.version) = (row.request, row.fair_share, row.version);
        }
        fresh.book.version = self.book.version;
        fresh
    }

    /// Panics if a running sum differs from the recomputed one.
    pub fn assert_consistent(&self) {
        let fresh = self.recomputed();
        assert_eq!(self.idle, fresh.idle, "idle amounts drifted");
        assert_eq!(self.releasing, fresh.releasing, "releasing amounts drifted");
        assert_eq!(self.gpus_free, fresh.gpus_free, "free GPUs drifted");
        assert_eq!(self.gpus_free_ready, fresh.gpus_free_ready, "the sum of free GPUs drifted");
        assert_eq!(self.devices, fresh.devices, "device loads drifted");
        assert_eq!(self.counts, fresh.counts, "gang counts drifted");
        assert_eq!(self.ports, fresh.ports, "host ports drifted");
        assert_eq!(self.crowds, fresh.crowds, "crowds drifted");
        assert_eq!(self.volumes, fresh.volumes, "volumes drifted");
        assert_eq!(self.zones, fresh.zones, "NUMA zones drifted");
        assert_eq!(self.claims, fresh.claims, "claims drifted");
        assert_eq!(self.book, fresh.book, "queue counters drifted");
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

fn initial(snapshot: &Snapshot, id: TaskId) -> Standing {
    let task = snapshot.task(id);
    let spot = task.node.map(|node| Spot { node, devices: task.devices, extras: task.extras });
    match (task.status, spot) {
        (Status::Pending | Status::Gated | Status::Succeeded | Status::Gone, _) => Standing::Waiting,
        (Status::Binding | Status::Bound | Status::Running, Some(spot)) => Standing::Held(spot),
        (Status::Pipelined, Some(spot)) => Standing::Promised(spot),
        (Status::Releasing, Some(spot)) => Standing::Leaving(spot),
        (Status::StuckInReleasing, Some(spot)) => Standing::Stuck(spot),
        (Status::Binding | Status::Bound | Status::Running | Status::Pipelined, None) => {
            Standing::Away { leaving: false }
        }
        (Status::Releasing | Status::StuckInReleasing, None) => Standing::Away { leaving: true },
    }
}
