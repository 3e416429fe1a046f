//! The tree through which every action takes its next job: best top queue, best child, …, best job of the leaf.
//!
//! A queue is judged with the job that would come next from it. Judgements are kept until the queue's counters or
//! its jobs change, and siblings play a tournament, so that a turn costs what changed since the last one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::order::{Contender, Entitlement, all_comparable};
use crate::gang::Need;
use crate::ids::{JobId, QueueId};
use crate::ledger::Ledger;
use crate::policy::Policy;
use crate::units::{Timestamp, Triple};

/// A job's place in its queue.
pub type JobKey = (Reverse<i32>, Need, Timestamp, JobId);

/// What the tree asks about a job.
pub trait Jobs {
    /// What the job would take on next.
    fn required(&mut self, ledger: &Ledger<'_>, job: JobId) -> Triple;
    /// Where it stands in its queue.
    fn key(&mut self, ledger: &Ledger<'_>, job: JobId) -> JobKey;
}

/// Jobs waiting for their turn.
#[derive(Debug)]
pub struct JobTree {
    lines: Vec<Line>,
    /// The top queues, then the children of each queue.
    families: Vec<Family>,
    /// Where each queue stands: its family, its number there, its distance from the top.
    seats: Vec<Seat>,
    judged: Vec<Option<Judged>>,
    /// Queues with jobs, and all above them.
    active: Vec<QueueId>,
    /// Queues to be judged anew, by distance from the top.
    stale: Vec<Vec<QueueId>>,
    /// The state of the counters for which all others are judged.
    seen: u64,
    by_age: bool,
    /// Compare all siblings every time, to compare results in tests.
    pub full_scan: bool,
}

/// The jobs of one queue, best on top.
#[derive(Debug, Default)]
struct Line {
    jobs: BinaryHeap<Reverse<JobKey>>,
    /// Only the best so many are to stay.
    depth: Option<usize>,
}

impl Line {
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
struct Seat {
    family: usize,
    number: usize,
    depth: usize,
    active: bool,
    stale: bool,
}

#[derive(Debug)]
struct Judged {
    version: u32,
    head: JobId,
    entitlement: Entitlement,
}

/// Siblings, and which of them comes first.
#[derive(Debug, Default)]
struct Family {
    members: Vec<QueueId>,
    /// Winners by number, root at 1; number `i` enters at `width + i`.
    winners: Vec<u32>,
    width: usize,
    /// Whether comparing is an order. Else who comes first depends on who meets whom, and all meet in name order.
    ordered: bool,
}

const NOBODY: u32 = u32::MAX;

impl JobTree {
    /// A tree without jobs.
    pub fn new(ledger: &Ledger<'_>, policy: &Policy) -> Self {
        let rows = &ledger.queues.rows;
        let by_age = policy.proportion.is_none();
        let mut families: Vec<Family> = (0..=rows.len()).map(|_| Family::default()).collect();
        let mut seats = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            let queue = QueueId::at(index);
            let family = row.parent.map_or(0, |parent| parent.index() + 1);
            let depth = ledger.queues.path(queue).count() - 1;
            seats.push(Seat { family, number: families[family].members.len(), depth, active: false, stale: false });
            families[family].members.push(queue);
        }
        for family in &mut families {
            family.width = family.members.len().next_power_of_two();
            family.winners = vec![NOBODY; 2 * family.width];
            family.ordered = by_age || all_comparable(family.members.iter().map(|queue| ledger.queues.row(*queue)));
        }
        let levels = seats.iter().map(|seat| seat.depth + 1).max().unwrap_or(0);
        Self {
            lines: rows.iter().map(|_| Line::default()).collect(),
            families,
            judged: rows.iter().map(|_| None).collect(),
            seats,
            active: Vec::new(),
            stale: vec![Vec::new(); levels],
            seen: ledger.queues.version,
            by_age,
            full_scan: false,
        }
    }

    /// Takes all jobs out, to start anew.
    pub fn clear(&mut self) {
        for queue in std::mem::take(&mut self.active) {
            self.lines[queue.index()] = Line::default();
            self.seats[queue.index()].active = false;
            self.outdate(queue);
        }
    }

    /// Adds a job; with a depth only the best so many of each queue stay. Jobs of inner queues are left out.
    pub fn push(&mut self, ledger: &Ledger<'_>, jobs: &mut impl Jobs, job: JobId, depth: Option<u32>) {
        let Some(queue) = ledger.snapshot.job(job).queue else { return };
        if !self.families[queue.index() + 1].members.is_empty() {
            return;
        }
        let line = &mut self.lines[queue.index()];
        line.jobs.push(Reverse(jobs.key(ledger, job)));
        if let Some(depth) = depth {
            line.depth = Some(depth as usize);
            // Now and then, so that a long line costs little more than a short one.
            if line.jobs.len() > 2 * depth as usize + 64 {
                line.cut();
            }
        }
        self.change(ledger, queue);
    }

    /// Takes the next job.
    pub fn pop(&mut self, ledger: &Ledger<'_>, jobs: &mut impl Jobs) -> Option<JobId> {
        self.refresh(ledger, jobs);
        let best = self.best(ledger, 0)?;
        let job = self.judged[best.index()].as_ref().expect("the best is judged").head;
        let queue = ledger.snapshot.job(job).queue.expect("only jobs with a queue are added");
        // Its key may have changed since; it is found by its place at insertion.
        let first = self.lines[queue.index()].jobs.pop();
        debug_assert_eq!(first.map(|Reverse(key)| key.3), Some(job));
        self.change(ledger, queue);
        Some(job)
    }

    /// All jobs, in no order.
    pub fn jobs(&mut self) -> impl Iterator<Item = JobId> + '_ {
        self.lines.iter_mut().flat_map(|line| {
            line.cut();
            line.jobs.iter().map(|Reverse(key)| key.3)
        })
    }

    /// Takes all jobs out: those of one queue in order, queue after queue.
    pub fn drain(&mut self) -> Vec<JobId> {
        let mut all = Vec::new();
        for line in &mut self.lines {
            line.cut();
            let mut jobs = std::mem::take(&mut line.jobs).into_vec();
            jobs.sort_unstable_by(|left, right| right.cmp(left));
            all.extend(jobs.into_iter().map(|Reverse(key)| key.3));
        }
        self.clear();
        all
    }

    /// Whether a queue with this entitlement comes before its sibling with that, whoever else there is.
    pub fn is_ahead(&self, left: (QueueId, &Entitlement), right: (QueueId, &Entitlement)) -> bool {
        let family = &self.families[self.seats[left.0.index()].family];
        // Equal queues are told apart by name.
        let by_name = || family.ordered && left.1.compare(right.1).then(left.0.cmp(&right.0)).is_lt();
        !self.by_age && (left.1.is_ahead_of(right.1) || by_name())
    }

    /// The queue or its jobs changed: it and all above are judged anew.
    fn change(&mut self, ledger: &Ledger<'_>, queue: QueueId) {
        for queue in ledger.queues.path(queue) {
            let seat = &mut self.seats[queue.index()];
            if !seat.active {
                seat.active = true;
                self.active.push(queue);
            }
            self.outdate(queue);
        }
    }

    fn outdate(&mut self, queue: QueueId) {
        let seat = &mut self.seats[queue.index()];
        if !seat.stale {
            seat.stale = true;
            self.stale[seat.depth].push(queue);
        }
    }

    /// Judges again what is out of date, from the leaves up.
    fn refresh(&mut self, ledger: &Ledger<'_>, jobs: &mut impl Jobs) {
        if self.seen != ledger.queues.version {
            self.seen = ledger.queues.version;
            for index in 0..self.active.len() {
                let queue = self.active[index];
                let version = ledger.queues.row(queue).version;
                // What is charged to a queue is charged to all above it, so these are found here, too.
                if self.judged[queue.index()].as_ref().is_some_and(|judged| judged.version != version) {
                    self.outdate(queue);
                }
            }
        }
        for depth in (0..self.stale.len()).rev() {
            let mut stale = std::mem::take(&mut self.stale[depth]);
            for queue in stale.drain(..) {
                self.seats[queue.index()].stale = false;
                self.judge(ledger, jobs, queue);
            }
            self.stale[depth] = stale;
        }
    }

    fn judge(&mut self, ledger: &Ledger<'_>, jobs: &mut impl Jobs, queue: QueueId) {
        let below = queue.index() + 1;
        let head = if self.families[below].members.is_empty() {
            let line = &mut self.lines[queue.index()];
            line.cut();
            line.jobs.peek().map(|Reverse(key)| key.3)
        } else {
            self.best(ledger, below).and_then(|child| self.judged[child.index()].as_ref()).map(|judged| judged.head)
        };
        let row = ledger.queues.row(queue);
        self.judged[queue.index()] = head.map(|head| {
            let contender = Contender { row, required: jobs.required(ledger, head), victims: Triple::ZERO };
            Judged { version: row.version, head, entitlement: Entitlement::of(contender, ledger.queues.total) }
        });
        self.enter(ledger, queue);
    }

    /// Plays the queue's matches again.
    fn enter(&mut self, ledger: &Ledger<'_>, queue: QueueId) {
        let Seat { family, number, .. } = self.seats[queue.index()];
        let mut slot = self.families[family].width + number;
        self.families[family].winners[slot] = if self.judged[queue.index()].is_some() { number as u32 } else { NOBODY };
        while slot > 1 {
            slot /= 2;
            let winners = &self.families[family].winners;
            let winner = match (winners[2 * slot], winners[2 * slot + 1]) {
                (NOBODY, other) | (other, NOBODY) => other,
                (left, right) => {
                    let members = &self.families[family].members;
                    // Equal queues are told apart by name: the left one stays.
                    let passes = self.comes_before(ledger, members[right as usize], members[left as usize]);
                    if passes { right } else { left }
                }
            };
            self.families[family].winners[slot] = winner;
        }
    }

    /// The first of a family; all its members must be judged.
    fn best(&self, ledger: &Ledger<'_>, family: usize) -> Option<QueueId> {
        let Family { members, winners, ordered, .. } = &self.families[family];
        if *ordered && !self.full_scan {
            return members.get(*winners.get(1)? as usize).copied();
        }
        let judged = members.iter().copied().filter(|queue| self.judged[queue.index()].is_some());
        judged.reduce(|best, queue| if self.comes_before(ledger, queue, best) { queue } else { best })
    }

    fn comes_before(&self, ledger: &Ledger<'_>, left: QueueId, right: QueueId) -> bool {
        if self.by_age {
            return ledger.queues.row(left).created < ledger.queues.row(right).created;
        }
        let judged = |queue: QueueId| &self.judged[queue.index()].as_ref().expect("judged above").entitlement;
        judged(left).compare(judged(right)).is_lt()
    }
}
