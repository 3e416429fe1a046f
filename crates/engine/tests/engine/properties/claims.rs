//! Resource claims: the allocator finds devices exactly where trying everything does, and undoing restores every load.

use fixedbitset::FixedBitSet;
use kai_engine::Snapshot;
use kai_engine::builder::{GroupRow, JobRow, MemberRow, PodSetRow, TaskRow};
use kai_engine::ids::{ClaimId, NodeId, QueueId, TaskId};
use kai_engine::ledger::When;
use kai_engine::ledger::{AllocationRef, ClaimState, Ledger, Placement, PodCounts, TaskState};
use kai_engine::nodes::claims;
use kai_engine::outcome::ClaimObstacle;
use kai_engine::policy::Policy;
use kai_engine::snapshot::{
    Allocation, AllocationMode, Claim, ClaimAsk, ClaimDevice, ClaimRequest, Claims, Extras, GpuAsk, Grant,
    MatchAttribute, Pick, SelectorMatches, Shape, SubRequest,
};
use kai_engine::units::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;

use super::idle_cluster;

/// Nodes that a device or an allocation may be bound to: each alone, then both.
const NODES: usize = 2;

/// A cluster of two nodes in numbers small enough to try everything.
#[derive(Clone, Debug)]
struct Drawing {
    /// By device: node set, and values of two attributes.
    devices: Vec<(u32, [Option<u32>; 2])>,
    /// Sets of devices.
    selections: Vec<u8>,
    asks: Vec<Ask>,
    /// By pod: which asks it claims for itself alone; all pods also share one claim if it says so.
    pods: Vec<(Vec<usize>, bool)>,
    /// The device of a claim that no pod of the snapshot uses.
    held_externally: Option<usize>,
    incomplete_pools: bool,
}

#[derive(Clone, Debug)]
struct Ask {
    /// Alternatives of each request: selection, count (0 is all), admin.
    requests: Vec<Vec<(usize, u32, bool)>>,
    /// Attribute and whether only the first request is concerned.
    constraint: Option<(u32, bool)>,
}

fn drawings() -> impl Strategy<Value = Drawing> {
    let device = (0..3_u32, [prop::option::of(0..2_u32), prop::option::of(0..2_u32)]);
    let alternative = (0..3_usize, 0..3_u32, prop::bool::weighted(0.1));
    let ask = (vec(vec(alternative, 1..3), 1..3), prop::option::of((0..2_u32, any::<bool>())))
        .prop_map(|(requests, constraint)| Ask { requests, constraint });
    (
        vec(device, 1..6),
        vec(any::<u8>(), 3),
        vec(ask, 1..4),
        vec((vec(0..4_usize, 0..3), any::<bool>()), 1..4),
        prop::option::of(0..6_usize),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(devices, selections, asks, pods, held_externally, incomplete_pools)| Drawing {
            held_externally: held_externally.filter(|device| *device < devices.len()),
            devices,
            selections,
            asks,
            pods,
            incomplete_pools,
        })
}

impl Drawing {
    fn claims(&self) -> Claims {
        let nodes = |bits: u32| (0..NODES).filter(move |node| bits >> node & 1 == 1).collect::<FixedBitSet>();
        let mut sets: Vec<FixedBitSet> = [1, 2, 3].map(nodes).to_vec();
        for set in &mut sets {
            set.grow(NODES);
        }
        let count = self.devices.len();
        let selection = |bits: &u8| {
            let mut matching = FixedBitSet::with_capacity(count);
            matching.extend((0..count).filter(|device| bits >> device & 1 == 1));
            SelectorMatches { matching, failing: FixedBitSet::with_capacity(count) }
        };
        let ask = |ask: &Ask| ClaimAsk {
            requests: ask
                .requests
                .iter()
                .map(|alternatives| ClaimRequest {
                    alternatives: alternatives
                        .iter()
                        .map(|(selection, count, admin)| SubRequest {
                            selection: *selection as u32,
                            mode: if *count == 0 { AllocationMode::All } else { AllocationMode::ExactCount(*count) },
                            admin: *admin,
                        })
                        .collect(),
                    nodes: None,
                })
                .collect(),
            match_attributes: ask
                .constraint
                .map(|(attribute, first)| MatchAttribute {
                    attribute,
                    requests: if first { vec![(0, None)] } else { Vec::new() },
                })
                .into_iter()
                .collect(),
        };
        let claim =
            |ask: usize| Claim { ask: ask as u32, allocated: None, held_externally: false, gpus_counted: Some(0) };
        // All pods may share the first claim; no pod uses the last one.
        let mut claims = vec![claim(0)];
        let mut lists = Vec::new();
        for (own, shares) in &self.pods {
            let mut list: Vec<ClaimId> = shares.then_some(ClaimId(0)).into_iter().collect();
            for ask in own {
                list.push(ClaimId::at(claims.len()));
                claims.push(claim(ask % self.asks.len()));
            }
            lists.push(list);
        }
        if let Some(device) = self.held_externally {
            let pick = Pick { request: 0, alternative: 0, device: device as u32, admin: false };
            claims.push(Claim {
                allocated: Some(Allocation { picks: vec![pick], nodes: None }),
                held_externally: true,
                ..claim(0)
            });
        }
        let mut incomplete_pools = FixedBitSet::with_capacity(NODES);
        incomplete_pools.set(0, self.incomplete_pools);
        Claims {
            devices: self
                .devices
                .iter()
                .map(|(nodes, _)| ClaimDevice { nodes: *nodes, gpu_of: (*nodes < 2).then_some(NodeId(*nodes)) })
                .collect(),
            devices_by_node: Vec::new(),
            node_sets: sets,
            incomplete_pools,
            selector_matches: self.selections.iter().map(selection).collect(),
            attributes: (0..2).map(|at| self.devices.iter().map(|(_, values)| values[at]).collect()).collect(),
            asks: self.asks.iter().map(ask).collect(),
            claims,
            lists,
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut builder = idle_cluster(NODES);
        builder.claims(self.claims());
        let class = builder.add_node_filter_of_all();
        let shape = builder.shape(Shape { need: vec![1, 0, 0, 1], gpu: GpuAsk::None, quota_gpu: 0, numa: None });
        for index in 0..self.pods.len() {
            let task = TaskRow { claims: Some(index as u32), ..TaskRow::pending(shape, class) };
            let set = PodSetRow { min: 1, constraint: None, tasks: vec![task] };
            let root = GroupRow { members: vec![MemberRow::PodSet(set)], ..GroupRow::default() };
            builder.job(JobRow::new(QueueId(0), Timestamp(index as i64), root));
        }
        builder.finish()
    }
}

/// Whether some choice of devices serves all requests, by trying every choice: no order, no pruning.
fn possible(
    ledger: &Ledger<'_>,
    requests: &[(usize, u32, &ClaimRequest)],
    node: NodeId,
    taken: &mut Vec<(usize, Pick)>,
) -> bool {
    let claims = &ledger.snapshot.claims;
    let Some(((claim, request, row), rest)) = requests.split_first() else { return agrees(claims, taken) };
    let here = |device: &usize| claims.node_sets[claims.devices[*device].nodes as usize].contains(node.index());
    row.alternatives.iter().enumerate().any(|(index, alternative)| {
        let matching: Vec<usize> =
            claims.selector_matches[alternative.selection as usize].matching.ones().filter(here).collect();
        let wanted = match alternative.mode {
            AllocationMode::ExactCount(count) => count as usize,
            AllocationMode::All if claims.incomplete_pools.contains(node.index()) || matching.is_empty() => {
                return false;
            }
            AllocationMode::All => matching.len(),
        };
        (0..1_u32 << matching.len()).filter(|bits| bits.count_ones() as usize == wanted).any(|bits| {
            let chosen: Vec<usize> =
                (0..matching.len()).filter(|at| bits >> at & 1 == 1).map(|at| matching[at]).collect();
            let free = |device: &usize| {
                let pods = ledger.claim_device(*device as u32);
                let other = taken.iter().any(|(_, pick)| pick.device as usize == *device && !pick.admin);
                alternative.admin || pods.staying() == 0 && !other
            };
            if !chosen.iter().all(free) {
                return false;
            }
            let before = taken.len();
            taken.extend(chosen.iter().map(|device| {
                let (request, alternative_index) = (*request, index as u32);
                let pick =
                    Pick { request, alternative: alternative_index, device: *device as u32, admin: alternative.admin };
                (*claim, pick)
            }));
            let found = possible(ledger, rest, node, taken);
            taken.truncate(before);
            found
        })
    })
}

/// Whether all `match_attributes` hold.
fn agrees(claims: &Claims, taken: &[(usize, Pick)]) -> bool {
    taken.iter().all(|(claim, pick)| {
        let ask = &claims.asks[claims.claims[*claim].ask as usize];
        ask.match_attributes.iter().filter(|all| all.concerns(pick.request, pick.alternative)).all(|constraint| {
            let values = &claims.attributes[constraint.attribute as usize];
            let mates = taken
                .iter()
                .filter(|(other, mate)| other == claim && constraint.concerns(mate.request, mate.alternative));
            values[pick.device as usize].is_some()
                && mates.into_iter().all(|(_, mate)| values[mate.device as usize] == values[pick.device as usize])
        })
    })
}

/// Whether devices of a claim whose users leave can be taken over on the node.
fn passes_on(ledger: &Ledger<'_>, grant: &Grant, node: NodeId) -> bool {
    let claims = &ledger.snapshot.claims;
    grant.picks.iter().all(|pick| {
        let pods = ledger.claim_device(pick.device);
        let set = claims.devices[pick.device as usize].nodes as usize;
        claims.node_sets[set].contains(node.index()) && (pick.admin || pods.staying() == 0)
    })
}

/// Devices that the pod would take over from those who leave.
fn taken_over(ledger: &Ledger<'_>, task: TaskId, node: NodeId) -> Vec<(usize, Pick)> {
    let list = &ledger.snapshot.claims.lists[ledger.snapshot.task(task).claims.expect("every pod has a list") as usize];
    let over = list.iter().filter_map(|claim| match ledger.claim_state(*claim, task) {
        ClaimState::BeingReleased(AllocationRef::By(grant)) if passes_on(ledger, grant, node) => Some(grant),
        _ => None,
    });
    over.flat_map(|grant| grant.picks.iter().map(|pick| (grant.claim.index(), *pick))).collect()
}

/// Requests of the pod's claims that have no devices yet.
fn open_requests<'s>(ledger: &Ledger<'s>, task: TaskId, node: NodeId) -> Vec<(usize, u32, &'s ClaimRequest)> {
    let claims = &ledger.snapshot.claims;
    let list = &claims.lists[ledger.snapshot.task(task).claims.expect("every pod has a list") as usize];
    let open = list.iter().filter(|claim| match ledger.claim_state(**claim, task) {
        ClaimState::Unallocated => true,
        ClaimState::BeingReleased(AllocationRef::By(grant)) => !passes_on(ledger, grant, node),
        ClaimState::InUse(_) | ClaimState::BeingReleased(AllocationRef::Before(_)) => false,
    });
    let requests = |claim: &ClaimId| {
        let ask = &claims.asks[claims.claims[claim.index()].ask as usize];
        let claim = claim.index();
        ask.requests.iter().enumerate().map(move |(index, request)| (claim, index as u32, request))
    };
    open.flat_map(requests).collect()
}

/// Pods of every device, as the ledger has it.
fn device_users(ledger: &Ledger<'_>) -> Vec<PodCounts> {
    (0..ledger.snapshot.claims.devices.len()).map(|device| ledger.claim_device(device as u32)).collect()
}

/// Places, evicts and drops pods as the numbers say, and looks at every choice on the way.
fn play(drawing: &Drawing, moves: &[(usize, usize, usize)]) -> Result<(), TestCaseError> {
    let snapshot = drawing.snapshot();
    let mut ledger = Ledger::open(&snapshot, &Policy::default());
    let mut marks = vec![(ledger.mark(), device_users(&ledger), ledger.idle(NodeId(0)).to_vec())];
    for (pod, node, kind) in moves {
        let (task, node) = (TaskId::at(pod % drawing.pods.len()), NodeId::at(node % NODES));
        marks.push((ledger.mark(), device_users(&ledger), ledger.idle(NodeId(0)).to_vec()));
        match (ledger.state(task), kind % 3) {
            (TaskState::Unplaced, kind) => {
                let open = open_requests(&ledger, task, node);
                let found = claims::choose(&ledger, task, node, When::Later);
                let elsewhere = matches!(found, Err(ClaimObstacle::Elsewhere(_)));
                if !elsewhere {
                    let expected = possible(&ledger, &open, node, &mut taken_over(&ledger, task, node));
                    prop_assert_eq!(found.is_ok(), expected, "{:?} on {:?}: {:?}", task, node, found);
                }
                let Ok(choice) = found else { continue };
                let taken: Vec<(usize, Pick)> = choice
                    .grants
                    .iter()
                    .flat_map(|grant| grant.picks.iter().map(|pick| (grant.claim.index(), *pick)))
                    .collect();
                prop_assert!(agrees(&snapshot.claims, &taken), "{:?}", taken);
                let extras = ledger.keep(Extras { grants: choice.grants, ..Extras::default() });
                let assignment = Placement { node, devices: None, extras };
                ledger.shift(
                    task,
                    if kind == 0 { TaskState::Pipelined(assignment) } else { TaskState::Allocated(assignment) },
                );
            }
            (TaskState::Allocated(assignment), 0) => ledger.shift(task, TaskState::Releasing(assignment)),
            _ => ledger.shift(task, TaskState::Unplaced),
        }
        ledger.assert_consistent();
        for device in 0..snapshot.claims.devices.len() {
            // A device is one claim's at a time among those who stay.
            let users = snapshot.claims.claims.iter().enumerate().filter(|(index, _)| {
                let staying = (0..snapshot.tasks.len()).map(TaskId::at).filter_map(|task| match ledger.state(task) {
                    TaskState::Allocated(assignment) | TaskState::Pipelined(assignment) => ledger.extras_of(assignment),
                    _ => None,
                });
                let uses = |pick: &Pick| pick.device as usize == device && !pick.admin;
                staying
                    .flat_map(|extras| &extras.grants)
                    .any(|grant| grant.claim.index() == *index && grant.picks.iter().any(uses))
            });
            prop_assert!(users.count() <= 1, "device {} is given twice", device);
        }
    }
    while let Some((mark, loads_then, idle_then)) = marks.pop() {
        ledger.rollback(mark);
        prop_assert_eq!(device_users(&ledger), loads_then);
        prop_assert_eq!(ledger.idle(NodeId(0)), &idle_then[..]);
        ledger.assert_consistent();
    }
    Ok(())
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn devices_are_found_where_trying_everything_finds_them(
        drawing in drawings(),
        moves in vec((0..4_usize, 0..2_usize, 0..3_usize), 0..10),
    ) {
        play(&drawing, &moves)?;
    }
}
