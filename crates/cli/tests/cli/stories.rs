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
               1m2s  end        nothing more happens, after 7 scheduling cycles

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
                20s  end        nothing more happens, after 7 scheduling cycles

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
fn a_queue_in_use_cannot_be_deleted() {
    check(
        &[
            workload("apps/v1", "Deployment", "web", "replicas: 1", 2),
            scenario(
                "  steps:
  - {at: 10s, delete: {kind: Queue, name: team}}
  - {at: 20s, delete: {kind: Deployment, name: web, namespace: team}}
  - {at: 30s, delete: {kind: Queue, name: team}}
",
            ),
        ],
        expect![[r#"
            Timeline
                 0s  submit     team/web              Deployment: 1 pod of 2 GPUs, queue team
                 0s  bind       team/web-1-0  node-1  fits; queue team now holds 2 GPUs of a fair share of 2
                10s  warn       Queue team            refused: cannot delete queue team: its workloads team/pg-web-1-0-0010 are running; delete them or move them to another queue first
                20s  delete     team/web              deleted by its user
                30s  delete     Queue team            deleted by its user
                30s  end        nothing more happens, after 6 scheduling cycles

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
                31s  end        nothing more happens, after 10 scheduling cycles

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
fn a_queue_that_does_not_exist_is_reported_with_the_closest_name() {
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
fn a_pod_of_another_scheduler_is_reported_as_such() {
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
              - No capacity can be freed. No running job may be moved or evicted for it.
        "#]],
    );
}

#[test]
fn time_ends_where_it_is_asked_to() {
    check(
        &[workload("batch/v1", "Job", "train", "parallelism: 1", 1), scenario("  until: 5s\n  duration: 1h\n")],
        expect![[r#"
            Timeline
                 0s  submit     team/train            Job: 1 pod of 1 GPU, queue team
                 0s  bind       team/train-0  node-1  fits; queue team now holds 1 GPU of a fair share of 1
                 5s  end        the time is up, after 3 scheduling cycles

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
                 1s  end        nothing more happens, after 3 scheduling cycles

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

#[test]
fn an_indexed_job_gives_each_pod_its_number() {
    check(
        &[
            workload("batch/v1", "Job", "shard", "parallelism: 2\n  completions: 3\n  completionMode: Indexed", 2),
            scenario(
                "  duration: 30s\n  steps:\n  - {at: 10s, delete: {kind: Pod, name: shard-1-0, namespace: team}}\n",
            ),
        ],
        expect![[r#"
            Timeline
                 0s  submit     team/shard              Job: 3 pods of 2 GPUs, queue team
                 0s  bind       team/shard-0-0  node-1  fits together with 1 more pod; queue team now holds 4 GPUs of a fair share of 4
                 0s  bind       team/shard-1-0  node-1  fits together with 1 more pod; queue team now holds 4 GPUs of a fair share of 4
                10s  delete     team/shard-1-0  node-1  deleted by its user
                10s  submit     team/shard-1-1          Job shard replaces a pod it lost
                10s  bind       team/shard-1-1  node-2  fits; queue team now holds 4 GPUs of a fair share of 4
                31s  finish     team/shard-0-0  node-1  its work is done
                31s  bind       team/shard-2-0  node-2  fits; queue team now holds 4 GPUs of a fair share of 4
                41s  finish     team/shard-1-1  node-2  its work is done
               1m2s  finish     team/shard-2-0  node-2  its work is done
               1m2s  finish     team/shard              complete after 3 pods
               1m2s  end        nothing more happens, after 11 scheduling cycles

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
fn a_new_template_replaces_the_pods_of_a_deployment() {
    let old = workload("apps/v1", "Deployment", "web", "replicas: 2", 2);
    let step = scenario("  steps:\n  - {at: 10s, apply: new.yaml}\n");
    let output = Folder::new(&test_name())
        .file("a.yaml", &[CLUSTER, &old, &step].concat())
        .file("new.yaml", &workload("apps/v1", "Deployment", "web", "replicas: 2", 1))
        .run(&["simulate", "."]);
    expect![[r#"
        Timeline
             0s  submit     team/web              Deployment: 2 pods of 2 GPUs, queue team
             0s  bind       team/web-1-0  node-1  fits; queue team now holds 4 GPUs of a fair share of 4
             0s  bind       team/web-1-1  node-1  fits; queue team now holds 4 GPUs of a fair share of 4
            10s  submit     team/web              Deployment: 2 pods of 1 GPU, queue team
            10s  bind       team/web-2-0  node-2  fits; queue team now holds 5 GPUs of a fair share of 5
            11s  delete     team/web-1-1  node-1  ReplicaSet web-1 wants fewer pods
            11s  bind       team/web-2-1  node-2  fits; queue team now holds 4 GPUs of a fair share of 4
            12s  delete     team/web-1-0  node-1  ReplicaSet web-1 wants fewer pods
            13s  end        nothing more happens, after 9 scheduling cycles

        Nodes
        node-1  [....]  4 of 4 GPUs free
        node-2  [AB..]  2 of 4 GPUs free
             A  team/web-2-0  1 GPU  queue team
             B  team/web-2-1  1 GPU  queue team

        Queues
        GPUs  priority  quota  limit  fair share  allocated  requested
        team       100      8   none           2          2          2

        Pending
        nothing waits
    "#]]
    .assert_eq(&stdout(&output));
}

#[test]
fn a_deployment_that_is_recreated_starts_when_its_old_pods_are_gone() {
    let old = workload("apps/v1", "Deployment", "web", "replicas: 2\n  strategy: {type: Recreate}", 2);
    let step = scenario("  steps:\n  - {at: 10s, apply: new.yaml}\n");
    let output = Folder::new(&test_name())
        .file("a.yaml", &[CLUSTER, &old, &step].concat())
        .file("new.yaml", &workload("apps/v1", "Deployment", "web", "replicas: 2\n  strategy: {type: Recreate}", 3))
        .run(&["simulate", "."]);
    expect![[r#"
        Timeline
             0s  submit     team/web              Deployment: 2 pods of 2 GPUs, queue team
             0s  bind       team/web-1-0  node-1  fits; queue team now holds 4 GPUs of a fair share of 4
             0s  bind       team/web-1-1  node-1  fits; queue team now holds 4 GPUs of a fair share of 4
            10s  delete     team/web-1-1  node-1  ReplicaSet web-1 wants fewer pods
            10s  delete     team/web-1-0  node-1  ReplicaSet web-1 wants fewer pods
            10s  submit     team/web              Deployment: 2 pods of 3 GPUs, queue team
            11s  bind       team/web-2-0  node-1  fits; queue team now holds 6 GPUs of a fair share of 6
            11s  bind       team/web-2-1  node-2  fits; queue team now holds 6 GPUs of a fair share of 6
            12s  end        nothing more happens, after 7 scheduling cycles

        Nodes
        node-1  [AAA.]  1 of 4 GPUs free
             A  team/web-2-0  3 GPUs  queue team
        node-2  [AAA.]  1 of 4 GPUs free
             A  team/web-2-1  3 GPUs  queue team

        Queues
        GPUs  priority  quota  limit  fair share  allocated  requested
        team       100      8   none           6          6          6

        Pending
        nothing waits
    "#]]
    .assert_eq(&stdout(&output));
}

#[test]
fn pods_survive_a_node_that_comes_back_in_time() {
    check(
        &[
            workload("batch/v1", "Job", "train", "parallelism: 1", 2),
            scenario(
                "  nodeLossDelay: 30s
  duration: 5m
  steps:
  - {at: 10s, nodeDown: node-1}
  - {at: 20s, nodeUp: node-1}
  - {at: 60s, nodeDown: node-1}
",
            ),
        ],
        expect![[r#"
            Timeline
                 0s  submit     team/train            Job: 1 pod of 2 GPUs, queue team
                 0s  bind       team/train-0  node-1  fits; queue team now holds 2 GPUs of a fair share of 2
                10s  node-down                node-1  no longer ready
                20s  node-up                  node-1  ready
                 1m  node-down                node-1  no longer ready
              1m30s  lost       team/train-0  node-1  its node failed
              1m30s  submit     team/train-1          Job train replaces a pod it lost
              1m30s  bind       team/train-1  node-2  fits; queue team now holds 2 GPUs of a fair share of 2
              6m31s  finish     team/train-1  node-2  its work is done
              6m31s  finish     team/train            complete after 1 pod
              6m31s  end        nothing more happens, after 10 scheduling cycles

            Nodes
            node-1  [....]  4 of 4 GPUs free  not ready
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
fn a_preempted_pod_without_a_controller_does_not_come_back() {
    let pod = |name: &str, class: &str, gpus: u32| {
        format!(
            "---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: team, labels: {{kai.scheduler/queue: team}}}}
spec:
  schedulerName: kai-scheduler
  priorityClassName: {class}
  containers: [{{name: main, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]
"
        )
    };
    let cluster = [CLUSTER, &pod("low-1", "train", 4), &pod("low-2", "train", 4)].concat();
    let output = Folder::new(&test_name())
        .file("a.yaml", &[&cluster, scenario("  steps:\n  - {at: 10s, apply: high.yaml}\n").as_str()].concat())
        .file("high.yaml", &pod("high", "build", 4))
        .run(&["simulate", "."]);
    expect![[r#"
        Timeline
             0s  submit     team/low-1          Pod: 4 GPUs, queue team
             0s  submit     team/low-2          Pod: 4 GPUs, queue team
             0s  bind       team/low-1  node-1  fits; queue team now holds 8 GPUs of a fair share of 8
             0s  bind       team/low-2  node-2  fits; queue team now holds 8 GPUs of a fair share of 8
            10s  submit     team/high           Pod: 4 GPUs, queue team
            10s  evict      team/low-2  node-2  makes room for job team/high of higher priority, 100 over 50; no controller recreates it
            10s  pipelined  team/high   node-2  pipelined: starts here when terminating pods release the resources
            11s  bind       team/high   node-2  fits; queue team now holds 8 GPUs of a fair share of 8
            12s  end        nothing more happens, after 16 scheduling cycles

        Nodes
        node-1  [AAAA]  0 of 4 GPUs free
             A  team/low-1  4 GPUs  queue team
        node-2  [AAAA]  0 of 4 GPUs free
             A  team/high  4 GPUs  queue team

        Queues
        GPUs  priority  quota  limit  fair share  allocated  requested
        team       100      8   none           8          8          8

        Pending
        nothing waits
    "#]].assert_eq(&stdout(&output));
}

#[test]
fn a_gated_pod_names_its_gates() {
    let job = workload("batch/v1", "Job", "train", "parallelism: 1", 1)
        .replace("      containers:", "      schedulingGates: [{name: review}]\n      containers:");
    check(
        &[job],
        expect![[r#"
        Timeline
             0s  submit     team/train    Job: 1 pod of 1 GPU, queue team
             0s  wait       team/train    Not all pods that must start together are there: 1 pod is required, there is 1, 1 of them is held back by scheduling gates.
             0s  end        nothing more happens, after one scheduling cycle

        Nodes
        node-1  [....]  4 of 4 GPUs free
        node-2  [....]  4 of 4 GPUs free

        Queues
        GPUs  priority  quota  limit  fair share  allocated  requested
        team       100      8   none           0          0          0

        Pending
        team/train  Job, 1 pod waiting, queue team
          - Not all pods that must start together are there: 1 pod is required, there is 1, 1 of them is held back by scheduling gates.
    "#]],
    );
}

#[test]
fn without_queues_the_default_one_is_there() {
    let (nodes, _) = CLUSTER.split_at(CLUSTER.find("---\napiVersion: scheduling").unwrap_or(0));
    let job =
        workload("batch/v1", "Job", "train", "parallelism: 1", 1).replace(", labels: {kai.scheduler/queue: team}", "");
    let output = Folder::new(&test_name()).file("a.yaml", &[nodes, &job].concat()).run(&["simulate", "a.yaml"]);
    expect![[r#"
        Timeline
             0s  submit     team/train            Job: 1 pod of 1 GPU, queue default-queue
             0s  bind       team/train-0  node-1  fits; queue default-queue now holds 1 GPU of a fair share of 1
             1s  end        nothing more happens, after 3 scheduling cycles

        Nodes
        node-1  [A...]  3 of 4 GPUs free
             A  team/train-0  1 GPU  queue default-queue
        node-2  [....]  4 of 4 GPUs free

        Queues
        GPUs                  priority  quota  limit  fair share  allocated  requested
        default-parent-queue       100      0   none           1          1          1
          default-queue            100      0   none           1          1          1

        Pending
        nothing waits
    "#]]
    .assert_eq(&stdout(&output));
}

#[test]
fn standard_input_can_be_simulated() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_kai"))
        .args(["simulate", "-", "-o", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary was built for this test");
    child.stdin.take().expect("it is piped").write_all(CLUSTER.as_bytes()).expect("it reads");
    let report = stdout(&child.wait_with_output().expect("it ends"));
    assert!(report.contains("node-2"), "{report}");
}

const LAB: &str = "---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: lab}
spec:
  preemptMinRuntime: 10m
  resources:
    gpu: {quota: 8, limit: -1, overQuotaWeight: 1}
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
";

#[test]
fn a_young_job_is_left_alone_and_the_report_has_the_time() {
    let in_lab = |text: String, class: &str| {
        text.replace("kai.scheduler/queue: team", &format!("kai.scheduler/queue: lab, priorityClassName: {class}"))
    };
    let young = in_lab(workload("batch/v1", "Job", "young", "parallelism: 1", 4), "train");
    let other = in_lab(workload("batch/v1", "Job", "other", "parallelism: 1", 4), "train");
    let step = scenario("  until: 30s\n  steps:\n  - {at: 10s, apply: urgent.yaml}\n");
    let output = Folder::new(&test_name())
        .file("a.yaml", &[CLUSTER, LAB, &young, &other, &step].concat())
        .file("urgent.yaml", &in_lab(workload("batch/v1", "Job", "urgent", "parallelism: 1", 4), "build-preemptible"))
        .run(&["simulate", "."]);
    expect![[r#"
        Timeline
             0s  submit     team/young            Job: 1 pod of 4 GPUs, queue lab
             0s  submit     team/other            Job: 1 pod of 4 GPUs, queue lab
             0s  bind       team/other-0  node-1  fits; queue lab now holds 8 GPUs of a fair share of 8
             0s  bind       team/young-0  node-2  fits; queue lab now holds 8 GPUs of a fair share of 8
            10s  submit     team/urgent           Job: 1 pod of 4 GPUs, queue lab
            10s  wait       team/urgent           No node takes pod team/urgent-0: 2 nodes lack GPUs (the best is short of 4 GPUs).
            30s  end        the time is up, after 4 scheduling cycles

        Nodes
        node-1  [AAAA]  0 of 4 GPUs free
             A  team/other-0  4 GPUs  queue lab
        node-2  [AAAA]  0 of 4 GPUs free
             A  team/young-0  4 GPUs  queue lab

        Queues
        GPUs  priority  quota  limit  fair share  allocated  requested
        lab        100      8   none           8          8         12
        team       100      8   none           0          0          0

        Pending
        team/urgent  Job, 1 pod waiting, queue lab
          - No node takes pod team/urgent-0: 2 nodes lack GPUs (the best is short of 4 GPUs).
          - No capacity can be freed. Consolidation: the job requests 4 GPUs, only 0 are free in the whole cluster. Reclaim: queue lab may not reclaim, it holds 8 GPUs of a fair share of 8 and the job requests 4 more. Preemption: no lower-priority job in the queue is eligible; 2 jobs are protected, job team/other until 2026-01-01T00:10:00Z, preemptMinRuntime of queue lab is 10m.
    "#]].assert_eq(&stdout(&output));
}
