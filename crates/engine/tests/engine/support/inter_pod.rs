//! What described pods ask of each other, as matchers and inter_pod.

use std::collections::BTreeMap;

use kai_engine::builder::Builder;
use kai_engine::ids::{PodMatcherId, TopologyKeyId};
use kai_engine::snapshot::{InterPodRules, SpreadConstraint};

use super::build::{Names, sets};
use super::cluster::{Cluster, Job, Set, Wish, WishKind};

/// Who is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    /// Pods with all these tags.
    Are(Vec<String>),
    /// Pods with this wish.
    Wish(Wish),
}

/// The domain of each node, as text.
type Domains = Vec<Option<String>>;

/// Areas and matchers made so far.
#[derive(Default)]
pub(super) struct Neighbours {
    topology_keys: BTreeMap<Domains, TopologyKeyId>,
    matchers: BTreeMap<(Who, Domains), PodMatcherId>,
    all: Option<Vec<(Who, Domains)>>,
}

impl Neighbours {
    /// The inter_pod and matchers of the pods of a set.
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
            Who::Wish(wish) => set.wishes.contains(wish),
        });
        let list = part_of.map(|(who, domains)| self.matcher(who, domains, builder, names)).collect();
        let mut inter_pod = InterPodRules::default();
        let near = near_tags(set);
        inter_pod.matches_own_affinity = is(&near);
        for wish in &set.wishes {
            let who = if wish.kind == WishKind::Near { near.clone() } else { vec![wish.tag.clone()] };
            let domains = wish_domains(cluster, &names.nodes, job, set, wish);
            let matcher = self.matcher(&Who::Are(who), &domains, builder, names);
            let spread = |skew_max, domains_min| SpreadConstraint {
                matcher,
                skew_max,
                domains_min,
                counts_itself: is(std::slice::from_ref(&wish.tag)),
            };
            match wish.kind {
                WishKind::Near => inter_pod.affinity.push(matcher),
                WishKind::Apart => inter_pod.anti_affinity.push(matcher),
                WishKind::Likes(weight) => inter_pod.preferences.push((matcher, weight)),
                WishKind::Even(skew, domains) => inter_pod.spread_required.push(spread(skew, domains)),
                WishKind::RatherEven(skew) => inter_pod.spread_preferred.push(spread(skew, 0)),
            }
        }
        for (who, domains) in &everyone {
            let Who::Wish(wish) = who else { continue };
            if !is(std::slice::from_ref(&wish.tag)) {
                continue;
            }
            let matcher = self.matcher(who, domains, builder, names);
            match wish.kind {
                WishKind::Apart => inter_pod.existing_anti_affinity.push(matcher),
                WishKind::Likes(weight) => inter_pod.preferences.push((matcher, weight)),
                WishKind::Near | WishKind::Even(..) | WishKind::RatherEven(_) => {}
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
            Who::Wish(wish) => format!("those apart from {}", wish.tag),
        });
        self.matchers.insert(key, id);
        id
    }
}

/// Every matcher that some wish speaks of.
fn matchers(cluster: &Cluster, nodes: &[String]) -> Vec<(Who, Domains)> {
    let mut found = Vec::new();
    for job in &cluster.jobs {
        for set in sets(&job.root) {
            for wish in &set.wishes {
                let domains = wish_domains(cluster, nodes, job, set, wish);
                let who = if wish.kind == WishKind::Near { near_tags(set) } else { vec![wish.tag.clone()] };
                found.push((Who::Are(who), domains.clone()));
                if matches!(wish.kind, WishKind::Apart | WishKind::Likes(_)) {
                    found.push((Who::Wish(wish.clone()), domains));
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
        set.wishes.iter().filter(|wish| wish.kind == WishKind::Near).map(|wish| wish.tag.clone()).collect();
    tags.sort();
    tags.dedup();
    tags
}

/// Pods are spread over nodes that the job may use and that are in a domain of each level asked for.
pub(crate) fn wish_domains(cluster: &Cluster, nodes: &[String], job: &Job, set: &Set, wish: &Wish) -> Domains {
    let domain = |node: &String, level: &str| {
        if level == "node" { Some(node.clone()) } else { cluster.node(node).domains.get(level).cloned() }
    };
    let spreads = |other: &Wish| std::mem::discriminant(&other.kind) == std::mem::discriminant(&wish.kind);
    let counts = |node: &String| match wish.kind {
        WishKind::Even(..) | WishKind::RatherEven(_) => {
            job.only.as_ref().is_none_or(|only| only.contains(node))
                && set.wishes.iter().filter(|other| spreads(other)).all(|other| domain(node, &other.level).is_some())
        }
        WishKind::Near | WishKind::Apart | WishKind::Likes(_) => true,
    };
    nodes.iter().map(|node| domain(node, &wish.level).filter(|_| counts(node))).collect()
}
