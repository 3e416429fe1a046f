//! One question: which node sets may a group use under a topology constraint, and what do nodes score?

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use fixedbitset::FixedBitSet;
use kai_engine::builder::{Builder, GroupRow, JobRow, MemberRow, NodeRow, PodSetRow, TaskRow};
use kai_engine::ids::NodeSet;
use kai_engine::ids::{NodeId, TaskId, TopologyId};
use kai_engine::ledger::Ledger;
use kai_engine::nodes::topology::{DomainCapacityCache, DomainChoice, DomainRefusal, Tree, choose};
use kai_engine::snapshot::{Constraint, GpuAsk, LevelRef, Queue, Shape, Topology};
use kai_engine::units::{Ceiling, GPU, ONE, Timestamp};
use kai_engine::{Policy, Snapshot};
use serde::Deserialize;

use crate::verdict::{Difference, Fault, Verdict};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    #[serde(rename = "id")]
    _id: String,
    #[serde(rename = "source")]
    _source: serde_json::Value,
    input: Input,
    expect: Expect,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(rename = "topology")]
    _topology: String,
    /// From wide to narrow.
    levels: Vec<String>,
    #[serde(rename = "root_level")]
    _root_level: String,
    #[serde(rename = "root_id")]
    _root_id: String,
    /// The tree as given: names of hand-built ones do not follow from labels.
    domains: Vec<Domain>,
    nodes: BTreeMap<String, Node>,
    node_set: Vec<String>,
    tasks: Vec<Task>,
    /// Nodes of pods of the group that run already, by pod.
    active_tasks: BTreeMap<String, String>,
    required_level: String,
    preferred_level: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Domain {
    id: String,
    level: String,
    #[serde(rename = "children")]
    _children: Vec<String>,
    nodes: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    idle: Amounts,
    releasing: Amounts,
    #[serde(rename = "labels")]
    _labels: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Amounts {
    cpu_milli: i64,
    memory_bytes: i64,
    gpus: i64,
    pods: i64,
}

impl Amounts {
    fn vector(self) -> Vec<i64> {
        vec![self.cpu_milli, self.memory_bytes, self.gpus * GPU, self.pods]
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    #[serde(rename = "uid")]
    _uid: String,
    cpu_milli: i64,
    memory_bytes: i64,
    gpus: i64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    /// The constraint is invalid.
    error: bool,
    /// There is not enough room.
    fit_error: bool,
    subsets: Option<Vec<BTreeSet<String>>>,
    node_scores: Option<BTreeMap<String, i64>>,
}

/// Runs a case; `decisions` receives the node sets and scores that came out.
pub fn run(case: &Case, decisions: &mut String) -> Result<Verdict, Fault> {
    let Case { input, expect, .. } = case;
    let names: Vec<&str> = input.nodes.keys().map(String::as_str).collect();
    let topology = Topology { levels: input.levels.iter().map(|level| level_of(input, level)).collect() };
    let tree = Tree::new(&topology, names.len());
    let snapshot = snapshot(input, topology);
    let ledger = Ledger::open(&snapshot, &Policy::default());
    let constraint = Constraint {
        topology: Some(TopologyId(0)),
        required: level_ref(input, &input.required_level),
        preferred: level_ref(input, &input.preferred_level),
    };
    let tasks: Vec<TaskId> = (0..input.tasks.len()).map(TaskId::at).collect();
    let mut offered = FixedBitSet::with_capacity(names.len());
    offered.extend(ids(&names, &input.node_set)?.into_iter().map(NodeId::index));
    let running = ids(&names, input.active_tasks.values())?;
    let trees = [tree];
    let choice = choose(
        &ledger,
        &trees,
        &mut DomainCapacityCache::default(),
        &constraint,
        &tasks,
        NodeSet::Only(&offered),
        &running,
    );
    Ok(judge(&names, expect, &trees[0], &choice, decisions).into())
}

fn judge(
    names: &[&str],
    expect: &Expect,
    tree: &Tree,
    choice: &Result<DomainChoice, DomainRefusal>,
    decisions: &mut String,
) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut compare = |what: &str, expected: String, got: String| {
        let _ = writeln!(decisions, "{what} {got}");
        if expected != got {
            differences.push(Difference::new(what, expected, got));
        }
    };
    compare("error", expect.error.to_string(), matches!(choice, Err(DomainRefusal::Unknown)).to_string());
    compare("fit error", expect.fit_error.to_string(), matches!(choice, Err(DomainRefusal::TooSmall(_))).to_string());
    let named = |set: FixedBitSet| set.ones().map(|index| names[index].to_string()).collect();
    let sets = choice.iter().flat_map(|choice| (0..choice.len()).map(|index| choice.set(tree, index)));
    let sets: Vec<BTreeSet<String>> = sets.map(named).collect();
    compare("subsets", sets_text(expect.subsets.as_deref().unwrap_or_default()), sets_text(&sets));
    // Scores of a refused call are never used.
    if let Ok(choice) = choice {
        let scores = choice.scores.as_ref().map(|scores| {
            scores.iter().map(|(node, points)| (names[node.index()].to_string(), points)).collect::<BTreeMap<_, _>>()
        });
        compare("node scores", format!("{:?}", expect.node_scores), format!("{scores:?}"));
    }
    differences
}

fn sets_text(sets: &[BTreeSet<String>]) -> String {
    let text = |set: &BTreeSet<String>| set.iter().map(String::as_str).collect::<Vec<_>>().join("+");
    format!("[{}]", sets.iter().map(text).collect::<Vec<_>>().join(", "))
}

fn ids<'a>(names: &[&str], nodes: impl IntoIterator<Item = &'a String>) -> Result<Vec<NodeId>, Fault> {
    let id = |node: &String| names.binary_search(&node.as_str()).map(NodeId::at);
    nodes.into_iter().map(|node| id(node).map_err(|_| Fault(format!("node {node} is not recorded")))).collect()
}

/// The domain of each node at one level, numbered in name order.
fn level_of(input: &Input, level: &str) -> Vec<Option<u32>> {
    let mut domains: Vec<&Domain> = input.domains.iter().filter(|domain| domain.level == level).collect();
    domains.sort_by_key(|domain| &domain.id);
    let number = |node: &String| domains.iter().position(|domain| domain.nodes.contains(node));
    input.nodes.keys().map(|node| number(node).map(|number| u32::try_from(number).expect("domains are few"))).collect()
}

fn level_ref(input: &Input, name: &str) -> Option<LevelRef> {
    if name.is_empty() {
        return None;
    }
    let index = input.levels.iter().position(|level| level == name);
    Some(index.map_or(LevelRef::Unknown, |index| LevelRef::At(u32::try_from(index).expect("levels are few"))))
}

/// Nodes with the recorded room, and one job with the recorded pods.
fn snapshot(input: &Input, topology: Topology) -> Snapshot {
    let mut builder = Builder::new(Vec::new());
    for node in input.nodes.values() {
        let (idle, releasing) = (node.idle.vector(), node.releasing.vector());
        let allocatable = idle.iter().zip(&releasing).map(|(idle, releasing)| idle + releasing).collect();
        builder.node(NodeRow {
            unmanaged_used: releasing.clone(),
            unmanaged_releasing: releasing,
            ..NodeRow::idle(allocatable)
        });
    }
    let queue = builder.queue(Queue {
        parent: None,
        priority: 100,
        created: Timestamp(0),
        quota: [Ceiling::Unlimited; 3],
        limit: [Ceiling::Unlimited; 3],
        weight: [ONE; 3],
        usage: [0; 3],
        preempt_min_runtime: None,
        reclaim_min_runtime: None,
    });
    builder.topology(topology);
    let class = builder.add_node_filter_of_all();
    let tasks: Vec<TaskRow> = input
        .tasks
        .iter()
        .map(|task| {
            let quota_gpu = task.gpus * GPU;
            let gpu = if quota_gpu > 0 { GpuAsk::Whole } else { GpuAsk::None };
            let need = vec![task.cpu_milli, task.memory_bytes, quota_gpu, 1];
            TaskRow::pending(builder.shape(Shape { need, gpu, quota_gpu, numa: None }), class)
        })
        .collect();
    let set = PodSetRow { min: u32::try_from(tasks.len()).expect("tasks are few"), constraint: None, tasks };
    let root = GroupRow { members: vec![MemberRow::PodSet(set)], ..GroupRow::default() };
    builder.job(JobRow::new(queue, Timestamp(0), root));
    builder.finish()
}
