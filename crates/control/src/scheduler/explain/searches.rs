//! Why consolidation, reclaim and preemption could not free capacity for a job.

use kai_engine::policy::Action;
use kai_engine::units::QueueResource;

use super::JobNames;
use super::amounts::{amount, count, number};
use crate::duration;
use crate::key::GroupKey;
use crate::objects::field_reader::write_time;
use crate::scheduler::reasons::{ProtectedJobs, QueueBound, Rejections, SearchResult, SearchStop};

/// What all searches for victims found.
pub(super) fn message(searches: &[SearchResult], names: JobNames<'_>) -> String {
    let no_candidates = |search: &SearchResult| search.stop == SearchStop::NoCandidates && search.protected.is_none();
    let parts = if searches.len() > 1 && searches.iter().all(no_candidates) {
        "No running job may be moved or evicted for it.".to_owned()
    } else {
        let parts: Vec<String> = searches.iter().map(|search| search.sentence(names)).collect();
        parts.join(" ")
    };
    format!("No capacity can be freed. {parts}")
}

impl SearchResult {
    fn sentence(&self, names: JobNames<'_>) -> String {
        let action = match self.action {
            Action::Consolidate => "Consolidation",
            Action::Reclaim => "Reclaim",
            Action::Preempt => "Preemption",
            Action::Allocate | Action::EvictStale => "Eviction",
        };
        let stop = self.stop_phrase(names);
        match &self.protected {
            None => format!("{action}: {stop}."),
            Some(protection) => format!("{action}: {stop}; {}.", self.protection_phrase(names, protection)),
        }
    }

    /// Which jobs are protected by a minimum runtime, until when, and by which setting.
    fn protection_phrase(&self, names: JobNames<'_>, protection: &ProtectedJobs) -> String {
        let ProtectedJobs { jobs, next, until, min_runtime, queue, after_eviction } = protection;
        let next = job_name(names, next.as_ref());
        let setting = if self.action == Action::Preempt { "preemptMinRuntime" } else { "reclaimMinRuntime" };
        let protected = if *after_eviction { "evicted a short time ago and left alone" } else { "protected" };
        let who = match jobs {
            1 => format!("{next} is {protected}"),
            more => format!("{more} jobs are {protected}, {next}"),
        };
        let by = match queue {
            _ if *after_eviction => {
                let setting = if self.action == Action::Consolidate { "moveCooldown" } else { "cooldown" };
                let span = duration::show(*min_runtime);
                return format!("{who} until {}, evictions.{setting} is {span}", write_time(*until));
            }
            Some(queue) => format!("{setting} of queue {}", queue.shown()),
            None => format!("the scheduler's default for {setting}"),
        };
        format!("{who} until {}, {by} is {}", write_time(*until), duration::show(*min_runtime))
    }

    /// Why the search stopped.
    fn stop_phrase(&self, names: JobNames<'_>) -> String {
        match &self.stop {
            SearchStop::TooFewFreeGpus { requested, free } => {
                let (requested, free) = (amount(QueueResource::Gpu, *requested), number(QueueResource::Gpu, *free));
                let are = if free == "1" { "is" } else { "are" };
                format!("the job requests {requested}, only {free} {are} free in the whole cluster")
            }
            SearchStop::TooLittleFreeGpuMemory { requested, free } => {
                format!("the job requests {requested} MiB of GPU memory, only {free} MiB are free in the whole cluster")
            }
            SearchStop::OverFairShare { bound } => over_fair_share(bound),
            SearchStop::OverQuota { bound } => over_quota(bound),
            SearchStop::MoveBudgetSpent => {
                "the scheduler has moved as many pods as evictions.maxMoves allows for now".to_owned()
            }
            SearchStop::NoCandidates => match self.action {
                Action::Consolidate => "no pod can be moved".to_owned(),
                Action::Preempt => "no lower-priority job in the queue is eligible".to_owned(),
                _ => "no victim in another queue is eligible".to_owned(),
            },
            SearchStop::Exhausted if self.scenarios == 0 => "cannot free enough".to_owned(),
            SearchStop::Exhausted => self.tried(),
            SearchStop::HeadOfLineBlocked { by } => format!(
                "blocked, {} is ahead in the queue and so large that all possible victims would be scheduled again \
                 before this queue's turn",
                job_name(names, by.as_ref())
            ),
            SearchStop::Budget if self.scenarios == 0 => {
                "search budget of this cycle used up before it started".to_owned()
            }
            SearchStop::Budget => format!("search budget of this cycle used up: {}", self.tried()),
            SearchStop::NoEasierThan { job } => {
                format!("already failed for the similar {} in this cycle", job_name(names, job.as_ref()))
            }
            SearchStop::NoGenerator => {
                "the scheduler's configuration enables neither sg-nodelocalgreedy nor sg-multinodegang".to_owned()
            }
        }
    }

    /// How far it got, and why the scenarios were rejected.
    fn tried(&self) -> String {
        let tried = format!(
            "tried {}, best placed {} of {} pods",
            count(self.scenarios, "scenario", "scenarios"),
            self.placed,
            self.wanted
        );
        let rules = match self.action {
            Action::Consolidate => ("would leave a moved pod without a node", "would leave a moved pod without a node"),
            Action::Reclaim => ("violates another queue's fair share", "violate another queue's fair share"),
            _ => ("violates a rule", "violate a rule"),
        };
        let Rejections { unplaced, by_rules, unstable, too_costly } = self.rejections;
        let undone = ("would be undone in the next cycle", "would be undone in the next cycle");
        let costs =
            ("takes more than the limits under evictions allow", "take more than the limits under evictions allow");
        let resources = ("lacks resources", "lack resources");
        let parts = [(unplaced, resources), (by_rules, rules), (unstable, undone), (too_costly, costs)];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(scenarios, _)| *scenarios > 0)
            .map(|(scenarios, (one, many))| count(*scenarios, one, many))
            .collect();
        if parts.is_empty() { tried } else { format!("{tried} ({})", parts.join(", ")) }
    }
}

fn over_fair_share(block: &QueueBound) -> String {
    format!(
        "queue {} may not reclaim, it holds {} of a fair share of {} and the job requests {} more",
        block.queue.shown(),
        amount(block.resource, block.allocated),
        number(block.resource, block.bound),
        number(block.resource, block.requested())
    )
}

fn over_quota(block: &QueueBound) -> String {
    format!(
        "queue {} has a quota of {}, non-preemptible jobs hold {} and the job requests {} more",
        block.queue.shown(),
        amount(block.resource, block.bound),
        number(block.resource, block.allocated),
        number(block.resource, block.requested())
    )
}

fn job_name(names: JobNames<'_>, job: Option<&GroupKey>) -> String {
    job.map_or_else(|| "another job".to_owned(), |job| format!("job {}", names.name(job)))
}
