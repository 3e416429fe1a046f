//! The path up a tree that users write, such as queues and sub-groups, and that may have cycles.

use std::collections::BTreeSet;

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
}
