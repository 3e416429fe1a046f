//! Which devices the claims of a pod would be given on a node.
//!
//! All claims of a pod are tried together. Devices are tried in order and the first solution counts, as in Kubernetes'
//! structured allocator; devices for one request are only taken in ascending order, which finds the same solution
//! without trying permutations. The search is bounded by steps.

use crate::ids::{ClaimId, NodeId, TaskId};
use crate::ledger::{AllocationRef, ClaimState, Ledger, When};
use crate::outcome::ClaimObstacle;
use crate::snapshot::{AllocationMode, ClaimAsk, Claims, Grant, Pick, SubRequest};

/// Devices looked at for one pod on one node; far more than any solution needs that is found at all.
const STEPS_MAX: u32 = 20_000;

/// Most devices that one claim can be given, as in the API.
pub const DEVICES_PER_CLAIM_MAX: usize = 32;

/// Devices for each claim of a pod, and whether they are free right now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimChoice {
    /// One per claim, in the pod's order.
    pub grants: Vec<Grant>,
    /// Whether they are free now.
    pub now: bool,
}

/// Whether the node could serve all claims of the pod, now or later.
pub fn fits(ledger: &Ledger<'_>, task: TaskId, node: NodeId) -> bool {
    ledger.snapshot.task(task).claims.is_none() || choose(ledger, task, node, When::Later).is_ok()
}

/// Chooses devices on the node.
pub fn choose(ledger: &Ledger<'_>, task: TaskId, node: NodeId, when: When) -> Result<ClaimChoice, ClaimObstacle> {
    let claims = &ledger.snapshot.claims;
    let Some(list) = ledger.snapshot.task(task).claims else {
        return Ok(ClaimChoice { grants: Vec::new(), now: true });
    };
    let list = &claims.lists[list as usize];
    let mut now = true;
    let mut grants = Vec::with_capacity(list.len());
    let mut open = Vec::new();
    let mut passed_on = Vec::new();
    for claim in list {
        let grant = |held: AllocationRef<'_>| Grant { claim: *claim, picks: picks(held).to_vec() };
        match ledger.claim_state(*claim, task) {
            ClaimState::InUse(held) if usable_from(claims, held, node) => grants.push(grant(held)),
            ClaimState::InUse(_) => return Err(ClaimObstacle::Elsewhere(*claim)),
            ClaimState::BeingReleased(held) if usable_from(claims, held, node) && passes_on(ledger, held) => {
                passed_on.extend(picks(held).iter().filter(|pick| !pick.admin).map(|pick| pick.device));
                grants.push(grant(held));
            }
            bound => {
                // The claim must be given up first.
                now &= bound == ClaimState::Unallocated;
                open.push((*claim, grants.len()));
                grants.push(Grant { claim: *claim, picks: Vec::new() });
            }
        }
    }
    if !open.is_empty() {
        let (open_requests, taken) = (Vec::new(), Vec::new());
        let mut search = DeviceSearch { ledger, claims, node, when, passed_on, open_requests, taken, steps: STEPS_MAX };
        search.list_requests(&open)?;
        if !search.allocate_request(0)? {
            return Err(ClaimObstacle::Devices(open[0].0));
        }
        for TakenDevice { claim, pick } in search.taken {
            grants[claim].picks.push(pick);
        }
    }
    Ok(ClaimChoice { grants, now })
}

fn picks(held: AllocationRef<'_>) -> &[Pick] {
    match held {
        AllocationRef::Before(allocation) => &allocation.picks,
        AllocationRef::By(grant) => &grant.picks,
    }
}

fn usable_from(claims: &Claims, held: AllocationRef<'_>, node: NodeId) -> bool {
    let contains = |set: u32| claims.node_sets[set as usize].contains(node.index());
    match held {
        AllocationRef::Before(allocation) => allocation.nodes.is_none_or(contains),
        AllocationRef::By(grant) => {
            // An allocation from before the cycle names its own nodes.
            let before = claims.claims[grant.claim.index()].allocated.as_ref();
            match before.filter(|before| before.picks == grant.picks) {
                Some(before) => before.nodes.is_none_or(contains),
                None => grant.picks.iter().all(|pick| contains(claims.devices[pick.device as usize].nodes)),
            }
        }
    }
}

/// Whether none of the devices, which are being released, was assigned to another pod.
fn passes_on(ledger: &Ledger<'_>, held: AllocationRef<'_>) -> bool {
    picks(held).iter().all(|pick| pick.admin || is_free(ledger, pick.device, When::Later))
}

fn is_free(ledger: &Ledger<'_>, device: u32, when: When) -> bool {
    let pods = ledger.claim_device(device);
    match when {
        When::Now => pods.all() == 0,
        When::Later => pods.staying() == 0,
    }
}

/// A device taken so far, for the grant at this position.
struct TakenDevice {
    claim: usize,
    pick: Pick,
}

/// A request that must be met.
struct OpenRequest<'a> {
    /// Position of the grant.
    claim: usize,
    id: ClaimId,
    ask: &'a ClaimAsk,
    request: u32,
    alternatives: &'a [SubRequest],
}

struct DeviceSearch<'a, 's> {
    ledger: &'a Ledger<'s>,
    claims: &'a Claims,
    node: NodeId,
    when: When,
    /// Devices that other claims of the pod take over.
    passed_on: Vec<u32>,
    open_requests: Vec<OpenRequest<'a>>,
    taken: Vec<TakenDevice>,
    steps: u32,
}

impl<'a> DeviceSearch<'a, '_> {
    /// Lists the requests that count here; refuses where one alone cannot be met.
    fn list_requests(&mut self, open: &[(ClaimId, usize)]) -> Result<(), ClaimObstacle> {
        for (id, claim) in open {
            let ask = &self.claims.asks[self.claims.claims[id.index()].ask as usize];
            for (request, row) in ask.requests.iter().enumerate() {
                let counts = |set: u32| self.claims.node_sets[set as usize].contains(self.node.index());
                if row.nodes.is_none_or(counts) {
                    let unit = OpenRequest {
                        claim: *claim,
                        id: *id,
                        ask,
                        request: request as u32,
                        alternatives: &row.alternatives,
                    };
                    let possible = unit.alternatives.iter().any(|alternative| self.possible(alternative));
                    if !possible {
                        return Err(self.failing_selector(&unit).unwrap_or(ClaimObstacle::Devices(*id)));
                    }
                    self.open_requests.push(unit);
                }
            }
        }
        Ok(())
    }

    /// Whether enough devices are free, were it alone. A device on which the selector fails may be among them.
    fn possible(&self, alternative: &SubRequest) -> bool {
        let selection = &self.claims.selector_matches[alternative.selection as usize];
        let free = |device: &u32| alternative.admin || is_free(self.ledger, *device, self.when);
        let mut devices = self.here().iter().filter(|device| selection.matching.contains(**device as usize)).peekable();
        match alternative.mode {
            AllocationMode::ExactCount(count) => {
                devices.filter(|device| free(device)).take(count as usize).count() == count as usize
            }
            AllocationMode::All => {
                !self.claims.incomplete_pools.contains(self.node.index())
                    && devices.peek().is_some()
                    && devices.all(free)
            }
        }
    }

    /// The selector that fails on a device of this node, if one does.
    fn failing_selector(&self, unit: &OpenRequest<'_>) -> Option<ClaimObstacle> {
        unit.alternatives
            .iter()
            .find(|alternative| self.fails_here(alternative))
            .map(|alternative| ClaimObstacle::Selector(alternative.selection))
    }

    fn fails_here(&self, alternative: &SubRequest) -> bool {
        let failing = &self.claims.selector_matches[alternative.selection as usize].failing;
        self.here().iter().any(|device| failing.contains(*device as usize))
    }

    /// Devices that the node reaches, in order.
    fn here(&self) -> &'a [u32] {
        self.claims.devices_by_node.get(self.node.index()).map_or(&[], Vec::as_slice)
    }

    /// Meets this request and all that follow.
    fn allocate_request(&mut self, at: usize) -> Result<bool, ClaimObstacle> {
        let Some(unit) = self.open_requests.get(at) else { return Ok(true) };
        for index in 0..unit.alternatives.len() {
            let alternative = self.open_requests[at].alternatives[index];
            let met = match alternative.mode {
                AllocationMode::ExactCount(count) => self.allocate_count(at, index as u32, alternative, count, 0)?,
                AllocationMode::All => self.allocate_all(at, index as u32, alternative)?,
            };
            if met {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes `left` more devices from this one on, then meets the requests that follow.
    fn allocate_count(
        &mut self,
        at: usize,
        index: u32,
        alternative: SubRequest,
        left: u32,
        from: usize,
    ) -> Result<bool, ClaimObstacle> {
        if left == 0 {
            return self.allocate_request(at + 1);
        }
        let selection = &self.claims.selector_matches[alternative.selection as usize];
        for (position, device) in self.here().iter().copied().enumerate().skip(from) {
            if !self.is_open(alternative, device) {
                continue;
            }
            if selection.failing.contains(device as usize) {
                return Err(ClaimObstacle::Selector(alternative.selection));
            }
            if selection.matching.contains(device as usize) && self.take(at, index, alternative.admin, device)? {
                if self.allocate_count(at, index, alternative, left - 1, position + 1)? {
                    return Ok(true);
                }
                self.taken.pop();
            }
        }
        Ok(false)
    }

    /// Takes every device that matches, then meets the requests that follow.
    fn allocate_all(&mut self, at: usize, index: u32, alternative: SubRequest) -> Result<bool, ClaimObstacle> {
        if self.claims.incomplete_pools.contains(self.node.index()) {
            return Ok(false);
        }
        if self.fails_here(&alternative) {
            return Err(ClaimObstacle::Selector(alternative.selection));
        }
        let matching = &self.claims.selector_matches[alternative.selection as usize].matching;
        let before = self.taken.len();
        let mut met = false;
        for device in self.here().iter().copied().filter(|device| matching.contains(*device as usize)) {
            met = self.is_open(alternative, device) && self.take(at, index, alternative.admin, device)?;
            if !met {
                break;
            }
        }
        if met && self.allocate_request(at + 1)? {
            return Ok(true);
        }
        self.taken.truncate(before);
        Ok(false)
    }

    /// Whether the device is free, and not taken by this very search.
    fn is_open(&self, alternative: SubRequest, device: u32) -> bool {
        alternative.admin
            || is_free(self.ledger, device, self.when)
                && !self.passed_on.contains(&device)
                && !self.taken.iter().any(|taken| taken.pick.device == device && !taken.pick.admin)
    }

    /// Takes a device unless that would violate a match attribute or the claim would get too many.
    fn take(&mut self, at: usize, alternative: u32, admin: bool, device: u32) -> Result<bool, ClaimObstacle> {
        let unit = &self.open_requests[at];
        if self.steps == 0 {
            return Err(ClaimObstacle::Steps(unit.id));
        }
        self.steps -= 1;
        let mates = || self.taken.iter().filter(|taken| taken.claim == unit.claim).map(|taken| taken.pick);
        if mates().count() == DEVICES_PER_CLAIM_MAX {
            return Ok(false);
        }
        for constraint in unit.ask.match_attributes.iter().filter(|all| all.concerns(unit.request, alternative)) {
            let values = &self.claims.attributes[constraint.attribute as usize];
            let Some(value) = values[device as usize] else { return Ok(false) };
            let concerned = |pick: &Pick| constraint.concerns(pick.request, pick.alternative);
            if mates().filter(concerned).any(|pick| values[pick.device as usize] != Some(value)) {
                return Ok(false);
            }
        }
        let pick = Pick { request: unit.request, alternative, device, admin };
        self.taken.push(TakenDevice { claim: unit.claim, pick });
        Ok(true)
    }
}
