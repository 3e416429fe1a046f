//! One way to call a rule in the tests of this crate.

use std::fmt::Write;

use serde_json::Value;

use crate::error::GroupError;
use crate::group::{GroupSpec, Minimum};
use crate::kinds;
use crate::object::Object;
use crate::related::{ClusterReader, ObjectStore};
use crate::settings::Settings;
use crate::workload::Workload;

/// Groups through the table, in an empty cluster.
#[track_caller]
pub(crate) fn check_group(owners: &[Value], pod: &Value) -> GroupSpec {
    try_group(owners, pod, &ObjectStore::default()).unwrap()
}

pub(crate) fn try_group(owners: &[Value], pod: &Value, related: &dyn ClusterReader) -> Result<GroupSpec, GroupError> {
    try_group_with(owners, pod, related, &Settings::default())
}

pub(crate) fn try_group_with(
    owners: &[Value],
    pod: &Value,
    related: &dyn ClusterReader,
    settings: &Settings,
) -> Result<GroupSpec, GroupError> {
    let chain: Vec<_> = owners.iter().map(Object::new).collect();
    let pod = Object::new(pod);
    let top = chain.last().copied().unwrap_or(pod);
    kinds::apply(&Workload::new(top, chain, pod, related, settings))
}

/// Minimums and membership in short: `*` is the whole group, `3` counts pods, `2!` counts children.
pub(crate) fn outline(spec: &GroupSpec) -> String {
    let minimum = |minimum: Minimum| match minimum {
        Minimum::Members(pods) => pods.to_string(),
        Minimum::SubGroups(children) => format!("{children}!"),
    };
    let mut lines = vec![format!("* {}", minimum(spec.minimum))];
    for sub_group in &spec.sub_groups {
        let mut line = format!("{} {}", sub_group.name, minimum(sub_group.minimum));
        if let Some(parent) = &sub_group.parent {
            let _ = write!(line, " < {parent}");
        }
        if let Some(topology) = &sub_group.topology {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let (required, preferred) = (text(&topology.required_level), text(&topology.preferred_level));
            let _ = write!(line, " @{}:{required}:{preferred}", text(&topology.topology));
        }
        if !sub_group.pods.is_empty() {
            let _ = write!(line, " [{}]", sub_group.pods.join(" "));
        }
        lines.push(line);
    }
    lines.join("\n")
}
