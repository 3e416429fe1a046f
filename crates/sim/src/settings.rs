//! Scheduler configuration of a scenario.

use kai_control::scheduler::Settings as SchedulerSettings;

use crate::fault::Fault;
use crate::manifest::Plan;

/// Settings of everything that is simulated as shipped.
pub(crate) struct Settings {
    pub(crate) scheduler: SchedulerSettings,
    pub(crate) grouper: kai_workloads::Settings,
}

/// Reads the configuration that a scenario gives, or the defaults.
pub(crate) fn read(plan: &Plan) -> Result<Settings, Fault> {
    let _ = &plan.scenario.scheduler;
    let scheduler = SchedulerSettings::default();
    let grouper = kai_workloads::Settings {
        scheduler_name: scheduler.scheduler_name.clone(),
        queue_label_key: scheduler.queue_label_key.clone(),
        node_pool_label_key: scheduler.node_pool_label_key.clone(),
        ..kai_workloads::Settings::default()
    };
    Ok(Settings { scheduler, grouper })
}
