//! Which other pods, or the lack of which, keep a pod from nodes.

use super::amounts::count;
use crate::scheduler::reasons::{InterPodRule, OtherPods};

/// What stands in the way on a number of nodes.
pub(super) fn phrase(rule: &InterPodRule, number: u32) -> String {
    let nodes = count(number, "node", "nodes");
    let (has, lacks, is) = if number == 1 { ("has", "lacks", "is") } else { ("have", "lack", "are") };
    match rule {
        InterPodRule::Affinity { topology_key: key, selector, .. } => {
            format!("{nodes} {has} no pod with {selector} in the same {key}, as its pod affinity asks for")
        }
        InterPodRule::ExclusiveClaim { claim, pods } => {
            format!("{nodes} cannot have it while {} uses claim {claim}, which is ReadWriteOncePod", other_pod(pods))
        }
        InterPodRule::AntiAffinity { topology_key: key, pods } => format!(
            "{nodes} {is} in the same {key} as {}, from which its pod anti-affinity keeps it apart",
            other_pod(pods)
        ),
        InterPodRule::ExistingAntiAffinity { topology_key: key, pods } => {
            format!("{nodes} {is} in the same {key} as {}, whose pod anti-affinity keeps it away", other_pod(pods))
        }
        InterPodRule::Spread { topology_key: key, selector } => format!(
            "{nodes} {has} too many pods with {selector} in the same {key} already, by its topology spread constraint"
        ),
        InterPodRule::NoTopologyLabel { topology_key: key } => {
            format!("{nodes} {lacks} the label {key}, by which it is to be placed among other pods")
        }
    }
}

/// What would help.
pub(super) fn hint(rule: &InterPodRule) -> Option<String> {
    match rule {
        InterPodRule::Affinity { selector, no_match_anywhere: true, .. } => Some(format!(
            "No pod that runs has {selector}: compare spec.affinity.podAffinity with the labels of pods, and their \
             namespaces."
        )),
        InterPodRule::NoTopologyLabel { topology_key } => Some(format!("Label the nodes with {topology_key}.")),
        InterPodRule::Affinity { .. }
        | InterPodRule::ExclusiveClaim { .. }
        | InterPodRule::AntiAffinity { .. }
        | InterPodRule::ExistingAntiAffinity { .. }
        | InterPodRule::Spread { .. } => None,
    }
}

/// `pod lab/web-0 or one of 3 more`; pods that were placed in this very cycle are not named.
fn other_pod(pods: &OtherPods) -> String {
    match (&pods.first, pods.more) {
        (None, _) => "another pod".to_owned(),
        (Some(pod), 0) => format!("pod {pod}"),
        (Some(pod), more) => format!("pod {pod} or one of {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::{Value, json};

    use crate::kinds::Object;
    use crate::scheduler::settings::Settings;
    use crate::scheduler::test_cluster::{NOW, render, run_and_render, world};
    use crate::scheduler::usage::Usage;

    fn check(text: &str, want: &Expect) {
        want.assert_eq(&run_and_render(text, &Settings::default()));
    }

    #[test]
    fn pods_apart_name_each_other() {
        check(
            "node a gpu=4 label:zone=x
             node b gpu=4 label:zone=x
             queue team
             job web queue=team gpu=1 app=web on=a
             job other queue=team gpu=1 app=other apart=web@zone
             job shy queue=team gpu=1 app=shy apart=late@zone on=b
             job late queue=team gpu=1 app=late",
            &expect![[r"
                late waits: PodSchedulingErrors: No node takes pod lab/late-0: 2 nodes are in the same zone as pod lab/shy-0, whose pod anti-affinity keeps it away.
                late waits: Unschedulable: No capacity can be freed. Consolidation: tried 3 scenarios, best placed 0 of 1 pods (3 lack resources). Reclaim: no victim in another queue is eligible. Preemption: no lower-priority job in the queue is eligible.
                other waits: PodSchedulingErrors: No node takes pod lab/other-0: 2 nodes are in the same zone as pod lab/web-0, from which its pod anti-affinity keeps it apart.
                other waits: Unschedulable: No capacity can be freed. Consolidation: tried 3 scenarios, best placed 0 of 1 pods (3 lack resources). Reclaim: no victim in another queue is eligible. Preemption: no lower-priority job in the queue is eligible.
            "]],
        );
    }

    #[test]
    fn pods_of_other_schedulers_count() {
        check(
            "node a gpu=4 label:zone=x
             node b gpu=4 label:zone=y
             queue team
             pod stranger app=db node=b
             job web queue=team gpu=1 near=db@zone
             job apart queue=team gpu=1 apart=db@zone
             job lost queue=team gpu=1 near=missing@zone",
            &expect![[r"
                bind web-0 b: fits; queue team now holds 2 GPUs of a fair share of 3
                bind apart-0 a: fits; queue team now holds 2 GPUs of a fair share of 3
                timestamps apart: started yes, stale no
                timestamps web: started yes, stale no
                lost waits: PodSchedulingErrors: No node takes pod lab/lost-0: 2 nodes have no pod with app=missing in the same zone, as its pod affinity asks for. No pod that runs has app=missing: compare spec.affinity.podAffinity with the labels of pods, and their namespaces.
                lost waits: Unschedulable: No capacity can be freed. Consolidation: tried 3 scenarios, best placed 0 of 1 pods (3 lack resources). Reclaim: no victim in another queue is eligible. Preemption: no lower-priority job in the queue is eligible.
            "]],
        );
    }

    #[test]
    fn uneven_domains_and_missing_labels_are_reported() {
        check(
            "node a gpu=1 label:zone=x
             node b gpu=4 label:zone=y
             node c gpu=4
             queue team
             job web queue=team gpu=1 pods=4 min=1 app=web spread=web@zone*1",
            &expect![[r"
                bind web-0 a: fits together with 2 more pods; queue team now holds 3 GPUs of a fair share of 4
                bind web-1 b: fits together with 2 more pods; queue team now holds 3 GPUs of a fair share of 4
                bind web-2 b: fits together with 2 more pods; queue team now holds 3 GPUs of a fair share of 4
                timestamps web: started yes, stale no
                web waits: PodSchedulingErrors: No node takes pod lab/web-3: 1 node has too many pods with app=web in the same zone already, by its topology spread constraint; 1 node lacks GPUs (short of 1 GPU); 1 node lacks the label zone, by which it is to be placed among other pods. Label the nodes with zone.
                web waits: Unschedulable: No capacity can be freed. No running job may be moved or evicted for it.
            "]],
        );
    }

    #[test]
    fn preferences_choose_among_nodes() {
        check(
            "node a gpu=4 label:zone=x
             node b gpu=4 label:zone=y
             queue team
             job fill queue=team gpu=3 on=a
             job db queue=team gpu=1 app=db on=b
             job web queue=team gpu=1 likes=db@zone*10",
            &expect![[r"
                bind web-0 b: fits; queue team now holds 5 GPUs of a fair share of 5
                timestamps web: started yes, stale no
            "]],
        );
    }

    /// A pod elsewhere that the term would find if it looked there.
    fn across_namespaces(term: &Value, want: &Expect) {
        let mut world = world(
            "node a gpu=4 label:zone=x
             queue team
             job web queue=team gpu=1",
        );
        let namespace = json!({"kind": "Namespace", "metadata": {"name": "store", "labels": {"tier": "data"}}});
        let db = json!({"kind": "Pod", "metadata": {"name": "db", "namespace": "store", "labels": {"app": "db"}},
            "spec": {"nodeName": "a"}, "status": {"phase": "Running"}});
        let mut term = term.clone();
        term["topologyKey"] = json!("zone");
        term["labelSelector"] = json!({"matchLabels": {"app": "db"}});
        let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        let web = json!({"kind": "Pod", "metadata": {"name": "web-0", "namespace": "lab", "annotations": {"pod-group-name": "web"}},
            "spec": {"schedulerName": "kai-scheduler", "affinity": affinity}});
        for object in [namespace, db, web] {
            world.apply(Object::parse(&object).unwrap().unwrap());
        }
        let cycle = crate::scheduler::cycle(&world, &Settings::default(), &Usage::default(), NOW);
        want.assert_eq(render(&cycle).lines().next().unwrap_or_default());
    }

    #[test]
    fn terms_search_the_namespaces_that_they_name() {
        let bound = expect!["bind web-0 a: fits; queue team now holds 0 CPU cores of a fair share of 0"];
        let waits = expect![
            "web waits: PodSchedulingErrors: No node takes pod lab/web-0: 1 node is in the same zone as pod store/db, from which its pod anti-affinity keeps it apart."
        ];
        across_namespaces(&json!({}), &bound);
        across_namespaces(&json!({"namespaces": ["lab"]}), &bound);
        across_namespaces(&json!({"namespaces": ["store"]}), &waits);
        across_namespaces(&json!({"namespaceSelector": {}}), &waits);
        across_namespaces(&json!({"namespaceSelector": {"matchLabels": {"tier": "data"}}}), &waits);
        across_namespaces(&json!({"namespaceSelector": {"matchLabels": {"tier": "web"}}}), &bound);
        let by_name = json!({"matchLabels": {"kubernetes.io/metadata.name": "lab"}});
        across_namespaces(&json!({"namespaceSelector": by_name, "namespaces": ["store"]}), &waits);
        across_namespaces(&json!({"namespaceSelector": by_name}), &bound);
    }
}
