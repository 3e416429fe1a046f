//! Inter-pod rules: label selectors become matchers; affinity terms and spread constraints become rules.
//!
//! ```text
//!   affinity terms, spread constraints ──▶ which pods count, by which node label ──▶ topology keys, matchers
//!   each pod: which selectors match it, its own terms ──▶ the matchers it is part of, its inter-pod rules
//! ```
//!
//! Semantics are kube-scheduler's. Without inter-pod rules there is none of this.

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;
use kai_engine::builder::Builder;
use kai_engine::ids::{PodMatcherId, TopologyKeyId};
use kai_engine::snapshot::{InterPodRules, SpreadConstraint};

use super::node_filters::{tolerated, wanted};
use super::pod_partition::PodPartition;
use super::{Names, nodes};
use crate::key::{Key, PodKey};
use crate::objects::{LabelSelector, Namespace, NodeTerm, Pod, PodAffinityTerm, Toleration, TopologySpreadConstraint};
use crate::world::World;

/// Pods that a term or constraint selects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PodQuery<'w> {
    namespaces: Namespaces<'w>,
    selector: Option<&'w LabelSelector>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Namespaces<'w> {
    All,
    Some(BTreeSet<&'w str>),
}

impl PodQuery<'_> {
    fn finds(&self, pod: &Pod) -> bool {
        let here = match &self.namespaces {
            Namespaces::All => true,
            Namespaces::Some(names) => names.contains(pod.key.namespace.as_str()),
        };
        here && self.selector.is_some_and(|selector| selector.selects(&pod.labels))
    }
}

/// Number of a [`PodQuery`].
type PodQueryId = usize;

/// Which pods are counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CountedPods<'w> {
    /// Pods that all of these find.
    Found(Vec<PodQueryId>),
    /// Pods with an anti-affinity to these.
    Avoiding(PodQueryId),
    /// Pods with a preferred affinity to these, of this weight.
    Liking(PodQueryId, i32),
    /// Pods that use this volume claim.
    Using(&'w Key),
}

/// Where they are counted: by a node label, on nodes that count; `None` is all of them.
type CountedWhere<'w> = (&'w str, Option<FixedBitSet>);

/// All nodes are one domain.
const EVERYWHERE: CountedWhere<'static> = ("", None);

/// What a matcher is called.
#[derive(Clone, Debug)]
pub(crate) struct MatcherName<'w> {
    /// The node label.
    pub(crate) key: &'w str,
    /// The pods' labels, as a selector.
    pub(crate) selector: String,
    /// The volume claim, if it matches the pods that use one.
    pub(crate) claim: Option<&'w Key>,
}

/// A pod's terms: the pods that they are about, and the node label.
#[derive(Clone, Debug, Default)]
struct Terms<'w> {
    required_affinity: Vec<(PodQueryId, &'w str)>,
    required_anti_affinity: Vec<(PodQueryId, &'w str)>,
    preferred: Vec<(PodQueryId, &'w str, i32)>,
    topology_spread: Vec<(PodQueryId, CountedWhere<'w>, &'w TopologySpreadConstraint)>,
    /// Its volume claims that one pod may use at a time.
    exclusive_claims: Vec<&'w Key>,
}

impl<'w> Terms<'w> {
    /// A pod must match all of these to satisfy the required affinity.
    fn affinity_queries(&self) -> Vec<PodQueryId> {
        let all: BTreeSet<PodQueryId> = self.required_affinity.iter().map(|(query, _)| *query).collect();
        all.into_iter().collect()
    }

    /// The pods to be counted for these terms.
    fn matchers(&self) -> Vec<(CountedPods<'w>, CountedWhere<'w>)> {
        let mut matchers = Vec::new();
        matchers.extend(
            self.required_affinity.iter().map(|(_, key)| (CountedPods::Found(self.affinity_queries()), (*key, None))),
        );
        for (query, key) in &self.required_anti_affinity {
            matchers.push((CountedPods::Found(vec![*query]), (*key, None)));
            matchers.push((CountedPods::Avoiding(*query), (*key, None)));
        }
        for (query, key, weight) in &self.preferred {
            matchers.push((CountedPods::Found(vec![*query]), (*key, None)));
            matchers.push((CountedPods::Liking(*query, *weight), (*key, None)));
        }
        matchers.extend(self.exclusive_claims.iter().map(|claim| (CountedPods::Using(claim), EVERYWHERE)));
        matchers.extend(
            self.topology_spread.iter().map(|(query, place, _)| (CountedPods::Found(vec![*query]), place.clone())),
        );
        matchers
    }
}

/// All inter-pod rules of the shard.
#[derive(Default)]
pub(super) struct InterPodIndex<'w> {
    query: Vec<PodQuery<'w>>,
    /// Selectors by a label that everything they select has.
    by_label: BTreeMap<(&'w str, &'w str), Vec<PodQueryId>>,
    /// Selectors without such a label.
    others: Vec<PodQueryId>,
    terms: BTreeMap<&'w PodKey, Terms<'w>>,
    matchers: BTreeMap<(CountedPods<'w>, CountedWhere<'w>), PodMatcherId>,
}

impl<'w> InterPodIndex<'w> {
    /// Reads the rules of all pods that are on a node of the shard or may get there.
    pub(super) fn collect(
        world: &'w World,
        nodes: &nodes::ShardNodes<'w>,
        partition: &PodPartition<'w>,
        builder: &mut Builder,
        names: &mut Names<'w>,
    ) -> Self {
        let mut inter_pod = Self::default();
        let exclusive_claims: BTreeSet<&Key> =
            world.volume_claims.values().filter(|claim| claim.is_for_one_pod()).map(|claim| &claim.key).collect();
        if exclusive_claims.is_empty() && !partition.features.inter_pod_rules {
            return inter_pod;
        }
        let mut reader = TermReader::new(world, nodes, partition, exclusive_claims);
        inter_pod.terms = partition.pods().filter_map(|pod| Some((&pod.key, reader.terms(pod)?))).collect();
        inter_pod.query = reader.query;
        for (id, query) in inter_pod.query.iter().enumerate() {
            match query.selector.and_then(LabelSelector::pivot) {
                Some(label) => inter_pod.by_label.entry(label).or_default().push(id),
                None => inter_pod.others.push(id),
            }
        }
        let wanted: BTreeSet<(CountedPods<'w>, CountedWhere<'w>)> =
            inter_pod.terms.values().flat_map(Terms::matchers).collect();
        let mut topology_keys: BTreeMap<CountedWhere<'w>, TopologyKeyId> = BTreeMap::new();
        for (who, place) in wanted {
            let topology_key =
                *topology_keys.entry(place.clone()).or_insert_with(|| builder.topology_key(domains(&place, nodes)));
            let claim = if let CountedPods::Using(claim) = &who { Some(*claim) } else { None };
            names.matchers.push(MatcherName { key: place.0, selector: inter_pod.describe(&who), claim });
            inter_pod.matchers.insert((who, place), builder.matcher(topology_key));
        }
        inter_pod
    }

    /// The inter-pod rules of a pod, and the matchers that it is part of.
    pub(super) fn of(&self, pod: &'w Pod, builder: &mut Builder) -> (Option<u32>, Option<u32>) {
        if self.matchers.is_empty() {
            return (None, None);
        }
        let found = self.found(pod);
        (builder.inter_pod(self.inter_pod(pod, &found)), builder.matcher_list(self.part_of(pod, &found)))
    }

    fn inter_pod(&self, pod: &'w Pod, found: &BTreeSet<PodQueryId>) -> InterPodRules {
        let mut inter_pod = InterPodRules::default();
        if let Some(terms) = self.terms.get(&pod.key) {
            let matcher = |who: CountedPods<'w>, key: &'w str| self.matchers[&(who, (key, None))];
            let affinity_queries = terms.affinity_queries();
            inter_pod.affinity = terms
                .required_affinity
                .iter()
                .map(|(_, key)| matcher(CountedPods::Found(affinity_queries.clone()), key))
                .collect();
            inter_pod.matches_own_affinity = affinity_queries.iter().all(|query| found.contains(query));
            inter_pod.anti_affinity = terms
                .required_anti_affinity
                .iter()
                .map(|(query, key)| matcher(CountedPods::Found(vec![*query]), key))
                .collect();
            inter_pod.anti_affinity.extend(
                terms.exclusive_claims.iter().map(|claim| self.matchers[&(CountedPods::Using(claim), EVERYWHERE)]),
            );
            let preferred = terms.preferred.iter();
            let preferred = preferred
                .map(|(query, key, weight)| (matcher(CountedPods::Found(vec![*query]), key), i64::from(*weight)));
            inter_pod.preferences = preferred.collect();
            for (query, place, rule) in &terms.topology_spread {
                let spread = SpreadConstraint {
                    matcher: self.matchers[&(CountedPods::Found(vec![*query]), place.clone())],
                    skew_max: rule.max_skew,
                    domains_min: rule.min_domains,
                    counts_itself: found.contains(query),
                };
                if rule.required {
                    inter_pod.spread_required.push(spread);
                } else {
                    inter_pod.spread_preferred.push(spread);
                }
            }
        }
        for ((who, _), matcher) in &self.matchers {
            match who {
                CountedPods::Avoiding(query) if found.contains(query) => {
                    inter_pod.existing_anti_affinity.push(*matcher);
                }
                CountedPods::Liking(query, weight) if found.contains(query) => {
                    inter_pod.preferences.push((*matcher, i64::from(*weight)));
                }
                CountedPods::Found(_) | CountedPods::Avoiding(_) | CountedPods::Liking(..) | CountedPods::Using(_) => {}
            }
        }
        inter_pod
    }

    fn part_of(&self, pod: &'w Pod, found: &BTreeSet<PodQueryId>) -> Vec<PodMatcherId> {
        let own = self.terms.get(&pod.key);
        let counts = |(who, (key, _)): &(CountedPods<'w>, CountedWhere<'w>)| match who {
            CountedPods::Found(all) => all.iter().all(|query| found.contains(query)),
            CountedPods::Avoiding(query) => {
                own.is_some_and(|terms| terms.required_anti_affinity.contains(&(*query, key)))
            }
            CountedPods::Liking(query, weight) => {
                own.is_some_and(|terms| terms.preferred.contains(&(*query, key, *weight)))
            }
            CountedPods::Using(claim) => own.is_some_and(|terms| terms.exclusive_claims.contains(claim)),
        };
        self.matchers.iter().filter(|(key, _)| counts(key)).map(|(_, matcher)| *matcher).collect()
    }

    /// Which selectors find the pod.
    fn found(&self, pod: &Pod) -> BTreeSet<PodQueryId> {
        let by_label = pod.labels.iter().filter_map(|(key, value)| self.by_label.get(&(key.as_str(), value.as_str())));
        let candidates = by_label.flatten().chain(&self.others).copied();
        candidates.filter(|id| self.query[*id].finds(pod)).collect()
    }

    fn describe(&self, who: &CountedPods<'w>) -> String {
        let selector = |id: &PodQueryId| match self.query[*id].selector {
            Some(selector) if selector.requirements.is_empty() => "any labels".to_owned(),
            Some(selector) => selector.to_string(),
            None => "no labels at all".to_owned(),
        };
        match who {
            CountedPods::Found(all) => all.iter().map(selector).collect::<Vec<_>>().join(" and "),
            CountedPods::Avoiding(query) | CountedPods::Liking(query, _) => selector(query),
            CountedPods::Using(claim) => claim.to_string(),
        }
    }
}

/// What decides which nodes count for the spread constraints of a pod.
type ReachKey<'w> =
    (&'w [TopologySpreadConstraint], &'w BTreeMap<String, String>, Option<&'w [NodeTerm]>, &'w [Toleration]);

/// Reads terms, and numbers the queries for pods that they make.
struct TermReader<'a, 'w> {
    nodes: &'a nodes::ShardNodes<'w>,
    namespaces: Vec<(&'w str, Namespace)>,
    query: Vec<PodQuery<'w>>,
    known: BTreeMap<PodQuery<'w>, PodQueryId>,
    reach: BTreeMap<ReachKey<'w>, Vec<FixedBitSet>>,
    /// Volume claims that one pod may use at a time.
    exclusive_claims: BTreeSet<&'w Key>,
}

impl<'a, 'w> TermReader<'a, 'w> {
    fn new(
        world: &'w World,
        nodes: &'a nodes::ShardNodes<'w>,
        partition: &PodPartition<'w>,
        exclusive_claims: BTreeSet<&'w Key>,
    ) -> Self {
        let mut namespaces: BTreeMap<&'w str, Namespace> =
            world.namespaces.iter().map(|(name, namespace)| (name.as_str(), namespace.clone())).collect();
        for pod in partition.pods() {
            let name = pod.key.namespace.as_str();
            namespaces.entry(name).or_insert_with(|| Namespace::named(name));
        }
        Self {
            nodes,
            namespaces: namespaces.into_iter().collect(),
            query: Vec::new(),
            known: BTreeMap::new(),
            reach: BTreeMap::new(),
            exclusive_claims,
        }
    }

    /// `None` if the pod has no inter-pod rules.
    fn terms(&mut self, pod: &'w Pod) -> Option<Terms<'w>> {
        let exclusive_claims = self.exclusive_claims_of(pod);
        let Some(written) = pod.inter_pod.as_deref() else {
            return (!exclusive_claims.is_empty()).then(|| Terms { exclusive_claims, ..Terms::default() });
        };
        let mut term = |term: &'w PodAffinityTerm| (self.pods_of(term, pod), term.topology_key.as_str());
        let required_affinity = written.required_affinity.iter().map(&mut term).collect();
        let required_anti_affinity = written.required_anti_affinity.iter().map(&mut term).collect();
        let preferred = written.preferred.iter().map(|(weight, preferred)| {
            let (query, key) = term(preferred);
            (query, key, *weight)
        });
        let preferred = preferred.collect();
        let reach = self.reach(&written.topology_spread, pod);
        let mut topology_spread = Vec::new();
        for (rule, nodes) in written.topology_spread.iter().zip(reach) {
            let query = self.number(in_own_namespace(pod, rule.selector.as_ref()));
            topology_spread.push((query, (rule.topology_key.as_str(), Some(nodes)), rule));
        }
        Some(Terms { required_affinity, required_anti_affinity, preferred, topology_spread, exclusive_claims })
    }

    /// Claims of the pod that one pod may use at a time.
    fn exclusive_claims_of(&self, pod: &Pod) -> Vec<&'w Key> {
        let Some(prerequisites) = pod.prerequisites.as_deref().filter(|_| !self.exclusive_claims.is_empty()) else {
            return Vec::new();
        };
        let claims = prerequisites.all_claims().map(|name| Key::new(&*pod.key.namespace, name));
        claims.filter_map(|key| self.exclusive_claims.get(&key).copied()).collect()
    }

    fn number(&mut self, query: PodQuery<'w>) -> PodQueryId {
        let next = self.query.len();
        *self.known.entry(query).or_insert_with_key(|query| {
            self.query.push(query.clone());
            next
        })
    }

    fn pods_of(&mut self, term: &'w PodAffinityTerm, pod: &'w Pod) -> PodQueryId {
        let selector = term.selector.as_ref();
        let query = match &term.namespace_selector {
            None if term.namespaces.is_empty() => in_own_namespace(pod, selector),
            Some(all) if all.requirements.is_empty() => PodQuery { namespaces: Namespaces::All, selector },
            by_label => {
                let mut names: BTreeSet<&'w str> = term.namespaces.iter().map(String::as_str).collect();
                let selected = |(_, namespace): &&(&'w str, Namespace)| {
                    by_label.as_ref().is_some_and(|selector| selector.selects(&namespace.labels))
                };
                names.extend(self.namespaces.iter().filter(selected).map(|(name, _)| *name));
                PodQuery { namespaces: Namespaces::Some(names), selector }
            }
        };
        self.number(query)
    }

    /// The nodes that count for each constraint: those with the labels of all constraints of its kind that its
    /// policies do not leave out.
    fn reach(&mut self, rules: &'w [TopologySpreadConstraint], pod: &'w Pod) -> Vec<FixedBitSet> {
        let key: ReachKey<'w> = (rules, &pod.node_selector, pod.node_affinity.as_deref(), &pod.tolerations);
        let list = &self.nodes.list;
        let count = |rule: &TopologySpreadConstraint| {
            let mut set = FixedBitSet::with_capacity(list.len());
            set.extend(list.iter().enumerate().filter_map(|(index, facts)| {
                let alike = rules.iter().filter(|other| other.required == rule.required);
                let counts = alike.into_iter().all(|other| facts.node.labels.contains_key(&other.topology_key))
                    && (!rule.honours_affinity || wanted(key.1, key.2, facts))
                    && (!rule.honours_taints || tolerated(key.3, facts));
                counts.then_some(index)
            }));
            set
        };
        self.reach.entry(key).or_insert_with(|| rules.iter().map(count).collect()).clone()
    }
}

/// Pods of the pod's own namespace.
fn in_own_namespace<'w>(pod: &'w Pod, selector: Option<&'w LabelSelector>) -> PodQuery<'w> {
    PodQuery { namespaces: Namespaces::Some(BTreeSet::from([pod.key.namespace.as_str()])), selector }
}

/// The domain of each node, numbered by label value.
fn domains((key, counted): &CountedWhere<'_>, nodes: &nodes::ShardNodes<'_>) -> Vec<Option<u32>> {
    if *key == EVERYWHERE.0 {
        return vec![Some(0); nodes.list.len()];
    }
    let value = |(index, facts): (usize, &nodes::Facts<'_>)| {
        let counts = counted.as_ref().is_none_or(|counted| counted.contains(index));
        facts.node.labels.get(*key).filter(|_| counts).cloned()
    };
    let values: Vec<Option<String>> = nodes.list.iter().enumerate().map(value).collect();
    let mut numbers: BTreeMap<&String, u32> = values.iter().flatten().map(|value| (value, 0)).collect();
    for (number, next) in numbers.values_mut().zip(0..) {
        *number = next;
    }
    values.iter().map(|value| value.as_ref().map(|value| numbers[value])).collect()
}
