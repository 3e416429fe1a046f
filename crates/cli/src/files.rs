//! Reads what the simulator wants to read: files, folders, standard input, and what a scenario refers to.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

use kai_sim::Source;
use kai_sim::manifest::missing_files;

use crate::complaint::Complaint;

const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Everything that the paths stand for, and every file that their scenario applies later.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<Source>, Complaint> {
    let mut sources = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            read.map_err(|error| {
                Complaint::input(format!("cannot read standard input: {error}"), "pipe YAML into it")
            })?;
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
                return Err(Complaint::Input {
                    problem: format!("cannot read {}: {}", wanted.path, words(&error)),
                    place: Some(wanted.place.to_string()),
                    help: Some("files that a step applies are looked for beside the scenario's own file".to_owned()),
                });
            }
        }
    }
    Ok(sources)
}

pub(crate) fn read(path: &Path) -> Result<Source, Complaint> {
    let name = shown(path);
    match fs::read_to_string(path) {
        Ok(text) => Ok(Source { name, text }),
        Err(error) => {
            let help = match error.kind() {
                io::ErrorKind::NotFound => "check the path; give files or folders with Kubernetes YAML",
                io::ErrorKind::InvalidData => "give text files with Kubernetes YAML",
                _ => "check that you may read it",
            };
            Err(Complaint::input(format!("cannot read {name}: {}", words(&error)), help))
        }
    }
}

/// The manifests directly in a folder, by name, as `kubectl apply -f` takes them.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>, Complaint> {
    let unreadable = |error: io::Error| {
        Complaint::input(format!("cannot read {}: {}", shown(folder), words(&error)), "check that you may read it")
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if ENDINGS.contains(&ending) && path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        let help = format!("put manifests into it; looked for are files that end in .{}", ENDINGS.join(", ."));
        return Err(Complaint::input(format!("there are no manifests in {}", shown(folder)), help));
    }
    files.sort();
    Ok(files)
}

/// The path with forward slashes, as scenarios write theirs.
fn shown(path: &Path) -> String {
    path.to_string_lossy().replace('\\', "/")
}

/// The plain reason, without the number that the system knows it by.
pub(crate) fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file or folder".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::InvalidData => "it is not text".to_owned(),
        _ => error.to_string(),
    }
}
