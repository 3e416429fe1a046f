//! Steady overload: ten queues of equal quota, jobs of one pod with random sizes and durations, a little more work than
//! there are GPUs. Counts the running pods that the scheduler evicts for each job that finishes. Every fifth job of
//! `cargo xtask bench-churn`, which does the same on a real API server, on a fifth of its nodes.
//!
//! `cargo test -p kai-sim --test overload -- --nocapture` prints the counts.
#![allow(clippy::print_stderr, reason = "the counts are the result")]

use std::fmt::Write as _;

use kai_sim::{Disturbance, Source, Span, manifest, run_for};

const QUEUES: usize = 10;
const NODES: usize = 20;
const GPUS: usize = 8;
/// Of the benchmark's jobs.
const EVERY: usize = 5;
/// Milliseconds between two jobs: the benchmark creates 3.2 a second.
const BETWEEN_JOBS: usize = EVERY * 10_000 / 32;
/// As long as the benchmark.
const LENGTH: Span = Span::seconds(280);

/// Of 100 finished jobs. A trial of NVIDIA KAI on the real API server had 26.
const EVICTIONS_PER_100_FINISHED_MAX: u64 = 100;

fn cluster() -> String {
    let mut out = String::new();
    for node in 0..NODES {
        let _ = write!(
            out,
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: node-{node:02}}}\n\
             status: {{allocatable: {{cpu: \"64\", memory: 512Gi, nvidia.com/gpu: \"{GPUS}\", pods: \"110\"}}}}\n"
        );
    }
    let mut queue = |name: &str, parent: &str, quota: usize| {
        let _ = write!(
            out,
            "---\napiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {{name: {name}}}\nspec:\n  {parent}\n  resources:\n    \
             gpu: {{quota: {quota}, limit: -1, overQuotaWeight: 1}}\n    cpu: {{quota: -1, limit: -1, overQuotaWeight: 1}}\n    \
             memory: {{quota: -1, limit: -1, overQuotaWeight: 1}}\n"
        );
    };
    queue("dept", "priority: 100", NODES * GPUS);
    for number in 0..QUEUES {
        queue(&format!("q{number}"), "parentQueue: dept", NODES * GPUS / QUEUES);
    }
    out
}

/// Duration in seconds and GPUs of each job.
fn jobs() -> Vec<(u32, u32)> {
    let rows = include_str!("../../../tests/bench-churn/jobs.csv").lines().skip(1).step_by(EVERY);
    let job = |row: &str| {
        let (seconds, gpus) = row.split_once(',')?;
        Some((seconds.parse().ok()?, gpus.parse().ok()?))
    };
    rows.map(|row| job(row).expect("each row has two numbers")).collect()
}

fn sources() -> Vec<Source> {
    let mut scenario = "---\napiVersion: kai.scheduler/v1alpha1\nkind: Scenario\nspec:\n  steps:\n".to_owned();
    let mut sources = Vec::new();
    for (number, (seconds, gpus)) in jobs().into_iter().enumerate() {
        let (name, at) = (format!("job-{number}.yaml"), number * BETWEEN_JOBS);
        let _ = writeln!(scenario, "  - {{at: {at}ms, apply: {name}}}");
        let text = format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: j{number}, namespace: default, labels: {{kai.scheduler/queue: q{}}}}}\n\
             spec: {{template: {{metadata: {{annotations: {{kai.scheduler/sim-duration: {seconds}s}}}}, spec: {{schedulerName: kai-scheduler, \
             containers: [{{name: main, resources: {{limits: {{nvidia.com/gpu: {gpus}}}, requests: {{cpu: 1, memory: 1Gi}}}}}}]}}}}}}\n",
            number % QUEUES
        );
        sources.push(Source { name, text });
    }
    sources.push(Source { name: "cluster.yaml".to_owned(), text: cluster() + &scenario });
    sources
}

#[test]
fn few_running_pods_are_evicted_for_each_job_that_finishes() {
    let plan = manifest::read(&sources()).expect("well-formed");
    let stats = run_for(&plan, 1, Disturbance::None, (LENGTH, LENGTH), &mut |_| {}).expect("breaks nothing");
    let count = |what: &str| stats.seen.get(what).copied().unwrap_or(0);
    let (evicted, finished) = (count("evict"), count("job finished"));
    eprintln!("{} jobs: {finished} finished, {evicted} evictions, {} binds", jobs().len(), count("bind"));
    assert!(finished * 2 > jobs().len() as u64, "{finished} jobs finished");
    assert!(
        evicted * 100 <= finished * EVICTIONS_PER_100_FINISHED_MAX,
        "{evicted} evictions, {finished} jobs finished"
    );
}
