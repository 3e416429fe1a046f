//! Recorded scheduler configuration -> engine policy.
//!
//! Exactly the listed plugins are on; a plugin that is not listed switches its part of the policy off.

use std::collections::BTreeMap;

use kai_engine::policy::{
    Action, Depth, DeviceOrder, Generator, MinRuntime, PlacementStrategies, Policy, Proportion, ReclaimMethod, Repairs,
    Scores, Strategy,
};
use kai_engine::units::{ONE, Span};

use super::case::Case;
use super::numbers::millionths;
use crate::verdict::Fault;

pub(super) fn policy(case: &Case, repairs: Repairs) -> Result<Policy, Fault> {
    let config = &case.config;
    let on = |name: &str| case.plugin(name).is_some();
    let arguments = |name: &str| case.plugin(name).map(|plugin| &plugin.arguments);
    Ok(Policy {
        actions: config.actions.iter().map(|name| action(name)).collect::<Result<_, _>>()?,
        filters: on("predicates"),
        proportion: arguments("proportion").map(proportion),
        order_by_priority: on("priority"),
        order_below_min_first: on("elastic"),
        scores: scores(case),
        device_order: if on("gpupack") {
            Some(DeviceOrder::Pack)
        } else {
            on("gpuspread").then_some(DeviceOrder::Spread)
        },
        topology: on("topology"),
        // Not listed in a case: it is on exactly where zones are known.
        numa: case.cluster.nodes.iter().any(|node| node.numa.is_some()),
        min_runtime: arguments("minruntime").map(min_runtime).transpose()?,
        generators: config.plugins.iter().filter_map(|plugin| generator(&plugin.name)).collect(),
        depth: depth(&config.queue_depth_per_action)?,
        consolidation_moves_max: u32::try_from(config.max_consolidation_preemptees).ok(),
        consolidating_reclaim: config.allow_consolidating_reclaim,
        skip_no_easier: config.use_scheduling_signatures,
        staleness_grace: grace(config.staleness_grace_seconds),
        repairs,
        ..Policy::default()
    })
}

fn scores(case: &Case) -> Scores {
    let on = |name: &str| case.plugin(name).is_some();
    let mut scores = Scores::NONE;
    scores.placement = case.plugin("nodeplacement").map(|plugin| PlacementStrategies {
        gpu: strategy(plugin.arguments.get("gpu")),
        cpu: strategy(plugin.arguments.get("cpu")),
    });
    scores.resource_type = on("resourcetype");
    scores.availability = on("nodeavailability");
    scores.gpu_sharing = on("gpusharingorder");
    scores.pod_affinity = on("podaffinity");
    scores.nominated = on("nominatednode");
    scores
}

/// How long a gang may lack its minimum; negative is for ever.
pub(super) fn grace(seconds: i64) -> Option<Span> {
    (seconds >= 0).then(|| Span::seconds(seconds))
}

fn action(name: &str) -> Result<Action, Fault> {
    Ok(match name {
        "allocate" => Action::Allocate,
        "consolidation" => Action::Consolidate,
        "reclaim" => Action::Reclaim,
        "preempt" => Action::Preempt,
        "stalegangeviction" => Action::EvictStale,
        _ => return Err(Fault(format!("action {name} is not known"))),
    })
}

fn generator(plugin: &str) -> Option<Generator> {
    match plugin {
        "sg-nodelocalgreedy" => Some(Generator::NodeLocalGreedy),
        "sg-multinodegang" => Some(Generator::MultiNodeGang),
        _ => None,
    }
}

fn proportion(arguments: &BTreeMap<String, String>) -> Proportion {
    let number = |key: &str| arguments.get(key).and_then(|text| text.parse::<f64>().ok()).map(millionths);
    Proportion {
        k_value: number("kValue").map_or(ONE, |value| value.max(0)),
        // The misspelling is the key's name.
        saturation_multiplier: number("relcaimerSaturationMultiplier").filter(|value| *value >= ONE).unwrap_or(ONE),
    }
}

/// Anything but `spread` packs.
fn strategy(value: Option<&String>) -> Strategy {
    if value.is_some_and(|value| value == "spread") { Strategy::Spread } else { Strategy::Pack }
}

fn min_runtime(arguments: &BTreeMap<String, String>) -> Result<MinRuntime, Fault> {
    let span = |key: &str| arguments.get(key).map_or(Ok(Span(0)), |text| duration(text));
    Ok(MinRuntime {
        preempt_default: span("defaultPreemptMinRuntime")?,
        reclaim_default: span("defaultReclaimMinRuntime")?,
        reclaim_method: match arguments.get("reclaimResolveMethod").map(String::as_str) {
            Some("queue") => ReclaimMethod::Queue,
            _ => ReclaimMethod::LowestCommonAncestor,
        },
    })
}

/// `1h30m`, `90s`, `2d`: numbers with units, added up.
fn duration(text: &str) -> Result<Span, Fault> {
    let fault = || Fault(format!("duration {text} cannot be read"));
    let mut rest = text;
    let mut total = 0;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').ok_or_else(fault)?;
        let amount: f64 = rest[..digits].parse().map_err(|_| fault())?;
        rest = &rest[digits..];
        let units = [("ms", 0.001), ("w", 604_800.0), ("d", 86_400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];
        let (unit, seconds) = units.into_iter().find(|(unit, _)| rest.starts_with(unit)).ok_or_else(fault)?;
        total += millionths(amount * seconds);
        rest = &rest[unit.len()..];
    }
    Ok(Span(total))
}

fn depth(by_action: &BTreeMap<String, u32>) -> Result<Depth, Fault> {
    let mut depth = Depth::default();
    for (name, jobs) in by_action {
        let slot = match action(name)? {
            Action::Allocate => &mut depth.allocate,
            Action::Consolidate => &mut depth.consolidate,
            Action::Reclaim => &mut depth.reclaim,
            Action::Preempt => &mut depth.preempt,
            Action::EvictStale => continue,
        };
        *slot = Some(*jobs);
    }
    Ok(depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_add_up() {
        assert_eq!(duration("1h30m").ok(), Some(Span::seconds(5400)));
        assert_eq!(duration("90s").ok(), Some(Span::seconds(90)));
        assert_eq!(duration("1.5s").ok(), Some(Span(1_500_000)));
        assert!(duration("soon").is_err() && duration("5").is_err());
    }
}
