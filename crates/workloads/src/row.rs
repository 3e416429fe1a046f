//! What a row of the table of workload kinds has.

use crate::error::GroupError;
use crate::group::GroupSpec;
use crate::workload::Workload;

pub type Rule = fn(&Workload<'_>) -> Result<GroupSpec, GroupError>;

/// A correction after the rule, where `kai` does more than NVIDIA KAI.
pub type PostProcess = fn(&Workload<'_>, &mut GroupSpec) -> Result<(), GroupError>;

#[derive(Clone, Copy)]
pub struct Row {
    pub group: &'static str,
    /// Exact versions, or [`ANY`].
    pub versions: &'static [&'static str],
    pub kind: &'static str,
    pub rule: Rule,
    pub post_process: Option<PostProcess>,
    /// Kinds the rule asks [`crate::ClusterReader`] for, beside priority classes.
    pub related: &'static [Kind],
    /// Whether the shipped role may read it.
    pub readable: bool,
    pub about: RuleDoc,
}

/// What a rule does, for people who read the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleDoc {
    /// What gets a pod group of its own.
    pub group: &'static str,
    /// How many pods start together.
    pub minimum: &'static str,
    pub sub_groups: &'static str,
    /// Priority class of those that do not say.
    pub class: &'static str,
}

/// A kind as permissions and watches name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
}

pub const ANY: &[&str] = &["*"];

pub(crate) const fn row(
    group: &'static str,
    versions: &'static [&'static str],
    kind: &'static str,
    rule: Rule,
    about: RuleDoc,
) -> Row {
    Row { group, versions, kind, rule, post_process: None, related: &[], readable: true, about }
}

impl Row {
    pub(crate) const fn reads(mut self, related: &'static [Kind]) -> Self {
        self.related = related;
        self
    }

    /// Administrators who run it add the permission themselves.
    pub(crate) const fn not_readable(mut self) -> Self {
        self.readable = false;
        self
    }

    pub(crate) const fn post_process(mut self, post_process: PostProcess) -> Self {
        self.post_process = Some(post_process);
        self
    }

    pub fn apply(&self, workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
        let mut spec = (self.rule)(workload)?;
        if let Some(post_process) = self.post_process {
            post_process(workload, &mut spec)?;
        }
        Ok(spec)
    }

    pub(crate) fn is_exactly(&self, workload: &Workload<'_>) -> bool {
        self.names(workload) && self.versions.contains(&workload.object.version())
    }

    pub(crate) fn is_any_version(&self, workload: &Workload<'_>) -> bool {
        self.names(workload) && self.versions == ANY
    }

    fn names(&self, workload: &Workload<'_>) -> bool {
        self.kind == workload.object.kind && self.group == workload.object.group()
    }
}
