//! Random clusters: every kind of node, queue tree, job and pod state that a snapshot can hold.
//!
//! Pods that run are put where they fit, by plain counting, so that every over-commitment in a result is new.

use std::collections::BTreeMap;
use std::fmt;

use kai_engine::snapshot::Status;
use kai_engine::units::{Ceiling, GPU, ONE};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;

use super::room::Room;
use crate::support::{Ask, Bounds, Cluster, Flag, Gpu, Grace, Group, Job, Member, Node, Pod, Queue, Set};

/// A cluster that prints as text, to be read and kept as a case.
#[derive(Clone)]
pub(super) struct Shown(pub(super) Cluster);

impl fmt::Debug for Shown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\n{}", self.0)
    }
}

/// Any cluster.
pub(super) fn clusters() -> impl Strategy<Value = Shown> {
    let jobs = vec(job(), 1..10);
    (settings(), vec(node(), 1..6), tree(), jobs).prop_map(|(settings, nodes, queues, plans)| {
        let nodes = nodes.into_iter().enumerate().map(|(index, node)| Node { name: format!("n{index}"), ..node });
        let mut cluster = Cluster {
            settings: settings.into_iter().flatten().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            levels: vec!["zone".to_owned(), "rack".to_owned()],
            nodes: nodes.collect(),
            queues,
            jobs: Vec::new(),
        };
        let mut rooms: Vec<Room> = cluster.nodes.iter().map(Room::of).collect();
        for (index, plan) in plans.into_iter().enumerate() {
            let job = plan.settle(&cluster, &mut rooms, format!("j{index}"));
            cluster.jobs.push(job);
        }
        Shown(cluster)
    })
}

/// Scheduler settings that change how much is moved, evicted or spared.
fn settings() -> impl Strategy<Value = Vec<Option<(&'static str, &'static str)>>> {
    let one_of = |key: &'static str, values: &'static [&'static str], often: f64| {
        weighted(often, select(values)).prop_map(move |value| value.map(|value| (key, value)))
    };
    [
        one_of("gpu", &["spread"], 0.2),
        one_of("devices", &["spread", "none"], 0.2),
        one_of("generators", &["local", "multi", "multi,local"], 0.2),
        one_of("moves", &["none", "1", "3"], 0.4),
        one_of("skip-alike", &["off"], 0.3),
        one_of("consolidating-reclaim", &["off"], 0.2),
        one_of("keep-nodes-whole", &["on"], 0.2),
        one_of("preempt-min", &["100"], 0.2),
        one_of("reclaim-min", &["100"], 0.2),
        one_of("reclaim-method", &["queue"], 0.2),
        one_of("multiplier", &["2"], 0.1),
    ]
    .into_iter()
    .collect::<Vec<_>>()
}

fn node() -> impl Strategy<Value = Node> {
    let amounts = (
        select(&[0i64, 1, 2, 2, 4, 4, 8][..]),
        select(&[4i64, 16, 64][..]),
        select(&[16i64, 64][..]),
        select(&[3i64, 8, 110, 110][..]),
    );
    let memory = weighted(0.7, select(&[16_000i64, 40_000, 80_000][..]));
    let taken = (0..2i64, any::<bool>());
    let flags = vec(weighted(0.06, select(&[Flag::Cordoned, Flag::NotReady, Flag::Tainted][..])), 2);
    let extra = (weighted(0.15, 1..5i64), weighted(0.2, 1..3i64));
    let domains = weighted(0.9, ("[xy]", "[12]"));
    (amounts, memory, taken, flags, extra, domains).prop_map(
        |((gpus, cpu, memory, pods), gpu_memory, (taken, leaving), flags, (mig, rdma), domains)| {
            let taken = taken.min(gpus);
            let flags = Flag::WORDS.iter().map(|(_, flag)| *flag).filter(|flag| flags.contains(&Some(*flag)));
            let mut extra = BTreeMap::new();
            extra.extend(mig.map(|count| ("mig-1g.5gb".to_owned(), count)));
            extra.extend(rdma.map(|count| ("+rdma".to_owned(), count)));
            let domains = domains.map_or(Vec::new(), |(zone, rack)| vec![("zone", zone), ("rack", rack)]);
            Node {
                name: String::new(),
                cpu_milli: cpu * 1000,
                memory: memory << 30,
                gpus,
                pods,
                gpu_memory,
                extra,
                taken,
                leaving: if leaving { taken } else { 0 },
                domains: domains.into_iter().map(|(level, domain)| (level.to_owned(), domain)).collect(),
                flags: flags.collect(),
            }
        },
    )
}

/// Two or three levels of queues.
fn tree() -> impl Strategy<Value = Vec<Queue>> {
    let child = (queue(), weighted(0.2, vec(queue(), 1..3)));
    vec((queue(), vec(child, 0..4)), 1..4).prop_map(|tops| {
        let mut queues = Vec::new();
        let mut add = |queue: Queue, name: String, parent: Option<&String>| {
            queues.push(Queue { name, parent: parent.cloned(), ..queue });
        };
        for (index, (top, children)) in tops.into_iter().enumerate() {
            let top_name = format!("q{index}");
            add(top, top_name.clone(), None);
            for (index, (child, below)) in children.into_iter().enumerate() {
                let child_name = format!("{top_name}-{index}");
                add(child, child_name.clone(), Some(&top_name));
                for (index, leaf) in below.into_iter().flatten().enumerate() {
                    add(leaf, format!("{child_name}-{index}"), Some(&child_name));
                }
            }
        }
        queues
    })
}

fn queue() -> impl Strategy<Value = Queue> {
    let ceiling = |often: f64, most: i64, unit: i64| {
        weighted(often, 0..=most).prop_map(move |amount| amount.map_or(Ceiling::Unlimited, |n| Ceiling::At(n * unit)))
    };
    let quota = (ceiling(0.2, 4, 4000), ceiling(0.1, 4, 8 << 30), ceiling(0.9, 12, GPU / 2));
    let limit = (ceiling(0.15, 4, 4000), ceiling(0.1, 4, 8 << 30), ceiling(0.3, 16, GPU / 2));
    let min = || weighted(0.15, select(&[0i64, 60, 600][..]));
    let rank = (0..4i64, select(&[50, 100, 100, 200][..]), 0..4i64, weighted(0.1, 0..ONE));
    (quota, limit, rank, min(), min()).prop_map(|(quota, limit, (weight, priority, age, usage), preempt, reclaim)| {
        Queue {
            name: String::new(),
            parent: None,
            priority,
            age,
            quota: [quota.0, quota.1, quota.2],
            limit: [limit.0, limit.1, limit.2],
            weight: weight * ONE,
            usage: usage.unwrap_or(0),
            preempt_min: preempt,
            reclaim_min: reclaim,
        }
    })
}

/// A job before its pods have found nodes.
#[derive(Clone, Debug)]
struct JobPlan {
    /// Which queue: leaves and others are numbered, wrapping around.
    queue: (QueueKind, usize),
    job: Job,
    /// Node numbers, wrapping around, and moods of the pod sets.
    sets: Vec<Mood>,
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
enum Mood {
    Waiting,
    /// All run, on nodes from this one on, if they fit.
    Running(usize),
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

fn mood() -> impl Strategy<Value = Mood> {
    prop_oneof![
        4 => Just(Mood::Waiting),
        5 => (0..8usize).prop_map(Mood::Running),
        2 => vec((select(&MIXED[..]), 0..8usize), 4).prop_map(Mood::Mixed),
    ]
}

fn job() -> impl Strategy<Value = JobPlan> {
    let queue = prop_oneof![18 => Just(QueueKind::Leaf), 1 => Just(QueueKind::Any), 1 => Just(QueueKind::Missing)];
    let rank = (select(&[25, 50, 50, 75, 100, 125][..]), weighted(0.2, any::<bool>()), 0..5i64);
    let past = (
        weighted(0.5, select(&[10i64, 99, 100, 700][..])),
        weighted(0.2, select(&[10i64, 60, 200][..])),
        weighted(0.1, select(&[5i64, 500][..])),
        weighted(0.1, select(&[3i64, 600][..])),
    );
    let grace = prop_oneof![8 => Just(Grace::Default), 1 => Just(Grace::Never), 1 => Just(Grace::Seconds(10))];
    let rules = (weighted(0.1, any::<u8>()), prop::bool::weighted(0.15));
    let moods = vec(mood(), 4);
    ((queue, 0..16usize), rank, past, grace, rules, root(), moods).prop_map(
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
fn root() -> impl Strategy<Value = Group> {
    let named = |count: usize| vec(set(), count..=count.max(3));
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
            Group { name: String::new(), need, bounds: Bounds::default(), members }
        },
    );
    let plain = (bounds(), set()).prop_map(|(bounds, set)| {
        let set = Set { bounds: Bounds::default(), ..set };
        Group { name: String::new(), need: None, bounds, members: vec![Member::Set(set)] }
    });
    prop_oneof![6 => plain, 2 => several, 1 => nested]
}

fn sets_named(sets: Vec<Set>) -> Vec<Member> {
    let named = |(index, set)| Member::Set(Set { name: format!("s{index}"), ..set });
    sets.into_iter().enumerate().map(named).collect()
}

fn bounds() -> impl Strategy<Value = Bounds> {
    let level = |often: f64| weighted(often, select(&["zone", "rack"][..]));
    (level(0.1), level(0.05)).prop_map(|(required, preferred)| Bounds {
        required: required.map(str::to_owned),
        preferred: preferred.map(str::to_owned),
    })
}

fn set() -> impl Strategy<Value = Set> {
    let size = prop_oneof![1 => Just(0usize), 12 => 1..4usize];
    // Gangs, elastic jobs, and now and then a minimum that nobody can reach.
    let min = prop_oneof![5 => Just(None), 5 => (0..3u32).prop_map(Some), 1 => Just(Some(4))];
    let ports = prop_oneof![12 => Just(vec![]), 1 => Just(vec![80]), 1 => Just(vec![80, 81])];
    (size, min, ask(), ports, bounds(), weighted(0.08, 0..5usize)).prop_map(
        |(size, min, ask, ports, bounds, nominated)| Set {
            name: String::new(),
            min: min.unwrap_or(size as u32),
            bounds,
            ask,
            ports,
            nominated: nominated.map(|index| format!("n{index}")),
            pods: vec![Pod::PENDING; size],
        },
    )
}

fn ask() -> impl Strategy<Value = Ask> {
    let devices = || prop_oneof![4 => Just(1u32), 1 => Just(2u32)];
    let portion = select(&[200_000i64, 250_000, 330_000, 500_000, 600_000][..]);
    let gpu = prop_oneof![
        6 => (1..5i64).prop_map(Gpu::Whole),
        4 => (devices(), portion).prop_map(|(devices, portion)| Gpu::Share { devices, portion }),
        2 => (devices(), select(&[4000i64, 8000, 20_000][..])).prop_map(|(devices, mib)| Gpu::Memory { devices, mib }),
        3 => Just(Gpu::None),
    ];
    let extra = (prop::bool::weighted(0.08), prop::bool::weighted(0.06));
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
    fn settle(self, cluster: &Cluster, rooms: &mut [Room], name: String) -> Job {
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
        let mut moods = self.sets.iter().cycle();
        settle_group(&mut job.root, &mut moods, cluster, rooms);
        job
    }
}

fn settle_group<'m>(
    group: &mut Group,
    moods: &mut impl Iterator<Item = &'m Mood>,
    cluster: &Cluster,
    rooms: &mut [Room],
) {
    for member in &mut group.members {
        match member {
            Member::Group(inner) => settle_group(inner, moods, cluster, rooms),
            Member::Set(set) => {
                set.nominated = set.nominated.take().filter(|name| cluster.nodes.iter().any(|node| node.name == *name));
                settle_set(set, moods.next().expect("moods are repeated"), rooms);
            }
        }
    }
}

fn settle_set(set: &mut Set, mood: &Mood, rooms: &mut [Room]) {
    let count = set.pods.len();
    let wishes: Vec<(Status, usize)> = match mood {
        Mood::Waiting => return,
        Mood::Running(start) => (0..count).map(|index| (Status::Running, start + index / 2)).collect(),
        Mood::Mixed(wishes) => wishes[..count].to_vec(),
    };
    let before = rooms.to_vec();
    for (pod, (status, start)) in set.pods.iter_mut().zip(wishes) {
        if matches!(status, Status::Pending | Status::Gated) {
            *pod = Pod { status, place: None };
            continue;
        }
        let count = rooms.len();
        let place = (start..start + count).find_map(|node| rooms[node % count].take(&set.ask, &set.ports));
        *pod = place.map_or(Pod::PENDING, |place| Pod { status, place: Some(place) });
    }
    let all_run = set.pods.iter().all(|pod| pod.status == Status::Running);
    if matches!(mood, Mood::Running(_)) && !all_run {
        rooms.clone_from_slice(&before);
        set.pods.fill(Pod::PENDING);
    }
    // Text lists pods by state, so that is their order.
    let order = |pod: &Pod| MIXED.iter().position(|status| *status == pod.status);
    set.pods.sort_by_key(order);
}
