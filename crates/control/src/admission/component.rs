//! The admission webhooks' names, and what they write.

use kai_api::keys::webhook;
use serde_json::{Value, json};

use crate::component::{Component, Place, Rule};

const ADMISSION: &str = "admissionregistration.k8s.io";
const CONFIGURATIONS: &[&str] = &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
const OWN: &[&str] = &[webhook::POD_GROUPS, webhook::QUEUES, webhook::MUTATING, webhook::VALIDATING];

/// Every replica answers, so there is no Lease.
pub const COMPONENT: Component = Component {
    name: "admission",
    reporter: "admission",
    service_account: "admission",
    role: "kai-admission",
    // `create` cannot be limited to names, so `kai rbac` makes these objects.
    rules: &[Rule { group: ADMISSION, resources: CONFIGURATIONS, verbs: &["get", "patch", "update"], names: OWN }],
    // Certificates, shared by its replicas.
    namespaced_rules: &[(
        Place::Components,
        Rule { group: "", resources: &["secrets"], verbs: &["get", "update"], names: &[webhook::SECRET] },
    )],
    ..Component::EMPTY
};

/// What admission fills in: it may change these objects, and make no others.
pub fn stubs(namespace: &str) -> Vec<Value> {
    let configuration = |what: &str, name: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{what}WebhookConfiguration"),
            "metadata": {"name": name}})
    };
    // Its type, which never changes, is left to who made it first.
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": namespace, "name": webhook::SECRET}});
    vec![
        secret,
        configuration("Mutating", webhook::MUTATING),
        configuration("Validating", webhook::VALIDATING),
        configuration("Validating", webhook::QUEUES),
        configuration("Validating", webhook::POD_GROUPS),
    ]
}
