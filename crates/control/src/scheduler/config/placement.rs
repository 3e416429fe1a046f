//! `placementStrategy` of a `SchedulingShard`: pack or spread, and what an operator derives from it.

use kai_engine::policy::{Action, DeviceOrder, PlacementStrategies, Strategy};

use super::suggestion;
use crate::objects::Malformed;
use crate::objects::field_reader::FieldReader;
use crate::scheduler::settings::Settings;

const KEYS: [&str; 2] = ["gpu", "cpu"];
const STRATEGIES: [(&str, Strategy); 2] = [("binpack", Strategy::Pack), ("spread", Strategy::Spread)];

/// Applies the strategy, if there is one. A scheduler that spreads does not undo it by consolidating.
pub(super) fn read(
    place: &FieldReader<'_>,
    settings: &mut Settings,
    warnings: &mut Vec<String>,
) -> Result<(), Malformed> {
    let entries = place.entries()?;
    if entries.is_empty() {
        return Ok(());
    }
    for (key, _) in entries.iter().filter(|(key, _)| !KEYS.contains(key)) {
        warnings.push(format!("placementStrategy.{key} is not a setting{}", suggestion(key, KEYS)));
    }
    let placement = PlacementStrategies { gpu: strategy(&place.field("gpu"))?, cpu: strategy(&place.field("cpu"))? };
    let policy = &mut settings.policy;
    policy.scores.placement = Some(placement);
    if placement.gpu == Strategy::Spread {
        policy.device_order = Some(DeviceOrder::Spread);
        policy.scores.gpu_sharing = false;
    }
    if placement.gpu == Strategy::Spread || placement.cpu == Strategy::Spread {
        policy.actions.retain(|action| *action != Action::Consolidate);
    }
    Ok(())
}

fn strategy(place: &FieldReader<'_>) -> Result<Strategy, Malformed> {
    let Some(name) = place.text()? else { return Ok(Strategy::Pack) };
    let known = STRATEGIES.iter().find(|(known, _)| *known == name).map(|(_, strategy)| *strategy);
    known.ok_or_else(|| {
        let names = STRATEGIES.map(|(name, _)| name);
        place.invalid(format!("`{name}` is not a strategy{}", suggestion(name, names)), "use binpack or spread")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Configured;
    use super::*;

    fn read(value: &Value) -> Result<Configured, Malformed> {
        Configured::read(&json!({ "placementStrategy": value }))
    }

    #[test]
    fn a_scheduler_that_spreads_does_not_consolidate() {
        let policy = read(&json!({"gpu": "spread"})).unwrap().settings.policy;
        let placement = policy.scores.placement.unwrap();
        assert_eq!((placement.gpu, placement.cpu), (Strategy::Spread, Strategy::Pack));
        assert_eq!(policy.device_order, Some(DeviceOrder::Spread));
        assert!(!policy.actions.contains(&Action::Consolidate));
        let packed = read(&json!({"gpu": "binpack"})).unwrap();
        assert_eq!(format!("{:?}", packed.settings), format!("{:?}", Settings::default()));
    }

    #[test]
    fn mistakes_are_named() {
        let wrong = read(&json!({"cpu": "spred"})).unwrap_err();
        assert_eq!(wrong.to_string(), "placementStrategy.cpu: `spred` is not a strategy; did you mean spread?");
        let warnings = read(&json!({"gpus": "spread"})).unwrap().warnings;
        assert_eq!(warnings, ["placementStrategy.gpus is not a setting; did you mean gpu?"]);
    }
}
