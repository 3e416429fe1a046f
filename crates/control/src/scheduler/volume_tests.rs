//! Volumes and config maps: which nodes they leave, what pods take from each other, and which reasons are given.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::settings::Settings;
use super::test_cluster::{NOW, render, world};
use super::usage::Usage;
use crate::kinds::Object;

const DRIVER: &str = "csi.example.com";

/// A claim of 10 G. One with a volume is bound to it.
fn claim(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["resources"] = json!({"requests": {"storage": "10G"}});
    let bound = spec["volumeName"].is_string().then_some("yes");
    let metadata = json!({"name": name, "namespace": "lab",
        "annotations": bound.map(|yes| json!({"pv.kubernetes.io/bind-completed": yes}))});
    json!({"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
}

/// A volume of 10 G.
fn volume(name: &str, spec: &Value, labels: &Value) -> Value {
    let mut spec = spec.clone();
    spec["capacity"] = json!({"storage": "10G"});
    json!({"kind": "PersistentVolume", "metadata": {"name": name, "labels": labels}, "spec": spec})
}

fn on_nodes(names: &[&str]) -> Value {
    let field = json!({"key": "metadata.name", "operator": "In", "values": names});
    json!({"required": {"nodeSelectorTerms": [{"matchFields": [field]}]}})
}

fn class(name: &str, provisioner: &str, mode: &str) -> Value {
    json!({"kind": "StorageClass", "metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode})
}

/// A cycle over the test cluster and the objects, without the explanations of searches for victims.
fn check(text: &str, objects: &[Value], want: &Expect) {
    let mut world = world(text);
    for object in objects {
        world.apply(Object::parse(object).unwrap().unwrap());
    }
    let cycle = super::cycle(&world, &Settings::default(), &Usage::default(), NOW);
    let about_nodes = |line: &&str| !line.contains("No capacity can be freed") && !line.starts_with("timestamps ");
    let lines: Vec<String> =
        render(&cycle).lines().filter(about_nodes).map(|line| line.replace("; queue team now holds", " |")).collect();
    want.assert_eq(&lines.join("\n"));
}

#[test]
fn a_bound_volume_ties_its_pod_to_nodes_and_zones() {
    let zone = |value: &str| json!({"topology.kubernetes.io/zone": value});
    let objects = [
        claim("here", &json!({"volumeName": "pv-here"})),
        volume("pv-here", &json!({"nodeAffinity": on_nodes(&["b"])}), &json!({})),
        claim("zone", &json!({"volumeName": "pv-zone"})),
        volume("pv-zone", &json!({}), &zone("x__z")),
        claim("old-label", &json!({"volumeName": "pv-old"})),
        volume("pv-old", &json!({}), &json!({"failure-domain.beta.kubernetes.io/zone": "x"})),
        claim("away", &json!({"volumeName": "pv-away"})),
        volume("pv-away", &json!({"nodeAffinity": on_nodes(&["gone"])}), &json!({})),
        claim("far", &json!({"volumeName": "pv-far"})),
        volume("pv-far", &json!({}), &zone("w")),
    ];
    check(
        "node a gpu=4 label:topology.kubernetes.io/zone=y
         node b gpu=4 label:topology.kubernetes.io/zone=x
         queue team
         job one queue=team gpu=1 claims=here
         job two queue=team gpu=1 claims=zone
         job three queue=team gpu=1 claims=old-label
         job four queue=team gpu=1 claims=away
         job five queue=team gpu=1 claims=far",
        &objects,
        &expect![[r"
            bind one-0 b: fits | 3 GPUs of a fair share of 5
            bind two-0 b: fits | 3 GPUs of a fair share of 5
            bind three-0 b: fits | 3 GPUs of a fair share of 5
            five waits: PodSchedulingErrors: No node takes pod lab/five-0: 2 nodes are in another zone than a volume of the pod. Volume pv-far of claim lab/far is labelled topology.kubernetes.io/zone=w.
            four waits: PodSchedulingErrors: No node takes pod lab/four-0: 2 nodes cannot reach a volume of the pod. Volume pv-away of claim lab/away is only accessible from nodes that match its spec.nodeAffinity."]],
    );
}

#[test]
fn a_node_without_zone_labels_may_be_in_any_zone() {
    let objects = [
        claim("zone", &json!({"volumeName": "pv"})),
        volume("pv", &json!({}), &json!({"topology.kubernetes.io/region": "west"})),
    ];
    check(
        "node a gpu=4\n queue team\n job one queue=team gpu=1 claims=zone",
        &objects,
        &expect!["bind one-0 a: fits | 1 GPU of a fair share of 1"],
    );
}

#[test]
fn missing_objects_are_reported_independent_of_nodes() {
    let mut lost = claim("lost", &json!({"volumeName": "pv"}));
    lost["status"] = json!({"phase": "Lost"});
    let mut leaving = claim("leaving", &json!({"volumeName": "pv"}));
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut asks = claim("asks", &json!({"volumeName": "pv"}));
    asks["metadata"]["annotations"] = json!({});
    let objects = [
        claim("immediate", &json!({"storageClassName": "now"})),
        claim("typo", &json!({"storageClassName": "nwo"})),
        claim("plain", &json!({})),
        claim("dangling", &json!({"volumeName": "nowhere"})),
        class("now", DRIVER, "Immediate"),
        volume("pv", &json!({}), &json!({})),
        lost,
        leaving,
        asks,
        json!({"kind": "ConfigMap", "metadata": {"name": "there", "namespace": "lab"}}),
    ];
    check(
        "node a gpu=2
         queue team
         job full queue=team gpu=1 on=a
         job one queue=team gpu=1 claims=absent,immediate
         job two queue=team gpu=1 claims=typo,plain
         job three queue=team gpu=1 claims=dangling,lost,leaving,asks
         job four queue=team gpu=1 config=settings
         job five queue=team gpu=4 config=settings
         job six queue=team gpu=1 config=there",
        &objects,
        &expect![[r"
            bind six-0 a: fits | 2 GPUs of a fair share of 2
            five waits: PodSchedulingErrors: Pod lab/five-0 cannot run anywhere yet: ConfigMap lab/settings does not exist: create it, or make the reference to it optional.
            four waits: PodSchedulingErrors: Pod lab/four-0 cannot run anywhere yet: ConfigMap lab/settings does not exist: create it, or make the reference to it optional.
            one waits: PodSchedulingErrors: Pod lab/one-0 cannot run anywhere yet: PersistentVolumeClaim lab/absent does not exist: create it; PersistentVolumeClaim lab/immediate is not bound yet: StorageClass now binds claims at once, whatever the node.
            three waits: PodSchedulingErrors: Pod lab/three-0 cannot run anywhere yet: PersistentVolumeClaim lab/asks is not bound yet: it asks for PersistentVolume pv in spec.volumeName; PersistentVolume nowhere of claim lab/dangling does not exist; PersistentVolumeClaim lab/leaving is being deleted; PersistentVolumeClaim lab/lost has lost its volume: create another claim.
            two waits: PodSchedulingErrors: Pod lab/two-0 cannot run anywhere yet: PersistentVolumeClaim lab/plain is not bound yet: it names no spec.storageClassName, so that it takes a volume without one; PersistentVolumeClaim lab/typo is not bound yet: its StorageClass nwo does not exist."]],
    );
}

#[test]
fn the_last_free_volume_of_a_node_goes_to_one_pod() {
    let local = |node: &str| json!({"storageClassName": "local", "nodeAffinity": on_nodes(&[node])});
    let waiting = json!({"storageClassName": "local"});
    let mut taken = volume("pv-taken", &local("c"), &json!({}));
    taken["spec"]["claimRef"] = json!({"namespace": "lab", "name": "other"});
    let mut kept = volume("pv-kept", &local("c"), &json!({}));
    kept["spec"]["claimRef"] = json!({"namespace": "lab", "name": "kept"});
    let objects = [
        class("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        volume("pv-a", &local("a"), &json!({})),
        volume("pv-b", &local("b"), &json!({})),
        taken,
        kept,
        claim("one", &waiting),
        claim("two", &waiting),
        claim("three", &waiting),
        claim("kept", &waiting),
        claim("large", &json!({"storageClassName": "local", "accessModes": ["ReadWriteMany"]})),
    ];
    check(
        "node a gpu=4
         node b gpu=4
         node c gpu=4
         queue team
         job one queue=team gpu=1 claims=one
         job two queue=team gpu=1 claims=two
         job three queue=team gpu=1 claims=three
         job four queue=team gpu=1 claims=kept
         job five queue=team gpu=1 claims=large",
        &objects,
        &expect![[r"
            bind one-0 a: fits | 3 GPUs of a fair share of 5
            bind two-0 b: fits | 3 GPUs of a fair share of 5
            bind four-0 c: fits | 3 GPUs of a fair share of 5
            five waits: PodSchedulingErrors: No node takes pod lab/five-0: 3 nodes have no free volume for a claim of the pod, and none can be provisioned there. StorageClass local does not provision: create a PersistentVolume that fits claim lab/large.
            three waits: PodSchedulingErrors: No node takes pod lab/three-0: 2 nodes have insufficient capacity of StorageClass local after other pods' claims; 1 node has no free volume for a claim of the pod, and none can be provisioned there. StorageClass local does not provision: create a PersistentVolume that fits claim lab/three."]],
    );
}

#[test]
fn volumes_are_made_where_the_class_allows_and_space_is_left() {
    let mut fast = class("fast", DRIVER, "WaitForFirstConsumer");
    fast["allowedTopologies"] = json!([{"matchLabelExpressions": [{"key": "zone", "values": ["x", "y"]}]}]);
    let capacity = |name: &str, zone: &str, size: &str| {
        json!({"kind": "CSIStorageCapacity", "metadata": {"name": name}, "storageClassName": "fast", "capacity": size,
            "nodeTopology": {"matchLabels": {"zone": zone}}})
    };
    let waiting = json!({"storageClassName": "fast"});
    let mut provisioning = claim("three", &waiting);
    provisioning["metadata"]["annotations"] = json!({"volume.kubernetes.io/selected-node": "a"});
    let objects = [
        fast,
        json!({"kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"storageCapacity": true}}),
        capacity("x", "x", "15G"),
        capacity("y", "y", "5G"),
        claim("one", &waiting),
        claim("two", &waiting),
        provisioning,
    ];
    check(
        "node a gpu=1 label:zone=z
         node b gpu=2 label:zone=y
         node c gpu=4 label:zone=x
         queue team
         job one queue=team gpu=1 claims=one
         job two queue=team gpu=1 claims=two
         job three queue=team gpu=1 claims=three",
        &objects,
        &expect![[r"
            bind one-0 c: fits | 1 GPU of a fair share of 3
            three waits: PodSchedulingErrors: No node takes pod lab/three-0: 3 nodes have no free volume for a claim of the pod, and none can be provisioned there. A volume for claim lab/three is being provisioned for node a.
            two waits: PodSchedulingErrors: No node takes pod lab/two-0: 1 node has insufficient capacity of StorageClass fast after other pods' claims; 1 node has insufficient storage capacity for a claim; 1 node has no free volume for a claim of the pod, and none can be provisioned there. CSI driver csi.example.com reports too little capacity for claim lab/two, see CSIStorageCapacity of class fast. StorageClass fast of claim lab/two only provisions in its allowedTopologies."]],
    );
}

#[test]
fn a_node_takes_so_many_volumes_and_a_shared_one_counts_once() {
    let made = json!({"csi": {"driver": DRIVER}});
    let limit = json!({"drivers": [{"name": DRIVER, "allocatable": {"count": 2}}]});
    let mut objects = vec![json!({"kind": "CSINode", "metadata": {"name": "a"}, "spec": limit})];
    for name in ["shared", "one", "two"] {
        objects.push(claim(name, &json!({"volumeName": format!("pv-{name}")})));
        objects.push(volume(&format!("pv-{name}"), &made, &json!({})));
    }
    check(
        "node a gpu=8
         queue team
         pod stranger node=a claims=shared
         job user queue=team gpu=1 claims=shared
         job one queue=team gpu=1 claims=one
         job two queue=team gpu=1 claims=two",
        &objects,
        &expect![[r"
            bind user-0 a: fits | 2 GPUs of a fair share of 3
            bind one-0 a: fits | 2 GPUs of a fair share of 3
            two waits: PodSchedulingErrors: No node takes pod lab/two-0: 1 node has as many volumes of driver csi.example.com as CSINode allows."]],
    );
}

#[test]
fn a_claim_for_one_pod_has_one_user_in_the_whole_cluster() {
    let objects = [
        claim("solo", &json!({"volumeName": "pv", "accessModes": ["ReadWriteOncePod"]})),
        volume("pv", &json!({}), &json!({})),
    ];
    check(
        "node a gpu=4
         node b gpu=4
         queue team
         job old queue=team gpu=1 claims=solo on=a
         job new queue=team gpu=1 claims=solo",
        &objects,
        &expect![
            "new waits: PodSchedulingErrors: No node takes pod lab/new-0: 2 nodes cannot have it while pod lab/old-0 uses claim lab/solo, which is ReadWriteOncePod."
        ],
    );
}

#[test]
fn a_claim_that_a_pod_brings_along_must_be_its_own() {
    let pod = json!({"kind": "Pod", "metadata": {"name": "one-0", "namespace": "lab", "uid": "7",
            "annotations": {"pod-group-name": "one"}},
        "spec": {"schedulerName": "kai-scheduler", "volumes": [{"name": "scratch", "ephemeral": {}}]}});
    let mut scratch = claim("one-0-scratch", &json!({"volumeName": "pv"}));
    let text = "node a gpu=4\n queue team\n job one queue=team gpu=1";
    let pv = volume("pv", &json!({}), &json!({}));
    check(
        text,
        std::slice::from_ref(&pod),
        &expect![
            "one waits: PodSchedulingErrors: Pod lab/one-0 cannot run anywhere yet: PersistentVolumeClaim lab/one-0-scratch has not been created for it yet."
        ],
    );
    check(
        text,
        &[pod.clone(), scratch.clone(), pv.clone()],
        &expect![
            "one waits: PodSchedulingErrors: Pod lab/one-0 cannot run anywhere yet: PersistentVolumeClaim lab/one-0-scratch was not created for it: delete the claim, or rename the pod or its volume."
        ],
    );
    scratch["metadata"]["ownerReferences"] = json!([{"uid": "7", "controller": true}]);
    check(text, &[pod, scratch, pv], &expect!["bind one-0 a: fits | 0 CPU cores of a fair share of 0"]);
}
