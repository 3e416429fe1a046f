//! Knative Service: a gang of the first replicas of a Revision, or each pod by itself.
//!
//! Preemptibility, topology and durations are not taken over from the Revision, as ever.

use std::collections::BTreeMap;

use crate::base::group_name;
use crate::error::GroupError;
use crate::group::{GroupSpec, Minimum, OwnerRef};
use crate::object::Object;
use crate::object_ref::ObjectRef;
use crate::priority::INFERENCE;
use crate::row::RuleDoc;
use crate::workload::Workload;

const API: &str = "serving.knative.dev/v1";
const REVISION: &str = "serving.knative.dev/revision";
const MIN_SCALE: &str = "autoscaling.knative.dev/min-scale";

pub const ABOUT: RuleDoc = RuleDoc {
    group: "per Revision, or per pod",
    minimum: "annotation `autoscaling.knative.dev/min-scale` of the Revision, else 1",
    sub_groups: "–",
    class: INFERENCE,
};

pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    let pod = workload.pod;
    let name = pod.label_required(REVISION)?;
    let at = ObjectRef::new(API, "Revision", pod.namespace(), name);
    let revision = Object::read_as(workload.read(at, pod, &format!("label {REVISION}"))?, API, "Revision");
    let base = GroupSpec {
        preemptibility: None,
        topology: None,
        preemption_delay: None,
        staleness_grace_period: None,
        ..workload.base_on(revision, INFERENCE)
    };
    if starts_together(workload, name)? {
        let members = revision.annotation_int(MIN_SCALE).ok().flatten().unwrap_or(1);
        return Ok(GroupSpec { minimum: Minimum::Members(members), ..base });
    }
    Ok(GroupSpec { name: group_name(pod), owner: OwnerRef::of(pod), priority_class: INFERENCE.to_owned(), ..base })
}

/// Stays with what the pods of the revision already do; a fresh revision starts together.
fn starts_together(workload: &Workload<'_>, revision: &str) -> Result<bool, GroupError> {
    if !workload.settings.knative_gang_schedule {
        return Ok(false);
    }
    let pod = workload.pod;
    let mut pods_by_group = BTreeMap::<String, usize>::new();
    for other in workload.related.pods(pod.namespace(), &[(REVISION, revision)]) {
        if let Some(group) = other.pod_group {
            *pods_by_group.entry(group).or_default() += 1;
        }
    }
    if pods_by_group.values().any(|pods| *pods > 1) {
        return Ok(true);
    }
    let mut groups = pods_by_group.keys();
    match (groups.next(), groups.next()) {
        (None, _) => Ok(true),
        (Some(_), Some(_)) => Ok(false),
        (Some(only), None) => {
            let Some(stored) = workload.related.pod_group(pod.namespace(), only) else { return Ok(true) };
            match stored.owner_kind.as_deref() {
                Some("Revision") => Ok(true),
                Some("Pod") => Ok(false),
                other => {
                    let field = format!("owner of the group {only} of its revision");
                    Err(pod.malformed(field, "a Revision or a Pod", other.unwrap_or("nobody")))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::related::ObjectStore;
    use crate::settings::Settings;
    use crate::testing::try_group_with;

    fn pod(name: &str, group: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "lab", "uid": "u",
            "labels": {REVISION: "web-2"}, "annotations": {"pod-group-name": group}}})
    }

    fn stored(name: &str, owner: &Value) -> Value {
        json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "lab", "ownerReferences": owner}})
    }

    fn group(gang: bool, others: Vec<Value>) -> Result<GroupSpec, GroupError> {
        let service = json!({"apiVersion": API, "kind": "Service", "metadata": {"name": "web"}});
        let revision = json!({"apiVersion": API, "kind": "Revision", "metadata": {
            "name": "web-2", "namespace": "lab", "uid": "r",
            "annotations": {MIN_SCALE: "3", "kai.scheduler/topology": "dc"}}});
        let related: ObjectStore = others.into_iter().chain([revision]).collect();
        let settings = Settings { knative_gang_schedule: gang, ..Settings::default() };
        try_group_with(&[service], &pod("p", &Value::Null), &related, &settings)
    }

    #[track_caller]
    fn check(gang: bool, others: Vec<Value>, name: &str) {
        assert_eq!(group(gang, others).unwrap().name, name);
    }

    #[test]
    fn stays_with_what_the_revision_already_does() {
        let (together, alone) = ("pg-web-2-r", "pg-p-u");
        let linked = |name: &str, group: &str| pod(name, &json!(group));
        let owner = |kind: &str| json!([{"kind": kind}]);
        check(false, vec![], alone);
        check(true, vec![], together);
        check(true, vec![linked("a", "g"), linked("b", "g")], together);
        check(true, vec![linked("a", "g"), linked("b", "h")], alone);
        check(true, vec![linked("a", "g")], together);
        check(true, vec![linked("a", "g"), stored("g", &owner("Revision"))], together);
        check(true, vec![linked("a", "g"), stored("g", &owner("Pod"))], alone);
        assert!(group(true, vec![linked("a", "g"), stored("g", &owner("Job"))]).is_err());
        assert!(group(true, vec![linked("a", "g"), stored("g", &Value::Null)]).is_err());
    }

    #[test]
    fn the_minimum_is_the_minimum_scale() {
        let spec = group(true, vec![]).unwrap();
        assert_eq!((spec.minimum, spec.priority_class.as_str()), (Minimum::Members(3), INFERENCE));
        assert_eq!((spec.owner.kind.as_str(), spec.topology), ("Revision", None));
        assert_eq!(group(false, vec![]).unwrap().minimum, Minimum::Members(1));
    }
}
