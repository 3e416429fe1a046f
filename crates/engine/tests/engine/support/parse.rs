//! Reads a cluster from text. A word that is not understood is a mistake in the test, so it panics with the line.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::FromStr;

use kai_engine::units::{Ceiling, GPU, ONE};

use super::cluster::{
    Ask, Cluster, Flag, Gpu, Grace, Group, Job, LevelConstraint, Member, Node, Pod, PodRule, PodRuleKind, Queue, Set,
};

/// Reads a cluster.
pub(crate) fn parse(text: &str) -> Cluster {
    let mut cluster = Cluster::default();
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with('#'));
    let mut lines = lines.map(Words::of).peekable();
    while let Some(mut words) = lines.next() {
        match words.kind.as_str() {
            "policy" => cluster.settings.append(&mut words.pairs),
            "topology" => cluster.levels = std::mem::take(&mut words.bare),
            "node" => cluster.nodes.push(node(&mut words, &cluster.levels)),
            "queue" => cluster.queues.push(queue(&mut words, cluster.queues.len())),
            "job" => cluster.jobs.push(job(&mut words, &mut lines, cluster.jobs.len())),
            other => panic!("{other} is no part of a cluster: {}", words.line),
        }
        words.finish();
    }
    cluster
}

/// What is written earlier is older, unless it says its age.
const AGE_OF_FIRST: usize = 1000;

fn node(words: &mut Words, levels: &[String]) -> Node {
    let flags = Flag::WORDS.iter().filter(|(word, _)| words.flag(word)).map(|(_, flag)| *flag).collect();
    let domains = levels.iter().filter_map(|level| words.take(level).map(|domain| (level.clone(), domain))).collect();
    Node {
        cpu_milli: words.take("cpu").map_or(64_000, |text| cpu(&text)),
        memory: words.take("mem").map_or(256 << 30, |text| bytes(&text)),
        gpus: words.number("gpu").unwrap_or(0),
        pods: words.number("pods").unwrap_or(110),
        gpu_memory: words.number("gpumem"),
        extra: words.extra(),
        taken: words.number("taken").unwrap_or(0),
        leaving: words.number("leaving").unwrap_or(0),
        domains,
        flags,
        name: std::mem::take(&mut words.name),
    }
}

fn queue(words: &mut Words, index: usize) -> Queue {
    let unlimited = Ceiling::Unlimited;
    Queue {
        parent: words.take("parent"),
        priority: words.number("priority").unwrap_or(100),
        age: words.number("age").unwrap_or((AGE_OF_FIRST - index) as i64),
        quota: [
            words.ceiling("cpu-quota", cpu).unwrap_or(unlimited),
            words.ceiling("mem-quota", bytes).unwrap_or(unlimited),
            words.ceiling("quota", gpus).unwrap_or(Ceiling::At(0)),
        ],
        limit: [
            words.ceiling("cpu-limit", cpu).unwrap_or(unlimited),
            words.ceiling("mem-limit", bytes).unwrap_or(unlimited),
            words.ceiling("limit", gpus).unwrap_or(unlimited),
        ],
        weight: words.take("weight").map_or(ONE, |text| millionths(&text)),
        usage: words.take("usage").map_or(0, |text| millionths(&text)),
        preempt_min: words.number("preempt-min"),
        reclaim_min: words.number("reclaim-min"),
        name: std::mem::take(&mut words.name),
    }
}

fn job(words: &mut Words, lines: &mut Peekable<impl Iterator<Item = Words>>, index: usize) -> Job {
    let priority = words.number("prio").unwrap_or(50);
    let list = |text: String| text.split(',').map(str::to_owned).collect();
    Job {
        name: words.name.clone(),
        queue: words.take("queue").unwrap_or_else(|| panic!("a job has a queue: {}", words.line)),
        priority,
        preemptible: words.number("preemptible").unwrap_or(priority < 100),
        age: words.number("age").unwrap_or((AGE_OF_FIRST - index) as i64),
        started: words.number("started"),
        stale: words.number("stale"),
        evicted: words.number("evicted"),
        delay: words.number("delay").unwrap_or(0),
        grace: match words.take("grace").as_deref() {
            None => Grace::Default,
            Some("never") => Grace::Never,
            Some(text) => Grace::Seconds(number(text)),
        },
        only: words.take("only").map(list),
        tolerates: words.flag("tolerates"),
        root: root(words, lines),
    }
}

/// A job whose line is followed by deeper ones consists of those; otherwise of the pods on its line.
fn root(words: &mut Words, lines: &mut Peekable<impl Iterator<Item = Words>>) -> Group {
    if lines.peek().is_some_and(|next| next.indent > words.indent) {
        let name = std::mem::take(&mut words.name);
        return Group { name: String::new(), ..group(words, name, lines) };
    }
    let bounds = bounds(words);
    let set = Set { name: String::new(), ..set(words) };
    Group { bounds, members: vec![Member::Set(Set { bounds: LevelConstraint::default(), ..set })], ..Group::default() }
}

fn group(words: &mut Words, name: String, lines: &mut Peekable<impl Iterator<Item = Words>>) -> Group {
    let mut group = Group { name, need: words.number("need"), bounds: bounds(words), members: Vec::new() };
    while let Some(mut next) = lines.next_if(|next| next.indent > words.indent) {
        let name = next.name.clone();
        group.members.push(match next.kind.as_str() {
            "group" => Member::Group(self::group(&mut next, name, lines)),
            "set" => Member::Set(set(&mut next)),
            other => panic!("{other} is no part of a job: {}", next.line),
        });
        next.finish();
    }
    group
}

fn set(words: &mut Words) -> Set {
    let mut pods = Vec::new();
    words.pairs.retain(|(key, value)| {
        if let Some((_, status)) = Pod::PLACED.iter().find(|(word, _)| word == key) {
            pods.extend(value.split(',').map(|text| Pod { status: *status, place: Some(place(text)) }));
            return false;
        }
        if let Some((_, status)) = Pod::COUNTED.iter().find(|(word, _)| word == key) {
            pods.extend((0..number::<usize>(value)).map(|_| Pod { status: *status, place: None }));
            return false;
        }
        true
    });
    let count = words.number("pods").unwrap_or(pods.len().max(1));
    assert!(pods.len() <= count, "more pods than there are: {}", words.line);
    pods.resize(count, Pod::PENDING);
    Set {
        name: words.name.clone(),
        min: words.number("min").unwrap_or(count as u32),
        bounds: bounds(words),
        ask: ask(words),
        ports: words.take("ports").map_or(Vec::new(), |text| text.split(',').map(number).collect()),
        tags: words.take("labels").map_or(Vec::new(), |text| text.split(',').map(str::to_owned).collect()),
        pod_rules: pod_rules(words),
        nominated: words.take("nominated"),
        pods,
    }
}

fn pod_rules(words: &mut Words) -> Vec<PodRule> {
    let mut pod_rules = Vec::new();
    for word in ["affinity", "anti-affinity", "prefer", "spread", "soft-spread"] {
        let text = words.take(word).unwrap_or_default();
        for text in text.split(',').filter(|text| !text.is_empty()) {
            let (tag, rest) = text.split_once('@').unwrap_or_else(|| panic!("{text} has no level: {}", words.line));
            let (level, amount) = rest.split_once('*').unwrap_or((rest, "1"));
            let (skew, domains) = amount.split_once('/').unwrap_or((amount, "0"));
            let kind = match word {
                "affinity" => PodRuleKind::Affinity,
                "anti-affinity" => PodRuleKind::AntiAffinity,
                "prefer" => PodRuleKind::Prefer(number(amount)),
                "spread" => PodRuleKind::Spread(number(skew), number(domains)),
                _ => PodRuleKind::SoftSpread(number(skew)),
            };
            pod_rules.push(PodRule { kind, tag: tag.to_owned(), level: level.to_owned() });
        }
    }
    pod_rules
}

fn ask(words: &mut Words) -> Ask {
    let times = |text: &str| -> (u32, String) {
        text.split_once('x').map_or((1, text.to_owned()), |(devices, each)| (number(devices), each.to_owned()))
    };
    let mut gpu = Gpu::None;
    if let Some(text) = words.take("gpu") {
        let (devices, each) = times(&text);
        let portion = millionths(&each);
        let shares = text.contains(['x', '.']);
        gpu = if shares { Gpu::Share { devices, portion } } else { Gpu::Whole(portion / GPU) };
    }
    if let Some(text) = words.take("gpumem") {
        let (devices, each) = times(&text);
        gpu = Gpu::Memory { devices, mib: number(&each) };
    }
    Ask {
        cpu_milli: words.take("cpu").map_or(0, |text| cpu(&text)),
        memory: words.take("mem").map_or(0, |text| bytes(&text)),
        gpu,
        extra: words.extra(),
    }
}

fn bounds(words: &mut Words) -> LevelConstraint {
    LevelConstraint { required: words.take("required"), preferred: words.take("preferred") }
}

/// `a` or, with the numbers of shared GPUs, `a#0+1`.
fn place(text: &str) -> (String, Vec<u32>) {
    match text.split_once('#') {
        None => (text.to_owned(), Vec::new()),
        Some((node, devices)) => (node.to_owned(), devices.split('+').map(number).collect()),
    }
}

/// One line: a kind, a name, then words with and without a value.
struct Words {
    line: String,
    indent: usize,
    kind: String,
    name: String,
    bare: Vec<String>,
    pairs: Vec<(String, String)>,
}

impl Words {
    fn of(line: &str) -> Self {
        let mut words = line.split_whitespace().map(str::to_owned).peekable();
        let kind = words.next().expect("blank lines are skipped");
        let name = words.next_if(|word| !word.contains('=') && kind != "topology").unwrap_or_default();
        let mut bare = Vec::new();
        let mut pairs = Vec::new();
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => pairs.push((key.to_owned(), value.to_owned())),
                None => bare.push(word),
            }
        }
        Self { line: line.to_owned(), indent: line.len() - line.trim_start().len(), kind, name, bare, pairs }
    }

    fn take(&mut self, key: &str) -> Option<String> {
        let index = self.pairs.iter().position(|(known, _)| known == key)?;
        Some(self.pairs.remove(index).1)
    }

    fn number<T: FromStr>(&mut self, key: &str) -> Option<T> {
        self.take(key).map(|text| number(&text))
    }

    fn ceiling(&mut self, key: &str, unit: fn(&str) -> i64) -> Option<Ceiling> {
        self.take(key).map(|text| if text == "none" { Ceiling::Unlimited } else { Ceiling::At(unit(&text)) })
    }

    fn flag(&mut self, word: &str) -> bool {
        let index = self.bare.iter().position(|known| known == word);
        index.map(|index| self.bare.remove(index)).is_some()
    }

    /// MIG profiles in instances, other resources in thousandths.
    fn extra(&mut self) -> BTreeMap<String, i64> {
        let is_extra = |key: &str| key.starts_with("mig-") || key.starts_with('+');
        let (extra, rest) = std::mem::take(&mut self.pairs).into_iter().partition(|(key, _)| is_extra(key));
        self.pairs = rest;
        let extra: Vec<(String, String)> = extra;
        extra.into_iter().map(|(key, value)| (key, number(&value))).collect()
    }

    fn finish(self) {
        let left: Vec<_> = self.pairs.iter().map(|(key, _)| key).chain(&self.bare).collect();
        assert!(left.is_empty(), "{left:?} is not understood: {}", self.line);
    }
}

fn number<T: FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number here"))
}

/// Decimals, exactly.
fn millionths(text: &str) -> i64 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    number::<i64>(whole) * 1_000_000 + number::<i64>(&format!("{fraction:0<6}"))
}

fn gpus(text: &str) -> i64 {
    millionths(text)
}

fn cpu(text: &str) -> i64 {
    text.strip_suffix('m').map_or_else(|| millionths(text) / 1000, number)
}

fn bytes(text: &str) -> i64 {
    match text.strip_suffix("Gi") {
        Some(gibibytes) => number::<i64>(gibibytes) << 30,
        None => number(text),
    }
}
