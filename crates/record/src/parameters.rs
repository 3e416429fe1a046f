//! Flags of the scheduler as snapshots spell them, turned into flags as users type them.

use serde_json::{Map, Value, json};

/// Flags under the names of the command line. A snapshot leaves out what is zero, false or empty; a flag that
/// cannot be empty keeps its default.
pub(crate) fn flags(parameters: &Value) -> Map<String, Value> {
    let mut flags = Map::new();
    let Value::Object(given) = parameters else { return flags };
    let mut set = |flag: &str, value: Value| flags.insert(flag.to_owned(), value);
    let get = |key: &str| given.get(key).filter(|value| !value.is_null());
    for (key, flag) in [
        ("restrictSchedulingNodes", "restrict-node-scheduling"),
        ("useSchedulingSignatures", "use-scheduling-signatures"),
        ("fullHierarchyFairness", "full-hierarchy-fairness"),
        ("allowConsolidatingReclaim", "allow-consolidating-reclaim"),
    ] {
        set(flag, get(key).cloned().unwrap_or(json!(false)));
    }
    set("max-consolidation-preemptees", get("maxNumberConsolidationPreemptees").cloned().unwrap_or(json!(0)));
    set("default-staleness-grace-period", nanoseconds(get("globalDefaultStalenessGracePeriod")));
    set("stuck-in-releasing-threshold", nanoseconds(get("stuckInReleasingThreshold")));
    for (key, flag) in [("schedulerName", "scheduler-name"), ("queueLabelKey", "queue-label-key")] {
        if let Some(value) = get(key).filter(|value| value.as_str() != Some("")) {
            set(flag, value.clone());
        }
    }
    if let Some(partition) = get("partitionParams") {
        for (key, flag) in [("NodePoolLabelKey", "nodepool-label-key"), ("NodePoolLabelValue", "partition-label-value")]
        {
            set(flag, partition.get(key).filter(|value| !value.is_null()).cloned().unwrap_or(json!("")));
        }
    }
    flags
}

/// A span of time as a flag has it; what is no whole number is left for the reader of flags to complain about.
fn nanoseconds(value: Option<&Value>) -> Value {
    match value {
        None => json!("0s"),
        // Whatever its size, it means never; the reader of flags does not see what is shorter than a microsecond.
        Some(Value::Number(number)) if number.as_i64().is_some_and(i64::is_negative) => json!("-1s"),
        Some(Value::Number(number)) => json!(format!("{number}ns")),
        Some(other) => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_snapshot_leaves_out_is_zero() {
        let flags = flags(&json!({"fullHierarchyFairness": true, "schedulerName": ""}));
        assert_eq!(flags["full-hierarchy-fairness"], true);
        assert_eq!(flags["use-scheduling-signatures"], false);
        assert_eq!(flags["max-consolidation-preemptees"], 0);
        assert!(!flags.contains_key("scheduler-name") && !flags.contains_key("nodepool-label-key"));
    }

    #[test]
    fn spans_are_counted_in_nanoseconds() {
        let flags = flags(&json!({"globalDefaultStalenessGracePeriod": -1, "stuckInReleasingThreshold": 60_000}));
        assert_eq!(flags["default-staleness-grace-period"], "-1s");
        assert_eq!(flags["stuck-in-releasing-threshold"], "60000ns");
    }

    #[test]
    fn a_file_without_flags_has_the_defaults() {
        assert!(flags(&Value::Null).is_empty());
    }
}
