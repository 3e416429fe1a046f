//! The node-scale adjuster's names and settings, and what it writes.

use kai_api::keys::{lease, name};

use super::Settings;
use crate::component::{Component, Place, rule};

pub const COMPONENT: Component = Component {
    name: "nodescaleadjuster",
    reporter: "nodescaleadjuster",
    lease: Some(lease::NODE_SCALE_ADJUSTER),
    service_account: "node-scale-adjuster",
    role: "kai-node-scale-adjuster",
    namespaced_rules: &[
        (Place::ScalingPods, rule("", &["pods"], &["create", "delete"])),
        (Place::ScalingPods, rule("", &["pods/status"], &["patch"])),
    ],
    ..Component::EMPTY
};

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: name::SCALE_ADJUST.to_owned(),
            app: name::SCALING_POD.to_owned(),
            service_account: name::SCALE_ADJUST.to_owned(),
            image: String::new(),
            memory_hundredths: 10,
        }
    }
}
