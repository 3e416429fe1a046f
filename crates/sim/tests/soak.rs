//! A day of churn: jobs come, run and go, calls fail, watches lag and list again, etcd is compacted. Whatever components
//! keep about objects that are gone would add up.
//!
//! Counts the bytes of the whole process: caches, assumptions, queues and histories of all components are among them,
//! named or not, and so is the simulated cluster. At the end of every hour all workloads have been deleted, so each hour
//! ends as the one before. `cargo test -p kai-sim --test soak -- --nocapture` prints the bytes.
#![allow(clippy::print_stderr, reason = "the bytes are the result")]

use std::alloc::System;
use std::fmt::Write as _;

use cap::Cap;
use kai_sim::{Disturbance, Source, Span, manifest, run_for};

#[global_allocator]
static BYTES: Cap<System> = Cap::new(System, usize::MAX);

const HOURS: u32 = 24;
const HOUR: Span = Span::seconds(3_600);
/// Workloads of an hour, all of which are gone some minutes before its end.
const WORKLOADS: u32 = 25;
/// After so many hours whatever is bounded has its size.
const WARM_UP: usize = 4;
/// From the morning to the evening: less than 300 bytes for each pod that comes and goes in between. Hours differ by twice as
/// much, so the least of several are compared.
const GROWTH_MAX: usize = 256 << 10;

const CLUSTER: &str = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a, labels: {nvidia.com/gpu.memory: \"16000\"}},
   status: {allocatable: {cpu: \"32\", memory: 64Gi, nvidia.com/gpu: \"8\", pods: \"110\"}}}
- {apiVersion: v1, kind: Node, metadata: {name: b, labels: {nvidia.com/gpu.memory: \"16000\"}},
   status: {allocatable: {cpu: \"32\", memory: 64Gi, nvidia.com/gpu: \"8\", pods: \"110\"}}}
- {apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: top}, spec: {resources:
   {gpu: {quota: 16, limit: -1}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}}}
- {apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: one}, spec: {parentQueue: top, resources:
   {gpu: {quota: 8, limit: -1, overQuotaWeight: 1}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}}}
- {apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: two}, spec: {parentQueue: top, resources:
   {gpu: {quota: 8, limit: -1, overQuotaWeight: 1}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}}}
";

/// Jobs of whole and shared GPUs, Deployments, some of which never fit; each lives a quarter of an hour.
fn workload(number: u32) -> (&'static str, String) {
    let queue = ["one", "two"][number as usize % 2];
    let labels = format!("labels: {{kai.scheduler/queue: {queue}}}");
    let pod = |annotations: &str, limits: &str| {
        format!(
            "{{metadata: {{annotations: {{{annotations}}}}}, spec: {{schedulerName: kai-scheduler, \
             containers: [{{name: main, resources: {{requests: {{cpu: 100m}}, limits: {{{limits}}}}}}}]}}}}"
        )
    };
    let name = format!("w{number}");
    let (kind, api, spec) = match number % 5 {
        0 => (
            "Job",
            "batch/v1",
            format!("parallelism: 2, completions: 2, template: {}", pod("gpu-fraction: \"0.5\"", "")),
        ),
        1 => ("Job", "batch/v1", {
            let annotations = "kai.scheduler/sim-duration: 200s";
            format!("parallelism: 4, completions: 4, template: {}", pod(annotations, "nvidia.com/gpu: 2"))
        }),
        2 => ("Deployment", "apps/v1", format!("replicas: 3, template: {}", pod("", "nvidia.com/gpu: 1"))),
        3 => ("Job", "batch/v1", format!("template: {}", pod("", "nvidia.com/gpu: 9"))),
        _ => ("Job", "batch/v1", {
            format!("parallelism: 2, completions: 2, template: {}", pod("gpu-memory: \"4000\"", ""))
        }),
    };
    (
        kind,
        format!(
            "apiVersion: {api}\nkind: {kind}\nmetadata: {{name: {name}, namespace: team, {labels}}}\nspec: {{{spec}}}\n"
        ),
    )
}

fn sources() -> Vec<Source> {
    let mut scenario =
        "---\napiVersion: kai.scheduler/v1alpha1\nkind: Scenario\nspec:\n  podStartJitter: 3s\n  steps:\n".to_owned();
    let mut sources = Vec::new();
    for hour in 0..HOURS {
        for number in 0..WORKLOADS {
            let name = format!("{number}.yaml");
            let (kind, text) = workload(number);
            if hour == 0 {
                sources.push(Source { name: name.clone(), text });
            }
            let begin = hour * 3_600 + number * 96;
            let end = begin + 900;
            let _ = writeln!(scenario, "  - {{at: {begin}s, apply: {name}}}");
            let _ =
                writeln!(scenario, "  - {{at: {end}s, delete: {{kind: {kind}, name: w{number}, namespace: team}}}}");
        }
    }
    sources.push(Source { name: "cluster.yaml".to_owned(), text: CLUSTER.to_owned() + &scenario });
    sources
}

#[test]
fn a_day_of_churn_takes_no_more_memory_than_an_hour() {
    let plan = manifest::read(&sources()).expect("well-formed");
    let mut bytes = Vec::with_capacity(HOURS as usize);
    let length = Span(HOUR.0 * i64::from(HOURS));
    let mut on_hour = |_: Span| bytes.push(BYTES.allocated());
    let stats = run_for(&plan, 1, Disturbance::Lasting, (length, HOUR), &mut on_hour).expect("breaks nothing");
    eprintln!("{bytes:?}\n{:?}", stats.seen);
    let count = |what: &str| stats.seen.get(what).copied().unwrap_or(0);
    assert!(count("bind") > u64::from(HOURS * WORKLOADS), "{} binds", count("bind"));
    let least = |hours: &[usize]| hours.iter().min().copied().expect("some hours");
    let (morning, evening) = (least(&bytes[WARM_UP..12]), least(&bytes[16..]));
    assert!(evening <= morning + GROWTH_MAX, "grew from {morning} to {evening} bytes: {bytes:?}");
}
