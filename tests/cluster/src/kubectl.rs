//! Speaks to a cluster with its own `kubectl`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;

#[derive(Clone, Debug)]
pub struct Kubectl {
    pub(crate) program: PathBuf,
    pub(crate) kubeconfig: PathBuf,
}

impl Kubectl {
    /// Runs `kubectl` with these arguments, split at blanks, and returns what it prints.
    pub fn run(&self, arguments: &str) -> Result<String, Error> {
        self.run_with(&arguments.split_whitespace().collect::<Vec<_>>(), None)
    }

    /// Creates or changes objects; YAML or JSON, many documents.
    pub fn apply(&self, manifests: &str) -> Result<String, Error> {
        self.run_with(&["apply", "--server-side", "--filename=-"], Some(manifests))
    }

    /// Runs `kubectl` with arguments that may have blanks in them, and text for its standard input.
    pub fn run_with(&self, arguments: &[&str], input: Option<&str>) -> Result<String, Error> {
        let wrong = |message: String| Error::Kubectl { arguments: arguments.join(" "), message };
        let mut child = self
            .command()
            .args(arguments)
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Error::io("start", &self.program))?;
        let writer = child.stdin.take().zip(input.map(str::to_owned));
        // Beside the reading below: kubectl may answer before it has read everything.
        let writer = writer.map(|(mut pipe, text)| std::thread::spawn(move || pipe.write_all(text.as_bytes())));
        let output = child.wait_with_output().map_err(|error| wrong(error.to_string()))?;
        if let Some(writer) = writer {
            // A kubectl that stops reading says itself why.
            let _ = writer.join();
        }
        if !output.status.success() {
            return Err(wrong(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// `kubectl` for this cluster, for what [`Kubectl::run_with`] cannot do.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        let dir = self.kubeconfig.parent().unwrap_or(Path::new("."));
        command.arg("--cache-dir").arg(dir.join("kubectl-cache"));
        command
    }
}
