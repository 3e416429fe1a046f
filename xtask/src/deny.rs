//! What dependencies may bring in, checked with `cargo-deny` and `cargo-audit`, which are installed beside what else is kept
//! between runs. Advisories need a database that is no part of a checkout: where it can neither be fetched nor was fetched
//! before, that part is left out, and says so.

use crate::workspace::cargo;
use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A program of the registry at the version that is pinned here.
struct Tool {
    name: &'static str,
    version: &'static str,
}

const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };
const AUDIT: Tool = Tool { name: "cargo-audit", version: "0.22.2" };

/// Advisories of the Rust project's own group.
const DATABASE: &str = "https://github.com/RustSec/advisory-db";

/// Longer than any working network needs to answer.
const DATABASE_SECS: &str = "20";

/// Compiled without optimisation: that takes a third of the time, and a check some seconds either way.
const INSTALL: [&str; 5] = ["install", "--locked", "--debug", "--config", "profile.dev.debug=false"];

/// Inclusion graphs of crates with two versions would be most of the log.
const CHECK: [&str; 6] = ["--locked", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"];

pub(crate) fn run(root: &Path) -> Result<(), String> {
    let mut check = Command::new(installed(&DENY, root)?);
    check.args(CHECK);
    status(check, root, "failed: cargo deny check")
}

/// Known vulnerabilities, yanked and abandoned crates. `cargo deny check advisories` would ask the same database, but keeps a
/// copy of its own. `Ok(Some(reason))` if the database cannot be had; then nothing is installed for it either.
pub(crate) fn advisories(root: &Path) -> Result<Option<String>, String> {
    let cache = cache_dir(|name| env::var_os(name))?;
    let database = cache.join("advisory-db");
    if let Err(reason) = fetch(&database) {
        return Ok(Some(reason));
    }
    let mut audit = Command::new(installed(&AUDIT, root)?);
    audit.args(["audit", "--no-fetch", "--deny", "yanked", "--db"]).arg(&database);
    status(audit, root, "failed: cargo audit")?;
    Ok(None)
}

/// Brings the database up to date, or makes it. One that was fetched before will do if the network is away.
fn fetch(database: &Path) -> Result<(), String> {
    let known = database.join(".git").is_dir();
    let mut git = Command::new("timeout");
    git.args([DATABASE_SECS, "git"]).env("GIT_TERMINAL_PROMPT", "0").stdin(Stdio::null());
    if known {
        git.arg("-C").arg(database).args(["pull", "--quiet", "--ff-only"]);
    } else {
        git.args(["clone", "--quiet", "--depth", "1", DATABASE]).arg(database);
    }
    let fetched = git.output().is_ok_and(|output| output.status.success());
    if fetched || known {
        return Ok(());
    }
    Err(format!("the advisory database cannot be had from {DATABASE}, and none is in {}", database.display()))
}

/// The path of a tool, which is installed if it is not there.
fn installed(tool: &Tool, root: &Path) -> Result<PathBuf, String> {
    let Tool { name, version } = tool;
    let folder = tool_folder(&cache_dir(|name| env::var_os(name))?, tool);
    let program = folder.join("bin").join(format!("{name}{}", env::consts::EXE_SUFFIX));
    if !program.is_file() {
        println!("installing {name} {version} in {}, once; it takes some minutes", folder.display());
        let mut install = Command::new(cargo());
        install.args(INSTALL).arg(format!("{name}@{version}")).arg("--root").arg(&folder);
        status(install, root, &format!("{name} cannot be installed"))?;
    }
    Ok(program)
}

fn status(mut command: Command, root: &Path, failure: &str) -> Result<(), String> {
    let status = command.current_dir(root).status().map_err(|error| format!("{failure}: {error}"))?;
    if status.success() { Ok(()) } else { Err(failure.to_owned()) }
}

fn tool_folder(cache: &Path, Tool { name, version }: &Tool) -> PathBuf {
    cache.join("tools").join(format!("{name}-{version}"))
}

/// The folder in which test clusters keep their programs: `test_cluster::cache_dir`, which is not worth compiling for this.
fn cache_dir(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, String> {
    let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    path("KAI_CACHE_DIR")
        .or_else(|| path("XDG_CACHE_HOME").map(|cache| cache.join("kai")))
        .or_else(|| path("HOME").map(|home| home.join(".cache/kai")))
        .ok_or_else(|| "no folder for tools; set KAI_CACHE_DIR".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_another_folder_outside_of_the_checkout() {
        let cache = |set: &'static [(&str, &str)]| {
            let find = move |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            cache_dir(find).map(|cache| tool_folder(&cache, &DENY).display().to_string())
        };
        let folder = format!("tools/cargo-deny-{}", DENY.version);
        assert_eq!(cache(&[("KAI_CACHE_DIR", "/c"), ("HOME", "/h")]), Ok(format!("/c/{folder}")));
        assert_eq!(cache(&[("KAI_CACHE_DIR", ""), ("XDG_CACHE_HOME", "/x")]), Ok(format!("/x/kai/{folder}")));
        assert_eq!(cache(&[("HOME", "/h")]), Ok(format!("/h/.cache/kai/{folder}")));
        assert!(cache(&[]).is_err());
    }

    #[test]
    fn a_database_that_cannot_be_had_is_named() {
        let nowhere = Path::new("/dev/null/advisory-db");
        assert!(fetch(nowhere).is_err_and(|why| why.contains("/dev/null/advisory-db")));
    }
}
