//! `kai replay`: the cycle of a recorded cluster once more.

mod report;
mod table;

use std::fs;
use std::path::Path;
use std::time::Duration;

use kai_control::World;
use kai_control::scheduler::config::{action_name, action_named};
use kai_control::scheduler::record::{ActionRecord, CycleRecord};
use kai_control::scheduler::{Configured, CycleProgress, CycleResult, Settings, cycle_with_progress};
use kai_engine::units::Timestamp;
use kai_record::Recording;
use serde_json::Value;

use crate::args::ReplayArgs;
use crate::error::{self, CliError};
use crate::{files, output};
use report::Report;

pub(crate) fn run(args: ReplayArgs) -> Result<(), CliError> {
    let ReplayArgs { file, output, repeat, action, config, now } = args;
    let (recording, read) = timed(|| read(&file));
    let mut recording = recording?;
    let other = config.as_deref().map(read_config).transpose()?;
    let configured = recording.configured(other.as_ref()).map_err(|wrong| {
        let location = config.as_deref().unwrap_or(&file);
        CliError::Input {
            problem: wrong.to_string(),
            location: Some(location.display().to_string()),
            help: Some(wrong.hint.clone()),
        }
    })?;
    let Configured { mut settings, warnings } = configured;
    if !action.is_empty() {
        settings.policy.actions = action.iter().filter_map(|name| action_named(name)).collect();
    }
    for warning in warnings.iter().chain(&recording.errors) {
        error::warn(warning);
    }
    let now = now.map_or_else(|| recording.time(), |now| now.0);
    // In a cluster, watches keep the tables up to date between cycles, so filling them is part of reading.
    let (world, tables) = timed(|| recording.take_world());
    let (cycle, cost) = measure(&world, &recording, &settings, now, repeat)?;
    // The first cycle of the scheduler that sees the file.
    let record = CycleRecord::new(1, now, (&world, &settings, &recording.usage), &cycle, cost.statistics.clone());
    let report = Report::new(&cycle, &cost, read + tables, &world, record);
    output::print(&report, output, |report| table::render(report, &world))
}

fn read(path: &Path) -> Result<Recording, CliError> {
    let bytes = fs::read(path).map_err(|error| {
        let problem = format!("cannot read {}: {}", path.display(), files::io_error_text(&error));
        CliError::input(problem, "check the path, and that you may read it")
    })?;
    Recording::read(&bytes).map_err(|wrong| CliError::Input {
        problem: wrong.to_string(),
        location: Some(path.display().to_string()),
        help: Some(wrong.hint().to_owned()),
    })
}

fn read_config(path: &Path) -> Result<Value, CliError> {
    let text = files::read(path)?.text;
    let not_yaml = |why: String| CliError::Input {
        problem: format!("the configuration is not YAML: {why}"),
        location: Some(path.display().to_string()),
        help: Some("give the file that the scheduler is started with".to_owned()),
    };
    if kai_workloads::nests_too_deep(&text) {
        return Err(not_yaml("lists and maps nest without end".to_owned()));
    }
    yaml_serde::from_str(&text).map_err(|error| not_yaml(error.to_string()))
}

/// CPU time of the parts of a cycle.
#[derive(Clone, Debug)]
struct Cost {
    /// From tables of objects to the first action: lowering, opening.
    open: Duration,
    actions: Vec<(&'static str, Duration)>,
    statistics: Vec<ActionRecord>,
    /// From the last action to words.
    close: Duration,
    /// Most bytes in use at once, from opening on.
    peak_bytes: u64,
}

impl Cost {
    /// Opening and all actions.
    fn total(&self) -> Duration {
        self.open + self.actions.iter().map(|(_, time)| *time).sum::<Duration>()
    }
}

/// Runs the cycle so often and keeps the fastest; what is decided must not differ.
fn measure(
    world: &World,
    recording: &Recording,
    settings: &Settings,
    now: Timestamp,
    repeat: u32,
) -> Result<(CycleResult, Cost), CliError> {
    kai_process_stats::reset_peak_rss();
    let (cycle, mut best) = once(world, recording, settings, now);
    for _ in 1..repeat {
        let (again, cost) = once(world, recording, settings, now);
        if again != cycle {
            return Err(CliError::NonDeterministic);
        }
        if cost.total() < best.total() {
            best = cost;
        }
    }
    best.peak_bytes = kai_process_stats::peak_rss_bytes().unwrap_or(0);
    Ok((cycle, best))
}

fn once(world: &World, recording: &Recording, settings: &Settings, now: Timestamp) -> (CycleResult, Cost) {
    let mut cost = Cost {
        open: Duration::ZERO,
        actions: Vec::new(),
        statistics: Vec::new(),
        close: Duration::ZERO,
        peak_bytes: 0,
    };
    let mut watch = kai_process_stats::cpu_time();
    let mut lap = || {
        let passed = kai_process_stats::cpu_since(watch);
        watch += passed;
        passed
    };
    let cycle = cycle_with_progress(world, settings, &recording.usage, now, |moment| match moment {
        CycleProgress::SessionOpened => cost.open += lap(),
        CycleProgress::ActionDone(action, stats) => {
            cost.actions.push((action_name(action), lap()));
            cost.statistics.push(ActionRecord::new(action, stats));
        }
    });
    cost.close = lap();
    (cycle, cost)
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = kai_process_stats::cpu_time();
    let done = work();
    (done, kai_process_stats::cpu_since(before))
}
