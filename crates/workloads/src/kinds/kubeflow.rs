//! Training jobs of Kubeflow: a gang of all replicas, unless the job says how many suffice.
//!
//! ```text
//! spec.runPolicy.schedulingPolicy.minAvailable     if given, nothing else is checked
//! spec.<kind>ReplicaSpecs.<Type>.replicas          otherwise their sum; each type must have some
//! ```

use crate::error::GroupError;
use crate::group::{GroupSpec, Minimum};
use crate::object::{FieldRef, Object};
use crate::workload::Workload;

/// `replica_specs` is the field of `spec` that lists the replica types; each of `mandatory` must be among them.
pub fn distributed(workload: &Workload<'_>, replica_specs: &str, mandatory: &[&str]) -> Result<GroupSpec, GroupError> {
    let members = match min_available(workload.object)? {
        Some(members) => members,
        None => replicas_sum(&replica_specs_of(workload.object, replica_specs)?, mandatory)?,
    };
    Ok(GroupSpec { minimum: Minimum::Members(members), ..workload.base() })
}

pub(super) fn min_available(job: Object<'_>) -> Result<Option<i32>, GroupError> {
    job.root().int("spec.runPolicy.schedulingPolicy.minAvailable")
}

pub(super) fn replica_specs_of<'a>(job: Object<'a>, field: &str) -> Result<FieldRef<'a>, GroupError> {
    job.root().field_required(&format!("spec.{field}"))
}

pub(super) fn replicas_sum(specs: &FieldRef<'_>, mandatory: &[&str]) -> Result<i32, GroupError> {
    for kind in mandatory {
        specs.field_required(kind)?;
    }
    let mut sum = 0_i32;
    for (_, spec) in specs.fields()? {
        let replicas = spec.field_required("replicas")?;
        match replicas.as_int()? {
            0 => return Err(replicas.malformed("a number of pods other than 0")),
            count => sum = sum.saturating_add(count),
        }
    }
    if sum <= 0 {
        return Err(specs.malformed("replicas that add up to at least one pod"));
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::related::ObjectStore;
    use crate::settings::Settings;

    fn members(spec: &Value) -> Result<Minimum, GroupError> {
        let job = json!({"kind": "XJob", "metadata": {"name": "x"}, "spec": spec});
        let (pod, related, settings) = (json!({}), ObjectStore::default(), Settings::default());
        let workload = Workload::new(Object::new(&job), Vec::new(), Object::new(&pod), &related, &settings);
        distributed(&workload, "xReplicaSpecs", &["Master"]).map(|spec| spec.minimum)
    }

    #[test]
    fn all_replicas_unless_fewer_suffice() {
        let specs = json!({"Master": {"replicas": 1}, "Worker": {"replicas": 4}});
        assert_eq!(members(&json!({"xReplicaSpecs": specs})), Ok(Minimum::Members(5)));
        let policy = json!({"schedulingPolicy": {"minAvailable": 2}});
        assert_eq!(members(&json!({"runPolicy": policy, "xReplicaSpecs": specs})), Ok(Minimum::Members(2)));
        assert_eq!(members(&json!({"runPolicy": policy})), Ok(Minimum::Members(2)), "nothing else is checked");
    }

    #[test]
    fn every_type_needs_pods() {
        for specs in [
            json!({"Worker": {"replicas": 4}}),
            json!({"Master": {"replicas": 1}, "Worker": {"replicas": 0}}),
            json!({"Master": {"replicas": 1}, "Worker": {}}),
            json!({"Master": {"replicas": "1"}}),
            json!({"Master": {"replicas": -1}}),
            json!({"Master": 3}),
            json!({}),
            json!([]),
        ] {
            assert!(members(&json!({"xReplicaSpecs": specs})).is_err(), "{specs}");
        }
        assert!(members(&Value::Null).is_err());
    }
}
