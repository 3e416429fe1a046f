//! What a pod asks of other pods: pod affinity, anti-affinity and topology spread constraints.

use std::collections::BTreeMap;

use super::Malformed;
use super::affinity::Operator;
use super::field_reader::FieldReader;
use super::selector::LabelSelector;

/// Everything that a pod asks of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterPodRules {
    /// One pod that all of these select must be in the node's domain.
    pub required_affinity: Vec<PodAffinityTerm>,
    /// No pod that one of these selects may be in the node's domain.
    pub required_anti_affinity: Vec<PodAffinityTerm>,
    /// Each selected pod in the node's domain counts for the node, or against it.
    pub preferred: Vec<(i32, PodAffinityTerm)>,
    pub topology_spread: Vec<TopologySpreadConstraint>,
}

/// Pods of some namespaces, counted by the value of a node label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodAffinityTerm {
    pub topology_key: String,
    /// `None` selects no pod.
    pub selector: Option<LabelSelector>,
    /// By name; with no selector either, the pod's own.
    pub namespaces: Vec<String>,
    pub namespace_selector: Option<LabelSelector>,
}

/// Pods of the same namespace that are to be spread evenly.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopologySpreadConstraint {
    pub topology_key: String,
    /// `None` selects no pod.
    pub selector: Option<LabelSelector>,
    pub max_skew: u32,
    /// Whether the pod waits rather than be placed unevenly.
    pub required: bool,
    pub min_domains: u32,
    /// Nodes that the pod's node selector or affinity excludes do not count.
    pub honours_affinity: bool,
    /// Nodes with a taint that the pod does not tolerate do not count.
    pub honours_taints: bool,
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

impl InterPodRules {
    /// Reads a pod's `spec`; `None` if it asks nothing of others. Labels are those of the pod.
    pub(crate) fn read(
        spec: &FieldReader<'_>,
        labels: &BTreeMap<String, String>,
    ) -> Result<Option<Box<Self>>, Malformed> {
        let affinity = spec.field("affinity");
        let (required_affinity, required_anti_affinity) =
            (affinity.field("podAffinity"), affinity.field("podAntiAffinity"));
        let terms = |place: &FieldReader<'_>| -> Result<Vec<PodAffinityTerm>, Malformed> {
            place.field(REQUIRED).items()?.iter().map(|item| PodAffinityTerm::read(item, labels)).collect()
        };
        let mut preferred = Vec::new();
        for (place, sign) in [(&required_affinity, 1), (&required_anti_affinity, -1)] {
            for item in place.field(PREFERRED).items()? {
                preferred.push((sign * weight(&item)?, PodAffinityTerm::read(&item.field("podAffinityTerm"), labels)?));
            }
        }
        let constraints = spec.field("topologySpreadConstraints").items()?;
        let topology_spread =
            constraints.iter().map(|item| TopologySpreadConstraint::read(item, labels)).collect::<Result<_, _>>()?;
        let inter_pod = Self {
            required_affinity: terms(&required_affinity)?,
            required_anti_affinity: terms(&required_anti_affinity)?,
            preferred,
            topology_spread,
        };
        Ok((inter_pod != Self::default()).then(|| Box::new(inter_pod)))
    }
}

fn weight(item: &FieldReader<'_>) -> Result<i32, Malformed> {
    let place = item.field("weight");
    let weight = place.int32()?.filter(|weight| (1..=100).contains(weight));
    weight.ok_or_else(|| place.invalid("weight is missing or not within 1 to 100", "write a weight from 1 to 100"))
}

fn topology_key(place: &FieldReader<'_>) -> Result<String, Malformed> {
    let place = place.field("topologyKey");
    place
        .non_empty_text()?
        .ok_or_else(|| place.invalid("there is no topologyKey", "name a node label, such as kubernetes.io/hostname"))
}

/// The selector with what the pod's own labels add to it, as an API server does.
fn selector(place: &FieldReader<'_>, labels: &BTreeMap<String, String>) -> Result<Option<LabelSelector>, Malformed> {
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

impl PodAffinityTerm {
    fn read(place: &FieldReader<'_>, labels: &BTreeMap<String, String>) -> Result<Self, Malformed> {
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

impl TopologySpreadConstraint {
    fn read(place: &FieldReader<'_>, labels: &BTreeMap<String, String>) -> Result<Self, Malformed> {
        let skew = place.field("maxSkew");
        let unsatisfiable = place.field("whenUnsatisfiable");
        let honours = |field: &str, other: bool| {
            let place = place.field(field);
            match place.text()? {
                None => Ok(other),
                Some("Honor") => Ok(true),
                Some("Ignore") => Ok(false),
                Some(text) => Err(place.invalid(format!("`{text}` is not a policy"), "use Honor or Ignore")),
            }
        };
        Ok(Self {
            topology_key: topology_key(place)?,
            selector: selector(place, labels)?,
            max_skew: skew
                .count()?
                .filter(|skew| *skew > 0)
                .ok_or_else(|| skew.invalid("there is no maxSkew", "write a whole number from 1 up"))?,
            required: match unsatisfiable.text()? {
                Some("DoNotSchedule") => true,
                Some("ScheduleAnyway") => false,
                _ => {
                    let problem = "it does not say what to do when pods cannot be spread";
                    return Err(unsatisfiable.invalid(problem, "use DoNotSchedule or ScheduleAnyway"));
                }
            },
            min_domains: place.field("minDomains").count()?.unwrap_or(0),
            honours_affinity: honours("nodeAffinityPolicy", true)?,
            honours_taints: honours("nodeTaintsPolicy", false)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: &Value) -> Result<Option<Box<InterPodRules>>, Malformed> {
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned()), ("hash".to_owned(), "7".to_owned())]);
        InterPodRules::read(&FieldReader::root(spec), &labels)
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
        let inter_pod = read(&json!({"affinity": {"podAffinity": {REQUIRED: [term]}}})).unwrap().unwrap();
        assert_eq!(inter_pod.required_affinity[0].selector.as_ref().unwrap().to_string(), "app=web,app!=web,hash=7");
    }

    #[test]
    fn preferred_anti_affinity_counts_against_a_node() {
        let term = json!({"weight": 10, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}});
        let inter_pod = read(&json!({"affinity": {"podAntiAffinity": {PREFERRED: [term]}}})).unwrap().unwrap();
        assert_eq!(inter_pod.preferred[0].0, -10);
    }

    #[test]
    fn spread_constraints_have_kubernetes_defaults() {
        let rule = json!({"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"});
        let inter_pod = read(&json!({"topologySpreadConstraints": [rule]})).unwrap().unwrap();
        let rule = &inter_pod.topology_spread[0];
        assert_eq!(
            (rule.required, rule.min_domains, rule.honours_affinity, rule.honours_taints),
            (false, 0, true, false)
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let wrong_field = |spec: &Value| read(spec).unwrap_err().field;
        let required = |term: Value| json!({"affinity": {"podAntiAffinity": {REQUIRED: [term]}}});
        assert_eq!(wrong_field(&required(json!({}))), format!("affinity.podAntiAffinity.{REQUIRED}[0].topologyKey"));
        let spread = |rule: Value| json!({"topologySpreadConstraints": [rule]});
        assert_eq!(
            wrong_field(&spread(json!({"topologyKey": "zone", "maxSkew": 0, "whenUnsatisfiable": "DoNotSchedule"}))),
            "topologySpreadConstraints[0].maxSkew"
        );
        assert_eq!(
            wrong_field(&spread(json!({"topologyKey": "zone", "maxSkew": 1}))),
            "topologySpreadConstraints[0].whenUnsatisfiable"
        );
    }
}
