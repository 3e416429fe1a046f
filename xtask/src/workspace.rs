//! What the checks look at: packages as cargo sees them, files as git does.

use serde_json::Value;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) packages: Vec<Package>,
    /// Tracked text files.
    pub(crate) files: Vec<File>,
}

pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) benches: Vec<String>,
}

pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) features: Vec<String>,
}

pub(crate) struct File {
    /// From the root, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Workspace {
    pub(crate) fn load() -> Result<Self, String> {
        let metadata = output(Command::new(cargo()).args(["metadata", "--no-deps", "--format-version=1"]))?;
        let metadata: Value = serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
        let root = PathBuf::from(metadata["workspace_root"].as_str().ok_or("cargo metadata names no root")?);
        let files = tracked_files(&root)?;
        Ok(Self { root, packages: packages(&metadata), files })
    }
}

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "rs")
    }
}

/// The cargo that runs this program.
pub(crate) fn cargo() -> String {
    env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

fn packages(metadata: &Value) -> Vec<Package> {
    let package = |package: &Value| Package {
        name: text(&package["name"]),
        dependencies: list(&package["dependencies"])
            .map(|dependency| Dependency {
                name: text(&dependency["name"]),
                features: list(&dependency["features"]).map(text).collect(),
            })
            .collect(),
        benches: list(&package["targets"])
            .filter(|target| list(&target["kind"]).any(|kind| kind == "bench"))
            .map(|target| text(&target["name"]))
            .collect(),
    };
    list(&metadata["packages"]).map(package).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn tracked_files(root: &Path) -> Result<Vec<File>, String> {
    let listed = output(Command::new("git").current_dir(root).args(["ls-files", "-z"]))?;
    let read = |path: &str| {
        // Not text, or deleted but not yet committed so: nothing to check either way.
        let text = fs::read_to_string(root.join(path)).ok()?;
        Some(File { path: path.to_owned(), text })
    };
    Ok(listed.split_terminator('\0').filter_map(read).collect())
}

fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_dependencies_and_benches_from_cargo_metadata() {
        let packages = packages(&json!({"packages": [{
            "name": "kai-control",
            "dependencies": [{"name": "kube", "kind": null, "features": ["derive"]}, {"name": "proptest", "kind": "dev"}],
            "targets": [{"kind": ["lib"], "name": "kai_control"}, {"kind": ["bench"], "name": "cycle"}],
        }]}));
        assert_eq!(packages[0].name, "kai-control");
        assert_eq!(packages[0].dependencies[0].features, ["derive"]);
        assert_eq!(packages[0].dependencies[1].name, "proptest");
        assert_eq!(packages[0].benches, ["cycle"]);
    }
}
