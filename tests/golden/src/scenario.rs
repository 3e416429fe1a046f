//! What a user does, step by step, and what should have come of it before the next step.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::Failed;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// The file's.
    #[serde(skip)]
    pub(crate) name: String,
    /// In a sentence.
    pub(crate) description: String,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) objects: Vec<Value>,
    /// How many pods of the scenario run in the end.
    #[serde(default)]
    pub(crate) running: usize,
    /// How many have no node in the end.
    #[serde(default)]
    pub(crate) waiting: usize,
}

/// Scenarios by name; only those that are wanted, if any are.
pub(crate) fn read_all(folder: &Path, only: &[String]) -> Result<Vec<Scenario>, Failed> {
    let mut scenarios = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !only.is_empty() && !only.contains(&name) {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let scenario: Scenario = yaml_serde::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        scenarios.push(Scenario { name, ..scenario });
    }
    if let Some(missing) = only.iter().find(|name| !scenarios.iter().any(|scenario| scenario.name == **name)) {
        return Err(format!("there is no scenario {missing} in tests/golden/scenarios").into());
    }
    scenarios.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(scenarios)
}
