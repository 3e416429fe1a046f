//! The record of a cluster in a file, so that another process can find, inspect and end it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::process::Record;
use crate::{Error, Kubectl};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    pub name: String,
    /// Address of the API server.
    pub server: String,
    pub kubeconfig: PathBuf,
    pub kubectl: PathBuf,
    pub nodes: u32,
    pub gpus: u32,
    /// In the order they were started.
    pub processes: Vec<Record>,
}

const FILE: &str = "cluster.json";

impl State {
    /// Reads the state in a cluster's folder; `None` if there is none.
    pub fn read(dir: &Path) -> Result<Option<Self>, Error> {
        let path = dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", &path)(error)),
        };
        serde_json::from_str(&text).map(Some).map_err(|source| Error::State { path, source })
    }

    /// Every cluster below a folder, by name.
    pub fn read_all(base: &Path) -> Result<Vec<Self>, Error> {
        let entries = match fs::read_dir(base) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io("read", base)(error)),
        };
        let mut states = Vec::new();
        for entry in entries {
            let entry = entry.map_err(Error::io("read", base))?;
            if entry.path().is_dir() {
                states.extend(Self::read(&entry.path())?);
            }
        }
        states.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(states)
    }

    pub(crate) fn write(&self, dir: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).expect("text and numbers can be written as JSON");
        let (path, new) = (dir.join(FILE), dir.join("cluster.json.new"));
        fs::write(&new, text).map_err(Error::io("write", &new))?;
        fs::rename(&new, &path).map_err(Error::io("write", &path))
    }

    pub fn kubectl(&self) -> Kubectl {
        Kubectl { program: self.kubectl.clone(), kubeconfig: self.kubeconfig.clone() }
    }
}
