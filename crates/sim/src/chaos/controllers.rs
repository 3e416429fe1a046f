//! The shipped controllers, as they are started.

use kai_control::Key;
use kai_control::binder::{self, BinderController};
use kai_control::controller::Controller;
use kai_control::grouper::GrouperController;
use kai_control::scheduler::{self, SchedulerController};
use kai_control::status::{PodGroupAggregator, QueueAggregator, StatusController};
use kai_engine::units::Span;
use kai_workloads::Settings;

/// Which controller a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControllerKind {
    Scheduler,
    Binder,
    Grouper,
    PodGroupStatus,
    QueueStatus,
}

impl ControllerKind {
    pub(super) const ALL: [Self; 5] =
        [Self::Scheduler, Self::Binder, Self::Grouper, Self::PodGroupStatus, Self::QueueStatus];
}

/// The longest time between two cycles, as shipped.
const PERIOD: Span = Span::seconds(1);

/// A controller that knows nothing yet; `colocated` if scheduler and grouper share a process.
pub(super) fn start(
    kind: ControllerKind,
    scheduler: &scheduler::Settings,
    grouper: &Settings,
    colocated: bool,
) -> Box<dyn Controller> {
    match kind {
        ControllerKind::Scheduler => Box::new(SchedulerController::new(scheduler.clone(), PERIOD)),
        ControllerKind::Binder => Box::new(BinderController::new(binder::Settings::default())),
        ControllerKind::Grouper => {
            let declarations = Key::new("kai-scheduler", "kai-workload-kinds");
            let mut controller = GrouperController::new(grouper.clone(), declarations);
            controller.announce_planned(colocated);
            Box::new(controller)
        }
        ControllerKind::PodGroupStatus => {
            Box::new(StatusController::new(PodGroupAggregator::new(&scheduler.scheduler_name)))
        }
        ControllerKind::QueueStatus => Box::new(StatusController::new(QueueAggregator::default())),
    }
}
