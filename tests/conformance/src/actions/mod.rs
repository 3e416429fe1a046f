//! Whole scheduling cycles: lower a recorded cluster, run the engine round by round, judge each round.

mod case;
mod claims;
mod decisions;
mod devices;
mod dump;
mod held;
mod judge;
mod lower;
mod numa;
pub(crate) mod numbers;
mod policy;
mod session;
mod state;

use std::collections::BTreeSet;

pub use case::Case;
use case::Mode;
use kai_engine::policy::Repairs;
use session::Session;
use state::State;

use crate::verdict::{Difference, Fault, Part, Verdict};

/// Runs a case; `log` receives everything a person needs to see what went on, `decisions` what is recorded of each round.
pub fn run(case: &Case, repairs: Repairs, log: Option<&mut String>, decisions: &mut String) -> Result<Verdict, Fault> {
    let mut run = Run { case, repairs, state: State::of(case), round: 0, differences: Vec::new(), log, decisions };
    match case.rounds.mode {
        Mode::Single => run.act(Judging::Now)?,
        Mode::Multi => run.until_stable()?,
    }
    Ok(run.differences.into())
}

/// Parts of the product, beyond the common ones, that the case needs.
pub fn needs(case: &Case) -> BTreeSet<Part> {
    let mut parts = BTreeSet::new();
    if case.cluster.dra.is_some() || case.tasks().any(|(_, task)| !task.resource_claims.is_empty()) {
        parts.insert(Part::Dra);
    }
    if case.cluster.nodes.iter().any(|node| node.numa.is_some()) {
        parts.insert(Part::Numa);
    }
    let has_pod_rules =
        |task: &case::Task| !task.required_pod_affinity.is_empty() || !task.required_pod_anti_affinity.is_empty();
    if case.tasks().any(|(_, task)| has_pod_rules(task)) {
        parts.insert(Part::PodAffinity);
    }
    if !case.cluster.topologies.is_empty() {
        parts.insert(Part::Topology);
    }
    parts
}

/// What to compare after the actions of a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Judging {
    /// Only the bounds that hold in every round.
    LimitsOnly,
    /// The session as the actions left it.
    Now,
    /// The limits, then a fresh session on the advanced state.
    Advanced,
}

struct Run<'a, 'l> {
    case: &'a Case,
    repairs: Repairs,
    state: State,
    round: u32,
    differences: Vec<Difference>,
    log: Option<&'l mut String>,
    decisions: &'l mut String,
}

impl Run<'_, '_> {
    fn until_stable(&mut self) -> Result<(), Fault> {
        let rounds = self.case.rounds;
        for round in 1..=rounds.until_match {
            self.act(if round == rounds.until_match { Judging::Advanced } else { Judging::LimitsOnly })?;
        }
        for _ in 0..rounds.after_match {
            self.act(Judging::Now)?;
        }
        Ok(())
    }

    /// Runs one round, compares, and moves the state on.
    fn act(&mut self, judging: Judging) -> Result<(), Fault> {
        let index = self.round as usize;
        self.round += 1;
        let before = self.state.clone();
        let session = Session::run(self.case, &before, self.repairs, self.round)?;
        decisions::round(self.decisions, &session);
        let mut differences = session.contradictions.clone();
        differences.extend(judge::limits(self.case, session.counters));
        if judging == Judging::Now {
            differences.extend(judge::expected(self.case, &session, &session));
        }
        if self.case.judged_by_observation() {
            differences.extend(judge::observed(self.case, &session, index));
        }
        if let Some(log) = &mut self.log {
            dump::round(log, self.case, &session, index, judging == Judging::Now);
        }
        let mut advanced = session.after.clone();
        advanced.advance(self.case);
        if judging == Judging::Advanced {
            let fresh = Session::open(self.case, &advanced)?;
            differences.extend(judge::expected(self.case, &fresh, &session));
            if let Some(log) = &mut self.log {
                dump::fresh(log, self.case, &fresh);
            }
        }
        let in_round = |difference: Difference| match self.case.rounds.mode {
            Mode::Single => difference,
            Mode::Multi => Difference { what: format!("round {} {}", self.round, difference.what), ..difference },
        };
        self.differences.extend(differences.into_iter().map(in_round));
        self.state = advanced;
        Ok(())
    }
}
