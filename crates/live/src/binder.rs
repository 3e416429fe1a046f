//! The binder on a cluster.

use kai_control::binder::{BinderController, Settings};

use crate::controller_loop::{Context, ControllerLoop, Writers};
use crate::{FatalError, LeaderElectionOptions};

#[derive(Clone, Debug)]
pub struct BinderOptions {
    pub settings: Settings,
    /// Requests carried out at the same time.
    pub workers: usize,
    pub election: Option<LeaderElectionOptions>,
}

/// Binds until stopped.
pub(crate) async fn run(options: BinderOptions, context: Context) -> Result<(), FatalError> {
    let BinderOptions { settings, workers, election } = options;
    let writers = Writers::new(&context, workers);
    ControllerLoop::new("binder", "binder", BinderController::new(settings), writers, context).run(election).await
}
