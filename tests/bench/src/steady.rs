//! Cycle after cycle over the objects of one cluster, of which little changes in between.

use std::time::Duration;

use kai_control::key::PodKey;
use kai_control::objects::{Phase, Pod};
use kai_control::scheduler::{CycleProgress, CycleResult, Effect, Scheduler, Settings, Usage};
use kai_control::{Object, World};
use kai_engine::units::{Span, Timestamp};
use kai_generate::{Cluster, objects};

use crate::snapshot::NOW;

/// What the best of several cycles of one kind costs.
#[derive(Clone, Debug)]
pub struct Pace {
    /// What changed before each.
    pub what: &'static str,
    /// CPU milliseconds for lowering, with the engine's ledger; for all actions; for words and effects.
    pub ms: [f64; 3],
    /// Effects of the last.
    pub effects: usize,
    /// Jobs that wait after the last.
    pub waiting: usize,
}

/// Cycles of each kind, so that the best is free of disturbances.
const ROUNDS: usize = 5;

/// Runs a first cycle, then cycles after no, one and many changes.
pub fn paces(cluster: &mut Cluster) -> Vec<Pace> {
    let mut world = World::default();
    for value in objects::objects(cluster) {
        if let Some(object) = Object::parse(&value).expect("generated objects are well-formed") {
            world.apply(object);
        }
    }
    let running = world.pods.values().filter(|pod| pod.phase == Phase::Running).map(|pod| pod.key.clone()).collect();
    let hundredth = cluster.pods() / 200;
    let mut story = Story { world, scheduler: Scheduler::new(Settings::default()), running, now: NOW, ended: 0 };
    vec![
        story.pace("first cycle", 1, 0),
        story.pace("nothing changed", ROUNDS, 0),
        story.pace("one pod ended, one arrived", ROUNDS, 1),
        story.pace("1 % of all pods ended or arrived", ROUNDS, hundredth),
    ]
}

struct Story {
    world: World,
    scheduler: Scheduler,
    /// Pods that ran at first.
    running: Vec<PodKey>,
    now: Timestamp,
    /// Pods that ended so far.
    ended: usize,
}

impl Story {
    fn pace(&mut self, what: &'static str, rounds: usize, changes: usize) -> Pace {
        let mut best = [Duration::MAX; 3];
        let mut last = CycleResult::default();
        for _ in 0..rounds {
            for _ in 0..changes {
                self.one_ends_and_one_arrives();
            }
            self.now = self.now.plus(Span::seconds(1));
            let mut times = [kai_process_stats::cpu_time(); 4];
            last = self.scheduler.cycle_with_progress(&mut self.world, &Usage::default(), self.now, |moment| {
                let end = if moment == CycleProgress::SessionOpened { 1 } else { 2 };
                times[end] = kai_process_stats::cpu_time();
            });
            times[3] = kai_process_stats::cpu_time();
            let took: [Duration; 3] = std::array::from_fn(|part| times[part + 1].saturating_sub(times[part]));
            if took.iter().sum::<Duration>() < best.iter().fold(Duration::ZERO, |sum, part| sum.saturating_add(*part)) {
                best = took;
            }
            for effect in &last.effects {
                self.carry_out(effect);
            }
        }
        let ms = best.map(|part| part.as_secs_f64() * 1000.0);
        Pace { what, ms, effects: last.effects.len(), waiting: last.pending.len() }
    }

    /// Somewhere in the middle of all names, so that nothing is gained from the ends.
    fn one_ends_and_one_arrives(&mut self) {
        let key = self.running[self.ended * 7919 % self.running.len()].clone();
        self.ended += 1;
        let Some(pod) = self.world.pods.get(&key).cloned() else { return };
        let group = pod.group().and_then(|key| self.world.pod_groups.get(&key)).cloned();
        let mut ended = pod.clone();
        ended.phase = Phase::Succeeded;
        self.world.apply(Object::Pod(Box::new(ended)));
        let mut next = pod;
        next.key.name += "-next";
        next.uid += "-next";
        (next.phase, next.node, next.created) = (Phase::Pending, None, self.now);
        next.set_gpu_groups(&[]);
        if let Some(mut group) = group {
            next.annotations.values_mut().filter(|name| **name == group.key.name).for_each(|name| *name += "-next");
            group.key.name += "-next";
            (group.created, group.last_start) = (self.now, None);
            self.world.apply(Object::PodGroup(Box::new(group)));
        }
        self.world.apply(Object::Pod(Box::new(next)));
    }

    /// What was decided is so before the next cycle; an evicted pod is made anew by its owner.
    fn carry_out(&mut self, effect: &Effect) {
        match effect {
            Effect::Bind { pod, node, gpu_groups, .. } => self.change_pod(pod, |pod| {
                (pod.phase, pod.node) = (Phase::Running, Some(node.clone()));
                pod.set_gpu_groups(&gpu_groups.iter().map(|group| group.name.clone()).collect::<Vec<_>>());
            }),
            Effect::Evict { pod, .. } => self.change_pod(pod, |pod| {
                (pod.phase, pod.node) = (Phase::Pending, None);
                pod.set_gpu_groups(&[]);
            }),
            Effect::Nominate { pod, node } => self.change_pod(pod, |pod| pod.nominated_node.clone_from(node)),
            Effect::SetGroupTimestamps { job, last_start, stale_since, last_eviction } => {
                if let Some(mut group) = self.world.pod_groups.get(job).cloned() {
                    (group.last_start, group.stale_since, group.last_eviction) =
                        (*last_start, *stale_since, *last_eviction);
                    self.world.apply(Object::PodGroup(Box::new(group)));
                }
            }
            _ => {}
        }
    }

    fn change_pod(&mut self, key: &PodKey, change: impl FnOnce(&mut Pod)) {
        if let Some(mut pod) = self.world.pods.get(key).cloned() {
            change(&mut pod);
            self.world.apply(Object::Pod(Box::new(pod)));
        }
    }
}
