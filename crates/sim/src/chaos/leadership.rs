//! Requests for the lease on their way, and what they mean for processes.

use kai_engine::units::{Span, Timestamp};

use super::lease::{RETRY_PERIOD, Replica, Reply, Request, Step, Travel};
use super::{ChaosRun, Event};

/// A process that has lost its lease ends, and its container starts again.
const RESTART: Span = Span::seconds(1);

/// What is due about the lease.
#[derive(Clone, Copy, Debug)]
pub(super) enum LeaseEvent {
    Send(Replica),
    Arrive(Request),
    Answer(Request, Reply),
    CheckDeadline(Replica),
}

impl ChaosRun<'_> {
    /// Whether the process may begin only once it has the lease.
    pub(super) fn awaits_lease(&self, process: usize) -> bool {
        let mut both = self.processes[process].colocated_with.into_iter().chain([process]);
        self.election.as_ref().is_some_and(|election| both.any(|one| election.is_candidate(one)))
    }

    /// The process starts, and asks for the lease.
    pub(super) fn enter_election(&mut self, process: usize) {
        for one in self.processes[process].colocated_with.into_iter().chain([process]) {
            if self.processes[one].driver.is_some() {
                return;
            }
            if let Some(replica) = self.election.as_mut().and_then(|election| election.start(one)) {
                self.add(self.cluster.now, Event::Lease(LeaseEvent::Send(replica)));
            }
        }
    }

    pub(super) fn on_lease(&mut self, event: LeaseEvent) {
        let now = self.cluster.now;
        let Some(election) = &mut self.election else { return };
        match event {
            LeaseEvent::Send(replica) => {
                let Some(request) = election.request(replica, now) else { return };
                self.add(now.plus(RETRY_PERIOD), Event::Lease(LeaseEvent::Send(replica)));
                self.travel(replica, LeaseEvent::Arrive(request));
            }
            LeaseEvent::Arrive(request) => {
                let reply = election.arrive(request);
                self.travel(request.replica, LeaseEvent::Answer(request, reply));
            }
            LeaseEvent::Answer(request, reply) => match election.answered(request, reply, now) {
                Step::Nothing => {}
                Step::Lead { taken_over } => {
                    self.count(if taken_over { "lease taken over" } else { "lease acquired" });
                    self.note(|| format!("{:?} leads", request.replica));
                    self.start_with_colocated(request.replica.0);
                    self.watch_deadline(request.replica);
                }
                Step::Renewed => self.watch_deadline(request.replica),
                Step::Stop => self.lose_lease(request.replica),
            },
            LeaseEvent::CheckDeadline(replica) => {
                if election.is_overdue(replica, now) {
                    self.lose_lease(replica);
                }
            }
        }
    }

    /// A request or an answer takes its time, or is lost.
    fn travel(&mut self, replica: Replica, event: LeaseEvent) {
        let now = self.cluster.now;
        let travel = self.election.as_mut().map_or(Travel::Usual, |election| election.travel(replica, now));
        let delay = match travel {
            Travel::Takes(delay) => delay,
            Travel::Usual => self.faults.call_delay(now),
            Travel::Lost => {
                self.count("renewal lost");
                return;
            }
        };
        self.add(now.plus(delay), Event::Lease(event));
    }

    fn watch_deadline(&mut self, replica: Replica) {
        let at: Option<Timestamp> = self.election.as_mut().and_then(|election| election.deadline(replica));
        if let Some(at) = at {
            self.add(at, Event::Lease(LeaseEvent::CheckDeadline(replica)));
        }
    }

    fn lose_lease(&mut self, (process, _): Replica) {
        self.count("lease lost");
        self.crash(process);
        self.add(self.cluster.now.plus(RESTART), Event::Start { process });
    }
}
