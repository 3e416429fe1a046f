//! Jobs, their trees and their pods.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use kai_engine::builder::{Builder, GroupRow, JobRow, MemberRow, PodSetRow, TaskRow};
use kai_engine::ids::{ShapeId, TopologyId};
use kai_engine::snapshot::{
    CPU, Constraint, Extras, GPUS, GpuAsk, LevelRef, MEMORY, PODS, Shape, Status as EngineStatus, Topology,
};
use kai_engine::units::compat::share_of_gpu;
use kai_engine::units::{GPU, Span, Timestamp};

use super::super::case::{self, Case, Job, Kind, Node, PodSet, Status, SubGroups, Task, TopologyConstraint};
use super::super::numbers::millionths;
use super::super::policy::grace;
use super::super::state::State;
use super::super::{claims, numa};
use super::classes::Classes;
use super::neighbours::Neighbours;
use super::nodes::profile;
use super::{NOW, Names};
use crate::verdict::Fault;

/// Names of jobs, tasks and domains by their ids.
pub(super) struct Added<'a> {
    pub(super) jobs: Vec<&'a Job>,
    pub(super) tasks: Vec<&'a Task>,
    /// Domain names by topology, level and number.
    pub(super) domains: Vec<Vec<Vec<String>>>,
}

/// Adds all jobs, and the topologies that they name.
pub(super) fn add<'a>(
    builder: &mut Builder,
    case: &'a Case,
    state: &State,
    names: &Names<'a>,
    nodes: &[&'a Node],
    claims: Option<&claims::Lowered>,
) -> Result<Added<'a>, Fault> {
    let domains: Vec<_> = case.cluster.topologies.iter().map(|topology| domains(topology, nodes)).collect();
    let topologies = add_topologies(builder, case, nodes, &domains);
    let classes = Classes::new(case, state, nodes);
    let neighbours = Neighbours::new(builder, case, nodes);
    let tasks = Vec::new();
    let mut lowering = Lowering { builder, case, state, names, topologies, classes, neighbours, nodes, claims, tasks };
    // Of jobs with equal age the one listed first is older, by microseconds.
    let mut jobs: Vec<(usize, &Job)> = case.cluster.jobs.iter().enumerate().collect();
    jobs.sort_by_key(|(_, job)| (&job.namespace, &job.uid));
    for (listed, job) in &jobs {
        lowering.job(job, Span(i64::try_from(*listed).expect("jobs are few")))?;
    }
    Ok(Added { jobs: jobs.into_iter().map(|(_, job)| job).collect(), tasks: lowering.tasks, domains })
}

struct Lowering<'a, 'b> {
    builder: &'b mut Builder,
    case: &'a Case,
    state: &'b State,
    names: &'b Names<'a>,
    topologies: BTreeMap<&'a str, (TopologyId, &'a [String])>,
    classes: Classes<'a>,
    neighbours: Neighbours<'a>,
    nodes: &'b [&'a Node],
    claims: Option<&'b claims::Lowered>,
    /// Tasks in the order of their ids.
    tasks: Vec<&'a Task>,
}

impl<'a> Lowering<'a, '_> {
    fn job(&mut self, job: &'a Job, listed: Span) -> Result<(), Fault> {
        let root = self.group(job, &job.subgroups)?;
        let allocated = job.tasks.iter().any(|task| self.state.get(&task.uid).status.is_allocated());
        let signature = u32::try_from(listed.0).expect("jobs are few");
        self.builder.job(JobRow {
            queue: self.names.queues.get(job.queue.as_str()).copied(),
            priority: job.priority,
            preemptible: job.preemptible,
            created: ago(job.age_seconds).plus(listed),
            last_start: allocated.then(|| ago(self.case.config.last_start_age_seconds)),
            stale_since: job.stale_for_seconds.map(ago),
            last_eviction: None,
            preemption_delay: Span::seconds(job.preemption_delay_seconds.unwrap_or(0)),
            staleness_grace: job.staleness_grace_seconds.map(grace),
            // No two jobs are alike: the recorded configurations never skip by signature.
            signature,
            root,
        });
        Ok(())
    }

    fn group(&mut self, job: &'a Job, group: &'a SubGroups) -> Result<GroupRow, Fault> {
        let mut members: Vec<(&str, MemberSource<'a>)> = group
            .groups
            .iter()
            .map(|group| (group.name.as_str(), MemberSource::Group(group)))
            .chain(group.pod_sets.iter().map(|set| (set.name.as_str(), MemberSource::PodSet(set))))
            .collect();
        members.sort_by_key(|(name, _)| *name);
        let members = members.into_iter().map(|(_, member)| match member {
            MemberSource::Group(group) => self.group(job, group).map(MemberRow::Group),
            MemberSource::PodSet(set) => self.pod_set(job, set).map(MemberRow::PodSet),
        });
        let members = members.collect::<Result<_, _>>()?;
        Ok(GroupRow {
            min_members: group.min_sub_groups,
            constraint: self.constraint(group.topology_constraint.as_ref()),
            members,
        })
    }

    fn pod_set(&mut self, job: &'a Job, set: &'a PodSet) -> Result<PodSetRow, Fault> {
        let mut tasks: Vec<&'a Task> = job.tasks.iter().filter(|task| task.pod_set == set.name).collect();
        tasks.sort_by_key(|task| task_order(self.case, task));
        let rows = tasks.iter().map(|task| self.task(job, task)).collect::<Result<_, _>>()?;
        // The builder numbers tasks in the order in which pod sets appear in the tree: the same order here.
        self.tasks.extend(tasks);
        Ok(PodSetRow {
            min: set.min_available,
            constraint: self.constraint(set.topology_constraint.as_ref()),
            tasks: rows,
        })
    }

    fn task(&mut self, job: &'a Job, task: &'a Task) -> Result<TaskRow, Fault> {
        let placement = self.state.get(&task.uid);
        let shape = self.shape(task)?;
        let claimed = self.claims.and_then(|claims| claims.of(&task.uid));
        let class = self.classes.of(self.builder, task, claimed)?;
        let (inter_pod, matchers) = self.neighbours.of(self.builder, job, task);
        let claims = claimed.and_then(|claimed| claimed.list);
        let pending = TaskRow { inter_pod, matchers, claims, ..TaskRow::pending(shape, class) };
        if !placement.status.is_used() {
            return Ok(TaskRow { status: engine_status(placement.status), ..pending });
        }
        let node = self.names.nodes.get(placement.node.as_deref().unwrap_or_default()).copied();
        let devices = match node {
            Some(node) => placement.groups.iter().map(|label| self.names.devices[&(node, label.as_str())]).collect(),
            None => Vec::new(),
        };
        let zones = node.map_or_else(Vec::new, |node| numa::shares(self.nodes[node.index()], &placement.zones));
        let grants = claimed.map_or_else(Vec::new, |claimed| claimed.grants.clone());
        let extras = Extras { zones, grants };
        Ok(TaskRow { status: engine_status(placement.status), node, devices, extras, ..pending })
    }

    fn shape(&mut self, task: &Task) -> Result<ShapeId, Fault> {
        let request = &task.request;
        let mut need = vec![0; self.builder.width()];
        need[CPU] = request.cpu_milli;
        need[MEMORY] = request.memory_bytes;
        need[GPUS] = request.gpus * GPU;
        need[PODS] = 1;
        let mut quota_gpu = need[GPUS];
        for (name, count) in &request.mig {
            need[self.names.profiles[name.as_str()]] = *count;
            let (slices, _) = profile(name).ok_or_else(|| Fault(format!("MIG resource {name} cannot be read")))?;
            quota_gpu += i64::from(slices) * count * GPU;
        }
        let devices = request.fraction_devices.unwrap_or(1);
        let gpu = match request.kind {
            Kind::Gpu if request.gpus > 0 => GpuAsk::Whole,
            Kind::None | Kind::Gpu | Kind::Dra => GpuAsk::None,
            Kind::Mig => GpuAsk::Mig,
            Kind::Fraction => {
                let portion = millionths(request.fraction);
                quota_gpu = share_of_gpu(portion, devices);
                GpuAsk::Fraction { devices, portion }
            }
            Kind::GpuMemory => GpuAsk::Memory { devices, mib: request.gpu_memory_mib },
        };
        let mut shape = Shape { need, gpu, quota_gpu, numa: None };
        if let Some(claimed) = self.claims.and_then(|claims| claims.of(&task.uid)) {
            shape.need[GPUS] += i64::from(claimed.gpus) * GPU;
            shape.quota_gpu += i64::from(claimed.quota_gpus) * GPU;
            shape.gpu = if claimed.needs_gpu && gpu == GpuAsk::None { GpuAsk::Whole } else { gpu };
        }
        if self.nodes.iter().any(|node| node.numa.is_some()) {
            shape.numa = self.builder.numa_ask(numa::ask(task, &shape));
        }
        Ok(self.builder.shape(shape))
    }

    fn constraint(&mut self, constraint: Option<&TopologyConstraint>) -> Option<u32> {
        let constraint = constraint.filter(|constraint| !constraint.topology.is_empty())?;
        let topology = self.topologies.get(constraint.topology.as_str());
        let level = |name: &str| {
            if name.is_empty() {
                return None;
            }
            let index = topology.and_then(|(_, levels)| levels.iter().position(|level| level == name));
            Some(index.map_or(LevelRef::Unknown, |index| LevelRef::At(u32::try_from(index).expect("levels are few"))))
        };
        let required = level(&constraint.required_level);
        let preferred = level(&constraint.preferred_level);
        let topology = topology.map(|(id, _)| *id);
        Some(self.builder.constraint(Constraint { topology, required, preferred }))
    }
}

enum MemberSource<'a> {
    Group(&'a SubGroups),
    PodSet(&'a PodSet),
}

/// The time that many seconds before now.
fn ago(seconds: i64) -> Timestamp {
    NOW.plus(Span::seconds(-seconds))
}

/// Leaders first, then by the order label, then by uid as text.
fn task_order<'a>(case: &Case, task: &'a Task) -> (bool, bool, bool, bool, Reverse<i64>, &'a str) {
    let label = |key: &str| task.labels.get(key).map(String::as_str);
    let leads = |plugin: &str, key: &str, roles: &[&str]| {
        case.plugin(plugin).is_some() && label(key).is_some_and(|role| roles.contains(&role))
    };
    let order = task.task_order.as_deref().filter(|_| case.plugin("taskorder").is_some());
    let number = order.and_then(|text| text.parse::<i64>().ok());
    (
        !leads("kubeflow", "training.kubeflow.org/job-role", &["master", "launcher"]),
        !leads("ray", "ray.io/node-type", &["head"]),
        order.is_none(),
        number.is_none(),
        Reverse(number.unwrap_or(0)),
        &task.uid,
    )
}

fn engine_status(status: Status) -> EngineStatus {
    match status {
        Status::Pending => EngineStatus::Pending,
        Status::Gated => EngineStatus::Gated,
        // Between a decision and its bind: to the next cycle both are a bind in flight.
        Status::Allocated | Status::Binding => EngineStatus::Binding,
        Status::Bound => EngineStatus::Bound,
        Status::Running => EngineStatus::Running,
        Status::Pipelined => EngineStatus::Pipelined,
        Status::Releasing => EngineStatus::Releasing,
        Status::StuckInReleasing => EngineStatus::StuckInReleasing,
        Status::Succeeded => EngineStatus::Succeeded,
        Status::Failed | Status::Unknown | Status::Deleted => EngineStatus::FailedOrUnknown,
    }
}

/// Names of the domains of each level, in order: the names break ties, so numbers must follow them.
fn domains(topology: &case::Topology, nodes: &[&Node]) -> Vec<Vec<String>> {
    let paths: Vec<Vec<String>> = nodes.iter().filter_map(|node| path(topology, node)).collect();
    let level =
        |level: usize| paths.iter().map(|path| path[level].clone()).collect::<BTreeSet<_>>().into_iter().collect();
    (0..topology.levels.len()).map(level).collect()
}

fn add_topologies<'a>(
    builder: &mut Builder,
    case: &'a Case,
    nodes: &[&Node],
    domains: &[Vec<Vec<String>>],
) -> BTreeMap<&'a str, (TopologyId, &'a [String])> {
    let mut add = |(topology, domains): (&'a case::Topology, &Vec<Vec<String>>)| {
        let number = |node: &Node, level: usize| {
            let position =
                domains[level].binary_search(&path(topology, node)?[level]).expect("made from the same nodes");
            Some(u32::try_from(position).expect("domains are few"))
        };
        let level = |level: usize| nodes.iter().map(|node| number(node, level)).collect();
        let id = builder.topology(Topology { levels: (0..topology.levels.len()).map(level).collect() });
        (topology.name.as_str(), (id, topology.levels.as_slice()))
    };
    case.cluster.topologies.iter().zip(domains).map(&mut add).collect()
}

/// Names of the node's domain at each level, unless it lacks a label: label values from the top, joined.
fn path(topology: &case::Topology, node: &Node) -> Option<Vec<String>> {
    let values: Vec<&str> =
        topology.levels.iter().map(|label| node.labels.get(label).map(String::as_str)).collect::<Option<_>>()?;
    Some((1..=values.len()).map(|length| values[..length].join(".")).collect())
}
