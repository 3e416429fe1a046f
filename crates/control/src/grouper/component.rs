//! The pod grouper's names, and what it writes.

use kai_api::keys::lease;

use crate::component::{CHANGE, Component, EVENTS, KAI, rule};
use crate::kinds::Kind;

pub const COMPONENT: Component = Component {
    name: "podgrouper",
    reporter: "pod-grouper",
    lease: Some(lease::POD_GROUPER),
    service_account: "pod-grouper",
    role: "kai-podgrouper",
    // Its labels may name the queue of a workload.
    reads: &[Kind::Namespace],
    reads_owners: true,
    rules: &[rule("", &["pods"], CHANGE), EVENTS, rule(KAI, &["podgroups"], &["create", "patch", "update"])],
    writes_state: true,
    ..Component::EMPTY
};
