//! Kinds that users declare: sizes, queue and priority class are at the paths of the declaration.

use kai_api::keys::label;
use serde_json::Value;

use super::find;
use crate::declared::{DeclaredKind, DeclaredKinds};
use crate::error::GroupError;
use crate::group::{GroupSpec, IgnoredValue, Minimum};
use crate::workload::Workload;

impl DeclaredKinds {
    /// Reads the config map; the errors name keys that are ignored.
    pub fn from_config_map(config_map: &Value) -> (Self, Vec<GroupError>) {
        Self::read(config_map, |group, kind| find(group, kind).is_some())
    }
}

/// The group of an object whose kind is declared; `None` if it is not.
pub(super) fn group(workload: &Workload<'_>) -> Option<Result<GroupSpec, GroupError>> {
    let object = workload.object;
    let declared = workload.settings.declared.find(object.group(), object.kind)?;
    Some(apply(workload, declared))
}

fn apply(workload: &Workload<'_>, declared: &DeclaredKind) -> Result<GroupSpec, GroupError> {
    let (object, pod) = (workload.object, workload.pod);
    let mut spec = GroupSpec { minimum: Minimum::Members(declared.minimum(object)?), ..workload.base() };
    let labelled = |key: &str| object.label(key).or_else(|| pod.label(key)).is_some();
    if !labelled(&workload.settings.queue_label_key)
        && let Some(queue) = declared.queue(object)?
    {
        spec.queue = queue;
    }
    if !labelled(label::PRIORITY_CLASS_NAME)
        && let Some(class) = declared.priority_class(object)?
    {
        if workload.related.has_priority_class(&class) {
            spec.priority_class = class;
        } else {
            spec.ignored_values.push(IgnoredValue::UnknownPriorityClass { object: object.reference(), class });
        }
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::related::ObjectStore;
    use crate::settings::Settings;
    use crate::testing::{outline, try_group_with};

    fn declared(declarations: &Value) -> (DeclaredKinds, Vec<String>) {
        let map = json!({"metadata": {"name": "kinds", "namespace": "kai"}, "data": declarations});
        let (declared, errors) = DeclaredKinds::from_config_map(&map);
        (declared, errors.iter().map(ToString::to_string).collect())
    }

    const TRAINER: &str = "group: ml.example.com\nkind: Trainer\nreplicas: .spec.groups[].nodes\nminimum: .spec.least\n\
                           queue: .spec.team\npriority: .spec.class";

    fn grouped(spec: &Value, labels: &Value) -> Result<GroupSpec, GroupError> {
        let (declared, errors) = declared(&json!({"trainer": TRAINER}));
        assert_eq!(errors, [""; 0]);
        let settings = Settings { declared, ..Settings::default() };
        let owner = json!({"apiVersion": "ml.example.com/v7", "kind": "Trainer", "spec": spec,
            "metadata": {"name": "t", "namespace": "lab", "uid": "u", "labels": labels}});
        let class =
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}});
        let related: ObjectStore = [class].into_iter().collect();
        try_group_with(&[owner], &json!({"metadata": {"name": "p", "namespace": "lab"}}), &related, &settings)
    }

    #[test]
    fn sizes_queue_and_priority_are_found_at_the_paths_of_the_declaration() {
        let spec = json!({"groups": [{"nodes": 2}, {"nodes": 3}], "team": "research", "class": "high"});
        let group = grouped(&spec, &json!({})).unwrap();
        assert_eq!((group.name.as_str(), outline(&group).as_str()), ("pg-t-u", "* 5"));
        assert_eq!((group.queue.as_str(), group.priority_class.as_str()), ("research", "high"));
        let labelled = grouped(&spec, &json!({"kai.scheduler/queue": "other"})).unwrap();
        assert_eq!(labelled.queue, "other");
        let least = grouped(&json!({"groups": [{"nodes": 2}], "least": 1, "class": "unknown"}), &json!({})).unwrap();
        assert_eq!(
            (outline(&least).as_str(), least.queue.as_str(), least.priority_class.as_str()),
            ("* 1", "default-queue", "train")
        );
    }

    #[test]
    fn objects_without_sense_are_errors_that_name_the_path() {
        for (spec, error) in [
            (
                json!({"groups": [{"nodes": "2"}]}),
                r#"Trainer lab/t: .spec.groups[].nodes must be a number of pods, but is "2""#,
            ),
            (json!({"groups": []}), "Trainer lab/t: .spec.groups[].nodes is missing"),
            (
                json!({"groups": [{"nodes": 2}], "least": 3}),
                r#"Trainer lab/t: .spec.least must be at most the replicas, which are 2, but is "3""#,
            ),
            (json!({"groups": [{"nodes": 2}], "team": 7}), "Trainer lab/t: .spec.team must be text, but is 7"),
        ] {
            assert_eq!(grouped(&spec, &json!({})).unwrap_err().to_string(), error);
        }
        assert!(grouped(&json!({}), &json!({})).is_err());
    }

    #[test]
    fn a_bad_declaration_is_passed_over_and_named() {
        let (kinds, errors) = declared(&json!({
            "a": "kind: Good\nminimum: .spec.size",
            "b": "kind: Good\nreplicas: .spec.size",
            "c": "kind: Job\ngroup: batch\nreplicas: .spec.parallelism",
            "d": "kind: Nothing",
            "e": "kind: Odd\nreplicas: .spec[",
            "f": "kind: Odd\nreplica: .spec.size",
            "g": "replicas: .spec.size",
        }));
        assert_eq!(kinds.kinds.len(), 1);
        let starts = [
            "ConfigMap kai/kinds: data.b repeats kind Good, which is declared already",
            "ConfigMap kai/kinds: data.c: kind must be a kind that has no rule of its own; remove this key, but is \"Job\"",
            "ConfigMap kai/kinds: data.d: replicas is missing",
            "ConfigMap kai/kinds: data.e: replicas must be a jq path such as .spec.replicas (",
            "ConfigMap kai/kinds: data.f must be YAML with kind, group, replicas, minimum, queue, priority and template, but is unknown field",
            "ConfigMap kai/kinds: data.g must be YAML with",
        ];
        assert_eq!(errors.len(), starts.len());
        for (error, start) in errors.iter().zip(starts) {
            assert!(error.starts_with(start), "{error}");
        }
    }
}
