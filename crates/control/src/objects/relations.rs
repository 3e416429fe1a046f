//! What a pod asks of other pods: pod affinity, anti-affinity and topology spread constraints.

use std::collections::BTreeMap;

use super::Malformed;
use super::affinity::Operator;
use super::reader::Reader;
use super::selector::LabelSelector;

/// Everything that a pod asks of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Relations {
    /// One pod that all of these select must be in the node's domain.
    pub near: Vec<PodTerm>,
    /// No pod that one of these selects may be in the node's domain.
    pub apart: Vec<PodTerm>,
    /// Each selected pod in the node's domain counts for the node, or against it.
    pub liked: Vec<(i32, PodTerm)>,
    pub spread: Vec<SpreadRule>,
}

/// Pods of some namespaces, counted by the value of a node label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodTerm {
    pub topology_key: String,
    /// `None` selects no pod.
    pub selector: Option<LabelSelector>,
    /// By name; with no selector either, the pod's own.
    pub namespaces: Vec<String>,
    pub namespace_selector: Option<LabelSelector>,
}

/// Pods of the same namespace that are to be spread evenly.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpreadRule {
    pub topology_key: String,
    /// `None` selects no pod.
    pub selector: Option<LabelSelector>,
    pub skew_max: u32,
    /// Whether the pod waits rather than be placed unevenly.
    pub required: bool,
    pub domains_min: u32,
    /// Nodes that the pod's node selector or affinity excludes do not count.
    pub honours_affinity: bool,
    /// Nodes with a taint that the pod does not tolerate do not count.
    pub honours_taints: bool,
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

impl Relations {
    /// Reads a pod's `spec`; `None` if it asks nothing of others. Labels are those of the pod.
    pub(crate) fn read(spec: &Reader<'_>, labels: &BTreeMap<String, String>) -> Result<Option<Box<Self>>, Malformed> {
        let affinity = spec.field("affinity");
        let (near, apart) = (affinity.field("podAffinity"), affinity.field("podAntiAffinity"));
        let terms = |place: &Reader<'_>| -> Result<Vec<PodTerm>, Malformed> {
            place.field(REQUIRED).items()?.iter().map(|item| PodTerm::read(item, labels)).collect()
        };
        let mut liked = Vec::new();
        for (place, sign) in [(&near, 1), (&apart, -1)] {
            for item in place.field(PREFERRED).items()? {
                liked.push((sign * weight(&item)?, PodTerm::read(&item.field("podAffinityTerm"), labels)?));
            }
        }
        let spread = spec.field("topologySpreadConstraints").items()?;
        let spread = spread.iter().map(|item| SpreadRule::read(item, labels)).collect::<Result<_, _>>()?;
        let relations = Self { near: terms(&near)?, apart: terms(&apart)?, liked, spread };
        Ok((relations != Self::default()).then(|| Box::new(relations)))
    }
}

fn weight(item: &Reader<'_>) -> Result<i32, Malformed> {
    let place = item.field("weight");
    let weight = place.int32()?.filter(|weight| (1..=100).contains(weight));
    weight.ok_or_else(|| place.wrong("a preferred term weighs something", "write a weight from 1 to 100"))
}

fn topology_key(place: &Reader<'_>) -> Result<String, Malformed> {
    let place = place.field("topologyKey");
    place
        .name()?
        .ok_or_else(|| place.wrong("there is no topologyKey", "name a node label, such as kubernetes.io/hostname"))
}

/// The selector with what the pod's own labels add to it, as an API server does.
fn selector(place: &Reader<'_>, labels: &BTreeMap<String, String>) -> Result<Option<LabelSelector>, Malformed> {
    let Some(mut selector) = LabelSelector::read(&place.field("labelSelector"))? else { return Ok(None) };
    for (field, operator) in [("matchLabelKeys", Operator::In), ("mismatchLabelKeys", Operator::NotIn)] {
        for key in place.field(field).text_list()? {
            // A key that the pod does not have says nothing.
            if let Some(value) = labels.get(&key) {
                selector.require(key, operator, value.clone());
            }
        }
    }
    Ok(Some(selector))
}

impl PodTerm {
    fn read(place: &Reader<'_>, labels: &BTreeMap<String, String>) -> Result<Self, Malformed> {
        let mut namespaces = place.field("namespaces").text_list()?;
        namespaces.sort();
        namespaces.dedup();
        Ok(Self {
            topology_key: topology_key(place)?,
            selector: selector(place, labels)?,
            namespaces,
            namespace_selector: LabelSelector::read(&place.field("namespaceSelector"))?,
        })
    }
}

impl SpreadRule {
    fn read(place: &Reader<'_>, labels: &BTreeMap<String, String>) -> Result<Self, Malformed> {
        let skew = place.field("maxSkew");
        let unsatisfiable = place.field("whenUnsatisfiable");
        let honours = |field: &str, other: bool| {
            let place = place.field(field);
            match place.text()? {
                None => Ok(other),
                Some("Honor") => Ok(true),
                Some("Ignore") => Ok(false),
                Some(text) => Err(place.wrong(format!("`{text}` is not a policy"), "use Honor or Ignore")),
            }
        };
        Ok(Self {
            topology_key: topology_key(place)?,
            selector: selector(place, labels)?,
            skew_max: skew
                .count()?
                .filter(|skew| *skew > 0)
                .ok_or_else(|| skew.wrong("there is no maxSkew", "write a whole number from 1 up"))?,
            required: match unsatisfiable.text()? {
                Some("DoNotSchedule") => true,
                Some("ScheduleAnyway") => false,
                _ => {
                    let problem = "it does not say what to do when pods cannot be spread";
                    return Err(unsatisfiable.wrong(problem, "use DoNotSchedule or ScheduleAnyway"));
                }
            },
            domains_min: place.field("minDomains").count()?.unwrap_or(0),
            honours_affinity: honours("nodeAffinityPolicy", true)?,
            honours_taints: honours("nodeTaintsPolicy", false)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: &Value) -> Result<Option<Box<Relations>>, Malformed> {
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned()), ("hash".to_owned(), "7".to_owned())]);
        Relations::read(&Reader::root(spec), &labels)
    }

    #[test]
    fn a_pod_that_only_minds_nodes_has_no_relations() {
        assert_eq!(read(&json!({"affinity": {"nodeAffinity": {}, "podAffinity": {}}})).unwrap(), None);
    }

    #[test]
    fn own_labels_join_the_selector_once() {
        let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": [
            {"key": "hash", "operator": "In", "values": ["7"]}]});
        let term = json!({"topologyKey": "zone", "labelSelector": selector, "matchLabelKeys": ["hash", "absent"],
            "mismatchLabelKeys": ["app"]});
        let relations = read(&json!({"affinity": {"podAffinity": {REQUIRED: [term]}}})).unwrap().unwrap();
        assert_eq!(relations.near[0].selector.as_ref().unwrap().to_string(), "app=web,app!=web,hash=7");
    }

    #[test]
    fn preferred_anti_affinity_counts_against_a_node() {
        let term = json!({"weight": 10, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}});
        let relations = read(&json!({"affinity": {"podAntiAffinity": {PREFERRED: [term]}}})).unwrap().unwrap();
        assert_eq!(relations.liked[0].0, -10);
    }

    #[test]
    fn spread_constraints_have_kubernetes_defaults() {
        let rule = json!({"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"});
        let relations = read(&json!({"topologySpreadConstraints": [rule]})).unwrap().unwrap();
        let rule = &relations.spread[0];
        assert_eq!(
            (rule.required, rule.domains_min, rule.honours_affinity, rule.honours_taints),
            (false, 0, true, false)
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let complaint = |spec: &Value| read(spec).unwrap_err().field;
        let required = |term: Value| json!({"affinity": {"podAntiAffinity": {REQUIRED: [term]}}});
        assert_eq!(complaint(&required(json!({}))), format!("affinity.podAntiAffinity.{REQUIRED}[0].topologyKey"));
        let spread = |rule: Value| json!({"topologySpreadConstraints": [rule]});
        assert_eq!(
            complaint(&spread(json!({"topologyKey": "zone", "maxSkew": 0, "whenUnsatisfiable": "DoNotSchedule"}))),
            "topologySpreadConstraints[0].maxSkew"
        );
        assert_eq!(
            complaint(&spread(json!({"topologyKey": "zone", "maxSkew": 1}))),
            "topologySpreadConstraints[0].whenUnsatisfiable"
        );
    }
}
