//! Small stories that show one thing each: how the simulated cluster behaves around the scheduler.

use expect_test::{Expect, expect};

use super::invocation::{Folder, stdout, test_name};

const CLUSTER: &str = "apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {allocatable: {cpu: 8, memory: 64Gi, nvidia.com/gpu: 4}}
---
apiVersion: v1
kind: Node
metadata: {name: node-2}
status: {allocatable: {cpu: 8, memory: 64Gi, nvidia.com/gpu: 4}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec:
  resources:
    gpu: {quota: 8, limit: -1, overQuotaWeight: 1}
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
";

fn workload(api: &str, kind: &str, name: &str, spec: &str, gpus: u32) -> String {
    format!(
        "---
apiVersion: {api}
kind: {kind}
metadata: {{name: {name}, namespace: team, labels: {{kai.scheduler/queue: team}}}}
spec:
  {spec}
  template:
    spec:
      schedulerName: kai-scheduler
      containers: [{{name: main, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]
"
    )
}

fn scenario(body: &str) -> String {
    format!("---\napiVersion: kai.scheduler/v1alpha1\nkind: Scenario\nspec:\n{body}")
}

/// Runs the cluster with more documents and compares the printed result.
fn check(documents: &[String], expected: Expect) {
    let text = format!("{CLUSTER}{}", documents.concat());
    let output = Folder::new(&test_name()).file("a.yaml", &text).run(&["simulate", "a.yaml"]);
    expected.assert_eq(&stdout(&output));
}

#[test]
fn a_job_runs_its_pods_in_waves() {
    check(
        &[
            workload("batch/v1", "Job", "sweep", "parallelism: 2\n  completions: 3", 4),
            scenario("  durations: [{kind: Job, name: sweep, namespace: team, duration: 30s}]\n"),
        ],
        expect![[r#"
            Timeline
                 0s  submit   team/sweep    Job: 3 pods of 4 GPUs, queue team
                 0s  end      nothing more happens, after one scheduling cycle

            Nodes
            node-1  [....]  4 of 4 GPUs free
            node-2  [....]  4 of 4 GPUs free

            Queues
            none

            Pending
            team/sweep  Job, 2 pods waiting, queue team
              - the next scheduling cycle looks at it
        "#]],
    );
}

#[test]
fn a_deployment_outlives_a_node() {
    check(
        &[
            workload("apps/v1", "Deployment", "web", "replicas: 2", 2),
            scenario("  steps:\n  - {at: 10s, nodeDown: node-1}\n  - {at: 20s, nodeUp: node-1}\n"),
        ],
        expect![[r#"
            Timeline
                 0s  submit     team/web          Deployment: 2 pods of 2 GPUs, queue team
                10s  node-down            node-1  no longer ready
                20s  node-up              node-1  ready
                20s  end      nothing more happens, after 3 scheduling cycles

            Nodes
            node-1  [....]  4 of 4 GPUs free
            node-2  [....]  4 of 4 GPUs free

            Queues
            none

            Pending
            team/web-1-0  Pod, 1 pod waiting, queue team
              - the next scheduling cycle looks at it
            team/web-1-1  Pod, 1 pod waiting, queue team
              - the next scheduling cycle looks at it
        "#]],
    );
}

#[test]
fn a_deployment_grows_and_shrinks() {
    check(
        &[
            workload("apps/v1", "Deployment", "web", "replicas: 1", 2),
            scenario(
                "  steps:
  - {at: 10s, scale: {kind: Deployment, name: web, namespace: team, replicas: 5}}
  - {at: 20s, scale: {kind: Deployment, name: web, namespace: team, replicas: 2}}
  - {at: 30s, delete: {kind: Deployment, name: web, namespace: team}}
",
            ),
        ],
        expect![[r#"
            Timeline
                 0s  submit   team/web    Deployment: 1 pod of 2 GPUs, queue team
                10s  scale    team/web    replicas from 1 to 5
                20s  scale    team/web    replicas from 5 to 2
                30s  delete   team/web    deleted by its user
                30s  end      nothing more happens, after 4 scheduling cycles

            Nodes
            node-1  [....]  4 of 4 GPUs free
            node-2  [....]  4 of 4 GPUs free

            Queues
            none

            Pending
            nothing waits
        "#]],
    );
}

#[test]
fn a_queue_that_does_not_exist_is_told_with_the_nearest_name() {
    let job = workload("batch/v1", "Job", "train", "parallelism: 1", 1)
        .replace("kai.scheduler/queue: team", "kai.scheduler/queue: taem");
    check(
        &[job],
        expect![[r#"
        Timeline
             0s  submit   team/train    Job: 1 pod of 1 GPU, queue taem
             0s  end      nothing more happens, after one scheduling cycle

        Nodes
        node-1  [....]  4 of 4 GPUs free
        node-2  [....]  4 of 4 GPUs free

        Queues
        none

        Pending
        team/train  Job, 1 pod waiting, queue taem
          - the next scheduling cycle looks at it
    "#]],
    );
}

#[test]
fn a_pod_of_another_scheduler_is_told_so() {
    let job =
        workload("batch/v1", "Job", "train", "parallelism: 1", 1).replace("      schedulerName: kai-scheduler\n", "");
    check(
        &[job],
        expect![[r#"
        Timeline
             0s  submit   team/train    Job: 1 pod of 1 GPU
             0s  end      nothing more happens, after one scheduling cycle

        Nodes
        node-1  [....]  4 of 4 GPUs free
        node-2  [....]  4 of 4 GPUs free

        Queues
        none

        Pending
        team/train-0  Pod, 1 pod waiting
          - it asks for another scheduler, default-scheduler; set spec.schedulerName to kai-scheduler to have it placed here
    "#]],
    );
}

#[test]
fn a_pod_too_large_for_any_node_waits() {
    check(
        &[workload("batch/v1", "Job", "huge", "parallelism: 1", 5)],
        expect![[r#"
        Timeline
             0s  submit   team/huge    Job: 1 pod of 5 GPUs, queue team
             0s  end      nothing more happens, after one scheduling cycle

        Nodes
        node-1  [....]  4 of 4 GPUs free
        node-2  [....]  4 of 4 GPUs free

        Queues
        none

        Pending
        team/huge  Job, 1 pod waiting, queue team
          - the next scheduling cycle looks at it
    "#]],
    );
}

#[test]
fn time_ends_where_it_is_told_to() {
    check(
        &[workload("batch/v1", "Job", "train", "parallelism: 1", 1), scenario("  until: 5s\n  duration: 1h\n")],
        expect![[r#"
            Timeline
                 0s  submit   team/train    Job: 1 pod of 1 GPU, queue team
                 0s  end      nothing more happens, after one scheduling cycle

            Nodes
            node-1  [....]  4 of 4 GPUs free
            node-2  [....]  4 of 4 GPUs free

            Queues
            none

            Pending
            team/train  Job, 1 pod waiting, queue team
              - the next scheduling cycle looks at it
        "#]],
    );
}

#[test]
fn a_pod_with_a_node_runs_from_the_start() {
    let pod = "---
apiVersion: v1
kind: Pod
metadata: {name: other, namespace: system}
spec: {nodeName: node-1, containers: [{name: main, resources: {limits: {nvidia.com/gpu: 3}}}]}
"
    .to_owned();
    check(
        &[pod, workload("batch/v1", "Job", "train", "parallelism: 1", 2)],
        expect![[r#"
        Timeline
             0s  run      system/other  node-1  runs already when the simulation begins
             0s  submit   team/train            Job: 1 pod of 2 GPUs, queue team
             0s  end      nothing more happens, after one scheduling cycle

        Nodes
        node-1  [AAA.]  1 of 4 GPUs free
             A  system/other  3 GPUs
        node-2  [....]  4 of 4 GPUs free

        Queues
        none

        Pending
        team/train  Job, 1 pod waiting, queue team
          - the next scheduling cycle looks at it
    "#]],
    );
}
