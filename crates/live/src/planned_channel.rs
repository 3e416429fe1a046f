//! From the grouper to the scheduler of the same process: pod groups and links that are about to be written, so that pods
//! are scheduled before they are stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kai_control::grouper::PlannedWrite;
use tokio::sync::mpsc;

/// The grouper's end.
#[derive(Debug)]
pub(crate) struct PlannedSender {
    planned: mpsc::UnboundedSender<PlannedWrite>,
    received: Arc<AtomicBool>,
}

/// The scheduler's end.
#[derive(Debug)]
pub(crate) struct PlannedReceiver {
    /// None once the grouper has ended. Unbounded: there are no more of them than writes, which wait for slots.
    planned: Option<mpsc::UnboundedReceiver<PlannedWrite>>,
    received: Arc<AtomicBool>,
}

pub(crate) fn planned_channel() -> (PlannedSender, PlannedReceiver) {
    let ((out, planned), received) = (mpsc::unbounded_channel(), Arc::new(AtomicBool::new(false)));
    (
        PlannedSender { planned: out, received: Arc::clone(&received) },
        PlannedReceiver { planned: Some(planned), received },
    )
}

impl PlannedSender {
    /// Whether the scheduler counts planned writes as made: while it is the leader.
    pub(crate) fn has_receiver(&self) -> bool {
        self.received.load(Ordering::Acquire)
    }

    pub(crate) fn send(&self, planned: PlannedWrite) {
        // The scheduler may have ended.
        let _ = self.planned.send(planned);
    }
}

impl PlannedReceiver {
    /// From now on until it is dropped, planned writes are received.
    pub(crate) fn start(&self) {
        self.received.store(true, Ordering::Release);
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> PlannedWrite {
        let Some(channel) = &mut self.planned else { return std::future::pending().await };
        let planned = channel.recv().await;
        planned.unwrap_or_else(|| self.sender_dropped())
    }

    /// One that was sent already.
    pub(crate) fn try_next(&mut self) -> Option<PlannedWrite> {
        match self.planned.as_mut()?.try_recv() {
            Ok(planned) => Some(planned),
            Err(mpsc::error::TryRecvError::Empty) => None,
            Err(mpsc::error::TryRecvError::Disconnected) => Some(self.sender_dropped()),
        }
    }

    fn sender_dropped(&mut self) -> PlannedWrite {
        self.planned = None;
        PlannedWrite::CancelAll
    }
}

impl Drop for PlannedReceiver {
    fn drop(&mut self) {
        self.received.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use kai_control::Key;

    use super::*;

    #[test]
    fn planned_writes_are_received_from_the_start_to_the_end() {
        let (sender, receiver) = planned_channel();
        assert!(!sender.has_receiver());
        receiver.start();
        assert!(sender.has_receiver());
        drop(receiver);
        assert!(!sender.has_receiver());
    }

    #[test]
    fn all_planned_writes_are_cancelled_once_when_the_grouper_has_ended() {
        let (sender, mut receiver) = planned_channel();
        let planned = PlannedWrite::CancelLink(Key::new("n", "p"));
        sender.send(planned.clone());
        drop(sender);
        assert_eq!(
            [receiver.try_next(), receiver.try_next(), receiver.try_next()],
            [Some(planned), Some(PlannedWrite::CancelAll), None]
        );
    }
}
