//! Runs cases of all suites and catches what must not stop the others.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use kai_engine::policy::Repairs;

use crate::actions;
use crate::corpus::{Recorded, Suite};
use crate::fairshare;
use crate::known::Known;
use crate::podgrouper;
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
    /// The repair without which the case would pass.
    pub explained_by: Option<&'static str>,
    /// What went on, if asked for.
    pub log: String,
    /// Everything that was decided, round by round; for cases of single functions, all that they returned.
    pub decisions: String,
}

impl Outcome {
    /// Recorded from clusters made at random, where unintended behaviour of NVIDIA KAI shows, and different only because of a repair.
    /// Cases that people wrote must pass as they are.
    pub fn is_repaired(&self) -> bool {
        let at_random = self.group == "random" || self.group.starts_with("rnd-");
        at_random && self.explained_by.is_some()
    }
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Keep a log of each case.
    pub verbose: bool,
    /// Which deliberate departures from NVIDIA KAI are on.
    pub repairs: Repairs,
}

impl Default for Options {
    /// As in production.
    fn default() -> Self {
        Self { verbose: false, repairs: Repairs::ALL }
    }
}

/// Each repair taken back alone, then all of them: what a failure is tried with to explain it.
const WITHOUT: [(&str, Repairs); 7] = [
    ("reprieve victims", Repairs { reprieve_victims: false, ..Repairs::ALL }),
    ("gang trees", Repairs { gang_trees: false, ..Repairs::ALL }),
    ("dropped placements", Repairs { drop_placements: false, ..Repairs::ALL }),
    ("GPU sharing", Repairs { gpu_sharing: false, ..Repairs::ALL }),
    ("stable moves", Repairs { stable_moves: false, ..Repairs::ALL }),
    ("ignore releasing neighbours", Repairs { ignore_releasing_neighbours: false, ..Repairs::ALL }),
    ("several", Repairs::NONE),
];

/// Runs all cases.
pub fn all(cases: &[Recorded], known: &BTreeMap<String, Known>, options: Options) -> Vec<Outcome> {
    // A panic becomes the failure of its case, in one line; the usual trace would come once per case.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(|info| {
        LAST_PANIC
            .set(info.location().map_or_else(String::new, |place| format!(" at {}:{}", place.file(), place.line())));
    }));
    let outcomes = cases.iter().map(|case| one(case, known.get(&case.key), options)).collect();
    std::panic::set_hook(usual);
    outcomes
}

thread_local! {
    /// Where the last panic of this thread came from.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

fn one(case: &Recorded, known: Option<&Known>, options: Options) -> Outcome {
    let mut log = String::new();
    let mut decisions = String::new();
    let parsed = if case.suite == Suite::Actions { parse::<actions::Case>(case).ok() } else { None };
    let verdict = verdict(case, options.repairs, options.verbose.then_some(&mut log), &mut decisions);
    if options.verbose && case.suite != Suite::Actions {
        // One call with its arguments: the recording says it all.
        log = format!("case {}\n{:#}\n", case.key, case.body);
    }
    let explained_by = match (&verdict, case.suite) {
        (Verdict::Failed(_), Suite::Actions) if options.repairs == Repairs::ALL => {
            let passes =
                |repairs: Repairs| matches!(self::verdict(case, repairs, None, &mut String::new()), Verdict::Passed);
            WITHOUT.into_iter().find(|(_, repairs)| passes(*repairs)).map(|(name, _)| name)
        }
        _ => None,
    };
    let needs = parsed.as_ref().map(actions::needs).unwrap_or_default();
    let verdict = match (verdict, needs.iter().find_map(|part| part.not_built())) {
        (Verdict::Failed(_), Some(why)) => Verdict::Skipped(why),
        (verdict, _) => verdict,
    };
    Outcome {
        id: case.id.clone(),
        key: case.key.clone(),
        group: case.group.clone(),
        verdict,
        needs,
        known: known.cloned(),
        explained_by,
        log,
        decisions,
    }
}

/// Whatever happens inside, the other cases go on; the log keeps what came before a panic.
fn verdict(case: &Recorded, repairs: Repairs, log: Option<&mut String>, decisions: &mut String) -> Verdict {
    let caught = catch_unwind(AssertUnwindSafe(|| match case.suite {
        Suite::Actions => actions::run(&parse(case)?, repairs, log, decisions),
        Suite::Fairshare => fairshare::run(&parse(case)?, decisions),
        Suite::Podgrouper => Ok(match podgrouper::check_case(&case.body, decisions) {
            Ok(()) => Verdict::Passed,
            Err(text) => Verdict::Failed(vec![Difference::new("pod group", "as recorded", text)]),
        }),
        Suite::Topology => topology::run(&parse(case)?, decisions),
    }));
    match caught {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(Fault(text))) => Verdict::Failed(vec![Difference::new("case", "a case that can be run", text)]),
        Err(panic) => Verdict::Failed(vec![Difference::new("engine", "no panic", panic_text(panic.as_ref()))]),
    }
}

fn parse<T: serde::de::DeserializeOwned>(case: &Recorded) -> Result<T, Fault> {
    T::deserialize(&case.body).map_err(|error| Fault(error.to_string()))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("without a message").replace('\n', " ");
    format!("panic{}: {text}", LAST_PANIC.take())
}
