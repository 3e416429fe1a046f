//! From the grouper to the scheduler of the same process: pod groups and links that are about to be written, so that pods
//! are scheduled before they are stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kai_control::grouper::PlannedWrite;
use tokio::sync::mpsc;

/// The grouper's end.
#[derive(Debug)]
pub(crate) struct DraftSender {
    drafts: mpsc::UnboundedSender<PlannedWrite>,
    received: Arc<AtomicBool>,
}

/// The scheduler's end.
#[derive(Debug)]
pub(crate) struct DraftReceiver {
    /// None once the grouper has ended. Unbounded: there are no more drafts than writes, and writes wait for slots.
    drafts: Option<mpsc::UnboundedReceiver<PlannedWrite>>,
    received: Arc<AtomicBool>,
}

pub(crate) fn draft_channel() -> (DraftSender, DraftReceiver) {
    let ((out, drafts), received) = (mpsc::unbounded_channel(), Arc::new(AtomicBool::new(false)));
    (DraftSender { drafts: out, received: Arc::clone(&received) }, DraftReceiver { drafts: Some(drafts), received })
}

impl DraftSender {
    /// Whether the scheduler counts drafts as written: while it is the leader.
    pub(crate) fn has_receiver(&self) -> bool {
        self.received.load(Ordering::Acquire)
    }

    pub(crate) fn send(&self, draft: PlannedWrite) {
        // The scheduler may have ended.
        let _ = self.drafts.send(draft);
    }
}

impl DraftReceiver {
    /// From now on until it is dropped, drafts are received.
    pub(crate) fn start(&self) {
        self.received.store(true, Ordering::Release);
    }

    /// Waits for the next draft.
    pub(crate) async fn next(&mut self) -> PlannedWrite {
        let Some(drafts) = &mut self.drafts else { return std::future::pending().await };
        let draft = drafts.recv().await;
        draft.unwrap_or_else(|| self.sender_dropped())
    }

    /// A draft that was sent already.
    pub(crate) fn try_next(&mut self) -> Option<PlannedWrite> {
        match self.drafts.as_mut()?.try_recv() {
            Ok(draft) => Some(draft),
            Err(mpsc::error::TryRecvError::Empty) => None,
            Err(mpsc::error::TryRecvError::Disconnected) => Some(self.sender_dropped()),
        }
    }

    fn sender_dropped(&mut self) -> PlannedWrite {
        self.drafts = None;
        PlannedWrite::CancelAll
    }
}

impl Drop for DraftReceiver {
    fn drop(&mut self) {
        self.received.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use kai_control::Key;

    use super::*;

    #[test]
    fn drafts_are_received_from_the_start_to_the_end() {
        let (sender, receiver) = draft_channel();
        assert!(!sender.has_receiver());
        receiver.start();
        assert!(sender.has_receiver());
        drop(receiver);
        assert!(!sender.has_receiver());
    }

    #[test]
    fn all_drafts_are_withdrawn_once_when_the_grouper_has_ended() {
        let (sender, mut receiver) = draft_channel();
        let draft = PlannedWrite::CancelLink(Key::new("n", "p"));
        sender.send(draft.clone());
        drop(sender);
        assert_eq!(
            [receiver.try_next(), receiver.try_next(), receiver.try_next()],
            [Some(draft), Some(PlannedWrite::CancelAll), None]
        );
    }
}
