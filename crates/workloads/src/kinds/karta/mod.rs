//! Kinds described by a Karta: an object that says where a workload keeps its components and their sizes.
//!
//! Asked only for kinds without a row in the table. A `podGroup` instruction makes one group with a leaf
//! per listed component; a `podGroups` instruction cuts the pods of a workload into several groups.

mod structure;

use serde_json::Value;

use self::structure::{Component, Structure, yields};
use crate::error::{Fault, GroupError};
use crate::group::{GroupSpec, Minimum, SubGroupSpec, TopologyConstraint};
use crate::jq::JqError;
use crate::object::{FieldRef, Object};
use crate::workload::Workload;

const API: &str = "run.ai/v1alpha1";
const GANG: &str = "spec.optimizationInstructions.gangScheduling";

/// The one Karta that speaks for the object of this workload, if there is exactly one that makes sense.
pub fn describing<'a>(workload: &Workload<'a>) -> Option<&'a Value> {
    if !workload.settings.karta_fallback {
        return None;
    }
    let object = workload.object;
    let usable = |karta: &Object<'_>| {
        let deleted = !karta.value["metadata"]["deletionTimestamp"].is_null();
        let instructions = karta.root().field(GANG).ok().flatten();
        let speaks =
            instructions.is_some_and(|gang| !gang.value["podGroup"].is_null() || !gang.value["podGroups"].is_null());
        let names = |structure: Structure<'_>| structure.root_kind == (object.group(), object.version(), object.kind);
        !deleted && speaks && Structure::read(*karta).is_ok_and(names)
    };
    let kartas = workload.related.kartas(object.api_version, object.kind);
    let mut usable = kartas.into_iter().filter(|karta| usable(&Object::read_as(karta, API, "Karta")));
    let first = usable.next()?;
    usable.next().is_none().then_some(first)
}

pub fn group(workload: &Workload<'_>, karta: &Value) -> Result<GroupSpec, GroupError> {
    let karta = Object::read_as(karta, API, "Karta");
    let structure = Structure::read(karta)?;
    let gang = karta.root().field_required(GANG)?;
    if let Some(instruction) = gang.field("podGroup")? {
        return one_group(workload, &structure, &instruction);
    }
    one_of_several(workload, &structure, &gang)
}

/// One group for the whole workload, a leaf per listed component.
fn one_group(
    workload: &Workload<'_>,
    structure: &Structure<'_>,
    instruction: &FieldRef<'_>,
) -> Result<GroupSpec, GroupError> {
    let mut spec = workload.base();
    spec.name = format!("pg-{}-{}", workload.object.uid(), instruction.text_required("name")?);
    if let Some(constraint) = topology(instruction)? {
        spec.topology = Some(constraint);
    }
    let listed = instruction.list("subGroups")?;
    if listed.is_empty() {
        spec.minimum = Minimum::Members(structure.scale(structure.root(), workload.object)?);
        return Ok(spec);
    }
    for entry in &listed {
        let component = named(structure, &entry.field_required("componentName")?)?;
        let members = structure.scale(component, workload.object)?;
        if members == 0 {
            return Err(entry.malformed(format!("a component with pods, and {} has none", component.name)));
        }
        let belongs = structure.holds(component, workload.pod, workload.object)?;
        let leaf = SubGroupSpec::leaf(component.name, members).within(topology(entry)?);
        spec.sub_groups.push(leaf.holding(workload.pod, belongs));
    }
    spec.minimum = Minimum::SubGroups(i32::try_from(listed.len()).unwrap_or(i32::MAX));
    Ok(spec)
}

/// One of several groups, chosen and named by what the pod says.
fn one_of_several(
    workload: &Workload<'_>,
    structure: &Structure<'_>,
    gang: &FieldRef<'_>,
) -> Result<GroupSpec, GroupError> {
    let (pod, object) = (workload.pod, workload.object);
    let component = structure.component_of(pod, object)?;
    let (member, owner) = member(structure, component, gang, pod)?;

    let mut spec = workload.base();
    spec.name = format!("pg-{}", object.uid());
    for path in member.list("groupByKeyPaths")? {
        let value = match structure::run(&path, pod)?.as_slice() {
            [Value::String(text)] if !text.is_empty() => text.clone(),
            [value @ (Value::Number(_) | Value::Bool(_))] => value.to_string(),
            _ => return Err(path.malformed("a path to exactly one value of the pod")),
        };
        spec.name = format!("{}-{value}", spec.name);
    }
    if !is_subdomain(&spec.name) {
        return Err(member.malformed(format!("grouped by values that make a name, and {:?} is none", spec.name)));
    }
    let own_instance = owner.name == component.name && component.has_instances();
    let members = if own_instance {
        structure.scale_of_instance(component, pod, object)?
    } else {
        structure.scale(owner, object)?
    };
    spec.minimum = Minimum::Members(members);
    Ok(spec)
}

/// The first member that names the component of the pod, or one above it, and whose filters let the pod pass.
fn member<'a, 's>(
    structure: &'s Structure<'a>,
    component: &'s Component<'a>,
    gang: &FieldRef<'a>,
    pod: Object<'_>,
) -> Result<(FieldRef<'a>, &'s Component<'a>), GroupError> {
    let mut members = Vec::new();
    for entry in gang.list("podGroups")? {
        members.extend(entry.list("members")?);
    }
    for component in structure.upwards(component) {
        for member in &members {
            if named(structure, &member.field_required("componentName")?)?.name != component.name {
                continue;
            }
            let mut passes = true;
            for filter in member.list("filters")? {
                passes &= yields(&filter, pod, |value| value == true)?;
            }
            if passes {
                return Ok((member.clone(), component));
            }
        }
    }
    Err(gang.malformed(format!("a list of groups that has a place for {}", pod.reference())))
}

fn named<'s, 'a>(structure: &'s Structure<'a>, name: &FieldRef<'_>) -> Result<&'s Component<'a>, GroupError> {
    structure.component(name.as_text()?).ok_or_else(|| name.malformed("the name of a component"))
}

/// Must name a topology and a level, if it is there at all.
fn topology(part: &FieldRef<'_>) -> Result<Option<TopologyConstraint>, GroupError> {
    let Some(part) = part.field("topology")? else { return Ok(None) };
    let constraint = TopologyConstraint::new(
        part.text("topologyName")?,
        part.text("requiredTopologyLevel")?,
        part.text("preferredTopologyLevel")?,
    );
    let complete = constraint.filter(TopologyConstraint::is_complete);
    complete.map(Some).ok_or_else(|| part.malformed("a topology name and at least one level"))
}

/// As the API server wants the name of an object.
fn is_subdomain(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |label: &str| {
        label.starts_with(letter) && label.ends_with(letter) && label.chars().all(|c| letter(c) || c == '-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

impl FieldRef<'_> {
    fn jq_fault(&self, error: &JqError) -> GroupError {
        let mut fault = self.malformed("a jq expression that works here");
        if let Fault::Malformed { found, .. } = &mut fault.fault {
            *found = format!("{found}: {error}");
        }
        fault
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::related::ObjectStore;
    use crate::testing::{outline, try_group};

    /// A serving kind with a list of services as instances, and a frontend.
    fn karta(gang: &Value) -> Value {
        json!({"apiVersion": API, "kind": "Karta",
            "metadata": {"name": "graph", "labels": {"run.ai/karta-group": "x.io", "run.ai/karta-version": "v1",
                "run.ai/karta-kind": "Graph"}},
            "spec": {
                "structureDefinition": {
                    "rootComponent": {"name": "graph", "kind": {"group": "x.io", "version": "v1", "kind": "Graph"}},
                    "childComponents": [
                        {"name": "front", "ownerRef": "graph",
                            "specDefinition": {"podTemplateSpecPath": ".spec.front.template"},
                            "scaleDefinition": {"replicasPath": ".spec.front.replicas"},
                            "podSelector": {"componentTypeSelector": {"keyPath": ".metadata.labels.front"}}},
                        {"name": "service", "ownerRef": "graph",
                            "specDefinition": {"podTemplateSpecPath": ".spec.services[].template"},
                            "instanceIdPath": ".spec.services[].name",
                            "scaleDefinition": {"replicasPath": ".spec.services[].replicas",
                                "minReplicasPath": ".spec.services[].min"},
                            "podSelector": {
                                "componentTypeSelector": {"keyPath": ".metadata.labels.role", "value": "service"},
                                "componentInstanceSelector": {"idPath": ".metadata.labels.service"}}},
                    ]},
                "optimizationInstructions": {"gangScheduling": gang}}})
    }

    fn graph() -> Value {
        json!({"apiVersion": "x.io/v1", "kind": "Graph", "metadata": {"name": "g", "uid": "u"}, "spec": {
            "front": {"replicas": 2},
            "services": [{"name": "a", "replicas": 3}, {"name": "b", "replicas": 8, "min": 4}]}})
    }

    fn pod(labels: &Value) -> Value {
        json!({"metadata": {"name": "p", "labels": labels}})
    }

    fn group(gang: &Value, labels: &Value) -> Result<GroupSpec, GroupError> {
        let related: ObjectStore = [karta(gang)].into_iter().collect();
        try_group(&[graph()], &pod(labels), &related)
    }

    #[test]
    fn one_group_with_a_leaf_per_component() {
        let gang = json!({"podGroup": {"name": "all", "subGroups": [{"componentName": "front"},
            {"componentName": "service", "topology": {"topologyName": "dc", "requiredTopologyLevel": "rack"}}]}});
        let spec = group(&gang, &json!({"role": "service"})).unwrap();
        assert_eq!(spec.name, "pg-u-all");
        assert_eq!(outline(&spec), "* 2!\nfront 2\nservice 7 @dc:rack: [p]");
        assert_eq!(outline(&group(&gang, &json!({"front": "yes"})).unwrap()).lines().nth(1), Some("front 2 [p]"));
        let whole = group(&json!({"podGroup": {"name": "all"}}), &json!({})).unwrap();
        assert_eq!(outline(&whole), "* 9");
    }

    #[test]
    fn several_groups_sized_by_the_instance_of_the_pod() {
        let gang = json!({"podGroups": [{"name": "s", "members": [
            {"componentName": "service", "groupByKeyPaths": [".metadata.labels.service"]},
            {"componentName": "graph", "filters": [".metadata.labels.front == \"yes\""]}]}]});
        let spec = group(&gang, &json!({"role": "service", "service": "b"})).unwrap();
        assert_eq!((spec.name.as_str(), outline(&spec).as_str()), ("pg-u-b", "* 4"));
        let spec = group(&gang, &json!({"front": "yes"})).unwrap();
        assert_eq!((spec.name.as_str(), outline(&spec).as_str()), ("pg-u", "* 9"), "the component above");
        for labels in [
            json!({"front": "no"}),
            json!({}),
            json!({"role": "service"}),
            json!({"role": "service", "service": "B_"}),
            json!({"role": "service", "service": "c"}),
        ] {
            assert!(group(&gang, &labels).is_err(), "{labels}");
        }
    }

    #[test]
    fn an_unclear_karta_is_not_used() {
        let gang = json!({"podGroup": {"name": "all"}});
        let check = |kartas: Vec<Value>| {
            try_group(&[graph()], &pod(&json!({})), &kartas.into_iter().collect::<ObjectStore>()).unwrap().name
        };
        assert_eq!(check(vec![karta(&gang)]), "pg-u-all");
        let mut twin = karta(&gang);
        twin["metadata"]["name"] = json!("twin");
        assert_eq!(check(vec![karta(&gang), twin.clone()]), "pg-g-u");
        twin["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
        assert_eq!(check(vec![karta(&gang), twin]), "pg-u-all");
        let mut broken = karta(&gang);
        broken["spec"]["structureDefinition"]["childComponents"][0]["scaleDefinition"]["replicasPath"] = json!(".[");
        assert_eq!(check(vec![broken]), "pg-g-u");
        assert_eq!(check(vec![karta(&json!({}))]), "pg-g-u");
    }

    #[test]
    fn instructions_must_make_sense() {
        for gang in [
            json!({"podGroup": {"name": "x", "subGroups": [{"componentName": "none"}]}}),
            json!({"podGroup": {"name": "x", "topology": {"topologyName": "dc"}}}),
            json!({"podGroup": {"name": "x", "topology": {"requiredTopologyLevel": "rack"}}}),
            json!({"podGroup": {}}),
            json!({"podGroups": [{"members": [{"componentName": "front", "groupByKeyPaths": [".["]}]}]}),
        ] {
            assert!(group(&gang, &json!({"front": "yes"})).is_err(), "{gang}");
        }
    }
}
