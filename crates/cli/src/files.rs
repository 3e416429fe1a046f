//! Reads the input of the simulator: files, folders, standard input, and files that a scenario refers to.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

use kai_sim::Source;
use kai_sim::manifest::missing_files;
use kai_workloads::nests_too_deep;
use serde_json::Value;

use crate::error::CliError;

const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// The files at the paths, and every file that their scenario applies later.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<Source>, CliError> {
    let mut sources = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            read.map_err(|error| CliError::input(format!("cannot read standard input: {error}"), "pipe YAML into it"))?;
            sources.push(Source { name: "standard input".to_owned(), text });
        } else if path.is_dir() {
            let files = files_in(path)?;
            for file in &files {
                sources.push(read(file)?);
            }
        } else {
            sources.push(read(path)?);
        }
    }
    for wanted in missing_files(&sources)? {
        match fs::read_to_string(&wanted.path) {
            Ok(text) => sources.push(Source { name: wanted.path, text }),
            Err(error) => {
                return Err(CliError::Input {
                    problem: format!("cannot read {}: {}", wanted.path, io_error_text(&error)),
                    location: Some(wanted.location.to_string()),
                    help: Some("paths in a step are relative to the file of the scenario".to_owned()),
                });
            }
        }
    }
    Ok(sources)
}

pub(crate) fn read(path: &Path) -> Result<Source, CliError> {
    let name = shown(path);
    match fs::read_to_string(path) {
        Ok(text) => Ok(Source { name, text }),
        Err(error) => {
            let help = match error.kind() {
                io::ErrorKind::NotFound => "check the path; give files or folders with Kubernetes YAML",
                io::ErrorKind::InvalidData => "give text files with Kubernetes YAML",
                _ => "check that you may read it",
            };
            Err(CliError::input(format!("cannot read {name}: {}", io_error_text(&error)), help))
        }
    }
}

/// The manifests directly in a folder, by name, as `kubectl apply -f` takes them.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let unreadable = |error: io::Error| {
        CliError::input(
            format!("cannot read {}: {}", shown(folder), io_error_text(&error)),
            "check that you may read it",
        )
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if EXTENSIONS.contains(&extension) && path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        let help = "add manifests with the extension .yaml, .yml or .json";
        return Err(CliError::input(format!("there are no manifests in {}", shown(folder)), help));
    }
    files.sort();
    Ok(files)
}

/// The path with forward slashes, as scenarios write theirs.
fn shown(path: &Path) -> String {
    path.to_string_lossy().replace('\\', "/")
}

/// The plain reason, without the error number of the system.
pub(crate) fn io_error_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file or folder".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::InvalidData => "it is not text".to_owned(),
        _ => error.to_string(),
    }
}

pub(crate) fn read_yaml(path: &Path) -> Result<Value, CliError> {
    let location = Some(path.display().to_string());
    let invalid = |problem: String| CliError::Input { problem, location, help: None };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return Err(invalid(format!("cannot be read: {error}"))),
    };
    if nests_too_deep(&text) {
        return Err(invalid("is not YAML: lists and maps nest without end".to_owned()));
    }
    yaml_serde::from_str(&text).map_err(|error| invalid(format!("is not YAML: {error}")))
}
