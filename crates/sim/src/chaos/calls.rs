//! Calls of controllers on their way to the API server and back: late, refused, lost, or made and the reply lost.

use kai_control::controller::{ApiCall, CallError, Controller as _, WorkResult, retry_delay};
use kai_engine::units::Span;
use serde_json::Value;

use super::api_faults::{self, Refusal};
use super::{ChaosRun, Event, InFlightWork, Work};

impl ChaosRun<'_> {
    /// The next call of a work item reaches the API server, if it does.
    pub(super) fn call(&mut self, id: u64) {
        let now = self.cluster.now;
        let Some(in_flight) = self.in_flight.get_mut(&id) else { return };
        let (process, incarnation) = (in_flight.process, in_flight.incarnation);
        if let Work::Queued(key) = &in_flight.work {
            let own = self.processes[process].incarnation == incarnation;
            let item = if own { self.processes[process].queued.begin(key) } else { None };
            let Some(item) = item else {
                self.in_flight.remove(&id);
                return;
            };
            in_flight.work = Work::Begun(WorkResult::new(item));
        }
        let (Work::Begun(result), attempt) = (&in_flight.work, in_flight.attempt) else { return };
        let Some(call) = result.next_call().cloned() else { return };
        if !self.runs(process, incarnation) {
            // Its sender has crashed. It may have been on its way already.
            self.in_flight.remove(&id);
            if self.faults.late_delivery() {
                let _ = self.cluster.call(&call);
            }
            return;
        }
        if self.election.as_ref().is_some_and(|election| !election.may_write(process, now)) {
            // It is about to end, and must not write any more.
            self.count("write after the lease's deadline withheld");
            self.in_flight.remove(&id);
            return;
        }
        if let Some(refusal) = self.faults.api.refuse(now, &call) {
            self.refused(id, &call, attempt, refusal);
            return;
        }
        let outcome = self.faults.call_outcome(now);
        let mut reply = Err(CallError::Unknown("no reply".to_owned()));
        if outcome.delivered {
            let done = self.cluster.call(&call);
            self.note(|| format!("{process} calls {call}: {:?}", done.as_ref().map(Option::is_some)));
            if outcome.acknowledged {
                reply = done;
            }
        }
        let lost = !outcome.delivered || !outcome.acknowledged;
        if lost {
            self.count("unanswered");
        }
        if let Some(delay) = retry_delay(attempt).filter(|_| lost) {
            if let Some(in_flight) = self.in_flight.get_mut(&id) {
                in_flight.attempt += 1;
            }
            self.add(now.plus(delay), Event::Call(id));
        } else {
            let delay = self.faults.call_delay(now);
            self.add(now.plus(delay), Event::Answer(id, reply));
        }
    }

    /// The API server does not take the call now.
    fn refused(&mut self, id: u64, call: &ApiCall, attempt: u32, refusal: Refusal) {
        let (now, Refusal { error, retry_after, counted_as }) = (self.cluster.now, refusal);
        self.note(|| format!("{counted_as}: {call}"));
        self.count(counted_as);
        let Some(delay) = retry_delay(attempt).filter(|_| api_faults::repeats(call)) else {
            let delay = self.faults.call_delay(now);
            return self.add(now.plus(delay), Event::Answer(id, Err(error)));
        };
        if let Some(in_flight) = self.in_flight.get_mut(&id) {
            in_flight.attempt += 1;
        }
        self.add(now.plus(delay.max(retry_after)), Event::Call(id));
    }

    pub(super) fn answer(&mut self, id: u64, reply: Result<Option<Value>, CallError>) {
        let Some(InFlightWork { process, incarnation, work: Work::Begun(mut result), .. }) = self.in_flight.remove(&id)
        else {
            return;
        };
        if !self.runs(process, incarnation) {
            return;
        }
        if matches!(reply, Err(CallError::Unknown(_))) {
            self.on_scheduler_misled(process);
        }
        if let (Err(error), Some(call)) = (&reply, result.next_call()) {
            let line = format!("{process} fails to call {call}: {error:?}");
            self.note(|| line);
        }
        let before = result.next_priority();
        result.record(reply);
        let now = self.cluster.now;
        if result.next_call().is_some() {
            let deferral = if result.next_priority() == before { Span(0) } else { self.faults.deferral() };
            self.in_flight.insert(id, InFlightWork { process, incarnation, work: Work::Begun(result), attempt: 0 });
            let delay = self.faults.call_delay(now);
            self.add(now.plus(deferral).plus(delay), Event::Call(id));
            return;
        }
        let clock = self.clock(process);
        if let Some(driver) = &mut self.processes[process].driver {
            driver.controller.on_result(result, clock);
        }
        self.poll(process);
    }
}
