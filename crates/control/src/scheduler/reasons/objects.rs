//! What is wrong with objects.

use kai_api::keys::reason;
use serde::{Deserialize, Serialize};

use super::INVALID_POD_GROUP;
use crate::key::GroupKey;

/// Why an object cannot be used as written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ProblemReason {
    Queue {
        fault: QueueFault,
    },
    PodGroup {
        fault: SubGroupFault,
    },
    /// The pod names a pod group that does not exist in the node pool.
    PodGroupMissing {
        group: GroupKey,
    },
}

impl ProblemReason {
    /// For programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Queue { fault: QueueFault::Cycle } => "QueueCycle",
            Self::Queue { fault: QueueFault::TooDeep { .. } } => "QueueTooDeep",
            Self::Queue { .. } => "OrphanQueue",
            Self::PodGroup { .. } => INVALID_POD_GROUP,
            Self::PodGroupMissing { .. } => "PodGroupDoesNotExist",
        }
    }
}

/// Why a queue is left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum QueueFault {
    ParentMissing {
        parent: String,
    },
    /// It is its own ancestor.
    Cycle,
    /// A queue above it is left out.
    AncestorFaulty {
        queue: String,
    },
    /// It is deeper than kai follows.
    TooDeep {
        levels: usize,
        most: usize,
    },
}

/// Why the sub-groups of a pod group are no tree, or none that is taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum SubGroupFault {
    Duplicate {
        name: String,
    },
    UnknownParent {
        name: String,
        parent: String,
    },
    Cycle {
        name: String,
    },
    /// There are more than kai takes.
    TooMany {
        count: usize,
        most: usize,
    },
    /// They nest deeper than kai follows.
    TooDeep {
        name: String,
        levels: usize,
        most: usize,
    },
}

/// A pod that is ignored because it belongs to no leaf of the sub-groups of its pod group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IgnoredPod {
    pub group: GroupKey,
    /// The sub-group that it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_group: Option<String>,
    /// Those that it could name, the first ones.
    pub leaves: Vec<String>,
    /// How many more there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_leaves: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl IgnoredPod {
    /// The reason of the condition.
    pub fn reason(&self) -> &'static str {
        reason::UNSCHEDULABLE
    }
}
