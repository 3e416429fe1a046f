//! A node: what it offers, what it is labelled and tainted with, how it feels.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Malformed;
use super::reader::Reader;

/// What matters of a `Node`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// Cordoned.
    pub unschedulable: bool,
    /// Status (`True`, `False`, `Unknown`) by condition type.
    pub conditions: BTreeMap<String, String>,
    pub allocatable: Resources,
}

/// Amounts of resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    /// Whole GPUs, of whatever vendor.
    pub gpus: i64,
    pub pods: i64,
    /// Everything else by name: MIG profiles and storage counted plainly, other resources in thousandths.
    pub scalars: BTreeMap<String, i64>,
}

/// Keeps pods away that do not tolerate it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: TaintEffect,
}

/// What a taint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl Node {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = Reader::root(value);
        Ok(Self {
            name: root.object_name()?,
            labels: root.field("metadata").field("labels").texts()?,
            ..Self::default()
        })
    }
}
