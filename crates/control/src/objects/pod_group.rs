//! A gang and its tree of sub-groups.

use std::collections::BTreeMap;

use kai_api::SchedulingCondition;
use kai_api::keys::{annotation, priority};
use kai_engine::units::{Span, Timestamp};
use kai_workloads::default_group_name;
use serde::Deserialize;
use serde_json::Value;

use super::field_reader::{FieldReader, parse_time};
use super::pod::Owner;
use super::{Malformed, Pod};
use crate::key::{GroupKey, PodKey};

/// What matters of a `PodGroup`.
#[derive(Clone, Debug, PartialEq)]
pub struct PodGroup {
    pub key: GroupKey,
    /// Empty if the object carries none.
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    /// The pod that owns it, if one does.
    pub owner_pod: Option<String>,
    pub created: Timestamp,
    pub queue: String,
    pub priority_class: Option<String>,
    /// `None` leaves it to the priority.
    pub preemptible: Option<bool>,
    pub min_member: Option<u32>,
    pub min_sub_group: Option<u32>,
    pub sub_groups: Vec<SubGroup>,
    pub constraint: Option<TopologyConstraint>,
    pub preemption_delay: Span,
    /// `None` takes the scheduler's, `Some(None)` is for ever.
    pub staleness_grace: Option<Option<Span>>,
    pub last_start: Option<Timestamp>,
    pub stale_since: Option<Timestamp>,
    pub last_eviction: Option<Timestamp>,
    /// Node pool on which it gave up after one unsuccessful cycle.
    pub backed_off_on: Option<String>,
    /// Whether it gives up after an unsuccessful cycle at all.
    pub backs_off: bool,
    /// Whether its waiting pods are marked as unschedulable.
    pub mark_unschedulable: bool,
    /// Its scheduling conditions, as stored.
    pub conditions: Vec<SchedulingCondition>,
}

/// A node of the tree below the pod group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubGroup {
    pub name: String,
    pub parent: Option<String>,
    pub min_member: Option<u32>,
    pub min_sub_group: Option<u32>,
    pub constraint: Option<TopologyConstraint>,
}

/// Where a group must or should stay together.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopologyConstraint {
    pub topology: String,
    pub required: Option<String>,
    pub preferred: Option<String>,
}

impl PodGroup {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let (metadata, spec) = (root.field("metadata"), root.field("spec"));
        let preemptibility = spec.field("preemptibility");
        // A time that does not parse is as good as none: the scheduler writes these itself.
        let noted = |key: &str| -> Result<Option<Timestamp>, Malformed> {
            Ok(metadata.field("annotations").field(key).text()?.and_then(parse_time))
        };
        let owners = metadata.field("ownerReferences").items()?;
        let owners = owners.iter().map(Owner::read).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            key: GroupKey::new(root.object_namespace()?, root.object_name()?),
            owner_pod: owners
                .into_iter()
                .find(|owner| owner.kind == "Pod" && owner.api_version == "v1")
                .map(|owner| owner.name),
            labels: metadata.field("labels").string_map()?,
            created: metadata.field("creationTimestamp").time()?.unwrap_or(Timestamp(0)),
            queue: spec.field("queue").text_or_empty()?,
            priority_class: spec.field("priorityClassName").non_empty_text()?,
            preemptible: match preemptibility.non_empty_text()?.as_deref() {
                None => None,
                Some("preemptible") => Some(true),
                Some("non-preemptible") => Some(false),
                Some(other) => {
                    let problem = format!("`{other}` is not a preemptibility");
                    return Err(preemptibility.invalid(problem, "use preemptible or non-preemptible"));
                }
            },
            min_member: spec.field("minMember").count()?,
            min_sub_group: spec.field("minSubGroup").count()?,
            sub_groups: spec.field("subGroups").items()?.iter().map(SubGroup::read).collect::<Result<_, _>>()?,
            constraint: TopologyConstraint::read(&spec.field("topologyConstraint"))?,
            preemption_delay: Span(spec.field("preemptionDelay").span()?.map_or(0, |span| span.0.max(0))),
            staleness_grace: spec
                .field("stalenessGracePeriod")
                .span()?
                .map(|span| Some(span).filter(|span| span.0 >= 0)),
            last_start: noted(annotation::LAST_START_TIMESTAMP)?,
            stale_since: noted(annotation::STALE_POD_GROUP_TIMESTAMP)?,
            last_eviction: noted(annotation::LAST_EVICTION_TIMESTAMP)?,
            uid: metadata.field("uid").text_or_empty()?,
            backed_off_on: backed_off_on(&root)?,
            backs_off: spec.field("schedulingBackoff").integer()?.is_some_and(|limit| limit != -1),
            mark_unschedulable: spec.field("markUnschedulable").flag()?.unwrap_or(true),
            conditions: conditions(&root),
        })
    }
}

impl PodGroup {
    /// The pod that owns it, if one does.
    pub(crate) fn owner_key(&self) -> Option<PodKey> {
        self.owner_pod.as_ref().map(|name| PodKey::new(&self.key.namespace, name))
    }

    /// Whether the grouper made it for a pod without owners, which belongs to it even before it is linked.
    pub(crate) fn is_implicit_group_of(&self, pod: &Pod) -> bool {
        pod.group_name().is_none()
            && self.sub_groups.is_empty()
            && self.key.namespace == pod.key.namespace
            && self.key.name == default_group_name(&pod.key.name, &pod.uid)
    }

    /// Whether others may evict it: as it says, else by its priority.
    pub(crate) fn is_preemptible(&self, value: i32) -> bool {
        self.preemptible.unwrap_or(value < priority::NON_PREEMPTIBLE_MIN)
    }
}

impl SubGroup {
    fn read(place: &FieldReader<'_>) -> Result<Self, Malformed> {
        let name = place.field("name");
        Ok(Self {
            name: name.non_empty_text()?.ok_or_else(|| name.invalid("the sub-group has no name", "give it a name"))?,
            parent: place.field("parent").non_empty_text()?,
            min_member: place.field("minMember").count()?,
            min_sub_group: place.field("minSubGroup").count()?,
            constraint: TopologyConstraint::read(&place.field("topologyConstraint"))?,
        })
    }
}

impl TopologyConstraint {
    fn read(place: &FieldReader<'_>) -> Result<Option<Self>, Malformed> {
        let Some(topology) = place.field("topology").non_empty_text()? else { return Ok(None) };
        Ok(Some(Self {
            topology,
            required: place.field("requiredTopologyLevel").non_empty_text()?,
            preferred: place.field("preferredTopologyLevel").non_empty_text()?,
        }))
    }
}

/// Ours to write; what cannot be read is as good as none.
fn conditions(root: &FieldReader<'_>) -> Vec<SchedulingCondition> {
    let stored = root.field("status").field("schedulingConditions");
    stored.value().and_then(|value| Vec::deserialize(value).ok()).unwrap_or_default()
}

/// A back-off of -1, or none, keeps trying. Otherwise the newest condition names the pool that is given up.
fn backed_off_on(root: &FieldReader<'_>) -> Result<Option<String>, Malformed> {
    if root.field("spec").field("schedulingBackoff").integer()?.is_none_or(|limit| limit == -1) {
        return Ok(None);
    }
    let mut newest: Option<(i64, String)> = None;
    for item in root.field("status").field("schedulingConditions").items()? {
        let id = item.field("transitionID").text()?.and_then(|text| text.parse().ok()).unwrap_or(-1);
        if newest.as_ref().is_none_or(|(known, _)| id > *known) {
            newest = Some((id, item.field("nodePool").text_or_empty()?));
        }
    }
    Ok(newest.map(|(_, pool)| pool))
}

#[cfg(test)]
impl PodGroup {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        let constraint = json!({"topology": "t", "requiredTopologyLevel": "a", "preferredTopologyLevel": "b"});
        json!({"metadata": {"name": "g", "annotations": {
            "kai.scheduler/last-start-timestamp": "2026-01-01T00:00:00Z"}},
        "spec": {"queue": "q", "minMember": 1, "minSubGroup": 1, "priorityClassName": "train", "schedulingBackoff": 1,
            "preemptibility": "preemptible", "preemptionDelay": "1s", "stalenessGracePeriod": "-1s",
            "topologyConstraint": constraint,
            "subGroups": [{"name": "a", "parent": "b", "minMember": 1, "minSubGroup": 1, "topologyConstraint": constraint}]},
        "status": {"schedulingConditions": [{"transitionID": "1", "nodePool": "p"}]}})
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn group(spec: &Value) -> Result<PodGroup, Malformed> {
        PodGroup::parse(&json!({"metadata": {"name": "g", "namespace": "lab"}, "spec": spec}))
    }

    #[test]
    fn zero_is_not_absent() {
        assert_eq!(group(&json!({"minMember": 0})).unwrap().min_member, Some(0));
        assert_eq!(group(&json!({})).unwrap().min_member, None);
        assert_eq!(group(&json!({"minMember": -1})).unwrap_err().field, "spec.minMember");
    }

    #[test]
    fn a_negative_grace_is_for_ever() {
        let grace = |text: &str| group(&json!({"stalenessGracePeriod": text})).unwrap().staleness_grace;
        assert_eq!(grace("-1s"), Some(None));
        assert_eq!(grace("5m"), Some(Some(Span::seconds(300))));
        assert_eq!(group(&json!({})).unwrap().staleness_grace, None);
    }

    #[test]
    fn a_constraint_without_a_topology_is_none() {
        let constraint = |spec: Value| group(&json!({"topologyConstraint": spec})).unwrap().constraint;
        assert_eq!(constraint(json!({"requiredTopologyLevel": "rack"})), None);
        let found = constraint(json!({"topology": "dc", "requiredTopologyLevel": "rack"})).unwrap();
        assert_eq!((found.required.as_deref(), found.preferred), (Some("rack"), None));
    }

    #[test]
    fn times_come_from_annotations() {
        let annotations = json!({
            "kai.scheduler/last-start-timestamp": "1970-01-01T00:00:05Z",
            "kai.scheduler/stale-podgroup-timestamp": "yesterday",
        });
        let group = PodGroup::parse(&json!({"metadata": {"name": "g", "annotations": annotations}})).unwrap();
        assert_eq!((group.last_start, group.stale_since), (Some(Timestamp(5_000_000)), None));
    }

    #[test]
    fn the_newest_condition_names_the_pool_given_up() {
        let object = |backoff: i32| {
            json!({"metadata": {"name": "g"}, "spec": {"schedulingBackoff": backoff}, "status": {
                "schedulingConditions": [{"transitionID": "2", "nodePool": "b"}, {"transitionID": "1", "nodePool": "a"}],
            }})
        };
        assert_eq!(PodGroup::parse(&object(1)).unwrap().backed_off_on.as_deref(), Some("b"));
        assert_eq!(PodGroup::parse(&object(-1)).unwrap().backed_off_on, None);
    }
}
