//! Storage: claims, volumes, classes, and what CSI drivers say of nodes and free space.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Malformed;
use super::affinity::NodeTerm;
use super::field_reader::FieldReader;
use super::pod::Owner;
use super::resources::read_quantity;
use super::selector::LabelSelector;
use crate::key::Key;

/// What matters of a `PersistentVolumeClaim`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistentVolumeClaim {
    pub key: Key,
    pub uid: String,
    /// Empty if it names none: the default class is filled in on the way into the cluster.
    pub class: String,
    /// The volume that it asks for, or has.
    pub volume: Option<String>,
    /// It has its volume.
    pub bound: bool,
    /// Its volume is gone for good.
    pub lost: bool,
    pub deleting: bool,
    /// `None` is any amount.
    pub bytes: Option<i64>,
    pub access_modes: BTreeSet<String>,
    pub mode: VolumeMode,
    pub selector: Option<LabelSelector>,
    /// The node for which a volume is being made.
    pub selected_node: Option<String>,
    /// Who it was made for.
    pub controller: Option<String>,
}

/// What matters of a `PersistentVolume`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistentVolume {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Empty is none.
    pub class: String,
    pub bytes: i64,
    pub access_modes: BTreeSet<String>,
    pub mode: VolumeMode,
    /// Nodes that can reach it: one of the terms must hold. `None` is every node.
    pub nodes: Option<Vec<NodeTerm>>,
    /// The claim that has it, or for which it is kept, and the uid of that claim if it is a certain one.
    pub claim: Option<(Key, Option<String>)>,
    /// No claim has it, and none had it before.
    pub available: bool,
    pub deleting: bool,
    /// Its driver, and what the driver calls it.
    pub csi: Option<(String, String)>,
}

/// How a volume shows up in a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum VolumeMode {
    #[default]
    Filesystem,
    Block,
}

/// What matters of a `StorageClass`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageClass {
    pub name: String,
    pub provisioner: String,
    /// Volumes are bound or made when a pod has a node, not before.
    pub wait_for_first_consumer: bool,
    /// Where volumes can be made: one of the terms must hold, all labels of it. Empty is everywhere.
    pub topologies: Vec<Vec<(String, Vec<String>)>>,
    pub is_default: bool,
}

/// What matters of a `CSINode`: how many volumes of each driver a node takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiNode {
    pub name: String,
    pub limits: BTreeMap<String, u32>,
}

/// What matters of a `CSIDriver`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiDriver {
    pub name: String,
    /// It says how much space is free, and where.
    pub reports_capacity: bool,
}

/// What matters of a `CSIStorageCapacity`: free space for one class on some nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiStorageCapacity {
    pub key: Key,
    pub class: String,
    /// `None` is no node.
    pub nodes: Option<LabelSelector>,
    /// Free space.
    pub bytes: Option<i64>,
    /// The largest volume that can be made; all of the capacity by default.
    pub largest: Option<i64>,
}

/// What matters of a `ConfigMap`: that it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMap {
    pub key: Key,
}

/// Provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// How classes were named before there was a field for them.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

fn key(root: &FieldReader<'_>) -> Result<Key, Malformed> {
    Ok(Key::new(root.object_namespace()?, root.object_name()?))
}

fn bytes(place: &FieldReader<'_>) -> Result<Option<i64>, Malformed> {
    if place.exists() { Ok(Some(read_quantity(place)?.units())) } else { Ok(None) }
}

fn access_modes(spec: &FieldReader<'_>) -> Result<BTreeSet<String>, Malformed> {
    Ok(spec.field("accessModes").text_list()?.into_iter().collect())
}

fn class(root: &FieldReader<'_>) -> Result<String, Malformed> {
    match root.field("metadata").field("annotations").field(OLD_CLASS).text()? {
        Some(old) => Ok(old.to_owned()),
        None => root.field("spec").field("storageClassName").text_or_empty(),
    }
}

impl VolumeMode {
    fn read(spec: &FieldReader<'_>) -> Result<Self, Malformed> {
        let place = spec.field("volumeMode");
        match place.text()? {
            None | Some("Filesystem" | "") => Ok(Self::Filesystem),
            Some("Block") => Ok(Self::Block),
            Some(other) => Err(place.invalid(format!("`{other}` is not a volume mode"), "use Filesystem or Block")),
        }
    }
}

impl PersistentVolumeClaim {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let (metadata, spec) = (root.field("metadata"), root.field("spec"));
        let annotations = metadata.field("annotations");
        let owners = metadata.field("ownerReferences").items()?;
        let owners: Vec<Owner> = owners.iter().map(Owner::read).collect::<Result<_, _>>()?;
        let volume = spec.field("volumeName").non_empty_text()?;
        Ok(Self {
            key: key(&root)?,
            uid: metadata.field("uid").text_or_empty()?,
            class: class(&root)?,
            bound: volume.is_some() && annotations.field(BIND_COMPLETED).exists(),
            volume,
            lost: root.field("status").field("phase").text()? == Some("Lost"),
            deleting: metadata.field("deletionTimestamp").exists(),
            bytes: bytes(&spec.field("resources").field("requests").field("storage"))?,
            access_modes: access_modes(&spec)?,
            mode: VolumeMode::read(&spec)?,
            selector: LabelSelector::read(&spec.field("selector"))?,
            selected_node: annotations.field(SELECTED_NODE).non_empty_text()?,
            controller: owners.into_iter().find(|owner| owner.controller).map(|owner| owner.uid),
        })
    }

    /// Whether only one pod may use it at a time.
    pub fn is_for_one_pod(&self) -> bool {
        self.access_modes.contains("ReadWriteOncePod")
    }
}

impl PersistentVolume {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let (metadata, spec) = (root.field("metadata"), root.field("spec"));
        let (claim, csi) = (spec.field("claimRef"), spec.field("csi"));
        let phase = root.field("status").field("phase").non_empty_text()?;
        let claim = match claim.field("name").non_empty_text()? {
            Some(name) => Some((
                Key::new(claim.field("namespace").non_empty_text()?.unwrap_or_default(), name),
                claim.field("uid").non_empty_text()?,
            )),
            None => None,
        };
        let name = root.object_name()?;
        let csi = match csi.field("driver").non_empty_text()? {
            Some(driver) => Some((driver, csi.field("volumeHandle").non_empty_text()?.unwrap_or_else(|| name.clone()))),
            None => None,
        };
        Ok(Self {
            name,
            labels: metadata.field("labels").string_map()?,
            class: class(&root)?,
            bytes: bytes(&spec.field("capacity").field("storage"))?.unwrap_or(0),
            access_modes: access_modes(&spec)?,
            mode: VolumeMode::read(&spec)?,
            nodes: NodeTerm::read_selector(&spec.field("nodeAffinity").field("required"))?,
            claim,
            available: phase.is_none_or(|phase| phase == "Available"),
            deleting: metadata.field("deletionTimestamp").exists(),
            csi,
        })
    }

    /// Whether the node reaches it.
    pub fn reaches(&self, node: &str, labels: &BTreeMap<String, String>) -> bool {
        self.nodes.as_ref().is_none_or(|terms| terms.iter().any(|term| term.holds(node, labels)))
    }

    /// Whether it is kept for the claim.
    pub fn is_prebound_to(&self, claim: &PersistentVolumeClaim) -> bool {
        let matches =
            |(key, uid): &(Key, Option<String>)| *key == claim.key && uid.as_ref().is_none_or(|uid| *uid == claim.uid);
        self.claim.as_ref().is_some_and(matches)
    }

    /// Whether it may be bound to the claim: free, of the right kind and large enough.
    pub fn can_bind_to(&self, claim: &PersistentVolumeClaim) -> bool {
        let like = !self.deleting
            && self.bytes >= claim.bytes.unwrap_or(0)
            && self.mode == claim.mode
            && claim.access_modes.is_subset(&self.access_modes);
        let free = || {
            self.available
                && self.claim.is_none()
                && self.class == claim.class
                && claim.selector.as_ref().is_none_or(|selector| selector.selects(&self.labels))
        };
        like && (self.is_prebound_to(claim) || free())
    }
}

/// The volume that the claim asks for, else one that is kept for it, else the smallest that will do; from this node, if
/// one is given.
pub fn best_volume<'v>(
    claim: &PersistentVolumeClaim,
    node: Option<(&str, &BTreeMap<String, String>)>,
    volumes: impl Iterator<Item = &'v PersistentVolume>,
) -> Option<&'v PersistentVolume> {
    let asked = |volume: &&PersistentVolume| match &claim.volume {
        Some(name) => volume.name == *name && (volume.claim.is_none() || volume.is_prebound_to(claim)),
        None => volume.can_bind_to(claim),
    };
    let reached = |volume: &&PersistentVolume| node.is_none_or(|(node, labels)| volume.reaches(node, labels));
    let (kept, free): (Vec<&PersistentVolume>, Vec<&PersistentVolume>) =
        volumes.filter(asked).partition(|volume| volume.claim.is_some());
    let candidates = if kept.is_empty() { free } else { kept };
    candidates.into_iter().filter(reached).min_by_key(|volume| (volume.bytes, &volume.name))
}

impl StorageClass {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let mode = root.field("volumeBindingMode");
        let term = |place: &FieldReader<'_>| -> Result<Vec<(String, Vec<String>)>, Malformed> {
            let labels = place.field("matchLabelExpressions").items()?;
            let label =
                |item: &FieldReader<'_>| Ok((item.field("key").text_or_empty()?, item.field("values").text_list()?));
            labels.iter().map(label).collect()
        };
        Ok(Self {
            name: root.object_name()?,
            provisioner: root.field("provisioner").text_or_empty()?,
            wait_for_first_consumer: match mode.text()? {
                None | Some("Immediate" | "") => false,
                Some("WaitForFirstConsumer") => true,
                Some(other) => {
                    let problem = format!("`{other}` is not a binding mode");
                    return Err(mode.invalid(problem, "use Immediate or WaitForFirstConsumer"));
                }
            },
            topologies: root.field("allowedTopologies").items()?.iter().map(term).collect::<Result<_, _>>()?,
            is_default: root.field("metadata").field("annotations").field(DEFAULT_CLASS).text()? == Some("true"),
        })
    }

    /// Whether volumes are made on demand.
    pub fn provisions(&self) -> bool {
        !self.provisioner.is_empty() && self.provisioner != NO_PROVISIONER
    }

    /// Whether volumes are made on demand where a node with these labels reaches them.
    pub fn can_provision_on(&self, labels: &BTreeMap<String, String>) -> bool {
        self.provisions() && (self.topologies.is_empty() || self.topology_at(labels).is_some())
    }

    /// The first of its topologies that holds for these labels.
    pub fn topology_at(&self, labels: &BTreeMap<String, String>) -> Option<&[(String, Vec<String>)]> {
        let here = |term: &&Vec<(String, Vec<String>)>| {
            term.iter().all(|(key, values)| labels.get(key).is_some_and(|value| values.contains(value)))
        };
        self.topologies.iter().find(here).map(Vec::as_slice)
    }
}

impl CsiNode {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let mut limits = BTreeMap::new();
        for driver in root.field("spec").field("drivers").items()? {
            if let Some(count) = driver.field("allocatable").field("count").count()? {
                limits.insert(driver.field("name").text_or_empty()?, count);
            }
        }
        Ok(Self { name: root.object_name()?, limits })
    }
}

impl CsiDriver {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let reports_capacity = root.field("spec").field("storageCapacity").flag()?.unwrap_or(false);
        Ok(Self { name: root.object_name()?, reports_capacity })
    }
}

impl CsiStorageCapacity {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let free = bytes(&root.field("capacity"))?;
        Ok(Self {
            key: key(&root)?,
            class: root.field("storageClassName").text_or_empty()?,
            nodes: LabelSelector::read(&root.field("nodeTopology"))?,
            bytes: free,
            largest: bytes(&root.field("maximumVolumeSize"))?.or(free),
        })
    }

    /// Whether it is about this class on nodes with these labels.
    pub fn concerns(&self, class: &str, labels: &BTreeMap<String, String>) -> bool {
        self.class == class && self.nodes.as_ref().is_some_and(|nodes| nodes.selects(labels))
    }
}

impl ConfigMap {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        Ok(Self { key: key(&FieldReader::root(value))? })
    }
}

#[cfg(test)]
impl PersistentVolumeClaim {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        let selector = json!({"matchLabels": {"a": "b"}});
        json!({"metadata": {"name": "c", "annotations": {
            "volume.kubernetes.io/selected-node": "n", "pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"storageClassName": "s", "volumeName": "v", "accessModes": ["ReadWriteOnce"], "selector": selector,
            "volumeMode": "Block", "resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Bound"}})
    }
}

#[cfg(test)]
impl PersistentVolume {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        json!({"metadata": {"name": "v", "labels": {"a": "b"}},
        "spec": {"storageClassName": "s", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "n", "name": "c", "uid": "u"}, "csi": {"driver": "d", "volumeHandle": "h"},
            "volumeMode": "Filesystem", "nodeAffinity": {"required": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}},
        "status": {"phase": "Available"}})
    }
}

#[cfg(test)]
impl StorageClass {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        json!({"metadata": {"name": "s", "annotations": {
            "storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "d",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": ["b"]}]}]})
    }
}

#[cfg(test)]
impl CsiNode {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        json!({"metadata": {"name": "n"}, "spec": {"drivers": [
        {"name": "d", "allocatable": {"count": 3}}]}})
    }
}

#[cfg(test)]
impl CsiDriver {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        json!({"metadata": {"name": "d"}, "spec": {"storageCapacity": true}})
    }
}

#[cfg(test)]
impl CsiStorageCapacity {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        let selector = json!({"matchLabels": {"a": "b"}});
        json!({"metadata": {"name": "c"}, "storageClassName": "s",
        "capacity": "1Gi", "maximumVolumeSize": "1Gi", "nodeTopology": selector})
    }
}

#[cfg(test)]
impl ConfigMap {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        json!({"metadata": {"name": "c"}})
    }
}
