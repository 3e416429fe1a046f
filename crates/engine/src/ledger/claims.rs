//! Which pods use which claim, and thereby which devices. A claim has one allocation at a time for pods that stay; pods
//! that are being released may still hold another.

use std::collections::BTreeSet;

use super::devices::whole_gpus;
use super::{HoldKind, Ledger, PodCounts};
use crate::ids::{ClaimId, NodeId, TaskId};
use crate::snapshot::{Allocation, Grant, Snapshot};
use crate::units::GPU;

/// Users of claims and of their devices; sums over states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClaimUsage {
    /// By claim: its pods, how they hold it, and the entry of the ledger with what they have.
    users: Vec<BTreeSet<(TaskId, HoldKind, u32)>>,
    /// By device: how many pods use it. A claim that is held externally counts as a pod.
    devices: Vec<PodCounts>,
}

/// Which allocation a pod must or may use for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimState<'a> {
    /// This one: a pod that stays uses it.
    InUse(AllocationRef<'a>),
    /// All its users are being released: it can be taken over, or given up for another once they are gone.
    BeingReleased(AllocationRef<'a>),
    /// None yet.
    Unallocated,
}

/// Where an allocation is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationRef<'a> {
    /// From before the cycle.
    Before(&'a Allocation),
    /// With a pod.
    By(&'a Grant),
}

impl ClaimUsage {
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let claims = &snapshot.claims;
        let mut usage = Self {
            users: vec![BTreeSet::new(); claims.claims.len()],
            devices: vec![PodCounts::default(); claims.devices.len()],
        };
        for claim in claims.claims.iter().filter(|claim| claim.held_externally) {
            for pick in claim.allocated.iter().flat_map(|allocation| &allocation.picks).filter(|pick| !pick.admin) {
                usage.devices[pick.device as usize].allocated += 1;
            }
        }
        usage
    }

    /// Whole GPUs of nodes that are not idle because of claims that are held externally.
    pub(super) fn externally_held_gpus<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = NodeId> + 'a {
        let devices = self.devices.iter().zip(&snapshot.claims.devices);
        devices.filter(|(pods, _)| pods.allocated > 0).filter_map(|(_, device)| device.gpu_of)
    }

    /// Books a grant; answers with what whole GPUs of the node thereby become: (idle, releasing).
    pub(super) fn load(
        &mut self,
        snapshot: &Snapshot,
        task: TaskId,
        at: u32,
        grant: &Grant,
        kind: HoldKind,
        sign: i64,
    ) -> (i64, i64) {
        let users = &mut self.users[grant.claim.index()];
        if sign > 0 {
            users.insert((task, kind, at));
        } else {
            users.remove(&(task, kind, at));
        }
        let mut whole = (0, 0);
        for pick in grant.picks.iter().filter(|pick| !pick.admin) {
            let pods = &mut self.devices[pick.device as usize];
            let before = whole_gpus_of(*pods);
            pods.count(kind, sign);
            if snapshot.claims.devices[pick.device as usize].gpu_of.is_some() {
                let after = whole_gpus_of(*pods);
                whole = (whole.0 + after.0 - before.0, whole.1 + after.1 - before.1);
            }
        }
        whole
    }
}

fn whole_gpus_of(pods: PodCounts) -> (i64, i64) {
    whole_gpus(pods.allocated > 0, pods.pipelined > 0, pods.releasing > 0)
}

impl Ledger<'_> {
    /// How many pods use a device.
    pub fn claim_device(&self, device: u32) -> PodCounts {
        self.claims.devices[device as usize]
    }

    /// Which allocation of the claim the pod must or may use, whatever it holds itself while it leaves.
    pub fn claim_state(&self, claim: ClaimId, task: TaskId) -> ClaimState<'_> {
        let row = &self.snapshot.claims.claims[claim.index()];
        let users = &self.claims.users[claim.index()];
        let granted = |at: u32| {
            let grants = self.extras[at as usize].grants.iter();
            grants.into_iter().find(|grant| grant.claim == claim).expect("a user of a claim was granted it")
        };
        if let Some(allocation) = row.allocated.as_ref().filter(|_| row.held_externally) {
            return ClaimState::InUse(AllocationRef::Before(allocation));
        }
        let stays = |(user, kind, _): &&(TaskId, HoldKind, u32)| *user != task && *kind != HoldKind::Releasing;
        if let Some((_, _, at)) = users.iter().find(stays) {
            return ClaimState::InUse(AllocationRef::By(granted(*at)));
        }
        if let Some((_, _, at)) = users.iter().find(|(_, kind, _)| *kind == HoldKind::Releasing) {
            return ClaimState::BeingReleased(AllocationRef::By(granted(*at)));
        }
        ClaimState::Unallocated
    }

    /// Amount of GPUs in a pod's request that it gets as devices of claims, at a place with these grants.
    pub(super) fn gpus_granted(&self, grants: &[Grant]) -> i64 {
        let claims = &self.snapshot.claims;
        let is_gpu = |device: u32| claims.devices[device as usize].gpu_of.is_some();
        let given = |grant: &Grant| grant.picks.iter().filter(|pick| is_gpu(pick.device)).count() as i64;
        let counted = |grant: &Grant| {
            let count = claims.claims[grant.claim.index()].gpus_counted;
            count.map_or_else(|| given(grant), i64::from)
        };
        grants.iter().map(counted).sum::<i64>() * GPU
    }
}
