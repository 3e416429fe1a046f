//! Explanations of the last cycle, reused while the cluster is unchanged and a job's reasons are the same.

use std::sync::Arc;

use kai_engine::ids::JobId;
use kai_engine::outcome::{Reason, Verdict};

use crate::scheduler::effect::PendingJob;

/// Reasons of the last cycle and their explanations, by job.
#[derive(Debug)]
pub(in crate::scheduler) struct ExplanationCache(Vec<Option<(Vec<Reason>, Arc<PendingJob>)>>);

impl ExplanationCache {
    /// `explained` is by job; `None` where the explanation depends on more than the reasons.
    pub(in crate::scheduler) fn new(verdicts: Vec<Verdict>, mut explained: Vec<Option<Arc<PendingJob>>>) -> Self {
        let mut cache: Vec<_> = explained.iter().map(|_| None).collect();
        for Verdict { job, reasons } in verdicts {
            cache[job.index()] = explained[job.index()].take().map(|explanation| (reasons, explanation));
        }
        Self(cache)
    }

    /// The last explanation of the job, if it was for the same reasons.
    pub(in crate::scheduler) fn get(&self, job: JobId, reasons: &[Reason]) -> Option<&Arc<PendingJob>> {
        let (known, explanation) = self.0.get(job.index())?.as_ref()?;
        (known == reasons).then_some(explanation)
    }
}
