//! Command-line flags of the scheduler by name, as a `SchedulingShard` lists them under `args`.

use kai_engine::policy::Action;
use kai_engine::units::Span;

use super::suggestion;
use crate::duration;
use crate::objects::Malformed;
use crate::objects::field_reader::FieldReader;
use crate::scheduler::settings::Settings;

type Setter = fn(&mut Settings, &FieldReader<'_>, String) -> Result<(), Malformed>;

/// Flags that change the settings, by name.
const TABLE: [(&str, Setter); 15] = [
    ("allow-consolidating-reclaim", |settings, place, text| {
        set(&mut settings.policy.consolidating_reclaim, flag(place, &text))
    }),
    ("cpu-worker-node-label-key", |settings, _, text| set(&mut settings.cpu_worker_label_key, Ok(text))),
    ("default-staleness-grace-period", |settings, place, text| {
        let grace = span(place, &text).map(|span| Some(span).filter(|span| span.0 >= 0));
        set(&mut settings.policy.staleness_grace, grace)
    }),
    ("full-hierarchy-fairness", |settings, place, text| set(&mut settings.full_hierarchy_fairness, flag(place, &text))),
    ("gpu-worker-node-label-key", |settings, _, text| set(&mut settings.gpu_worker_label_key, Ok(text))),
    ("max-consolidation-preemptees", |settings, place, text| preemptees(place, &text, settings)),
    ("mig-worker-node-label-key", |settings, _, text| set(&mut settings.mig_worker_label_key, Ok(text))),
    ("nodepool-label-key", |settings, _, text| set(&mut settings.node_pool_label_key, Ok(text))),
    ("partition-label-value", |settings, _, text| {
        set(&mut settings.node_pool_value, Ok(Some(text).filter(|text| !text.is_empty())))
    }),
    ("queue-label-key", |settings, _, text| set(&mut settings.queue_label_key, Ok(text))),
    ("resource-reservation-app-label", |settings, _, text| set(&mut settings.reservation_app_label, Ok(text))),
    ("restrict-node-scheduling", |settings, place, text| {
        set(&mut settings.restrict_node_scheduling, flag(place, &text))
    }),
    ("scheduler-name", |settings, _, text| set(&mut settings.scheduler_name, Ok(text))),
    ("stuck-in-releasing-threshold", |settings, place, text| {
        let default = Settings::default().stuck_in_releasing_threshold;
        let threshold = span(place, &text).map(|span| if span.0 > 0 { span } else { default });
        set(&mut settings.stuck_in_releasing_threshold, threshold)
    }),
    ("use-scheduling-signatures", |settings, place, text| set(&mut settings.policy.skip_no_easier, flag(place, &text))),
];

/// Flags that are valid but have no effect on the settings.
const OTHERS: [&str; 23] = [
    "burst",
    "detailed-fit-errors",
    "enable-profiler",
    "feature-gates",
    "leader-elect",
    "listen-address",
    "log-flush-frequency",
    "log-json",
    "metrics-namespace",
    "namespace",
    "num-of-status-recording-workers",
    "plugin-server-port",
    "profiler-port",
    "pyroscope-address",
    "pyroscope-block-profiler-rate",
    "pyroscope-mutex-profiler-rate",
    "qps",
    "schedule-csi-storage",
    "schedule-period",
    "scheduler-conf",
    "update-pod-eviction-condition",
    "v",
    "version",
];

pub(super) fn read(
    flags: &FieldReader<'_>,
    settings: &mut Settings,
    warnings: &mut Vec<String>,
) -> Result<(), Malformed> {
    for (name, place) in flags.entries()? {
        let text = place.scalar_text()?.unwrap_or_default();
        if let Some((_, setter)) = TABLE.iter().find(|(known, _)| *known == name) {
            setter(settings, &place, text)?;
        } else if !OTHERS.contains(&name) {
            let known = TABLE.iter().map(|(known, _)| *known).chain(OTHERS);
            warnings.push(format!("args: {name} is not a flag{}", suggestion(name, known)));
        }
    }
    Ok(())
}

fn set<T>(field: &mut T, value: Result<T, Malformed>) -> Result<(), Malformed> {
    *field = value?;
    Ok(())
}

/// 0 switches consolidation off, -1 takes the bound away.
fn preemptees(place: &FieldReader<'_>, text: &str, settings: &mut Settings) -> Result<(), Malformed> {
    let wrong =
        || place.invalid(format!("`{text}` is not a number of pods"), "use 0 for never, -1 for no bound, or a number");
    let number: i64 = text.parse().map_err(|_| wrong())?;
    settings.policy.consolidation_moves_max = match number {
        -1 => None,
        0 => {
            settings.policy.actions.retain(|action| *action != Action::Consolidate);
            Some(0)
        }
        _ => Some(u32::try_from(number).map_err(|_| wrong())?),
    };
    Ok(())
}

fn flag(place: &FieldReader<'_>, text: &str) -> Result<bool, Malformed> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(place.invalid(format!("`{text}` is neither true nor false"), "write true or false")),
    }
}

fn span(place: &FieldReader<'_>, text: &str) -> Result<Span, Malformed> {
    duration::parse(text)
        .ok_or_else(|| place.invalid(format!("`{text}` is not a duration"), "write one such as 90s, 5m or 1h30m"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheduler::config::Configured;

    #[test]
    fn flags_change_settings() {
        let configured = Configured::read(&json!({"args": {
            "partition-label-value": "blue",
            "full-hierarchy-fairness": "false",
            "max-consolidation-preemptees": 0,
            "default-staleness-grace-period": "-1s",
            "use-scheduling-signatures": false,
            "qps": "100",
            "restrict-node-schedulin": "true",
        }}))
        .unwrap();
        let settings = configured.settings;
        assert_eq!(settings.node_pool_value.as_deref(), Some("blue"));
        assert!(!settings.full_hierarchy_fairness && !settings.policy.skip_no_easier);
        assert!(!settings.policy.actions.contains(&Action::Consolidate));
        assert_eq!(settings.policy.staleness_grace, None);
        let misspelt = Configured::read(&json!({"args": {"use-scheduling-signature": true}})).unwrap();
        assert_eq!(
            [configured.warnings, misspelt.warnings].concat(),
            [
                "args: restrict-node-schedulin is not a flag; did you mean restrict-node-scheduling?",
                "args: use-scheduling-signature is not a flag; did you mean use-scheduling-signatures?",
            ]
        );
    }

    #[test]
    fn a_flag_that_cannot_be_read_is_refused() {
        let wrong = |args: serde_json::Value| Configured::read(&json!({ "args": args })).unwrap_err().to_string();
        assert_eq!(
            wrong(json!({"full-hierarchy-fairness": "maybe"})),
            "args.full-hierarchy-fairness: `maybe` is neither true nor false"
        );
        assert_eq!(
            wrong(json!({"max-consolidation-preemptees": -2})),
            "args.max-consolidation-preemptees: `-2` is not a number of pods"
        );
    }
}
