//! What is wrong with objects, and how to repair them.

use std::fmt;

use kai_api::keys::label;

use crate::scheduler::effect::{Explanation, Problem};
use crate::scheduler::reasons::{IgnoredPod, ProblemReason, QueueFault, SubGroupFault};

/// `queue team: Its parent queue …`
impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.object, self.reason.explain().message)
    }
}

impl ProblemReason {
    /// The reason in sentences.
    pub fn explain(&self) -> Explanation {
        let message = match self {
            Self::Queue { fault } => queue(fault),
            Self::PodGroup { fault } => sub_groups(fault),
            Self::ImpossibleTime { annotation } => format!(
                "The annotation {annotation} is a time in the future, and counts as absent. Remove it: the scheduler \
                 writes it."
            ),
            Self::PodGroupMissing { group } => format!(
                "Pod group {group} does not exist in this node pool, so that the pod waits. Create it, or correct \
                 the annotation pod-group-name."
            ),
        };
        Explanation::new(self.reason(), message)
    }
}

impl IgnoredPod {
    /// The reason in sentences.
    pub fn explain(&self) -> Explanation {
        let Self { group, sub_group, leaves, more_leaves } = self;
        let mut known = if leaves.is_empty() { "none".to_owned() } else { leaves.join(", ") };
        if *more_leaves > 0 {
            known = format!("{known} and {more_leaves} more");
        }
        let message = match sub_group {
            Some(name) => format!(
                "Sub-group \"{name}\" does not exist in PodGroup {group}, so that the pod is ignored. \
                 Label it with one of its leaves: {known}."
            ),
            None => format!(
                "The pod names no sub-group, but PodGroup {group} has some, so that the pod is ignored. \
                 Label it {} with one of its leaves: {known}.",
                label::SUB_GROUP_NAME
            ),
        };
        Explanation::new(self.reason(), message)
    }
}

pub(super) fn queue(fault: &QueueFault) -> String {
    match fault {
        QueueFault::ParentMissing { parent } => format!(
            "Its parent queue {parent} does not exist, so that jobs of this queue and of those below it wait. \
             Create {parent}, or change spec.parentQueue."
        ),
        QueueFault::Cycle => "It is its own ancestor, so that jobs of this queue wait. Clear spec.parentQueue of one \
                              queue of the circle."
            .to_owned(),
        QueueFault::AncestorFaulty { queue } => {
            format!("Queue {queue} above it cannot be used, so that jobs of this queue wait. Repair {queue} first.")
        }
        QueueFault::TooDeep { levels, most } => format!(
            "It is on level {levels} of its tree, and at most {most} levels are taken, so that jobs of this queue wait. \
             Name a spec.parentQueue that is nearer to the top."
        ),
    }
}

pub(super) fn sub_groups(fault: &SubGroupFault) -> String {
    match fault {
        SubGroupFault::Duplicate { name } => format!(
            "Two sub-groups are called {name}, so that nothing of the job is scheduled. Give each a name of its own."
        ),
        SubGroupFault::UnknownParent { name, parent } => format!(
            "Sub-group {name} names parent {parent}, which does not exist, so that nothing of the job is \
             scheduled. Add {parent} to spec.subGroups, or remove the parent."
        ),
        SubGroupFault::Cycle { name } => format!(
            "Sub-group {name} is below itself, so that nothing of the job is scheduled. Remove one parent of the \
             circle."
        ),
        SubGroupFault::TooMany { count, most } => format!(
            "It has {count} sub-groups, and at most {most} are taken, so that nothing of the job is scheduled. Divide it \
             among several pod groups."
        ),
        SubGroupFault::TooDeep { name, levels, most } => format!(
            "Sub-group {name} is on level {levels}, and at most {most} levels are taken, so that nothing of the job is \
             scheduled. Nest sub-groups less deep."
        ),
    }
}
