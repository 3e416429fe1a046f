//! What an API server and its webhooks would do with a new object: fill in defaults, reject what is invalid.
//!
//! The scheduler itself leaves out what it cannot use, since it must go on with any objects that are stored. Authors of
//! manifests are better served by an error, so everything here is strict.

use std::collections::BTreeMap;

use kai_api::bounds::{SUB_GROUP_LEVELS_MAX, SUB_GROUPS_MAX};
use kai_control::Object;
use kai_control::ancestors::{Ancestry, ancestries};
use kai_control::objects::{Malformed, PodGroup, ResourceClaimTemplate};
use kai_workloads::DeclaredKinds;
use serde_json::{Value, json};

use super::classify::Item;
use super::defaults::{complete_node, complete_pod};
use crate::input_error::{InputError, SourceLocation};
use crate::json::{annotation, describe, object_at};
use crate::kinds::Kind;
use crate::operators::{self, COUNT_MAX};
use crate::time::parse_span;

/// How long a pod runs, in virtual time.
pub(crate) const DURATION_ANNOTATION: &str = "kai.scheduler/sim-duration";

/// Fills what an API server would fill, and refuses what it or a webhook would refuse.
pub(crate) fn admit(item: &mut Item, declared: &DeclaredKinds) -> Result<(), InputError> {
    match item.id.kind {
        Kind::Pod => {
            check_pod(&item.value, &item.location, "")?;
            complete_pod(&mut item.value);
        }
        Kind::Job | Kind::Deployment | Kind::ReplicaSet => check_workload(item)?,
        kind if kind.makes_pods() => {
            operators::complete(kind, &mut item.value);
            check_roles(item, declared)?;
        }
        Kind::Node => complete_node(&mut item.value, &item.id.name),
        Kind::ResourceClaimTemplate => {
            ResourceClaimTemplate::parse(&item.value)
                .map_err(|malformed| input_error(malformed, &item.location, ""))?;
        }
        _ => {}
    }
    let object = Object::parse(&item.value).map_err(|malformed| input_error(malformed, &item.location, ""))?;
    if let Some(malformed) = object.iter().flat_map(Object::problems).next() {
        return Err(input_error(malformed.clone(), &item.location, ""));
    }
    if let Some(Object::PodGroup(group)) = object {
        check_tree(&group, &item.location)?;
    }
    Ok(())
}

/// An error of the control plane about a field as an error of the input; `prefix` is where its root stands.
fn input_error(malformed: Malformed, location: &SourceLocation, prefix: &str) -> InputError {
    let field = match (prefix.is_empty(), malformed.field.is_empty()) {
        (true, _) => malformed.field,
        (false, true) => prefix.to_owned(),
        (false, false) => format!("{prefix}.{}", malformed.field),
    };
    InputError::new(location.field(field), malformed.problem, malformed.hint)
}

/// Refuses a pod, or the pod that a template makes. `prefix` says where the template stands.
fn check_pod(pod: &Value, location: &SourceLocation, prefix: &str) -> Result<(), InputError> {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
    if containers.is_none_or(Vec::is_empty) {
        let field = if prefix.is_empty() { "spec.containers".to_owned() } else { format!("{prefix}.spec.containers") };
        return Err(InputError::new(
            location.field(field),
            "the pod has no containers",
            "give it at least one container",
        ));
    }
    if let Some(text) = annotation(pod, DURATION_ANNOTATION)
        && parse_span(text).is_none()
    {
        let malformed = Malformed::new(
            format!("metadata.annotations[{DURATION_ANNOTATION}]"),
            format!("`{text}` is not a span of time"),
            "write it like 90s, 5m or 1h30m",
        );
        return Err(input_error(malformed, location, prefix));
    }
    Object::parse(pod).map_err(|malformed| input_error(malformed, location, prefix))?;
    // Limits become requests where those are missing; an error names what was written.
    let mut limited = pod.clone();
    complete_pod(&mut limited);
    Object::parse(&limited).map_err(|malformed| {
        let field = malformed.field.replace(".resources.requests", ".resources.limits");
        input_error(Malformed { field, ..malformed }, location, prefix)
    })?;
    Ok(())
}

/// A controller's object: its counts, and the pod its template would make.
fn check_workload(item: &Item) -> Result<(), InputError> {
    let counts: &[&str] = match item.id.kind {
        Kind::Job => &["parallelism", "completions", "backoffLimit"],
        _ => &["replicas"],
    };
    for key in counts {
        let value = item.value.get("spec").and_then(|spec| spec.get(key)).filter(|value| !value.is_null());
        let Some(value) = value else { continue };
        let location = item.location.field(format!("spec.{key}"));
        match value.as_u64() {
            None => {
                let problem = format!("expected a whole number from 0 up, found {}", describe(value));
                return Err(InputError::new(location, problem, "write a whole number here"));
            }
            Some(count) if count > COUNT_MAX => {
                let problem = format!("{count} is more than a cluster holds");
                return Err(InputError::new(location, problem, format!("write a number up to {COUNT_MAX}")));
            }
            Some(_) => {}
        }
    }
    let Some(template) = item.value.pointer("/spec/template").filter(|template| template.is_object()) else {
        return Err(InputError::new(
            item.location.field("spec.template"),
            "there is no pod template",
            "describe the pods under spec.template",
        ));
    };
    check_template(item, template, "spec.template")
}

/// What an operator is asked for: its counts, and the pods its templates would make.
fn check_roles(item: &Item, declared: &DeclaredKinds) -> Result<(), InputError> {
    let roles = operators::roles(item.id.kind, &item.value, declared)
        .map_err(|malformed| input_error(malformed, &item.location, ""))?;
    roles.iter().try_for_each(|role| check_template(item, &role.template, &role.path))
}

/// The pod that a template would make. `path` says where the template stands.
fn check_template(item: &Item, template: &Value, path: &str) -> Result<(), InputError> {
    let mut pod = template.clone();
    let whole = object_at(&mut pod, &[]).map(|pod| {
        pod.insert("apiVersion".to_owned(), json!("v1"));
        pod.insert("kind".to_owned(), json!("Pod"));
    });
    if whole.is_some()
        && let Some(metadata) = object_at(&mut pod, &["metadata"])
    {
        metadata.insert("name".to_owned(), json!("pod"));
        metadata.insert("namespace".to_owned(), json!(item.id.namespace));
    }
    check_pod(&pod, &item.location, path)?;
    if item.id.kind.runs_for_ever() && annotation(&pod, DURATION_ANNOTATION).is_some() {
        return Err(InputError::new(
            item.location.field(format!("{path}.metadata.annotations[{DURATION_ANNOTATION}]")),
            format!("pods of a {} run until they are deleted", item.id.kind.name()),
            "remove the annotation, or make it a Job",
        ));
    }
    Ok(())
}

/// The sub-groups of a pod group must form a tree.
fn check_tree(group: &PodGroup, location: &SourceLocation) -> Result<(), InputError> {
    if group.sub_groups.len() > SUB_GROUPS_MAX {
        let problem =
            format!("{} sub-groups are there, and at most {SUB_GROUPS_MAX} are taken", group.sub_groups.len());
        return Err(InputError::new(location.field("spec.subGroups"), problem, "divide the pods among pod groups"));
    }
    let mut parents: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    let at = |index: usize, key: &str| location.field(format!("spec.subGroups[{index}].{key}"));
    for (index, sub_group) in group.sub_groups.iter().enumerate() {
        if parents.insert(&sub_group.name, sub_group.parent.as_deref()).is_some() {
            let problem = format!("sub-group `{}` is there twice", sub_group.name);
            return Err(InputError::new(at(index, "name"), problem, "give each sub-group a name of its own"));
        }
    }
    for (index, sub_group) in group.sub_groups.iter().enumerate() {
        let Some(parent) = sub_group.parent.as_deref() else { continue };
        if !parents.contains_key(parent) {
            let problem = format!("parent `{parent}` of sub-group `{}` does not exist", sub_group.name);
            return Err(InputError::new(
                at(index, "parent"),
                problem,
                "name a sub-group of this pod group, or leave it out",
            ));
        }
    }
    let ancestries = ancestries(&parents);
    for (index, sub_group) in group.sub_groups.iter().enumerate() {
        match ancestries[sub_group.name.as_str()] {
            Ancestry::Cycle => {
                let problem = format!("sub-groups are each other's parents: {}", cycle(&sub_group.name, &parents));
                return Err(InputError::new(at(index, "parent"), problem, "remove one of these parents"));
            }
            Ancestry::Levels(levels) if levels > SUB_GROUP_LEVELS_MAX => {
                let name = &sub_group.name;
                let problem =
                    format!("sub-group `{name}` is on level {levels}, and at most {SUB_GROUP_LEVELS_MAX} are taken");
                return Err(InputError::new(at(index, "parent"), problem, "nest sub-groups less deep"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// `a → b → a`, from a member of a cycle up to itself. Of a long way only the first names.
pub(crate) fn cycle(start: &str, parents: &BTreeMap<&str, Option<&str>>) -> String {
    const SHOWN: usize = 8;
    let mut path = vec![start];
    let mut here = parents[start];
    while let Some(parent) = here.filter(|parent| *parent != start && path.len() < SHOWN) {
        path.push(parent);
        here = parents[parent];
    }
    path.push(if here == Some(start) { start } else { "…" });
    path.join(" → ")
}
