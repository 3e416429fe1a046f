//! Which queue the group is put into when it is created.

use kai_api::keys::label;
use kai_api::keys::name::DEFAULT_QUEUE;

use crate::object::Object;
use crate::settings::Settings;

/// Queue label of the owner, then of the pod; else the project, with the pod's node pool; else the
/// default queue. An empty queue label is an answer; an empty project is not.
pub(crate) fn of(owner: Object<'_>, pod: Object<'_>, settings: &Settings) -> String {
    let queue = &settings.queue_label_key;
    if let Some(queue) = owner.label(queue).or_else(|| pod.label(queue)) {
        return queue.to_owned();
    }
    match owner.label(label::PROJECT).or_else(|| pod.label(label::PROJECT)) {
        None | Some("") => DEFAULT_QUEUE.to_owned(),
        Some(project) => match pod.label(&settings.node_pool_label_key) {
            Some(pool) => format!("{project}-{pool}"),
            None => project.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(owner: &Value, pod: &Value, queue: &str) {
        let owner = json!({"metadata": {"labels": owner}});
        let pod = json!({"metadata": {"labels": pod}});
        assert_eq!(of(Object::new(&owner), Object::new(&pod), &Settings::default()), queue);
    }

    #[test]
    fn queue_label_of_owner_then_pod() {
        check(&json!({label::QUEUE: "a"}), &json!({label::QUEUE: "b"}), "a");
        check(&json!({}), &json!({label::QUEUE: "b", "project": "p"}), "b");
        check(&json!({label::QUEUE: ""}), &json!({label::QUEUE: "b"}), "");
    }

    #[test]
    fn project_and_node_pool() {
        check(&json!({"project": "p"}), &json!({"project": "q"}), "p");
        check(&json!({}), &json!({"project": "q", label::NODE_POOL: "a100"}), "q-a100");
        check(&json!({"project": ""}), &json!({"project": "q"}), DEFAULT_QUEUE);
        check(&json!({label::NODE_POOL: "x"}), &json!({}), DEFAULT_QUEUE);
    }
}
