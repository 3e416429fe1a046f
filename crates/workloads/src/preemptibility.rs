//! Whether running pods of the group may be taken away for others.

use kai_api::keys::label;

use crate::group::{IgnoredValue, Preemptibility};
use crate::object::Object;
use crate::settings::Settings;

/// Labels of the owners, then of the pod, then the defaults of the owners' kinds.
pub(crate) fn of(
    lineage: &[Object<'_>],
    pod: Object<'_>,
    settings: &Settings,
    ignored_values: &mut Vec<IgnoredValue>,
) -> Option<Preemptibility> {
    for object in lineage.iter().chain([&pod]) {
        let Some(value) = object.label(label::PREEMPTIBILITY) else { continue };
        if let Some(known) = Preemptibility::parse(value) {
            return known;
        }
        ignored_values
            .push(IgnoredValue::InvalidPreemptibility { object: object.reference(), value: value.to_owned() });
    }
    let defaults = lineage.iter().filter_map(|object| settings.kind_defaults.of(*object));
    defaults.map(|entry| entry.preemptibility.to_lowercase()).find_map(|value| Preemptibility::parse(&value).flatten())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::settings::KindDefaults;

    fn labelled(value: &str) -> Value {
        json!({"kind": "Job", "metadata": {"labels": {label::PREEMPTIBILITY: value}}})
    }

    fn check(owner: &Value, pod: &Value, types: &str) -> Option<Preemptibility> {
        let kind_defaults = KindDefaults::from_config_map(&json!({"data": {"types": types}})).unwrap();
        let settings = Settings { kind_defaults, ..Settings::default() };
        of(&[Object::new(owner)], Object::new(pod), &settings, &mut Vec::new())
    }

    #[test]
    fn the_first_valid_label_wins() {
        let none = json!({});
        let yes = labelled("preemptible");
        let wrong = labelled("Preemptible");
        let empty = labelled("");
        assert_eq!(check(&yes, &labelled("non-preemptible"), "[]"), Some(Preemptibility::Preemptible));
        assert_eq!(check(&wrong, &labelled("non-preemptible"), "[]"), Some(Preemptibility::NonPreemptible));
        assert_eq!(check(&empty, &yes, "[]"), None, "empty ends the search");
        assert_eq!(check(&none, &none, "[]"), None);
    }

    #[test]
    fn kind_defaults_come_last_in_any_case() {
        let types = r#"[{"typeName":"Job","preemptibility":"Non-Preemptible"}]"#;
        let plain = json!({"kind": "Job"});
        assert_eq!(check(&plain, &json!({}), types), Some(Preemptibility::NonPreemptible));
        assert_eq!(check(&plain, &labelled("preemptible"), types), Some(Preemptibility::Preemptible));
        assert_eq!(check(&labelled(""), &json!({}), types), None);
    }
}
