//! What a cycle saw: sizes of the cluster, and which objects had changed.

use std::collections::BTreeMap;

use kai_engine::units::GPU;
use serde::{Deserialize, Serialize};

use crate::for_each_kind;
use crate::kinds::ObjectId;
use crate::scheduler::usage::Usage;
use crate::world::{ChangeLog, World};

/// The cluster that a cycle saw: its size, and what changed in it since the cycle before. Objects themselves are in
/// snapshot files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CycleInput {
    /// Objects by kind; kinds without objects are left out.
    pub objects: BTreeMap<String, usize>,
    /// Sums over all nodes.
    pub allocatable: NodeTotals,
    /// Past usage of queues, as a share of the cluster in millionths: CPU, memory, GPU.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub usage: BTreeMap<String, [i64; 3]>,
    /// Absent if the whole cluster was read anew: in the first cycle, after very many changes, and where no scheduler
    /// runs cycle after cycle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<InputChanges>,
}

/// Amounts of all nodes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeTotals {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub gpu_micro: i64,
}

/// Objects that changed since the cycle before, assumed changes included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputChanges {
    pub total: usize,
    /// The first of them, by kind and name; at most 256.
    pub objects: Vec<ObjectChange>,
}

/// An object that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectChange {
    pub object: ObjectId,
    pub change: ChangeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeKind {
    Added,
    Updated,
    Deleted,
}

/// A record names so many changed objects at most, so that a burst of changes does not fill the memory for records.
const CHANGES_MAX: usize = 256;

impl InputChanges {
    /// `None` if the log overflowed.
    pub(in crate::scheduler) fn new(log: &ChangeLog, world: &World) -> Option<Self> {
        let ChangeLog::Entries(entries) = log else { return None };
        let change = |(object, before): (&ObjectId, &Option<_>)| {
            let change = match (before, exists(world, object)) {
                (_, false) => ChangeKind::Deleted,
                (None, true) => ChangeKind::Added,
                (Some(_), true) => ChangeKind::Updated,
            };
            ObjectChange { object: object.clone(), change }
        };
        Some(Self { total: entries.len(), objects: entries.iter().take(CHANGES_MAX).map(change).collect() })
    }
}

macro_rules! per_kind {
    ($($variant:ident $table:ident $name:literal $api_version:literal $plural:literal $scope:ident $presence:ident
        $list:literal;)*) => {
        fn counts(world: &World) -> BTreeMap<String, usize> {
            let counts = [$(($name, world.$table.len()),)*];
            counts.into_iter().filter(|(_, count)| *count > 0).map(|(kind, count)| (kind.to_owned(), count)).collect()
        }

        fn exists(world: &World, object: &ObjectId) -> bool {
            match object {
                $(ObjectId::$variant(key) => world.$table.contains_key(key),)*
            }
        }
    };
}

for_each_kind!(per_kind);

pub(super) fn input(world: &World, usage: &Usage) -> CycleInput {
    let mut allocatable = NodeTotals::default();
    for node in world.nodes.values() {
        allocatable.cpu_milli += node.allocatable.cpu_milli;
        allocatable.memory_bytes += node.allocatable.memory_bytes;
        allocatable.gpu_micro += node.allocatable.gpus * GPU;
    }
    CycleInput { objects: counts(world), allocatable, usage: usage.queues.clone(), changes: None }
}
