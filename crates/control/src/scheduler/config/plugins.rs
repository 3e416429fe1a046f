//! The plugin list: one row per plugin, saying what it switches on.
//!
//! A list replaces the default list as a whole. Tiers mean nothing beyond their order.

use std::collections::BTreeSet;

use kai_engine::policy::{
    DeviceOrder, Generator, MinRuntime, PlacementStrategies, Policy, Proportion, ReclaimMethod, Scores, Strategy,
};
use kai_engine::units::{ONE, Span};

use super::suggestion;
use crate::duration;
use crate::objects::Malformed;
use crate::objects::field_reader::FieldReader;
use crate::scheduler::settings::{NumaSettings, Settings, TaskOrder};

const MULTI_NODE_GANG: &str = "sg-multinodegang";
const NODE_LOCAL_GREEDY: &str = "sg-nodelocalgreedy";

/// The plugin that switches a generator of victim scenarios on.
pub(in crate::scheduler) fn generator_name(generator: Generator) -> &'static str {
    match generator {
        Generator::NodeLocalGreedy => NODE_LOCAL_GREEDY,
        Generator::MultiNodeGang => MULTI_NODE_GANG,
    }
}

type Switch = fn(&mut Settings, &mut Arguments<'_>);

/// Plugins by the names that users write.
const TABLE: [(&str, Switch); 25] = [
    ("dynamicresources", |_, _| ()),
    ("elastic", |settings, _| settings.policy.order_below_min_first = true),
    // Not a plugin of KAI, so it is on only where it is listed.
    ("gpumemoryfit", |settings, _| settings.policy.scores.gpu_memory_fit = true),
    ("gpupack", |settings, _| _ = settings.policy.device_order.get_or_insert(DeviceOrder::Pack)),
    ("gpusharingorder", |settings, _| settings.policy.scores.gpu_sharing = true),
    ("gpuspread", |settings, _| _ = settings.policy.device_order.get_or_insert(DeviceOrder::Spread)),
    ("kubeflow", |settings, _| settings.task_order.kubeflow = true),
    ("minruntime", min_runtime),
    ("nodeavailability", |settings, _| settings.policy.scores.availability = true),
    ("nodeplacement", node_placement),
    ("nominatednode", |settings, _| settings.policy.scores.nominated = true),
    ("numa", numa),
    ("podaffinity", |settings, _| settings.policy.scores.pod_affinity = true),
    ("predicates", |settings, _| settings.policy.filters = true),
    ("priority", |settings, _| settings.policy.order_by_priority = true),
    ("proportion", proportion),
    ("ray", |settings, _| settings.task_order.ray = true),
    ("reflectjoborder", |_, _| ()),
    ("resourcetype", |settings, _| settings.policy.scores.resource_type = true),
    (MULTI_NODE_GANG, |settings, _| settings.policy.generators.push(Generator::MultiNodeGang)),
    (NODE_LOCAL_GREEDY, |settings, _| settings.policy.generators.push(Generator::NodeLocalGreedy)),
    ("snapshot", |_, _| ()),
    // Sub-groups always have an order: without one, equal clusters would give unequal results.
    ("subgrouporder", |_, _| ()),
    ("taskorder", |settings, _| settings.task_order.label = true),
    ("topology", |settings, _| settings.policy.topology = true),
];

/// Replaces what plugins decide by what the list says; an absent list leaves the default.
pub(super) fn read(
    tiers: &FieldReader<'_>,
    settings: &mut Settings,
    warnings: &mut Vec<String>,
) -> Result<(), Malformed> {
    let mut plugins = Vec::new();
    for tier in tiers.items()? {
        plugins.extend(tier.field("plugins").items()?);
    }
    if plugins.is_empty() {
        return Ok(());
    }
    switch_all_off(settings);
    for plugin in plugins {
        let place = plugin.field("name");
        let Some(name) = place.non_empty_text()? else {
            return Err(place.invalid("the plugin has no name", "add `name`"));
        };
        for (key, _) in plugin.entries()? {
            if key.starts_with("disable") {
                warnings.push(format!("{key} of plugin {name} has no effect: leave the plugin out instead"));
            }
        }
        let Some((_, switch)) = TABLE.iter().find(|(known, _)| *known == name) else {
            let known = TABLE.iter().map(|(known, _)| *known);
            warnings.push(format!("{name} is not a plugin and is skipped{}", suggestion(&name, known)));
            continue;
        };
        let mut arguments = Arguments { plugin: &name, place: plugin.field("arguments"), warnings };
        switch(settings, &mut arguments);
    }
    Ok(())
}

fn switch_all_off(settings: &mut Settings) {
    settings.task_order = TaskOrder { kubeflow: false, ray: false, label: false };
    settings.numa = None;
    settings.policy = Policy {
        filters: false,
        proportion: None,
        order_by_priority: false,
        order_below_min_first: false,
        scores: Scores::NONE,
        device_order: None,
        topology: false,
        numa: false,
        min_runtime: None,
        generators: Vec::new(),
        ..settings.policy.clone()
    };
}

/// Text arguments of one plugin. A value that cannot be used has its default, with a warning.
struct Arguments<'a> {
    plugin: &'a str,
    place: FieldReader<'a>,
    warnings: &'a mut Vec<String>,
}

impl Arguments<'_> {
    /// The value of the first of these keys that is present.
    fn value<T>(&mut self, keys: &[&str], other: T, parse: impl Fn(&str) -> Option<T>) -> T {
        let Some(place) = keys.iter().map(|key| self.place.field(key)).find(FieldReader::exists) else { return other };
        let text = place.scalar_text().ok().flatten();
        if let Some(value) = text.as_ref().and_then(|text| parse(text.trim())) {
            return value;
        }
        let found = text.map_or_else(|| "anything but text".to_owned(), |text| format!("`{text}`"));
        self.warnings.push(format!(
            "{} of plugin {} cannot be {found} and keeps its default",
            place.path(),
            self.plugin
        ));
        other
    }
}

fn numa(settings: &mut Settings, arguments: &mut Arguments<'_>) {
    let list =
        |text: &str| Some(text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect());
    settings.policy.numa = true;
    settings.numa = Some(NumaSettings {
        ignored: arguments.value(&["ignoreList"], BTreeSet::new(), list),
        reconstruct_available: arguments.value(&["reconstructAvailable"], true, |text| text.parse().ok()),
    });
}

/// Far beyond any factor, and small enough to be multiplied.
const MILLIONTHS_MAX: i64 = ONE * ONE;

fn millionths(text: &str) -> Option<i64> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite())?;
    Some(((number * ONE as f64).round() as i64).clamp(-MILLIONTHS_MAX, MILLIONTHS_MAX))
}

/// Keys of the saturation multiplier: as KAI reads it, as it was meant, and as its documentation has it.
const SATURATION_KEYS: [&str; 3] =
    ["relcaimerSaturationMultiplier", "reclaimerSaturationMultiplier", "reclaimerUtilizationMultiplier"];

fn proportion(settings: &mut Settings, arguments: &mut Arguments<'_>) {
    settings.policy.proportion = Some(Proportion {
        k_value: arguments.value(&["kValue"], ONE, millionths).max(0),
        saturation_multiplier: arguments
            .value(&SATURATION_KEYS, ONE, |text| millionths(text).filter(|multiplier| *multiplier >= ONE)),
    });
}

fn node_placement(settings: &mut Settings, arguments: &mut Arguments<'_>) {
    let mut strategy = |key: &str| {
        arguments.value(&[key], Strategy::Pack, |text| match text {
            "binpack" => Some(Strategy::Pack),
            "spread" => Some(Strategy::Spread),
            _ => None,
        })
    };
    settings.policy.scores.placement = Some(PlacementStrategies { gpu: strategy("gpu"), cpu: strategy("cpu") });
}

fn min_runtime(settings: &mut Settings, arguments: &mut Arguments<'_>) {
    let span = |text: &str| duration::parse_long(text).filter(|span| span.0 >= 0);
    settings.policy.min_runtime = Some(MinRuntime {
        preempt_default: arguments.value(&["defaultPreemptMinRuntime"], Span(0), span),
        reclaim_default: arguments.value(&["defaultReclaimMinRuntime"], Span(0), span),
        reclaim_method: arguments.value(&["reclaimResolveMethod"], ReclaimMethod::LowestCommonAncestor, |text| {
            match text {
                "lca" => Some(ReclaimMethod::LowestCommonAncestor),
                "queue" => Some(ReclaimMethod::Queue),
                _ => None,
            }
        }),
    });
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::scheduler::config::Configured;

    fn read_plugins(plugins: &Value) -> Configured {
        Configured::read(&json!({"actions": "allocate", "tiers": [{"plugins": plugins}]})).unwrap()
    }

    /// KAI's default list, as its configuration prints it.
    const DEFAULT: [&str; 21] = [
        "predicates",
        "proportion",
        "priority",
        "elastic",
        "kubeflow",
        "ray",
        "nodeavailability",
        "gpusharingorder",
        "gpupack",
        "resourcetype",
        "podaffinity",
        "subgrouporder",
        "taskorder",
        "nominatednode",
        "dynamicresources",
        "nodeplacement",
        "minruntime",
        "topology",
        "snapshot",
        "sg-nodelocalgreedy",
        "sg-multinodegang",
    ];

    #[test]
    fn the_default_list_written_out_is_the_default() {
        let list: Vec<Value> = DEFAULT.iter().map(|name| json!({ "name": name })).collect();
        let configured = Configured::read(&json!({"tiers": [{"plugins": list}]})).unwrap();
        assert_eq!(format!("{:?}", configured.settings), format!("{:?}", Settings::default()));
        assert_eq!(configured.warnings, Vec::<String>::new());
    }

    #[test]
    fn what_is_not_listed_is_off() {
        let configured = read_plugins(&json!([{"name": "gpuspread"}]));
        let policy = configured.settings.policy;
        assert_eq!(policy.device_order, Some(DeviceOrder::Spread));
        assert!(policy.proportion.is_none() && !policy.filters && policy.generators.is_empty());
        assert!(!configured.settings.task_order.ray);
    }

    #[test]
    fn arguments_are_text_or_plain_values_and_the_misspelt_key_counts() {
        let policy = read_plugins(&json!([
            {"name": "proportion", "arguments": {"kValue": "0.5", "relcaimerSaturationMultiplier": 1.25}},
            {"name": "minruntime", "arguments": {"defaultPreemptMinRuntime": "2d", "reclaimResolveMethod": "queue"}},
            {"name": "nodeplacement", "arguments": {"gpu": "spread"}},
        ]))
        .settings
        .policy;
        let rules = policy.proportion.unwrap();
        assert_eq!((rules.k_value, rules.saturation_multiplier), (ONE / 2, ONE * 5 / 4));
        let runtime = policy.min_runtime.unwrap();
        assert_eq!((runtime.preempt_default, runtime.reclaim_method), (Span::seconds(172_800), ReclaimMethod::Queue));
        let placement = policy.scores.placement.unwrap();
        assert_eq!((placement.gpu, placement.cpu), (Strategy::Spread, Strategy::Pack));
    }

    #[test]
    fn useless_values_keep_the_default_and_are_listed() {
        let configured = read_plugins(&json!([
            {"name": "proportion", "arguments": {"kValue": "much", "reclaimerSaturationMultiplier": "0.5"}, "disableJobOrder": true},
            {"name": "minruntime", "arguments": {"defaultReclaimMinRuntime": "-5m"}},
            {"name": "proportoin"},
            {"name": "numa"},
        ]));
        assert_eq!(configured.settings.policy.proportion.unwrap().k_value, ONE);
        expect_test::expect![[r"
            disableJobOrder of plugin proportion has no effect: leave the plugin out instead
            tiers[0].plugins[0].arguments.kValue of plugin proportion cannot be `much` and keeps its default
            tiers[0].plugins[0].arguments.reclaimerSaturationMultiplier of plugin proportion cannot be `0.5` and keeps its default
            tiers[0].plugins[1].arguments.defaultReclaimMinRuntime of plugin minruntime cannot be `-5m` and keeps its default
            proportoin is not a plugin and is skipped; did you mean proportion?"]]
        .assert_eq(&configured.warnings.join("\n"));
    }
}
