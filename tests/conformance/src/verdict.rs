//! What came out of a case.

use serde::Serialize;

/// Why a case could not be run at all; it counts as failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

/// The result of one case.
#[derive(Clone, Debug)]
pub enum Verdict {
    Passed,
    Failed(Vec<Difference>),
    /// Nothing here can run it yet.
    Skipped(&'static str),
}

/// One thing that is not as expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The task, job, node or number in question.
    pub what: String,
    pub expected: String,
    pub got: String,
}

impl Difference {
    #[allow(clippy::needless_pass_by_value, reason = "callers pass numbers and fresh texts")]
    pub fn new(what: impl Into<String>, expected: impl ToString, got: impl ToString) -> Self {
        Self { what: what.into(), expected: expected.to_string(), got: got.to_string() }
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: expected {}, got {}", self.what, self.expected, self.got)
    }
}

impl From<Vec<Difference>> for Verdict {
    fn from(differences: Vec<Difference>) -> Self {
        if differences.is_empty() { Self::Passed } else { Self::Failed(differences) }
    }
}

/// A part of the product that a case exercises beyond the common ones, so that failures can be sorted by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    Dra,
    Numa,
    PodAffinity,
    Topology,
}

impl Part {
    /// Parts that the product does not have yet, and why a case that needs one is skipped if it fails.
    pub fn not_built(self) -> Option<&'static str> {
        match self {
            Self::Dra | Self::Numa | Self::PodAffinity | Self::Topology => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Dra => "dra",
            Self::Numa => "numa",
            Self::PodAffinity => "pod affinity",
            Self::Topology => "topology",
        }
    }
}
