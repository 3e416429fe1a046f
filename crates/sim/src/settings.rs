//! Scheduler configuration of a scenario: the scheduler's own file, plus a shard's placement strategy.

use kai_control::scheduler::{Configured, Settings as SchedulerSettings};
use kai_engine::policy::{Action, DeviceOrder, Placement, Strategy};
use serde_json::{Map, Value};

use crate::fault::{Fault, Place, suggest};
use crate::manifest::{Fields, Plan};

/// Settings of everything that is simulated as shipped.
pub(crate) struct Settings {
    pub(crate) scheduler: SchedulerSettings,
    pub(crate) grouper: kai_workloads::Settings,
    /// What has no effect, for people to know.
    pub(crate) warnings: Vec<String>,
}

/// The key of a `SchedulingShard` that is understood beside the keys of the configuration file.
const PLACEMENT: &str = "placementStrategy";

/// Keys of the configuration file. A scheduler passes over others with a line in its log; here nobody reads logs.
const FILE_KEYS: [&str; 7] =
    ["actions", "tiers", "queueDepthPerAction", "scenarioSearchBudgets", "usageDBConfig", "keepNodesWhole", "args"];

/// Reads the configuration that a scenario gives, or the defaults.
pub(crate) fn read(plan: &Plan) -> Result<Settings, Fault> {
    let (place, root) = (&plan.scenario.place, &plan.scenario.scheduler_path);
    let written = plan.scenario.scheduler.clone().unwrap_or_else(|| Value::Object(Map::new()));
    let known: Vec<&str> = FILE_KEYS.into_iter().chain([PLACEMENT]).collect();
    let fields = Fields::open(&written, place, root, &known)?;
    let placement =
        fields.get(PLACEMENT).map(|value| placement(value, place, &fields.path_of(PLACEMENT))).transpose()?;
    let mut file = written.clone();
    if let Some(file) = file.as_object_mut() {
        file.remove(PLACEMENT);
    }
    let Configured { settings: mut scheduler, warnings } = Configured::read(&file).map_err(|malformed| {
        Fault::new(place.field(format!("{root}.{}", malformed.field)), malformed.problem, malformed.hint)
    })?;
    if let Some(placement) = placement {
        place_by(placement, &mut scheduler);
    }
    let grouper = kai_workloads::Settings {
        scheduler_name: scheduler.scheduler_name.clone(),
        queue_label_key: scheduler.queue_label_key.clone(),
        node_pool_label_key: scheduler.node_pool_label_key.clone(),
        ..kai_workloads::Settings::default()
    };
    Ok(Settings { scheduler, grouper, warnings })
}

fn placement(value: &Value, place: &Place, path: &str) -> Result<Placement, Fault> {
    const STRATEGIES: [&str; 2] = ["binpack", "spread"];
    let fields = Fields::open(value, place, path, &["gpu", "cpu"])?;
    let strategy = |key: &str| match fields.text(key)? {
        None | Some("binpack") => Ok(Strategy::Pack),
        Some("spread") => Ok(Strategy::Spread),
        Some(other) => {
            Err(Fault::new(fields.at(key), format!("unknown strategy `{other}`"), suggest(other, &STRATEGIES)))
        }
    };
    Ok(Placement { gpu: strategy("gpu")?, cpu: strategy("cpu")? })
}

/// What an operator derives from a shard: a scheduler that spreads does not undo it by consolidating.
fn place_by(placement: Placement, settings: &mut SchedulerSettings) {
    settings.policy.scores.placement = Some(placement);
    if placement.gpu == Strategy::Spread {
        settings.policy.device_order = Some(DeviceOrder::Spread);
        settings.policy.scores.gpu_sharing = false;
    }
    if placement.gpu == Strategy::Spread || placement.cpu == Strategy::Spread {
        settings.policy.actions.retain(|action| *action != Action::Consolidate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_file_has_exactly_these_keys() {
        for key in FILE_KEYS {
            let configured = Configured::read(&serde_json::json!({ key: null })).expect("every key may be left empty");
            assert_eq!(configured.warnings, Vec::<String>::new(), "{key}");
        }
    }
}
