//! Calls of the podgrouper, and those of them that a scheduler in the same process need not wait for.

use std::collections::BTreeMap;

use kai_api::PodGroup;
use kai_api::keys::{annotation, label};
use kai_engine::units::Timestamp;

use crate::key::{GroupKey, PodKey};
use crate::objects;

/// One call of the podgrouper. All are idempotent.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupEffect {
    CreatePodGroup(Box<PodGroup>),
    /// Replaces the stored object. Conflict if it has changed since this version.
    ReplacePodGroup(Box<PodGroup>),
    /// Adds annotations and labels to the pod.
    LinkPod {
        pod: PodKey,
        annotations: BTreeMap<String, String>,
        labels: BTreeMap<String, String>,
    },
}

/// Counts as written until a watch shows it.
#[derive(Clone, Debug, PartialEq)]
pub enum PlannedWrite {
    /// A group that is created, or takes the place of the stored one.
    Group(Box<objects::PodGroup>),
    Link(Link),
    /// The group will not be written after all.
    CancelGroup(GroupKey),
    CancelLink(PodKey),
    /// The grouper stopped or lost its lease: cancel every planned write.
    CancelAll,
}

/// Group and leaf that a pod will name; `None` leaves the field as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub pod: PodKey,
    pub uid: String,
    pub group: Option<String>,
    pub sub_group: Option<String>,
}

impl PlannedWrite {
    /// The object as the API server would store it; `None` if it cannot be parsed.
    pub(crate) fn of(effect: &GroupEffect, uid: &str, now: Timestamp) -> Option<Self> {
        match effect {
            GroupEffect::CreatePodGroup(group) | GroupEffect::ReplacePodGroup(group) => {
                let mut row = objects::PodGroup::parse(&serde_json::to_value(group).ok()?).ok()?;
                if group.metadata.creation_timestamp.is_none() {
                    // In whole seconds, as stored: the age of groups decides who comes first.
                    row.created = Timestamp(now.0 - now.0.rem_euclid(1_000_000));
                }
                Some(Self::Group(Box::new(row)))
            }
            GroupEffect::LinkPod { pod, annotations, labels } => Some(Self::Link(Link {
                pod: pod.clone(),
                uid: uid.to_owned(),
                group: annotations.get(annotation::POD_GROUP_NAME).cloned(),
                sub_group: labels.get(label::SUB_GROUP_NAME).cloned(),
            })),
        }
    }

    /// The write that cancels it.
    pub(crate) fn cancellation(&self) -> Self {
        match self {
            Self::Group(group) => Self::CancelGroup(group.key.clone()),
            Self::Link(link) => Self::CancelLink(link.pod.clone()),
            other => other.clone(),
        }
    }
}

impl Link {
    pub(crate) fn write(&self, pod: &mut objects::Pod) {
        if let Some(group) = &self.group {
            pod.annotations.insert(annotation::POD_GROUP_NAME.to_owned(), group.clone());
        }
        if let Some(leaf) = &self.sub_group {
            pod.labels.insert(label::SUB_GROUP_NAME.to_owned(), leaf.clone());
        }
    }

    pub(crate) fn matches(&self, pod: &objects::Pod) -> bool {
        let same =
            |wanted: &Option<String>, found: Option<&str>| wanted.as_deref().is_none_or(|name| found == Some(name));
        same(&self.group, pod.group_name()) && same(&self.sub_group, pod.sub_group())
    }
}
