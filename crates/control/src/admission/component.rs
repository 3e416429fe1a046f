//! The admission webhooks' names, and what they write.

use kai_api::keys::webhook;

use crate::component::{Component, Rule, rule};

const ADMISSION: &str = "admissionregistration.k8s.io";
const CONFIGURATIONS: &[&str] = &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
const OWN: &[&str] = &[webhook::POD_GROUPS, webhook::QUEUES, webhook::MUTATING, webhook::VALIDATING];

/// Every replica answers, so there is no Lease.
pub const COMPONENT: Component = Component {
    name: "admission",
    reporter: "admission",
    service_account: "admission",
    role: "kai-admission",
    rules: &[
        rule(ADMISSION, CONFIGURATIONS, &["create"]),
        Rule { group: ADMISSION, resources: CONFIGURATIONS, verbs: &["get", "patch", "update"], names: OWN },
    ],
    // Certificates, shared by its replicas.
    namespaced_rules: &[rule("", &["secrets"], &["create", "get", "update"])],
    ..Component::EMPTY
};
