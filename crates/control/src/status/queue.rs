//! Status of queues: their children, and what the workloads below them ask for and hold, at every level at once.

use std::collections::BTreeMap;

use kai_api::{PodGroupResources, QueueStatus};

use crate::ancestors::with_ancestors;
use crate::objects::Queue;
use crate::resource_sum::ResourceSum;

#[derive(Clone, Default)]
struct Sums {
    allocated: ResourceSum,
    non_preemptible: ResourceSum,
    requested: ResourceSum,
}

/// The status of every queue, from the status of the pod groups in them. Conditions are left to their writers.
pub fn statuses<'a>(
    queues: &BTreeMap<String, Queue>,
    groups: impl IntoIterator<Item = (&'a str, &'a PodGroupResources)>,
) -> BTreeMap<String, QueueStatus> {
    let mut sums: BTreeMap<&str, Sums> = queues.keys().map(|name| (name.as_str(), Sums::default())).collect();
    for (queue, resources) in groups {
        let (allocated, non_preemptible, requested) = (
            ResourceSum::from_list(&resources.allocated),
            ResourceSum::from_list(&resources.allocated_non_preemptible),
            ResourceSum::from_list(&resources.requested),
        );
        for name in with_ancestors(queue, |name| queues.get(name)?.parent.as_deref()) {
            let Some(sum) = sums.get_mut(name) else { continue };
            sum.allocated.add(&allocated);
            sum.non_preemptible.add(&non_preemptible);
            sum.requested.add(&requested);
        }
    }
    let mut children: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for queue in queues.values() {
        if let Some(parent) = &queue.parent {
            children.entry(parent).or_default().push(queue.name.clone());
        }
    }
    sums.into_iter()
        .map(|(name, sum)| {
            let status = QueueStatus {
                conditions: Vec::new(),
                child_queues: children.remove(name).unwrap_or_default(),
                allocated: sum.allocated.to_list(),
                allocated_non_preemptible: sum.non_preemptible.to_list(),
                requested: sum.requested.to_list(),
            };
            (name.to_owned(), status)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use expect_test::expect;
    use serde_json::json;

    use super::*;

    fn queue(name: &str, parent: Option<&str>) -> (String, Queue) {
        let object = json!({"metadata": {"name": name}, "spec": {"parentQueue": parent}});
        (name.to_owned(), Queue::parse(&object).unwrap())
    }

    fn resources(gpus: i64, non_preemptible: bool) -> PodGroupResources {
        let mut sum = ResourceSum::default();
        sum.add_milli("nvidia.com/gpu", gpus * 1000);
        let (allocated, requested) = (sum.to_list(), sum.to_list());
        let allocated_non_preemptible = if non_preemptible { sum.to_list() } else { BTreeMap::new() };
        PodGroupResources { allocated, allocated_non_preemptible, requested }
    }

    #[test]
    fn every_level_sums_what_is_below_it() {
        let queues = BTreeMap::from([
            queue("top", None),
            queue("left", Some("top")),
            queue("right", Some("top")),
            queue("leaf", Some("left")),
        ]);
        let (small, large) = (resources(1, true), resources(4, false));
        let found = statuses(&queues, [("leaf", &small), ("right", &large), ("nowhere", &large)]);
        let mut text = String::new();
        for (name, status) in found {
            let gpus = |list: &BTreeMap<String, _>| list.get("nvidia.com/gpu").map_or_else(|| "-".to_owned(), gpu_text);
            writeln!(
                text,
                "{name} children={:?} allocated={} non_preemptible={} requested={}",
                status.child_queues,
                gpus(&status.allocated),
                gpus(&status.allocated_non_preemptible),
                gpus(&status.requested),
            )
            .unwrap();
        }
        expect![[r#"
            leaf children=[] allocated=1 non_preemptible=1 requested=1
            left children=["leaf"] allocated=1 non_preemptible=1 requested=1
            right children=[] allocated=4 non_preemptible=- requested=4
            top children=["left", "right"] allocated=5 non_preemptible=1 requested=5
        "#]]
        .assert_eq(&text);
    }

    fn gpu_text(amount: &k8s_openapi::apimachinery::pkg::api::resource::Quantity) -> String {
        amount.0.clone()
    }

    #[test]
    fn a_circle_of_queues_ends() {
        let queues = BTreeMap::from([queue("a", Some("b")), queue("b", Some("a"))]);
        let one = resources(1, false);
        let found = statuses(&queues, [("a", &one)]);
        assert_eq!(found["b"].allocated["nvidia.com/gpu"].0, "1");
        assert_eq!(found["a"].child_queues, ["b"]);
    }
}
