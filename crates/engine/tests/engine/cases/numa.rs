//! NUMA zones: which zones a pod gets, and that evicting it gives them back.

use kai_engine::builder::{Builder, GroupRow, JobRow, MemberRow, NodeRow, PodSetRow, TaskRow};
use kai_engine::ids::{NodeId, QueueId, TaskId};
use kai_engine::ledger::When;
use kai_engine::ledger::{Ledger, Placement, TaskState};
use kai_engine::nodes::numa::{self, Zones};
use kai_engine::outcome::{Decision, NodeObstacle, Reason};
use kai_engine::snapshot::{
    CPU, Extras, GPUS, GpuAsk, NumaAsk, NumaNode, NumaUnit, NumaZone, Queue, Shape, TopologyManagerPolicy,
    TopologyManagerScope, ZoneAllocation,
};
use kai_engine::units::{Ceiling, GPU, ONE, Timestamp};
use kai_engine::{Policy, Snapshot};

/// One node with these zones of CPUs and GPUs, and a job per request, in order of age.
struct Picture {
    policy: TopologyManagerPolicy,
    scope: TopologyManagerScope,
    zones: Vec<(i64, i64)>,
    /// Requests of containers: CPUs, GPUs, and whether the container stays.
    pods: Vec<Vec<(i64, i64, bool)>>,
}

fn zones(policy: TopologyManagerPolicy, zones: &[(i64, i64)]) -> Picture {
    Picture { policy, scope: TopologyManagerScope::Pod, zones: zones.to_vec(), pods: Vec::new() }
}

impl Picture {
    fn pod(mut self, cpus: i64, gpus: i64) -> Self {
        self.pods.push(vec![(cpus, gpus, true)]);
        self
    }

    fn snapshot(&self) -> Snapshot {
        let mut builder = Builder::new(Vec::new());
        let node = builder.node(NodeRow::idle(vec![64_000, 1 << 30, 8 * GPU, 110]));
        let zone = |(cpus, gpus): &(i64, i64)| NumaZone {
            allocatable: vec![cpus * 1000, 0, gpus * GPU, 0],
            unmanaged_used: vec![0; 4],
            unmanaged_releasing: vec![0; 4],
        };
        let zones = self.zones.iter().map(zone).collect();
        builder.zones(node, NumaNode { policy: self.policy, scope: self.scope, zones });
        let bounds = [Ceiling::Unlimited; 3];
        builder.queue(Queue {
            parent: None,
            priority: 100,
            created: Timestamp(0),
            quota: bounds,
            limit: bounds,
            weight: [ONE; 3],
            usage: [0; 3],
            preempt_min_runtime: None,
            reclaim_min_runtime: None,
        });
        let class = builder.add_node_filter_of_all();
        for (age, containers) in self.pods.iter().enumerate() {
            let need = |cpus: i64, gpus: i64| {
                let all = [(CPU as u32, cpus * 1000), (GPUS as u32, gpus * GPU)];
                all.into_iter().filter(|(_, amount)| *amount > 0).collect::<Vec<_>>()
            };
            let steady = containers.iter().filter(|(_, _, stays)| *stays);
            let (cpus, gpus) = steady.fold((0, 0), |sum, (cpus, gpus, _)| (sum.0 + cpus, sum.1 + gpus));
            let units = containers
                .iter()
                .map(|(cpus, gpus, stays)| NumaUnit { need: need(*cpus, *gpus), keeps_running: *stays });
            let numa = builder.numa_ask(NumaAsk { pod: need(cpus, gpus), containers: units.collect() });
            let gpu = if gpus > 0 { GpuAsk::Whole } else { GpuAsk::None };
            let shape =
                builder.shape(Shape { need: vec![cpus * 1000, 0, gpus * GPU, 1], gpu, quota_gpu: gpus * GPU, numa });
            let set = PodSetRow { min: 1, constraint: None, tasks: vec![TaskRow::pending(shape, class)] };
            let root = GroupRow { members: vec![MemberRow::PodSet(set)], ..GroupRow::default() };
            builder.job(JobRow::new(QueueId(0), Timestamp(age as i64), root));
        }
        builder.finish()
    }

    /// Zones that each pod is bound to, in the order of pods; `None` waits.
    fn bound(&self) -> Vec<Option<Vec<u32>>> {
        let snapshot = self.snapshot();
        let outcome = kai_engine::cycle(&snapshot, &policy(), Timestamp(1_000_000_000));
        let mut bound = vec![None; self.pods.len()];
        for decision in outcome.decisions {
            let Decision::Bind { task, assignment } = decision else { panic!("{decision:?}") };
            let mut zones: Vec<u32> = assignment.zones.iter().map(|share| share.zone).collect();
            zones.dedup();
            bound[task.index()] = Some(zones);
        }
        bound
    }
}

fn policy() -> Policy {
    Policy { numa: true, ..Policy::default() }
}

#[test]
fn a_single_zone_holds_everything() {
    let picture = zones(TopologyManagerPolicy::SingleZone, &[(4, 1), (4, 1)]);
    // CPUs fill zone 0; the next pod with a GPU goes where both are left.
    assert_eq!(picture.pod(3, 0).pod(2, 1).pod(2, 1).bound(), [Some(vec![0]), Some(vec![1]), None]);
    assert_eq!(zones(TopologyManagerPolicy::SingleZone, &[(4, 1), (4, 1)]).pod(6, 0).bound(), [None]);
}

#[test]
fn restricted_spans_as_few_zones_as_an_empty_node_would() {
    let two = || zones(TopologyManagerPolicy::Restricted, &[(4, 1), (4, 1)]);
    assert_eq!(two().pod(6, 0).bound(), [Some(vec![0, 1])]);
    // Two CPUs fit in one zone of an empty node, so they may not be split although only split they fit.
    assert_eq!(two().pod(3, 0).pod(3, 0).pod(2, 0).bound(), [Some(vec![0]), Some(vec![1]), None]);
    // Six CPUs need two zones, one GPU needs one: no agreement.
    assert_eq!(two().pod(6, 1).bound(), [None]);
    assert_eq!(two().pod(6, 2).bound(), [Some(vec![0, 1])]);
}

#[test]
fn best_effort_and_none_refuse_no_pod() {
    let crowded = |policy: TopologyManagerPolicy| zones(policy, &[(4, 0), (4, 0)]).pod(3, 0).pod(4, 0).pod(2, 0);
    assert_eq!(crowded(TopologyManagerPolicy::BestEffort).bound(), [Some(vec![0]), Some(vec![1]), Some(vec![])]);
    assert_eq!(crowded(TopologyManagerPolicy::None).bound(), [Some(vec![]), Some(vec![]), Some(vec![])]);
}

#[test]
fn containers_are_aligned_one_after_the_other() {
    let mut picture = zones(TopologyManagerPolicy::SingleZone, &[(4, 0), (4, 0)]);
    picture.pods.push(vec![(4, 0, false), (3, 0, true), (3, 0, true)]);
    picture.scope = TopologyManagerScope::Container;
    assert_eq!(picture.bound(), [Some(vec![0, 1])]);
    picture.scope = TopologyManagerScope::Pod;
    assert_eq!(picture.bound(), [None]);
}

#[test]
fn numa_zones_are_reported_as_an_obstacle() {
    let snapshot = zones(TopologyManagerPolicy::SingleZone, &[(4, 0), (4, 0)]).pod(6, 0).snapshot();
    let outcome = kai_engine::cycle(&snapshot, &policy(), Timestamp(1_000_000_000));
    let Reason::NoRoom { nodes, .. } = &outcome.verdicts[0].reasons[0] else { panic!("{:?}", outcome.verdicts) };
    assert_eq!(nodes.counts, [(NodeObstacle::Numa, 1)]);
}

#[test]
fn zones_being_left_are_free_later_and_undo_restores_them() {
    let snapshot = zones(TopologyManagerPolicy::SingleZone, &[(4, 0)]).pod(3, 0).pod(3, 0).snapshot();
    let mut ledger = Ledger::open(&snapshot, &policy());
    let shape = snapshot.shape(snapshot.tasks[0].shape);
    let shares = vec![ZoneAllocation { zone: 0, column: CPU as u32, amount: 3000 }];
    let mark = ledger.mark();
    let extras = ledger.keep(Extras { zones: shares.clone(), ..Extras::default() });
    let assignment = Placement { node: NodeId(0), devices: None, extras };
    ledger.shift(TaskId(0), TaskState::Allocated(assignment));
    assert_eq!(numa::choose(&ledger, shape, NodeId(0), When::Later), Zones::Refused);
    ledger.shift(TaskId(0), TaskState::Releasing(assignment));
    assert_eq!(numa::choose(&ledger, shape, NodeId(0), When::Now), Zones::Refused);
    assert_eq!(numa::choose(&ledger, shape, NodeId(0), When::Later), Zones::From(shares.clone()));
    ledger.assert_consistent();
    ledger.rollback(mark);
    ledger.assert_consistent();
    assert_eq!(numa::choose(&ledger, shape, NodeId(0), When::Now), Zones::From(shares));
}
