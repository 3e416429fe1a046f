//! How clusters are, for people and for programs.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;

use crate::cluster::ready_nodes;
use crate::process::Record;
use crate::state::State;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub name: String,
    pub health: Health,
    pub server: String,
    pub kubeconfig: PathBuf,
    pub kubectl: PathBuf,
    pub nodes: u32,
    /// Absent if the API server does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes_ready: Option<u32>,
    pub gpus_per_node: u32,
    pub processes: Vec<ProcessStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Health {
    /// Everything runs.
    Up,
    /// Some processes have ended.
    Broken,
    /// All have.
    Down,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessStatus {
    pub name: String,
    pub pid: u32,
    pub running: bool,
    pub memory_bytes: u64,
    pub seconds: u64,
    pub log: PathBuf,
    /// The end of the log of a process that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_tail: Option<String>,
}

impl Status {
    /// Reads every process and asks the API server for its nodes.
    pub fn of(state: &State) -> Self {
        let processes: Vec<ProcessStatus> = state.processes.iter().map(process).collect();
        let health = health(&processes);
        Self {
            name: state.name.clone(),
            health,
            server: state.server.clone(),
            kubeconfig: state.kubeconfig.clone(),
            kubectl: state.kubectl.clone(),
            nodes: state.nodes,
            nodes_ready: if health == Health::Down { None } else { ready_nodes(&state.kubectl()).ok() },
            gpus_per_node: state.gpus,
            processes,
        }
    }
}

fn process(record: &Record) -> ProcessStatus {
    let stats = record.stats();
    ProcessStatus {
        name: record.name.clone(),
        pid: record.pid,
        running: stats.is_some(),
        memory_bytes: stats.map_or(0, |stats| stats.memory_bytes),
        seconds: stats.map_or(0, |stats| stats.seconds),
        log: record.log.clone(),
        log_tail: stats.is_none().then(|| record.tail()),
    }
}

fn health(processes: &[ProcessStatus]) -> Health {
    match processes.iter().filter(|process| process.running).count() {
        0 => Health::Down,
        count if count == processes.len() => Health::Up,
        _ => Health::Broken,
    }
}

/// Statuses for people to read.
pub fn table(statuses: &[Status]) -> String {
    if statuses.is_empty() {
        return "no clusters\n".to_owned();
    }
    statuses.iter().map(paragraph).collect::<Vec<_>>().join("\n")
}

/// Statuses for programs to read.
pub fn json(statuses: &[Status]) -> String {
    serde_json::to_string_pretty(statuses).expect("text and numbers can be written as JSON")
}

fn paragraph(status: &Status) -> String {
    let mut text = String::new();
    let health = match status.health {
        Health::Up => "up",
        Health::Broken => "BROKEN",
        Health::Down => "down",
    };
    let ready = status.nodes_ready.map_or("unknown".to_owned(), |ready| ready.to_string());
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{}: {health}, {ready} of {} nodes ready, {} GPUs each, {}",
        status.name, status.nodes, status.gpus_per_node, status.server
    );
    let _ = writeln!(text, "  export KUBECONFIG={}", status.kubeconfig.display());
    let _ = writeln!(text, "  {:<24}  {:>8}  {:>9}  {:>7}  LOG", "PROCESS", "PID", "MEMORY", "UP");
    for process in &status.processes {
        let (memory, time) = if process.running {
            (format!("{} MiB", process.memory_bytes >> 20), format!("{} s", process.seconds))
        } else {
            ("ended".to_owned(), String::new())
        };
        let (name, pid, log) = (&process.name, process.pid, process.log.display());
        let _ = writeln!(text, "  {name:<24}  {pid:>8}  {memory:>9}  {time:>7}  {log}");
        if let Some(tail) = &process.log_tail {
            let _ = writeln!(text, "{tail}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(running: &[bool]) -> Status {
        let process = |(number, running): (usize, &bool)| ProcessStatus {
            name: format!("part-{number}"),
            pid: 100 + number as u32,
            running: *running,
            memory_bytes: 45 << 20,
            seconds: 7,
            log: PathBuf::from("somewhere.log"),
            log_tail: (!running).then(|| "  | no room".to_owned()),
        };
        let processes: Vec<_> = running.iter().enumerate().map(process).collect();
        Status {
            name: "kai".to_owned(),
            health: health(&processes),
            server: "https://127.0.0.1:1".to_owned(),
            kubeconfig: PathBuf::from("kubeconfig"),
            kubectl: PathBuf::from("kubectl"),
            nodes: 4,
            nodes_ready: Some(3),
            gpus_per_node: 8,
            processes,
        }
    }

    #[test]
    fn one_dead_process_is_enough_to_be_broken() {
        assert_eq!(sample(&[true, true]).health, Health::Up);
        assert_eq!(sample(&[true, false]).health, Health::Broken);
        assert_eq!(sample(&[false, false]).health, Health::Down);
    }

    #[test]
    fn the_end_of_the_log_of_a_dead_process_is_shown() {
        let text = table(&[sample(&[true, false])]);
        for part in ["kai: BROKEN, 3 of 4 nodes ready", "45 MiB", "ended", "| no room"] {
            assert!(text.contains(part), "{part} is missing from:\n{text}");
        }
    }
}
