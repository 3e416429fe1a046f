//! The binder's names, and what it writes.

use kai_api::keys::lease;

use crate::component::{CHANGE, Component, EVENTS, KAI, Place, rule};
use crate::kinds::Kind;

pub const COMPONENT: Component = Component {
    name: "binder",
    reporter: "binder",
    lease: Some(lease::BINDER),
    service_account: "binder",
    role: "kai-binder",
    // The scheduler has chosen the devices; a claim is read only to be changed.
    reads: &[Kind::ResourceClaim],
    rules: &[
        rule("", &["configmaps"], &["create", "get", "patch"]),
        // Pods that share a GPU whose reservation is gone are deleted: it can be allocated to others.
        rule("", &["pods"], &["delete", "patch"]),
        rule("", &["persistentvolumeclaims", "persistentvolumes"], CHANGE),
        rule("", &["pods/binding"], &["create"]),
        rule("", &["pods/finalizers", "pods/status"], CHANGE),
        EVENTS,
        rule("resource.k8s.io", &["resourceclaims"], CHANGE),
        rule("resource.k8s.io", &["resourceclaims/binding", "resourceclaims/status"], CHANGE),
        rule(KAI, &["bindrequests"], &["delete", "patch", "update"]),
        rule(KAI, &["bindrequests/finalizers", "bindrequests/status"], CHANGE),
    ],
    namespaced_rules: &[(Place::Reservations, rule("", &["pods"], &["create"]))],
    writes_state: true,
    ..Component::EMPTY
};
