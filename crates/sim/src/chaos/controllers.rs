//! The shipped controllers, as they are started.

use kai_control::component::Component;
use kai_control::controller::Controller;
use kai_control::registry::{COMPONENTS, NODE_SCALE_ADJUSTER, POD_GROUPER, Registered, SCHEDULER, Settings};
use kai_control::scheduler;

/// Which controller a process runs: one of the registry.
pub(super) type ControllerKind = &'static Registered;

/// All controllers that ship, but the node-scale adjuster: while a scaling pod is pending the binder reserves no GPU, and
/// without an autoscaler that is for ever.
pub(super) fn all() -> impl Iterator<Item = ControllerKind> {
    COMPONENTS.into_iter().filter(|one| one.component.name != NODE_SCALE_ADJUSTER.component.name)
}

/// Those that may share a process, by their place among all.
pub(super) fn colocated() -> (usize, usize) {
    let place = |component: &Component| {
        all().position(|one| one.component.name == component.name).expect("the registry lists every component")
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
