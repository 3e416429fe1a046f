//! Which priority class the group gets.

use kai_api::keys::{label, priority as classes};

use crate::group::IgnoredValue;
use crate::object::Object;
use crate::workload::Workload;

pub(crate) const TRAIN: &str = classes::TRAIN.0;
pub(crate) const INFERENCE: &str = classes::INFERENCE.0;
pub(crate) const BUILD: &str = classes::BUILD.0;

/// Asks the owners, nearest first, each together with the pod; then the defaults of their kinds; then
/// the rule's own default, which need not exist.
///
/// Since the nearest owner is tried together with the pod, the class that the pod requests beats a label further up.
pub(crate) fn of(
    workload: &Workload<'_>,
    lineage: &[Object<'_>],
    fallback: &str,
    ignored_values: &mut Vec<IgnoredValue>,
) -> String {
    for owner in lineage {
        let Some((object, class)) = requested_class(*owner, workload.pod) else { continue };
        if workload.related.has_priority_class(class) {
            return class.to_owned();
        }
        let note = IgnoredValue::UnknownPriorityClass { object: object.reference(), class: class.to_owned() };
        if !ignored_values.contains(&note) {
            ignored_values.push(note);
        }
    }
    let defaults = lineage.iter().filter_map(|owner| workload.settings.kind_defaults.of(*owner));
    let known = defaults.map(|entry| &entry.priority_name).find(|name| workload.related.has_priority_class(name));
    known.map_or(fallback, String::as_str).to_owned()
}

/// The class that the owner requests, or else the pod: an owner's label hides the pod's, even empty or unknown.
fn requested_class<'a>(owner: Object<'a>, pod: Object<'a>) -> Option<(Object<'a>, &'a str)> {
    let label = |object: Object<'a>| Some((object, object.label(label::PRIORITY_CLASS_NAME)?));
    let spec = || Some((pod, pod.value["spec"]["priorityClassName"].as_str()?));
    label(owner).or_else(|| label(pod)).or_else(spec)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::related::ObjectStore;
    use crate::settings::{KindDefaults, Settings};

    fn owner(class: &str) -> Value {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"labels": {label::PRIORITY_CLASS_NAME: class}}})
    }

    fn check(owners: &[Value], pod: &Value) -> String {
        let related: ObjectStore = ["high", "low"]
            .map(|name| {
                json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}})
            })
            .into_iter()
            .collect();
        let types = r#"[{"typeName":"ReplicaSet","priorityName":"low"}]"#;
        let kind_defaults = KindDefaults::from_config_map(&json!({"data": {"types": types}})).unwrap();
        let settings = Settings { kind_defaults, ..Settings::default() };
        let lineage: Vec<_> = owners.iter().map(Object::new).collect();
        let workload = Workload::new(lineage[0], lineage.clone(), Object::new(pod), &related, &settings);
        of(&workload, &lineage, TRAIN, &mut Vec::new())
    }

    #[test]
    fn the_pod_beats_a_label_further_up() {
        let plain = json!({"kind": "Pod"});
        let pod = json!({"spec": {"priorityClassName": "low"}});
        assert_eq!(check(&[plain.clone(), owner("high")], &pod), "low");
        assert_eq!(check(&[plain, owner("high")], &json!({})), "high");
    }

    #[test]
    fn unknown_classes_are_passed_over() {
        let pod = json!({"spec": {"priorityClassName": "low"}});
        assert_eq!(check(&[owner("none")], &pod), TRAIN, "the owner's label hides the pod's");
        let replica_set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet"});
        assert_eq!(check(&[owner("none"), replica_set.clone()], &json!({})), "low", "default of the kind");
        assert_eq!(check(&[replica_set], &json!({"spec": {"priorityClassName": "none"}})), "low");
    }
}
