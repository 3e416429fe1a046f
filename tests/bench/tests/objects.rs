//! The same cluster as objects and as numbers: a cycle over either decides the same, pod by pod.

use std::collections::BTreeMap;

use bench::snapshot::{self, NOW};
use kai_control::scheduler::{Configured, CycleResult, Effect, Usage, cycle};
use kai_control::{Object, World};
use kai_engine::Policy;
use kai_engine::outcome::Decision;
use kai_generate::cluster::Job;
use kai_generate::objects::{node_name, objects, pod_name};
use kai_generate::{Cluster, SCENARIOS, config};

fn decided_from_objects(cluster: &mut Cluster) -> Vec<String> {
    let mut world = World::default();
    for object in objects(cluster) {
        let object = Object::parse(&object).expect("every object is well-formed");
        world.apply(object.expect("every kind is one that decides something"));
    }
    let Configured { settings, warnings } = Configured::read(&config::file()).expect("the configuration is KAI's own");
    assert_eq!(warnings, Vec::<String>::new());
    let CycleResult { effects, problems, .. } = cycle(&world, &settings, &Usage::default(), NOW);
    assert_eq!(problems, []);
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Bind { pod, node, .. } => Some(format!("bind {pod} {node}")),
            Effect::Pipeline { pod, node, .. } => Some(format!("pipeline {pod} {node}")),
            Effect::Evict { pod, .. } => Some(format!("evict {pod}")),
            _ => None,
        })
        .collect()
}

fn decided_from_numbers(cluster: &Cluster) -> Vec<String> {
    let snapshot = snapshot::of_cluster(cluster);
    let outcome = kai_engine::cycle(&snapshot, &Policy::default(), NOW);
    let mut jobs: BTreeMap<(usize, usize), &Job> = BTreeMap::new();
    jobs.extend(cluster.jobs().iter().map(|job| ((job.queue, job.number), job)));
    let pods: Vec<String> =
        jobs.values().flat_map(|job| (0..job.spec.pods).map(|number| pod_name(job, number))).collect();
    outcome
        .decisions
        .iter()
        .map(|decision| match decision {
            Decision::Bind { task, assignment } => {
                format!("bind {} {}", pods[task.index()], node_name(assignment.node.index()))
            }
            Decision::Pipeline { task, assignment } => {
                format!("pipeline {} {}", pods[task.index()], node_name(assignment.node.index()))
            }
            Decision::Evict { task, .. } => format!("evict {}", pods[task.index()]),
        })
        .collect()
}

#[test]
fn objects_and_numbers_decide_the_same() {
    for scenario in &SCENARIOS {
        let mut cluster = scenario.cluster(scenario.size(50));
        let numbers = decided_from_numbers(&cluster);
        assert_eq!(decided_from_objects(&mut cluster), numbers, "{}", scenario.name);
    }
}
