//! Bad scenarios: an unknown key is never ignored, a reference into nothing never tried.

use expect_test::{Expect, expect};

use super::invocation::{Folder, check_file, test_name, transcript};

/// A node, a Job and a scenario with the given body.
fn check(body: &str, expected: Expect) {
    let text = format!(
        "apiVersion: v1
kind: Node
metadata: {{name: node-1}}
status: {{allocatable: {{cpu: 8, nvidia.com/gpu: 8}}}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: train, namespace: team}}
spec: {{template: {{spec: {{containers: [{{name: main}}], schedulerName: kai-scheduler}}}}}}
---
apiVersion: kai.scheduler/v1alpha1
kind: Scenario
metadata: {{name: demo}}
spec:
{body}
"
    );
    check_file(&text, &expected);
}

#[test]
fn an_unknown_key() {
    check(
        "  untill: 1h",
        expect![[r#"
        exit 1
        -- stderr
        error: unknown key `untill`
          --> a.yaml, document 3 (line 11), Scenario demo, spec.untill
          help: did you mean `until`?
    "#]],
    );
}

#[test]
fn an_unknown_key_of_a_step() {
    check(
        "  steps: [{at: 1s, nodedown: node-1}]",
        expect![[r#"
        exit 1
        -- stderr
        error: unknown key `nodedown`
          --> a.yaml, document 3 (line 11), Scenario demo, spec.steps[0].nodedown
          help: did you mean `nodeDown`?
    "#]],
    );
}

#[test]
fn an_unknown_key_that_resembles_nothing() {
    check(
        "  weather: sunny",
        expect![[r#"
        exit 1
        -- stderr
        error: unknown key `weather`
          --> a.yaml, document 3 (line 11), Scenario demo, spec.weather
          help: understood here: until, scheduler, steps, running, duration, durations, podStartDelay, podStartJitter, podStopDelay, nodeLossDelay, description
    "#]],
    );
}

#[test]
fn a_time_without_a_unit() {
    check(
        "  until: 90",
        expect![[r#"
        exit 1
        -- stderr
        error: expected a span of time such as 10s, 5m or 1h30m, found the number 90
          --> a.yaml, document 3 (line 11), Scenario demo, spec.until
          help: write a span of time such as 10s, 5m or 1h30m here
    "#]],
    );
}

#[test]
fn a_step_without_a_time() {
    check(
        "  steps: [{nodeDown: node-1}]",
        expect![[r#"
        exit 1
        -- stderr
        error: `at` is missing
          --> a.yaml, document 3 (line 11), Scenario demo, spec.steps[0]
          help: add `at:` here
    "#]],
    );
}

#[test]
fn a_step_that_does_nothing() {
    check(
        "  steps: [{at: 1s}]",
        expect![[r#"
        exit 1
        -- stderr
        error: the step does nothing
          --> a.yaml, document 3 (line 11), Scenario demo, spec.steps[0]
          help: give each step exactly one of apply, delete, scale, nodeDown, nodeUp; steps may share their time
    "#]],
    );
}

#[test]
fn a_step_that_does_two_things() {
    check(
        "  steps: [{at: 1s, nodeDown: node-1, nodeUp: node-1}]",
        expect![[r#"
        exit 1
        -- stderr
        error: the step does several things: nodeDown, nodeUp
          --> a.yaml, document 3 (line 11), Scenario demo, spec.steps[0]
          help: give each step exactly one of apply, delete, scale, nodeDown, nodeUp; steps may share their time
    "#]],
    );
}

#[test]
fn a_node_that_does_not_exist() {
    check(
        "  steps: [{at: 1s, nodeDown: node-7}]",
        expect![[r#"
        exit 1
        -- stderr
        error: Node node-7 does not exist
          --> a.yaml, document 3 (line 11), Scenario demo, spec.steps[0].nodeDown
          help: did you mean `node-1`?
    "#]],
    );
}

#[test]
fn scaling_what_has_no_size() {
    check(
        "  steps: [{at: 1s, scale: {kind: Node, name: node-1, replicas: 2}}]",
        expect![[r#"
            exit 1
            -- stderr
            error: a Node cannot be scaled
              --> a.yaml, document 3 (line 11), Scenario demo, spec.steps[0].scale.kind
              help: scale a Deployment, ReplicaSet, StatefulSet, LeaderWorkerSet or Job (its parallelism), or apply a file with the new numbers
        "#]],
    );
}

#[test]
fn deleting_what_is_deleted_already() {
    let body = "  steps:
  - {at: 1s, delete: {kind: Job, name: team/train}}
  - {at: 2s, delete: {kind: Job, name: train, namespace: team}}";
    check(
        body,
        expect![[r#"
        exit 1
        -- stderr
        error: Job team/train does not exist
          --> a.yaml, document 3 (line 11), Scenario demo, spec.steps[1].delete
          help: there is no Job at that time
    "#]],
    );
}

#[test]
fn a_running_pod_that_does_not_exist() {
    check(
        "  running: [{name: train, namespace: team, node: node-1}]",
        expect![[r#"
        exit 1
        -- stderr
        error: Pod team/train does not exist
          --> a.yaml, document 3 (line 11), Scenario demo, spec.running[0]
          help: did you mean `team/train-0`? Pods of a controller are numbered from 0
    "#]],
    );
}

#[test]
fn a_running_pod_on_a_node_that_does_not_exist() {
    check(
        "  running: [{name: train-0, namespace: team, node: nod-1}]",
        expect![[r#"
        exit 1
        -- stderr
        error: Node nod-1 does not exist
          --> a.yaml, document 3 (line 11), Scenario demo, spec.running[0]
          help: did you mean `node-1`?
    "#]],
    );
}

#[test]
fn a_duration_of_a_pod_that_does_not_exist() {
    check(
        "  durations: [{kind: Job, name: trian, namespace: team, duration: 1m}]",
        expect![[r#"
        exit 1
        -- stderr
        error: Job team/trian does not exist
          --> a.yaml, document 3 (line 11), Scenario demo, spec.durations[0]
          help: did you mean `team/train`?
    "#]],
    );
}

#[test]
fn a_file_that_is_not_there() {
    check(
        "  steps: [{at: 1s, apply: more.yaml}]",
        expect![[r#"
            exit 1
            -- stderr
            error: cannot read more.yaml: there is no such file or folder
              --> a.yaml, document 3 (line 11), Scenario demo, spec.steps[0].apply
              help: paths in a step are relative to the file of the scenario
        "#]],
    );
}

#[test]
fn a_misspelt_scheduler_option() {
    check(
        "  scheduler: {keepNodeWhole: true}",
        expect![[r#"
            exit 1
            -- stderr
            error: unknown key `keepNodeWhole`
              --> a.yaml, document 3 (line 11), Scenario demo, spec.scheduler.keepNodeWhole
              help: did you mean `keepNodesWhole`?
        "#]],
    );
}

#[test]
fn an_unknown_action() {
    check(
        "  scheduler: {actions: \"allocate, magic\"}",
        expect![[r#"
            exit 1
            -- stderr
            error: `magic` is not an action
              --> a.yaml, document 3 (line 11), Scenario demo, spec.scheduler.actions
              help: use allocate, consolidation, reclaim, preempt, stalegangeviction
        "#]],
    );
}

#[test]
fn two_scenarios() {
    check(
        "  until: 1s\n---\napiVersion: kai.scheduler/v1alpha1\nkind: Scenario\nuntil: 2s",
        expect![[r#"
        exit 1
        -- stderr
        error: there is a second Scenario; the first is in a.yaml, document 3 (line 11), Scenario demo
          --> a.yaml, document 4 (line 17), Scenario
          help: keep one, or simulate them one at a time
    "#]],
    );
}

#[test]
fn a_mistake_in_a_file_that_is_applied_later() {
    let scenario = "apiVersion: kai.scheduler/v1alpha1
kind: Scenario
steps: [{at: 1h, apply: later/queue.yaml}]
";
    let folder = Folder::new(&test_name()).file("scenario.yaml", scenario);
    let later =
        "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: q}\nspec: {resources: {gpu: {quota: lots}}}\n";
    let folder = folder.file("later/queue.yaml", later);
    expect![[r#"
        exit 1
        -- stderr
        error: expected a number, found the text `lots`
          --> later/queue.yaml, document 1 (line 1), Queue q, spec.resources.gpu.quota
          help: write a number here
    "#]]
    .assert_eq(&transcript(&folder.run(&["simulate", "scenario.yaml"])));
}

#[test]
fn changing_a_job_in_place() {
    let job = |image: &str| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: train}}\n\
             spec: {{template: {{spec: {{containers: [{{name: main, image: {image}}}]}}}}}}\n"
        )
    };
    let scenario = "apiVersion: kai.scheduler/v1alpha1\nkind: Scenario\nsteps: [{at: 1s, apply: new.yaml}]\n";
    let folder = Folder::new(&test_name())
        .file("job.yaml", &job("one"))
        .file("new.yaml", &job("two"))
        .file("scenario.yaml", scenario);
    expect![[r#"
        exit 1
        -- stderr
        error: spec.template of a Job cannot be changed once it exists
          --> ./new.yaml, document 1 (line 1), Job default/train, spec.template
          help: delete it in a step before, or give the new one another name
    "#]]
    .assert_eq(&transcript(&folder.run(&["simulate", "."])));
}
