//! Random clusters: every kind of node, queue tree, job and pod state that a snapshot can hold.
//!
//! Pods that run are put where they fit, by plain counting, so that every over-commitment in a result is new.

use std::collections::BTreeMap;
use std::fmt;

use kai_engine::units::{Ceiling, GPU, ONE};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;

use super::jobs::job;
use super::room::Room;
use crate::support::{Cluster, Flag, Node, Queue};

/// A cluster that prints as text, to be read and kept as a case.
#[derive(Clone)]
pub(super) struct Shown(pub(super) Cluster);

impl fmt::Debug for Shown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\n{}", self.0)
    }
}

/// What clusters tend to be like.
#[derive(Clone, Copy)]
pub(super) struct ClusterProfile {
    /// How often unusual features show: rules, special nodes, odd resources. 1 puts some into every cluster.
    pub(super) rare: f64,
    gpus: &'static [i64],
    cpus: &'static [i64],
    slots: &'static [i64],
    jobs: (usize, usize),
    /// Of ten pod sets, how many run.
    pub(super) running: u32,
}

/// Everything at once, in small clusters with room.
const ODD: ClusterProfile = ClusterProfile {
    rare: 1.0,
    gpus: &[0, 1, 2, 2, 4, 4, 8],
    cpus: &[4, 16, 64],
    slots: &[3, 8, 110, 110],
    jobs: (1, 10),
    running: 4,
};

/// Full clusters of ordinary nodes, in which jobs can only start at the cost of others.
const CROWDED: ClusterProfile =
    ClusterProfile { rare: 0.1, gpus: &[2, 4], cpus: &[64], slots: &[110], jobs: (4, 16), running: 7 };

/// Nodes in use with room here and there, so that moving pods helps.
const SCATTERED: ClusterProfile = ClusterProfile { gpus: &[4], jobs: (3, 8), running: 6, ..CROWDED };

/// Any cluster.
pub(super) fn clusters() -> impl Strategy<Value = Shown> {
    prop_oneof![1 => clusters_of(ODD), 1 => clusters_of(CROWDED), 1 => clusters_of(SCATTERED)]
}

fn clusters_of(profile: ClusterProfile) -> impl Strategy<Value = Shown> {
    let jobs = vec(job(profile), profile.jobs.0..profile.jobs.1);
    (settings(), vec(node(profile), 1..6), tree(profile), jobs).prop_map(|(settings, nodes, queues, plans)| {
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
        one_of("steps", &["2", "6", "20"], 0.1),
    ]
    .into_iter()
    .collect::<Vec<_>>()
}

fn node(profile: ClusterProfile) -> impl Strategy<Value = Node> {
    let amounts = (select(profile.gpus), select(profile.cpus), select(&[16i64, 64][..]), select(profile.slots));
    let memory = weighted(0.7, select(&[16_000i64, 40_000, 80_000][..]));
    let taken = (weighted(0.5 * profile.rare, Just(1i64)).prop_map(Option::unwrap_or_default), any::<bool>());
    let flags = vec(weighted(0.06 * profile.rare, select(&[Flag::Cordoned, Flag::NotReady, Flag::Tainted][..])), 2);
    let extra = (weighted(0.15 * profile.rare, 1..5i64), weighted(0.2 * profile.rare, 1..3i64));
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
fn tree(profile: ClusterProfile) -> impl Strategy<Value = Vec<Queue>> {
    let child = (queue(profile), weighted(0.2, vec(queue(profile), 1..3)));
    vec((queue(profile), vec(child, 0..4)), 1..4).prop_map(|tops| {
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

fn queue(profile: ClusterProfile) -> impl Strategy<Value = Queue> {
    let ceiling = |often: f64, most: i64, unit: i64| {
        weighted(often, 0..=most).prop_map(move |amount| amount.map_or(Ceiling::Unlimited, |n| Ceiling::At(n * unit)))
    };
    let rare = profile.rare;
    let quota = (ceiling(0.2 * rare, 4, 4000), ceiling(0.1 * rare, 4, 8 << 30), ceiling(0.9, 12, GPU / 2));
    let limit =
        (ceiling(0.15 * rare, 4, 4000), ceiling(0.1 * rare, 4, 8 << 30), ceiling(0.1 + 0.2 * rare, 16, GPU / 2));
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
