//! Topologies: an alias means one level only.

use std::collections::BTreeSet;

use serde_json::Value;

use super::AdmissionResult;
use crate::objects::Topology;

/// Whether the topology may enter. What the schema of its kind demands is the API server's business.
pub fn validate_topology(topology: &Value) -> AdmissionResult {
    let topology = match Topology::parse(topology) {
        Ok(topology) => topology,
        Err(malformed) => return malformed.into(),
    };
    let labels: BTreeSet<&str> = topology.levels.iter().map(|level| level.node_label.as_str()).collect();
    let mut seen = BTreeSet::new();
    let mut problems = Vec::new();
    for (index, level) in topology.levels.iter().enumerate() {
        let Some(alias) = level.alias.as_deref() else { continue };
        let at = format!("spec.levels[{index}].alias");
        if labels.contains(alias) {
            problems.push(format!("{at}: {alias} is the nodeLabel of a level; choose another alias"));
        }
        if !seen.insert(alias) {
            problems.push(format!("{at}: {alias} is the alias of an earlier level; choose another alias"));
        }
    }
    if problems.is_empty() {
        return AdmissionResult::allow();
    }
    AdmissionResult::deny(format!("invalid topology aliases: {}", problems.join("; ")))
}
