//! Incremental snapshot: lowers only jobs touched by changed pods, pod groups and bind requests, and splices them into the
//! last snapshot.
//!
//! ```text
//!   changed pods, pod groups, bind requests ──▶ jobs concerned ──▶ lowered by themselves: a few rows ──┐
//!   last snapshot ──▶ rows of all other jobs, ids moved up or down ────────────────────────────────────┴──▶ snapshot
//! ```
//!
//! The result is that of lowering everything, row by row; a test demands it. [`IncrementalSnapshot::try_update`] returns
//! `None`, and everything is lowered, if nodes, queues or priority classes changed, and while there are shared GPUs,
//! claimed devices, NUMA zones, host ports, topology constraints, volumes that nodes limit or that are to be provisioned,
//! inter-pod rules, or pods outside of jobs that change while they hold resources.

mod splice;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use kai_engine::Snapshot;
use kai_engine::builder::Builder;
use kai_engine::ids::JobId;
use kai_engine::snapshot::Volumes;
use kai_engine::units::Timestamp;

use self::splice::{IdRows, Ids, ShapeNumbers, Source, Splicer, Step, source_sizes, with_other_tables};
use super::columns::{ExtraColumn, FIXED_NAMES};
use super::jobs::{self, Tables};
use super::nodes::{self, Traits};
use super::numa::Zones;
use super::topologies::{DomainNames, Topologies};
use super::{JobFault, Lowered, Names, pod_partition, queues};
use crate::key::{GroupKey, PodKey};
use crate::kinds::Object;
use crate::kinds::ObjectId;
use crate::objects::{Phase, Pod, TopologyConstraint};
use crate::scheduler::effect::{Effect, Problem};
use crate::scheduler::settings::Settings;
use crate::scheduler::usage::Usage;
use crate::world::{ChangeLog, World};

/// The last snapshot and everything that its ids stand for.
#[derive(Debug)]
pub(crate) struct IncrementalSnapshot {
    snapshot: Snapshot,
    tables: Tables,
    /// Of each node of the world.
    traits: Vec<Option<Traits>>,
    /// Numbers in the tables, by node filter.
    node_filters: Vec<u32>,
    /// Numbers in the tables, by signature.
    signatures: Vec<u32>,
    jobs: Vec<Option<GroupKey>>,
    pod_sets: Vec<String>,
    tasks: Vec<PodKey>,
    devices: Vec<String>,
    columns: Vec<String>,
    constraints: BTreeMap<TopologyConstraint, u32>,
    domains: Vec<DomainNames>,
    faults: Vec<(usize, JobFault)>,
    effects: Vec<Effect>,
    problems: Vec<Problem>,
    next_change_at: Option<Timestamp>,
    /// Pods that name a pod group but belong to no job.
    pods_without_job: BTreeSet<PodKey>,
    /// Groups with terminating pods: the status of these depends on `now`, so that they are lowered in every cycle.
    time_dependent_groups: BTreeSet<GroupKey>,
}

/// What is lowered in every cycle.
#[derive(Default)]
struct TimeDependent {
    pods_without_job: BTreeSet<PodKey>,
    time_dependent_groups: BTreeSet<GroupKey>,
}

/// Something that cannot be spliced.
struct NeedsRebuild;

impl IncrementalSnapshot {
    /// Whether there are resource claims or NUMA zones, with which everything is lowered each time.
    pub(crate) fn is_unsupported(world: &World, settings: &Settings) -> bool {
        settings.numa.is_some()
            || !world.resource_slices.is_empty()
            || !world.resource_claims.is_empty()
            || world.pods.values().any(|pod| !pod.claims.is_empty())
    }

    /// From a snapshot of which everything was lowered; returned as it is if it cannot be spliced, since the names of some of
    /// its ids are not kept.
    pub(super) fn from_full<'w>(
        lowered: Lowered<'w>,
        tables: Tables,
        node_filters: Vec<u32>,
        world: &World,
        settings: &Settings,
    ) -> Result<Self, Box<Lowered<'w>>> {
        let Ok(TimeDependent { pods_without_job, time_dependent_groups }) =
            Self::check_supported(&lowered, world, settings)
        else {
            return Err(Box::new(lowered));
        };
        let Lowered { snapshot, names, faults, effects, problems, next_change_at, devices: _ } = lowered;
        let snapshot = snapshot.into_owned();
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>();
        let signatures = (0..=snapshot.jobs.iter().map(|job| job.signature).max().unwrap_or(0)).collect();
        Ok(Self {
            traits: nodes::select(world, settings).traits(world),
            node_filters,
            signatures,
            jobs: names.jobs.iter().map(|key| key.cloned()).collect(),
            pod_sets: texts(&names.pod_sets),
            tasks: names.tasks.iter().map(|key| (*key).clone()).collect(),
            devices: texts(&names.devices),
            columns: texts(&names.columns),
            constraints: names.constraints.iter().map(|(written, number)| ((*written).clone(), *number)).collect(),
            domains: names.domains,
            faults,
            effects,
            problems,
            next_change_at,
            pods_without_job,
            time_dependent_groups,
            snapshot,
            tables,
        })
    }

    /// Finds what is lowered in every cycle.
    fn check_supported(
        lowered: &Lowered<'_>,
        world: &World,
        settings: &Settings,
    ) -> Result<TimeDependent, NeedsRebuild> {
        let snapshot = &lowered.snapshot;
        let plain = snapshot.devices.is_empty()
            && snapshot.port_sets.is_empty()
            && snapshot.constraints.is_empty()
            && snapshot.matchers.is_empty()
            && snapshot.volumes == Volumes::default()
            && !Self::is_unsupported(world, settings)
            && lowered.names.jobs.iter().all(Option::is_some);
        if !plain {
            return Err(NeedsRebuild);
        }
        let pods_with_job: BTreeSet<&PodKey> = lowered.names.tasks.iter().copied().collect();
        let with_bind_request: BTreeSet<&PodKey> = world.bind_requests.values().map(|request| &request.pod).collect();
        let TimeDependent { mut pods_without_job, mut time_dependent_groups } = TimeDependent::default();
        for pod in world.pods.values() {
            let group = pod_group_named_by(pod, settings);
            if pod.request.legacy_mig || pod.deletion.is_some() && group.is_none() {
                return Err(NeedsRebuild);
            }
            let Some(group) = group else { continue };
            if pod.deletion.is_some() {
                time_dependent_groups.insert(group);
            }
            if pods_with_job.contains(&pod.key) || pod.phase == Phase::Failed {
                continue;
            }
            // It may hold resources on its node, which would have to be released.
            let (runs, binds) = (pod.node.is_some(), with_bind_request.contains(&pod.key));
            if (runs || binds) && matches!(pod.phase, Phase::Running | Phase::Pending) {
                return Err(NeedsRebuild);
            }
            pods_without_job.insert(pod.key.clone());
        }
        Ok(TimeDependent { pods_without_job, time_dependent_groups })
    }

    /// Brings the snapshot up to date; `None` if all must be lowered again.
    pub(crate) fn try_update(
        mut self,
        world: &World,
        settings: &Settings,
        usage: &Usage,
        now: Timestamp,
        changes: &ChangeLog,
    ) -> Option<Self> {
        let ChangeLog::Entries(changes) = changes else { return None };
        self.update(world, settings, usage, now, changes).ok()?;
        Some(self)
    }

    fn update(
        &mut self,
        world: &World,
        settings: &Settings,
        usage: &Usage,
        now: Timestamp,
        changes: &BTreeMap<ObjectId, Option<Object>>,
    ) -> Result<(), NeedsRebuild> {
        let (groups, pods) = self.affected(world, settings, changes)?;
        let nodes = nodes::ShardNodes::from_cached(world, &self.traits);
        let groups_here = groups.iter().filter_map(|key| world.pod_groups.get(key));
        let pods_here = pods.iter().filter_map(|key| world.pods.get(key));
        let partition = pod_partition::partition_subset(world, groups_here, pods_here, settings, &nodes, now);
        if !partition.non_job_gpu_sharers.is_empty()
            || partition.non_job_pods.iter().any(|non_job_pod| !non_job_pod.is_empty())
        {
            return Err(NeedsRebuild);
        }

        let columns: Vec<ExtraColumn<'_>> = self.columns[FIXED_NAMES.len()..]
            .iter()
            .zip(&self.snapshot.resources[FIXED_NAMES.len()..])
            .map(|(name, kind)| ExtraColumn { name, kind: *kind })
            .collect();
        let mut builder = Builder::new(columns.iter().map(|column| column.kind).collect());
        let mut names = Names::default();
        let selected = queues::select(world, settings);
        let queue_ids = queues::add(selected.rows, usage, now, &mut builder, &mut names);
        self.next_change_at = partition.next_change_at;
        self.problems = selected.problems;
        self.problems.extend(partition.problems.iter().cloned());
        if groups.is_empty() {
            self.effects = partition.effects;
            self.snapshot.queues = builder.unchecked().queues;
            self.add_tree_problems();
            return Ok(());
        }
        let topologies = Topologies::known(world);
        let added = jobs::add(
            world,
            settings,
            &nodes,
            &partition,
            &columns,
            &queue_ids,
            topologies,
            &mut self.tables,
            Zones::default(),
            None,
            &mut builder,
            &mut names,
        );
        let fresh = builder.unchecked();
        let plain = fresh.devices.is_empty()
            && fresh.port_sets.is_empty()
            && fresh.constraints.is_empty()
            && fresh.matchers.is_empty()
            && fresh.volumes == Volumes::default();
        if !plain {
            return Err(NeedsRebuild);
        }
        let names = Ids {
            jobs: names.jobs.into_iter().map(Option::<&GroupKey>::cloned).collect(),
            pod_sets: names.pod_sets.into_iter().map(str::to_owned).collect(),
            tasks: names.tasks.into_iter().cloned().collect(),
        };

        self.effects = partition.effects;
        let pods_with_job: BTreeSet<&PodKey> = names.tasks.iter().collect();
        for key in &pods {
            let pod = world.pods.get(key);
            let claims = |pod: &Pod| pod.phase != Phase::Failed && pod_group_named_by(pod, settings).is_some();
            let has_no_job = !pods_with_job.contains(key) && pod.is_some_and(claims);
            if has_no_job {
                self.pods_without_job.insert(key.clone());
            } else {
                self.pods_without_job.remove(key);
            }
        }
        self.time_dependent_groups = groups
            .iter()
            .filter(|group| {
                let leaves =
                    |pod: &Pod| pod.deletion.is_some() && pod_group_named_by(pod, settings).as_ref() == Some(group);
                pods.iter().filter_map(|key| world.pods.get(key)).any(leaves)
            })
            .cloned()
            .collect();
        self.splice(&groups, fresh, names, &added);
        self.add_tree_problems();
        Ok(())
    }

    /// Adds what is wrong with the trees of jobs to the other problems.
    fn add_tree_problems(&mut self) {
        for (job, fault) in &self.faults {
            let key = self.jobs[*job].as_ref().expect("only real groups have trees");
            self.problems.extend(fault.problem(key));
        }
        self.problems.sort_by_cached_key(|problem| problem.object.to_string());
    }

    /// Pod groups that must be lowered again, and all pods that belong to them or did.
    fn affected(
        &self,
        world: &World,
        settings: &Settings,
        changes: &BTreeMap<ObjectId, Option<Object>>,
    ) -> Result<(BTreeSet<GroupKey>, BTreeSet<PodKey>), NeedsRebuild> {
        let mut groups = self.time_dependent_groups.clone();
        let mut pods = BTreeSet::new();
        // Pods without a pod group; they hold no resources.
        let mut ungrouped_pods = BTreeSet::new();
        let mut affect = |pod: &Pod, groups: &mut BTreeSet<GroupKey>| {
            // Nodes, columns and ports depend on pods of this kind as well.
            let request = &pod.request;
            let plain = !request.legacy_mig && request.resources.scalars.is_empty();
            if !plain || !pod.host_ports.is_empty() || !pod.claims.is_empty() {
                return Err(NeedsRebuild);
            }
            match pod_group_named_by(pod, settings) {
                Some(group) => {
                    groups.insert(group);
                    pods.insert(pod.key.clone());
                }
                None if pod.node.is_none() && pod.deletion.is_none() => {
                    ungrouped_pods.insert(pod.key.clone());
                }
                None => return Err(NeedsRebuild),
            }
            Ok(())
        };
        for (which, before) in changes {
            match (which, before) {
                (ObjectId::Pod(key), before) => {
                    if let Some(Object::Pod(pod)) = before {
                        affect(pod, &mut groups)?;
                    }
                    world.pods.get(key).map_or(Ok(()), |pod| affect(pod, &mut groups))?;
                }
                (ObjectId::PodGroup(key), _) => {
                    groups.insert(key.clone());
                }
                (ObjectId::BindRequest(key), before) => {
                    let before = match before {
                        Some(Object::BindRequest(request)) => Some(&**request),
                        _ => None,
                    };
                    for request in before.into_iter().chain(world.bind_requests.get(key)) {
                        world.pods.get(&request.pod).map_or(Ok(()), |pod| affect(pod, &mut groups))?;
                    }
                }
                _ => return Err(NeedsRebuild),
            }
        }
        for pod in self.pods_without_job.iter().filter_map(|key| world.pods.get(key)) {
            affect(pod, &mut groups)?;
        }
        // Requests that were made for an earlier pod of the same name are reported as long as they are there.
        for request in world.bind_requests.values() {
            if let Some(pod) = world.pods.get(&request.pod).filter(|pod| !request.is_for(pod)) {
                affect(pod, &mut groups)?;
            }
        }
        if !ungrouped_pods.is_empty() {
            let before = changes.values().filter_map(|before| match before {
                Some(Object::BindRequest(request)) => Some(&**request),
                _ => None,
            });
            if world.bind_requests.values().chain(before).any(|request| ungrouped_pods.contains(&request.pod)) {
                return Err(NeedsRebuild);
            }
        }
        for group in &groups {
            if let Ok(job) = self.position(group) {
                let tasks = self.snapshot.job_tasks(JobId::at(job));
                pods.extend(tasks.map(|task| self.tasks[task.index()].clone()));
            }
        }
        Ok((groups, pods))
    }

    /// Where the job of a group is, or would be.
    fn position(&self, group: &GroupKey) -> Result<usize, usize> {
        self.jobs.binary_search_by(|key| key.as_ref().cmp(&Some(group)))
    }

    /// Puts new rows in the place of those of the groups.
    fn splice(&mut self, groups: &BTreeSet<GroupKey>, fresh: Snapshot, fresh_names: Ids, added: &jobs::Added) {
        let steps = self.steps(groups, &fresh_names.jobs);
        let old = std::mem::take(&mut self.snapshot);
        let shapes = ShapeNumbers::new(&old, &fresh);
        let kept = Source {
            rows: &old,
            shapes: shapes.of(&old),
            node_filters: &self.node_filters,
            signatures: Some(&self.signatures),
        };
        let new =
            Source { rows: &fresh, shapes: shapes.of(&fresh), node_filters: &added.node_filters, signatures: None };
        let mut splicer = Splicer::new(&old, &fresh);
        let mut old_names = IdRows::new(Ids {
            jobs: std::mem::take(&mut self.jobs),
            pod_sets: std::mem::take(&mut self.pod_sets),
            tasks: std::mem::take(&mut self.tasks),
        });
        let mut fresh_names = IdRows::new(fresh_names);
        let mut names = Ids::default();
        let mut faults = Vec::new();
        for step in steps {
            let (source, rows, jobs, faulty) = match &step {
                Step::Keep(jobs) => (&kept, &mut old_names, jobs.clone(), &self.faults),
                Step::Add(job) => (&new, &mut fresh_names, *job..*job + 1, &added.faults),
                Step::Drop(job) => {
                    old_names.pass(source_sizes(&old, &(*job..*job + 1)), None);
                    continue;
                }
            };
            let here = splicer.out.jobs.len();
            let broken = faulty.iter().filter(|(job, _)| jobs.contains(job));
            faults.extend(broken.map(|(job, fault)| (here + job - jobs.start, fault.clone())));
            rows.pass(source_sizes(source.rows, &jobs), Some(&mut names));
            splicer.jobs(source, jobs);
        }
        (self.jobs, self.pod_sets, self.tasks, self.faults) = (names.jobs, names.pod_sets, names.tasks, faults);

        let Splicer { mut out, shapes: used_shapes, node_filters, signatures } = splicer;
        out.shapes = shapes.in_order(&used_shapes.order);
        out.node_filters =
            node_filters.order.iter().map(|number| self.tables.node_filters.rows[*number as usize].clone()).collect();
        out.queues = fresh.queues;
        self.snapshot = with_other_tables(out, old);
        self.node_filters = node_filters.order;
        self.signatures = [0].into_iter().chain(signatures.order).collect();
        if cfg!(debug_assertions) {
            kai_engine::builder::check(&self.snapshot);
        }
    }

    /// How the jobs of the next snapshot follow from those of the last and the new ones, both in name order.
    fn steps(&self, groups: &BTreeSet<GroupKey>, fresh: &[Option<GroupKey>]) -> Vec<Step> {
        let mut steps = Vec::new();
        let (mut next, mut added) = (0, 0);
        for group in groups {
            let place = self.position(group);
            let (Ok(at) | Err(at)) = place;
            steps.push(Step::Keep(next..at));
            next = at;
            if place.is_ok() {
                steps.push(Step::Drop(at));
                next += 1;
            }
            if fresh.get(added).is_some_and(|key| key.as_ref() == Some(group)) {
                steps.push(Step::Add(added));
                added += 1;
            }
        }
        steps.push(Step::Keep(next..self.jobs.len()));
        steps.retain(|step| !matches!(step, Step::Keep(jobs) if jobs.is_empty()));
        steps
    }

    /// The snapshot with the names of its ids.
    pub(crate) fn lowered<'m>(&'m self, world: &'m World, settings: &Settings) -> Lowered<'m> {
        let texts = |list: &'m [String]| list.iter().map(String::as_str).collect();
        let nodes = nodes::ShardNodes::from_cached(world, &self.traits);
        let names = Names {
            nodes: nodes.list.iter().map(|facts| facts.node.name.as_str()).collect(),
            queues: queues::select(world, settings).rows.into_values().map(|(queue, _)| queue).collect(),
            jobs: self.jobs.iter().map(Option::as_ref).collect(),
            pod_sets: texts(&self.pod_sets),
            tasks: self.tasks.iter().collect(),
            devices: texts(&self.devices),
            columns: texts(&self.columns),
            constraints: self.constraints.iter().map(|(written, number)| (written, *number)).collect(),
            domains: self.domains.clone(),
            ..Names::default()
        };
        Lowered {
            snapshot: Cow::Borrowed(&self.snapshot),
            names,
            faults: self.faults.clone(),
            effects: self.effects.clone(),
            problems: self.problems.clone(),
            next_change_at: self.next_change_at,
            devices: None,
        }
    }
}

fn pod_group_named_by(pod: &Pod, settings: &Settings) -> Option<GroupKey> {
    let group = pod_partition::pod_group_named_by(pod, settings)?;
    Some(GroupKey::new(pod.key.namespace.clone(), group))
}

#[cfg(test)]
mod tests;
