//! Whether all decisions are those of the last commit: a hash a group of cases, in a file that is reviewed like code.
//!
//! A change of words, of structure or of speed must leave the file as it is; a change of what is decided shows there.

use std::collections::BTreeMap;
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

/// Groups that are complete and were decided otherwise than recorded. A corpus with more or fewer cases cannot be compared.
pub fn changed(outcomes: &[Outcome]) -> io::Result<Vec<String>> {
    let recorded = parse(&fs::read_to_string(recorded_file())?);
    let now = groups(outcomes);
    let differs = |(name, (cases, hash)): (&String, &(usize, String))| {
        let (cases_then, hash_then) = recorded.get(name)?;
        (cases_then == cases && hash_then != hash).then(|| name.clone())
    };
    Ok(now.iter().filter_map(differs).collect())
}

fn groups(outcomes: &[Outcome]) -> Groups {
    let mut hashers: BTreeMap<&str, (usize, Sha256)> = BTreeMap::new();
    for outcome in outcomes.iter().filter(|outcome| !outcome.decisions.is_empty()) {
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
    use std::collections::BTreeSet;

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
    }
}
