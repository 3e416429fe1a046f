//! Makes derived schemas say what KAI's CRDs say.
//!
//! KAI's are made from Go types and their markers by controller-gen, ours from Rust types by schemars. The two differ in
//! a few systematic ways; each is a function here, either named by the field it concerns or applied to all by [`finish`].

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use schemars::{
    Schema,
    transform::{Transform, transform_subschemas},
};
use serde_json::{Map, Value, json};

const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
const LABEL_KEY: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";

/// Go's `int` carries no format, only `int32` and `int64` do.
pub(crate) fn plain_int(schema: &mut Schema) {
    schema.remove("format");
}

/// [`plain_int`] for the values of a map.
pub(crate) fn plain_int_values(schema: &mut Schema) {
    each(schema, "additionalProperties", plain_int);
}

/// A number above 0, at most 1.
pub(crate) fn ratio(schema: &mut Schema) {
    schema.insert("minimum".into(), json!(0));
    schema.insert("exclusiveMinimum".into(), json!(true));
    schema.insert("maximum".into(), json!(1));
}

/// A label key, with or without a domain.
pub(crate) fn label_key(schema: &mut Schema) {
    schema.insert("minLength".into(), json!(1));
    schema.insert("maxLength".into(), json!(316));
    schema.insert("pattern".into(), json!(LABEL_KEY));
}

/// Rules across the levels of a Topology; their messages reach users through the API server.
pub(crate) fn topology_levels(schema: &mut Schema) {
    schema.insert("x-kubernetes-list-type".into(), json!("atomic"));
    schema.insert(
        "x-kubernetes-validations".into(),
        json!([
            {
                "rule": "self.map(l, l.nodeLabel) == oldSelf.map(l, l.nodeLabel)",
                "message": "nodeLabel structure is immutable; only aliases may be edited",
            },
            {
                "rule": "size(self.filter(i, size(self.filter(j, j.nodeLabel == i.nodeLabel)) > 1)) == 0",
                "message": "nodeLabel must be unique",
            },
            {
                "rule": "size(self.filter(i, i.nodeLabel == 'kubernetes.io/hostname')) == 0 || \
                         self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",
                "message": "the kubernetes.io/hostname label can only be used at the lowest level of topology",
            },
        ]),
    );
}

/// A list of Kubernetes' own conditions, whose limits are markers in Go and absent from its OpenAPI document.
pub(crate) fn conditions(schema: &mut Schema) {
    let limits = [
        ("type", json!({"maxLength": 316, "pattern": LABEL_KEY})),
        ("status", json!({"enum": ["True", "False", "Unknown"]})),
        ("observedGeneration", json!({"minimum": 0})),
        ("reason", json!({"minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"})),
        ("message", json!({"maxLength": 32768})),
    ];
    each(schema, "items", |condition: &mut Schema| {
        without_texts(condition);
        for (field, limits) in &limits {
            let field = property(condition, field).expect("a condition has the fields Kubernetes gives it");
            field.extend(limits.as_object().expect("limits are written as objects above").clone());
        }
    });
}

/// A type of Kubernetes itself, whose merge hints and defaults schemars does not know.
///
/// Drops its texts too: they are long, repeat in every component, and would make the Config CRD larger than
/// `kubectl apply` accepts.
pub(crate) fn embedded(schema: &mut Schema) {
    schema.remove("description");
    if ["nodeSelectorTerms", "matchFields", "matchLabels"].iter().any(|name| property(schema, name).is_some()) {
        schema.insert("x-kubernetes-map-type".into(), json!("atomic"));
    }
    if let Some(claims) = property(schema, "claims") {
        claims.insert("x-kubernetes-list-type".into(), json!("map"));
        claims.insert("x-kubernetes-list-map-keys".into(), json!(["name"]));
    }
    // Tolerations of devices; those of nodes, which look the same, go through `node_tolerations`.
    if property(schema, "tolerationSeconds").is_some()
        && let Some(operator) = property(schema, "operator")
    {
        operator.insert("default".into(), json!("Equal"));
    }
    if has_type(schema, "array") && schema.get("x-kubernetes-list-type").is_none() {
        schema.insert("x-kubernetes-list-type".into(), json!("atomic"));
    }
    if has_type(schema, "object") && schema.get("properties").is_none() && schema.get("additionalProperties").is_none()
    {
        schema.insert("x-kubernetes-preserve-unknown-fields".into(), json!(true));
    }
    transform_subschemas(&mut embedded, schema);
}

/// [`embedded`] for the items of a list that is our own.
pub(crate) fn embedded_items(schema: &mut Schema) {
    each(schema, "items", embedded);
}

/// A list of tolerations of node taints. Drops their texts, as [`embedded`] does.
pub(crate) fn node_tolerations(schema: &mut Schema) {
    each(schema, "items", without_texts);
}

fn without_texts(schema: &mut Schema) {
    schema.remove("description");
    transform_subschemas(&mut without_texts, schema);
}

/// Applies what holds for every schema, and adds the parts of an object kube leaves to the API server.
pub(crate) fn finish(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    for version in &mut crd.spec.versions {
        let derived = version.schema.as_mut().and_then(|validation| validation.open_api_v3_schema.take());
        let derived = derived.expect("derived kinds have a schema");
        version.schema.get_or_insert_default().open_api_v3_schema = Some(finish_object(&derived));
    }
    crd
}

fn finish_object(derived: &JSONSchemaProps) -> JSONSchemaProps {
    let value = serde_json::to_value(derived).expect("a schema is JSON");
    let mut schema = Schema::try_from(value).expect("an object's schema is an object");
    everywhere(&mut schema);

    // A spec in which nothing is required may be left out itself.
    if schema.pointer("/properties/spec/required").is_none() {
        schema.remove("required");
    }
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    let properties = properties.expect("an object has properties");
    properties.insert(
        "apiVersion".into(),
        json!({"type": "string", "description": "Group and version of this object's schema."}),
    );
    properties.insert("kind".into(), json!({"type": "string", "description": "Kind of this object."}));
    properties.insert("metadata".into(), json!({"type": "object"}));
    serde_json::from_value(schema.to_value()).expect("the rules above keep it a schema")
}

fn everywhere(schema: &mut Schema) {
    // Optional fields are left out, never null.
    schema.remove("nullable");
    schema.remove("title");
    if schema.get("format").is_some_and(|format| format == "double") {
        schema.remove("format");
    }
    if schema.remove("x-kubernetes-int-or-string").is_some() {
        schema.remove("description");
        schema.insert("anyOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
        schema.insert("pattern".into(), json!(QUANTITY));
        schema.insert("x-kubernetes-int-or-string".into(), json!(true));
    }
    transform_subschemas(&mut everywhere, schema);
}

fn has_type(schema: &Schema, name: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(only)) => only == name,
        Some(Value::Array(several)) => several.iter().any(|one| one == name),
        _ => false,
    }
}

fn property<'a>(schema: &'a mut Schema, name: &str) -> Option<&'a mut Map<String, Value>> {
    schema.get_mut("properties")?.get_mut(name)?.as_object_mut()
}

fn each(schema: &mut Schema, keyword: &str, mut change: impl Transform) {
    let below = schema.get_mut(keyword).expect("the field is a list or map");
    change.transform(below.try_into().expect("what a list or map holds has a schema"));
}
