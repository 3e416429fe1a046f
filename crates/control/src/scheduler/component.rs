//! The scheduler's names, and what it writes.

use kai_api::keys::name;

use crate::component::{CHANGE, Component, EVENTS, KAI, rule};

/// Its Lease has its `--scheduler-name`, and the shard.
pub const COMPONENT: Component = Component {
    name: "scheduler",
    reporter: name::SCHEDULER,
    service_account: "scheduler",
    role: "kai-scheduler",
    rules: &[
        rule("", &["pods"], &["delete", "patch"]),
        rule("", &["pods/eviction"], &["create"]),
        rule("", &["pods/finalizers", "pods/status"], CHANGE),
        EVENTS,
        rule(KAI, &["bindrequests"], &["create", "delete", "patch", "update"]),
        rule(KAI, &["podgroups", "podgroups/status"], CHANGE),
    ],
    writes_state: true,
    ..Component::EMPTY
};
