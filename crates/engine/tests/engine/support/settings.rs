//! Scheduler settings of a test: `policy` lines applied to the defaults.

use std::str::FromStr;

use kai_engine::Policy;
use kai_engine::policy::{
    Action, DeviceOrder, Generator, MinRuntime, PlacementStrategies, ReclaimMethod, Repairs, Strategy,
};
use kai_engine::units::{ONE, Span};

const ACTIONS: [(&str, Action); 5] = [
    ("allocate", Action::Allocate),
    ("consolidate", Action::Consolidate),
    ("reclaim", Action::Reclaim),
    ("preempt", Action::Preempt),
    ("stale", Action::EvictStale),
];

/// The word for an action.
pub(crate) fn action_word(action: Action) -> &'static str {
    ACTIONS.iter().find(|(_, known)| *known == action).expect("every action has a word").0
}

/// The policy that the settings describe.
pub(crate) fn policy(settings: &[(String, String)]) -> Policy {
    let mut policy = Policy::default();
    for (key, value) in settings {
        apply(&mut policy, key, value);
    }
    policy
}

fn apply(policy: &mut Policy, key: &str, value: &str) {
    match key {
        "actions" => policy.actions = value.split(',').map(|word| chosen(&ACTIONS, word)).collect(),
        "gpu" => placement(policy).gpu = chosen(&STRATEGIES, value),
        "cpu" => placement(policy).cpu = chosen(&STRATEGIES, value),
        "devices" => {
            let orders = [("pack", Some(DeviceOrder::Pack)), ("spread", Some(DeviceOrder::Spread)), ("none", None)];
            policy.device_order = chosen(&orders, value);
        }
        "generators" => {
            let words = [("local", Generator::NodeLocalGreedy), ("multi", Generator::MultiNodeGang)];
            let named = value.split(',').filter(|word| *word != "none");
            policy.generators = named.map(|word| chosen(&words, word)).collect();
        }
        "moves" => policy.consolidation_moves_max = limit(value),
        "skip-alike" => policy.skip_no_easier = switch(value),
        "consolidating-reclaim" => policy.consolidating_reclaim = switch(value),
        "keep-nodes-whole" => policy.keep_nodes_whole = switch(value),
        "grace" => policy.staleness_grace = limit(value).map(Span::seconds),
        "preempt-min" => min_runtime(policy).preempt_default = Span::seconds(number(value)),
        "reclaim-min" => min_runtime(policy).reclaim_default = Span::seconds(number(value)),
        "reclaim-method" => {
            let methods = [("lca", ReclaimMethod::LowestCommonAncestor), ("queue", ReclaimMethod::Queue)];
            min_runtime(policy).reclaim_method = chosen(&methods, value);
        }
        "evictions" => policy.disruption.allowed = switch(value),
        "moves-left" => policy.disruption.moves_left = limit(value),
        "eviction-cooldown" => policy.disruption.eviction_cooldown = Span::seconds(number(value)),
        "move-cooldown" => policy.disruption.move_cooldown = Span::seconds(number(value)),
        "lost-work-per-gpu" => policy.disruption.lost_work_per_gpu_max = limit(value).map(Span::seconds),
        "least-work-first" => policy.disruption.least_work_first = switch(value),
        "multiplier" => proportion(policy).saturation_multiplier = number::<i64>(value) * ONE,
        "k" => proportion(policy).k_value = number::<i64>(value) * ONE,
        "steps" => policy.budget.job_max = limit(value),
        "depth" => policy.depth.allocate = limit(value),
        "repairs" => policy.repairs = chosen(&[("all", Repairs::ALL), ("none", Repairs::NONE)], value),
        _ => panic!("there is no setting {key}"),
    }
}

const STRATEGIES: [(&str, Strategy); 2] = [("pack", Strategy::Pack), ("spread", Strategy::Spread)];

fn placement(policy: &mut Policy) -> &mut PlacementStrategies {
    policy.scores.placement.as_mut().expect("on by default")
}

fn min_runtime(policy: &mut Policy) -> &mut MinRuntime {
    policy.min_runtime.as_mut().expect("on by default")
}

fn proportion(policy: &mut Policy) -> &mut kai_engine::policy::Proportion {
    policy.proportion.as_mut().expect("on by default")
}

fn chosen<T: Copy>(words: &[(&str, T)], word: &str) -> T {
    words.iter().find(|(known, _)| *known == word).unwrap_or_else(|| panic!("{word} is not understood")).1
}

fn switch(word: &str) -> bool {
    chosen(&[("on", true), ("off", false)], word)
}

fn limit<T: FromStr>(text: &str) -> Option<T> {
    (text != "none").then(|| number(text))
}

fn number<T: FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number here"))
}
