//! How the scheduler of a synthetic cluster is set up: KAI's defaults, written out.

use kai_api::keys::{label, name};
use serde_json::{Value, json};

/// KAI's default plugins in their order. Versions before v0.17 skip the two that begin with `sg-`.
const PLUGINS: [&str; 20] = [
    "predicates",
    "proportion",
    "priority",
    "elastic",
    "kubeflow",
    "ray",
    "nodeavailability",
    "gpusharingorder",
    "gpupack",
    "resourcetype",
    "subgrouporder",
    "taskorder",
    "nominatednode",
    "dynamicresources",
    "nodeplacement",
    "minruntime",
    "topology",
    "snapshot",
    "sg-nodelocalgreedy",
    "sg-multinodegang",
];

/// The configuration file.
pub fn file() -> Value {
    let plugin = |name: &str| match name {
        "nodeplacement" => json!({"name": name, "arguments": {"cpu": "binpack", "gpu": "binpack"}}),
        _ => json!({ "name": name }),
    };
    json!({
        "actions": "allocate, consolidation, reclaim, preempt, stalegangeviction",
        "tiers": [{"plugins": PLUGINS.map(plugin)}],
    })
}

/// The flags, in the spelling of snapshots.
pub fn parameters() -> Value {
    json!({
        "schedulerName": name::SCHEDULER,
        "partitionParams": {"NodePoolLabelKey": label::NODE_POOL, "NodePoolLabelValue": ""},
        "maxNumberConsolidationPreemptees": 16,
        "useSchedulingSignatures": true,
        "fullHierarchyFairness": true,
        "allowConsolidatingReclaim": true,
        "numOfStatusRecordingWorkers": 5,
        "globalDefaultStalenessGracePeriod": 60_000_000_000_i64,
        "schedulePeriod": 1_000_000_000_i64,
        "queueLabelKey": label::QUEUE,
    })
}
