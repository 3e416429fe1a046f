//! The kinds that a simulated cluster understands, and how an object is named.

use std::cmp::Ordering;
use std::fmt;

use kai_control::for_each_kind;
use kai_control::kinds::Scope;

#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
    pub(crate) api_version: &'static str,
    pub(crate) namespaced: bool,
}

const fn row(kind: Kind, name: &'static str, api_version: &'static str, namespaced: bool) -> Row {
    Row { kind, name, api_version, namespaced }
}

macro_rules! kinds {
    ($($watched:ident $table:ident $name:literal $api_version:literal $plural:literal $scope:ident $presence:ident
        $list:literal;)*) => {
        /// A kind that is simulated: all that controllers watch, and those that pods come from.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $(#[doc = concat!("`", $name, "`")] $watched,)*
            /// What resource claims of pods are made from.
            ResourceClaimTemplate,
            /// Of a kind that its user has declared.
            Declared,
            /// Work on a Ray cluster of its own.
            RayJob,
            /// A Ray cluster that serves.
            RayService,
            /// A head and its workers.
            RayCluster,
            /// Training with `PyTorch`.
            PyTorchJob,
            /// Training with `TensorFlow`.
            TFJob,
            /// Training with `XGBoost`.
            XGBoostJob,
            /// Training with JAX.
            JAXJob,
            /// A launcher and its workers.
            MPIJob,
            /// Jobs that belong together.
            JobSet,
            /// Groups of a leader and its workers.
            LeaderWorkerSet,
            /// Numbered pods that keep their names.
            StatefulSet,
            /// Pods that run to completion.
            Job,
            /// Pods that are replaced for ever, in revisions.
            Deployment,
            /// Pods that are replaced for ever.
            ReplicaSet,
        }

        const KINDS: &[Row] = &[
            $(row(Kind::$watched, $name, $api_version, matches!(Scope::$scope, Scope::Namespaced)),)*
            row(Kind::ResourceClaimTemplate, "ResourceClaimTemplate", "resource.k8s.io/v1", true),
            row(Kind::Declared, "", "", true),
            row(Kind::RayJob, "RayJob", "ray.io/v1", true),
            row(Kind::RayService, "RayService", "ray.io/v1", true),
            row(Kind::RayCluster, "RayCluster", "ray.io/v1", true),
            row(Kind::PyTorchJob, "PyTorchJob", "kubeflow.org/v1", true),
            row(Kind::TFJob, "TFJob", "kubeflow.org/v1", true),
            row(Kind::XGBoostJob, "XGBoostJob", "kubeflow.org/v1", true),
            row(Kind::JAXJob, "JAXJob", "kubeflow.org/v1", true),
            row(Kind::MPIJob, "MPIJob", "kubeflow.org/v2beta1", true),
            row(Kind::JobSet, "JobSet", "jobset.x-k8s.io/v1alpha2", true),
            row(Kind::LeaderWorkerSet, "LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", true),
            row(Kind::StatefulSet, "StatefulSet", "apps/v1", true),
            row(Kind::Job, "Job", "batch/v1", true),
            row(Kind::Deployment, "Deployment", "apps/v1", true),
            row(Kind::ReplicaSet, "ReplicaSet", "apps/v1", true),
        ];

        impl Kind {
            /// The same kind in the table of those that controllers watch.
            pub(crate) fn watched(self) -> Option<kai_control::Kind> {
                match self {
                    $(Self::$watched => Some(kai_control::Kind::$watched),)*
                    _ => None,
                }
            }
        }

        impl From<kai_control::Kind> for Kind {
            fn from(kind: kai_control::Kind) -> Self {
                match kind {
                    $(kai_control::Kind::$watched => Self::$watched,)*
                }
            }
        }
    };
}

for_each_kind!(kinds);

/// The order in which objects of one moment are applied: what others refer to comes first, so the order of documents in a
/// file does not matter. Kinds that are not listed come before these.
const ORDER: [Kind; 35] = [
    Kind::Namespace,
    Kind::Node,
    Kind::NodeResourceTopology,
    Kind::DeviceClass,
    Kind::ResourceSlice,
    Kind::StorageClass,
    Kind::CsiDriver,
    Kind::CsiNode,
    Kind::CsiStorageCapacity,
    Kind::PersistentVolume,
    Kind::PersistentVolumeClaim,
    Kind::ConfigMap,
    Kind::PriorityClass,
    Kind::Topology,
    Kind::Queue,
    Kind::ResourceClaimTemplate,
    Kind::ResourceClaim,
    Kind::PodGroup,
    Kind::Declared,
    Kind::RayJob,
    Kind::RayService,
    Kind::RayCluster,
    Kind::PyTorchJob,
    Kind::TFJob,
    Kind::XGBoostJob,
    Kind::JAXJob,
    Kind::MPIJob,
    Kind::JobSet,
    Kind::LeaderWorkerSet,
    Kind::StatefulSet,
    Kind::Job,
    Kind::Deployment,
    Kind::ReplicaSet,
    Kind::Pod,
    Kind::BindRequest,
];

/// Positions in [`ORDER`], from 1 on, by kind.
const RANKS: [usize; KINDS.len()] = {
    let mut ranks = [0; KINDS.len()];
    let mut at = 0;
    while at < ORDER.len() {
        ranks[ORDER[at] as usize] = at + 1;
        at += 1;
    }
    ranks
};

impl Ord for Kind {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |kind: Self| (RANKS[kind as usize], kind as usize);
        rank(*self).cmp(&rank(*other))
    }
}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Kinds that manifests may have; bind requests are written by controllers only.
pub(crate) fn understood() -> impl Iterator<Item = &'static Row> {
    let unlisted = KINDS.iter().filter(|row| RANKS[row.kind as usize] == 0);
    let listed = ORDER.iter().map(|kind| &KINDS[*kind as usize]);
    unlisted.chain(listed).filter(|row| row.kind != Kind::BindRequest)
}

/// Rows of kinds that have one name.
fn named() -> impl Iterator<Item = &'static Row> {
    KINDS.iter().filter(|row| row.kind != Kind::Declared)
}

impl Kind {
    fn row(self) -> &'static Row {
        &KINDS[self as usize]
    }

    /// As written in manifests.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// As written in manifests.
    pub fn api_version(self) -> &'static str {
        self.row().api_version
    }

    /// Whether objects of it live in a namespace.
    pub fn namespaced(self) -> bool {
        self.row().namespaced
    }

    /// Whether a controller or an operator makes pods, or others who do, for objects of it.
    pub fn makes_pods(self) -> bool {
        (Self::Declared..=Self::ReplicaSet).contains(&self)
    }

    /// Whether objects of it have one number of replicas, or of pods at a time, that a step may change.
    pub(crate) fn scales(self) -> bool {
        use Kind::{Deployment, Job, LeaderWorkerSet, ReplicaSet, StatefulSet};
        matches!(self, Deployment | ReplicaSet | StatefulSet | LeaderWorkerSet | Job)
    }

    /// Whether pods made for objects of it have no end of their own.
    pub(crate) fn runs_for_ever(self) -> bool {
        use Kind::{Deployment, LeaderWorkerSet, RayCluster, RayService, ReplicaSet, StatefulSet};
        matches!(self, Deployment | ReplicaSet | StatefulSet | LeaderWorkerSet | RayCluster | RayService)
    }

    /// The kind of that name, in any case and singular or plural, as `kubectl` takes it.
    pub fn parse(word: &str) -> Option<Self> {
        let word = word.to_lowercase();
        named()
            .find(|row| {
                let name = row.name.to_lowercase();
                word == name || word.strip_prefix(&name).is_some_and(|rest| rest == "s" || rest == "es")
            })
            .map(|row| row.kind)
    }

    /// All names, for error messages.
    pub fn names() -> impl Iterator<Item = &'static str> {
        understood().map(|row| row.name).filter(|name| !name.is_empty())
    }
}

/// Identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for kinds that have none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Id {
    /// Identity of an object of a namespaced kind.
    pub fn namespaced(kind: Kind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }

    /// Identity of an object of a cluster-wide kind.
    pub fn cluster(kind: Kind, name: impl Into<String>) -> Self {
        Self { kind, namespace: String::new(), name: name.into() }
    }

    /// Identity of the object that a reference names, of a declared kind if the simulator has no other of that name.
    pub(crate) fn referred(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        let group = api_version.split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
        Kind::parse(kind).map_or_else(
            || Self::namespaced(Kind::Declared, namespace, format!("{kind}{group}/{name}")),
            |known| Self::namespaced(known, namespace, name),
        )
    }

    /// `namespace/name`, or the name alone.
    pub fn path(&self) -> String {
        // The name of a declared kind is part of the name, since any number of them share one kind here.
        let (_, name) = self.name.split_once('/').unwrap_or(("", &self.name));
        if self.namespace.is_empty() { name.to_owned() } else { format!("{}/{name}", self.namespace) }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.name.split_once('/')) {
            (Kind::Declared, Some((kind, name))) => write!(out, "{kind} {}/{name}", self.namespace),
            _ => write!(out, "{} {}", self.kind.name(), self.path()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_kinds() {
        for (index, row) in KINDS.iter().enumerate() {
            assert_eq!(row.kind as usize, index);
        }
    }

    #[test]
    fn every_kind_that_controllers_watch_can_be_simulated() {
        for &kind in kai_control::Kind::ALL {
            let row = kind.row();
            let simulated = Kind::from(kind);
            assert_eq!(simulated.watched(), Some(kind));
            assert_eq!((simulated.name(), simulated.api_version()), (row.name, row.api_version));
            assert!(understood().any(|row| row.kind == simulated) || kind == kai_control::Kind::BindRequest);
        }
    }

    #[test]
    fn kinds_are_found_as_people_type_them() {
        assert_eq!(Kind::parse("pod"), Some(Kind::Pod));
        assert_eq!(Kind::parse("Jobs"), Some(Kind::Job));
        assert_eq!(Kind::parse("priorityclasses"), Some(Kind::PriorityClass));
        assert_eq!(Kind::parse("service"), None);
    }
}
