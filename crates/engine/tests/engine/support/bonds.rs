//! What described pods ask of each other, as crowds and bonds.

use std::collections::BTreeMap;

use kai_engine::bonds::{Bond, Spread};
use kai_engine::builder::Builder;
use kai_engine::ids::{AreaId, CrowdId};

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

/// Areas and crowds made so far.
#[derive(Default)]
pub(super) struct Neighbours {
    areas: BTreeMap<Domains, AreaId>,
    crowds: BTreeMap<(Who, Domains), CrowdId>,
    all: Option<Vec<(Who, Domains)>>,
}

impl Neighbours {
    /// The bond and crowds of the pods of a set.
    pub(super) fn rows(
        &mut self,
        cluster: &Cluster,
        job: &Job,
        set: &Set,
        builder: &mut Builder,
        names: &mut Names,
    ) -> (Option<u32>, Option<u32>) {
        let everyone = self.all.take().unwrap_or_else(|| crowds(cluster, &names.nodes));
        let is = |tags: &[String]| tags.iter().all(|tag| set.tags.contains(tag));
        let part_of = everyone.iter().filter(|(who, _)| match who {
            Who::Are(tags) => is(tags),
            Who::Wish(wish) => set.wishes.contains(wish),
        });
        let list = part_of.map(|(who, domains)| self.crowd(who, domains, builder, names)).collect();
        let mut bond = Bond::default();
        let near = near_tags(set);
        bond.founds = is(&near);
        for wish in &set.wishes {
            let who = if wish.kind == WishKind::Near { near.clone() } else { vec![wish.tag.clone()] };
            let domains = wish_domains(cluster, &names.nodes, job, set, wish);
            let crowd = self.crowd(&Who::Are(who), &domains, builder, names);
            let spread = |skew_max, domains_min| Spread {
                crowd,
                skew_max,
                domains_min,
                counts_itself: is(std::slice::from_ref(&wish.tag)),
            };
            match wish.kind {
                WishKind::Near => bond.near.push(crowd),
                WishKind::Apart => bond.apart.push(crowd),
                WishKind::Likes(weight) => bond.liked.push((crowd, weight)),
                WishKind::Even(skew, domains) => bond.even.push(spread(skew, domains)),
                WishKind::RatherEven(skew) => bond.rather_even.push(spread(skew, 0)),
            }
        }
        for (who, domains) in &everyone {
            let Who::Wish(wish) = who else { continue };
            if !is(std::slice::from_ref(&wish.tag)) {
                continue;
            }
            let crowd = self.crowd(who, domains, builder, names);
            match wish.kind {
                WishKind::Apart => bond.shunned.push(crowd),
                WishKind::Likes(weight) => bond.liked.push((crowd, weight)),
                WishKind::Near | WishKind::Even(..) | WishKind::RatherEven(_) => {}
            }
        }
        self.all = Some(everyone);
        (builder.bond(bond), builder.crowd_list(list))
    }

    fn crowd(&mut self, who: &Who, domains: &Domains, builder: &mut Builder, names: &mut Names) -> CrowdId {
        let key = (who.clone(), domains.clone());
        if let Some(id) = self.crowds.get(&key) {
            return *id;
        }
        let area = *self.areas.entry(domains.clone()).or_insert_with(|| {
            let mut known: Vec<&String> = domains.iter().flatten().collect();
            known.sort();
            known.dedup();
            let number = |domain: &String| known.iter().position(|other| *other == domain).map(|at| at as u32);
            builder.area(domains.iter().map(|domain| domain.as_ref().and_then(number)).collect())
        });
        let id = builder.crowd(area);
        names.crowds.push(match who {
            Who::Are(tags) => tags.join("+"),
            Who::Wish(wish) => format!("those apart from {}", wish.tag),
        });
        self.crowds.insert(key, id);
        id
    }
}

/// Every crowd that some wish speaks of.
fn crowds(cluster: &Cluster, nodes: &[String]) -> Vec<(Who, Domains)> {
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
