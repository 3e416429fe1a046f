//! What tasks ask of each other -> matchers and inter-pod rules.

use std::collections::{BTreeMap, BTreeSet};

use kai_engine::builder::Builder;
use kai_engine::ids::{PodMatcherId, TopologyKeyId};
use kai_engine::snapshot::InterPodRules;

use super::super::case::{Case, Job, Node, PodTerm, Task};

/// Who is counted: tasks of a namespace that have all these terms' labels, or that want none with these labels nearby.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who<'a> {
    Found(&'a str, BTreeSet<&'a BTreeMap<String, String>>),
    Avoiding(&'a str, &'a BTreeMap<String, String>),
}

/// Matchers of a case, by who is counted and by which node label.
pub(super) struct Neighbours<'a> {
    matchers: BTreeMap<(Who<'a>, &'a str), PodMatcherId>,
}

impl<'a> Neighbours<'a> {
    pub(super) fn new(builder: &mut Builder, case: &'a Case, nodes: &[&Node]) -> Self {
        let mut topology_keys: BTreeMap<&str, TopologyKeyId> = BTreeMap::new();
        let mut matchers = BTreeMap::new();
        for (job, task) in case.tasks() {
            for key in asked(job, task) {
                let topology_key =
                    *topology_keys.entry(key.1).or_insert_with(|| builder.topology_key(domains(key.1, nodes)));
                matchers.entry(key).or_insert_with(|| builder.matcher(topology_key));
            }
        }
        Self { matchers }
    }

    /// The inter-pod rules of a task, and the matchers that it is part of.
    pub(super) fn of(&self, builder: &mut Builder, job: &'a Job, task: &'a Task) -> (Option<u32>, Option<u32>) {
        let namespace = job.namespace.as_str();
        let is =
            |labels: &BTreeMap<String, String>| labels.iter().all(|(key, value)| task.labels.get(key) == Some(value));
        let company = company(task);
        let mut inter_pod =
            InterPodRules { matches_own_affinity: company.iter().all(|labels| is(labels)), ..InterPodRules::default() };
        let matcher = |who: Who<'a>, term: &'a PodTerm| self.matchers[&(who, term.topology_key.as_str())];
        for term in &task.required_pod_affinity {
            inter_pod.affinity.push(matcher(Who::Found(namespace, company.clone()), term));
        }
        for term in &task.required_pod_anti_affinity {
            inter_pod.anti_affinity.push(matcher(Who::Found(namespace, BTreeSet::from([&term.match_labels])), term));
        }
        let mut part_of = Vec::new();
        for ((who, key), matcher) in &self.matchers {
            match who {
                Who::Found(home, all) if *home == namespace && all.iter().all(|labels| is(labels)) => {
                    part_of.push(*matcher);
                }
                Who::Avoiding(home, labels) => {
                    if *home == namespace && is(labels) {
                        inter_pod.existing_anti_affinity.push(*matcher);
                    }
                    let own = |term: &PodTerm| term.match_labels == **labels && term.topology_key == *key;
                    if *home == namespace && task.required_pod_anti_affinity.iter().any(own) {
                        part_of.push(*matcher);
                    }
                }
                Who::Found(..) => {}
            }
        }
        (builder.inter_pod(inter_pod), builder.matcher_list(part_of))
    }
}

fn company(task: &Task) -> BTreeSet<&BTreeMap<String, String>> {
    task.required_pod_affinity.iter().map(|term| &term.match_labels).collect()
}

fn asked<'a>(job: &'a Job, task: &'a Task) -> Vec<(Who<'a>, &'a str)> {
    let namespace = job.namespace.as_str();
    let mut asked = Vec::new();
    for term in &task.required_pod_affinity {
        asked.push((Who::Found(namespace, company(task)), term.topology_key.as_str()));
    }
    for term in &task.required_pod_anti_affinity {
        asked.push((Who::Found(namespace, BTreeSet::from([&term.match_labels])), term.topology_key.as_str()));
        asked.push((Who::Avoiding(namespace, &term.match_labels), term.topology_key.as_str()));
    }
    asked
}

fn domains(key: &str, nodes: &[&Node]) -> Vec<Option<u32>> {
    let values: BTreeSet<&String> = nodes.iter().filter_map(|node| node.labels.get(key)).collect();
    let number = |value: &String| values.iter().position(|other| *other == value);
    let domain = |node: &&Node| number(node.labels.get(key)?).map(|at| u32::try_from(at).expect("domains are few"));
    nodes.iter().map(domain).collect()
}
