//! A pod: what it asks for, where it may run, where it stands.

use std::collections::BTreeMap;
use std::net::IpAddr;

use kai_api::keys::{annotation, label, reason};
use kai_engine::builder::{HostPort, Protocol};
use kai_engine::units::Timestamp;
use serde_json::Value;

use super::Malformed;
use super::affinity::NodeTerm;
use super::field_reader::{FieldReader, canonical};
use super::inter_pod_rules::InterPodRules;
use super::prerequisites::Prerequisites;
use super::request::Request;
use super::taint::Toleration;
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
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let (metadata, spec, status) = (root.field("metadata"), root.field("spec"), root.field("status"));
        let key = PodKey::new(root.object_namespace()?, root.object_name()?);
        let annotations = metadata.field("annotations");
        let labels = metadata.field("labels").string_map()?;
        let request = Request::read(&spec, &annotations)?;
        let created_at_bind = annotations.field(annotation::SHARED_GPU_CONFIG_MAP).text()?;
        let prerequisites = Prerequisites::read(&spec, &key.name, created_at_bind)?;
        Ok(Self {
            uid: metadata.field("uid").non_empty_text()?.unwrap_or_else(|| key.to_string()),
            key,
            created: metadata.field("creationTimestamp").time()?.unwrap_or(Timestamp(0)),
            inter_pod: InterPodRules::read(&spec, &labels)?,
            labels,
            annotations: kept_annotations(&annotations)?,
            owners: metadata.field("ownerReferences").items()?.iter().map(Owner::read).collect::<Result<_, _>>()?,
            scheduler: spec.field("schedulerName").non_empty_text()?.unwrap_or_else(|| SCHEDULER_DEFAULT.to_owned()),
            phase: match status.field("phase").text()? {
                None | Some("Pending" | "") => Phase::Pending,
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                Some(_) => Phase::Unknown,
            },
            deletion: metadata.field("deletionTimestamp").time()?,
            gated: !spec.field("schedulingGates").items()?.is_empty(),
            node: spec.field("nodeName").non_empty_text()?,
            nominated_node: status.field("nominatedNodeName").non_empty_text()?,
            unschedulable_message: unschedulable_message(&status)?,
            bind_failed: bind_failed(&status)?,
            priority_class: spec.field("priorityClassName").non_empty_text()?,
            priority: spec.field("priority").int32()?,
            containers: if request.resources.devices().is_empty() { Vec::new() } else { container_names(&spec)? },
            request,
            node_selector: spec.field("nodeSelector").string_map()?,
            node_affinity: NodeTerm::read_required(&spec.field("affinity"))?,
            tolerations: spec.field("tolerations").items()?.iter().map(Toleration::read).collect::<Result<_, _>>()?,
            host_ports: host_ports(&spec)?,
            claims: claims(&spec, &status)?,
            prerequisites,
            signature_extra: signature_extra(&spec)?,
        })
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

fn kept_annotations(place: &FieldReader<'_>) -> Result<BTreeMap<String, String>, Malformed> {
    let mut annotations = place.string_map()?;
    annotations.remove(LAST_APPLIED);
    Ok(annotations)
}

fn host_ports(spec: &FieldReader<'_>) -> Result<Vec<HostPort>, Malformed> {
    // On the host's network every container port is one of the host, as the API server would fill in.
    let on_host = spec.field("hostNetwork").flag()?.unwrap_or(false);
    let sidecars = spec.field("initContainers").items()?;
    let sidecars = sidecars.into_iter().filter(|place| place.field("restartPolicy").value() == Some(&"Always".into()));
    let mut ports = Vec::new();
    for container in spec.field("containers").items()?.into_iter().chain(sidecars) {
        for port in container.field("ports").items()? {
            let mut number = port.field("hostPort");
            if on_host && !number.exists() {
                number = port.field("containerPort");
            }
            let Some(count) = number.count()?.filter(|count| *count > 0) else { continue };
            let number =
                u16::try_from(count).map_err(|_| number.invalid(format!("{count} is not a port"), "use 1 to 65535"))?;
            ports.push(HostPort { number, protocol: protocol(&port)?, address: address(&port)? });
        }
    }
    ports.sort_unstable();
    ports.dedup();
    Ok(ports)
}

fn container_names(spec: &FieldReader<'_>) -> Result<Vec<String>, Malformed> {
    let mut all = spec.field("initContainers").items()?;
    all.extend(spec.field("containers").items()?);
    all.iter().map(|place| place.field("name").text_or_empty()).collect()
}

fn claims(spec: &FieldReader<'_>, status: &FieldReader<'_>) -> Result<Vec<PodClaim>, Malformed> {
    let mut claims = Vec::new();
    for place in spec.field("resourceClaims").items()? {
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
        claims.push(PodClaim { name, claim, from_template });
    }
    Ok(claims)
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
        use serde_json::json;

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
    use serde_json::json;

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

    #[test]
    fn a_number_where_text_belongs_is_explained() {
        let annotations = json!({"gpu-fraction": 0.5});
        let wrong = Pod::parse(&json!({"metadata": {"name": "a", "annotations": annotations}})).unwrap_err();
        assert_eq!(wrong.to_string(), "metadata.annotations.gpu-fraction: expected text, found the number 0.5");
        assert_eq!(wrong.hint, "put it in quotes: \"0.5\"");
    }
}
