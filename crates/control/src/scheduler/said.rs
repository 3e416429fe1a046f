//! What was said of waiting jobs in the last cycle. While nothing changes in the cluster, equal reasons have equal words.

use std::sync::Arc;

use kai_engine::ids::JobId;
use kai_engine::outcome::{Reason, Verdict};

use super::effect::PendingJob;

/// Reasons of the last cycle and the words they were put into.
#[derive(Debug)]
pub(super) struct Said {
    verdicts: Vec<Verdict>,
    /// By job, where the words come from the reasons alone.
    words: Vec<Option<Arc<PendingJob>>>,
}

impl Said {
    /// These words for these verdicts, in any order.
    pub(super) fn new(verdicts: Vec<Verdict>, words: Vec<Option<Arc<PendingJob>>>) -> Self {
        Self { verdicts, words }
    }

    /// For quick questions.
    pub(super) fn by_job(&self) -> Known<'_> {
        Known { reasons: by_job(&self.verdicts, self.words.len()), words: &self.words }
    }
}

/// [`Said`], by job.
pub(super) struct Known<'s> {
    reasons: Vec<Option<&'s [Reason]>>,
    words: &'s [Option<Arc<PendingJob>>],
}

impl Known<'_> {
    /// What was said of the job, if it was for these reasons.
    pub(super) fn words(&self, job: JobId, reasons: &[Reason]) -> Option<Arc<PendingJob>> {
        let same = (*self.reasons.get(job.index())?)? == reasons;
        self.words[job.index()].as_ref().filter(|_| same).map(Arc::clone)
    }
}

/// The reasons of each of so many jobs.
pub(super) fn by_job(verdicts: &[Verdict], jobs: usize) -> Vec<Option<&[Reason]>> {
    let mut reasons: Vec<Option<&[Reason]>> = vec![None; jobs];
    for verdict in verdicts {
        reasons[verdict.job.index()] = Some(&verdict.reasons);
    }
    reasons
}
