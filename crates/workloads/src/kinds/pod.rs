//! A bare pod, or a pod that spawned other pods: one group per top pod.
//!
//! Spark is recognised here: executors are owned by the driver pod, and the label that selects the
//! application names the group. Executors are elastic.

use crate::error::GroupError;
use crate::group::GroupSpec;
use crate::priority::TRAIN;
use crate::row::RuleDoc;
use crate::workload::Workload;

const SPARK_APP_NAME: &str = "spark-app-name";
const SPARK_APP_SELECTOR: &str = "spark-app-selector";

pub const ABOUT: RuleDoc = RuleDoc {
    group: "per pod without an owner; Spark applications share one",
    minimum: "1",
    sub_groups: "–",
    class: TRAIN,
};

#[allow(clippy::unnecessary_wraps, reason = "shape of every rule in the table")]
pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    let mut spec = workload.base();
    let pod = workload.pod;
    if let (Some(_), Some(selector)) = (pod.label(SPARK_APP_NAME), pod.label(SPARK_APP_SELECTOR)) {
        selector.clone_into(&mut spec.name);
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{check_group, outline};

    #[test]
    fn a_bare_pod_is_its_own_group() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "probe", "namespace": "lab", "uid": "u", "labels": {"user": "ada"}}});
        let spec = check_group(&[], &pod);
        assert_eq!((spec.name.as_str(), spec.namespace.as_str()), ("pg-probe-u", "lab"));
        assert_eq!((spec.queue.as_str(), spec.priority_class.as_str()), ("default-queue", "train"));
        assert_eq!((spec.owner.kind.as_str(), spec.owner.name.as_str()), ("Pod", "probe"));
        assert_eq!(outline(&spec), "* 1");
    }

    #[test]
    fn spark_driver_and_executors_share_a_group() {
        let labels = json!({"spark-app-name": "pi", "spark-app-selector": "spark-42"});
        let driver = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "driver", "labels": labels}});
        let executor = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "exec-1", "labels": labels}});
        for (owners, pod) in [(vec![], &driver), (vec![driver.clone()], &executor)] {
            let spec = check_group(&owners, pod);
            assert_eq!((spec.name.as_str(), spec.owner.name.as_str()), ("spark-42", "driver"));
        }
    }
}
