//! The path up a tree that users write, such as queues and sub-groups, and that may have cycles.

use std::collections::{BTreeMap, BTreeSet};

/// This one and all above it; a cycle is walked once.
pub(crate) fn with_ancestors<'t>(first: &'t str, parent: impl Fn(&str) -> Option<&'t str>) -> Vec<&'t str> {
    let mut seen = BTreeSet::from([first]);
    let mut path = vec![first];
    let mut last = first;
    while let Some(above) = parent(last).filter(|above| seen.insert(*above)) {
        path.push(above);
        last = above;
    }
    path
}

/// What is above a member of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ancestry<'t> {
    /// So many levels, this one counted: 1 at the top.
    Levels(usize),
    /// It is its own ancestor.
    Cycle,
    /// A cycle that it does not belong to.
    BelowCycle,
    /// This one, perhaps itself, names a parent that does not exist.
    Orphan(&'t str),
}

impl Ancestry<'_> {
    /// That of a child.
    fn below(self) -> Self {
        match self {
            Self::Levels(levels) => Self::Levels(levels + 1),
            Self::Cycle | Self::BelowCycle => Self::BelowCycle,
            Self::Orphan(name) => Self::Orphan(name),
        }
    }
}

/// What is above each, from the names and their parents. Each is visited once, however long the paths are.
pub fn ancestries<'t>(parents: &BTreeMap<&'t str, Option<&'t str>>) -> BTreeMap<&'t str, Ancestry<'t>> {
    let mut known: BTreeMap<&str, Ancestry<'_>> = BTreeMap::new();
    for start in parents.keys() {
        let mut path: Vec<&str> = Vec::new();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let mut at = *start;
        // What is above the last of the path, and how many of the path's end form a cycle.
        let (mut above, cycle) = loop {
            if let Some(known) = known.get(at) {
                break (Some(*known), 0);
            }
            if let Some(place) = places.get(at) {
                break (None, path.len() - place);
            }
            places.insert(at, path.len());
            path.push(at);
            match parents.get(at) {
                Some(Some(parent)) if parents.contains_key(parent) => at = parent,
                Some(Some(_)) => break (Some(Ancestry::Orphan(at)), 0),
                _ => break (None, 0),
            }
        };
        for (index, name) in path.iter().rev().enumerate() {
            let own = match above {
                _ if index < cycle => Ancestry::Cycle,
                None => Ancestry::Levels(1),
                Some(Ancestry::Orphan(orphan)) if orphan == *name => Ancestry::Orphan(orphan),
                Some(above) => above.below(),
            };
            known.insert(name, own);
            above = Some(own);
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_walked_once() {
        let parent = |name: &str| match name {
            "a" | "c" => Some("b"),
            "b" => Some("c"),
            _ => None,
        };
        assert_eq!((with_ancestors("a", parent), with_ancestors("top", parent)), (vec!["a", "b", "c"], vec!["top"]));
    }

    #[test]
    fn members_of_a_cycle_differ_from_those_below_it() {
        let pairs = [
            ("top", None),
            ("team", Some("top")),
            ("a", Some("b")),
            ("b", Some("a")),
            ("self", Some("self")),
            ("under", Some("a")),
            ("deep", Some("lost")),
            ("lost", Some("nowhere")),
        ];
        let known = ancestries(&BTreeMap::from(pairs));
        assert_eq!((known["top"], known["team"]), (Ancestry::Levels(1), Ancestry::Levels(2)));
        assert_eq!((known["a"], known["b"], known["self"]), (Ancestry::Cycle, Ancestry::Cycle, Ancestry::Cycle));
        assert_eq!(known["under"], Ancestry::BelowCycle);
        assert_eq!((known["lost"], known["deep"]), (Ancestry::Orphan("lost"), Ancestry::Orphan("lost")));
    }

    #[test]
    fn a_path_of_a_hundred_thousand_is_walked_once() {
        let names: Vec<String> = (0..100_000).map(|index| format!("{index:06}")).collect();
        let parents: BTreeMap<&str, Option<&str>> = names
            .iter()
            .enumerate()
            .map(|(index, name)| (name.as_str(), index.checked_sub(1).map(|above| names[above].as_str())))
            .collect();
        assert_eq!(ancestries(&parents)["099999"], Ancestry::Levels(100_000));
        let backwards: BTreeMap<&str, Option<&str>> = names
            .iter()
            .enumerate()
            .map(|(index, name)| (name.as_str(), names.get(index + 1).map(String::as_str)))
            .collect();
        assert_eq!(ancestries(&backwards)["000000"], Ancestry::Levels(100_000));
    }
}
