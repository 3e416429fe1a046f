//! The node-scale adjuster with a model of a cluster autoscaler: nodes come for those whom nodes can help.
//!
//! The autoscaler sees what a real one sees: pods that are marked `Unschedulable`, and the whole GPUs they ask for. It
//! adds a node when the free GPUs of all nodes together do not suffice. The default scheduler lets stand-ins run, and
//! they end at once.

use std::collections::BTreeMap;

use kai_control::node_scale::{Settings as ScalingPods, adjust};
use kai_control::scheduler::{Effect, Settings, Usage, Write, WritePlanner, cycle};
use kai_control::{Key, Object, World};
use kai_engine::units::{Span, Timestamp};
use serde_json::{Value, json};

const GPUS_A_NODE: u64 = 2;

struct Cluster {
    /// Queues and groups.
    others: Vec<Value>,
    nodes: Vec<Value>,
    pods: BTreeMap<Key, Value>,
    scaling_pods: BTreeMap<Key, Value>,
    removed: Option<Timestamp>,
    now: Timestamp,
    planner: WritePlanner,
}

impl Cluster {
    /// A queue with a limit of GPUs, and gangs of so many pods.
    fn new(limit: i64, gangs: &[(&str, u32, Value)]) -> Self {
        let unlimited = json!({"quota": -1, "limit": -1});
        let mut others = vec![json!({"kind": "Queue", "metadata": {"name": "team"}, "spec": {"resources": {
            "gpu": {"quota": 0, "limit": limit, "overQuotaWeight": 1}, "cpu": unlimited, "memory": unlimited}}})];
        let mut pods = BTreeMap::new();
        for (gang, size, template) in gangs {
            others.push(json!({"kind": "PodGroup", "metadata": {"name": gang, "namespace": "lab"},
                "spec": {"queue": "team", "minMember": size}}));
            for index in 0..*size {
                let mut pod = template.clone();
                pod["kind"] = json!("Pod");
                pod["metadata"]["name"] = json!(format!("{gang}-{index}"));
                pod["metadata"]["namespace"] = json!("lab");
                pod["metadata"]["annotations"]["pod-group-name"] = json!(gang);
                pod["spec"]["schedulerName"] = json!("kai-scheduler");
                pods.insert(Key::of(&pod), pod);
            }
        }
        let now = Timestamp(1_768_478_400_000_000);
        Self {
            others,
            nodes: Vec::new(),
            pods,
            scaling_pods: BTreeMap::new(),
            removed: None,
            now,
            planner: WritePlanner::default(),
        }
    }

    fn world(&self) -> World {
        let mut world = World::default();
        let all = self.others.iter().chain(&self.nodes).chain(self.pods.values());
        for object in all {
            world.apply(Object::parse(object).unwrap().unwrap());
        }
        world
    }

    fn schedule(&mut self) {
        let (world, settings) = (self.world(), Settings::default());
        let done = cycle(&world, &settings, &Usage::default(), self.now);
        for write in self.planner.plan(&world, &done, &settings, self.now) {
            if let Write::SetUnschedulable { pod, reason, message, .. } = write {
                let condition =
                    json!({"type": "PodScheduled", "status": "False", "reason": reason, "message": message});
                self.pods.get_mut(&pod).unwrap()["status"]["conditions"] = json!([condition]);
            }
        }
        for effect in done.effects {
            if let Effect::Bind { pod, node, gpu_groups, .. } = effect {
                let pod = self.pods.get_mut(&pod).unwrap();
                pod["spec"]["nodeName"] = json!(node);
                pod["status"] = json!({"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]});
                if let Some(group) = gpu_groups.first() {
                    pod["metadata"]["labels"] = json!({"runai-gpu-group": group.name});
                }
            }
        }
    }

    fn adjust(&mut self) {
        let settings = ScalingPods {
            namespace: "scale".to_owned(),
            app: "scaling-pod".to_owned(),
            service_account: "scaling-pod".to_owned(),
            image: "scaling-pod".to_owned(),
            memory_hundredths: 10,
        };
        let adjustment = adjust(&self.pods, &self.scaling_pods, &settings, self.removed, self.now);
        for key in &adjustment.delete {
            self.scaling_pods.remove(key);
            self.removed = Some(self.now);
        }
        for mut pod in adjustment.create {
            let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
            pod["status"] = json!({"phase": "Pending", "conditions": [condition]});
            self.scaling_pods.insert(Key::of(&pod), pod);
        }
    }

    /// Adds nodes for all that wait for one.
    fn autoscale(&mut self) {
        let wanting = |pod: &Value| {
            let condition = &pod["status"]["conditions"][0];
            (condition["reason"] == "Unschedulable").then(|| whole_gpus(pod))
        };
        let wanted: u64 = self.pods.values().chain(self.scaling_pods.values()).filter_map(wanting).sum();
        let held: u64 = self.pods.values().filter(|pod| !pod["spec"]["nodeName"].is_null()).map(whole_gpus).sum();
        while held + wanted > GPUS_A_NODE * self.nodes.len() as u64 {
            let labels = json!({"nvidia.com/gpu.memory": "40000", "nvidia.com/gpu.count": GPUS_A_NODE.to_string()});
            self.nodes.push(
                json!({"kind": "Node", "metadata": {"name": format!("node-{}", self.nodes.len()), "labels": labels},
                "status": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110",
                    "nvidia.com/gpu": GPUS_A_NODE.to_string()}}}),
            );
        }
        if !self.nodes.is_empty() {
            for pod in self.scaling_pods.values_mut() {
                pod["status"] = json!({"phase": "Succeeded"});
            }
        }
    }

    /// A few minutes.
    fn run(&mut self) -> (usize, usize) {
        for _ in 0..20 {
            self.schedule();
            self.adjust();
            self.autoscale();
            self.now = self.now.plus(Span::seconds(10));
        }
        assert_eq!(self.scaling_pods.len(), 0, "{:?}", self.scaling_pods.keys());
        (self.nodes.len(), self.pods.values().filter(|pod| pod["status"]["phase"] == "Running").count())
    }
}

fn whole_gpus(pod: &Value) -> u64 {
    pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"]
        .as_str()
        .map_or(0, |gpus| gpus.parse().unwrap())
}

fn whole(gpus: u32) -> Value {
    json!({"metadata": {"annotations": {}}, "spec": {"containers": [{"name": "main", "resources": {"requests": {
        "cpu": "1", "nvidia.com/gpu": gpus.to_string()}}}]}})
}

fn share(annotations: &Value) -> Value {
    json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "main", "resources": {"requests":
        {"cpu": "1"}}}]}})
}

#[test]
fn a_gang_of_halves_gets_the_nodes_that_hold_it() {
    let half = share(&json!({"gpu-fraction": "0.5"}));
    assert_eq!(Cluster::new(-1, &[("gang", 3, half.clone())]).run(), (1, 3));
    assert_eq!(Cluster::new(-1, &[("gang", 5, half)]).run(), (2, 5));
}

#[test]
fn requests_in_memory_get_a_node() {
    assert_eq!(Cluster::new(-1, &[("small", 2, share(&json!({"gpu-memory": "1000"})))]).run(), (1, 2));
}

#[test]
fn a_gang_of_whole_gpus_is_seen_as_it_is() {
    assert_eq!(Cluster::new(-1, &[("gang", 3, whole(2))]).run(), (3, 3));
}

#[test]
fn who_is_stopped_by_the_queue_gets_no_node() {
    let half = share(&json!({"gpu-fraction": "0.5"}));
    assert_eq!(Cluster::new(1, &[("gang", 3, half)]).run(), (0, 0));
    assert_eq!(Cluster::new(1, &[("gang", 2, whole(1))]).run(), (0, 0));
}
