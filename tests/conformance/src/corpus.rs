//! Finds recorded cases on disk.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// What a file of cases is about; decides who runs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suite {
    Actions,
    Fairshare,
    Podgrouper,
    Topology,
}

/// One case as recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub suite: Suite,
    /// Group that limits and summaries are about.
    pub group: String,
    /// As in the file; unique inside it.
    pub id: String,
    /// Unique in the corpus: suites other than actions put their name in front where ids could clash.
    pub key: String,
    pub body: Value,
}

/// A corpus that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{path}: {error}")]
    Json { path: PathBuf, error: serde_json::Error },
    #[error("{path}: format {format} version {version} is not known; this runner reads version 2")]
    Format { path: PathBuf, format: String, version: u32 },
    #[error("{path}: case {index} has no id")]
    NoId { path: PathBuf, index: usize },
    #[error("no cases in {0}: give the folder that holds actions/ and the other files")]
    Empty(PathBuf),
}

#[derive(Deserialize)]
struct File {
    format: String,
    version: u32,
    #[serde(default)]
    group: Option<String>,
    cases: Vec<Value>,
}

/// All cases below the given files and folders, in path order.
pub fn read(paths: &[PathBuf]) -> Result<Vec<Recorded>, CorpusError> {
    let mut cases = Vec::new();
    for path in paths {
        let mut files = Vec::new();
        collect(path, &mut files)?;
        let before = cases.len();
        for file in files {
            read_file(&file, &mut cases)?;
        }
        if cases.len() == before {
            return Err(CorpusError::Empty(path.clone()));
        }
    }
    Ok(cases)
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), CorpusError> {
    let fail = |error| CorpusError::Io { path: path.to_path_buf(), error };
    if !fs::metadata(path).map_err(fail)?.is_dir() {
        files.push(path.to_path_buf());
        return Ok(());
    }
    let entries = fs::read_dir(path).map_err(fail)?.collect::<Result<Vec<_>, _>>().map_err(fail)?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() || path.extension().is_some_and(|extension| extension == "json") {
            collect(&path, files)?;
        }
    }
    Ok(())
}

fn read_file(path: &Path, cases: &mut Vec<Recorded>) -> Result<(), CorpusError> {
    let text = fs::read(path).map_err(|error| CorpusError::Io { path: path.to_path_buf(), error })?;
    let file: File =
        serde_json::from_slice(&text).map_err(|error| CorpusError::Json { path: path.to_path_buf(), error })?;
    let suite = match (file.format.as_str(), file.version) {
        ("kai-conformance-actions", 2) => Suite::Actions,
        ("kai-conformance-fairshare", 2) => Suite::Fairshare,
        ("kai-conformance-podgrouper", 2) => Suite::Podgrouper,
        ("kai-conformance-topology", 2) => Suite::Topology,
        _ => {
            return Err(CorpusError::Format { path: path.to_path_buf(), format: file.format, version: file.version });
        }
    };
    for (index, body) in file.cases.into_iter().enumerate() {
        let id = body["id"].as_str().map(str::to_string);
        let id = id.ok_or_else(|| CorpusError::NoId { path: path.to_path_buf(), index })?;
        let prefix = id.split('/').next().unwrap_or_default().to_string();
        let group = match suite {
            Suite::Actions => file.group.clone().unwrap_or(prefix),
            Suite::Fairshare => format!("fairshare/{prefix}"),
            Suite::Podgrouper | Suite::Topology => prefix,
        };
        let key = if suite == Suite::Fairshare { format!("fairshare/{id}") } else { id.clone() };
        cases.push(Recorded { suite, group, id, key, body });
    }
    Ok(())
}
