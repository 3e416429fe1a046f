//! Processes of a cluster: started, watched, ended by their id, never by their name.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sysinfo::{Pid, ProcessRefreshKind, ProcessStatus, ProcessesToUpdate, System};

use crate::Error;

/// A process as it is written down, for those who come later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    pub pid: u32,
    /// Seconds since 1970. Ids are given out again; id and start together are not.
    pub started: u64,
    pub log: PathBuf,
}

/// What can be seen of a running process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessStats {
    pub memory_bytes: u64,
    pub seconds: u64,
}

impl Record {
    /// `None` once it has ended.
    pub fn stats(&self) -> Option<ProcessStats> {
        let system = refresh(self.pid);
        let process = system.process(Pid::from_u32(self.pid))?;
        let same = process.start_time() == self.started && process.status() != ProcessStatus::Zombie;
        same.then(|| ProcessStats { memory_bytes: process.memory(), seconds: process.run_time() })
    }

    /// Ends it, if it is still the one that was started. What it had to save is thrown away anyway, so it is not asked.
    pub(crate) fn end(&self) {
        if self.stats().is_none() {
            return;
        }
        if let Some(process) = refresh(self.pid).process(Pid::from_u32(self.pid)) {
            process.kill();
        }
        for _ in 0..100 {
            if self.stats().is_none() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The last lines it wrote.
    pub fn tail(&self) -> String {
        tail(&self.log)
    }
}

fn refresh(pid: u32) -> System {
    let mut system = System::new();
    let kind = ProcessRefreshKind::nothing().with_memory();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[Pid::from_u32(pid)]), true, kind);
    system
}

/// A child process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: &'static str,
    pub(crate) record: Record,
    child: Child,
}

impl Process {
    /// Starts a program with its output in `<dir>/<name>.log`, in a group of its own: the terminal's Ctrl-C is for
    /// the process that started the cluster.
    pub(crate) fn spawn(name: &'static str, dir: &Path, mut command: Command) -> Result<Self, Error> {
        let log = dir.join(format!("{name}.log"));
        let file = File::create(&log).map_err(Error::io("create", &log))?;
        let same = file.try_clone().map_err(Error::io("open", &log))?;
        command.stdin(Stdio::null()).stdout(file).stderr(same).process_group(0);
        let program = PathBuf::from(command.get_program());
        let child = command.spawn().map_err(Error::io("start", &program))?;
        let pid = child.id();
        let started = refresh(pid).process(Pid::from_u32(pid)).map_or(0, sysinfo::Process::start_time);
        Ok(Self { name, record: Record { name: name.to_owned(), pid, started, log }, child })
    }

    /// Complains if it has ended.
    pub(crate) fn check(&mut self, during: &str) -> Result<(), Error> {
        let status = match self.child.try_wait() {
            Ok(None) => return Ok(()),
            Ok(Some(status)) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let (log, tail) = (self.record.log.clone(), self.record.tail());
        Err(Error::Died { process: self.name, status, during: during.to_owned(), log, tail })
    }

    pub(crate) fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const TAIL_LINES: usize = 20;

/// The last lines of a file; nothing, if it cannot be read.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    last.iter().map(|line| format!("  | {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, name: &'static str) -> Process {
        let dir = std::env::temp_dir().join(format!("test-cluster-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::spawn(name, &dir, command).unwrap()
    }

    #[test]
    fn a_running_process_is_seen_and_can_be_ended() {
        let mut sleeper = shell("sleep 60", "sleeper");
        assert!(sleeper.check("sleeping").is_ok());
        assert!(sleeper.record.stats().is_some());
        sleeper.record.end();
        assert!(sleeper.record.stats().is_none());
        assert!(sleeper.check("sleeping").is_err());
    }

    #[test]
    fn an_id_that_was_given_out_again_is_left_alone() {
        let mut sleeper = shell("sleep 60", "bystander");
        let earlier = Record { started: sleeper.record.started - 1, ..sleeper.record.clone() };
        assert!(earlier.stats().is_none());
        earlier.end();
        assert!(sleeper.check("sleeping").is_ok());
        sleeper.end();
    }

    #[test]
    fn a_process_that_died_is_reported_with_the_end_of_its_log() {
        let mut dying = shell("seq 1 30; echo no room >&2; exit 3", "dying");
        let _ = dying.child.wait();
        let message = dying.check("starting").unwrap_err().to_string();
        for part in ["dying ended", "exit status: 3", "while starting", "dying.log", "| 30\n", "| no room"] {
            assert!(message.contains(part), "{part} is missing from:\n{message}");
        }
        assert!(!message.contains("| 10\n"), "only the end is shown");
    }
}
