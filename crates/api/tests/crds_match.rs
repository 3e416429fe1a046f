//! Holds the generated CRDs against KAI's manifests, field by field.
//!
//! The manifests are no part of this repository. They are looked for in `$KAI_SPEC_DIR`, else in `shared/spec` beside
//! the workspace; without them the comparison is skipped, loudly. Texts for people and generator bookkeeping may differ, and
//! ours have bounds where KAI's have none: those of [`BOUNDS`] and no others.

use kai_api::bounds::{LABEL_KEY_LENGTH_MAX, NAME_LENGTH_MAX, SUB_GROUPS_MAX};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Bounds that KAI's CRDs do not have: kind, where in the spec, keyword, value. `docs/compat/bounds.md` lists them.
const BOUNDS: [(&str, &str, &str, usize); 13] = [
    (POD_GROUP, "queue", "maxLength", NAME_LENGTH_MAX),
    (POD_GROUP, "priorityClassName", "maxLength", NAME_LENGTH_MAX),
    (POD_GROUP, "subGroups", "maxItems", SUB_GROUPS_MAX),
    (POD_GROUP, "subGroups[].name", "maxLength", NAME_LENGTH_MAX),
    (POD_GROUP, "subGroups[].parent", "maxLength", NAME_LENGTH_MAX),
    (POD_GROUP, "topologyConstraint.topology", "maxLength", NAME_LENGTH_MAX),
    (POD_GROUP, "topologyConstraint.requiredTopologyLevel", "maxLength", LABEL_KEY_LENGTH_MAX),
    (POD_GROUP, "topologyConstraint.preferredTopologyLevel", "maxLength", LABEL_KEY_LENGTH_MAX),
    (POD_GROUP, "subGroups[].topologyConstraint.topology", "maxLength", NAME_LENGTH_MAX),
    (POD_GROUP, "subGroups[].topologyConstraint.requiredTopologyLevel", "maxLength", LABEL_KEY_LENGTH_MAX),
    (POD_GROUP, "subGroups[].topologyConstraint.preferredTopologyLevel", "maxLength", LABEL_KEY_LENGTH_MAX),
    (QUEUE, "displayName", "maxLength", NAME_LENGTH_MAX),
    (QUEUE, "parentQueue", "maxLength", NAME_LENGTH_MAX),
];

const POD_GROUP: &str = "podgroups.scheduling.run.ai";
const QUEUE: &str = "queues.scheduling.run.ai";

/// The pointer to the schema of a field, in a CRD with one version.
fn schema_of(field: &str) -> String {
    let below = field.replace("[].", "/items.").replace('.', "/properties/");
    format!("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/{below}")
}

/// What differs from KAI's because of a bound that is listed.
fn bound_differences() -> BTreeSet<String> {
    let line = |(kind, field, keyword, value): &(&str, &str, &str, usize)| {
        format!("{kind}{}/{keyword}: ours {:?}, theirs nothing", schema_of(field), *value as f64)
    };
    BOUNDS.iter().map(line).collect()
}

#[test]
fn every_listed_bound_is_in_its_crd_and_in_the_document() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compat/bounds.md")).unwrap();
    let crds: BTreeMap<String, Value> =
        kai_api::crds().iter().map(|crd| named(serde_json::to_value(crd).unwrap())).collect();
    for (kind, field, keyword, value) in BOUNDS {
        let found = crds[kind].pointer(&format!("{}/{keyword}", schema_of(field)));
        assert_eq!(found.and_then(Value::as_u64), Some(value as u64), "{kind} {field} {keyword}");
        let last = field.rsplit_once("[].").map_or(field, |(_, last)| last);
        let row = page.lines().find(|line| line.contains(&format!("`{last}`")) && line.contains(&value.to_string()));
        assert!(row.is_some(), "docs/compat/bounds.md has no row for {kind} {field} with {value}");
    }
}

#[test]
fn crds_match() {
    let Some(dir) = manifests() else {
        // Past the test harness, which would swallow what a passing test prints.
        let notice = b"\nSKIPPED: no reference CRDs; set KAI_SPEC_DIR to a directory that holds crds/*.yaml\n";
        io::stderr().write_all(notice).unwrap();
        return;
    };
    let theirs = read(&dir);
    let ours: BTreeMap<String, Value> =
        kai_api::crds().iter().map(|crd| named(serde_json::to_value(crd).unwrap())).collect();

    let mut differences = Vec::new();
    for name in ours.keys().filter(|name| !theirs.contains_key(*name)) {
        differences.push(format!("{name}: only ours"));
    }
    for (name, theirs) in &theirs {
        match ours.get(name) {
            None => differences.push(format!("{name}: only theirs")),
            Some(ours) => compare(name, &normal(ours), &normal(theirs), &mut differences),
        }
    }
    let mut listed = bound_differences();
    differences.retain(|difference| !listed.remove(difference));
    differences.extend(listed.into_iter().map(|bound| format!("no longer a difference: {bound}")));
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn yaml_holds_every_crd_once_in_the_same_order() {
    let yaml = kai_api::crds_yaml();
    let documents: Vec<Value> =
        yaml.split("---\n").filter(|text| !text.is_empty()).map(|text| yaml_serde::from_str(text).unwrap()).collect();
    let crds: Vec<Value> = kai_api::crds().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect();
    assert_eq!(documents, crds);
}

/// What `kubectl apply` stores of an object in an annotation may not be larger.
#[test]
fn every_crd_can_be_applied_by_kubectl() {
    for crd in kai_api::crds() {
        let size = serde_json::to_string(&crd).unwrap().len();
        assert!(size < 256 * 1024, "{} has {size} bytes", crd.metadata.name.unwrap());
    }
}

mod the_comparison {
    use super::{compare, normal};
    use serde_json::{Value, json};

    fn differences(ours: &Value, theirs: &Value) -> Vec<String> {
        let mut found = Vec::new();
        compare("", &normal(ours), &normal(theirs), &mut found);
        found
    }

    #[test]
    fn sees_changed_missing_and_added_fields_at_any_depth() {
        let theirs = json!({"a": {"type": "string", "enum": ["x", "y"]}, "b": [{"format": "int32"}]});
        let ours = json!({"a": {"type": "integer", "enum": ["y", "x"]}, "b": [{"minimum": 0}]});
        assert_eq!(
            differences(&ours, &theirs),
            [
                r#"/a/enum/0: ours "y", theirs "x""#,
                r#"/a/enum/1: ours "x", theirs "y""#,
                r#"/a/type: ours "integer", theirs "string""#,
                r#"/b/0/format: ours nothing, theirs "int32""#,
                "/b/0/minimum: ours 0.0, theirs nothing",
            ]
        );
    }

    #[test]
    fn sees_a_list_that_ends_early() {
        assert_eq!(differences(&json!([1]), &json!([1, 2])), ["/1: ours nothing, theirs 2.0"]);
    }

    #[test]
    fn overlooks_texts_and_the_order_of_required_but_not_fields_named_so() {
        let theirs =
            json!({"description": "one", "required": ["a", "b"], "properties": {"description": {"type": "string"}}});
        let ours = json!({"description": "two", "required": ["b", "a"], "properties": {}});
        assert_eq!(differences(&ours, &theirs), [r#"/properties/description: ours nothing, theirs {"type":"string"}"#]);
    }
}

fn manifests() -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/spec");
    let dir = env::var_os("KAI_SPEC_DIR").map_or_else(beside, PathBuf::from).join("crds");
    dir.is_dir().then_some(dir)
}

fn read(dir: &Path) -> BTreeMap<String, Value> {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let yaml = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let crds: BTreeMap<String, Value> =
        yaml.map(|path| named(yaml_serde::from_str(&fs::read_to_string(path).unwrap()).unwrap())).collect();
    assert!(!crds.is_empty(), "no manifests in {}", dir.display());
    crds
}

fn named(mut crd: Value) -> (String, Value) {
    let metadata = crd["metadata"].as_object_mut().unwrap();
    metadata.remove("annotations");
    (crd["metadata"]["name"].as_str().unwrap().to_owned(), crd)
}

/// Leaves out texts and bookkeeping, and writes equal things alike.
fn normal(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(key, value)| !(key.as_str() == "description" && value.is_string()))
            .map(|(key, value)| {
                let mut value = normal(value);
                if let ("required", Some(names)) = (key.as_str(), value.as_array_mut()) {
                    names.sort_by_key(ToString::to_string);
                }
                (key.clone(), value)
            })
            .collect(),
        Value::Array(items) => items.iter().map(normal).collect(),
        Value::Number(number) => number.as_f64().into(),
        other => other.clone(),
    }
}

fn compare(path: &str, ours: &Value, theirs: &Value, differences: &mut Vec<String>) {
    let mut step = |key: &str, ours: Option<&Value>, theirs: Option<&Value>| match (ours, theirs) {
        (Some(ours), Some(theirs)) => compare(&format!("{path}/{key}"), ours, theirs, differences),
        (Some(ours), None) => differences.push(format!("{path}/{key}: ours {ours}, theirs nothing")),
        (None, Some(theirs)) => differences.push(format!("{path}/{key}: ours nothing, theirs {theirs}")),
        (None, None) => {}
    };
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let keys: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
            for key in keys {
                step(key, ours.get(key), theirs.get(key));
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            for index in 0..ours.len().max(theirs.len()) {
                step(&index.to_string(), ours.get(index), theirs.get(index));
            }
        }
        _ if ours != theirs => differences.push(format!("{path}: ours {ours}, theirs {theirs}")),
        _ => {}
    }
}
