//! Why no room could be made for a job by moving or evicting others: one sentence over all searches.

use kai_engine::ids::JobId;
use kai_engine::outcome::{QueueState, Reason, SearchStop};
use kai_engine::policy::Action;
use kai_engine::units::QueueResource;

use super::amounts::{amount, count, number};
use super::lower::Lowered;

/// One sentence about all searches for victims; `None` if there was none.
pub(super) fn sentence(lowered: &Lowered<'_>, shares: &[QueueState], job: JobId, reasons: &[Reason]) -> Option<String> {
    let searches: Vec<Search> = reasons.iter().filter_map(Search::of).collect();
    if searches.is_empty() {
        return None;
    }
    let fruitless = searches.len() > 1 && searches.iter().all(|search| search.stop == SearchStop::NoCandidates);
    let why = if fruitless {
        "no running job may be moved or evicted on its behalf".to_owned()
    } else {
        let parts: Vec<String> = searches.iter().map(|search| search.phrase(lowered, shares, job)).collect();
        parts.join("; ")
    };
    Some(format!("No room is made for it: {why}."))
}

#[derive(Clone, Copy)]
struct Search {
    action: Action,
    stop: SearchStop,
    ways: u32,
    placed: u32,
    wanted: u32,
}

impl Search {
    fn of(reason: &Reason) -> Option<Self> {
        match *reason {
            Reason::NoVictims { action, stop, scenarios, placed, wanted } => {
                Some(Self { action, stop, ways: scenarios, placed, wanted })
            }
            _ => None,
        }
    }

    fn phrase(self, lowered: &Lowered<'_>, shares: &[QueueState], job: JobId) -> String {
        let how = match self.action {
            Action::Consolidate => "moving pods",
            Action::Reclaim => "reclaiming from other queues",
            Action::Preempt => "preempting in its queue",
            Action::Allocate | Action::EvictStale => "making room",
        };
        match self.stop {
            SearchStop::NotEntitled => match self.action {
                Action::Consolidate => "moving pods cannot help, all free room together is too small".to_owned(),
                Action::Preempt => "preempting cannot help, the quota of its queue is too small for it".to_owned(),
                _ => format!("its queue may not reclaim{}", entitlement(lowered, shares, job)),
            },
            SearchStop::NoCandidates => match self.action {
                Action::Consolidate => "no pod may be moved".to_owned(),
                Action::Preempt => "no job of lower priority in its queue may be evicted".to_owned(),
                _ => "no job of another queue may be evicted".to_owned(),
            },
            SearchStop::Exhausted if self.ways == 0 => format!("{how} cannot free enough"),
            SearchStop::Exhausted => format!(
                "{} of {how} {} tried, the best for {} of {} pods",
                count(self.ways, "way", "ways"),
                if self.ways == 1 { "was" } else { "were" },
                self.placed,
                self.wanted
            ),
            SearchStop::Budget => {
                format!("the search for a way of {how} was cut short after {}", count(self.ways, "try", "tries"))
            }
            SearchStop::Alike(other) => {
                let name = lowered
                    .names
                    .job(other.index())
                    .map_or_else(|| "another job".to_owned(), |key| format!("job {key}"));
                format!("{how} did not help {name}, which is no harder to place")
            }
            SearchStop::NoGenerator => {
                "the scheduler's configuration enables neither sg-nodelocalgreedy nor sg-multinodegang".to_owned()
            }
        }
    }
}

/// What the queue of a job holds and is entitled to, of the resource that the job is about.
fn entitlement(lowered: &Lowered<'_>, shares: &[QueueState], job: JobId) -> String {
    let snapshot = &lowered.snapshot;
    let Some(queue) = snapshot.job(job).queue else { return String::new() };
    let Some(state) = shares.get(queue.index()) else { return String::new() };
    let needs_gpu = snapshot.job_tasks(job).any(|task| snapshot.shape(snapshot.task(task).shape).needs_gpu());
    let resource = if needs_gpu { QueueResource::Gpu } else { QueueResource::Cpu };
    format!(
        ": it holds {}, its fair share is {}",
        amount(resource, state.allocated.get(resource)),
        number(resource, state.fair_share.get(resource))
    )
}
