//! From the grouper to the scheduler of the same process: what is about to be written, so that nobody waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kai_control::grouper::Draft;
use tokio::sync::mpsc;

/// Where the grouper leaves its drafts.
#[derive(Debug)]
pub(crate) struct Outbox {
    drafts: mpsc::UnboundedSender<Draft>,
    taken: Arc<AtomicBool>,
}

/// Where the scheduler finds them.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Nothing any more once the grouper is gone. Never full: there are no more drafts than writes, and writes wait.
    drafts: Option<mpsc::UnboundedReceiver<Draft>>,
    taken: Arc<AtomicBool>,
}

pub(crate) fn boxes() -> (Outbox, Inbox) {
    let ((out, drafts), taken) = (mpsc::unbounded_channel(), Arc::new(AtomicBool::new(false)));
    (Outbox { drafts: out, taken: Arc::clone(&taken) }, Inbox { drafts: Some(drafts), taken })
}

impl Outbox {
    /// Whether somebody counts drafts as written: the scheduler, while it leads.
    pub(crate) fn is_emptied(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    pub(crate) fn put(&self, draft: Draft) {
        // The scheduler may have ended.
        let _ = self.drafts.send(draft);
    }
}

impl Inbox {
    /// From now on, until the end, everything in it is taken.
    pub(crate) fn open(&self) {
        self.taken.store(true, Ordering::Release);
    }

    /// Waits for the next draft.
    pub(crate) async fn next(&mut self) -> Draft {
        let Some(drafts) = &mut self.drafts else { return std::future::pending().await };
        let draft = drafts.recv().await;
        draft.unwrap_or_else(|| self.abandoned())
    }

    /// A draft that is there already.
    pub(crate) fn try_next(&mut self) -> Option<Draft> {
        match self.drafts.as_mut()?.try_recv() {
            Ok(draft) => Some(draft),
            Err(mpsc::error::TryRecvError::Empty) => None,
            Err(mpsc::error::TryRecvError::Disconnected) => Some(self.abandoned()),
        }
    }

    fn abandoned(&mut self) -> Draft {
        self.drafts = None;
        Draft::Nothing
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use kai_control::Key;

    use super::*;

    #[test]
    fn drafts_are_wanted_while_somebody_takes_them() {
        let (outbox, inbox) = boxes();
        assert!(!outbox.is_emptied());
        inbox.open();
        assert!(outbox.is_emptied());
        drop(inbox);
        assert!(!outbox.is_emptied());
    }

    #[test]
    fn all_are_withdrawn_once_when_the_grouper_is_gone() {
        let (outbox, mut inbox) = boxes();
        let draft = Draft::NoLink(Key::new("n", "p"));
        outbox.put(draft.clone());
        drop(outbox);
        assert_eq!([inbox.try_next(), inbox.try_next(), inbox.try_next()], [Some(draft), Some(Draft::Nothing), None]);
    }
}
