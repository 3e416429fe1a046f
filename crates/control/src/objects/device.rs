//! Devices and claims of dynamic resource allocation (`resource.k8s.io`): what of them matters for placing pods.
//!
//! Read in the form of v1 and v1beta2; the older form of v1beta1 differs in two places and is understood as well.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Malformed;
use super::affinity::NodeTerm;
use super::field_reader::FieldReader;
use crate::key::Key;
use crate::quantity::Quantity;

/// What matters of a `DeviceClass`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceClass {
    pub name: String,
    /// CEL expressions that all must hold.
    pub selectors: Vec<String>,
    /// The extended resource that its devices can stand for.
    pub extended_resource: Option<String>,
    /// Passed on to drivers as it is.
    pub config: Vec<Value>,
}

/// What matters of a `ResourceSlice`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceSlice {
    pub name: String,
    pub driver: String,
    pub pool: String,
    pub generation: i64,
    /// Slices that the pool has in this generation.
    pub slices: i64,
    pub nodes: SliceNodes,
    pub devices: Vec<Device>,
}

/// From where the devices of a slice can be used.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SliceNodes {
    Node(String),
    All,
    /// One of the terms must hold; the selector is passed on as it is.
    Selected(Vec<NodeTerm>, Value),
    /// Every device says for itself, which is not supported.
    #[default]
    PerDevice,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    pub name: String,
    pub attributes: BTreeMap<String, Attribute>,
    pub capacity: BTreeMap<String, Quantity>,
    /// Devices that share counters with others are not used.
    pub usable: bool,
}

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attribute {
    Int(i64),
    Bool(bool),
    Text(String),
    Version(String),
}

/// What matters of a `ResourceClaim`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceClaim {
    pub key: Key,
    pub labels: BTreeMap<String, String>,
    /// The pod that it was made for, by name.
    pub owner: Option<String>,
    /// Made by the binder for extended resources, whose amounts are in the pod's request already.
    pub extended: bool,
    pub spec: ClaimSpec,
    pub allocation: Option<ClaimAllocation>,
    /// Names and uids of the pods that may use it.
    pub reserved_for: Vec<(String, String)>,
}

/// What matters of a `ResourceClaimTemplate`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceClaimTemplate {
    pub key: Key,
    pub spec: ClaimSpec,
}

/// What a claim asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimSpec {
    pub requests: Vec<DeviceRequest>,
    pub constraints: Vec<DeviceConstraint>,
    /// Passed on to drivers as it is.
    pub config: Vec<Value>,
}

/// One request of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceRequest {
    pub name: String,
    /// The first that can be met counts. Only where a list of alternatives was written do they have names.
    pub alternatives: Vec<DeviceAlternative>,
}

/// One way to meet a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceAlternative {
    pub name: Option<String>,
    pub class: String,
    pub selectors: Vec<String>,
    /// How many devices; `None` is all that match.
    pub count: Option<u32>,
    pub admin: bool,
}

/// Devices of some requests must agree in an attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceConstraint {
    /// Requests concerned, `request` or `request/alternative`; empty is all.
    pub requests: Vec<String>,
    /// Fully qualified name; `None` for a kind of constraint that is not known.
    pub attribute: Option<String>,
}

/// Devices that a claim was given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimAllocation {
    pub results: Vec<AllocatedDevice>,
    /// Nodes from which they can be used: one of the terms must hold; `None` is everywhere.
    pub nodes: Option<Vec<NodeTerm>>,
    /// All of it.
    pub raw: Value,
}

/// One device that a claim was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocatedDevice {
    /// `request` or `request/alternative`.
    pub request: String,
    pub driver: String,
    pub pool: String,
    pub device: String,
    pub admin: bool,
}

/// Annotation of a claim that the binder makes for extended resources.
const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";

impl DeviceClass {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let spec = root.field("spec");
        Ok(Self {
            name: root.object_name()?,
            selectors: selectors(&spec)?,
            extended_resource: spec.field("extendedResourceName").non_empty_text()?,
            config: raw_items(&spec.field("config"))?,
        })
    }
}

impl ResourceSlice {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let spec = root.field("spec");
        let pool = spec.field("pool");
        let selector = spec.field("nodeSelector");
        let nodes = match (spec.field("nodeName").non_empty_text()?, NodeTerm::read_selector(&selector)?) {
            (Some(node), _) => SliceNodes::Node(node),
            (None, Some(terms)) => SliceNodes::Selected(terms, selector.value().cloned().unwrap_or_default()),
            (None, None) if spec.field("allNodes").flag()? == Some(true) => SliceNodes::All,
            (None, None) => SliceNodes::PerDevice,
        };
        Ok(Self {
            name: root.object_name()?,
            driver: spec.field("driver").text_or_empty()?,
            pool: pool.field("name").text_or_empty()?,
            generation: pool.field("generation").integer()?.unwrap_or(0),
            slices: pool.field("resourceSliceCount").integer()?.unwrap_or(1),
            nodes,
            devices: spec.field("devices").items()?.iter().map(Device::read).collect::<Result<_, _>>()?,
        })
    }
}

impl Device {
    fn read(place: &FieldReader<'_>) -> Result<Self, Malformed> {
        // v1beta1 has one more level.
        let basic = place.field("basic");
        let content = if basic.exists() { &basic } else { place };
        let mut attributes = BTreeMap::new();
        for (name, value) in content.field("attributes").entries()? {
            attributes.insert(name.to_owned(), Attribute::read(&value)?);
        }
        let mut capacity = BTreeMap::new();
        for (name, value) in content.field("capacity").entries()? {
            let amount = value.field("value");
            let amount = if amount.exists() { amount } else { value };
            let text = amount.scalar_text()?.unwrap_or_default();
            let quantity = Quantity::parse(&text).map_err(|_| {
                amount.invalid(format!("`{text}` is not a quantity"), "write an amount such as 2 or 80Gi")
            })?;
            capacity.insert(name.to_owned(), quantity);
        }
        let usable = content.field("consumesCounters").items()?.is_empty();
        Ok(Self { name: place.field("name").text_or_empty()?, attributes, capacity, usable })
    }
}

impl Attribute {
    fn read(place: &FieldReader<'_>) -> Result<Self, Malformed> {
        if let Some(number) = place.field("int").integer()? {
            return Ok(Self::Int(number));
        }
        if let Some(flag) = place.field("bool").flag()? {
            return Ok(Self::Bool(flag));
        }
        if let Some(text) = place.field("string").text()? {
            return Ok(Self::Text(text.to_owned()));
        }
        match place.field("version").text()? {
            Some(text) => Ok(Self::Version(text.to_owned())),
            None => Err(place.invalid("the attribute has no value", "give it one of int, bool, string and version")),
        }
    }
}

impl ResourceClaim {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let (metadata, status) = (root.field("metadata"), root.field("status"));
        let mut owner = None;
        for place in metadata.field("ownerReferences").items()? {
            if place.field("kind").text()? == Some("Pod") {
                owner = place.field("name").non_empty_text()?;
            }
        }
        let mut reserved_for = Vec::new();
        for place in status.field("reservedFor").items()? {
            reserved_for.push((place.field("name").text_or_empty()?, place.field("uid").text_or_empty()?));
        }
        Ok(Self {
            key: Key::new(root.object_namespace()?, root.object_name()?),
            labels: metadata.field("labels").string_map()?,
            owner,
            extended: metadata.field("annotations").field(EXTENDED).text()? == Some("true"),
            spec: ClaimSpec::read(&root.field("spec"))?,
            allocation: ClaimAllocation::read(&status.field("allocation"))?,
            reserved_for,
        })
    }
}

impl ResourceClaimTemplate {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let key = Key::new(root.object_namespace()?, root.object_name()?);
        Ok(Self { key, spec: ClaimSpec::read(&root.field("spec").field("spec"))? })
    }
}

impl ClaimSpec {
    fn read(place: &FieldReader<'_>) -> Result<Self, Malformed> {
        let devices = place.field("devices");
        let requests = devices.field("requests").items()?.iter().map(DeviceRequest::read).collect::<Result<_, _>>()?;
        let constraint = |place: &FieldReader<'_>| {
            Ok(DeviceConstraint {
                requests: place.field("requests").text_list()?,
                attribute: place.field("matchAttribute").non_empty_text()?,
            })
        };
        let constraints = devices.field("constraints").items()?.iter().map(constraint).collect::<Result<_, _>>()?;
        Ok(Self { requests, constraints, config: raw_items(&devices.field("config"))? })
    }

    /// GPUs that it counts for a queue, by the names of device classes: at least and at most, if it has alternatives.
    pub fn gpus(&self) -> (u32, u32) {
        let mut sums = (0_u32, 0_u32);
        for request in &self.requests {
            let counts = || request.alternatives.iter().map(DeviceAlternative::gpus);
            sums.0 = sums.0.saturating_add(counts().min().unwrap_or(0));
            sums.1 = sums.1.saturating_add(counts().max().unwrap_or(0));
        }
        (sums.0.min(CLAIMED_MAX), sums.1.min(CLAIMED_MAX))
    }
}

impl DeviceRequest {
    /// What is asked for, unless it is one of several alternatives.
    pub(crate) fn exactly(&self) -> Option<&DeviceAlternative> {
        self.alternatives.first().filter(|alternative| alternative.name.is_none())
    }

    fn read(place: &FieldReader<'_>) -> Result<Self, Malformed> {
        let name = place.field("name").text_or_empty()?;
        let (exactly, first) = (place.field("exactly"), place.field("firstAvailable"));
        let alternatives = if first.exists() {
            let mut alternatives = Vec::new();
            for item in first.items()? {
                let name = item.field("name").text_or_empty()?;
                alternatives.push(DeviceAlternative { name: Some(name), ..DeviceAlternative::read(&item)? });
            }
            alternatives
        } else {
            // v1beta1 has one level less.
            vec![DeviceAlternative::read(if exactly.exists() { &exactly } else { place })?]
        };
        Ok(Self { name, alternatives })
    }
}

/// However many requests a claim has.
const CLAIMED_MAX: u32 = 1_000_000;

/// No node has more devices of a kind.
const DEVICES_MAX: u32 = 4096;

impl DeviceAlternative {
    fn read(place: &FieldReader<'_>) -> Result<Self, Malformed> {
        let mode = place.field("allocationMode");
        let count = match mode.text()? {
            None | Some("" | "ExactCount") => {
                let count = place.field("count");
                let devices = count.count()?.filter(|count| *count > 0).unwrap_or(1);
                if devices > DEVICES_MAX {
                    return Err(count.invalid(format!("{devices} devices are more than any node has"), "ask for fewer"));
                }
                Some(devices)
            }
            Some("All") => None,
            Some(other) => {
                return Err(mode.invalid(format!("`{other}` is not an allocation mode"), "use ExactCount or All"));
            }
        };
        Ok(Self {
            name: None,
            class: place.field("deviceClassName").text_or_empty()?,
            selectors: selectors(place)?,
            count,
            admin: place.field("adminAccess").flag()?.unwrap_or(false),
        })
    }

    /// GPUs that it counts for a queue.
    pub(crate) fn gpus(&self) -> u32 {
        if names_gpus(&self.class) { self.count.unwrap_or(1) } else { 0 }
    }
}

impl ClaimAllocation {
    /// Reads an `AllocationResult`.
    pub(crate) fn parse(value: &Value) -> Result<Self, Malformed> {
        Ok(Self::read(&FieldReader::root(value))?.unwrap_or_default())
    }

    /// Reads an `AllocationResult`; `None` if there is none.
    pub(crate) fn read(place: &FieldReader<'_>) -> Result<Option<Self>, Malformed> {
        let Some(raw) = place.value() else { return Ok(None) };
        let result = |place: &FieldReader<'_>| {
            Ok(AllocatedDevice {
                request: place.field("request").text_or_empty()?,
                driver: place.field("driver").text_or_empty()?,
                pool: place.field("pool").text_or_empty()?,
                device: place.field("device").text_or_empty()?,
                admin: place.field("adminAccess").flag()?.unwrap_or(false),
            })
        };
        let results = place.field("devices").field("results").items()?.iter().map(result).collect::<Result<_, _>>()?;
        let nodes = NodeTerm::read_selector(&place.field("nodeSelector"))?;
        Ok(Some(Self { results, nodes, raw: raw.clone() }))
    }
}

/// Whether the name of a driver or class is one of GPUs.
pub(crate) fn names_gpus(name: &str) -> bool {
    name.to_ascii_lowercase().contains("gpu")
}

fn selectors(place: &FieldReader<'_>) -> Result<Vec<String>, Malformed> {
    let expression = |item: &FieldReader<'_>| {
        let place = item.field("cel").field("expression");
        place.text()?.map(str::to_owned).ok_or_else(|| {
            item.invalid("the selector has no CEL expression", "write `cel: {expression: ...}`, the only kind there is")
        })
    };
    place.field("selectors").items()?.iter().map(expression).collect()
}

fn raw_items(place: &FieldReader<'_>) -> Result<Vec<Value>, Malformed> {
    Ok(place.items()?.iter().filter_map(|item| item.value().cloned()).collect())
}

#[cfg(test)]
impl DeviceClass {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        json!({"metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": "true"}}],
            "extendedResourceName": "example.com/gpu", "config": [{"opaque": {"driver": "d"}}]}})
    }
}

#[cfg(test)]
impl ResourceSlice {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        json!({"metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n", "allNodes": false,
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]},
            "devices": [{"name": "x", "consumesCounters": [{"counterSet": "s"}], "capacity": {"memory": {"value": "80Gi"}},
                    "attributes": {"index": {"int": 1}, "healthy": {"bool": true}, "model": {"string": "m"},
                        "driver": {"version": "1.0.0"}}},
                {"name": "y", "basic": {"capacity": {"memory": "80Gi"}}}]}})
    }
}

#[cfg(test)]
impl ResourceClaim {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        json!({"metadata": {"name": "c", "labels": {"a": "b"},
                "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
                "ownerReferences": [{"kind": "Pod", "name": "p"}]},
            "spec": {"devices": {
            "requests": [{"name": "a", "exactly": {"deviceClassName": "gpu.example.com", "count": 2, "adminAccess": true,
                    "allocationMode": "ExactCount", "selectors": [{"cel": {"expression": "true"}}]}},
                {"name": "b", "firstAvailable": [{"name": "c", "deviceClassName": "d", "allocationMode": "All"}]}],
            "constraints": [{"requests": ["a"], "matchAttribute": "example.com/model"}],
            "config": [{"requests": ["a"], "opaque": {"driver": "d"}}]}},
            "status": {"reservedFor": [{"name": "p", "uid": "u"}], "allocation": {
                "devices": {"results": [
                    {"request": "a", "driver": "d", "pool": "p", "device": "x", "adminAccess": false}]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["b"]}]}]}}}})
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_are_read_in_both_forms() {
        let exactly = json!({"deviceClassName": "gpu.example.com", "count": 2,
            "selectors": [{"cel": {"expression": "true"}}]});
        let mut old = exactly.clone();
        old["name"] = json!("a");
        let read = |request: &Value| {
            let value = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}});
            ResourceClaim::parse(&value).unwrap().spec
        };
        let new = read(&json!({"name": "a", "exactly": exactly}));
        assert_eq!(new, read(&old));
        assert_eq!(new.gpus(), (2, 2));
        let first = json!({"name": "a", "firstAvailable": [
            {"name": "big", "deviceClassName": "gpu.example.com", "count": 4},
            {"name": "none", "deviceClassName": "nic.example.com", "allocationMode": "All"}]});
        assert_eq!(read(&first).gpus(), (0, 4));
    }

    #[test]
    fn slices_name_the_nodes_that_can_use_them() {
        let slice = |spec: Value| ResourceSlice::parse(&json!({"metadata": {"name": "s"}, "spec": spec}));
        assert_eq!(slice(json!({"nodeName": "a"})).unwrap().nodes, SliceNodes::Node("a".to_owned()));
        assert_eq!(slice(json!({"allNodes": true})).unwrap().nodes, SliceNodes::All);
        assert_eq!(slice(json!({})).unwrap().nodes, SliceNodes::PerDevice);
        let device = json!([{"name": "d", "basic": {"attributes": {"model": {}}}}]);
        let wrong = slice(json!({ "devices": device })).unwrap_err();
        assert_eq!(wrong.to_string(), "spec.devices[0].basic.attributes.model: the attribute has no value");
    }
}
