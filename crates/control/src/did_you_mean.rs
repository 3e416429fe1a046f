//! Suggests the name that a misspelt one most likely means.

/// Names beyond this length are no slip of the pen, and comparing two takes the product of their lengths.
const LENGTH_MAX: usize = 100;

/// So many names are compared; a cluster with more of similar length is a rare one.
const COMPARED_MAX: usize = 2_000;

/// The known name that is closest to `name`, if one is close enough. Case does not matter.
pub fn closest_match<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    // A third of the letters may differ; beyond that, and for a letter or two, a suggestion is a guess.
    let length = name.chars().count();
    if length > LENGTH_MAX {
        return None;
    }
    let allowed = length / 3;
    let lower = name.to_lowercase();
    known
        .into_iter()
        .filter(|other| other.chars().count().abs_diff(length) <= allowed)
        .take(COMPARED_MAX)
        .map(|other| (strsim::damerau_levenshtein(&lower, &other.to_lowercase()), other))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_is_recognised_and_another_name_is_not() {
        assert_eq!(closest_match("reserch", ["research", "search", "team"]), Some("research"));
        assert_eq!(closest_match("taem", ["team", "tram"]), Some("team"));
        assert_eq!(closest_match("nodedown", ["nodeDown", "nodeUp"]), Some("nodeDown"));
        assert_eq!(closest_match("gold", ["research", "team"]), None);
        assert_eq!(closest_match("a", ["b", "c"]), None);
    }
}
