//! What described pods ask of each other, as matchers and inter-pod rules.

use std::collections::BTreeMap;

use kai_engine::builder::Builder;
use kai_engine::ids::{PodMatcherId, TopologyKeyId};
use kai_engine::snapshot::{InterPodRules, SpreadConstraint};

use super::build::{Names, sets};
use super::cluster::{Cluster, Job, PodRule, PodRuleKind, Set};

/// Who is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    /// Pods with all these tags.
    Are(Vec<String>),
    /// Pods with this rule.
    PodRule(PodRule),
}

/// The domain of each node, as text.
type Domains = Vec<Option<String>>;

/// Topology keys and matchers made so far.
#[derive(Default)]
pub(super) struct Neighbours {
    topology_keys: BTreeMap<Domains, TopologyKeyId>,
    matchers: BTreeMap<(Who, Domains), PodMatcherId>,
    all: Option<Vec<(Who, Domains)>>,
}

impl Neighbours {
    /// The inter-pod rules and matchers of the pods of a set.
    pub(super) fn rows(
        &mut self,
        cluster: &Cluster,
        job: &Job,
        set: &Set,
        builder: &mut Builder,
        names: &mut Names,
    ) -> (Option<u32>, Option<u32>) {
        let everyone = self.all.take().unwrap_or_else(|| matchers(cluster, &names.nodes));
        let is = |tags: &[String]| tags.iter().all(|tag| set.tags.contains(tag));
        let part_of = everyone.iter().filter(|(who, _)| match who {
            Who::Are(tags) => is(tags),
            Who::PodRule(rule) => set.pod_rules.contains(rule),
        });
        let list = part_of.map(|(who, domains)| self.matcher(who, domains, builder, names)).collect();
        let mut inter_pod = InterPodRules::default();
        let near = near_tags(set);
        inter_pod.matches_own_affinity = is(&near);
        for rule in &set.pod_rules {
            let who = if rule.kind == PodRuleKind::Affinity { near.clone() } else { vec![rule.tag.clone()] };
            let domains = rule_domains(cluster, &names.nodes, job, set, rule);
            let matcher = self.matcher(&Who::Are(who), &domains, builder, names);
            let spread = |skew_max, domains_min| SpreadConstraint {
                matcher,
                skew_max,
                domains_min,
                counts_itself: is(std::slice::from_ref(&rule.tag)),
            };
            match rule.kind {
                PodRuleKind::Affinity => inter_pod.affinity.push(matcher),
                PodRuleKind::AntiAffinity => inter_pod.anti_affinity.push(matcher),
                PodRuleKind::Prefer(weight) => inter_pod.preferences.push((matcher, weight)),
                PodRuleKind::Spread(skew, domains) => inter_pod.spread_required.push(spread(skew, domains)),
                PodRuleKind::SoftSpread(skew) => inter_pod.spread_preferred.push(spread(skew, 0)),
            }
        }
        for (who, domains) in &everyone {
            let Who::PodRule(rule) = who else { continue };
            if !is(std::slice::from_ref(&rule.tag)) {
                continue;
            }
            let matcher = self.matcher(who, domains, builder, names);
            match rule.kind {
                PodRuleKind::AntiAffinity => inter_pod.existing_anti_affinity.push(matcher),
                PodRuleKind::Prefer(weight) => inter_pod.preferences.push((matcher, weight)),
                PodRuleKind::Affinity | PodRuleKind::Spread(..) | PodRuleKind::SoftSpread(_) => {}
            }
        }
        self.all = Some(everyone);
        (builder.inter_pod(inter_pod), builder.matcher_list(list))
    }

    fn matcher(&mut self, who: &Who, domains: &Domains, builder: &mut Builder, names: &mut Names) -> PodMatcherId {
        let key = (who.clone(), domains.clone());
        if let Some(id) = self.matchers.get(&key) {
            return *id;
        }
        let topology_key = *self.topology_keys.entry(domains.clone()).or_insert_with(|| {
            let mut known: Vec<&String> = domains.iter().flatten().collect();
            known.sort();
            known.dedup();
            let number = |domain: &String| known.iter().position(|other| *other == domain).map(|at| at as u32);
            builder.topology_key(domains.iter().map(|domain| domain.as_ref().and_then(number)).collect())
        });
        let id = builder.matcher(topology_key);
        names.matchers.push(match who {
            Who::Are(tags) => tags.join("+"),
            Who::PodRule(rule) => format!("pods with anti-affinity to {}", rule.tag),
        });
        self.matchers.insert(key, id);
        id
    }
}

/// Every matcher that some rule speaks of.
fn matchers(cluster: &Cluster, nodes: &[String]) -> Vec<(Who, Domains)> {
    let mut found = Vec::new();
    for job in &cluster.jobs {
        for set in sets(&job.root) {
            for rule in &set.pod_rules {
                let domains = rule_domains(cluster, nodes, job, set, rule);
                let who = if rule.kind == PodRuleKind::Affinity { near_tags(set) } else { vec![rule.tag.clone()] };
                found.push((Who::Are(who), domains.clone()));
                if matches!(rule.kind, PodRuleKind::AntiAffinity | PodRuleKind::Prefer(_)) {
                    found.push((Who::PodRule(rule.clone()), domains));
                }
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

fn near_tags(set: &Set) -> Vec<String> {
    let mut tags: Vec<_> =
        set.pod_rules.iter().filter(|rule| rule.kind == PodRuleKind::Affinity).map(|rule| rule.tag.clone()).collect();
    tags.sort();
    tags.dedup();
    tags
}

/// Pods are spread over nodes that the job may use and that are in a domain of each level asked for.
pub(crate) fn rule_domains(cluster: &Cluster, nodes: &[String], job: &Job, set: &Set, rule: &PodRule) -> Domains {
    let domain = |node: &String, level: &str| {
        if level == "node" { Some(node.clone()) } else { cluster.node(node).domains.get(level).cloned() }
    };
    let spreads = |other: &PodRule| std::mem::discriminant(&other.kind) == std::mem::discriminant(&rule.kind);
    let counts = |node: &String| match rule.kind {
        PodRuleKind::Spread(..) | PodRuleKind::SoftSpread(_) => {
            job.only.as_ref().is_none_or(|only| only.contains(node))
                && set.pod_rules.iter().filter(|other| spreads(other)).all(|other| domain(node, &other.level).is_some())
        }
        PodRuleKind::Affinity | PodRuleKind::AntiAffinity | PodRuleKind::Prefer(_) => true,
    };
    nodes.iter().map(|node| domain(node, &rule.level).filter(|_| counts(node))).collect()
}
