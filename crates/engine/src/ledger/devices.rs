//! Shared GPUs: how much of a device is taken, and what that means for whole devices of its node.

use crate::ids::NodeId;
use crate::units::{GPU, compat};

/// How a pod holds what it occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HoldKind {
    /// Holds it.
    Allocated,
    /// Gets it once others have released it.
    Pipelined,
    /// Gives it up.
    Releasing,
}

/// What is used of a shared GPU, in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceUsage {
    /// The node it is in.
    pub node: NodeId,
    /// By pods that hold it.
    pub allocated: i64,
    /// By pipelined pods.
    pub pipelined: i64,
    /// By pods that give it up.
    pub releasing: i64,
}

impl DeviceUsage {
    /// An unused device.
    pub fn new(node: NodeId) -> Self {
        Self { node, allocated: 0, pipelined: 0, releasing: 0 }
    }

    /// Used by any pod, pipelined ones included.
    pub fn used(&self) -> i64 {
        self.allocated + self.pipelined + self.releasing
    }

    /// Used now.
    pub fn taken(&self) -> i64 {
        self.allocated + self.releasing
    }

    /// Whether `memory` more fits beside the pods that stay. A device whose pods are all being released is offered as a
    /// whole one.
    pub fn fits(&self, memory: i64, device_memory: i64) -> bool {
        self.allocated + self.pipelined > 0 && self.allocated + self.pipelined + memory <= device_memory
    }

    /// Whether `memory` more fits right now.
    pub fn fits_now(&self, memory: i64, device_memory: i64) -> bool {
        self.taken() > 0 && self.taken() + memory <= device_memory
    }

    /// Adds to a load and says how many whole devices of the node thereby become (idle, releasing).
    pub(super) fn load(&mut self, kind: HoldKind, memory: i64) -> (i64, i64) {
        let before = self.whole();
        match kind {
            HoldKind::Allocated => self.allocated += memory,
            HoldKind::Pipelined => self.pipelined += memory,
            HoldKind::Releasing => self.releasing += memory,
        }
        let after = self.whole();
        (after.0 - before.0, after.1 - before.1)
    }

    /// What the device contributes to its node's whole GPUs, idle and releasing.
    fn whole(&self) -> (i64, i64) {
        whole_gpus(self.allocated > 0, self.pipelined > 0, self.releasing > 0)
    }

    /// Parts of the device that are free (now, later), in millionths of a GPU; a whole free device is not a part.
    pub(super) fn parts_free(&self, device_memory: i64) -> (i64, i64) {
        let share = |memory: i64| compat::memory_to_share(memory, device_memory);
        let idle = if self.taken() > 0 { GPU - share(self.taken()) } else { 0 };
        let freeing = self.releasing - self.pipelined;
        let entirely = self.allocated == 0 && self.pipelined == 0;
        let releasing = if freeing > 0 && !entirely { share(freeing) } else { 0 };
        (idle, releasing)
    }
}

/// What a device with such pods contributes to its node's whole GPUs, idle and releasing: a device in use is not idle, one
/// whose pods are all being released is releasing, one with pipelined pods only takes a releasing one.
pub(super) fn whole_gpus(allocated: bool, pipelined: bool, releasing: bool) -> (i64, i64) {
    let idle = if allocated || releasing { -GPU } else { 0 };
    let later = match (allocated, releasing, pipelined) {
        (false, true, false) => GPU,
        (false, false, true) => -GPU,
        _ => 0,
    };
    (idle, later)
}
