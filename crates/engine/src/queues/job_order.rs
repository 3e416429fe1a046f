//! The tree through which every action takes its next job: best top queue, best child, …, best job of the leaf.
//!
//! A queue is ranked by the job that comes next from it. Rankings are kept until the queue's counters or its jobs
//! change, and siblings play a tournament, so that an attempt costs what changed since the last one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::order::{QueueOrderInput, QueueOrderKey, all_comparable};
use crate::gang::GangStatus;
use crate::ids::{JobId, QueueId};
use crate::ledger::Ledger;
use crate::policy::Policy;
use crate::units::{ResourceQuantities, Timestamp};

/// A job's place in its queue: the smallest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobKey {
    priority: Reverse<i32>,
    status: GangStatus,
    created: Timestamp,
    /// The job, which decides between equal ones.
    pub job: JobId,
}

impl JobKey {
    /// The place of a victim: among jobs of equal priority and completeness the one that loses least comes last, so it is
    /// evicted first.
    pub(crate) fn by_lost_work(self, lost: i64) -> Self {
        Self { created: Timestamp(-lost), ..self }
    }
}

/// What decides the order of jobs in a queue, before their age.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobOrder {
    by_priority: bool,
    by_gang_status: bool,
}

impl JobOrder {
    /// As the policy has it.
    pub(crate) fn new(policy: &Policy) -> Self {
        Self { by_priority: policy.order_by_priority, by_gang_status: policy.order_below_min_first }
    }

    /// A job's place in its queue if it were this complete.
    pub(crate) fn key(self, ledger: &Ledger<'_>, job: JobId, status: GangStatus) -> JobKey {
        let row = ledger.snapshot.job(job);
        JobKey {
            priority: Reverse(if self.by_priority { row.priority } else { 0 }),
            status: if self.by_gang_status { status } else { GangStatus::BelowMin },
            created: row.created,
            job,
        }
    }
}

/// What the tree asks about a job.
pub(crate) trait JobInfo {
    /// What the job would take on next.
    fn required(&mut self, ledger: &Ledger<'_>, job: JobId) -> ResourceQuantities;
    /// Its key in its queue.
    fn key(&mut self, ledger: &Ledger<'_>, job: JobId) -> JobKey;
}

/// Waiting jobs, in the order in which an action tries them.
#[derive(Debug)]
pub(crate) struct JobTree {
    heaps: Vec<JobHeap>,
    /// The top queues, then the children of each queue.
    groups: Vec<SiblingGroup>,
    /// The position of each queue: its group, its number there, its distance from the top.
    positions: Vec<QueuePosition>,
    rankings: Vec<Option<QueueRanking>>,
    /// Queues with jobs, and all above them.
    active: Vec<QueueId>,
    /// Queues whose ranking is out of date, by distance from the top.
    stale: Vec<Vec<QueueId>>,
    /// `QueueAccounts::version` for which all other rankings were computed.
    accounts_version: u64,
    by_age: bool,
    /// Compare all siblings every time, to compare results in tests.
    pub full_scan: bool,
}

/// The jobs of one queue, best on top.
#[derive(Debug, Default)]
struct JobHeap {
    jobs: BinaryHeap<Reverse<JobKey>>,
    /// Only the best so many are to stay.
    depth: Option<usize>,
}

impl JobHeap {
    /// Keeps the best jobs only.
    fn cut(&mut self) {
        if let Some(depth) = self.depth.take()
            && self.jobs.len() > depth
        {
            let mut jobs = std::mem::take(&mut self.jobs).into_sorted_vec();
            jobs.reverse();
            jobs.truncate(depth);
            self.jobs = jobs.into();
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct QueuePosition {
    group: usize,
    number: usize,
    depth: usize,
    active: bool,
    stale: bool,
}

#[derive(Debug)]
struct QueueRanking {
    version: u32,
    head: JobId,
    key: QueueOrderKey,
}

/// Siblings, and which of them comes first.
#[derive(Debug, Default)]
struct SiblingGroup {
    members: Vec<QueueId>,
    /// Winners by number, root at 1; number `i` enters at `width + i`.
    winners: Vec<u32>,
    width: usize,
    /// Whether the order is transitive. If not, siblings are compared one after the other in name order.
    ordered: bool,
}

const NO_WINNER: u32 = u32::MAX;

impl JobTree {
    /// A tree without jobs.
    pub(crate) fn new(ledger: &Ledger<'_>, policy: &Policy) -> Self {
        let rows = &ledger.queues.rows;
        let by_age = policy.proportion.is_none();
        let mut groups: Vec<SiblingGroup> = (0..=rows.len()).map(|_| SiblingGroup::default()).collect();
        let mut positions = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            let queue = QueueId::at(index);
            let group = row.parent.map_or(0, |parent| parent.index() + 1);
            let depth = ledger.queues.path(queue).count() - 1;
            positions.push(QueuePosition {
                group,
                number: groups[group].members.len(),
                depth,
                active: false,
                stale: false,
            });
            groups[group].members.push(queue);
        }
        for group in &mut groups {
            group.width = group.members.len().next_power_of_two();
            group.winners = vec![NO_WINNER; 2 * group.width];
            group.ordered = by_age || all_comparable(group.members.iter().map(|queue| ledger.queues.row(*queue)));
        }
        let levels = positions.iter().map(|position| position.depth + 1).max().unwrap_or(0);
        Self {
            heaps: rows.iter().map(|_| JobHeap::default()).collect(),
            groups,
            rankings: rows.iter().map(|_| None).collect(),
            positions,
            active: Vec::new(),
            stale: vec![Vec::new(); levels],
            accounts_version: ledger.queues.version,
            by_age,
            full_scan: false,
        }
    }

    /// Takes all jobs out.
    pub(crate) fn clear(&mut self) {
        for queue in std::mem::take(&mut self.active) {
            self.heaps[queue.index()] = JobHeap::default();
            self.positions[queue.index()].active = false;
            self.invalidate(queue);
        }
    }

    /// Adds a job; with a depth only the best so many of each queue stay. Jobs of inner queues are left out.
    pub(crate) fn push(&mut self, ledger: &Ledger<'_>, jobs: &mut impl JobInfo, job: JobId, depth: Option<u32>) {
        let Some(queue) = ledger.snapshot.job(job).queue else { return };
        if !self.groups[queue.index() + 1].members.is_empty() {
            return;
        }
        let heap = &mut self.heaps[queue.index()];
        heap.jobs.push(Reverse(jobs.key(ledger, job)));
        if let Some(depth) = depth {
            heap.depth = Some(depth as usize);
            // Now and then, so that a long heap costs little more than a short one.
            if heap.jobs.len() > 2 * depth as usize + 64 {
                heap.cut();
            }
        }
        self.change(ledger, queue);
    }

    /// Takes the next job.
    pub(crate) fn pop(&mut self, ledger: &Ledger<'_>, jobs: &mut impl JobInfo) -> Option<JobId> {
        self.refresh(ledger, jobs);
        let best = self.best(ledger, 0)?;
        let job = self.rankings[best.index()].as_ref().expect("the best is ranked").head;
        let queue = ledger.snapshot.job(job).queue.expect("only jobs with a queue are added");
        // Its key may have changed since; it is found by its place at insertion.
        let first = self.heaps[queue.index()].jobs.pop();
        debug_assert_eq!(first.map(|Reverse(key)| key.job), Some(job));
        self.change(ledger, queue);
        Some(job)
    }

    /// All jobs, in no order.
    pub(crate) fn jobs(&mut self) -> impl Iterator<Item = JobId> + '_ {
        self.heaps.iter_mut().flat_map(|heap| {
            heap.cut();
            heap.jobs.iter().map(|Reverse(key)| key.job)
        })
    }

    /// Takes all jobs out: those of one queue in order, queue after queue.
    pub(crate) fn drain(&mut self) -> Vec<JobId> {
        let mut all = Vec::new();
        for heap in &mut self.heaps {
            heap.cut();
            let mut jobs = std::mem::take(&mut heap.jobs).into_vec();
            jobs.sort_unstable_by(|left, right| right.cmp(left));
            all.extend(jobs.into_iter().map(|Reverse(key)| key.job));
        }
        self.clear();
        all
    }

    /// Whether a queue with this key comes before its sibling with that, whatever the other siblings.
    pub(crate) fn is_ahead(&self, left: (QueueId, &QueueOrderKey), right: (QueueId, &QueueOrderKey)) -> bool {
        let group = &self.groups[self.positions[left.0.index()].group];
        // Between equal queues the name decides.
        let by_name = || group.ordered && left.1.compare(right.1).then(left.0.cmp(&right.0)).is_lt();
        !self.by_age && (left.1.is_ahead_of(right.1) || by_name())
    }

    /// The queue or its jobs changed: its ranking and those of all above are out of date.
    fn change(&mut self, ledger: &Ledger<'_>, queue: QueueId) {
        for queue in ledger.queues.path(queue) {
            let position = &mut self.positions[queue.index()];
            if !position.active {
                position.active = true;
                self.active.push(queue);
            }
            self.invalidate(queue);
        }
    }

    fn invalidate(&mut self, queue: QueueId) {
        let position = &mut self.positions[queue.index()];
        if !position.stale {
            position.stale = true;
            self.stale[position.depth].push(queue);
        }
    }

    /// Ranks again what is out of date, from the leaves up.
    fn refresh(&mut self, ledger: &Ledger<'_>, jobs: &mut impl JobInfo) {
        if self.accounts_version != ledger.queues.version {
            self.accounts_version = ledger.queues.version;
            for index in 0..self.active.len() {
                let queue = self.active[index];
                let version = ledger.queues.row(queue).version;
                // What is charged to a queue is charged to all above it, so these are found here, too.
                if self.rankings[queue.index()].as_ref().is_some_and(|ranking| ranking.version != version) {
                    self.invalidate(queue);
                }
            }
        }
        for depth in (0..self.stale.len()).rev() {
            let mut stale = std::mem::take(&mut self.stale[depth]);
            for queue in stale.drain(..) {
                self.positions[queue.index()].stale = false;
                self.rank(ledger, jobs, queue);
            }
            self.stale[depth] = stale;
        }
    }

    fn rank(&mut self, ledger: &Ledger<'_>, jobs: &mut impl JobInfo, queue: QueueId) {
        let below = queue.index() + 1;
        let head = if self.groups[below].members.is_empty() {
            let heap = &mut self.heaps[queue.index()];
            heap.cut();
            heap.jobs.peek().map(|Reverse(key)| key.job)
        } else {
            self.best(ledger, below).and_then(|child| self.rankings[child.index()].as_ref()).map(|ranking| ranking.head)
        };
        let row = ledger.queues.row(queue);
        self.rankings[queue.index()] = head.map(|head| {
            let input =
                QueueOrderInput { row, required: jobs.required(ledger, head), victims: ResourceQuantities::ZERO };
            QueueRanking { version: row.version, head, key: QueueOrderKey::of(input, ledger.queues.total) }
        });
        self.update_tournament(ledger, queue);
    }

    /// Compares the queue with its siblings again, from its leaf of the tournament up.
    fn update_tournament(&mut self, ledger: &Ledger<'_>, queue: QueueId) {
        let QueuePosition { group, number, .. } = self.positions[queue.index()];
        let mut slot = self.groups[group].width + number;
        self.groups[group].winners[slot] =
            if self.rankings[queue.index()].is_some() { number as u32 } else { NO_WINNER };
        while slot > 1 {
            slot /= 2;
            let winners = &self.groups[group].winners;
            let winner = match (winners[2 * slot], winners[2 * slot + 1]) {
                (NO_WINNER, other) | (other, NO_WINNER) => other,
                (left, right) => {
                    let members = &self.groups[group].members;
                    // Between equal queues the name decides: the left one stays.
                    let passes = self.comes_before(ledger, members[right as usize], members[left as usize]);
                    if passes { right } else { left }
                }
            };
            self.groups[group].winners[slot] = winner;
        }
    }

    /// The first of a group; all its members must be ranked.
    fn best(&self, ledger: &Ledger<'_>, group: usize) -> Option<QueueId> {
        let SiblingGroup { members, winners, ordered, .. } = &self.groups[group];
        if *ordered && !self.full_scan {
            return members.get(*winners.get(1)? as usize).copied();
        }
        let ranked = members.iter().copied().filter(|queue| self.rankings[queue.index()].is_some());
        ranked.reduce(|best, queue| if self.comes_before(ledger, queue, best) { queue } else { best })
    }

    fn comes_before(&self, ledger: &Ledger<'_>, left: QueueId, right: QueueId) -> bool {
        if self.by_age {
            return ledger.queues.row(left).created < ledger.queues.row(right).created;
        }
        let key = |queue: QueueId| &self.rankings[queue.index()].as_ref().expect("ranked above").key;
        key(left).compare(key(right)).is_lt()
    }
}
