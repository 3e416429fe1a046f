//! Cycles over one snapshot, measured; in a process of their own, so that one that runs away can be ended and memory
//! is that of this snapshot only.

use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, io};

use kai_engine::Policy;
use kai_generate::{Scenario, Size};
use serde::{Deserialize, Serialize};

use crate::check::After;
use crate::count::Count;
use crate::snapshot::{self, NOW};

/// A cycle that takes longer is ended. KAI needs up to five minutes, so the limit is far below that and far above any expected cycle.
pub const CYCLE_MAX: Duration = Duration::from_mins(1);

/// Exit code of a process whose cycle was ended.
const TOO_LONG: i32 = 3;

/// Enough runs for the best one to be free of disturbances, few enough to wait for.
const RUNS_MIN: u32 = 3;
const RUNS_MAX: u32 = 30;
const RUNS_TIME: Duration = Duration::from_secs(2);

/// What the cycles over one snapshot cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Pods of the snapshot.
    pub pods: usize,
    /// What was decided.
    pub count: Count,
    /// CPU milliseconds of the best cycle; of several clusters the mean.
    pub best_ms: f64,
    /// CPU milliseconds of the first cycle, which finds every cache cold; of several clusters the worst.
    pub first_ms: f64,
    /// Bytes of the snapshot.
    pub snapshot_bytes: u64,
    /// Most bytes in use at once by snapshot and cycle.
    pub work_bytes: u64,
    /// Most bytes in use at once by the process.
    pub peak_bytes: u64,
}

/// How it went.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Measured.
    Done(Sample),
    /// A cycle took more than [`CYCLE_MAX`].
    TooLong,
    /// The process ended otherwise, and how.
    Failed(String),
}

/// Measures in this process, and ends it if a cycle takes too long.
pub fn here(scenario: &Scenario, size: Size, runs_min: u32) -> Sample {
    // Later cycles take no longer than the first, and come only if that was far from the limit.
    kai_process_stats::limit_cpu(CYCLE_MAX, TOO_LONG);
    let bytes = |reading: Option<u64>| reading.unwrap_or(0);
    let empty = bytes(kai_process_stats::rss_bytes());
    let snapshot = snapshot::of_scenario(scenario, size);
    let policy = Policy::default();
    let filled = bytes(kai_process_stats::rss_bytes());
    kai_process_stats::reset_peak_rss();

    let mut times: Vec<Duration> = Vec::new();
    let cycle = |times: &mut Vec<Duration>| {
        let before = kai_process_stats::cpu_time();
        let outcome = kai_engine::cycle(&snapshot, &policy, NOW);
        times.push(kai_process_stats::cpu_since(before));
        outcome
    };
    let outcome = cycle(&mut times);
    let peak = bytes(kai_process_stats::peak_rss_bytes());
    After::new(&snapshot, &outcome).assert_possible();
    while (times.len() as u32) < runs_min.max(RUNS_MIN)
        || (times.iter().sum::<Duration>() < RUNS_TIME && (times.len() as u32) < RUNS_MAX)
    {
        // A cycle of many seconds is not made clearer by more of them.
        if runs_min == 0 && times[0] > 3 * RUNS_TIME {
            break;
        }
        assert_eq!(cycle(&mut times), outcome, "equal input gives equal decisions");
    }
    let ms = |time: &Duration| time.as_secs_f64() * 1000.0;
    Sample {
        pods: snapshot.tasks.len(),
        count: Count::of(&snapshot, &outcome),
        first_ms: ms(&times[0]),
        best_ms: times.iter().map(ms).fold(f64::INFINITY, f64::min),
        snapshot_bytes: filled.saturating_sub(empty),
        work_bytes: peak.saturating_sub(empty),
        peak_bytes: peak,
    }
}

/// Measures clusters that differ in chance only, each in a process of its own. Decisions are those of the first.
///
/// How long a search takes depends on single unlucky jobs, so that one cluster says little about the next.
pub fn several(scenario: &Scenario, size: Size, seeds: u64) -> io::Result<Outcome> {
    let mut all: Option<Sample> = None;
    for seed in 1..=seeds {
        let next = match apart(scenario, Size { seed, ..size })? {
            Outcome::Done(sample) => sample,
            other => return Ok(other),
        };
        all = Some(all.map_or(next.clone(), |all| Sample {
            best_ms: all.best_ms + (next.best_ms - all.best_ms) / seed as f64,
            first_ms: all.first_ms.max(next.first_ms),
            snapshot_bytes: all.snapshot_bytes.max(next.snapshot_bytes),
            work_bytes: all.work_bytes.max(next.work_bytes),
            peak_bytes: all.peak_bytes.max(next.peak_bytes),
            ..all
        }));
    }
    Ok(all.map_or_else(|| Outcome::Failed("no seed".to_owned()), Outcome::Done))
}

/// Measures in a process of its own: this program, asked to `measure`.
pub fn apart(scenario: &Scenario, size: Size) -> io::Result<Outcome> {
    let child = Command::new(env::current_exe()?)
        .args(["measure", scenario.name, &size.nodes.to_string(), &format!("--seed={}", size.seed)])
        .args(size.pending.map(|pending| format!("--pending={pending}")))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()?;
    Ok(match child.status.code() {
        Some(0) => Outcome::Done(serde_json::from_slice(&child.stdout)?),
        Some(TOO_LONG) => Outcome::TooLong,
        _ => {
            let words = String::from_utf8_lossy(&child.stderr);
            Outcome::Failed(words.lines().next_back().unwrap_or("no word").to_owned())
        }
    })
}
