//! Writes a cluster as text, so that a failing random cluster can be read, cut down and kept as a case.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter, Write};

use kai_engine::units::{Ceiling, GPU, ONE};

use super::cluster::{
    Ask, Cluster, Flag, Gpu, Grace, Group, Job, LevelConstraint, Member, Node, Pod, PodRule, PodRuleKind, Queue, Set,
};

impl Display for Cluster {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        for (key, value) in &self.settings {
            writeln!(out, "policy {key}={value}")?;
        }
        if !self.levels.is_empty() {
            writeln!(out, "topology {}", self.levels.join(" "))?;
        }
        self.nodes.iter().try_for_each(|row| writeln!(out, "{}", node(row)))?;
        self.queues.iter().try_for_each(|row| writeln!(out, "{}", queue(row)))?;
        self.jobs.iter().try_for_each(|row| write!(out, "{}", job(row)))
    }
}

/// A line that grows word by word.
struct Line(String);

impl Line {
    fn pair(&mut self, key: &str, value: impl Display) {
        write!(self.0, " {key}={value}").expect("strings take everything");
    }

    fn pair_if(&mut self, wanted: bool, key: &str, value: impl Display) {
        if wanted {
            self.pair(key, value);
        }
    }

    fn option(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.pair(key, value);
        }
    }

    fn extra(&mut self, extra: &BTreeMap<String, i64>) {
        for (key, value) in extra {
            self.pair(key, value);
        }
    }

    fn bounds(&mut self, bounds: &LevelConstraint) {
        self.option("required", bounds.required.as_ref());
        self.option("preferred", bounds.preferred.as_ref());
    }
}

fn node(row: &Node) -> String {
    let mut line = Line(format!("node {}", row.name));
    line.pair("gpu", row.gpus);
    line.pair("cpu", format_args!("{}m", row.cpu_milli));
    line.pair("mem", row.memory);
    line.pair("pods", row.pods);
    line.option("gpumem", row.gpu_memory);
    line.extra(&row.extra);
    line.pair_if(row.taken > 0, "taken", row.taken);
    line.pair_if(row.leaving > 0, "leaving", row.leaving);
    for (level, domain) in &row.domains {
        line.pair(level, domain);
    }
    for (word, _) in Flag::WORDS.iter().filter(|(_, flag)| row.flags.contains(flag)) {
        line.0.push(' ');
        line.0.push_str(word);
    }
    line.0
}

fn queue(row: &Queue) -> String {
    let mut line = Line(format!("queue {}", row.name));
    line.option("parent", row.parent.as_ref());
    for (keys, ceilings) in
        [(["cpu-quota", "mem-quota", "quota"], row.quota), (["cpu-limit", "mem-limit", "limit"], row.limit)]
    {
        line.pair_if(ceilings[0] != Ceiling::Unlimited, keys[0], ceiling(ceilings[0], |milli| format!("{milli}m")));
        line.pair_if(ceilings[1] != Ceiling::Unlimited, keys[1], ceiling(ceilings[1], |bytes| bytes.to_string()));
        line.pair(keys[2], ceiling(ceilings[2], decimal));
    }
    line.pair("weight", decimal(row.weight));
    line.pair_if(row.usage > 0, "usage", decimal(row.usage));
    line.pair("priority", row.priority);
    line.pair("age", row.age);
    line.option("preempt-min", row.preempt_min);
    line.option("reclaim-min", row.reclaim_min);
    line.0
}

fn ceiling(ceiling: Ceiling, unit: fn(i64) -> String) -> String {
    match ceiling {
        Ceiling::Unlimited => "none".to_owned(),
        Ceiling::At(amount) => unit(amount),
    }
}

fn job(row: &Job) -> String {
    let mut line = Line(format!("job {}", row.name));
    line.pair("queue", &row.queue);
    line.pair("prio", row.priority);
    line.pair_if(row.preemptible != (row.priority < 100), "preemptible", row.preemptible);
    line.pair("age", row.age);
    line.option("started", row.started);
    line.option("stale", row.stale);
    line.option("evicted", row.evicted);
    line.pair_if(row.delay > 0, "delay", row.delay);
    match row.grace {
        Grace::Default => {}
        Grace::Never => line.pair("grace", "never"),
        Grace::Seconds(seconds) => line.pair("grace", seconds),
    }
    line.option("only", row.only.as_ref().map(|nodes| nodes.join(",")));
    if row.tolerates {
        line.0.push_str(" tolerates");
    }
    match row.root.members.as_slice() {
        [Member::Set(only)] if only.name.is_empty() => {
            line.bounds(&row.root.bounds);
            line.0.push_str(&set(only));
            line.0.push('\n');
        }
        members => {
            line.0.push_str(&group(&row.root));
            line.0.push('\n');
            for inner in members {
                line.0.push_str(&member(inner, 1));
            }
        }
    }
    line.0
}

fn member(row: &Member, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    match row {
        Member::Set(row) => format!("{indent}set {}{}\n", row.name, set(row)),
        Member::Group(row) => {
            let members: String = row.members.iter().map(|inner| member(inner, depth + 1)).collect();
            format!("{indent}group {}{}\n{members}", row.name, group(row))
        }
    }
}

fn group(row: &Group) -> String {
    let mut line = Line(String::new());
    line.option("need", row.need);
    line.bounds(&row.bounds);
    line.0
}

fn set(row: &Set) -> String {
    let mut line = Line(String::new());
    line.pair("min", row.min);
    line.bounds(&row.bounds);
    line.0.push_str(&ask(&row.ask));
    let ports: Vec<_> = row.ports.iter().map(u16::to_string).collect();
    line.pair_if(!ports.is_empty(), "ports", ports.join(","));
    line.pair_if(!row.tags.is_empty(), "labels", row.tags.join(","));
    for alike in row.pod_rules.chunk_by(|left, right| rule_word(left) == rule_word(right)) {
        line.pair(rule_word(&alike[0]), alike.iter().map(rule).collect::<Vec<_>>().join(","));
    }
    line.option("nominated", row.nominated.as_ref());
    line.pair_if(row.pods.is_empty(), "pods", 0);
    for alike in row.pods.chunk_by(|left, right| left.status == right.status) {
        line.pair(word(&alike[0]), states(alike));
    }
    line.0
}

fn rule_word(row: &PodRule) -> &'static str {
    match row.kind {
        PodRuleKind::Affinity => "affinity",
        PodRuleKind::AntiAffinity => "anti-affinity",
        PodRuleKind::Prefer(_) => "prefer",
        PodRuleKind::Spread(..) => "spread",
        PodRuleKind::SoftSpread(_) => "soft-spread",
    }
}

fn rule(row: &PodRule) -> String {
    let target = format!("{}@{}", row.tag, row.level);
    match row.kind {
        PodRuleKind::Affinity | PodRuleKind::AntiAffinity => target,
        PodRuleKind::Prefer(weight) => format!("{target}*{weight}"),
        PodRuleKind::Spread(skew, 0) | PodRuleKind::SoftSpread(skew) => format!("{target}*{skew}"),
        PodRuleKind::Spread(skew, domains) => format!("{target}*{skew}/{domains}"),
    }
}

fn word(pod: &Pod) -> &'static str {
    let known = Pod::PLACED.iter().chain(&Pod::COUNTED).find(|(_, status)| *status == pod.status);
    known.unwrap_or_else(|| panic!("{:?} has no word", pod.status)).0
}

/// Nodes of pods that have one, else how many pods there are.
fn states(alike: &[Pod]) -> String {
    let place = |(node, devices): &(String, Vec<u32>)| {
        let devices: Vec<_> = devices.iter().map(u32::to_string).collect();
        if devices.is_empty() { node.clone() } else { format!("{node}#{}", devices.join("+")) }
    };
    let places: Vec<_> = alike.iter().filter_map(|pod| pod.place.as_ref().map(place)).collect();
    if places.is_empty() { alike.len().to_string() } else { places.join(",") }
}

fn ask(row: &Ask) -> String {
    let mut line = Line(String::new());
    let times = |devices: u32, each: String| if devices == 1 { each } else { format!("{devices}x{each}") };
    match row.gpu {
        Gpu::None => {}
        Gpu::Whole(count) => line.pair("gpu", count),
        Gpu::Share { devices, portion } => line.pair("gpu", times(devices, decimal(portion))),
        Gpu::Memory { devices, mib } => line.pair("gpumem", times(devices, mib.to_string())),
    }
    line.pair_if(row.cpu_milli > 0, "cpu", format_args!("{}m", row.cpu_milli));
    line.pair_if(row.memory > 0, "mem", row.memory);
    line.extra(&row.extra);
    line.0
}

/// Millionths as people write them.
pub(crate) fn decimal(millionths: i64) -> String {
    debug_assert_eq!(GPU, ONE);
    let (whole, fraction) = (millionths / ONE, (millionths % ONE).abs());
    let sign = if millionths < 0 && whole == 0 { "-" } else { "" };
    let text = format!("{sign}{whole}.{fraction:06}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
