//! Two schedulers and a lease. Each renews or acquires it over the same unreliable network as everything else, by the
//! rules of `live/leader_election.rs`: a leader gives up so long after it *sent* its last successful renewal, and others
//! take over when they have seen no renewal for the lease's duration. The lease is a stored object with a version; it is
//! kept here, not in the store, where its renewals would look as if the cluster never converged.

use std::collections::BTreeMap;
use std::ops::Range;

use kai_engine::units::{Span, Timestamp};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// As client-go has them, and as NVIDIA KAI sets them.
const DURATION: Span = Span::seconds(15);
const RENEW_DEADLINE: Span = Span::seconds(10);
pub(super) const RETRY_PERIOD: Span = Span::seconds(2);

/// A start of a process: the next one is another replica.
pub(super) type Replica = (usize, u32);

/// A request for the lease on its way to the API server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) replica: Replica,
    pub(super) sent: Timestamp,
    /// The version that its sender holds for expired.
    expired: Option<u64>,
}

/// What the API server answers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    Held,
    HeldByOther { version: u64 },
}

/// What an answer means for the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// It leads from now on; whether another replica did before.
    Lead {
        taken_over: bool,
    },
    /// It still leads; its deadline moves.
    Renewed,
    Stop,
}

/// What becomes of a request or an answer on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Travel {
    /// It takes as long as any call.
    Usual,
    Takes(Span),
    Lost,
}

#[derive(Debug, Default)]
struct Candidate {
    starts: u32,
    /// When the last successful renewal was sent.
    renewed: Option<Timestamp>,
    /// The last version that it saw of another replica's lease, and since when.
    observed: Option<(u64, Timestamp)>,
}

/// The lease, and those that want it.
pub(super) struct Election {
    rng: Pcg32,
    holder: Option<Replica>,
    version: u64,
    candidates: BTreeMap<usize, Candidate>,
    /// When requests of the holder are lost or late.
    outage: Range<Timestamp>,
    /// Whether a leader asks before each write whether its deadline has passed, or learns of it some time later.
    pub(super) checked_before_writes: bool,
}

impl Election {
    pub(super) fn new(seed: u64, start: Timestamp, fault_window: Span, candidates: [usize; 2]) -> Self {
        let mut rng = Pcg32::new(seed, 15);
        let mut moment = |window: i64| start.plus(Span(i64::from(rng.next_u32()) % window.max(1)));
        // Long enough to lose the lease more often than not.
        let first = moment(fault_window.0);
        let outage = first..moment(fault_window.0).max(first.plus(DURATION)).min(start.plus(fault_window));
        let checked_before_writes = rng.next_u32().is_multiple_of(2);
        let candidates = candidates.into_iter().map(|process| (process, Candidate::default())).collect();
        Self { rng, holder: None, version: 0, candidates, outage, checked_before_writes }
    }

    pub(super) fn is_candidate(&self, process: usize) -> bool {
        self.candidates.contains_key(&process)
    }

    /// The process starts, as a new replica.
    pub(super) fn start(&mut self, process: usize) -> Option<Replica> {
        let candidate = self.candidates.get_mut(&process)?;
        *candidate = Candidate { starts: candidate.starts + 1, ..Candidate::default() };
        Some((process, candidate.starts))
    }

    /// The process ends.
    pub(super) fn stop(&mut self, process: usize) {
        self.start(process);
    }

    fn live(&mut self, (process, starts): Replica) -> Option<&mut Candidate> {
        self.candidates.get_mut(&process).filter(|candidate| candidate.starts == starts)
    }

    /// Whether the process may send a write: no other replica can lead yet.
    pub(super) fn may_write(&self, process: usize, now: Timestamp) -> bool {
        let Some(candidate) = self.candidates.get(&process).filter(|_| self.checked_before_writes) else { return true };
        candidate.renewed.is_some_and(|renewed| now < renewed.plus(RENEW_DEADLINE))
    }

    /// The request that a replica sends now; nothing if the process has ended meanwhile.
    pub(super) fn request(&mut self, replica: Replica, now: Timestamp) -> Option<Request> {
        let candidate = self.live(replica)?;
        let expired = candidate.observed.filter(|(_, since)| now.since(*since) > DURATION).map(|(version, _)| version);
        Some(Request { replica, sent: now, expired })
    }

    /// How a request or its answer travels now.
    pub(super) fn travel(&mut self, replica: Replica, now: Timestamp) -> Travel {
        if !self.outage.contains(&now) || self.holder != Some(replica) {
            return Travel::Usual;
        }
        let number = i64::from(self.rng.next_u32());
        if number % 2 == 0 { Travel::Lost } else { Travel::Takes(Span((3_000 + number / 2 % 17_000) * 1_000)) }
    }

    /// A request has arrived: it writes the lease, unless another replica holds it.
    pub(super) fn arrive(&mut self, request: Request) -> Reply {
        let free = self.holder.is_none_or(|holder| holder == request.replica);
        if !free && request.expired != Some(self.version) {
            return Reply::HeldByOther { version: self.version };
        }
        self.holder = Some(request.replica);
        self.version += 1;
        Reply::Held
    }

    /// An answer has arrived.
    pub(super) fn answered(&mut self, request: Request, reply: Reply, now: Timestamp) -> Step {
        let taken_over = self.version > 1;
        let Some(candidate) = self.live(request.replica) else { return Step::Nothing };
        match reply {
            Reply::Held => match candidate.renewed {
                None => {
                    candidate.renewed = Some(request.sent);
                    Step::Lead { taken_over }
                }
                Some(renewed) => {
                    candidate.renewed = Some(renewed.max(request.sent));
                    Step::Renewed
                }
            },
            Reply::HeldByOther { .. } if candidate.renewed.is_some() => Step::Stop,
            Reply::HeldByOther { version } => {
                if candidate.observed.is_none_or(|(observed, _)| observed != version) {
                    candidate.observed = Some((version, now));
                }
                Step::Nothing
            }
        }
    }

    /// When to check the deadline that a renewal gives; some leaders are busy and check up to 20 seconds late.
    pub(super) fn deadline(&mut self, replica: Replica) -> Option<Timestamp> {
        let late = if self.checked_before_writes { 0 } else { i64::from(self.rng.next_u32() % 20_000) };
        let renewed = self.live(replica)?.renewed?;
        Some(renewed.plus(RENEW_DEADLINE).plus(Span(late * 1_000)))
    }

    /// Whether the deadline has passed without a renewal.
    pub(super) fn is_overdue(&mut self, replica: Replica, now: Timestamp) -> bool {
        let renewed = self.live(replica).and_then(|candidate| candidate.renewed);
        renewed.is_some_and(|renewed| now >= renewed.plus(RENEW_DEADLINE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000_000)
    }

    fn ask(election: &mut Election, replica: Replica, seconds: i64) -> Step {
        let request = election.request(replica, at(seconds)).expect("it runs");
        let reply = election.arrive(request);
        election.answered(request, reply, at(seconds))
    }

    #[test]
    fn a_lease_is_taken_over_once_it_has_not_been_renewed_for_its_duration() {
        let mut election = Election::new(1, at(0), Span(0), [0, 7]);
        election.checked_before_writes = true;
        let (first, second) = (election.start(0).expect("a candidate"), election.start(7).expect("a candidate"));
        assert_eq!(ask(&mut election, first, 0), Step::Lead { taken_over: false });
        assert_eq!((ask(&mut election, second, 1), ask(&mut election, first, 2)), (Step::Nothing, Step::Renewed));
        assert_eq!((ask(&mut election, second, 3), ask(&mut election, second, 18)), (Step::Nothing, Step::Nothing));
        assert_eq!([11, 12].map(|seconds| election.may_write(0, at(seconds))), [true, false]);
        assert_eq!([11, 12].map(|seconds| election.is_overdue(first, at(seconds))), [false, true]);
        assert_eq!(ask(&mut election, second, 19), Step::Lead { taken_over: true });
        assert_eq!(ask(&mut election, first, 20), Step::Stop);
    }
}
