//! Both programs on one file, in turn.

use super::{Cost, Options, Pair, programs::Programs};
use kai_process_stats::cpu_time_of;
use serde_json::Value;
use std::{
    fs,
    io::Read,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

/// A run this long is measured once: noise matters less, and another takes long.
const LONG_MS: f64 = 5_000.0;

pub(super) fn run(programs: &Programs, scenario: &str, nodes: usize, options: &Options) -> Result<Pair, String> {
    let file = programs.files.join(format!("{scenario}-{nodes}.zip"));
    let mut generate = Command::new(&programs.kai);
    generate.args(["generate", scenario, "--nodes", &nodes.to_string(), "-o"]).arg(&file);
    let made = generate.status().map_err(|error| format!("kai generate: {error}"))?;
    if !made.success() {
        return Err(format!("kai generate {scenario} failed"));
    }
    let (mut kai, mut upstream): (Option<Cost>, Option<Cost>) = (None, None);
    let mut pods = 0;
    for _ in 0..options.runs {
        let report = replay(&programs.kai, &file)?;
        pods = report["pods"].as_u64().unwrap_or(0);
        keep_best(&mut kai, cost(&report)?);
        if upstream.as_ref().is_none_or(|cost| cost.cycle_ms < LONG_MS) {
            keep_best(&mut upstream, run_upstream(&programs.upstream, &file, options.cpu_timeout)?);
        }
    }
    fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let (kai, upstream) = kai.zip(upstream).ok_or("nothing ran")?;
    Ok(Pair { pods, kai, upstream })
}

fn keep_best(best: &mut Option<Cost>, next: Cost) {
    match best {
        Some(known) if known.cycle_ms <= next.cycle_ms => known.rss_mb = known.rss_mb.min(next.rss_mb),
        _ => *best = Some(next),
    }
}

fn replay(program: &Path, file: &Path) -> Result<Value, String> {
    let output = Command::new(program).args(["replay", "-o", "json"]).arg(file).output();
    let output = output.map_err(|error| format!("kai replay: {error}"))?;
    if !output.status.success() {
        return Err(format!("kai replay: {}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("kai replay: {error}"))
}

fn run_upstream(program: &Path, file: &Path, cpu_timeout: u32) -> Result<Cost, String> {
    let mut command = Command::new(program);
    command.arg(file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("upstream: {error}"))?;
    let errors = child.stderr.take().map(|mut stream| {
        // In a thread of its own: a pipe that is not read fills up, and NVIDIA KAI would block on its log.
        thread::spawn(move || {
            let mut text = String::new();
            let _unreadable = stream.read_to_string(&mut text);
            text
        })
    });
    let limit_ms = f64::from(cpu_timeout) * 1000.0;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| format!("upstream: {error}"))? {
            let log = errors.and_then(|thread| thread.join().ok()).unwrap_or_default();
            let mut text = String::new();
            if let Some(mut stream) = child.stdout.take() {
                stream.read_to_string(&mut text).map_err(|error| format!("upstream: {error}"))?;
            }
            if !status.success() {
                return Err(format!("upstream: {}", log.lines().last().unwrap_or("failed, without a message")));
            }
            let line = text.lines().last().unwrap_or_default();
            return cost(&serde_json::from_str(line).map_err(|error| format!("upstream: {error}: {line}"))?);
        }
        let cycle_ms = cpu_time_of(child.id()).unwrap_or_default().as_secs_f64() * 1000.0;
        if cycle_ms > limit_ms {
            let _already_exited = child.kill();
            let _status = child.wait();
            return Ok(Cost { open_ms: 0.0, cycle_ms, bound: 0, pipelined: 0, evicted: 0, rss_mb: 0.0, stopped: true });
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn cost(report: &Value) -> Result<Cost, String> {
    serde_json::from_value(report.clone()).map_err(|error| format!("the report is incomplete: {error}"))
}
