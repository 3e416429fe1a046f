//! A pod: what it asks for, where it may run, where it stands.

use std::collections::BTreeMap;
use std::net::IpAddr;

use kai_api::keys::{annotation, label, reason};
use kai_engine::builder::{HostPort, Protocol};
use kai_engine::units::Timestamp;
use serde_json::{Value, json};

use super::affinity::NodeTerm;
use super::field_reader::{FieldReader, canonical};
use super::inter_pod_rules::InterPodRules;
use super::prerequisites::Prerequisites;
use super::request::Request;
use super::taint::Toleration;
use super::{Faults, GpuSharing, Malformed, Resources, held_share};
use crate::key::{GroupKey, PodKey};

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
    /// The message of `PodScheduled=False`, as stored.
    pub unschedulable_message: Option<String>,
    /// The binder could not bind it when it last tried.
    pub bind_failed: bool,
    pub priority_class: Option<String>,
    pub priority: Option<i32>,
    pub request: Request,
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: one of the terms must hold. `None` is no rule, an empty list holds nowhere.
    pub node_affinity: Option<Vec<NodeTerm>>,
    pub tolerations: Vec<Toleration>,
    pub host_ports: Vec<HostPort>,
    /// What it asks of other pods, if anything.
    pub inter_pod: Option<Box<InterPodRules>>,
    pub claims: Vec<PodClaim>,
    /// Volume claims and config maps that it needs, if any.
    pub prerequisites: Option<Box<Prerequisites>>,
    /// Names of containers in the order in which they start, if any of them asks for devices.
    pub containers: Vec<String>,
    /// Other rules that make two pods unlike each other (pod affinity, spread, volumes), in canonical text.
    pub signature_extra: String,
    /// Fields of a pod with a node that cannot be used.
    pub problems: Vec<Malformed>,
    /// Some of them say what it asks for: the request is the most that they can mean.
    pub request_unclear: bool,
}

/// A resource claim as a pod names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodClaim {
    pub name: String,
    /// The claim; `None` while it has not been made from its template.
    pub claim: Option<String>,
    pub from_template: bool,
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

/// Scheduler of a pod that names none.
const SCHEDULER_DEFAULT: &str = "default-scheduler";

impl Pod {
    /// A pod with a node counts even if fields of it cannot be used, which are in [`Pod::problems`] then.
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        Self::read(value, &mut Faults::Refuse).or_else(|malformed| {
            if value["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
                return Err(malformed);
            }
            let mut faults = Faults::collect();
            let mut pod = Self::read(value, &mut faults)?;
            pod.problems.splice(0..0, faults.into_found());
            Ok(pod)
        })
    }

    fn read(value: &Value, faults: &mut Faults) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let (metadata, spec, status) = (root.field("metadata"), root.field("spec"), root.field("status"));
        let key =
            PodKey::new(faults.value_or_else(root.object_namespace(), |_| namespace_of(value))?, root.object_name()?);
        let annotations = metadata.field("annotations").string_map_with(faults)?;
        let labels = metadata.field("labels").string_map_with(faults)?;
        let before = faults.count();
        // Those that are no text are left out, for all readers.
        let readable = matches!(faults, Faults::Collect { .. }).then(|| json!(annotations));
        let place = metadata.field("annotations");
        let place = readable.as_ref().map_or(place.clone(), |texts| place.with_value(texts));
        let request = Request::read_with(&spec, &place, faults)?;
        let request_unclear = faults.count() > before;
        let created_at_bind = annotations.get(annotation::SHARED_GPU_CONFIG_MAP).map(String::as_str);
        let prerequisites = faults.value_or(Prerequisites::read(&spec, &key.name, created_at_bind), None)?;
        let owners = metadata.field("ownerReferences").items();
        let owners = owners.and_then(|owners| owners.iter().map(Owner::read).collect());
        let scheduler = faults.value_or(spec.field("schedulerName").non_empty_text(), None)?;
        let names = if request.resources.devices().is_empty() { Ok(Vec::new()) } else { container_names(&spec) };
        let mut pod = Self {
            uid: faults.value_or(metadata.field("uid").non_empty_text(), None)?.unwrap_or_else(|| key.to_string()),
            key,
            created: faults.value_or(metadata.field("creationTimestamp").time(), None)?.unwrap_or(Timestamp(0)),
            inter_pod: faults.value_or(InterPodRules::read(&spec, &labels), None)?,
            labels,
            annotations: kept_annotations(annotations),
            owners: faults.value_or(owners, Vec::new())?,
            scheduler: scheduler.unwrap_or_else(|| SCHEDULER_DEFAULT.to_owned()),
            phase: match faults.value_or(status.field("phase").text(), None)? {
                None | Some("Pending" | "") => Phase::Pending,
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                Some(_) => Phase::Unknown,
            },
            deletion: faults.value_or(metadata.field("deletionTimestamp").time(), None)?,
            gated: !faults.value_or(spec.field("schedulingGates").items(), Vec::new())?.is_empty(),
            node: spec.field("nodeName").non_empty_text()?,
            nominated_node: faults.value_or(status.field("nominatedNodeName").non_empty_text(), None)?,
            unschedulable_message: faults.value_or(unschedulable_message(&status), None)?,
            bind_failed: faults.value_or(bind_failed(&status), false)?,
            priority_class: faults.value_or(spec.field("priorityClassName").non_empty_text(), None)?,
            priority: faults.value_or(spec.field("priority").int32(), None)?,
            containers: faults.value_or(names, Vec::new())?,
            request,
            node_selector: faults.value_or(spec.field("nodeSelector").string_map(), BTreeMap::new())?,
            node_affinity: faults.value_or(NodeTerm::read_required(&spec.field("affinity")), None)?,
            tolerations: faults.value_or(tolerations(&spec), Vec::new())?,
            host_ports: host_ports(&spec, faults)?,
            claims: claims(&spec, &status, faults)?,
            prerequisites,
            signature_extra: faults.value_or(signature_extra(&spec), String::new())?,
            problems: Vec::new(),
            request_unclear,
        };
        if pod.node.is_some() {
            pod.settle_share();
        }
        Ok(pod)
    }

    /// Replaces what it says of shared GPUs by what it holds.
    fn settle_share(&mut self) {
        let labelled: Vec<String> = self.gpu_groups().into_iter().map(str::to_owned).collect();
        let (sharing, mut groups) = held_share(&self.request, labelled, &self.annotations);
        self.request.sharing = sharing;
        if let Some(sharing) = sharing
            && groups.is_empty()
        {
            groups = unknown_gpu_groups(&self.uid, sharing.devices());
            self.problems.push(Malformed::new(
                format!("metadata.labels.{}", label::GPU_GROUP),
                "nothing says which GPU the pod shares, so that it counts as one of its own",
                "delete the pod, so that it is scheduled anew",
            ));
        }
        if self.gpu_groups() != groups {
            self.set_gpu_groups(&groups);
        }
    }

    /// What it held earlier it holds until it ends, whatever it says by now. Only containers can be resized while it runs.
    pub(crate) fn keep_held(&mut self, earlier: &Self) {
        if self.node.is_none() || earlier.uid != self.uid || earlier.request_unclear {
            return;
        }
        if self.request_unclear {
            self.request = earlier.request.clone();
            self.request_unclear = false;
        }
        if earlier.node == self.node {
            self.request.sharing = earlier.request.sharing;
            let groups: Vec<String> = earlier.gpu_groups().into_iter().map(str::to_owned).collect();
            if earlier.knows_gpu_groups() && self.gpu_groups() != groups {
                self.set_gpu_groups(&groups);
            }
        }
    }

    /// Cuts what could not be read to what its node has.
    pub(crate) fn lower_to(&mut self, node: &Resources) {
        self.request.lower_to(node);
        let devices = self.request.sharing.map_or(0, GpuSharing::devices);
        if !self.gpu_groups().is_empty() && !self.knows_gpu_groups() {
            self.set_gpu_groups(&unknown_gpu_groups(&self.uid, devices));
        }
    }

    /// Whether labels or the binder say which GPUs it shares.
    pub(crate) fn knows_gpu_groups(&self) -> bool {
        self.gpu_groups().iter().any(|group| !group.starts_with(UNKNOWN_GPU_GROUP))
    }

    /// The pod group it says it belongs to.
    pub fn group(&self) -> Option<GroupKey> {
        Some(GroupKey::new(self.key.namespace.clone(), self.group_name()?))
    }

    /// The name of that group, which is in the pod's namespace.
    pub fn group_name(&self) -> Option<&str> {
        self.annotations.get(annotation::POD_GROUP_NAME).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Makes it say that it belongs to the group.
    pub(crate) fn set_pod_group(&mut self, group: &GroupKey) {
        self.annotations.insert(annotation::POD_GROUP_NAME.to_owned(), group.name.clone());
    }

    /// The leaf of its pod group's tree that it says it belongs to.
    pub fn sub_group(&self) -> Option<&str> {
        self.labels.get(label::SUB_GROUP_NAME).map(String::as_str)
    }

    /// Shared GPUs that it holds, by name: one label for a single device, one label each for several.
    pub fn gpu_groups(&self) -> Vec<&str> {
        gpu_groups(self.labels.iter().map(|(key, group)| (key.as_str(), group.as_str())))
    }

    /// Writes down which shared GPUs it holds, the way [`Pod::gpu_groups`] reads it.
    pub fn set_gpu_groups(&mut self, groups: &[String]) {
        self.labels.retain(|key, _| !is_gpu_group_label(key));
        self.labels.extend(gpu_group_labels(groups, groups.len() > 1));
    }
}

/// Start of the names of shared GPUs of which nothing is known but that a pod holds a part of them.
const UNKNOWN_GPU_GROUP: &str = "unknown/";

/// As many as the pod holds parts of; no label value has a slash.
fn unknown_gpu_groups(uid: &str, devices: u32) -> Vec<String> {
    (0..devices).map(|number| format!("{UNKNOWN_GPU_GROUP}{uid}/{number:04}")).collect()
}

pub(crate) fn is_gpu_group_label(key: &str) -> bool {
    key == label::GPU_GROUP || key.starts_with(label::GPU_GROUP_PREFIX)
}

/// Labels that name these shared GPUs: one label for a pod of a single device, one label each for several devices.
pub(crate) fn gpu_group_labels(groups: &[String], several: bool) -> BTreeMap<String, String> {
    let key = |group: &String| {
        if several { format!("{}{group}", label::GPU_GROUP_PREFIX) } else { label::GPU_GROUP.to_owned() }
    };
    groups.iter().map(|group| (key(group), group.clone())).collect()
}

/// Shared GPUs that labels name, in order.
pub(crate) fn gpu_groups<'l>(labels: impl Iterator<Item = (&'l str, &'l str)>) -> Vec<&'l str> {
    let mut groups: Vec<&str> = labels.filter(|(key, _)| is_gpu_group_label(key)).map(|(_, group)| group).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

impl Owner {
    pub(crate) fn read(place: &FieldReader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            api_version: place.field("apiVersion").text_or_empty()?,
            kind: place.field("kind").text_or_empty()?,
            name: place.field("name").text_or_empty()?,
            uid: place.field("uid").text_or_empty()?,
            controller: place.field("controller").flag()?.unwrap_or(false),
        })
    }
}

fn unschedulable_message(status: &FieldReader<'_>) -> Result<Option<String>, Malformed> {
    for condition in status.field("conditions").items()? {
        let is = |field: &str, wanted: &str| Ok(condition.field(field).text()? == Some(wanted));
        let ours = |why: &str| why == reason::UNSCHEDULABLE || reason::QUOTA.contains(&why);
        let marked = condition.field("reason").text()?.is_some_and(ours);
        if is("type", "PodScheduled")? && is("status", "False")? && marked {
            return condition.field("message").text_or_empty().map(Some);
        }
    }
    Ok(None)
}

fn bind_failed(status: &FieldReader<'_>) -> Result<bool, Malformed> {
    for condition in status.field("conditions").items()? {
        if condition.field("type").text()? == Some(reason::POD_BOUND) {
            return Ok(condition.field("status").text()? == Some("False"));
        }
    }
    Ok(false)
}

/// What `kubectl apply` leaves behind: the whole object once more, of no use here.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn kept_annotations(mut annotations: BTreeMap<String, String>) -> BTreeMap<String, String> {
    annotations.remove(LAST_APPLIED);
    annotations
}

/// The namespace of an object whose namespace is no text.
fn namespace_of(value: &Value) -> String {
    PodKey::of(value).namespace
}

fn tolerations(spec: &FieldReader<'_>) -> Result<Vec<Toleration>, Malformed> {
    spec.field("tolerations").items()?.iter().map(Toleration::read).collect()
}

fn host_ports(spec: &FieldReader<'_>, faults: &mut Faults) -> Result<Vec<HostPort>, Malformed> {
    // On the host's network every container port is one of the host, as the API server would fill in.
    let on_host = faults.value_or(spec.field("hostNetwork").flag(), None)?.unwrap_or(false);
    let sidecars = faults.value_or(spec.field("initContainers").items(), Vec::new())?;
    let sidecars = sidecars.into_iter().filter(|place| place.field("restartPolicy").value() == Some(&"Always".into()));
    let mut ports = Vec::new();
    for container in faults.value_or(spec.field("containers").items(), Vec::new())?.into_iter().chain(sidecars) {
        for port in faults.value_or(container.field("ports").items(), Vec::new())? {
            ports.extend(faults.value_or(host_port(&port, on_host), None)?);
        }
    }
    ports.sort_unstable();
    ports.dedup();
    Ok(ports)
}

fn host_port(port: &FieldReader<'_>, on_host: bool) -> Result<Option<HostPort>, Malformed> {
    let mut number = port.field("hostPort");
    if on_host && !number.exists() {
        number = port.field("containerPort");
    }
    let Some(count) = number.count()?.filter(|count| *count > 0) else { return Ok(None) };
    let number =
        u16::try_from(count).map_err(|_| number.invalid(format!("{count} is not a port"), "use 1 to 65535"))?;
    Ok(Some(HostPort { number, protocol: protocol(port)?, address: address(port)? }))
}

fn container_names(spec: &FieldReader<'_>) -> Result<Vec<String>, Malformed> {
    let mut all = spec.field("initContainers").items()?;
    all.extend(spec.field("containers").items()?);
    all.iter().map(|place| place.field("name").text_or_empty()).collect()
}

fn claims(spec: &FieldReader<'_>, status: &FieldReader<'_>, faults: &mut Faults) -> Result<Vec<PodClaim>, Malformed> {
    let mut claims = Vec::new();
    for place in faults.value_or(spec.field("resourceClaims").items(), Vec::new())? {
        claims.extend(faults.value_or(claim(&place, status).map(Some), None)?);
    }
    Ok(claims)
}

fn claim(place: &FieldReader<'_>, status: &FieldReader<'_>) -> Result<PodClaim, Malformed> {
    let name = place.field("name").text_or_empty()?;
    let named = place.field("resourceClaimName").non_empty_text()?;
    let from_template = named.is_none();
    let mut claim = named;
    if from_template {
        for made in status.field("resourceClaimStatuses").items()? {
            if made.field("name").text()? == Some(&name) {
                claim = made.field("resourceClaimName").non_empty_text()?;
            }
        }
    }
    Ok(PodClaim { name, claim, from_template })
}

fn protocol(port: &FieldReader<'_>) -> Result<Protocol, Malformed> {
    let place = port.field("protocol");
    Ok(match place.text()? {
        None | Some("TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        Some(other) => return Err(place.invalid(format!("`{other}` is not a protocol"), "use TCP, UDP or SCTP")),
    })
}

fn address(port: &FieldReader<'_>) -> Result<Option<IpAddr>, Malformed> {
    let place = port.field("hostIP");
    let Some(text) = place.non_empty_text()?.filter(|text| text != "0.0.0.0") else { return Ok(None) };
    let address = text.parse();
    address.map(Some).map_err(|_| place.invalid(format!("`{text}` is not an address"), "write an IPv4 or IPv6 address"))
}

/// Volumes that are the same everywhere.
const PLACELESS_VOLUMES: [&str; 5] = ["configMap", "secret", "emptyDir", "projected", "downwardAPI"];

fn signature_extra(spec: &FieldReader<'_>) -> Result<String, Malformed> {
    let mut text = String::new();
    for key in ["affinity", "topologySpreadConstraints"] {
        if let Some(value) = spec.field(key).value() {
            canonical(value, &mut text);
        }
    }
    for volume in spec.field("volumes").items()? {
        for (kind, place) in volume.entries()? {
            if kind != "name" && !PLACELESS_VOLUMES.contains(&kind) {
                text += kind;
                place.value().into_iter().for_each(|value| canonical(value, &mut text));
            }
        }
    }
    Ok(text)
}

#[cfg(test)]
impl Pod {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        let term = json!({"topologyKey": "zone", "namespaces": ["a"], "namespaceSelector": {"matchLabels": {"a": "b"}},
        "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
        "matchLabelKeys": ["c"], "mismatchLabelKeys": ["d"]});
        json!({"metadata": {"name": "p", "namespace": "lab", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kai.scheduler/subgroup-name": "a", "runai-gpu-group": "g"},
            "annotations": {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2", "pod-group-name": "g"},
            "ownerReferences": [{"kind": "Job", "name": "j", "uid": "k", "controller": true}]},
        "spec": {"schedulerName": "kai-scheduler", "nodeName": "n", "priority": 3, "hostNetwork": true,
            "nodeSelector": {"zone": "a"}, "overhead": {"cpu": "10m"}, "schedulingGates": [{"name": "g"}],
            "resources": {"requests": {"cpu": 1}, "limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}},
            "tolerations": [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["3"]}],
                 "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}},
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": term}]}},
            "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {}, "minDomains": 2, "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {}},
                {"name": "m", "configMap": {"name": "s", "optional": true}}],
            "initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
            "containers": [{"ports": [{"containerPort": 1, "hostPort": 2, "hostIP": "10.0.0.1", "protocol": "UDP"}],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/mig-1g.5gb": 1}}}]},
        "status": {"phase": "Running", "nominatedNodeName": "n"}})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_almost_empty_pod_is_of_another_scheduler() {
        let pod = Pod::parse(&json!({"metadata": {"name": "a"}})).unwrap();
        assert_eq!((pod.key.to_string().as_str(), pod.uid.as_str()), ("default/a", "default/a"));
        assert_eq!((pod.scheduler.as_str(), pod.phase), ("default-scheduler", Phase::Pending));
        assert_eq!(pod.request.resources.pods, 1);
    }

    #[test]
    fn gpu_groups_are_read_as_they_are_written() {
        let mut pod = Pod::parse(&json!({"metadata": {"name": "a", "labels": {"app": "x"}}})).unwrap();
        for groups in [vec!["g1".to_owned()], vec!["g1".to_owned(), "g2".to_owned()], Vec::new()] {
            pod.set_gpu_groups(&groups);
            assert_eq!(pod.gpu_groups(), groups);
        }
        assert_eq!(pod.labels.len(), 1);
    }

    #[test]
    fn host_ports_come_from_containers_and_from_the_host_network() {
        let port = json!({"containerPort": 80, "hostPort": 8080, "hostIP": "0.0.0.0", "protocol": "UDP"});
        let pod = |host: bool| {
            let spec = json!({"hostNetwork": host, "containers": [{"ports": [port, {"containerPort": 90}]}]});
            Pod::parse(&json!({"metadata": {"name": "a"}, "spec": spec})).unwrap().host_ports
        };
        let mapped = HostPort { number: 8080, protocol: Protocol::Udp, address: None };
        let plain = HostPort { number: 90, protocol: Protocol::Tcp, address: None };
        assert_eq!(pod(false), [mapped]);
        assert_eq!(pod(true), [plain, mapped]);
    }

    #[test]
    fn names_of_volumes_do_not_make_pods_unlike() {
        let rules = |name: &str, claim: &str| {
            let volumes = json!([
                {"name": name, "persistentVolumeClaim": {"claimName": claim}},
                {"name": format!("{name}-token"), "projected": {"sources": [name]}},
            ]);
            Pod::parse(&json!({"metadata": {"name": "a"}, "spec": {"volumes": volumes}})).unwrap().signature_extra
        };
        assert_eq!(rules("x", "data"), rules("y", "data"));
        assert_ne!(rules("x", "data"), rules("x", "more-data"));
    }

    /// A pod of 8 GPUs that runs on a node, with this in `path` of it.
    fn running(path: &str, value: &Value) -> Result<Pod, Malformed> {
        let mut pod = json!({
            "metadata": {"name": "a", "namespace": "lab", "uid": "u", "annotations": {}, "labels": {}},
            "spec": {"nodeName": "n", "containers": [{"resources": {
                "limits": {"nvidia.com/gpu": "8", "memory": "1Gi"}, "requests": {"memory": "1Gi"}}}]},
            "status": {"phase": "Running"},
        });
        let (parent, key) = path.rsplit_once('/').expect("a pointer");
        pod.pointer_mut(parent).expect("is there")[key.replace("~1", "/")] = value.clone();
        Pod::parse(&pod)
    }

    #[test]
    fn a_pod_with_a_node_holds_what_its_containers_ask_for_whatever_its_other_fields() {
        for (path, value) in [
            ("/metadata/annotations/mps", json!("true")),
            ("/metadata/annotations/gpu-fraction", json!("0.1")),
            ("/metadata/annotations/gpu-fraction", json!(0.1)),
            ("/metadata/annotations/gpu-fraction-num-devices", json!("2")),
            ("/metadata/annotations/nvidia.com~1mig-1g.5gb", json!("18446744073708")),
            ("/metadata/annotations/nvidia.com~1mig-1g.5gb", json!([])),
            ("/metadata/annotations", json!("none")),
            ("/metadata/labels/app", json!(7)),
            ("/metadata/labels", json!([])),
            ("/metadata/uid", json!(7)),
            ("/metadata/namespace", json!(7)),
            ("/metadata/creationTimestamp", json!("yesterday")),
            ("/metadata/deletionTimestamp", json!("tomorrow")),
            ("/metadata/ownerReferences", json!({})),
            ("/spec/schedulerName", json!(1)),
            ("/spec/priority", json!(9_999_999_999_i64)),
            ("/spec/affinity", json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}})),
            ("/spec/tolerations", json!([{"operator": "Maybe"}])),
            ("/spec/nodeSelector", json!({"zone": 1})),
            ("/spec/resourceClaims", json!([{"name": 1}])),
            ("/spec/overhead", json!({"cpu": "lots"})),
            ("/spec/initContainers", json!("none")),
            ("/spec/volumes", json!([7])),
            ("/spec/containers/0/ports", json!([{"hostPort": 70_000}])),
            ("/spec/containers/0/resources/limits/memory", json!("200Ti")),
            ("/spec/containers/0/resources/requests/cpu", json!(-1)),
            ("/spec/containers/0/restartPolicy", json!(1)),
            ("/status/phase", json!(1)),
            ("/status/conditions", json!([{"type": 1}])),
        ] {
            let pod = running(path, &value).unwrap_or_else(|malformed| panic!("{path}: {malformed}"));
            assert_eq!((pod.request.resources.gpus, pod.request.sharing), (8, None), "{path}: {value}");
            assert_eq!(
                (pod.node.as_deref(), pod.request.resources.memory_bytes),
                (Some("n"), 1 << 30),
                "{path}: {value}"
            );
            let sound = path.ends_with("restartPolicy");
            assert_eq!(pod.problems.is_empty(), sound, "{path}: {value}");
        }
    }

    #[test]
    fn a_share_that_cannot_be_read_is_a_whole_device() {
        for (key, text) in
            [("gpu-fraction", "much"), ("gpu-fraction", "0"), ("gpu-fraction", "7"), ("gpu-memory", "-1")]
        {
            let annotations = json!({key: text, "gpu-fraction-num-devices": "2"});
            let metadata = json!({"name": "a", "annotations": annotations});
            let pod = Pod::parse(&json!({"metadata": metadata, "spec": {"nodeName": "n"}})).unwrap();
            let whole = GpuSharing::Fraction { devices: 2, portion: 1_000_000 };
            assert_eq!((pod.request.sharing, pod.request_unclear), (Some(whole), true), "{key}: {text}");
            assert!(Pod::parse(&json!({ "metadata": metadata })).is_err(), "it waits");
        }
    }

    #[test]
    fn a_problem_is_described_in_few_words() {
        let pod = running("/metadata/annotations/gpu-fraction", &json!("9".repeat(200_000))).unwrap();
        assert!(pod.problems.iter().all(|problem| problem.to_string().len() < 700));
    }

    #[test]
    fn a_number_where_text_belongs_is_explained() {
        let annotations = json!({"gpu-fraction": 0.5});
        let wrong = Pod::parse(&json!({"metadata": {"name": "a", "annotations": annotations}})).unwrap_err();
        assert_eq!(wrong.to_string(), "metadata.annotations.gpu-fraction: expected text, found the number 0.5");
        assert_eq!(wrong.hint, "put it in quotes: \"0.5\"");
    }
}
