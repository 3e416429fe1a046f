//! Guesses which name was meant.

/// The known name that `name` is most likely a misspelling of.
pub(crate) fn closest_match<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    // A third of the letters may differ; beyond that, and for a letter or two, a suggestion is a guess.
    let worst = name.chars().count() / 3;
    known
        .into_iter()
        .map(|other| (strsim::damerau_levenshtein(name, other), other))
        .filter(|(distance, _)| *distance <= worst)
        .min()
        .map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        assert_eq!(closest_match("reserch", ["research", "search", "team"]), Some("research"));
        assert_eq!(closest_match("taem", ["team", "tram"]), Some("team"));
        assert_eq!(closest_match("gold", ["research", "team"]), None);
        assert_eq!(closest_match("a", ["b", "c"]), None);
    }
}
