//! Which objects of a kind a component watches. A query for the API server, or a filter here where several components share
//! a watch: both from the same requirements, so that they cannot differ.

use crate::key::Key;
use serde_json::Value;

/// All of these requirements must hold. Without any, it selects every object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<Requirement>);

/// On the text at a path of an object; a missing one counts as empty, as for the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Equals(&'static str, String),
    NotEquals(&'static str, &'static str),
}

use Requirement::{Equals, NotEquals};

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";
const SCHEDULER: &str = "spec.schedulerName";
const PHASE: &str = "status.phase";

impl FieldSelector {
    /// Pods of this scheduler.
    pub fn scheduler(name: &str) -> Self {
        Self(vec![Equals(SCHEDULER, name.to_owned())])
    }

    /// Pods of this scheduler that have not terminated.
    pub fn working(scheduler: &str) -> Self {
        Self(vec![Equals(SCHEDULER, scheduler.to_owned()), NotEquals(PHASE, "Failed"), NotEquals(PHASE, "Succeeded")])
    }

    /// Pods that have not failed.
    pub fn not_failed() -> Self {
        Self(vec![NotEquals(PHASE, "Failed")])
    }

    /// Objects of this namespace.
    pub fn namespace(name: &str) -> Self {
        Self(vec![Equals(NAMESPACE, name.to_owned())])
    }

    /// One object.
    pub fn named(Key { namespace, name }: &Key) -> Self {
        Self(vec![Equals(NAMESPACE, namespace.clone()), Equals(NAME, name.clone())])
    }

    /// As a query parameter, unless everything is selected.
    pub fn query(&self) -> Option<String> {
        let text = |requirement: &Requirement| match requirement {
            Equals(field, value) => format!("{field}={value}"),
            NotEquals(field, value) => format!("{field}!={value}"),
        };
        let all: Vec<String> = self.0.iter().map(text).collect();
        (!all.is_empty()).then(|| all.join(","))
    }

    pub fn matches(&self, object: &Value) -> bool {
        let text = |field: &str| field.split('.').fold(object, |part, name| &part[name]).as_str().unwrap_or_default();
        self.0.iter().all(|requirement| match requirement {
            Equals(field, value) => text(field) == value,
            NotEquals(field, value) => text(field) != *value,
        })
    }

    /// Whether it selects one object at most.
    pub fn selects_one_object(&self) -> bool {
        self.0.iter().any(|requirement| matches!(requirement, Equals(NAME, _)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Evaluates the query, as the API server does.
    fn selected(query: &str, object: &Value) -> bool {
        query.split(',').all(|term| {
            let (field, value) = term.split_once('=').unwrap();
            let text = |field: &str| {
                let path = format!("/{}", field.replace('.', "/"));
                object.pointer(&path).and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            field.strip_suffix('!').map_or_else(|| text(field) == value, |field| text(field) != value)
        })
    }

    #[test]
    fn the_filter_selects_what_the_api_server_would_select() {
        let selectors = [
            (FieldSelector::scheduler("kai"), "spec.schedulerName=kai"),
            (FieldSelector::working("kai"), "spec.schedulerName=kai,status.phase!=Failed,status.phase!=Succeeded"),
            (FieldSelector::not_failed(), "status.phase!=Failed"),
            (FieldSelector::namespace("lab"), "metadata.namespace=lab"),
            (FieldSelector::named(&Key::new("lab", "a")), "metadata.namespace=lab,metadata.name=a"),
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
        for (selector, query) in selectors {
            assert_eq!(selector.query().as_deref(), Some(query));
            for object in &objects {
                assert_eq!(selector.matches(object), selected(query, object), "{query} of {object}");
            }
        }
    }

    #[test]
    fn no_requirement_selects_everything() {
        assert_eq!(FieldSelector::default().query(), None);
        assert!(FieldSelector::default().matches(&json!({})));
    }
}
