//! Names of the status controllers, and what they write.

use kai_api::keys::lease;

use crate::component::{CHANGE, Component, KAI, rule};

pub const POD_GROUPS: Component = Component {
    name: "podgroupcontroller",
    reporter: "podgroupcontroller",
    lease: Some(lease::POD_GROUP_CONTROLLER),
    service_account: "podgroup-controller",
    role: "kai-podgroup-controller",
    rules: &[rule(KAI, &["podgroups/status"], CHANGE)],
    ..Component::EMPTY
};

pub const QUEUES: Component = Component {
    name: "queuecontroller",
    reporter: "queuecontroller",
    lease: Some(lease::QUEUE_CONTROLLER),
    service_account: "queue-controller",
    role: "queuecontroller",
    rules: &[rule(KAI, &["queues/status"], CHANGE)],
    ..Component::EMPTY
};
