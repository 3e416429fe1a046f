//! Random jobs: trees of pod sets, gangs or elastic, that wait, run, leave or are in between.

use std::collections::BTreeMap;

use kai_engine::snapshot::Status;
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;

use super::generate::ClusterProfile;
use super::room::Room;
use crate::support::{Ask, Cluster, Gpu, Grace, Group, Job, LevelConstraint, Member, Pod, PodRule, PodRuleKind, Set};

/// A job before its pods have found nodes.
#[derive(Clone, Debug)]
pub(super) struct JobPlan {
    /// Which queue: leaves and others are numbered, wrapping around.
    queue: (QueueKind, usize),
    job: Job,
    /// Node numbers, wrapping around, and profiles of the pod sets.
    sets: Vec<PodSetProfile>,
    only: Option<u8>,
}

#[derive(Clone, Copy, Debug)]
enum QueueKind {
    Leaf,
    Any,
    Missing,
}

/// How the pods of a set stand.
#[derive(Clone, Debug)]
enum PodSetProfile {
    Waiting,
    /// All but the last few run, on nodes from this one on, if they fit.
    Running {
        start: usize,
        waiting: usize,
    },
    /// Each as it is.
    Mixed(Vec<(Status, usize)>),
}

const MIXED: [Status; 9] = [
    Status::Running,
    Status::Running,
    Status::Bound,
    Status::Binding,
    Status::Releasing,
    Status::Releasing,
    Status::StuckInReleasing,
    Status::Pending,
    Status::Gated,
];

fn pod_set_profile(profile: ClusterProfile) -> impl Strategy<Value = PodSetProfile> {
    let waiting = prop_oneof![3 => Just(0), 1 => 1..3usize];
    prop_oneof![
        9 - profile.running => Just(PodSetProfile::Waiting),
        profile.running => (0..8usize, waiting).prop_map(|(start, waiting)| PodSetProfile::Running { start, waiting }),
        1 => vec((select(&MIXED[..]), 0..8usize), 4).prop_map(PodSetProfile::Mixed),
    ]
}

pub(super) fn job(profile: ClusterProfile) -> impl Strategy<Value = JobPlan> {
    let queue = prop_oneof![28 => Just(QueueKind::Leaf), 1 => Just(QueueKind::Any), 1 => Just(QueueKind::Missing)];
    let rank = (select(&[25, 50, 50, 75, 100, 125][..]), weighted(0.2, any::<bool>()), 0..5i64);
    let past = (
        weighted(0.5, select(&[10i64, 99, 100, 700][..])),
        weighted(0.2, select(&[10i64, 60, 200][..])),
        weighted(0.1, select(&[5i64, 500][..])),
        weighted(0.1, select(&[3i64, 600][..])),
    );
    let grace = prop_oneof![8 => Just(Grace::Default), 1 => Just(Grace::Never), 1 => Just(Grace::Seconds(10))];
    let rules = (weighted(0.1 * profile.rare, any::<u8>()), prop::bool::weighted(0.15));
    let profiles = vec(pod_set_profile(profile), 4);
    ((queue, 0..16usize), rank, past, grace, rules, root(profile), profiles).prop_map(
        |(
            queue,
            (priority, preemptible, age),
            (started, stale, evicted, delay),
            grace,
            (only, tolerates),
            root,
            sets,
        )| {
            let job = Job {
                name: String::new(),
                queue: String::new(),
                priority,
                preemptible: preemptible.unwrap_or(priority < 100),
                age,
                started,
                stale,
                evicted,
                delay: delay.unwrap_or(0),
                grace,
                only: None,
                tolerates,
                root,
            };
            JobPlan { queue, job, sets, only }
        },
    )
}

/// A single pod set, several, or a group among them.
fn root(profile: ClusterProfile) -> impl Strategy<Value = Group> {
    let named = |count: usize| vec(set(profile), count..=count.max(3));
    let several = (weighted(0.5, 0..3u32), bounds(), named(2)).prop_map(|(need, bounds, sets)| Group {
        name: String::new(),
        need,
        bounds,
        members: sets_named(sets),
    });
    let nested = (weighted(0.5, 0..3u32), weighted(0.5, 0..3u32), bounds(), named(3)).prop_map(
        |(need, inner_need, bounds, sets)| {
            let mut members = sets_named(sets);
            let inner = members.split_off(1);
            members.push(Member::Group(Group { name: "t".to_owned(), need: inner_need, bounds, members: inner }));
            Group { name: String::new(), need, bounds: LevelConstraint::default(), members }
        },
    );
    let plain = (bounds(), set(profile)).prop_map(|(bounds, set)| {
        let set = Set { bounds: LevelConstraint::default(), ..set };
        Group { name: String::new(), need: None, bounds, members: vec![Member::Set(set)] }
    });
    prop_oneof![7 => plain, 2 => several, 1 => nested]
}

fn sets_named(sets: Vec<Set>) -> Vec<Member> {
    let named = |(index, set)| Member::Set(Set { name: format!("s{index}"), ..set });
    sets.into_iter().enumerate().map(named).collect()
}

fn bounds() -> impl Strategy<Value = LevelConstraint> {
    let level = |often: f64| weighted(often, select(&["zone", "rack"][..]));
    (level(0.1), level(0.05)).prop_map(|(required, preferred)| LevelConstraint {
        required: required.map(str::to_owned),
        preferred: preferred.map(str::to_owned),
    })
}

fn set(profile: ClusterProfile) -> impl Strategy<Value = Set> {
    let size = prop_oneof![1 => Just(0usize), 12 => 1..4usize];
    // Gangs, elastic jobs, and now and then a minimum that is larger than the job.
    let min = prop_oneof![5 => Just(None), 5 => (0..3u32).prop_map(Some), 1 => Just(Some(4))];
    let ports = weighted(0.14 * profile.rare, prop_oneof![Just(vec![80]), Just(vec![80, 81])]);
    let others = (weighted(0.4, select(&["a", "b"][..])), pod_rules(profile));
    (size, min, ask(profile), (ports, others), bounds(), weighted(0.08 * profile.rare, 0..5usize)).prop_map(
        |(size, min, ask, (ports, (tag, pod_rules)), bounds, nominated)| Set {
            name: String::new(),
            min: min.unwrap_or(size as u32),
            bounds,
            ask,
            ports: ports.unwrap_or_default(),
            tags: tag.into_iter().map(str::to_owned).collect(),
            pod_rules,
            nominated: nominated.map(|index| format!("n{index}")),
            pods: vec![Pod::PENDING; size],
        },
    )
}

/// What pods ask of others, in the order in which text lists it.
fn pod_rules(profile: ClusterProfile) -> impl Strategy<Value = Vec<PodRule>> {
    let kind = prop_oneof![
        2 => Just(PodRuleKind::Affinity),
        4 => Just(PodRuleKind::AntiAffinity),
        1 => select(&[-3i64, 2][..]).prop_map(PodRuleKind::Prefer),
        2 => (1..3u32, select(&[0u32, 0, 3][..])).prop_map(|(skew, domains)| PodRuleKind::Spread(skew, domains)),
        1 => (1..3u32).prop_map(PodRuleKind::SoftSpread),
    ];
    let rule = (kind, select(&["a", "b"][..]), select(&["zone", "rack", "node"][..]))
        .prop_map(|(kind, tag, level)| PodRule { kind, tag: tag.to_owned(), level: level.to_owned() });
    weighted(0.1 + 0.2 * profile.rare, vec(rule, 1..3)).prop_map(|pod_rules| {
        let mut pod_rules = pod_rules.unwrap_or_default();
        pod_rules.sort_by_key(|rule| match rule.kind {
            PodRuleKind::Affinity => 0,
            PodRuleKind::AntiAffinity => 1,
            PodRuleKind::Prefer(_) => 2,
            PodRuleKind::Spread(..) => 3,
            PodRuleKind::SoftSpread(_) => 4,
        });
        pod_rules
    })
}

fn ask(profile: ClusterProfile) -> impl Strategy<Value = Ask> {
    let devices = || prop_oneof![4 => Just(1u32), 1 => Just(2u32)];
    let portion = select(&[200_000i64, 250_000, 330_000, 500_000, 600_000][..]);
    let gpu = prop_oneof![
        6 => (1..5i64).prop_map(Gpu::Whole),
        4 => (devices(), portion).prop_map(|(devices, portion)| Gpu::Share { devices, portion }),
        2 => (devices(), select(&[4000i64, 7000, 20_000][..])).prop_map(|(devices, mib)| Gpu::Memory { devices, mib }),
        3 => Just(Gpu::None),
    ];
    let extra = (prop::bool::weighted(0.08 * profile.rare), prop::bool::weighted(0.06 * profile.rare));
    (gpu, select(&[0i64, 500, 1000, 4000][..]), select(&[0i64, 1, 4][..]), extra).prop_map(
        |(gpu, cpu_milli, memory, (mig, rdma))| {
            let mut extra = BTreeMap::new();
            if mig {
                extra.insert("mig-1g.5gb".to_owned(), 1);
            }
            if rdma {
                extra.insert("+rdma".to_owned(), 1);
            }
            // A pod of MIG instances asks for nothing else of a GPU here.
            let gpu = if mig { Gpu::None } else { gpu };
            Ask { cpu_milli, memory: memory << 30, gpu, extra }
        },
    )
}

impl JobPlan {
    /// Names the job's queue and nodes, and lets its pods find room.
    pub(super) fn settle(self, cluster: &Cluster, rooms: &mut [Room], name: String) -> Job {
        let queues: Vec<&String> = cluster.queues.iter().map(|queue| &queue.name).collect();
        let is_leaf = |name: &String| cluster.queues.iter().all(|queue| queue.parent.as_ref() != Some(name));
        let leaves: Vec<&String> = queues.iter().copied().filter(|name| is_leaf(name)).collect();
        let queue = match self.queue {
            (QueueKind::Leaf, index) => leaves[index % leaves.len()].clone(),
            (QueueKind::Any, index) => queues[index % queues.len()].clone(),
            (QueueKind::Missing, _) => "nowhere".to_owned(),
        };
        let mut job = Job { name, queue, ..self.job };
        let chosen = |mask: u8| {
            let nodes = cluster.nodes.iter().enumerate().filter(|(index, _)| mask & (1 << index) != 0);
            nodes.map(|(_, node)| node.name.clone()).collect()
        };
        job.only = self.only.map(chosen).filter(|nodes: &Vec<String>| !nodes.is_empty());
        let mut profiles = self.sets.iter().cycle();
        settle_group(&mut job.root, &mut profiles, cluster, rooms);
        job
    }
}

fn settle_group<'m>(
    group: &mut Group,
    profiles: &mut impl Iterator<Item = &'m PodSetProfile>,
    cluster: &Cluster,
    rooms: &mut [Room],
) {
    for member in &mut group.members {
        match member {
            Member::Group(inner) => settle_group(inner, profiles, cluster, rooms),
            Member::Set(set) => {
                set.nominated = set.nominated.take().filter(|name| cluster.nodes.iter().any(|node| node.name == *name));
                settle_set(set, profiles.next().expect("profiles are repeated"), rooms);
            }
        }
    }
}

fn settle_set(set: &mut Set, pod_set_profile: &PodSetProfile, rooms: &mut [Room]) {
    let count = set.pods.len();
    let pod_rules: Vec<(Status, usize)> = match pod_set_profile {
        PodSetProfile::Waiting => return,
        PodSetProfile::Running { start, waiting } => {
            let running = count.saturating_sub(*waiting);
            (0..running).map(|index| (Status::Running, start + index / 2)).collect()
        }
        PodSetProfile::Mixed(pod_rules) => pod_rules[..count].to_vec(),
    };
    let wanted = pod_rules.len();
    let before = rooms.to_vec();
    for (pod, (status, start)) in set.pods.iter_mut().zip(pod_rules) {
        if matches!(status, Status::Pending | Status::Gated) {
            *pod = Pod { status, place: None };
            continue;
        }
        let count = rooms.len();
        let place = (start..start + count).find_map(|node| rooms[node % count].take(&set.ask, &set.ports));
        *pod = place.map_or(Pod::PENDING, |place| Pod { status, place: Some(place) });
    }
    let running = set.pods.iter().filter(|pod| pod.status == Status::Running).count();
    if matches!(pod_set_profile, PodSetProfile::Running { .. }) && running < wanted {
        rooms.clone_from_slice(&before);
        set.pods.fill(Pod::PENDING);
    }
    // Text lists pods by state, so that is their order.
    let order = |pod: &Pod| MIXED.iter().position(|status| *status == pod.status);
    set.pods.sort_by_key(order);
}
