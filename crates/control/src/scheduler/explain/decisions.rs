//! Why pods were bound, pipelined and evicted.

use std::fmt;

use super::amounts::{bound, count};
use super::{JobNames, standing};
use crate::duration;
use crate::scheduler::reasons::{BindReason, EvictionReason, PipelineReason, ReclaimSide, StaleBindRequest};

impl fmt::Display for BindReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.together {
            0 | 1 => out.write_str("fits")?,
            pods => write!(out, "fits together with {}", count(pods - 1, "more pod", "more pods"))?,
        }
        if let Some(holding) = &self.queue {
            let holds = standing(holding.resource, holding.allocated, holding.fair_share);
            write!(out, "; queue {} now holds {holds}", holding.queue.shown())?;
        }
        Ok(())
    }
}

impl fmt::Display for PipelineReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Moves => "pipelined: moves here when its pod on the other node has terminated",
            Self::Waits => "pipelined: starts here when terminating pods release the resources",
        })
    }
}

impl fmt::Display for EvictionReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.explain(JobNames::default()))
    }
}

impl EvictionReason {
    /// The reason in a sentence without an end.
    pub fn explain(&self, names: JobNames<'_>) -> String {
        match self {
            Self::Preemption { preemptor, preemptor_priority, priority } => format!(
                "makes room for job {} of higher priority, {preemptor_priority} over {priority}",
                names.name(preemptor)
            ),
            Self::Consolidation { preemptor } => {
                format!("moves to another node to make room for job {}", names.name(preemptor))
            }
            Self::Reclaim { preemptor, victim_queue: Some(victim), preemptor_queue: Some(winner) } => {
                format!("makes room for job {}: {}; {}", names.name(preemptor), side(victim), side(winner))
            }
            Self::Reclaim { preemptor, .. } => {
                format!("makes room for job {} of another queue", names.name(preemptor))
            }
            Self::StaleGang { since: Some(since) } => {
                format!("its job has run without the pods it needs for {}", duration::show(*since))
            }
            Self::StaleGang { since: None } => "its job runs without the pods it needs".to_owned(),
            Self::Other { preemptor: Some(preemptor) } => format!("makes room for job {}", names.name(preemptor)),
            Self::Other { preemptor: None } => "makes room for another job".to_owned(),
        }
    }
}

fn side(side: &ReclaimSide) -> String {
    let holding = &side.holding;
    format!(
        "queue {} held {}, quota {}, priority {}",
        holding.queue.shown(),
        standing(holding.resource, holding.allocated, holding.fair_share),
        bound(holding.resource, side.quota),
        side.priority
    )
}

impl fmt::Display for StaleBindRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EarlierPod => out.write_str("it was made for an earlier pod of this name"),
            Self::Failed { node } => write!(out, "the pod could not be bound to node {node}"),
            Self::NodeGone { node } => write!(out, "node {node} no longer exists"),
        }
    }
}
