//! The jobs of the benchmark: always the same 774, read from `jobs.csv`, in the order in which they are created.

use std::time::Duration;

use serde_json::{Value, json};

pub(crate) const QUEUES: usize = 10;
/// GPUs of each node.
pub(crate) const GPUS: u32 = 8;
/// Jobs are created in batches of so many, which follow each other at this rate.
const BATCH: usize = 9;
const JOBS_PER_SECOND: f64 = 3.2;

pub(crate) const NAMESPACE: &str = "default";

/// A job of one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) number: usize,
    pub(crate) runs_for: Duration,
    pub(crate) gpus: u32,
}

/// Who plays kubelet, and by which annotation it learns how long a pod runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kubelet {
    TestCluster,
    Simulator,
}

pub(crate) fn jobs() -> Vec<Job> {
    let rows = include_str!("../jobs.csv").lines().skip(1).enumerate();
    let job = |(number, row): (usize, &str)| {
        let (seconds, gpus) = row.split_once(',')?;
        Some(Job { number, runs_for: Duration::from_secs(seconds.parse().ok()?), gpus: gpus.parse().ok()? })
    };
    rows.map(|row| job(row).expect("jobs.csv has two numbers in each row")).collect()
}

/// When each batch is created, counted from the start.
pub(crate) fn batches(jobs: &[Job]) -> impl Iterator<Item = (Duration, &[Job])> {
    let at = |batch: usize| Duration::from_secs_f64((batch * BATCH) as f64 / JOBS_PER_SECOND);
    jobs.chunks(BATCH).enumerate().map(move |(number, batch)| (at(number), batch))
}

/// A department that owns all GPUs, and queues that share it equally.
pub(crate) fn queues(nodes: u32) -> Vec<Value> {
    let all = nodes * GPUS;
    let queue = |name: &str, quota: u32, parent: Option<&str>| {
        let unlimited = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        let mut queue = json!({
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"resources": {
                "cpu": unlimited,
                "memory": unlimited,
                "gpu": {"quota": quota, "limit": -1, "overQuotaWeight": 1},
            }},
        });
        if let Some(parent) = parent {
            queue["spec"]["parentQueue"] = json!(parent);
        }
        queue
    };
    let leaves = (0..QUEUES).map(|number| queue(&queue_name(number), all / QUEUES as u32, Some("dept")));
    [queue("dept", all, None)].into_iter().chain(leaves).collect()
}

fn queue_name(number: usize) -> String {
    format!("q{number}")
}

impl Job {
    pub(crate) fn name(self) -> String {
        format!("j{}", self.number)
    }

    pub(crate) fn manifest(self, kubelet: Kubelet) -> Value {
        let annotation = match kubelet {
            Kubelet::TestCluster => "e2e.test/run-for",
            Kubelet::Simulator => "kai.scheduler/sim-duration",
        };
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": self.name(),
                "namespace": NAMESPACE,
                "labels": {"kai.scheduler/queue": queue_name(self.number % QUEUES)},
            },
            "spec": {
                "backoffLimit": 50,
                "template": {
                    "metadata": {"annotations": {annotation: format!("{}s", self.runs_for.as_secs())}},
                    "spec": {
                        "schedulerName": "kai-scheduler",
                        "restartPolicy": "Never",
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{
                            "name": "main",
                            "image": "any",
                            "resources": {
                                "limits": {"nvidia.com/gpu": self.gpus.to_string()},
                                "requests": {"cpu": "1", "memory": "1Gi"},
                            },
                        }],
                    },
                },
            },
        })
    }
}

pub(crate) fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_ask_for_a_little_more_than_there_is() {
        let jobs = jobs();
        assert_eq!(jobs.len(), 774);
        let gpu_seconds: u64 = jobs.iter().map(|job| u64::from(job.gpus) * job.runs_for.as_secs()).sum();
        let (last, _) = batches(&jobs).last().expect("there are jobs");
        let share = gpu_seconds as f64 / (last.as_secs_f64() * 800.0);
        assert!((1.0..1.6).contains(&share), "{share}");
        assert!((238..242).contains(&last.as_secs()), "{last:?}");
    }
}
