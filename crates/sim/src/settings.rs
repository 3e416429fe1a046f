//! Scheduler configuration of a scenario: the scheduler's own file.

use kai_control::scheduler::{Configured, Settings as SchedulerSettings};
use serde_json::{Map, Value};

use crate::input_error::InputError;
use crate::manifest::{Fields, Plan};

/// Settings of everything that is simulated as shipped.
pub(crate) struct Settings {
    pub(crate) scheduler: SchedulerSettings,
    pub(crate) grouper: kai_workloads::Settings,
    /// What has no effect, for people to know.
    pub(crate) warnings: Vec<String>,
}

/// Reads the configuration that a scenario gives, or the defaults.
pub(crate) fn read(plan: &Plan) -> Result<Settings, InputError> {
    let (location, root) = (&plan.scenario.location, &plan.scenario.scheduler_path);
    let written = plan.scenario.scheduler.clone().unwrap_or_else(|| Value::Object(Map::new()));
    // A scheduler passes over unknown keys with a line in its log; here there is no log.
    Fields::open(&written, location, root, &Configured::KEYS)?;
    let Configured { settings: scheduler, warnings } = Configured::read(&written).map_err(|malformed| {
        InputError::new(location.field(format!("{root}.{}", malformed.field)), malformed.problem, malformed.hint)
    })?;
    let grouper = kai_workloads::Settings {
        scheduler_name: scheduler.scheduler_name.clone(),
        queue_label_key: scheduler.queue_label_key.clone(),
        node_pool_label_key: scheduler.node_pool_label_key.clone(),
        declared: plan.declared.clone(),
        ..kai_workloads::Settings::default()
    };
    Ok(Settings { scheduler, grouper, warnings })
}
