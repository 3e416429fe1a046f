//! Grove, also below Dynamo: the `PodGang` its operator makes is translated as it stands.
//!
//! ```text
//! PodGang.spec.topologyConstraintGroupConfigs[]  -> parents, first in the list
//! PodGang.spec.podgroups[]                       -> leaves, with the pods they list
//! ```

use std::collections::BTreeMap;

use kai_api::Duration;
use kai_api::keys::{annotation, label};

use crate::error::{Fault, GroupError};
use crate::group::{GroupSpec, IgnoredValue, Minimum, Preemptibility, SubGroupSpec, TopologyConstraint};
use crate::object::{FieldRef, Object};
use crate::object_ref::ObjectRef;
use crate::priority::TRAIN;
use crate::row::RuleDoc;
use crate::workload::Workload;

const API: &str = "scheduler.grove.io/v1alpha1";
const POD_GANG: &str = "grove.io/podgang";
const TOPOLOGY_NAME: &str = "grove.io/topology-name";

pub const ABOUT: RuleDoc = RuleDoc {
    group: "per PodGang",
    minimum: "sum of the leaves",
    sub_groups: "the PodGang's pod groups, below its topology groups",
    class: TRAIN,
};

pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    let pod = workload.pod;
    let at = ObjectRef::new(API, "PodGang", pod.namespace(), pod.label_required(POD_GANG)?);
    let gang = Object::read_as(workload.read(at, pod, &format!("label {POD_GANG}"))?, API, "PodGang");
    let body = gang.root();
    let topology = gang.annotation(TOPOLOGY_NAME).or_else(|| gang.annotation(annotation::TOPOLOGY)).unwrap_or_default();

    let mut spec = workload.base_on(gang, TRAIN);
    if let Some(constraint) = pack_constraint(&body, "spec.topologyConstraint", topology)? {
        spec.topology = Some(constraint);
    }
    if let Some(class) = body.text("spec.priorityClassName")? {
        class.clone_into(&mut spec.priority_class);
    }
    inherit(&mut spec, workload.object, gang)?;

    let mut parent_of = BTreeMap::new();
    for config in body.list("spec.topologyConstraintGroupConfigs")? {
        let children = config.list("podGroupNames")?;
        if children.is_empty() {
            continue;
        }
        let name = config.text_required("name")?;
        let count = i32::try_from(children.len()).unwrap_or(i32::MAX);
        let constraint = pack_constraint(&config, "topologyConstraint", topology)?;
        spec.sub_groups.push(SubGroupSpec::parent(name, count).within(constraint));
        for child in children {
            parent_of.insert(child.as_text()?, name);
        }
    }
    let mut members = 0_i32;
    for part in body.list("spec.podgroups")? {
        let (leaf, minimum) = leaf(&part, &parent_of, topology, pod)?;
        members = members.saturating_add(minimum);
        spec.sub_groups.push(leaf);
    }
    spec.minimum = Minimum::Members(members);
    Ok(spec)
}

fn leaf(
    part: &FieldRef<'_>,
    parent_of: &BTreeMap<&str, &str>,
    topology: &str,
    pod: Object<'_>,
) -> Result<(SubGroupSpec, i32), GroupError> {
    let name = part.text_required("name")?;
    let minimum = part.field_required("minReplicas")?;
    let members = minimum.as_int()?;
    if members <= 0 {
        return Err(minimum.malformed("above 0"));
    }
    let mut leaf = SubGroupSpec::leaf(name, members).within(pack_constraint(part, "topologyConstraint", topology)?);
    leaf.parent = parent_of.get(name).map(|parent| (*parent).to_owned());
    for reference in part.list_required("podReferences")? {
        let namespace = reference.field_required("namespace")?;
        if namespace.as_text()? != pod.namespace() {
            return Err(namespace.malformed(format!("the namespace of its pod, {}", pod.namespace())));
        }
        leaf.pods.push(reference.text_required("name")?.to_owned());
    }
    Ok((leaf, members))
}

/// Levels named here need the topology named on the gang.
fn pack_constraint(part: &FieldRef<'_>, field: &str, topology: &str) -> Result<Option<TopologyConstraint>, GroupError> {
    let required = part.text(&format!("{field}.packConstraint.required"))?;
    let preferred = part.text(&format!("{field}.packConstraint.preferred"))?;
    let Some(constraint) = TopologyConstraint::new(Some(topology), required, preferred) else { return Ok(None) };
    if !constraint.has_level() {
        return Ok(None);
    }
    if constraint.topology.is_none() {
        return Err(part.missing(&format!("annotation {TOPOLOGY_NAME}")));
    }
    Ok(Some(constraint))
}

/// What the top owner says and the gang does not. The queue is decided by gang and pod alone.
fn inherit(spec: &mut GroupSpec, top: Object<'_>, gang: Object<'_>) -> Result<(), GroupError> {
    for (key, value) in top.labels() {
        spec.labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    for (key, value) in top.annotations() {
        spec.annotations.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    if let Some(class) = spec.labels.get(label::PRIORITY_CLASS_NAME) {
        spec.priority_class.clone_from(class);
    }
    if let Some(value) = spec.labels.get(label::PREEMPTIBILITY) {
        spec.preemptibility = Preemptibility::parse(value).ok_or_else(|| {
            let expected = "preemptible, non-preemptible or empty";
            let fault = Fault::Malformed { expected: expected.to_owned(), found: value.clone() };
            let object = if gang.label(label::PREEMPTIBILITY).is_some() { gang } else { top };
            object.fault(format!("label {}", label::PREEMPTIBILITY), fault)
        })?;
    }
    if let Some(text) = spec.annotations.get(annotation::PREEMPTION_DELAY) {
        match text.parse().ok().filter(|delay: &Duration| delay.as_nanos() >= 0) {
            Some(delay) => spec.preemption_delay = Some(delay),
            None => spec.ignored_values.push(IgnoredValue::InvalidDuration {
                object: top.reference(),
                key: annotation::PREEMPTION_DELAY,
                value: text.clone(),
            }),
        }
    }
    let found = spec.topology.take().unwrap_or_default();
    let annotation = |key: &str| spec.annotations.get(key).map(String::as_str);
    spec.topology = TopologyConstraint::new(
        found.topology.as_deref().or(annotation(annotation::TOPOLOGY)),
        found.required_level.as_deref().or(annotation(annotation::TOPOLOGY_REQUIRED)),
        found.preferred_level.as_deref().or(annotation(annotation::TOPOLOGY_PREFERRED)),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::related::ObjectStore;
    use crate::testing::{outline, try_group};

    fn gang() -> Value {
        let pods =
            |names: &[&str]| -> Value { names.iter().map(|name| json!({"namespace": "inf", "name": name})).collect() };
        json!({"apiVersion": API, "kind": "PodGang",
        "metadata": {"name": "serve-0", "namespace": "inf", "uid": "u", "annotations": {TOPOLOGY_NAME: "dc"}},
        "spec": {
            "topologyConstraint": {"packConstraint": {"required": "zone"}},
            "topologyConstraintGroupConfigs": [{"name": "decode", "podGroupNames": ["lead", "work"],
                "topologyConstraint": {"packConstraint": {"required": "rack"}}}],
            "podgroups": [
                {"name": "prefill", "minReplicas": 2, "podReferences": pods(&["p-0", "p-1"])},
                {"name": "lead", "minReplicas": 1, "podReferences": pods(&["d-0"])},
                {"name": "work", "minReplicas": 3, "podReferences": pods(&["d-1"])},
            ]}})
    }

    fn top(labels: &Value) -> Value {
        json!({"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": "serve",
            "labels": labels}})
    }

    fn group(gang: Value, top: Value) -> Result<GroupSpec, GroupError> {
        let pod = json!({"metadata": {"name": "d-0", "namespace": "inf", "labels": {POD_GANG: "serve-0"}}});
        try_group(&[top], &pod, &[gang].into_iter().collect::<ObjectStore>())
    }

    #[test]
    fn a_gang_is_translated_as_it_stands() {
        let spec = group(gang(), top(&json!({}))).unwrap();
        assert_eq!((spec.name.as_str(), spec.owner.kind.as_str()), ("pg-serve-0-u", "PodGang"));
        assert_eq!(
            outline(&spec),
            "* 6\ndecode 2! @dc:rack:\nprefill 2 [p-0 p-1]\nlead 1 < decode [d-0]\nwork 3 < decode [d-1]",
        );
        assert_eq!(spec.topology.as_ref().unwrap().required_level.as_deref(), Some("zone"));
        assert_eq!(spec.leaf_of("d-0"), Some("lead"));
    }

    #[test]
    fn the_top_owner_fills_in_but_does_not_choose_the_queue() {
        let labels = json!({"priorityClassName": "high", label::PREEMPTIBILITY: "preemptible", label::QUEUE: "q"});
        let mut with_class = gang();
        with_class["spec"]["priorityClassName"] = json!("low");
        let spec = group(with_class.clone(), top(&labels)).unwrap();
        assert_eq!((spec.priority_class.as_str(), spec.queue.as_str()), ("high", "default-queue"));
        assert_eq!(spec.preemptibility, Some(Preemptibility::Preemptible));
        assert_eq!(group(with_class, top(&json!({}))).unwrap().priority_class, "low");
        assert!(group(gang(), top(&json!({label::PREEMPTIBILITY: "maybe"}))).is_err());
    }

    #[test]
    fn gangs_must_make_sense() {
        let broken = |change: fn(&mut Value)| {
            let mut gang = gang();
            change(&mut gang);
            group(gang, top(&json!({}))).is_err()
        };
        assert!(broken(|gang| gang["metadata"]["annotations"] = json!({TOPOLOGY_NAME: ""})));
        assert!(broken(|gang| gang["spec"]["podgroups"][0]["minReplicas"] = json!(0)));
        assert!(broken(|gang| gang["spec"]["podgroups"][0]["podReferences"] = Value::Null));
        assert!(broken(|gang| gang["spec"]["podgroups"][0]["podReferences"][0]["namespace"] = json!("lab")));
        assert!(broken(|gang| gang["spec"]["podgroups"][0]["name"] = Value::Null));
        assert!(broken(|gang| gang["metadata"]["name"] = json!("other")));
    }
}
