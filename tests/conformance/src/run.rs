//! Runs cases of all suites and catches what must not stop the others.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::actions;
use crate::corpus::{Recorded, Suite};
use crate::fairshare;
use crate::known::Known;
use crate::topology;
use crate::verdict::{Difference, Fault, Part, Verdict};

/// A case with its result.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub id: String,
    pub key: String,
    pub group: String,
    pub verdict: Verdict,
    /// Parts beyond the common ones that the case exercises.
    pub needs: BTreeSet<Part>,
    /// Listed as a known difference.
    pub known: Option<Known>,
    /// What went on, if asked for.
    pub log: String,
}

/// Runs all cases.
pub fn all(cases: &[Recorded], known: &BTreeMap<String, Known>, verbose: bool) -> Vec<Outcome> {
    cases.iter().map(|case| one(case, known.get(&case.key), verbose)).collect()
}

fn one(case: &Recorded, known: Option<&Known>, verbose: bool) -> Outcome {
    let mut log = String::new();
    let mut needs = BTreeSet::new();
    // A broken assertion in the engine fails its case; the log keeps what came before it.
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let log = verbose.then_some(&mut log);
        match case.suite {
            Suite::Actions => {
                let case: actions::Case = parse(case)?;
                needs = actions::needs(&case);
                actions::run(&case, log)
            }
            Suite::Fairshare => fairshare::run(&parse(case)?),
            Suite::Podgrouper => Ok(Verdict::Skipped("workload grouping is not wired yet")),
            Suite::Topology => topology::run(&parse(case)?),
        }
    }));
    let verdict = match caught {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(Fault(text))) => Verdict::Failed(vec![Difference::new("case", "a case that can be run", text)]),
        Err(panic) => Verdict::Failed(vec![Difference::new("engine", "no panic", panic_text(panic.as_ref()))]),
    };
    Outcome {
        id: case.id.clone(),
        key: case.key.clone(),
        group: case.group.clone(),
        verdict,
        needs,
        known: known.cloned(),
        log,
    }
}

fn parse<T: serde::de::DeserializeOwned>(case: &Recorded) -> Result<T, Fault> {
    T::deserialize(&case.body).map_err(|error| Fault(error.to_string()))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a message").replace('\n', " "))
}
