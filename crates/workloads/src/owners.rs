//! From a pod up its owner references to the object that stands for the whole workload.
//!
//! The caller reads. What it may not read shapes the result, as in NVIDIA KAI: a pod below an object of a kind that the
//! podgrouper may not read is grouped as if the last readable object were the top.

use serde_json::Value;
use thiserror::Error;

use crate::brief::brief;
use crate::object::Object;
use crate::object_ref::ObjectRef;

/// Owners of a pod, nearest first; the last one, the top owner, in full. Empty for a bare pod.
#[derive(Debug, Clone, Default)]
pub struct Owners<'a> {
    pub chain: Vec<&'a Value>,
}

impl<'a> Owners<'a> {
    pub fn none() -> Self {
        Self::default()
    }

    pub fn top(&self) -> Option<&'a Value> {
        self.chain.last().copied()
    }
}

impl<'a> FromIterator<&'a Value> for Owners<'a> {
    fn from_iter<I: IntoIterator<Item = &'a Value>>(chain: I) -> Self {
        Self { chain: chain.into_iter().collect() }
    }
}

/// One hop of the walk. The namespace is the pod's; for cluster-scoped kinds it means nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerQuery {
    pub object: ObjectRef,
    pub uid: String,
}

/// What became of a query.
#[derive(Debug, Clone, Copy)]
pub enum Lookup<'a> {
    Found(&'a Value),
    /// The API server does not allow to read this kind: the walk ends below it.
    Forbidden,
    Missing,
    /// The API server has not been asked yet.
    NotFetched,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WalkError {
    #[error("{object} has more than one owner: {}", brief(&.owners.join(", "), 500))]
    SeveralOwners { object: ObjectRef, owners: Vec<String> },
    #[error("owner {} with uid {} does not exist", .0.object, brief(&.0.uid, 100))]
    Missing(Box<OwnerQuery>),
    #[error("owner {} is not the one referred to: uid {} instead of {}", .wanted.object, brief(.found, 100), brief(&.wanted.uid, 100))]
    Replaced { wanted: Box<OwnerQuery>, found: String },
    #[error("owner {} has not been read yet", .0.object)]
    NotFetched(Box<OwnerQuery>),
    #[error("{0} has owners more than {HOPS_MAX} levels up")]
    Endless(ObjectRef),
}

/// No real workload nests nearly as deep; owner references in a circle end here.
const HOPS_MAX: usize = 32;

/// Follows the first owner reference of the pod, then the only one of each owner.
pub fn walk<'a>(pod: &Value, mut read: impl FnMut(&OwnerQuery) -> Lookup<'a>) -> Result<Owners<'a>, WalkError> {
    let namespace = Object::new(pod).namespace();
    let mut owners = Owners::none();
    // Further references on the pod itself are not asked; those of an owner would be ambiguous.
    let mut next = references(pod).next();
    while let Some(reference) = next {
        if owners.chain.len() == HOPS_MAX {
            return Err(WalkError::Endless(Object::new(pod).reference()));
        }
        let query = Box::new(query(reference, namespace));
        let owner = match read(&query) {
            Lookup::Found(owner) => owner,
            Lookup::Forbidden => break,
            Lookup::Missing => return Err(WalkError::Missing(query)),
            Lookup::NotFetched => return Err(WalkError::NotFetched(query)),
        };
        let found = Object::new(owner);
        if found.uid() != query.uid {
            return Err(WalkError::Replaced { found: found.uid().to_owned(), wanted: query });
        }
        if references(owner).nth(1).is_some() {
            let text = |reference: &Value| reference["name"].as_str().unwrap_or_default().to_owned();
            // Enough to see whose they are.
            let owners = references(owner).take(8).map(text).collect();
            return Err(WalkError::SeveralOwners { object: found.reference(), owners });
        }
        owners.chain.push(owner);
        next = references(owner).next();
    }
    Ok(owners)
}

pub(crate) fn references(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

fn query(reference: &Value, namespace: &str) -> OwnerQuery {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    OwnerQuery {
        object: ObjectRef::new(text("apiVersion"), text("kind"), namespace, text("name")),
        uid: text("uid").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, owners: &[&str]) -> Value {
        let references: Vec<_> =
            owners.iter().map(|owner| json!({"kind": "X", "name": owner, "uid": format!("uid-{owner}")})).collect();
        json!({"kind": "X", "metadata": {"name": name, "uid": format!("uid-{name}"), "ownerReferences": references}})
    }

    fn check(pod: &Value, objects: &[Value], forbidden: &str) -> Result<Vec<String>, WalkError> {
        let owners = walk(pod, |query| {
            if query.object.name == forbidden {
                return Lookup::Forbidden;
            }
            let found = objects.iter().find(|object| Object::new(object).name() == query.object.name);
            found.map_or(Lookup::Missing, Lookup::Found)
        })?;
        Ok(owners.chain.iter().map(|owner| Object::new(owner).name().to_owned()).collect())
    }

    #[test]
    fn walks_to_the_top_and_stops_where_it_may_not_read() {
        let pod = object("pod", &["rs", "ignored"]);
        let objects = [object("rs", &["deploy"]), object("deploy", &["app"]), object("app", &[])];
        assert_eq!(check(&pod, &objects, "").unwrap(), ["rs", "deploy", "app"]);
        assert_eq!(check(&pod, &objects, "app").unwrap(), ["rs", "deploy"]);
        assert!(check(&pod, &objects, "rs").unwrap().is_empty());
        assert!(check(&object("pod", &[]), &objects, "").unwrap().is_empty());
    }

    #[test]
    fn refuses_what_is_ambiguous_missing_or_expired() {
        let pod = object("pod", &["rs"]);
        let several = check(&pod, &[object("rs", &["a", "b"])], "").unwrap_err();
        assert_eq!(several.to_string(), "X rs has more than one owner: a, b");
        assert!(matches!(check(&pod, &[], ""), Err(WalkError::Missing(_))));
        let mut other = object("rs", &[]);
        other["metadata"]["uid"] = json!("new");
        assert!(matches!(check(&pod, &[other], ""), Err(WalkError::Replaced { .. })));
        let circle = object("rs", &["rs"]);
        assert!(matches!(check(&pod, &[circle], ""), Err(WalkError::Endless(_))));
    }
}
