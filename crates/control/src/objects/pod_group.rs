//! A gang and its tree of sub-groups.

use std::collections::BTreeMap;

use kai_engine::units::{Span, Timestamp};
use serde_json::Value;

use super::Malformed;
use super::reader::Reader;
use crate::world::GroupKey;

/// What matters of a `PodGroup`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGroup {
    pub key: GroupKey,
    pub labels: BTreeMap<String, String>,
    pub created: Timestamp,
    pub queue: String,
    pub priority_class: Option<String>,
    pub preemptible: Option<bool>,
    pub min_member: Option<u32>,
    pub min_sub_group: Option<u32>,
    pub sub_groups: Vec<SubGroup>,
    pub constraint: Option<TopologyConstraint>,
    pub preemption_delay: Span,
    /// `Some(None)` is for ever.
    pub staleness_grace: Option<Option<Span>>,
    pub last_start: Option<Timestamp>,
    pub stale_since: Option<Timestamp>,
    pub last_eviction: Option<Timestamp>,
}

/// A node of the tree below the pod group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubGroup {
    pub name: String,
    pub parent: Option<String>,
    pub min_member: Option<u32>,
    pub min_sub_group: Option<u32>,
    pub constraint: Option<TopologyConstraint>,
}

/// Where a group must or should stay together.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopologyConstraint {
    pub topology: String,
    pub required: Option<String>,
    pub preferred: Option<String>,
}

impl PodGroup {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = Reader::root(value);
        Ok(Self {
            key: GroupKey::new(root.object_namespace()?, root.object_name()?),
            labels: root.field("metadata").field("labels").texts()?,
            created: root.field("metadata").field("creationTimestamp").time()?.unwrap_or(Timestamp(0)),
            queue: root.field("spec").field("queue").text_or_empty()?,
            priority_class: None,
            preemptible: None,
            min_member: root.field("spec").field("minMember").count()?,
            min_sub_group: None,
            sub_groups: Vec::new(),
            constraint: None,
            preemption_delay: Span(0),
            staleness_grace: None,
            last_start: None,
            stale_since: None,
            last_eviction: None,
        })
    }
}
