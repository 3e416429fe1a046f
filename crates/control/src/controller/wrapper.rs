//! Controllers around other controllers, which add what a process knows: metrics, CPU time, locks.

use std::sync::Arc;

use kai_engine::units::Timestamp;
use serde_json::Value;

use super::{Clock, Controller, Output, Skipped, WatchSpec, WorkResult};
use crate::grouper::PlannedWrite;
use crate::key::Key;
use crate::kinds::Kind;

/// A controller around another one. What it does not override is forwarded.
pub trait Wrapper {
    type Inner: Controller + ?Sized;

    fn inner(&self) -> &Self::Inner;

    fn inner_mut(&mut self) -> &mut Self::Inner;

    fn on_apply(&mut self, kind: Kind, object: &Arc<Value>, now: Clock) -> Vec<Skipped> {
        self.inner_mut().on_apply(kind, object, now)
    }

    fn on_delete(&mut self, kind: Kind, key: &Key, now: Clock) {
        self.inner_mut().on_delete(kind, key, now);
    }

    fn poll(&mut self, now: Clock) -> Output {
        self.inner_mut().poll(now)
    }

    fn next_poll(&self, now: Clock) -> Option<Timestamp> {
        self.inner().next_poll(now)
    }
}

/// Runs a [`Wrapper`]. The only place that forwards, so that no method of a controller is forgotten.
#[derive(Debug)]
pub struct Wrapped<W>(pub W);

impl<W: Wrapper> Controller for Wrapped<W> {
    fn watches(&self) -> Vec<WatchSpec> {
        self.0.inner().watches()
    }

    fn on_apply(&mut self, kind: Kind, object: &Arc<Value>, now: Clock) -> Vec<Skipped> {
        self.0.on_apply(kind, object, now)
    }

    fn on_delete(&mut self, kind: Kind, key: &Key, now: Clock) {
        self.0.on_delete(kind, key, now);
    }

    fn on_relist(&mut self, kind: Kind, now: Clock) {
        self.0.inner_mut().on_relist(kind, now);
    }

    fn poll(&mut self, now: Clock) -> Output {
        self.0.poll(now)
    }

    fn on_result(&mut self, result: WorkResult, now: Clock) {
        self.0.inner_mut().on_result(result, now);
    }

    fn next_poll(&self, now: Clock) -> Option<Timestamp> {
        self.0.next_poll(now)
    }

    fn announce_planned(&mut self, has_receiver: bool) {
        self.0.inner_mut().announce_planned(has_receiver);
    }

    fn on_planned(&mut self, planned: PlannedWrite) {
        self.0.inner_mut().on_planned(planned);
    }

    fn size(&self) -> usize {
        self.0.inner().size()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::controller::{WorkItem, WorkKey};

    /// Notes which of its methods are called.
    struct Probe(Rc<RefCell<Vec<&'static str>>>);

    impl Probe {
        fn note<T: Default>(&self, method: &'static str) -> T {
            self.0.borrow_mut().push(method);
            T::default()
        }
    }

    impl Controller for Probe {
        fn watches(&self) -> Vec<WatchSpec> {
            self.note("watches")
        }

        fn on_apply(&mut self, _: Kind, _: &Arc<Value>, _: Clock) -> Vec<Skipped> {
            self.note("on_apply")
        }

        fn on_delete(&mut self, _: Kind, _: &Key, _: Clock) {
            self.note::<()>("on_delete");
        }

        fn on_relist(&mut self, _: Kind, _: Clock) {
            self.note::<()>("on_relist");
        }

        fn poll(&mut self, _: Clock) -> Output {
            self.note("poll")
        }

        fn on_result(&mut self, _: WorkResult, _: Clock) {
            self.note::<()>("on_result");
        }

        fn next_poll(&self, _: Clock) -> Option<Timestamp> {
            self.note("next_poll")
        }

        fn announce_planned(&mut self, _: bool) {
            self.note::<()>("announce_planned");
        }

        fn on_planned(&mut self, _: PlannedWrite) {
            self.note::<()>("on_planned");
        }

        fn size(&self) -> usize {
            self.note("size")
        }
    }

    struct Around(Probe);

    impl Wrapper for Around {
        type Inner = Probe;

        fn inner(&self) -> &Probe {
            &self.0
        }

        fn inner_mut(&mut self) -> &mut Probe {
            &mut self.0
        }
    }

    fn call_all(mut controller: impl Controller) {
        let now = Clock { wall: Timestamp(0), steady: Timestamp(0) };
        let key = Key::new("n", "p");
        controller.watches();
        controller.on_apply(Kind::Pod, &Arc::new(Value::Null), now);
        controller.on_delete(Kind::Pod, &key, now);
        controller.on_relist(Kind::Pod, now);
        controller.poll(now);
        controller.on_result(WorkResult::new(WorkItem::new(WorkKey::Pod(key), Vec::new())), now);
        controller.next_poll(now);
        controller.announce_planned(true);
        controller.on_planned(PlannedWrite::CancelAll);
        controller.size();
    }

    #[test]
    fn every_method_of_a_controller_is_forwarded() {
        let source = include_str!("mod.rs");
        let (_, body) = source.split_once("pub trait Controller {").unwrap();
        let (body, _) = body.split_once("\n}").unwrap();
        let declared = body.lines().filter_map(|line| line.trim().strip_prefix("fn ")?.split('(').next());
        let declared: Vec<&str> = declared.collect();
        let called = Rc::<RefCell<Vec<&str>>>::default();
        call_all(Wrapped(Around(Probe(Rc::clone(&called)))));
        assert_eq!(*called.borrow(), declared);
        called.borrow_mut().clear();
        call_all(Box::new(Probe(Rc::clone(&called))));
        assert_eq!(*called.borrow(), declared);
    }
}
