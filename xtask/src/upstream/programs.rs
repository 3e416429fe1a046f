//! The two programs, built.

use crate::workspace::cargo;
use serde_json::Value;
use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const GO_MODULE: &str = "bench/upstream";
const KAI_MODULE: &str = "github.com/NVIDIA/KAI-scheduler";

pub(super) struct Programs {
    /// `kai`.
    pub(super) kai: PathBuf,
    /// The Go program of `bench/upstream`, which runs NVIDIA KAI's packages.
    pub(super) upstream: PathBuf,
    /// Where snapshots go.
    pub(super) files: PathBuf,
}

impl Programs {
    pub(super) fn build(root: &Path) -> Result<Self, String> {
        let kai = build_kai(root)?;
        let upstream = build_upstream(root)?;
        let files = cache()?.join("snapshots");
        fs::create_dir_all(&files).map_err(|error| format!("{}: {error}", files.display()))?;
        Ok(Self { kai, upstream, files })
    }
}

fn build_kai(root: &Path) -> Result<PathBuf, String> {
    let mut command = Command::new(cargo());
    command.current_dir(root).args(["build", "--release", "-p", "kai-cli", "--message-format=json"]);
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err("kai cannot be built".to_owned());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    };
    messages.lines().filter_map(executable).next_back().ok_or_else(|| "cargo names no executable".to_owned())
}

/// Built once for each version of NVIDIA KAI and of the Go program around it; it takes minutes.
fn build_upstream(root: &Path) -> Result<PathBuf, String> {
    let module = root.join(GO_MODULE);
    let read = |name: &str| fs::read_to_string(module.join(name)).map_err(|error| format!("{name}: {error}"));
    let manifest = read("go.mod")?;
    let mut hasher = DefaultHasher::new();
    (&manifest, read("go.sum")?, read("main.go")?).hash(&mut hasher);
    let version = required(&manifest).ok_or_else(|| format!("go.mod does not require {KAI_MODULE}"))?;
    let program = cache()?.join(format!("upstream-{version}-{:016x}", hasher.finish()));
    if program.is_file() {
        return Ok(program);
    }
    println!("building NVIDIA KAI {version} from the Go module proxy, once");
    let mut command = Command::new("nice");
    command.current_dir(&module).args(["-n", "10", "go", "build", "-ldflags=-s -w", "-o"]).arg(&program).arg(".");
    let status = command.status().map_err(|error| format!("go: {error}"))?;
    if status.success() { Ok(program) } else { Err(format!("NVIDIA KAI {version} cannot be built; is Go installed?")) }
}

/// The version of NVIDIA KAI in a go.mod.
fn required(manifest: &str) -> Option<&str> {
    let mut lines = manifest.lines().map(|line| line.trim().trim_start_matches("require ").trim());
    lines.find_map(|line| line.strip_prefix(KAI_MODULE)?.split_whitespace().next())
}

fn cache() -> Result<PathBuf, String> {
    let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let folder = base.or_else(home).ok_or("neither XDG_CACHE_HOME nor HOME is set")?.join("kai");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_required_one() {
        let manifest = "module x\n\nrequire (\n\tgithub.com/NVIDIA/KAI-scheduler v0.12.0\n\tk8s.io/api v0.34.2\n)\n";
        assert_eq!(required(manifest), Some("v0.12.0"));
        assert_eq!(required("require github.com/NVIDIA/KAI-scheduler v1.2.3"), Some("v1.2.3"));
        assert_eq!(required("module x"), None);
    }
}
