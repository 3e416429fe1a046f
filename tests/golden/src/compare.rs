//! What one side shows and the other does not.

use std::collections::BTreeSet;
use std::fmt;

use crate::sight::{Fields, Sight, Subject};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Difference {
    pub(crate) kind: String,
    /// Empty if it is the object itself that is missing.
    pub(crate) field: String,
    pub(crate) theirs: String,
    pub(crate) ours: String,
    pub(crate) name: String,
    pub(crate) scenario: String,
}

/// How a value that is not there is written.
pub(crate) const NONE: &str = "none";

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, field, theirs, ours, name, scenario } = self;
        write!(f, "{scenario}: {kind} {name}, {field:?}: KAI {theirs:?}, ours {ours:?}")
    }
}

pub(crate) fn compare(scenario: &str, theirs: &Sight, ours: &Sight) -> Vec<Difference> {
    let mut differences = Vec::new();
    let subjects: BTreeSet<&Subject> = theirs.0.keys().chain(ours.0.keys()).collect();
    for subject in subjects {
        let difference = |field: &str, theirs: &str, ours: &str| Difference {
            kind: subject.kind.clone(),
            field: field.to_owned(),
            theirs: theirs.to_owned(),
            ours: ours.to_owned(),
            name: subject.name.clone(),
            scenario: scenario.to_owned(),
        };
        let [theirs, ours] = [theirs, ours].map(|side| side.0.get(subject).map_or(&[][..], Vec::as_slice));
        if theirs.len() != ours.len() && subject.kind != "Events" {
            differences.push(difference("", &theirs.len().to_string(), &ours.len().to_string()));
            continue;
        }
        let nothing = Fields::new();
        for at in 0..theirs.len().max(ours.len()) {
            let [theirs, ours] = [theirs, ours].map(|side| side.get(at).unwrap_or(&nothing));
            let fields: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
            for field in fields {
                let [theirs, ours] = [theirs, ours].map(|side| side.get(field).map_or(NONE, String::as_str));
                if theirs != ours {
                    differences.push(difference(field, theirs, ours));
                }
            }
        }
    }
    differences.sort();
    differences.dedup();
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind, name, fields.
    type Drawn<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

    fn sight(objects: &[Drawn<'_>]) -> Sight {
        let mut sight = Sight::default();
        for (kind, name, fields) in objects {
            let fields = fields.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect();
            sight.0.entry(Subject { kind: (*kind).to_owned(), name: (*name).to_owned() }).or_default().push(fields);
        }
        sight
    }

    fn lines(theirs: &Sight, ours: &Sight) -> Vec<String> {
        compare("s", theirs, ours).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn equal_sights_do_not_differ() {
        let one = sight(&[("Pod", "a", &[("x", "1")])]);
        assert!(lines(&one, &one).is_empty());
    }

    #[test]
    fn fields_and_objects_that_differ_are_named() {
        let theirs = sight(&[("Pod", "a", &[("x", "1"), ("y", "1")]), ("Events", "Pod a", &[("Lost", "Warning")])]);
        let ours = sight(&[("Pod", "a", &[("x", "2"), ("y", "1")]), ("Pod", "b", &[])]);
        let expected = [
            r#"s: Events Pod a, "Lost": KAI "Warning", ours "none""#,
            r#"s: Pod b, "": KAI "0", ours "1""#,
            r#"s: Pod a, "x": KAI "1", ours "2""#,
        ];
        assert_eq!(lines(&theirs, &ours), expected);
    }
}
