//! Both programs on one file, in turn.

use super::{Cost, Options, Pair, programs::Programs};
use serde_json::Value;
use std::{
    fs,
    io::Read,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

/// A run this long is not made clearer by another.
const LONG_MS: f64 = 5_000.0;

/// Linux counts the CPU time of processes in hundredths of a second, whatever its own clock does.
const TICK_MS: f64 = 10.0;

pub(super) fn run(programs: &Programs, scenario: &str, nodes: usize, options: &Options) -> Result<Pair, String> {
    let file = programs.files.join(format!("{scenario}-{nodes}.zip"));
    let mut generate = Command::new(&programs.kai);
    generate.args(["generate", scenario, "--nodes", &nodes.to_string(), "-o"]).arg(&file);
    let made = generate.status().map_err(|error| format!("kai generate: {error}"))?;
    if !made.success() {
        return Err(format!("kai generate {scenario} failed"));
    }
    let (mut ours, mut kai): (Option<Cost>, Option<Cost>) = (None, None);
    let mut pods = 0;
    for _ in 0..options.runs {
        let report = replay(&programs.kai, &file)?;
        pods = report["pods"].as_u64().unwrap_or(0);
        keep_best(&mut ours, cost(&report)?);
        if kai.as_ref().is_none_or(|cost| cost.cycle_ms < LONG_MS) {
            keep_best(&mut kai, upstream(&programs.upstream, &file, options.cpu_timeout)?);
        }
    }
    fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let (ours, kai) = ours.zip(kai).ok_or("nothing ran")?;
    Ok(Pair { pods, ours, kai })
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

fn upstream(program: &Path, file: &Path, cpu_timeout: u32) -> Result<Cost, String> {
    let mut command = Command::new(program);
    command.arg(file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("upstream: {error}"))?;
    let errors = child.stderr.take().map(|mut stream| {
        // Read aside, since nobody can say how much KAI has to complain about.
        thread::spawn(move || {
            let mut text = String::new();
            let _unreadable = stream.read_to_string(&mut text);
            text
        })
    });
    let limit_ms = f64::from(cpu_timeout) * 1000.0;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| format!("upstream: {error}"))? {
            let words = errors.and_then(|thread| thread.join().ok()).unwrap_or_default();
            let mut text = String::new();
            if let Some(mut stream) = child.stdout.take() {
                stream.read_to_string(&mut text).map_err(|error| format!("upstream: {error}"))?;
            }
            if !status.success() {
                return Err(format!("upstream: {}", words.lines().last().unwrap_or("no word")));
            }
            let line = text.lines().last().unwrap_or_default();
            return cost(&serde_json::from_str(line).map_err(|error| format!("upstream: {error}: {line}"))?);
        }
        let used_ms = cpu_ms(&child);
        if used_ms > limit_ms {
            let _gone_already = child.kill();
            let _status = child.wait();
            let cycle_ms = used_ms;
            return Ok(Cost { open_ms: 0.0, cycle_ms, bound: 0, pipelined: 0, evicted: 0, rss_mb: 0.0, stopped: true });
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// CPU time of a child so far, 0 where the system does not say.
fn cpu_ms(child: &Child) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    // The name in parentheses may hold anything; user and system time are the 12th and 13th after it.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = rest.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() * TICK_MS
}

fn cost(report: &Value) -> Result<Cost, String> {
    serde_json::from_value(report.clone()).map_err(|error| format!("a report lacks something: {error}"))
}
