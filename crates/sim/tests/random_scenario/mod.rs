//! Random clusters with random stories, made from a seed.

mod claims;

use std::fmt::Write;

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng as _;

use claims::Claims;

struct Rng(Pcg32);

impl Rng {
    /// From `low` to `high`, both included.
    fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.0.next_u32() % (high - low + 1)
    }

    fn one_in(&mut self, chances: u32) -> bool {
        self.between(1, chances) == 1
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.between(0, choices.len() as u32 - 1) as usize]
    }
}

/// A cluster with queues, workloads of all sorts, and things that happen to them. Nodes take so many pods.
pub(crate) fn generate(seed: u64, slots: u32) -> String {
    let mut rng = Rng(Pcg32::new(seed, 7));
    let mut claims = Claims::new(seed);
    let mut out = String::new();
    let nodes = rng.between(1, 6);
    let mut sizes = Vec::new();
    for node in 0..nodes {
        let (gpus, cpus) = (rng.between(0, 8), rng.between(4, 64));
        let memory = rng.pick(&["16000", "40000", "81559"]);
        let gpus = claims.plugin_gpus(gpus);
        sizes.push((gpus, cpus));
        let _ = write!(
            out,
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: node-{node}, labels: {{nvidia.com/gpu.memory: \"{memory}\"}}}}\n\
             status: {{allocatable: {{cpu: \"{cpus}\", memory: 64Gi, nvidia.com/gpu: \"{gpus}\", pods: \"{slots}\"}}}}\n"
        );
    }
    claims.write_cluster(&mut out, &sizes);
    let queues = queues(&mut out, &mut rng);
    let workloads = rng.between(1, 12);
    for number in 0..workloads {
        workload(&mut out, &mut rng, number, queues, &mut claims);
    }
    out.push_str("---\napiVersion: kai.scheduler/v1alpha1\nkind: Scenario\nspec:\n  podStartJitter: 3s\n");
    out.push_str(&claims.scheduler());
    out.push_str("  steps:\n");
    let _ = writeln!(out, "  - {{at: 1s, nodeUp: node-0}}");
    for _ in 0..rng.between(0, 4) {
        let (at, node) = (rng.between(1, 120), rng.between(0, nodes - 1));
        let what = rng.pick(&["nodeDown", "nodeUp"]);
        let _ = writeln!(out, "  - {{at: {at}s, {what}: node-{node}}}");
    }
    for number in (0..workloads).filter(|number| number.is_multiple_of(3)) {
        if rng.one_in(2) {
            let (at, replicas) = (rng.between(1, 120), rng.between(0, 8));
            let _ = writeln!(
                out,
                "  - {{at: {at}s, scale: {{kind: Deployment, name: web-{number}, namespace: team, replicas: {replicas}}}}}"
            );
        }
    }
    out
}

/// Two departments with two queues each; returns how many leaves there are.
fn queues(out: &mut String, rng: &mut Rng) -> u32 {
    let mut queue = |name: String, parent: &str, rng: &mut Rng| {
        let quota = rng.pick(&["0", "1", "2", "4", "8", "-1"]);
        let limit = rng.pick(&["-1", "-1", "3", "6", "10"]);
        let (weight, priority) = (rng.between(0, 3), rng.between(99, 101));
        let protection = if rng.one_in(4) { "reclaimMinRuntime: 20s\n  preemptMinRuntime: 10s\n  " } else { "" };
        let _ = write!(
            out,
            "---\napiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {{name: {name}}}\nspec:\n  parentQueue: \"{parent}\"\n  \
             {protection}priority: {priority}\n  resources:\n    gpu: {{quota: {quota}, limit: {limit}, overQuotaWeight: {weight}}}\n    \
             cpu: {{quota: -1, limit: -1, overQuotaWeight: 1}}\n    memory: {{quota: -1, limit: -1, overQuotaWeight: 1}}\n"
        );
    };
    for department in 0..2 {
        queue(format!("department-{department}"), "", rng);
        for leaf in 0..2 {
            queue(format!("queue-{}", department * 2 + leaf), &format!("department-{department}"), rng);
        }
    }
    4
}

fn workload(out: &mut String, rng: &mut Rng, number: u32, queues: u32, claims: &mut Claims) {
    let queue = rng.between(0, queues - 1);
    let pods = rng.between(1, 6);
    let least = rng.between(1, pods);
    let deployment = number.is_multiple_of(3);
    let (api, kind, name) = if deployment { ("apps/v1", "Deployment", "web") } else { ("batch/v1", "Job", "train") };
    let class = rng.pick(&["train", "train", "build", "inference", "build-preemptible"]);
    let size =
        if deployment { format!("replicas: {pods}") } else { format!("parallelism: {pods}, completions: {pods}") };
    let mut notes = String::new();
    let mut limits = format!("cpu: {}m", rng.between(1, 20) * 100);
    match rng.between(0, 3) {
        0 => {
            let _ = write!(notes, "gpu-fraction: \"0.{}\"", rng.between(1, 9));
        }
        1 => {
            let _ = write!(notes, "gpu-memory: \"{}\"", rng.between(1, 160) * 100);
        }
        _ => {
            let _ = write!(limits, ", nvidia.com/gpu: {}", rng.between(0, 4));
        }
    }
    if !notes.is_empty() && rng.one_in(4) {
        notes.push_str(", gpu-fraction-num-devices: \"2\"");
    }
    if !deployment && rng.one_in(2) {
        let comma = if notes.is_empty() { "" } else { ", " };
        let _ = write!(notes, "{comma}kai.scheduler/sim-duration: {}s", rng.between(1, 90));
    }
    let (spec, resources) = claims.of_pods();
    let _ = write!(
        out,
        "---\napiVersion: {api}\nkind: {kind}\nmetadata:\n  name: {name}-{number}\n  namespace: team\n  \
         labels: {{kai.scheduler/queue: queue-{queue}, priorityClassName: {class}}}\n  \
         annotations: {{kai.scheduler/batch-min-member: \"{least}\"}}\nspec: {{{size}, template: {{metadata: {{annotations: {{{notes}}}}}, \
         spec: {{schedulerName: kai-scheduler, {spec}containers: [{{name: main, resources: {{{resources}requests: {{{limits}}}}}}}]}}}}}}\n"
    );
}
