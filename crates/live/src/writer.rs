//! Writes to the API server: at a pace, so many at once, again when that may help.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use kube::api::{DeleteParams, PatchParams, PostParams};
use kube::{Client, Error};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::Pace;
use crate::pace::{Deed, Hurry, Rank};

#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) client: Client,
    pace: Arc<Pace>,
    rank: Rank,
    hurry: Hurry,
    slots: Arc<Semaphore>,
    under_way: TaskTracker,
}

/// Whom the API server is told that fields belong to.
pub(crate) const MANAGER: &str = "kai";

/// Parameters of nearly every call.
pub(crate) static POST: LazyLock<PostParams> =
    LazyLock::new(|| PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() });
pub(crate) static PATCH: LazyLock<PatchParams> =
    LazyLock::new(|| PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() });
pub(crate) static DELETE: LazyLock<DeleteParams> = LazyLock::new(DeleteParams::default);

/// Pauses before further attempts. After that the controller looks again at what is wanted now.
const PAUSES: [Duration; 3] = [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1600)];

/// Words written at the same time.
const WORD_SLOTS: usize = 4;
/// Somebody waits for an explanation.
const EXPLANATION_SLOTS: usize = 32;

/// Less than the grace period of a pod.
const DRAIN_MAX: Duration = Duration::from_secs(5);

impl Writer {
    pub(crate) fn new(client: Client, pace: Arc<Pace>, slots: usize) -> Self {
        let slots = Arc::new(Semaphore::new(slots.max(1)));
        Self { client, pace, rank: Rank::Deed, hurry: Hurry::Now, slots, under_way: TaskTracker::new() }
    }

    /// For what can wait: words. It has slots of its own, waits while deeds are under way, and uses only turns that nobody
    /// in a hurry needs.
    pub(crate) fn for_words(&self) -> Self {
        self.spare(Rank::Word, WORD_SLOTS)
    }

    /// For words that come before other words: why something does not happen.
    pub(crate) fn for_explanations(&self) -> Self {
        self.spare(Rank::Explanation, EXPLANATION_SLOTS)
    }

    /// The same slots for words that wait so long from now on, for a slot or for the end of deeds.
    pub(crate) fn patient_for(&self, patience: Duration) -> Self {
        Self { hurry: Hurry::spare_for(patience), ..self.clone() }
    }

    fn spare(&self, rank: Rank, slots: usize) -> Self {
        Self { rank, hurry: Hurry::Spare, slots: Arc::new(Semaphore::new(slots)), ..self.clone() }
    }

    /// Does this when there is a free slot, beside everything else. Not begun before: thousands may wait, and what a call
    /// takes while it is made is many times what it takes to know which call to make.
    pub(crate) fn spawn<W>(&self, work: impl FnOnce() -> W + Send + 'static)
    where
        W: Future<Output = ()> + Send + 'static,
    {
        self.start(work, self.pace.begin(self.rank));
    }

    /// The same for what only reads: it comes at once, but words need not wait for it.
    pub(crate) fn spawn_reading<W>(&self, work: impl FnOnce() -> W + Send + 'static)
    where
        W: Future<Output = ()> + Send + 'static,
    {
        self.start(work, None);
    }

    fn start<W>(&self, work: impl FnOnce() -> W + Send + 'static, deed: Option<Deed>)
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let slots = Arc::clone(&self.slots);
        self.under_way.spawn(async move {
            let _slot = slots.acquire_owned().await;
            Box::pin(work()).await;
            drop(deed);
        });
    }

    /// Deeds and explanations of this process that are under way or wait for a slot.
    pub(crate) fn in_a_hurry(&self) -> usize {
        self.pace.in_a_hurry()
    }

    /// Lets what is under way come to its end, within reason.
    pub(crate) async fn drain(&self) {
        self.under_way.close();
        if tokio::time::timeout(DRAIN_MAX, self.under_way.wait()).await.is_err() {
            tracing::warn!(calls = self.under_way.len(), "ended before everything was written");
        }
    }

    /// Calls, and calls again if the API server was merely busy or out of reach.
    pub(crate) async fn call<T, F>(&self, mut call: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        for pause in PAUSES {
            match self.call_once(call()).await {
                Err(error) if is_passing(&error) => {
                    tracing::debug!(%error, "trying again");
                    tokio::time::sleep(pause).await;
                }
                done => return done,
            }
        }
        self.call_once(call()).await
    }

    /// Calls once.
    pub(crate) async fn call_once<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let _turn = self.pace.turn(self.rank, self.hurry).await;
        call.await
    }
}

/// Whether the same call may succeed a moment later.
fn is_passing(error: &Error) -> bool {
    match error {
        Error::Api(status) => matches!(status.code, 429 | 500 | 502 | 503 | 504),
        Error::HyperError(_) | Error::Service(_) | Error::ReadEvents(_) => true,
        _ => false,
    }
}

/// The status code of a refusal.
pub(crate) fn code(error: &Error) -> Option<u16> {
    match error {
        Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Whether it could not be created because it is there. Other conflicts mean that nothing was done.
pub(crate) fn exists_already(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 409 && status.reason == "AlreadyExists")
}

/// Deleting something that is gone is fine.
pub(crate) fn gone_is_fine<T>(done: Result<T, Error>) -> Result<(), Error> {
    match done {
        Err(error) if code(&error) == Some(404) => Ok(()),
        done => done.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn refusal(code: u16) -> Error {
        Error::Api(Box::new(Status { code, ..Status::default() }))
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        for code in [429, 500, 503, 504] {
            assert!(is_passing(&refusal(code)), "{code}");
        }
        for code in [403, 404, 409, 422] {
            assert!(!is_passing(&refusal(code)), "{code}");
        }
    }
}
