//! What searches for victims found.

use kai_engine::ids::JobId;
use kai_engine::outcome::{self, Ineligibility, Protection, Reason, ScenarioRejections};
use kai_engine::policy::Action;

use super::{bound, queue_ref};
use crate::key::GroupKey;
use crate::scheduler::lower::Lowered;
use crate::scheduler::reasons::{ProtectedJobs, Rejections, SearchResult, SearchStop, Shared};
use crate::scheduler::recent_cache::RecentCache;

/// All searches for victims; `None` if there was none. Jobs of a queue are often pending for the same reasons.
pub(super) fn collect(
    lowered: &Lowered<'_>,
    reasons: &[Reason],
    recent: &mut RecentCache<Vec<Search>, Shared<Vec<SearchResult>>>,
) -> Option<Shared<Vec<SearchResult>>> {
    let searches: Vec<Search> = reasons.iter().filter_map(Search::of).collect();
    let named = |searches: &Vec<Search>| Shared::new(searches.iter().map(|search| search.named(lowered)).collect());
    (!searches.is_empty()).then(|| recent.get_or_compute(searches, named))
}

/// A search for victims that did not help, as the engine has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Search {
    action: Action,
    stop: outcome::SearchStop,
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

    fn named(self, lowered: &Lowered<'_>) -> SearchResult {
        let ScenarioRejections { unplaced, by_rules, unstable, too_costly } = self.refused;
        SearchResult {
            action: self.action,
            stop: stop(lowered, self.stop),
            scenarios: self.scenarios,
            placed: self.placed,
            wanted: self.wanted,
            rejections: Rejections { unplaced, by_rules, unstable, too_costly },
            protected: self.protected.map(|protection| {
                let Protection { jobs, next, until, span, queue, after_eviction } = protection;
                ProtectedJobs {
                    jobs,
                    next: job(lowered, next),
                    until,
                    min_runtime: span,
                    queue: queue.map(|queue| queue_ref(lowered, queue)),
                    after_eviction,
                }
            }),
        }
    }
}

fn stop(lowered: &Lowered<'_>, stop: outcome::SearchStop) -> SearchStop {
    match stop {
        outcome::SearchStop::Ineligible(Ineligibility::FreeGpus { asked, free }) => {
            SearchStop::TooFewFreeGpus { requested: asked, free }
        }
        outcome::SearchStop::Ineligible(Ineligibility::FreeMemory { asked, free }) => {
            SearchStop::TooLittleFreeGpuMemory { requested: asked, free }
        }
        outcome::SearchStop::Ineligible(Ineligibility::FairShare(block)) => {
            SearchStop::OverFairShare { bound: bound(lowered, &block) }
        }
        outcome::SearchStop::Ineligible(Ineligibility::Quota(block)) => {
            SearchStop::OverQuota { bound: bound(lowered, &block) }
        }
        outcome::SearchStop::Ineligible(Ineligibility::MoveBudgetSpent) => SearchStop::MoveBudgetSpent,
        outcome::SearchStop::NoCandidates => SearchStop::NoCandidates,
        outcome::SearchStop::Exhausted => SearchStop::Exhausted,
        outcome::SearchStop::HeadOfLineBlocked(other) => SearchStop::HeadOfLineBlocked { by: job(lowered, other) },
        outcome::SearchStop::Budget => SearchStop::Budget,
        outcome::SearchStop::NoEasierThan(other) => SearchStop::NoEasierThan { job: job(lowered, other) },
        outcome::SearchStop::NoGenerator => SearchStop::NoGenerator,
    }
}

fn job(lowered: &Lowered<'_>, job: JobId) -> Option<GroupKey> {
    lowered.names.job(job.index()).cloned()
}
