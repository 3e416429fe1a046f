//! Controllers of the registry that need nothing of their process but the loop.

use kai_control::registry::{Registered, Settings};

use crate::controller_loop::{Context, ControllerLoop, Writers};
use crate::planned_channel::PlannedSender;
use crate::{FatalError, LeaderElectionOptions};

#[derive(Clone, Debug)]
pub struct ControllerOptions {
    pub registered: &'static Registered,
    pub settings: Settings,
    /// API calls at the same time.
    pub workers: usize,
    pub election: Option<LeaderElectionOptions>,
}

/// Runs a controller until stopped.
pub(crate) async fn run(
    options: ControllerOptions,
    planned_to: Option<PlannedSender>,
    context: Context,
) -> Result<(), FatalError> {
    let ControllerOptions { registered, settings, workers, election } = options;
    let writers = Writers::new(&context, workers);
    let (component, controller) = (registered.component, (registered.start)(&settings));
    ControllerLoop::new(component.name, component.reporter, controller, writers, context)
        .with_planned_to(planned_to)
        .run(election)
        .await
}
