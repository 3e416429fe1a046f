//! Which objects of a kind somebody wants to see. Written as a field selector where the API server chooses, and judged
//! here where several share a watch: both from the same requirements, so that they cannot differ.

use kai_control::Key;
use serde_json::Value;

/// All of these must hold. Without any it holds for every object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Condition(Vec<Requirement>);

/// What the text at a path of an object must be; what is not there is an empty text, as for the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Is(&'static str, String),
    IsNot(&'static str, &'static str),
}

use Requirement::{Is, IsNot};

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";
const SCHEDULER: &str = "spec.schedulerName";
const PHASE: &str = "status.phase";

impl Condition {
    /// Pods of this scheduler.
    pub(crate) fn scheduler(name: &str) -> Self {
        Self(vec![Is(SCHEDULER, name.to_owned())])
    }

    /// Pods of this scheduler that are not over.
    pub(crate) fn working(scheduler: &str) -> Self {
        Self(vec![Is(SCHEDULER, scheduler.to_owned()), IsNot(PHASE, "Failed"), IsNot(PHASE, "Succeeded")])
    }

    /// Pods that have not failed.
    pub(crate) fn not_failed() -> Self {
        Self(vec![IsNot(PHASE, "Failed")])
    }

    /// Objects of this namespace.
    pub(crate) fn namespace(name: &str) -> Self {
        Self(vec![Is(NAMESPACE, name.to_owned())])
    }

    /// One object.
    pub(crate) fn named(Key { namespace, name }: &Key) -> Self {
        Self(vec![Is(NAMESPACE, namespace.clone()), Is(NAME, name.clone())])
    }

    /// The field selector, if there is anything to select.
    pub(super) fn selector(&self) -> Option<String> {
        let text = |requirement: &Requirement| match requirement {
            Is(field, value) => format!("{field}={value}"),
            IsNot(field, value) => format!("{field}!={value}"),
        };
        let all: Vec<String> = self.0.iter().map(text).collect();
        (!all.is_empty()).then(|| all.join(","))
    }

    pub(super) fn holds(&self, object: &Value) -> bool {
        let text = |field: &str| field.split('.').fold(object, |part, name| &part[name]).as_str().unwrap_or_default();
        self.0.iter().all(|requirement| match requirement {
            Is(field, value) => text(field) == value,
            IsNot(field, value) => text(field) != *value,
        })
    }

    /// Whether it holds for one object at most.
    pub(super) fn names_one(&self) -> bool {
        self.0.iter().any(|requirement| matches!(requirement, Is(NAME, _)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Judges by the selector, as the API server does.
    fn selected(selector: &str, object: &Value) -> bool {
        selector.split(',').all(|term| {
            let (field, value) = term.split_once('=').unwrap();
            let text = |field: &str| {
                let path = format!("/{}", field.replace('.', "/"));
                object.pointer(&path).and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            field.strip_suffix('!').map_or_else(|| text(field) == value, |field| text(field) != value)
        })
    }

    #[test]
    fn what_is_judged_here_is_what_the_api_server_would_select() {
        let conditions = [
            (Condition::scheduler("kai"), "spec.schedulerName=kai"),
            (Condition::working("kai"), "spec.schedulerName=kai,status.phase!=Failed,status.phase!=Succeeded"),
            (Condition::not_failed(), "status.phase!=Failed"),
            (Condition::namespace("lab"), "metadata.namespace=lab"),
            (Condition::named(&Key::new("lab", "a")), "metadata.namespace=lab,metadata.name=a"),
        ];
        let mut objects = vec![json!({})];
        for (namespace, name) in [("lab", "a"), ("lab", "b"), ("desk", "a")] {
            for scheduler in ["kai", "other"] {
                for phase in ["", "Pending", "Running", "Succeeded", "Failed"] {
                    objects.push(json!({
                        "metadata": {"namespace": namespace, "name": name},
                        "spec": {"schedulerName": scheduler},
                        "status": {"phase": phase},
                    }));
                }
            }
        }
        for (condition, selector) in conditions {
            assert_eq!(condition.selector().as_deref(), Some(selector));
            for object in &objects {
                assert_eq!(condition.holds(object), selected(selector, object), "{selector} of {object}");
            }
        }
    }

    #[test]
    fn no_condition_selects_everything() {
        assert_eq!(Condition::default().selector(), None);
        assert!(Condition::default().holds(&json!({})));
    }
}
