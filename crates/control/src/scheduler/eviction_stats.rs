//! What evictions cost: how many by which action, the work that is lost with them, and how many pods finish meanwhile.

use std::collections::BTreeMap;

use kai_engine::policy::Action;
use kai_engine::units::{GPU, Timestamp};

use super::Effect;
use crate::objects::{GpuSharing, Node, Phase, Pod};
use crate::world::World;

/// Counts since the scheduler started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionStats {
    pub evicted: BTreeMap<Action, u64>,
    /// Run time since the job last started × GPUs, of all evicted pods: microseconds × millionths of a GPU.
    lost_work: u128,
    /// Pods of this scheduler that have done their work.
    pub finished_pods: u64,
}

impl EvictionStats {
    /// Counts what a cycle evicts.
    pub(super) fn on_cycle(&mut self, world: &World, effects: &[Effect], now: Timestamp) {
        for effect in effects {
            let Effect::Evict { pod, job, action, .. } = effect else { continue };
            *self.evicted.entry(*action).or_default() += 1;
            let started = world.pod_groups.get(job).and_then(|group| group.last_start);
            let ran = started.map_or(0, |start| now.since(start).0.max(0));
            let gpus = world.pods.get(pod).map_or(0, |pod| gpus(world, pod));
            let lost = u128::from(ran.unsigned_abs()) * u128::from(gpus.max(0).unsigned_abs());
            self.lost_work = self.lost_work.saturating_add(lost);
        }
    }

    /// Counts a pod that changes from `before` to `now`.
    pub(super) fn on_pod(&mut self, before: Option<&Pod>, now: &Pod) {
        let finishes = now.phase == Phase::Succeeded && before.is_some_and(|pod| pod.phase != Phase::Succeeded);
        self.finished_pods += u64::from(finishes);
    }

    /// Evictions by all actions.
    pub fn evicted_pods(&self) -> u64 {
        self.evicted.values().sum()
    }

    pub fn lost_gpu_seconds(&self) -> f64 {
        self.lost_work as f64 / (GPU as f64 * 1e6)
    }

    /// `None` before the first pod has finished.
    pub fn evictions_per_finished_pod(&self) -> Option<f64> {
        (self.finished_pods > 0).then(|| self.evicted_pods() as f64 / self.finished_pods as f64)
    }
}

/// GPUs that the pod holds, in millionths.
fn gpus(world: &World, pod: &Pod) -> i64 {
    let whole = pod.request.resources.gpus.saturating_mul(GPU);
    let shared = match pod.request.sharing {
        None => 0,
        Some(GpuSharing::Fraction { devices, portion }) => i64::from(devices).saturating_mul(portion),
        Some(GpuSharing::Memory { devices, mib }) => {
            let node = pod.node.as_ref().and_then(|node| world.nodes.get(node));
            let of_gpu = node.and_then(Node::device_memory).filter(|memory| *memory > 0);
            of_gpu.map_or(0, |memory| i64::from(devices).saturating_mul(mib.saturating_mul(GPU) / memory))
        }
    };
    whole.saturating_add(shared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use crate::kinds::Object;
    use crate::scheduler::reasons::EvictionReason;
    use crate::scheduler::test_cluster::{NOW, world};
    use kai_engine::units::Span;

    #[test]
    fn lost_work_is_run_time_times_gpus() {
        let mut world = world(
            "node a gpu=4
            queue team
            job old queue=team gpu=2 on=a",
        );
        let key = Key::new("lab", "old");
        let mut group = world.pod_groups[&key].clone();
        group.last_start = Some(NOW);
        world.apply(Object::PodGroup(Box::new(group)));
        let evict = |action: Action| Effect::Evict {
            pod: Key::new("lab", "old-0"),
            job: key.clone(),
            node: None,
            action,
            preemptor: None,
            gang_size: 1,
            why: EvictionReason::Other { preemptor: None },
        };
        let mut stats = EvictionStats::default();
        stats.on_cycle(&world, &[evict(Action::Reclaim), evict(Action::Consolidate)], NOW.plus(Span::seconds(30)));
        assert_eq!((stats.evicted_pods(), stats.evicted[&Action::Reclaim]), (2, 1));
        assert_eq!(stats.lost_gpu_seconds().to_bits(), 120.0_f64.to_bits());
        assert_eq!(stats.evictions_per_finished_pod(), None);
        let before = world.pods[&Key::new("lab", "old-0")].clone();
        let done = Pod { phase: Phase::Succeeded, ..before.clone() };
        stats.on_pod(Some(&before), &done);
        stats.on_pod(Some(&done), &done);
        stats.on_pod(None, &done);
        assert_eq!((stats.finished_pods, stats.evictions_per_finished_pod()), (1, Some(2.0)));
    }
}
