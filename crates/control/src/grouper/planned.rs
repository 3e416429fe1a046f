//! What the grouper is about to write, for a scheduler in the same process that need not wait for it.

use kai_api::keys::{annotation, label};
use kai_engine::units::Timestamp;

use super::GroupEffect;
use crate::key::{GroupKey, PodKey};
use crate::objects::{Pod, PodGroup};

/// To be counted as written until a watch shows it.
#[derive(Clone, Debug, PartialEq)]
pub enum Draft {
    /// A group that is created, or takes the place of the stored one.
    Group(Box<PodGroup>),
    Link(Link),
    /// It was not written after all.
    NoGroup(GroupKey),
    NoLink(PodKey),
    /// Whoever made the drafts is gone: nobody knows what becomes of any of them.
    Nothing,
}

/// What a pod is to say of its group; nothing where it stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub pod: PodKey,
    pub uid: String,
    pub group: Option<String>,
    pub sub_group: Option<String>,
}

impl Draft {
    /// As the API server would show it; `None` if nobody could read that.
    pub(super) fn of(effect: &GroupEffect, uid: &str, now: Timestamp) -> Option<Self> {
        match effect {
            GroupEffect::CreatePodGroup(group) | GroupEffect::ReplacePodGroup(group) => {
                let mut row = PodGroup::parse(&serde_json::to_value(group).ok()?).ok()?;
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

    /// What takes it back.
    pub(super) fn withdrawal(&self) -> Self {
        match self {
            Self::Group(group) => Self::NoGroup(group.key.clone()),
            Self::Link(link) => Self::NoLink(link.pod.clone()),
            other => other.clone(),
        }
    }
}

impl Link {
    pub(crate) fn write(&self, pod: &mut Pod) {
        if let Some(group) = &self.group {
            pod.annotations.insert(annotation::POD_GROUP_NAME.to_owned(), group.clone());
        }
        if let Some(leaf) = &self.sub_group {
            pod.labels.insert(label::SUB_GROUP_NAME.to_owned(), leaf.clone());
        }
    }

    pub(crate) fn shown_by(&self, pod: &Pod) -> bool {
        let same =
            |wanted: &Option<String>, said: Option<&str>| wanted.as_deref().is_none_or(|name| said == Some(name));
        same(&self.group, pod.group_name()) && same(&self.sub_group, pod.sub_group())
    }
}
