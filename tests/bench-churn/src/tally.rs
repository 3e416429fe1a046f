//! What became of the jobs, from a watch of pods alone: the same counting for every scheduler.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Sum;
use std::ops::Add;

use serde_json::Value;

/// One round of one scheduler, or several added up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    /// Jobs that have done all of their work.
    pub(crate) finished: usize,
    /// Pods that had a node and were deleted before their work was done.
    pub(crate) evicted: usize,
    /// Jobs that this happened to.
    pub(crate) jobs_evicted: usize,
    /// How long evicted pods had run, times their GPUs.
    pub(crate) lost_gpu_seconds: f64,
}

impl Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            finished: self.finished + other.finished,
            evicted: self.evicted + other.evicted,
            jobs_evicted: self.jobs_evicted + other.jobs_evicted,
            lost_gpu_seconds: self.lost_gpu_seconds + other.lost_gpu_seconds,
        }
    }
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

/// The life of a pod as far as it was seen.
#[derive(Debug, Default)]
struct Life {
    job: String,
    gpus: f64,
    started: Option<f64>,
    succeeded: bool,
    bound: bool,
    /// When its deletion was requested.
    deleted: Option<f64>,
}

/// Counts from everything that a watch of pods has shown.
pub(crate) fn of_watch(text: &str) -> Tally {
    let mut lives: BTreeMap<String, Life> = BTreeMap::new();
    // The last object may be half written.
    for pod in serde_json::Deserializer::from_str(text).into_iter::<Value>().map_while(Result::ok) {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str);
        let (Some(uid), Some(job)) =
            (text("/metadata/uid"), pod["metadata"]["labels"]["batch.kubernetes.io/job-name"].as_str())
        else {
            continue;
        };
        let life = lives.entry(uid.to_owned()).or_default();
        job.clone_into(&mut life.job);
        life.gpus = text("/spec/containers/0/resources/limits/nvidia.com~1gpu")
            .and_then(|gpus| gpus.parse().ok())
            .unwrap_or_default();
        life.bound |= text("/spec/nodeName").is_some();
        life.succeeded |= text("/status/phase") == Some("Succeeded");
        if text("/status/phase") == Some("Running") {
            life.started = life.started.or(text("/status/startTime").and_then(seconds));
        }
        if let Some(ends) = text("/metadata/deletionTimestamp").and_then(seconds) {
            let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_f64().unwrap_or_default();
            life.deleted = Some(ends - grace);
        }
    }
    let evicted: Vec<&Life> =
        lives.values().filter(|life| life.bound && !life.succeeded && life.deleted.is_some()).collect();
    let finished: BTreeSet<&str> = lives.values().filter(|life| life.succeeded).map(|life| life.job.as_str()).collect();
    let lost = |life: &&Life| {
        let ran = life.started.zip(life.deleted).map_or(0.0, |(started, deleted)| (deleted - started).max(0.0));
        ran * life.gpus
    };
    Tally {
        finished: finished.len(),
        evicted: evicted.len(),
        jobs_evicted: evicted.iter().map(|life| life.job.as_str()).collect::<BTreeSet<_>>().len(),
        lost_gpu_seconds: evicted.iter().map(lost).sum(),
    }
}

/// Counts from the timeline that `kai simulate -o json` prints.
pub(crate) fn of_simulation(report: &Value, gpus_of: impl Fn(&str) -> u32) -> Tally {
    let mut running: BTreeMap<&str, f64> = BTreeMap::new();
    let (mut finished, mut evicted_jobs) = (BTreeSet::new(), BTreeSet::new());
    let mut tally = Tally::default();
    for entry in report["timeline"].as_array().into_iter().flatten() {
        let (Some(event), Some(pod), Some(at)) = (entry["event"].as_str(), entry["pod"].as_str(), entry["t"].as_f64())
        else {
            continue;
        };
        let job = pod.rsplit_once('-').map_or(pod, |(job, _)| job);
        match event {
            "bind" => drop(running.insert(pod, at)),
            "finish" => {
                running.remove(pod);
                finished.insert(job);
            }
            "evict" | "move" => {
                tally.evicted += 1;
                evicted_jobs.insert(job);
                let ran = running.remove(pod).map_or(0.0, |since| at - since);
                tally.lost_gpu_seconds += ran * f64::from(gpus_of(job.rsplit('/').next().unwrap_or(job)));
            }
            _ => {}
        }
    }
    Tally { finished: finished.len(), jobs_evicted: evicted_jobs.len(), ..tally }
}

/// Seconds of a time such as `2026-01-31T12:00:05Z`, from the start of some day: rounds are short.
fn seconds(time: &str) -> Option<f64> {
    let (date, time) = time.trim_end_matches('Z').split_once('T')?;
    let day: f64 = date.rsplit('-').next()?.parse().ok()?;
    let mut parts = time.split(':').map(str::parse::<f64>);
    let mut part = || parts.next()?.ok();
    Some(day * 86_400.0 + part()? * 3_600.0 + part()? * 60.0 + part()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(uid: &str, job: &str, phase: &str, deleted: Option<&str>) -> String {
        let mut pod = json!({
            "metadata": {"uid": uid, "labels": {"batch.kubernetes.io/job-name": job}},
            "spec": {
                "nodeName": "n",
                "containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}],
            },
            "status": {"phase": phase, "startTime": "2026-01-31T12:00:00Z"},
        });
        if let Some(at) = deleted {
            pod["metadata"]["deletionTimestamp"] = json!(at);
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(1);
        }
        pod.to_string()
    }

    #[test]
    fn a_pod_that_is_deleted_before_its_end_is_evicted_and_its_work_is_lost() {
        let watch = [
            pod("1", "a", "Running", None),
            pod("1", "a", "Running", Some("2026-01-31T12:00:11Z")),
            pod("2", "a", "Running", None),
            pod("2", "a", "Succeeded", None),
            pod("3", "b", "Running", None),
        ];
        let want = Tally { finished: 1, evicted: 1, jobs_evicted: 1, lost_gpu_seconds: 20.0 };
        assert_eq!(of_watch(&watch.concat()), want);
    }

    #[test]
    fn deleting_what_is_done_or_never_had_a_node_takes_nothing_away() {
        let mut unplaced = pod("2", "b", "Pending", Some("2026-01-31T12:00:11Z"));
        unplaced = unplaced.replace("\"nodeName\":\"n\"", "\"other\":0");
        let watch = [pod("1", "a", "Succeeded", Some("2026-01-31T12:00:11Z")), unplaced, "{\"half".to_owned()];
        assert_eq!(of_watch(&watch.concat()), Tally { finished: 1, ..Tally::default() });
    }

    #[test]
    fn a_timeline_is_counted_alike() {
        let entry = |t: u32, event: &str, pod: &str| json!({"t": t, "event": event, "pod": pod});
        let report = json!({"timeline": [
            entry(0, "bind", "d/a-0"), entry(5, "evict", "d/a-0"), entry(6, "bind", "d/a-1"), entry(9, "finish", "d/a-1"),
            entry(2, "bind", "d/b-0"), entry(3, "move", "d/b-0"),
        ]});
        let want = Tally { finished: 1, evicted: 2, jobs_evicted: 2, lost_gpu_seconds: 18.0 };
        assert_eq!(of_simulation(&report, |_| 3), want);
    }

    #[test]
    fn rounds_add_up() {
        let one = Tally { finished: 1, evicted: 2, jobs_evicted: 3, lost_gpu_seconds: 4.0 };
        assert_eq!([one, one].into_iter().sum::<Tally>().lost_gpu_seconds.to_bits(), 8.0_f64.to_bits());
    }
}
