//! What dependencies may bring in, checked with `cargo-deny`, which is installed beside what else is kept between runs.

use crate::workspace::cargo;
use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

const VERSION: &str = "0.20.2";

/// Compiled without optimisation: that takes a third of the time, and a check some seconds either way.
const INSTALL: [&str; 5] = ["install", "--locked", "--debug", "--config", "profile.dev.debug=false"];

/// Inclusion graphs of crates with two versions would be most of the log.
const CHECK: [&str; 6] = ["--locked", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"];

pub(crate) fn run(root: &Path) -> Result<(), String> {
    let folder = tool_folder(&cache_dir(|name| env::var_os(name))?);
    let program = folder.join("bin").join(format!("cargo-deny{}", env::consts::EXE_SUFFIX));
    if !program.is_file() {
        println!("installing cargo-deny {VERSION} in {}, once; it takes some minutes", folder.display());
        let mut install = Command::new(cargo());
        install.args(INSTALL).arg(format!("cargo-deny@{VERSION}")).arg("--root").arg(&folder);
        status(install, root, "cargo-deny cannot be installed")?;
    }
    let mut check = Command::new(program);
    check.args(CHECK);
    status(check, root, "failed: cargo deny check")
}

fn status(mut command: Command, root: &Path, failure: &str) -> Result<(), String> {
    let status = command.current_dir(root).status().map_err(|error| format!("{failure}: {error}"))?;
    if status.success() { Ok(()) } else { Err(failure.to_owned()) }
}

fn tool_folder(cache: &Path) -> PathBuf {
    cache.join("tools").join(format!("cargo-deny-{VERSION}"))
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
            cache_dir(find).map(|cache| tool_folder(&cache).display().to_string())
        };
        let folder = format!("tools/cargo-deny-{VERSION}");
        assert_eq!(cache(&[("KAI_CACHE_DIR", "/c"), ("HOME", "/h")]), Ok(format!("/c/{folder}")));
        assert_eq!(cache(&[("KAI_CACHE_DIR", ""), ("XDG_CACHE_HOME", "/x")]), Ok(format!("/x/kai/{folder}")));
        assert_eq!(cache(&[("HOME", "/h")]), Ok(format!("/h/.cache/kai/{folder}")));
        assert!(cache(&[]).is_err());
    }
}
