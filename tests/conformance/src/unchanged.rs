//! Whether all decisions are those of the last commit: a hash a group of cases, in a file that is reviewed like code.
//!
//! A change of words, of structure or of speed must leave the file as it is; a change of what is decided shows there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{fs, io};

use sha2::{Digest, Sha256};

use crate::run::Outcome;
use crate::workspace;

/// A group of cases: how many, and the hash of what was decided in them.
type Groups = BTreeMap<String, (usize, String)>;

/// Where the hashes stand.
pub fn recorded_file() -> PathBuf {
    workspace().join("tests/conformance/decisions.txt")
}

/// Hashes of these outcomes, one line a group.
pub fn text(outcomes: &[Outcome]) -> String {
    groups(outcomes).iter().fold(String::new(), |mut text, (name, (cases, hash))| {
        let _ = writeln!(text, "{name} {cases} {hash}");
        text
    })
}

/// How groups of cases compare with those of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The same cases, decided otherwise.
    pub changed: Vec<String>,
    /// Incomplete, missing or new: of another corpus than the one that the file is about.
    pub not_compared: Vec<String>,
}

/// Compares with the file.
pub fn compare(outcomes: &[Outcome]) -> io::Result<Comparison> {
    Ok(comparison(&parse(&fs::read_to_string(recorded_file())?), &groups(outcomes)))
}

fn comparison(recorded: &Groups, now: &Groups) -> Comparison {
    let mut comparison = Comparison::default();
    let all: BTreeSet<&String> = recorded.keys().chain(now.keys()).collect();
    for name in all {
        match (recorded.get(name), now.get(name)) {
            (Some((then, _)), Some((cases, _))) if then != cases => {
                comparison.not_compared.push(format!("{name}: {cases} cases, recorded {then}"));
            }
            (Some((_, then)), Some((_, hash))) if then != hash => comparison.changed.push(name.clone()),
            (Some(_), None) => comparison.not_compared.push(format!("{name}: no cases")),
            (None, _) => comparison.not_compared.push(format!("{name}: not recorded")),
            _ => {}
        }
    }
    comparison
}

fn groups(outcomes: &[Outcome]) -> Groups {
    let mut hashers: BTreeMap<&str, (usize, Sha256)> = BTreeMap::new();
    for outcome in outcomes {
        let (cases, hasher) = hashers.entry(&outcome.group).or_default();
        *cases += 1;
        hasher.update(format!("case {}\n{}", outcome.key, outcome.decisions));
    }
    let hex = |hasher: Sha256| {
        let digest = hasher.finalize();
        let start: [u8; 8] = std::array::from_fn(|index| digest[index]);
        format!("{:016x}", u64::from_be_bytes(start))
    };
    hashers.into_iter().map(|(name, (cases, hasher))| (name.to_owned(), (cases, hex(hasher)))).collect()
}

fn parse(text: &str) -> Groups {
    let line = |line: &str| {
        let mut fields = line.split_whitespace();
        let (name, cases, hash) = (fields.next()?, fields.next()?.parse().ok()?, fields.next()?);
        Some((name.to_owned(), (cases, hash.to_owned())))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    fn outcome(key: &str, decisions: &str) -> Outcome {
        Outcome {
            id: key.to_owned(),
            key: key.to_owned(),
            group: "reclaim".to_owned(),
            verdict: Verdict::Passed,
            needs: BTreeSet::new(),
            known: None,
            explained_by: None,
            log: String::new(),
            decisions: decisions.to_owned(),
        }
    }

    #[test]
    fn one_other_decision_changes_the_hash_of_its_group() {
        let before = text(&[outcome("reclaim/1", "bind 0 on 1\n"), outcome("reclaim/2", "bind 0 on 2\n")]);
        let after = text(&[outcome("reclaim/1", "bind 0 on 1\n"), outcome("reclaim/2", "bind 0 on 3\n")]);
        assert!(before.starts_with("reclaim 2 "));
        assert_ne!(before, after);
        assert_eq!(parse(&before)["reclaim"].0, 2);
        assert_eq!(comparison(&parse(&before), &parse(&before)), Comparison::default());
        assert_eq!(comparison(&parse(&before), &parse(&after)).changed, ["reclaim"]);
    }

    #[test]
    fn a_group_that_is_incomplete_missing_or_new_is_named() {
        let recorded = parse("fairshare/order 2 0\npreempt 2 1\nreclaim 2 2\n");
        let now = parse("fairshare/order 2 0\nreclaim 1 2\nrandom 7 3\n");
        let expected = ["preempt: no cases", "random: not recorded", "reclaim: 1 cases, recorded 2"];
        let Comparison { changed, not_compared } = comparison(&recorded, &now);
        assert_eq!((changed, not_compared), (Vec::new(), expected.map(str::to_owned).to_vec()));
    }
}
