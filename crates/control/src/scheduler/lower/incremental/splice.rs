//! Rows of jobs, copied from one snapshot to the next: ids move up or down, shared tables are numbered anew.

use std::collections::BTreeMap;
use std::ops::Range;

use kai_engine::Snapshot;
use kai_engine::ids::{GroupId, IdRange, JobId, NodeFilterId, PodSetId, ShapeId};
use kai_engine::snapshot::{Group, Job, Member, PodSet, Shape, Task};

use crate::key::{GroupKey, PodKey};

/// How a part of the next snapshot comes about.
pub(super) enum Step {
    /// These jobs stay.
    Keep(Range<usize>),
    /// This one goes.
    Drop(usize),
    /// This one comes.
    Add(usize),
}

/// Names by id.
#[derive(Default)]
pub(super) struct Ids {
    pub(super) jobs: Vec<Option<GroupKey>>,
    pub(super) pod_sets: Vec<String>,
    pub(super) tasks: Vec<PodKey>,
}

/// The same, handed on from front to back.
pub(super) struct IdRows {
    jobs: std::vec::IntoIter<Option<GroupKey>>,
    pod_sets: std::vec::IntoIter<String>,
    tasks: std::vec::IntoIter<PodKey>,
}

impl IdRows {
    pub(super) fn new(names: Ids) -> Self {
        Self { jobs: names.jobs.into_iter(), pod_sets: names.pod_sets.into_iter(), tasks: names.tasks.into_iter() }
    }

    /// Passes so many jobs, pod sets and tasks on, or drops them.
    pub(super) fn pass(&mut self, sizes: [usize; 3], to: Option<&mut Ids>) {
        let jobs = self.jobs.by_ref().take(sizes[0]);
        let pod_sets = self.pod_sets.by_ref().take(sizes[1]);
        let tasks = self.tasks.by_ref().take(sizes[2]);
        if let Some(to) = to {
            to.jobs.extend(jobs);
            to.pod_sets.extend(pod_sets);
            to.tasks.extend(tasks);
        } else {
            jobs.for_each(drop);
            pod_sets.for_each(drop);
            tasks.for_each(drop);
        }
    }
}

/// How many jobs, pod sets and tasks there are in a range of jobs.
pub(super) fn source_sizes(rows: &Snapshot, jobs: &Range<usize>) -> [usize; 3] {
    let blocks = Blocks::of(rows, jobs);
    [jobs.len(), blocks.pod_sets.len(), blocks.tasks.len()]
}

/// The rows of neighbouring jobs.
struct Blocks {
    groups: Range<usize>,
    members: Range<usize>,
    pod_sets: Range<usize>,
    tasks: Range<usize>,
}

impl Blocks {
    fn of(rows: &Snapshot, jobs: &Range<usize>) -> Self {
        let jobs = &rows.jobs[jobs.clone()];
        let groups = block(jobs.iter().map(|job| job.groups));
        let pod_sets = block(jobs.iter().map(|job| job.pod_sets));
        Self {
            members: block(rows.groups[groups.clone()].iter().map(|group| group.members)),
            tasks: block(rows.pod_sets[pod_sets.clone()].iter().map(|set| set.tasks)),
            groups,
            pod_sets,
        }
    }
}

/// From the first to the last of spans that lie side by side, in whatever order.
fn block(spans: impl Iterator<Item = IdRange>) -> Range<usize> {
    spans.map(IdRange::indices).reduce(|all, next| all.start.min(next.start)..all.end.max(next.end)).unwrap_or(0..0)
}

/// Rows to copy, and what their ids stand for.
pub(super) struct Source<'a> {
    pub(super) rows: &'a Snapshot,
    /// Numbers by shape.
    pub(super) shapes: Vec<u32>,
    /// Numbers by node filter.
    pub(super) node_filters: &'a [u32],
    /// Numbers by signature, unless signatures are numbers already.
    pub(super) signatures: Option<&'a [u32]>,
}

/// A number for each distinct shape of two snapshots.
pub(super) struct ShapeNumbers<'a>(BTreeMap<&'a Shape, u32>);

impl<'a> ShapeNumbers<'a> {
    pub(super) fn new(old: &'a Snapshot, fresh: &'a Snapshot) -> Self {
        let mut numbers: BTreeMap<&Shape, u32> = BTreeMap::new();
        for shape in old.shapes.iter().chain(&fresh.shapes) {
            let next = numbers.len() as u32;
            numbers.entry(shape).or_insert(next);
        }
        Self(numbers)
    }

    /// Those of the shapes of one snapshot, by id.
    pub(super) fn of(&self, rows: &Snapshot) -> Vec<u32> {
        rows.shapes.iter().map(|shape| self.0[shape]).collect()
    }

    /// The shapes with these numbers.
    pub(super) fn in_order(&self, numbers: &[u32]) -> Vec<Shape> {
        let mut by_number: Vec<(u32, &Shape)> = self.0.iter().map(|(shape, number)| (*number, *shape)).collect();
        by_number.sort_by_key(|(number, _)| *number);
        numbers.iter().map(|number| by_number[*number as usize].1.clone()).collect()
    }
}

/// The spliced rows, with all tables of the old snapshot that jobs are not part of. Jobs must not be part of a table that
/// is added here either.
pub(super) fn with_other_tables(spliced: Snapshot, old: Snapshot) -> Snapshot {
    let Snapshot {
        resources,
        nodes,
        queues: _,
        jobs: _,
        groups: _,
        members: _,
        pod_sets: _,
        tasks: _,
        shapes: _,
        node_filters: _,
        devices,
        device_lists,
        port_sets,
        port_conflicts,
        topologies,
        constraints,
        topology_keys,
        matchers,
        matcher_lists,
        inter_pod,
        unmanaged_pods,
        numa,
        extras,
        claims,
        volumes,
    } = old;
    Snapshot {
        resources,
        nodes,
        devices,
        device_lists,
        port_sets,
        port_conflicts,
        topologies,
        constraints,
        topology_keys,
        matchers,
        matcher_lists,
        inter_pod,
        unmanaged_pods,
        numa,
        extras,
        claims,
        volumes,
        ..spliced
    }
}

/// Ids in the order in which numbers are first met, as when everything is lowered.
pub(super) struct Numbering {
    first: u32,
    ids: Vec<Option<u32>>,
    /// Numbers by id.
    pub(super) order: Vec<u32>,
}

impl Numbering {
    pub(super) fn new(first: u32) -> Self {
        Self { first, ids: Vec::new(), order: Vec::new() }
    }

    fn id(&mut self, number: u32) -> u32 {
        let index = number as usize;
        if index >= self.ids.len() {
            self.ids.resize(index + 1, None);
        }
        *self.ids[index].get_or_insert_with(|| {
            self.order.push(number);
            self.first + self.order.len() as u32 - 1
        })
    }
}

/// A snapshot in the making.
pub(super) struct Splicer {
    pub(super) out: Snapshot,
    pub(super) shapes: Numbering,
    pub(super) node_filters: Numbering,
    pub(super) signatures: Numbering,
}

impl Splicer {
    pub(super) fn new(old: &Snapshot, fresh: &Snapshot) -> Self {
        let out = Snapshot {
            jobs: Vec::with_capacity(old.jobs.len() + fresh.jobs.len()),
            groups: Vec::with_capacity(old.groups.len() + fresh.groups.len()),
            members: Vec::with_capacity(old.members.len() + fresh.members.len()),
            pod_sets: Vec::with_capacity(old.pod_sets.len() + fresh.pod_sets.len()),
            tasks: Vec::with_capacity(old.tasks.len() + fresh.tasks.len()),
            ..Snapshot::default()
        };
        let (shapes, node_filters, signatures) = (Numbering::new(0), Numbering::new(0), Numbering::new(1));
        Self { out, shapes, node_filters, signatures }
    }

    /// Copies neighbouring jobs with all that is theirs.
    pub(super) fn jobs(&mut self, source: &Source<'_>, jobs: Range<usize>) {
        let (rows, blocks) = (source.rows, Blocks::of(source.rows, &jobs));
        let shift = |to: usize, from: usize| (to as u32).wrapping_sub(from as u32);
        let job_shift = shift(self.out.jobs.len(), jobs.start);
        let group_shift = shift(self.out.groups.len(), blocks.groups.start);
        let member_shift = shift(self.out.members.len(), blocks.members.start);
        let set_shift = shift(self.out.pod_sets.len(), blocks.pod_sets.start);
        let task_shift = shift(self.out.tasks.len(), blocks.tasks.start);
        let moved = |span: IdRange, shift: u32| IdRange {
            start: span.start.wrapping_add(shift),
            end: span.end.wrapping_add(shift),
        };
        for job in &rows.jobs[jobs] {
            let number = source.signatures.map_or(job.signature, |numbers| numbers[job.signature as usize]);
            self.out.jobs.push(Job {
                groups: moved(job.groups, group_shift),
                pod_sets: moved(job.pod_sets, set_shift),
                signature: self.signatures.id(number),
                ..job.clone()
            });
        }
        let groups = rows.groups[blocks.groups].iter();
        self.out
            .groups
            .extend(groups.map(|group| Group { members: moved(group.members, member_shift), ..group.clone() }));
        self.out.members.extend(rows.members[blocks.members].iter().map(|member| match member {
            Member::Group(id) => Member::Group(GroupId(id.0.wrapping_add(group_shift))),
            Member::PodSet(id) => Member::PodSet(PodSetId(id.0.wrapping_add(set_shift))),
        }));
        let job_moved = |job: JobId| JobId(job.0.wrapping_add(job_shift));
        self.out.pod_sets.extend(rows.pod_sets[blocks.pod_sets].iter().map(|set| PodSet {
            job: job_moved(set.job),
            tasks: moved(set.tasks, task_shift),
            ..set.clone()
        }));
        for task in &rows.tasks[blocks.tasks] {
            self.out.tasks.push(Task {
                job: job_moved(task.job),
                pod_set: PodSetId(task.pod_set.0.wrapping_add(set_shift)),
                shape: ShapeId(self.shapes.id(source.shapes[task.shape.index()])),
                node_filter: NodeFilterId(self.node_filters.id(source.node_filters[task.node_filter.index()])),
                // Without devices and ports there are no other tables that a pod points into.
                ..task.clone()
            });
        }
    }
}
