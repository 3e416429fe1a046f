//! The scheduler's configuration file and flags, resolved to [`Settings`].
//!
//! ```yaml
//! actions: "allocate, consolidation, reclaim, preempt, stalegangeviction"
//! tiers:
//! - plugins:
//!   - name: nodeplacement
//!     arguments: {gpu: spread, cpu: binpack}
//! queueDepthPerAction: {allocate: 100}
//! scenarioSearchBudgets: {maxJobSearchDuration: 4m}
//! usageDBConfig: {clientType: prometheus}       # past usage counts
//! placementStrategy: {gpu: spread, cpu: binpack} # as in a SchedulingShard
//! keepNodesWhole: true                          # not in KAI
//! evictions: {period: 1s, cooldown: 20s}        # not in KAI
//! args: {max-consolidation-preemptees: "16"}    # flags by name, as in a SchedulingShard
//! ```
//!
//! Every part may be absent and then has its default. What KAI refuses is an error, and so is what would make it
//! crash; what KAI passes over in its log is passed over here too, and listed.

mod budgets;
mod evictions;
mod flags;
mod placement;
mod plugins;
mod usage;

pub(super) use plugins::generator_name;

use kai_engine::policy::{Action, Depth, Policy};
use serde_json::Value;

use super::settings::Settings;
use crate::did_you_mean::closest_match;
use crate::objects::Malformed;
use crate::objects::field_reader::FieldReader;

/// Resolved settings and what was passed over on the way.
#[derive(Clone, Debug)]
pub struct Configured {
    pub settings: Settings,
    /// Things that have no effect, for the log.
    pub warnings: Vec<String>,
}

impl Configured {
    /// Keys of the file.
    pub const KEYS: [&str; 9] = [
        "actions",
        "tiers",
        "queueDepthPerAction",
        "scenarioSearchBudgets",
        "usageDBConfig",
        "placementStrategy",
        "keepNodesWhole",
        "evictions",
        "args",
    ];

    /// Reads a configuration file; `null` and an empty object are the built-in default.
    pub fn read(file: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(file);
        let mut warnings = Vec::new();
        if !file.is_null() {
            for (key, _) in root.entries()? {
                if !Self::KEYS.contains(&key) {
                    warnings.push(format!("{key} is not a setting{}", suggestion(key, Self::KEYS)));
                }
            }
        }
        let mut settings = Settings::default();
        settings.policy.actions = actions(&root.field("actions"))?;
        plugins::read(&root.field("tiers"), &mut settings, &mut warnings)?;
        placement::read(&root.field("placementStrategy"), &mut settings, &mut warnings)?;
        settings.policy.depth = depth(&root.field("queueDepthPerAction"))?;
        settings.policy.budget = budgets::read(&root.field("scenarioSearchBudgets"))?;
        settings.policy.keep_nodes_whole = root.field("keepNodesWhole").flag()?.unwrap_or(false);
        evictions::read(&root.field("evictions"), &mut settings, &mut warnings)?;
        flags::read(&root.field("args"), &mut settings, &mut warnings)?;
        settings.usage = usage::read(&root.field("usageDBConfig"))?;
        warn_of_idle_actions(&settings.policy, &mut warnings);
        Ok(Self { settings, warnings })
    }
}

/// Actions by the names that users write.
const ACTIONS: [(&str, Action); 5] = [
    ("allocate", Action::Allocate),
    ("consolidation", Action::Consolidate),
    ("reclaim", Action::Reclaim),
    ("preempt", Action::Preempt),
    ("stalegangeviction", Action::EvictStale),
];

/// What an action is called.
pub fn action_name(action: Action) -> &'static str {
    ACTIONS.iter().find(|(_, known)| *known == action).map_or("", |(name, _)| name)
}

/// The action of that name.
pub fn action_named(name: &str) -> Option<Action> {
    ACTIONS.iter().find(|(known, _)| *known == name).map(|(_, action)| *action)
}

fn action(place: &FieldReader<'_>, name: &str) -> Result<Action, Malformed> {
    action_named(name).ok_or_else(|| {
        let names: Vec<&str> = ACTIONS.iter().map(|(name, _)| *name).collect();
        let hint = format!("use {}", names.join(", "));
        place.invalid(format!("`{name}` is not an action{}", suggestion(name, names)), hint)
    })
}

/// A comma-separated text, or a list. KAI refuses a file without actions by accident; here it has the default.
fn actions(place: &FieldReader<'_>) -> Result<Vec<Action>, Malformed> {
    let names: Vec<String> = match place.value() {
        Some(Value::Array(_)) => place.text_list()?,
        _ => place.text()?.unwrap_or_default().split(',').map(str::to_owned).collect(),
    };
    let names: Vec<&str> = names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Ok(Policy::default().actions);
    }
    names.into_iter().map(|name| action(place, name)).collect()
}

fn depth(place: &FieldReader<'_>) -> Result<Depth, Malformed> {
    let mut depth = Depth::default();
    for (name, entry) in place.entries()? {
        let jobs = entry.count()?.filter(|jobs| *jobs > 0);
        let jobs = jobs.ok_or_else(|| {
            entry.invalid("must be at least 1", "use a number from 1 up, or remove the line for all jobs")
        })?;
        let slot = match action(&entry, name)? {
            Action::Allocate => &mut depth.allocate,
            Action::Consolidate => &mut depth.consolidate,
            Action::Reclaim => &mut depth.reclaim,
            Action::Preempt => &mut depth.preempt,
            // It looks at every gang, whatever the order.
            Action::EvictStale => continue,
        };
        *slot = Some(jobs);
    }
    Ok(depth)
}

/// Lists written before v0.17 lack the generators, and with them silently lose three actions.
fn warn_of_idle_actions(policy: &Policy, warnings: &mut Vec<String>) {
    let idle: Vec<&str> = policy
        .actions
        .iter()
        .filter(|action| matches!(action, Action::Consolidate | Action::Reclaim | Action::Preempt))
        .map(|action| action_name(*action))
        .collect();
    if policy.generators.is_empty() && !idle.is_empty() {
        warnings.push(format!(
            "{} will never evict anything: the plugin list has neither sg-nodelocalgreedy nor sg-multinodegang",
            idle.join(", ")
        ));
    }
}

/// `; did you mean x?`, or nothing.
fn suggestion<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    closest_match(name, known).map_or_else(String::new, |other| format!("; did you mean {other}?"))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn check(file: &Value, want: &Expect) {
        let text = match Configured::read(file) {
            Ok(configured) => format!("{:?}\n{}", configured.settings.policy, configured.warnings.join("\n")),
            Err(wrong) => format!("{wrong}; {}", wrong.hint),
        };
        want.assert_eq(&text);
    }

    #[test]
    fn an_empty_file_is_the_default() {
        let default = format!("{:?}", Settings::default());
        for file in [Value::Null, json!({}), json!({"actions": ""})] {
            let configured = Configured::read(&file).unwrap();
            assert_eq!(format!("{:?}", configured.settings), default);
            assert_eq!(configured.warnings, Vec::<String>::new());
        }
    }

    #[test]
    fn actions_keep_their_order() {
        let actions = |value: Value| Configured::read(&json!({ "actions": value })).unwrap().settings.policy.actions;
        assert_eq!(actions(json!(" reclaim ,allocate,")), [Action::Reclaim, Action::Allocate]);
        assert_eq!(actions(json!(["preempt"])), [Action::Preempt]);
    }

    #[test]
    fn mistakes_are_refused() {
        check(
            &json!({"actions": "allocate, reclam"}),
            &expect![
                "actions: `reclam` is not an action; did you mean reclaim?; use allocate, consolidation, reclaim, preempt, stalegangeviction"
            ],
        );
        check(
            &json!({"queueDepthPerAction": {"allocate": 0}}),
            &expect![
                "queueDepthPerAction.allocate: must be at least 1; use a number from 1 up, or remove the line for all jobs"
            ],
        );
        check(
            &json!({"queueDepthPerAction": {"allocates": 3}}),
            &expect![
                "queueDepthPerAction.allocates: `allocates` is not an action; did you mean allocate?; use allocate, consolidation, reclaim, preempt, stalegangeviction"
            ],
        );
        check(
            &json!({"keepNodesWhole": "yes"}),
            &expect!["keepNodesWhole: expected true or false, found the text `yes`; write true or false here"],
        );
    }

    #[test]
    fn what_has_no_effect_is_listed() {
        let configured = Configured::read(&json!({
            "keepNodeWhole": true,
            "tiers": [{"plugins": [{"name": "proportion"}]}],
        }));
        expect![[r"
            keepNodeWhole is not a setting; did you mean keepNodesWhole?
            consolidation, reclaim, preempt will never evict anything: the plugin list has neither sg-nodelocalgreedy nor sg-multinodegang"]]
        .assert_eq(&configured.unwrap().warnings.join("\n"));
    }
}
