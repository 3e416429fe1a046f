//! The description of a pod group: what the grouper wants to see in the cluster.

use std::collections::BTreeMap;

use kai_api::Duration;

use crate::object::Object;
use crate::object_ref::ObjectRef;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSpec {
    pub name: String,
    pub namespace: String,
    pub queue: String,
    pub priority_class: String,
    /// `None` leaves it to the priority value.
    pub preemptibility: Option<Preemptibility>,
    pub preemption_delay: Option<Duration>,
    pub staleness_grace_period: Option<Duration>,
    pub minimum: Minimum,
    pub owner: OwnerRef,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub topology: Option<TopologyConstraint>,
    /// Parents and leaves; a parent stands before its children.
    pub sub_groups: Vec<SubGroupSpec>,
    /// What was passed over on the way; for the log, not for the object.
    pub ignored_values: Vec<IgnoredValue>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubGroupSpec {
    pub name: String,
    /// `None` hangs below the group itself.
    pub parent: Option<String>,
    pub minimum: Minimum,
    pub topology: Option<TopologyConstraint>,
    /// Names of the pods this call places here; other pods of the leaf are not listed.
    pub pods: Vec<String>,
}

/// Whether running pods of the group may be evicted for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preemptibility {
    Preemptible,
    NonPreemptible,
}

impl Preemptibility {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Preemptible => "preemptible",
            Self::NonPreemptible => "non-preemptible",
        }
    }

    /// `Some(None)` is the empty value: decide by priority. `None` is not a value at all.
    #[allow(clippy::option_option)]
    pub(crate) fn parse(text: &str) -> Option<Option<Self>> {
        match text {
            "" => Some(None),
            "preemptible" => Some(Some(Self::Preemptible)),
            "non-preemptible" => Some(Some(Self::NonPreemptible)),
            _ => None,
        }
    }
}

/// How much must start together. A level counts either pods or children, never both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Minimum {
    /// Pods. 0 means no gang: every pod is elastic.
    Members(i32),
    /// Direct children that must be satisfied.
    SubGroups(i32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerRef {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
}

/// Where in a topology the pods must, or should, stay together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopologyConstraint {
    pub topology: Option<String>,
    pub required_level: Option<String>,
    pub preferred_level: Option<String>,
}

/// A value that was there but could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IgnoredValue {
    UnknownPriorityClass { object: ObjectRef, class: String },
    InvalidPreemptibility { object: ObjectRef, value: String },
    InvalidDuration { object: ObjectRef, key: &'static str, value: String },
}

impl GroupSpec {
    /// The leaf a pod is labelled with: the first one that holds it.
    pub fn leaf_of(&self, pod_name: &str) -> Option<&str> {
        let holds = |sub_group: &&SubGroupSpec| sub_group.pods.iter().any(|pod| pod == pod_name);
        self.sub_groups.iter().find(holds).map(|sub_group| sub_group.name.as_str())
    }
}

impl SubGroupSpec {
    pub(crate) fn leaf(name: impl Into<String>, members: i32) -> Self {
        Self { name: name.into(), parent: None, minimum: Minimum::Members(members), topology: None, pods: Vec::new() }
    }

    pub(crate) fn parent(name: impl Into<String>, children: i32) -> Self {
        Self { minimum: Minimum::SubGroups(children), ..Self::leaf(name, 0) }
    }

    pub(crate) fn below(mut self, parent: &str) -> Self {
        self.parent = Some(parent.to_owned());
        self
    }

    pub(crate) fn within(mut self, topology: Option<TopologyConstraint>) -> Self {
        self.topology = topology;
        self
    }

    /// Places the pod here if `belongs`.
    pub(crate) fn holding(mut self, pod: Object<'_>, belongs: bool) -> Self {
        if belongs {
            self.pods.push(pod.name().to_owned());
        }
        self
    }
}

impl OwnerRef {
    pub(crate) fn of(object: Object<'_>) -> Self {
        Self {
            api_version: object.api_version.to_owned(),
            kind: object.kind.to_owned(),
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
        }
    }
}
