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
                 0s  submit     team/sweep            Job: 3 pods of 4 GPUs, queue team
                 0s  bind       team/sweep-0  node-1  fits together with 1 more pod; queue team now holds 8 GPUs of a fair share of 8
                 0s  bind       team/sweep-1  node-2  fits together with 1 more pod; queue team now holds 8 GPUs of a fair share of 8
                31s  finish     team/sweep-0  node-1  its work is done
                31s  finish     team/sweep-1  node-2  its work is done
                31s  bind       team/sweep-2  node-1  fits; queue team now holds 4 GPUs of a fair share of 4
               1m2s  finish     team/sweep-2  node-1  its work is done
               1m2s  finish     team/sweep            complete after 3 pods
               1m2s  end        nothing more happens, after 5 scheduling cycles

            Nodes
            node-1  [....]  4 of 4 GPUs free
            node-2  [....]  4 of 4 GPUs free

            Queues
            GPUs  priority  quota  limit  fair share  allocated  requested
            team       100      8   none           0          0          0

            Pending
            nothing waits
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
                 0s  submit     team/web              Deployment: 2 pods of 2 GPUs, queue team
                 0s  bind       team/web-1-0  node-1  fits; queue team now holds 4 GPUs of a fair share of 4
                 0s  bind       team/web-1-1  node-1  fits; queue team now holds 4 GPUs of a fair share of 4
                10s  node-down                node-1  no longer ready
                10s  lost       team/web-1-0  node-1  its node failed
                10s  lost       team/web-1-1  node-1  its node failed
                10s  submit     team/web-1-2          ReplicaSet web-1 replaces a pod it lost
                10s  submit     team/web-1-3          ReplicaSet web-1 replaces a pod it lost
                10s  bind       team/web-1-2  node-2  fits; queue team now holds 4 GPUs of a fair share of 4
                10s  bind       team/web-1-3  node-2  fits; queue team now holds 4 GPUs of a fair share of 4
                20s  node-up                  node-1  ready
                20s  end        nothing more happens, after 5 scheduling cycles

            Nodes
            node-1  [....]  4 of 4 GPUs free
            node-2  [AABB]  0 of 4 GPUs free
                 A  team/web-1-2  2 GPUs  queue team
                 B  team/web-1-3  2 GPUs  queue team

            Queues
            GPUs  priority  quota  limit  fair share  allocated  requested
            team       100      8   none           4          4          4

            Pending
            nothing waits
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
                 0s  submit     team/web              Deployment: 1 pod of 2 GPUs, queue team
                 0s  bind       team/web-1-0  node-1  fits; queue team now holds 2 GPUs of a fair share of 2
                10s  scale      team/web              replicas from 1 to 5
                10s  bind       team/web-1-1  node-1  fits; queue team now holds 8 GPUs of a fair share of 8
                10s  bind       team/web-1-2  node-2  fits; queue team now holds 8 GPUs of a fair share of 8
                10s  bind       team/web-1-3  node-2  fits; queue team now holds 8 GPUs of a fair share of 8
                10s  wait       team/web              Work that cannot be preempted must stay within the quota of its queue. Queue team has a quota of 8 GPUs, 8 are held by such work and the job asks for 2 more. A preemptible job may exceed the quota: label the workload kai.scheduler/preemptibility=preemptible, or raise the quota.
                20s  scale      team/web              replicas from 5 to 2
                20s  delete     team/web-1-4          ReplicaSet web-1 wants fewer pods
                20s  delete     team/web-1-3  node-2  ReplicaSet web-1 wants fewer pods
                20s  delete     team/web-1-2  node-2  ReplicaSet web-1 wants fewer pods
                30s  delete     team/web              deleted by its user
                31s  end        nothing more happens, after 8 scheduling cycles

            Nodes
            node-1  [....]  4 of 4 GPUs free
            node-2  [....]  4 of 4 GPUs free

            Queues
            GPUs  priority  quota  limit  fair share  allocated  requested
            team       100      8   none           0          0          0

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
                 0s  submit     team/train    Job: 1 pod of 1 GPU, queue taem
                 0s  wait       team/train    Queue taem does not exist. Did you mean team? Then correct spec.queue of the pod group, or the label kai.scheduler/queue of the workload; or create queue taem.
                 0s  end        nothing more happens, after one scheduling cycle

            Nodes
            node-1  [....]  4 of 4 GPUs free
            node-2  [....]  4 of 4 GPUs free

            Queues
            GPUs  priority  quota  limit  fair share  allocated  requested
            team       100      8   none           0          0          0

            Pending
            team/train  Job, 1 pod waiting, queue taem
              - Queue taem does not exist. Did you mean team? Then correct spec.queue of the pod group, or the label kai.scheduler/queue of the workload; or create queue taem.
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
                 0s  submit     team/train    Job: 1 pod of 1 GPU
                 0s  end        nothing more happens, after one scheduling cycle

            Nodes
            node-1  [....]  4 of 4 GPUs free
            node-2  [....]  4 of 4 GPUs free

            Queues
            GPUs  priority  quota  limit  fair share  allocated  requested
            team       100      8   none           0          0          0

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
                 0s  submit     team/huge    Job: 1 pod of 5 GPUs, queue team
                 0s  wait       team/huge    No node takes pod team/huge-0: 2 nodes lack GPUs (the best is short of 1 GPU). The pod asks for 5 GPUs, but no node has more than 4 GPUs, even when empty.
                 0s  end        nothing more happens, after one scheduling cycle

            Nodes
            node-1  [....]  4 of 4 GPUs free
            node-2  [....]  4 of 4 GPUs free

            Queues
            GPUs  priority  quota  limit  fair share  allocated  requested
            team       100      8   none           5          0          5

            Pending
            team/huge  Job, 1 pod waiting, queue team
              - No node takes pod team/huge-0: 2 nodes lack GPUs (the best is short of 1 GPU). The pod asks for 5 GPUs, but no node has more than 4 GPUs, even when empty.
              - No room is made for it: no running job may be moved or evicted on its behalf.
        "#]],
    );
}

#[test]
fn time_ends_where_it_is_told_to() {
    check(
        &[workload("batch/v1", "Job", "train", "parallelism: 1", 1), scenario("  until: 5s\n  duration: 1h\n")],
        expect![[r#"
            Timeline
                 0s  submit     team/train            Job: 1 pod of 1 GPU, queue team
                 0s  bind       team/train-0  node-1  fits; queue team now holds 1 GPU of a fair share of 1
                 5s  end        the time is up, after 2 scheduling cycles

            Nodes
            node-1  [A...]  3 of 4 GPUs free
                 A  team/train-0  1 GPU  queue team
            node-2  [....]  4 of 4 GPUs free

            Queues
            GPUs  priority  quota  limit  fair share  allocated  requested
            team       100      8   none           1          1          1

            Pending
            nothing waits
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
                 0s  run        system/other  node-1  runs already when the simulation begins
                 0s  submit     team/train            Job: 1 pod of 2 GPUs, queue team
                 0s  bind       team/train-0  node-2  fits; queue team now holds 2 GPUs of a fair share of 2
                 1s  end        nothing more happens, after 2 scheduling cycles

            Nodes
            node-1  [AAA.]  1 of 4 GPUs free
                 A  system/other  3 GPUs
            node-2  [AA..]  2 of 4 GPUs free
                 A  team/train-0  2 GPUs  queue team

            Queues
            GPUs  priority  quota  limit  fair share  allocated  requested
            team       100      8   none           2          2          2

            Pending
            nothing waits
        "#]],
    );
}
