//! The node-scale adjuster on a cluster.

use kai_control::node_scale::{NodeScaleController, Settings};

use crate::controller_loop::{Context, ControllerLoop, Writers};
use crate::{FatalError, LeaderElectionOptions};

#[derive(Clone, Debug)]
pub struct NodeScaleOptions {
    pub settings: Settings,
    /// Pods that ask for this scheduler are looked at.
    pub scheduler_name: String,
    /// Objects written at the same time.
    pub workers: usize,
    pub election: Option<LeaderElectionOptions>,
}

/// Adjusts until stopped.
pub(crate) async fn run(options: NodeScaleOptions, context: Context) -> Result<(), FatalError> {
    let NodeScaleOptions { settings, scheduler_name, workers, election } = options;
    let writers = Writers::new(&context, workers);
    let controller = NodeScaleController::new(settings, scheduler_name);
    ControllerLoop::new("nodescaleadjuster", "nodescaleadjuster", controller, writers, context).run(election).await
}
