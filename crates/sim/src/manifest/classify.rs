//! Sorts documents by kind.

use kai_control::key::NAMESPACE_DEFAULT;
use serde_json::Value;

use super::document::Document;
use crate::input_error::{InputError, SourceLocation};
use crate::kinds::{Id, Kind, understood};

/// `apiVersion` and `kind` of the document that describes a simulation.
pub(crate) const SCENARIO: (&str, &str) = ("kai.scheduler/v1alpha1", "Scenario");

/// An object of the input.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Where it was written.
    pub(crate) location: SourceLocation,
    /// What it is called.
    pub(crate) id: Id,
    /// All of it.
    pub(crate) value: Value,
}

/// What a document turned out to hold.
pub(crate) enum Content {
    Object(Item),
    /// Of a kind that has to be declared, with what to say if it is not.
    Unknown(Item, InputError),
    Scenario(Document),
}

/// Sorts a document by kind; lists are opened, kinds without effect are dropped.
pub(crate) fn classify(document: Document, found: &mut Vec<Content>) -> Result<(), InputError> {
    let Document { location, value } = document;
    if !value.is_object() {
        return Err(InputError::new(
            location,
            "this document is not a Kubernetes object",
            "start it with `apiVersion:`, `kind:` and `metadata:`",
        ));
    }
    let word = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (word("apiVersion"), word("kind"));
    if kind.is_empty() {
        return Err(InputError::new(
            location.field("kind"),
            "the object does not say its kind",
            "add `kind:` and `apiVersion:`",
        ));
    }
    if kind == SCENARIO.1 {
        expect_version(&location, &kind, &api_version, SCENARIO.0)?;
        found.push(Content::Scenario(Document { location, value }));
        return Ok(());
    }
    if let (true, Some(Value::Array(items))) = (kind.ends_with("List"), value.get("items")) {
        for (index, item) in items.iter().enumerate() {
            let location = location.object(format!("{kind} items[{index}]"));
            classify(Document { location, value: item.clone() }, found)?;
        }
        return Ok(());
    }
    let metadata = |key: &str| value.pointer(&format!("/metadata/{key}")).and_then(Value::as_str);
    let of_name = || understood().filter(|row| row.name == kind);
    // Groups may have kinds of one name.
    let exact = of_name().find(|row| row.api_version == api_version);
    let Some(row) = exact.or_else(|| of_name().next()) else {
        let help = match kai_control::did_you_mean::closest_match(&kind, Kind::names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "remove it, or declare it in the config map kai-workload-kinds if it makes pods".to_owned(),
        };
        let unknown =
            InputError::new(location.object(&kind), format!("the simulator does not know kind `{kind}`"), help);
        let namespace = metadata("namespace").filter(|namespace| !namespace.is_empty()).unwrap_or(NAMESPACE_DEFAULT);
        let Some(name) = metadata("name").filter(|name| name_problem(name).is_none()) else { return Err(unknown) };
        let id = Id::referred(&api_version, &kind, namespace, name);
        found.push(Content::Unknown(Item { location: location.object(&id), id, value }, unknown));
        return Ok(());
    };
    expect_version(&location, &kind, &api_version, row.api_version)?;
    let name = match metadata("name") {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => {
            let location = location.object(&kind).field("metadata.name");
            return Err(InputError::new(location, "the object has no name", "give it a metadata.name"));
        }
    };
    if let Some(problem) = name_problem(&name) {
        let location = location.object(format!("{kind} {name}")).field("metadata.name");
        return Err(InputError::new(
            location,
            problem,
            "use lower-case letters, digits, `-` and `.`, at most 253 of them",
        ));
    }
    let namespace = match metadata("namespace") {
        Some(namespace) if row.namespaced && !namespace.is_empty() => namespace.to_owned(),
        _ if row.namespaced => NAMESPACE_DEFAULT.to_owned(),
        _ => String::new(),
    };
    let id = Id { kind: row.kind, namespace, name };
    found.push(Content::Object(Item { location: location.object(&id), id, value }));
    Ok(())
}

fn expect_version(location: &SourceLocation, kind: &str, found: &str, wanted: &str) -> Result<(), InputError> {
    if found == wanted {
        return Ok(());
    }
    let problem = if found.is_empty() {
        format!("{kind} does not say its apiVersion")
    } else {
        format!("{kind} of `{found}` is not understood")
    };
    Err(InputError::new(location.object(kind).field("apiVersion"), problem, format!("write `apiVersion: {wanted}`")))
}

fn name_problem(name: &str) -> Option<String> {
    let allowed =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-' || letter == '.';
    let edge = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    let good =
        name.len() <= 253 && name.chars().all(allowed) && edge(name.chars().next()) && edge(name.chars().next_back());
    (!good).then(|| format!("`{name}` is not a name that Kubernetes accepts"))
}
