//! The shipped controllers, as they are started.

use kai_control::component::Component;
use kai_control::controller::Controller;
use kai_control::registry::{COMPONENTS, NODE_SCALE_ADJUSTER, POD_GROUPER, Registered, SCHEDULER, Settings};
use kai_control::scheduler;

/// Which controller a process runs: one of the registry.
pub(super) type ControllerKind = &'static Registered;

/// All controllers that ship, with or without the node-scale adjuster.
pub(super) fn all(scales: bool) -> impl Iterator<Item = ControllerKind> {
    COMPONENTS.into_iter().filter(move |one| scales || one.component.name != NODE_SCALE_ADJUSTER.component.name)
}

/// Those that may share a process, by their place among all.
pub(super) fn colocated(scales: bool) -> (usize, usize) {
    let place = |component: &Component| {
        all(scales).position(|one| one.component.name == component.name).expect("the registry lists every component")
    };
    (place(SCHEDULER.component), place(POD_GROUPER.component))
}

/// A controller that knows nothing yet.
pub(super) fn start(
    kind: ControllerKind,
    scheduler: &scheduler::Settings,
    grouper: &kai_workloads::Settings,
) -> Box<dyn Controller> {
    (kind.start)(&Settings { scheduler: scheduler.clone(), grouper: grouper.clone(), ..Settings::default() })
}
