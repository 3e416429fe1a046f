//! Why no room could be made for a job by moving or evicting others: one sentence over all searches.

use kai_engine::ids::JobId;
use kai_engine::outcome::{Ineligibility, Protection, QueueBlock, Reason, ScenarioRejections, SearchStop};
use kai_engine::policy::Action;
use kai_engine::units::QueueResource;

use super::amounts::{amount, count, number};
use super::lower::Lowered;
use super::recent::Recent;
use crate::duration;
use crate::objects::reader::write_time;

/// One sentence about all searches for victims; `None` if there was none. Jobs of a queue often wait for the same reasons.
pub(super) fn sentence(
    lowered: &Lowered<'_>,
    reasons: &[Reason],
    said: &mut Recent<Vec<Search>, String>,
) -> Option<String> {
    let searches: Vec<Search> = reasons.iter().filter_map(Search::of).collect();
    (!searches.is_empty()).then(|| said.answer(searches, |searches| make_sentence(lowered, searches)))
}

fn make_sentence(lowered: &Lowered<'_>, searches: &[Search]) -> String {
    let nobody = |search: &Search| search.stop == SearchStop::NoCandidates && search.protected.is_none();
    let why = if searches.len() > 1 && searches.iter().all(nobody) {
        "no running job may be moved or evicted on its behalf".to_owned()
    } else {
        let parts: Vec<String> = searches.iter().map(|search| search.phrase(lowered)).collect();
        parts.join("; ")
    };
    format!("No room is made for it: {why}.")
}

/// A search for victims that did not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Search {
    action: Action,
    stop: SearchStop,
    ways: u32,
    placed: u32,
    wanted: u32,
    refused: ScenarioRejections,
    protected: Option<Protection>,
}

impl Search {
    fn of(reason: &Reason) -> Option<Self> {
        match *reason {
            Reason::NoVictims { action, stop, scenarios, placed, wanted, refused, protected } => {
                Some(Self { action, stop, ways: scenarios, placed, wanted, refused, protected })
            }
            _ => None,
        }
    }

    fn phrase(self, lowered: &Lowered<'_>) -> String {
        match self.protected {
            None => self.stopped(lowered),
            Some(protection) => format!("{} ({})", self.stopped(lowered), self.spared(lowered, protection)),
        }
    }

    /// Who is young, for how long, and who says so.
    fn spared(self, lowered: &Lowered<'_>, protection: Protection) -> String {
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

    fn stopped(self, lowered: &Lowered<'_>) -> String {
        let how = match self.action {
            Action::Consolidate => "moving pods",
            Action::Reclaim => "reclaiming from other queues",
            Action::Preempt => "preempting in its queue",
            Action::Allocate | Action::EvictStale => "making room",
        };
        match self.stop {
            SearchStop::Ineligible(bar) => self.barred(lowered, bar),
            SearchStop::NoCandidates => match self.action {
                Action::Consolidate => "no pod may be moved".to_owned(),
                Action::Preempt => "no job of lower priority in its queue may be evicted".to_owned(),
                _ => "no job of another queue may be evicted".to_owned(),
            },
            SearchStop::Exhausted if self.ways == 0 => format!("{how} cannot free enough"),
            SearchStop::Exhausted => format!("{}{}", self.tried(how), self.why_refused()),
            SearchStop::HeadOfLineBlocked(other) => format!(
                "{how} cannot help, {} waits before it in its queue and asks for so much that all who could give way \
                 have their turn first",
                job_name(lowered, other)
            ),
            SearchStop::Budget if self.ways == 0 => format!("no steps were left to look for a way of {how}"),
            SearchStop::Budget => {
                format!("the search ended when its steps were used up: {}{}", self.tried(how), self.why_refused())
            }
            SearchStop::NoEasierThan(other) => {
                format!("{how} did not help {}, which is no harder to place", job_name(lowered, other))
            }
            SearchStop::NoGenerator => {
                "the scheduler's configuration enables neither sg-nodelocalgreedy nor sg-multinodegang".to_owned()
            }
        }
    }

    /// How far it got.
    fn tried(self, how: &str) -> String {
        format!(
            "{} of {how} {} tried, the best for {} of {} pods",
            count(self.ways, "way", "ways"),
            if self.ways == 1 { "was" } else { "were" },
            self.placed,
            self.wanted
        )
    }

    /// What stood in the way of the ways that were tried.
    fn why_refused(self) -> String {
        let rule = match self.action {
            Action::Consolidate => "would leave a pod without another place",
            Action::Reclaim => "would take from a queue what is its own",
            _ => "would break a rule",
        };
        let ScenarioRejections { unplaced, by_rules, unstable } = self.refused;
        let parts = [
            (unplaced, "would still leave too little room"),
            (by_rules, rule),
            (unstable, "would not last until the next cycle"),
        ];
        let parts: Vec<String> =
            parts.iter().filter(|(ways, _)| *ways > 0).map(|(ways, what)| format!("{ways} {what}")).collect();
        if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) }
    }

    /// The bound that keeps a search from beginning.
    fn barred(self, lowered: &Lowered<'_>, bar: Ineligibility) -> String {
        let queue = |block: &QueueBlock| lowered.names.queues[block.queue.index()].shown();
        match bar {
            Ineligibility::FreeGpus { asked, free } => format!(
                "moving pods cannot help, the job asks for {} and all that is free together is {}",
                amount(QueueResource::Gpu, asked),
                number(QueueResource::Gpu, free)
            ),
            Ineligibility::FreeMemory { asked, free } => format!(
                "moving pods cannot help, the job asks for {asked} MiB of GPU memory and all that is free together is {free}"
            ),
            Ineligibility::FairShare(block) => format!(
                "queue {} may not reclaim, it holds {} of a fair share of {} and the job asks for {} more",
                queue(&block),
                amount(block.resource, block.allocated),
                number(block.resource, block.bound),
                number(block.resource, block.requested())
            ),
            Ineligibility::Quota(block) => format!(
                "{} cannot help, queue {} has a quota of {}, {} are held by work that cannot be preempted and the job \
                 asks for {} more",
                if self.action == Action::Preempt { "preempting" } else { "reclaiming" },
                queue(&block),
                amount(block.resource, block.bound),
                number(block.resource, block.allocated),
                number(block.resource, block.requested())
            ),
        }
    }
}

fn job_name(lowered: &Lowered<'_>, job: JobId) -> String {
    lowered.names.job(job.index()).map_or_else(|| "another job".to_owned(), |key| format!("job {key}"))
}
