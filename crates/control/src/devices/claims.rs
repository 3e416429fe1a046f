//! Claims of pods in numbers: who uses which, what each holds, how many GPUs that is.

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;
use kai_engine::ids::ClaimId;
use kai_engine::snapshot::{Allocation, Claim, ClaimAsk, Grant, Pick};

use super::faults::ClaimFault;
use super::inventory::{Inventory, position};
use crate::key::Key;
use crate::objects::{
    AllocatedDevice, ClaimAllocation, ClaimSpec, DeviceAlternative, DeviceRequest, ResourceClaim, Resources,
};

/// Pods that one claim can be reserved for, as in the API.
const CONSUMERS_MAX: usize = 256;

/// A pod of a job, as far as claims are concerned.
pub struct Consumer<'w> {
    pub namespace: &'w str,
    pub uid: &'w str,
    /// The queue of its job.
    pub queue: &'w str,
    pub refs: Vec<ClaimRef<'w>>,
    /// Whether it has a place on a node.
    pub placed: bool,
    /// Devices that a bind in flight gives it, by its own names for claims.
    pub decided: &'w [(String, ClaimAllocation)],
    /// Extended resources that devices may have to provide, by container.
    pub extended: Option<Extended>,
}

/// A claim as a pod names it.
pub struct ClaimRef<'w> {
    pub name: &'w str,
    /// The claim; `None` while it has not been made from its template.
    pub claim: Option<&'w str>,
    /// Made from a template, for this pod alone.
    pub own: bool,
}

/// A pod's requests for extended resources that device classes provide on nodes that have none of them otherwise.
pub struct Extended {
    pub spec: ClaimSpec,
    /// By request of the claim: nodes on which it counts.
    pub nodes: Vec<FixedBitSet>,
    /// The claim that was made for it when the pod was bound.
    pub made: Option<Key>,
}

/// What claims mean for a pod.
#[derive(Clone, Debug, Default)]
pub struct Consumed {
    /// Its list of claims.
    pub list: Option<u32>,
    /// What it holds.
    pub grants: Vec<Grant>,
    /// GPUs that its request counts for claims that only it uses, at least.
    pub gpus: u32,
    /// GPUs that it costs its queue; a claim is counted with one of its pods.
    pub quota_gpus: u32,
    /// Whether it needs a GPU for any of them.
    pub needs_gpu: bool,
    /// Why it cannot be scheduled.
    pub fault: Option<ClaimFault>,
}

/// Turns claims into rows of the inventory.
pub struct ClaimTranslator<'a, 'w> {
    inventory: &'a mut Inventory<'w>,
    claims: &'w BTreeMap<Key, ResourceClaim>,
    queue_label: &'a str,
    /// Pods that a claim is or may be reserved for, where others than those it has may come.
    reserved_counts: BTreeMap<Key, usize>,
    known: BTreeMap<Key, Result<ClaimId, ClaimFault>>,
    /// What is behind each number, for those who write allocations down.
    pub sources: Vec<ClaimSource<'w>>,
}

/// What is behind the number of a claim.
pub enum ClaimSource<'w> {
    /// A claim of the cluster.
    Claim(&'w ResourceClaim),
    /// One that is yet to be made for extended resources.
    Extended(ClaimSpec),
}

impl<'a, 'w> ClaimTranslator<'a, 'w> {
    pub fn new(
        inventory: &'a mut Inventory<'w>,
        claims: &'w BTreeMap<Key, ResourceClaim>,
        queue_label: &'a str,
    ) -> Self {
        Self {
            inventory,
            claims,
            queue_label,
            reserved_counts: BTreeMap::new(),
            known: BTreeMap::new(),
            sources: Vec::new(),
        }
    }

    /// Adds the claims of all pods, and those that hold devices for other consumers. The results are in the order of the pods.
    pub fn add(&mut self, consumers: Vec<Consumer<'w>>) -> Vec<Consumed> {
        let users = Users::count(&consumers, self.claims);
        let mut consumed = Vec::new();
        let mut counted = BTreeSet::new();
        // Pods that run come first: a claim that is in use is counted where it is used.
        let mut order: Vec<usize> = (0..consumers.len()).collect();
        order.sort_by_key(|index| !consumers[*index].placed);
        consumed.resize_with(consumers.len(), Consumed::default);
        for index in order {
            consumed[index] = self.consume(&consumers[index], &users, &mut counted);
        }
        for (index, consumer) in consumers.into_iter().enumerate() {
            if let Some(extended) = consumer.extended {
                self.extend(consumer.placed, extended, &mut consumed[index]);
            }
        }
        for (key, claim) in self.claims {
            if claim.allocation.is_some() {
                // Others may hold it; a fault only matters to those who want to use it.
                let _ = self.claim(key, &users);
            }
        }
        consumed
    }

    fn consume(&mut self, consumer: &Consumer<'w>, users: &Users<'w>, counted: &mut BTreeSet<Key>) -> Consumed {
        let mut result = Consumed::default();
        let mut list = Vec::new();
        for claim_ref in &consumer.refs {
            let key = match self.resolve(consumer, claim_ref) {
                Ok(key) => key,
                Err(fault) => {
                    result.fault.get_or_insert(fault);
                    continue;
                }
            };
            let claim = &self.claims[&key];
            if !claim.extended {
                let (least, most) = claim.spec.gpus();
                result.needs_gpu |= most > 0;
                if !users.shared.contains(&key) {
                    result.gpus = result.gpus.saturating_add(least);
                }
                if counted.insert(key.clone()) {
                    result.quota_gpus = result.quota_gpus.saturating_add(most);
                }
            }
            match self.claim(&key, users) {
                Err(fault) => _ = result.fault.get_or_insert(fault),
                Ok(id) => {
                    list.push(id);
                    if consumer.placed {
                        let held = self.held(id, claim, consumer, claim_ref.name);
                        result.grants.extend(held);
                    }
                }
            }
        }
        if !list.is_empty() {
            result.list = Some(self.list(list));
        }
        result
    }

    /// The claim behind a name, unless something about it keeps the pod from being scheduled.
    fn resolve(&mut self, consumer: &Consumer<'_>, claim_ref: &ClaimRef<'_>) -> Result<Key, ClaimFault> {
        let Some(name) = claim_ref.claim else {
            return Err(ClaimFault::NotCreated { name: claim_ref.name.to_owned() });
        };
        let key = Key::new(consumer.namespace, name);
        let Some(claim) = self.claims.get(&key) else { return Err(ClaimFault::Missing { claim: key.to_string() }) };
        if consumer.placed {
            return Ok(key);
        }
        if !claim.reserved_for.iter().any(|(_, uid)| uid == consumer.uid) {
            // Seats are given out in the order in which pods come.
            let reserved_counts = self.reserved_counts.entry(key.clone()).or_insert(claim.reserved_for.len());
            if *reserved_counts >= CONSUMERS_MAX {
                return Err(ClaimFault::TooManyConsumers { claim: key.to_string() });
            }
            *reserved_counts += 1;
        }
        if !claim_ref.own && claim.spec.gpus().1 > 0 {
            let label = self.queue_label.to_owned();
            match claim.labels.get(self.queue_label) {
                Some(queue) if queue == consumer.queue => {}
                Some(queue) => {
                    return Err(ClaimFault::WrongQueueLabel {
                        claim: key.to_string(),
                        key: label,
                        expected: consumer.queue.to_owned(),
                        found: queue.clone(),
                    });
                }
                None => return Err(ClaimFault::NoQueueLabel { claim: key.to_string(), key: label }),
            }
        }
        Ok(key)
    }

    /// The row of a claim.
    fn claim(&mut self, key: &Key, users: &Users<'w>) -> Result<ClaimId, ClaimFault> {
        if let Some(known) = self.known.get(key) {
            return known.clone();
        }
        let claim = &self.claims[key];
        let allocation = claim.allocation.as_ref().or_else(|| users.decided.get(key).copied());
        let made = match self.inventory.ask(&key.to_string(), &claim.spec) {
            Ok(ask) => Ok(ask),
            // What is allocated needs no class any more.
            Err(_) if allocation.is_some() => Ok(ClaimAsk { requests: Vec::new(), match_attributes: Vec::new() }),
            Err(fault) => Err(fault),
        };
        let id = made.map(|ask| {
            let allocated = allocation.map(|allocation| self.allocated(&claim.spec, allocation));
            let held_externally = allocated.is_some() && !users.held_by_pods_alone(key, claim);
            let counted = if users.shared.contains(key) || claim.extended { 0 } else { claim.spec.gpus().0 };
            self.push(
                ask,
                Claim { ask: 0, allocated, held_externally, gpus_counted: Some(counted) },
                ClaimSource::Claim(claim),
            )
        });
        self.known.insert(key.clone(), id.clone());
        id
    }

    fn push(&mut self, ask: ClaimAsk, claim: Claim, written: ClaimSource<'w>) -> ClaimId {
        let claims = &mut self.inventory.claims;
        let asks = &mut claims.asks;
        // Claims from one template are neighbours more often than not.
        let at = asks.iter().rposition(|known| *known == ask).unwrap_or_else(|| {
            asks.push(ask);
            asks.len() - 1
        });
        claims.claims.push(Claim { ask: u32::try_from(at).expect("distinct claims are few"), ..claim });
        self.sources.push(written);
        ClaimId::at(self.inventory.claims.claims.len() - 1)
    }

    fn allocated(&mut self, spec: &ClaimSpec, allocation: &ClaimAllocation) -> Allocation {
        let mut picks: Vec<Pick> = allocation.results.iter().filter_map(|result| self.pick(spec, result)).collect();
        picks.sort_unstable();
        picks.dedup();
        let nodes = allocation.nodes.as_ref().map(|terms| self.inventory.nodes_with(terms));
        Allocation { picks, nodes }
    }

    fn pick(&self, spec: &ClaimSpec, result: &AllocatedDevice) -> Option<Pick> {
        // A device that has left its pool cannot be allocated.
        let device = self.inventory.device(&result.driver, &result.pool, &result.device)?;
        let (request, alternative) = position(spec, &result.request).unwrap_or((0, None));
        Some(Pick { request, alternative: alternative.unwrap_or(0), device, admin: result.admin })
    }

    /// What a placed pod holds of a claim.
    fn held(&mut self, id: ClaimId, claim: &ResourceClaim, consumer: &Consumer<'_>, name: &str) -> Option<Grant> {
        let decided = consumer.decided.iter().find(|(known, _)| known == name).map(|(_, allocation)| allocation);
        let row = &self.inventory.claims.claims[id.index()];
        let picks = match (&row.allocated, decided) {
            (Some(allocation), _) => allocation.picks.clone(),
            (None, Some(decided)) => self.allocated(&claim.spec, decided).picks,
            (None, None) => return None,
        };
        Some(Grant { claim: id, picks })
    }

    fn list(&mut self, list: Vec<ClaimId>) -> u32 {
        self.inventory.claims.lists.push(list);
        u32::try_from(self.inventory.claims.lists.len() - 1).expect("fewer than pods")
    }

    /// Adds the claim for a pod's extended resources.
    fn extend(&mut self, placed: bool, extended: Extended, consumed: &mut Consumed) {
        let Ok(mut ask) = self.inventory.ask("for extended resources", &extended.spec) else { return };
        for (request, nodes) in ask.requests.iter_mut().zip(extended.nodes) {
            request.nodes = Some(self.inventory.node_set(nodes));
        }
        let made = extended.made.and_then(|key| self.claims.get(&key)).and_then(|claim| claim.allocation.as_ref());
        let allocated = made.filter(|_| placed).map(|allocation| self.allocated(&extended.spec, allocation));
        // A pod on a node that has the resources itself uses the claim for nothing.
        let picks = allocated.as_ref().map_or_else(Vec::new, |allocation| allocation.picks.clone());
        let row = Claim { ask: 0, allocated, held_externally: false, gpus_counted: None };
        let id = self.push(ask, row, ClaimSource::Extended(extended.spec));
        consumed.grants.extend(placed.then_some(Grant { claim: id, picks }));
        match consumed.list {
            Some(list) => self.inventory.claims.lists[list as usize].push(id),
            None => consumed.list = Some(self.list(vec![id])),
        }
    }
}

/// Who uses which claim.
struct Users<'w> {
    /// Claims that more than one pod uses.
    shared: BTreeSet<Key>,
    /// Claims that a pod with a place uses.
    placed: BTreeSet<Key>,
    /// Pods of jobs here.
    uids: BTreeSet<&'w str>,
    /// Devices that binds in flight give to claims.
    decided: BTreeMap<Key, &'w ClaimAllocation>,
    /// Claims that are rows of a pod already.
    made: BTreeSet<Key>,
}

impl<'w> Users<'w> {
    fn count(consumers: &[Consumer<'w>], claims: &BTreeMap<Key, ResourceClaim>) -> Self {
        let mut users = Self {
            shared: BTreeSet::new(),
            placed: BTreeSet::new(),
            uids: consumers.iter().map(|consumer| consumer.uid).collect(),
            decided: BTreeMap::new(),
            made: BTreeSet::new(),
        };
        let mut used = BTreeSet::new();
        for consumer in consumers {
            for claim_ref in &consumer.refs {
                let Some(claim) = claim_ref.claim else { continue };
                let key = Key::new(consumer.namespace, claim);
                if consumer.placed {
                    users.placed.insert(key.clone());
                    let decided = consumer.decided.iter().find(|(name, _)| name == claim_ref.name);
                    users.decided.extend(decided.map(|(_, allocation)| (key.clone(), allocation)));
                }
                let others = |claim: &ResourceClaim| {
                    claim.reserved_for.iter().any(|(_, uid)| !users.uids.contains(uid.as_str()))
                };
                if !used.insert(key.clone()) || claims.get(&key).is_some_and(others) {
                    users.shared.insert(key);
                }
            }
            if let Some(key) = consumer.extended.as_ref().and_then(|extended| extended.made.clone()) {
                users.made.insert(key);
            }
        }
        users
    }

    /// Whether only pods of jobs here hold the claim, so that it is free once they have gone.
    fn held_by_pods_alone(&self, key: &Key, claim: &ResourceClaim) -> bool {
        let ours = claim.reserved_for.iter().all(|(_, uid)| self.uids.contains(uid.as_str()));
        self.made.contains(key) || ours && self.placed.contains(key)
    }
}

impl Extended {
    /// The claim that serves a pod's requests for extended resources, as Kubernetes words it; `None` if no class
    /// provides any of them.
    ///
    /// Ordinary init containers use the devices of containers that live longer; what is missing is asked for once, for
    /// the one of them that misses most. `offers` says whether a node has the resource without devices.
    pub fn of(
        containers: &[(Resources, bool)],
        inventory: &Inventory<'_>,
        offers: impl Fn(&str, usize) -> bool,
        made: Option<Key>,
    ) -> Option<Self> {
        let nodes = inventory.node_count();
        let mut steady: BTreeMap<&str, i64> = BTreeMap::new();
        let mut missing: BTreeMap<&str, (i64, String)> = BTreeMap::new();
        let mut wanted: Vec<(String, &str, i64)> = Vec::new();
        for (index, (resources, stays)) in containers.iter().enumerate() {
            for (position, (name, count)) in resources.devices().into_iter().enumerate() {
                if inventory.class_for(name).is_none() {
                    continue;
                }
                let request = format!("container-{index}-request-{position}");
                if *stays {
                    *steady.entry(name).or_default() += count;
                    wanted.push((request, name, count));
                } else {
                    let entry = missing.entry(name).or_insert_with(|| (0, request.clone()));
                    if count > entry.0 {
                        *entry = (count, request);
                    }
                }
            }
        }
        for (name, (count, request)) in missing {
            let rest = count - steady.get(name).copied().unwrap_or(0);
            if rest > 0 {
                wanted.push((request, name, rest));
            }
        }
        if wanted.is_empty() {
            return None;
        }
        let mut spec = ClaimSpec::default();
        let mut sets = Vec::new();
        for (request, name, count) in wanted {
            let class = inventory.class_for(name).expect("looked up above");
            let count = Some(u32::try_from(count).unwrap_or(u32::MAX));
            let alternative = DeviceAlternative { class: class.name.clone(), count, ..DeviceAlternative::default() };
            spec.requests.push(DeviceRequest { name: request, alternatives: vec![alternative] });
            let mut set = FixedBitSet::with_capacity(nodes);
            set.extend((0..nodes).filter(|node| !offers(name, *node)));
            sets.push(set);
        }
        Some(Self { spec, nodes: sets, made })
    }
}
