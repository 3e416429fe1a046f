//! A pod: what it asks for, where it may run, where it stands.

use std::collections::BTreeMap;

use kai_engine::units::Timestamp;
use serde_json::Value;

use super::Malformed;
use super::node::{Resources, TaintEffect};
use super::reader::Reader;
use crate::world::{GroupKey, PodKey};

/// What matters of a `Pod`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub key: PodKey,
    /// `namespace/name` if the object carries none.
    pub uid: String,
    pub created: Timestamp,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub owners: Vec<Owner>,
    pub scheduler: String,
    pub phase: Phase,
    /// When it should be gone, grace period included; `None` while it is not being deleted.
    pub deletion: Option<Timestamp>,
    pub gated: bool,
    pub node: Option<String>,
    pub nominated_node: Option<String>,
    pub priority_class: Option<String>,
    pub priority: Option<i32>,
    pub request: Request,
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: one of the terms must hold. `None` is no rule, an empty list holds nowhere.
    pub node_affinity: Option<Vec<NodeTerm>>,
    pub tolerations: Vec<Toleration>,
    pub host_ports: Vec<HostPort>,
    /// Other rules that make two pods unlike each other (pod affinity, spread, storage), in canonical text.
    pub other_rules: String,
}

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

/// Who made an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: bool,
}

/// What a pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Whole GPUs are counted here; MIG profiles are scalars. `pods` is always 1.
    pub resources: Resources,
    pub sharing: Option<Sharing>,
    /// Asks for MIG by annotation, which can no longer be served.
    pub legacy_mig: bool,
}

/// A part of one or more GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Millionths of each device.
    Fraction { devices: u32, portion: i64 },
    /// MiB of each device.
    Memory { devices: u32, mib: i64 },
}

/// All requirements of a term must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeTerm {
    pub labels: Vec<Requirement>,
    pub fields: Vec<Requirement>,
}

/// `key operator values`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
}

/// How a requirement compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

/// Lets a pod onto nodes with a taint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Toleration {
    /// `None` matches every key.
    pub key: Option<String>,
    /// `None` matches every value.
    pub value: Option<String>,
    /// `None` matches every effect.
    pub effect: Option<TaintEffect>,
}

/// A port of the node itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    pub protocol: String,
    pub address: String,
    pub port: u16,
}

impl Pod {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = Reader::root(value);
        let (metadata, spec, status) = (root.field("metadata"), root.field("spec"), root.field("status"));
        let key = PodKey::new(root.object_namespace()?, root.object_name()?);
        Ok(Self {
            uid: metadata.field("uid").name()?.unwrap_or_else(|| key.to_string()),
            key,
            created: metadata.field("creationTimestamp").time()?.unwrap_or(Timestamp(0)),
            labels: metadata.field("labels").texts()?,
            annotations: metadata.field("annotations").texts()?,
            owners: Vec::new(),
            scheduler: spec.field("schedulerName").text_or_empty()?,
            phase: Phase::Pending,
            deletion: metadata.field("deletionTimestamp").time()?,
            gated: !spec.field("schedulingGates").items()?.is_empty(),
            node: spec.field("nodeName").name()?,
            nominated_node: status.field("nominatedNodeName").name()?,
            priority_class: spec.field("priorityClassName").name()?,
            priority: spec.field("priority").int32()?,
            request: Request::default(),
            node_selector: spec.field("nodeSelector").texts()?,
            node_affinity: None,
            tolerations: Vec::new(),
            host_ports: Vec::new(),
            other_rules: String::new(),
        })
    }

    /// The pod group it says it belongs to.
    pub fn group(&self) -> Option<GroupKey> {
        let name = self.annotations.get("pod-group-name").filter(|name| !name.is_empty())?;
        Some(GroupKey::new(self.key.namespace.clone(), name.clone()))
    }
}
