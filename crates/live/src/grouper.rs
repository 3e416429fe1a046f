//! The pod grouper on a cluster.

use kai_control::Key;
use kai_control::grouper::GrouperController;
use kai_workloads::Settings;

use crate::controller_loop::{Context, ControllerLoop, Writers};
use crate::draft_channel::DraftSender;
use crate::{FatalError, LeaderElectionOptions};

#[derive(Clone, Debug)]
pub struct GrouperOptions {
    pub settings: Settings,
    /// The config map in which users declare kinds.
    pub declarations: Key,
    /// Objects read or written at the same time.
    pub workers: usize,
    pub election: Option<LeaderElectionOptions>,
}

/// Groups pods until stopped.
pub(crate) async fn run(
    options: GrouperOptions,
    drafts: Option<DraftSender>,
    context: Context,
) -> Result<(), FatalError> {
    let GrouperOptions { settings, declarations, workers, election } = options;
    let writers = Writers::new(&context, workers);
    let controller = GrouperController::new(settings, declarations);
    ControllerLoop::new("podgrouper", "pod-grouper", controller, writers, context)
        .with_drafts_to(drafts)
        .run(election)
        .await
}
