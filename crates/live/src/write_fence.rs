//! Whether this replica may write: without leader election always, with it while its lease cannot have been taken over.
//!
//! The renewal of the lease moves the deadline; [`ApiWriter`](crate::api_writer::ApiWriter) asks before each call, whether
//! it is new, was queued or is repeated.

use kube::Error;
use thiserror::Error as ThisError;
use tokio::sync::watch;
use tokio::time::Instant;

/// Shared by a component's calls and the renewal of its lease.
#[derive(Clone, Debug)]
pub(crate) struct WriteFence(watch::Sender<WritePermission>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WritePermission {
    Always,
    Until(Instant),
    /// Another replica may lead from now on.
    Never,
}

/// The call was not made, or not awaited: then it may have been done all the same.
#[derive(Debug, ThisError)]
#[error("this replica does not hold the leader lease any more")]
pub(crate) struct LeaseLost;

impl Default for WriteFence {
    fn default() -> Self {
        Self(watch::Sender::new(WritePermission::Always))
    }
}

impl WriteFence {
    /// Writes are possible until then. Has no effect once the lease was lost.
    pub(crate) fn extend_to(&self, deadline: Instant) {
        self.0.send_if_modified(|permission| {
            let changes = !matches!(permission, WritePermission::Never);
            if changes {
                *permission = WritePermission::Until(deadline);
            }
            changes
        });
    }

    /// From now on nothing is written.
    pub(crate) fn close(&self) {
        self.0.send_replace(WritePermission::Never);
    }

    pub(crate) fn may_write(&self) -> bool {
        match *self.0.borrow() {
            WritePermission::Always => true,
            WritePermission::Until(deadline) => Instant::now() < deadline,
            WritePermission::Never => false,
        }
    }

    /// Makes a call unless the lease was lost, and abandons it when it is lost meanwhile.
    pub(crate) async fn guard<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        // A call that is not polled is not sent. Timers are late by a millisecond.
        if !self.may_write() {
            return Err(Error::Service(Box::new(LeaseLost)));
        }
        tokio::select! {
            biased;
            () = self.lost() => Err(Error::Service(Box::new(LeaseLost))),
            result = call => result,
        }
    }

    async fn lost(&self) {
        let mut permissions = self.0.subscribe();
        loop {
            let permission = *permissions.borrow_and_update();
            let expired = async {
                match permission {
                    WritePermission::Always => std::future::pending().await,
                    WritePermission::Until(deadline) => tokio::time::sleep_until(deadline).await,
                    WritePermission::Never => {}
                }
            };
            tokio::select! {
                biased;
                // Fails only without a sender, and this is one.
                _ = permissions.changed() => {}
                () = expired => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn calls_are_made_until_the_deadline_and_never_after_it() {
        let (fence, made) = (WriteFence::default(), Cell::new(0));
        let call = || async {
            made.set(made.get() + 1);
            Ok(())
        };
        assert!(fence.may_write() && fence.guard(call()).await.is_ok(), "without leader election");
        fence.extend_to(Instant::now() + SECOND);
        assert!(fence.guard(call()).await.is_ok());
        tokio::time::advance(SECOND).await;
        assert!(!fence.may_write() && fence.guard(call()).await.is_err());
        fence.extend_to(Instant::now() + SECOND);
        assert!(fence.guard(call()).await.is_ok());
        fence.close();
        fence.extend_to(Instant::now() + SECOND);
        assert!(!fence.may_write() && fence.guard(call()).await.is_err());
        assert_eq!(made.get(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_in_flight_end_with_the_lease_and_go_on_when_it_is_renewed() {
        let (fence, began) = (WriteFence::default(), Instant::now());
        fence.extend_to(began + SECOND);
        let slow = fence.guard(async {
            tokio::time::sleep(SECOND * 3).await;
            Ok(())
        });
        let renewal = async {
            tokio::time::sleep(SECOND / 2).await;
            fence.extend_to(began + SECOND * 2);
        };
        let (ended, ()) = tokio::join!(slow, renewal);
        assert!(ended.is_err());
        assert_eq!(began.elapsed().as_secs(), 2);
    }
}
