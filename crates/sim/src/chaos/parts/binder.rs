//! The binder: carries requests out as their steps become possible.

use std::rc::Rc;

use kai_control::binder::{self, BinderController, Ended, Followed, Job, RESYNC_PERIOD, Settings};
use kai_engine::units::Timestamp;
use serde_json::Value;

use super::{Clock, End, Part, Task, key_of};
use crate::cluster::{ApiError, Call, Store};
use crate::manifest::{Id, Kind};

const KINDS: [Kind; 3] = [Kind::BindRequest, Kind::Pod, Kind::Node];

pub(in crate::chaos) struct BinderPart {
    agenda: BinderController,
    synced: Option<Timestamp>,
}

impl BinderPart {
    pub(in crate::chaos) fn new() -> Self {
        Self { agenda: BinderController::new(Settings::default()), synced: None }
    }
}

fn followed(kind: Kind) -> Followed {
    match kind {
        Kind::BindRequest => Followed::Requests,
        Kind::Pod => Followed::Pods,
        _ => Followed::Nodes,
    }
}

impl Part for BinderPart {
    fn kinds(&self) -> &'static [Kind] {
        &KINDS
    }

    fn applied(&mut self, id: &Id, value: &Rc<Value>, clock: Clock) {
        // As good as not there, as on a cluster.
        let _ = self.agenda.see(followed(id.kind), value, clock.wall);
    }

    fn deleted(&mut self, id: &Id, clock: Clock) {
        self.agenda.lose(followed(id.kind), &key_of(id), clock.wall);
    }

    fn act(&mut self, _: Option<&Store>, clock: Clock) -> Vec<Task> {
        if self.synced.is_none_or(|at| at.plus(RESYNC_PERIOD) <= clock.steady) {
            self.synced = Some(clock.steady);
            self.agenda.resync();
        }
        let task = |Job { request, effects, stubborn }| Task {
            about: request.unwrap_or_default(),
            calls: effects.into_iter().map(Call::Bind).collect(),
            stubborn,
            patient: false,
        };
        self.agenda.jobs(clock.wall).into_iter().map(task).collect()
    }

    fn finished(&mut self, end: End, clock: Clock) {
        let End { task: Task { about, calls, stubborn, .. }, done, refused } = end;
        let effect = |call| match call {
            Call::Bind(effect) => effect,
            other => unreachable!("the binder does not call {other}"),
        };
        let request = Some(about).filter(|about| !about.name.is_empty());
        let job = Job { request, effects: calls.into_iter().map(effect).collect(), stubborn };
        let answer = |refusal| match refusal {
            ApiError::Rejected(why) => binder::Refusal::Refused(why),
            ApiError::Conflict => binder::Refusal::Refused("somebody else was faster".to_owned()),
            ApiError::NoResponse => binder::Refusal::Unclear("no answer".to_owned()),
        };
        let refused = refused.into_iter().map(|(at, refusal)| (at, answer(refusal))).collect();
        self.agenda.ended(Ended { job, done, refused }, clock.wall);
    }

    fn next(&self, clock: Clock) -> Option<Timestamp> {
        let sync = self.synced.map_or(clock.steady, |at| at.plus(RESYNC_PERIOD));
        let due = self.agenda.next(clock.wall).map(|at| clock.steady.plus(at.since(clock.wall)));
        Some(due.map_or(sync, |due| due.min(sync)))
    }
}
