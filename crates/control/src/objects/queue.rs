//! A queue as its owner wrote it, in engine units.

use std::collections::BTreeMap;

use kai_engine::units::{Ceiling, Span, Timestamp};
use serde_json::Value;

use super::Malformed;
use super::reader::Reader;

/// What matters of a `Queue`.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub created: Timestamp,
    pub display_name: Option<String>,
    pub parent: Option<String>,
    pub priority: i32,
    pub cpu: QueueAmounts,
    pub memory: QueueAmounts,
    pub gpu: QueueAmounts,
    pub preempt_min_runtime: Option<Span>,
    pub reclaim_min_runtime: Option<Span>,
}

/// Amounts of one resource: milli-cores, bytes or millionths of a GPU; the weight in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueAmounts {
    pub quota: Ceiling,
    pub limit: Ceiling,
    pub weight: i64,
}

impl Queue {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = Reader::root(value);
        let amounts = QueueAmounts { quota: Ceiling::Unlimited, limit: Ceiling::Unlimited, weight: 0 };
        Ok(Self {
            name: root.object_name()?,
            labels: root.field("metadata").field("labels").texts()?,
            created: root.field("metadata").field("creationTimestamp").time()?.unwrap_or(Timestamp(0)),
            display_name: None,
            parent: None,
            priority: 100,
            cpu: amounts,
            memory: amounts,
            gpu: amounts,
            preempt_min_runtime: None,
            reclaim_min_runtime: None,
        })
    }
}
