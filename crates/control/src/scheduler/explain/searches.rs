//! Why consolidation, reclaim and preemption could not free capacity for a job.

use kai_engine::ids::JobId;
use kai_engine::outcome::{CapacityExceeded, Ineligibility, Protection, Reason, ScenarioRejections, SearchStop};
use kai_engine::policy::Action;
use kai_engine::units::QueueResource;

use super::amounts::{amount, count, number};
use super::cache::RecentCache;
use crate::duration;
use crate::objects::field_reader::write_time;
use crate::scheduler::lower::Lowered;

/// Explains all searches for victims; `None` if there was none. Jobs of a queue are often pending for the same reasons.
pub(super) fn explain(
    lowered: &Lowered<'_>,
    reasons: &[Reason],
    recent: &mut RecentCache<Vec<Search>, String>,
) -> Option<String> {
    let searches: Vec<Search> = reasons.iter().filter_map(Search::of).collect();
    (!searches.is_empty()).then(|| recent.get_or_compute(searches, |searches| message(lowered, searches)))
}

fn message(lowered: &Lowered<'_>, searches: &[Search]) -> String {
    let nobody = |search: &Search| search.stop == SearchStop::NoCandidates && search.protected.is_none();
    let parts = if searches.len() > 1 && searches.iter().all(nobody) {
        "No running job may be moved or evicted for it.".to_owned()
    } else {
        let parts: Vec<String> = searches.iter().map(|search| search.sentence(lowered)).collect();
        parts.join(" ")
    };
    format!("No capacity can be freed. {parts}")
}

/// A search for victims that did not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Search {
    action: Action,
    stop: SearchStop,
    scenarios: u32,
    placed: u32,
    wanted: u32,
    refused: ScenarioRejections,
    protected: Option<Protection>,
}

impl Search {
    fn of(reason: &Reason) -> Option<Self> {
        match *reason {
            Reason::NoVictims { action, stop, scenarios, placed, wanted, refused, protected } => {
                Some(Self { action, stop, scenarios, placed, wanted, refused, protected })
            }
            _ => None,
        }
    }

    fn sentence(self, lowered: &Lowered<'_>) -> String {
        let action = match self.action {
            Action::Consolidate => "Consolidation",
            Action::Reclaim => "Reclaim",
            Action::Preempt => "Preemption",
            Action::Allocate | Action::EvictStale => "Eviction",
        };
        let stop = self.stop_phrase(lowered);
        match self.protected {
            None => format!("{action}: {stop}."),
            Some(protection) => format!("{action}: {stop}; {}.", self.protection_phrase(lowered, protection)),
        }
    }

    /// Which jobs are protected by a minimum runtime, until when, and by which setting.
    fn protection_phrase(self, lowered: &Lowered<'_>, protection: Protection) -> String {
        let Protection { jobs, next, until, span, queue } = protection;
        let setting = if self.action == Action::Preempt { "preemptMinRuntime" } else { "reclaimMinRuntime" };
        let who = match jobs {
            1 => format!("{} is protected", job_name(lowered, next)),
            more => format!("{more} jobs are protected, {}", job_name(lowered, next)),
        };
        let by = match queue {
            Some(queue) => format!("{setting} of queue {}", lowered.names.queues[queue.index()].shown()),
            None => format!("the scheduler's default for {setting}"),
        };
        format!("{who} until {}, {by} is {}", write_time(until), duration::show(span))
    }

    /// Why the search stopped.
    fn stop_phrase(self, lowered: &Lowered<'_>) -> String {
        match self.stop {
            SearchStop::Ineligible(why) => ineligibility_phrase(lowered, why),
            SearchStop::NoCandidates => match self.action {
                Action::Consolidate => "no pod can be moved".to_owned(),
                Action::Preempt => "no lower-priority job in the queue is eligible".to_owned(),
                _ => "no victim in another queue is eligible".to_owned(),
            },
            SearchStop::Exhausted if self.scenarios == 0 => "cannot free enough".to_owned(),
            SearchStop::Exhausted => self.tried(),
            SearchStop::HeadOfLineBlocked(other) => format!(
                "blocked, {} is ahead in the queue and so large that all possible victims would be scheduled again \
                 before this queue's turn",
                job_name(lowered, other)
            ),
            SearchStop::Budget if self.scenarios == 0 => {
                "search budget of this cycle used up before it started".to_owned()
            }
            SearchStop::Budget => format!("search budget of this cycle used up: {}", self.tried()),
            SearchStop::NoEasierThan(other) => {
                format!("already failed for the similar {} in this cycle", job_name(lowered, other))
            }
            SearchStop::NoGenerator => {
                "the scheduler's configuration enables neither sg-nodelocalgreedy nor sg-multinodegang".to_owned()
            }
        }
    }

    /// How far it got, and why the scenarios were rejected.
    fn tried(self) -> String {
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
        let ScenarioRejections { unplaced, by_rules, unstable } = self.refused;
        let undone = ("would be undone in the next cycle", "would be undone in the next cycle");
        let parts = [(unplaced, ("lacks resources", "lack resources")), (by_rules, rules), (unstable, undone)];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(scenarios, _)| *scenarios > 0)
            .map(|(scenarios, (one, many))| count(*scenarios, one, many))
            .collect();
        if parts.is_empty() { tried } else { format!("{tried} ({})", parts.join(", ")) }
    }
}

/// The bound that keeps a search from starting.
fn ineligibility_phrase(lowered: &Lowered<'_>, why: Ineligibility) -> String {
    let queue = |block: &CapacityExceeded| lowered.names.queues[block.queue.index()].shown();
    match why {
        Ineligibility::FreeGpus { asked, free } => {
            let (asked, free) = (amount(QueueResource::Gpu, asked), number(QueueResource::Gpu, free));
            let are = if free == "1" { "is" } else { "are" };
            format!("the job requests {asked}, only {free} {are} free in the whole cluster")
        }
        Ineligibility::FreeMemory { asked, free } => {
            format!("the job requests {asked} MiB of GPU memory, only {free} MiB are free in the whole cluster")
        }
        Ineligibility::FairShare(block) => format!(
            "queue {} may not reclaim, it holds {} of a fair share of {} and the job requests {} more",
            queue(&block),
            amount(block.resource, block.allocated),
            number(block.resource, block.cap),
            number(block.resource, block.requested())
        ),
        Ineligibility::Quota(block) => format!(
            "queue {} has a quota of {}, non-preemptible jobs hold {} and the job requests {} more",
            queue(&block),
            amount(block.resource, block.cap),
            number(block.resource, block.allocated),
            number(block.resource, block.requested())
        ),
    }
}

fn job_name(lowered: &Lowered<'_>, job: JobId) -> String {
    lowered.names.job(job.index()).map_or_else(|| "another job".to_owned(), |key| format!("job {key}"))
}
