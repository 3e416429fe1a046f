//! Ends a cluster when the process that started it has ended, in whatever way.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::Error;

/// A shell that waits for the end of its input, which only this process can write to, and then ends the processes that
/// are listed by that time.
#[derive(Debug)]
pub(crate) struct OrphanReaper {
    shell: Child,
    list: PathBuf,
    pids: Vec<u32>,
}

const SCRIPT: &str = r#"cat > /dev/null; [ -s "$0" ] && kill -9 $(cat "$0") 2> /dev/null"#;

impl OrphanReaper {
    pub(crate) fn start(dir: &Path) -> Result<Self, Error> {
        let list = dir.join("pids");
        fs::write(&list, "").map_err(Error::io("write", &list))?;
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT]).arg(&list).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let shell = command.process_group(0).spawn().map_err(Error::io("start", Path::new("sh")))?;
        Ok(Self { shell, list, pids: Vec::new() })
    }

    pub(crate) fn add(&mut self, pid: u32) -> Result<(), Error> {
        self.pids.push(pid);
        self.write()
    }

    pub(crate) fn remove(&mut self, pid: u32) -> Result<(), Error> {
        self.pids.retain(|known| *known != pid);
        self.write()
    }

    fn write(&self) -> Result<(), Error> {
        let text = self.pids.iter().fold(String::new(), |mut text, pid| {
            let _ = writeln!(text, "{pid}");
            text
        });
        // Replaced in one go: the guard may read at any moment.
        let new = self.list.with_extension("new");
        fs::write(&new, text).map_err(Error::io("write", &new))?;
        fs::rename(&new, &self.list).map_err(Error::io("write", &self.list))
    }
}

impl Drop for OrphanReaper {
    /// Nothing is left to guard: those processes were ended, or are to live on.
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
        let _ = fs::remove_file(&self.list);
    }
}
