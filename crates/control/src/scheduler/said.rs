//! What was said of waiting jobs in the last cycle. While nothing changes in the cluster, equal reasons have equal words.

use std::sync::Arc;

use kai_engine::ids::JobId;
use kai_engine::outcome::{Reason, Verdict};

use super::effect::PendingJob;

/// Reasons of the last cycle and the words they were put into, by job.
#[derive(Debug)]
pub(super) struct Said(Vec<Option<(Vec<Reason>, Arc<PendingJob>)>>);

impl Said {
    /// These verdicts; the words are by job, where they come from the reasons alone.
    pub(super) fn new(verdicts: Vec<Verdict>, mut words: Vec<Option<Arc<PendingJob>>>) -> Self {
        let mut said: Vec<_> = words.iter().map(|_| None).collect();
        for Verdict { job, reasons } in verdicts {
            said[job.index()] = words[job.index()].take().map(|words| (reasons, words));
        }
        Self(said)
    }

    /// What was said of the job, if it was for these reasons.
    pub(super) fn words(&self, job: JobId, reasons: &[Reason]) -> Option<&Arc<PendingJob>> {
        let (known, words) = self.0.get(job.index())?.as_ref()?;
        (known == reasons).then_some(words)
    }
}
