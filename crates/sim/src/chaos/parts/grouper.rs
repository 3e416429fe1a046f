//! The pod grouper: every pod of our scheduler gets its group, and a link to it.

use std::rc::Rc;

use kai_control::grouper::{Followed, GrouperController, Job, PlannedWrite, Reading, Step, Written};
use kai_engine::units::Timestamp;
use kai_workloads::{ClusterReader as _, Settings};
use serde_json::Value;

use super::{Clock, End, Part, Task, key_of};
use crate::cluster::{ApiError, Call, Store};
use crate::manifest::{Id, Kind};

const KINDS: [Kind; 3] = [Kind::Pod, Kind::PodGroup, Kind::PriorityClass];

pub(in crate::chaos) struct GrouperPart {
    agenda: GrouperController,
    drafts: Vec<PlannedWrite>,
}

impl GrouperPart {
    /// With a scheduler in the same process or without.
    pub(in crate::chaos) fn new(settings: Settings, paired: bool) -> Self {
        let mut agenda = GrouperController::new(settings);
        agenda.drafts(paired);
        Self { agenda, drafts: Vec::new() }
    }
}

fn followed(kind: Kind) -> Followed {
    match kind {
        Kind::Pod => Followed::Pods,
        Kind::PodGroup => Followed::Groups,
        _ => Followed::PriorityClasses,
    }
}

impl Part for GrouperPart {
    fn kinds(&self) -> &'static [Kind] {
        &KINDS
    }

    fn applied(&mut self, id: &Id, value: &Rc<Value>, clock: Clock) {
        self.agenda.see(followed(id.kind), value, clock.wall);
    }

    fn deleted(&mut self, id: &Id, clock: Clock) {
        self.agenda.lose(followed(id.kind), &key_of(id), clock.wall);
    }

    fn relisted(&mut self, all: &[(Id, Rc<Value>)], gone: &[Id], clock: Clock) {
        if let Some(id) = all.iter().map(|(id, _)| id).chain(gone).next() {
            self.agenda.relisted(followed(id.kind), clock.wall);
        }
        for id in gone {
            self.deleted(id, clock);
        }
        for (id, value) in all {
            self.applied(id, value, clock);
        }
    }

    fn act(&mut self, api: Option<&Store>, clock: Clock) -> Vec<Task> {
        let mut tasks = Vec::new();
        loop {
            let mut read = false;
            for step in self.agenda.steps(clock.wall) {
                match step {
                    Step::Read(object) => {
                        let reading = match api.map(|api| api.object(&object)) {
                            Some(Some(found)) => Reading::Found(Box::new(found.clone())),
                            Some(None) => Reading::Missing,
                            None => Reading::Failed("no answer".to_owned()),
                        };
                        self.agenda.was_read(object, reading, clock.wall);
                        read = true;
                    }
                    Step::PlannedWrite(draft) => self.drafts.push(draft),
                    Step::Write(Job { pod, effects, patient, .. }) => tasks.push(Task {
                        about: pod,
                        calls: effects.into_iter().map(Call::Group).collect(),
                        stubborn: false,
                        patient,
                    }),
                    Step::Complain { .. } => {}
                }
            }
            if !read {
                return tasks;
            }
        }
    }

    fn finished(&mut self, mut end: End, clock: Clock) {
        let written = match end.refused.pop_first().map(|(_, refusal)| refusal) {
            None => Written::Done,
            Some(ApiError::Conflict) => Written::Outrun,
            Some(ApiError::Rejected(why)) => Written::Failed(why),
            Some(ApiError::NoResponse) => Written::Failed("no answer".to_owned()),
        };
        self.agenda.ended(end.task.about, written, clock.wall);
    }

    fn drafts(&mut self) -> Vec<PlannedWrite> {
        std::mem::take(&mut self.drafts)
    }

    fn next(&self, clock: Clock) -> Option<Timestamp> {
        self.agenda.next(clock.wall).map(|at| clock.steady.plus(at.since(clock.wall)))
    }
}
