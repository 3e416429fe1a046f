//! What a component is called, and what it may do beside watching. Each has a constant in its own folder; the
//! [`registry`](crate::registry) lists them.

use kai_api::keys::name;

use crate::kinds::Kind;

/// A component that runs as its own service account.
#[derive(Debug)]
pub struct Component {
    /// Its subcommand, and its name in logs and probes.
    pub name: &'static str,
    /// Events are published in this name.
    pub reporter: &'static str,
    /// Its Lease, if its name is fixed.
    pub lease: Option<&'static str>,
    pub service_account: &'static str,
    /// Its `ClusterRole`, and its `Role` in the namespace of the components.
    pub role: &'static str,
    /// Kinds that it reads without watching them.
    pub reads: &'static [Kind],
    /// Whether it reads the objects that pods may belong to.
    pub reads_owners: bool,
    /// What else it may do, everywhere.
    pub rules: &'static [Rule],
    /// What else it may do in one namespace, beside its Lease in that of the components.
    pub namespaced_rules: &'static [(Place, Rule)],
    /// Whether it writes labels and annotations that only components may write.
    pub writes_state: bool,
}

impl Component {
    /// One that may do nothing, to name only what is different.
    pub const EMPTY: Self = Self {
        name: "",
        reporter: "",
        lease: None,
        service_account: "",
        role: "",
        reads: &[],
        reads_owners: false,
        rules: &[],
        namespaced_rules: &[],
        writes_state: false,
    };
}

/// A namespace that `kai rbac` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Components,
    Reservations,
    ScalingPods,
}

impl Place {
    pub const ALL: [Self; 3] = [Self::Components, Self::Reservations, Self::ScalingPods];

    pub fn namespace(self) -> &'static str {
        match self {
            Self::Components => name::NAMESPACE,
            Self::Reservations => name::RESOURCE_RESERVATION,
            Self::ScalingPods => name::SCALE_ADJUST,
        }
    }
}

/// Verbs on resources of a group.
#[derive(Debug)]
pub struct Rule {
    pub group: &'static str,
    pub resources: &'static [&'static str],
    pub verbs: &'static [&'static str],
    /// Only these objects; all of them if empty.
    pub names: &'static [&'static str],
}

pub const fn rule(group: &'static str, resources: &'static [&'static str], verbs: &'static [&'static str]) -> Rule {
    Rule { group, resources, verbs, names: &[] }
}

pub const CHANGE: &[&str] = &["patch", "update"];
/// The group of queues, pod groups and bind requests.
pub const KAI: &str = "scheduling.run.ai";
pub const EVENTS: Rule = rule("", &["events"], &["create", "patch"]);
