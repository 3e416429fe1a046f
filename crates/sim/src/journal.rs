//! What happened, in order: the raw material of the timeline.

use std::collections::{BTreeMap, BTreeSet};

use kai_engine::units::{Span, Timestamp};

use crate::manifest::{Id, Kind};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Since the start.
    pub(crate) at: Span,
    pub(crate) event: Event,
    /// To whom.
    pub(crate) subject: Id,
    pub(crate) node: Option<String>,
    pub(crate) why: String,
}

/// Kinds of things that happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A workload or pod was created by its user, or by the controller that replaces a lost pod.
    Submit,
    /// A pod runs already when the simulation begins.
    Run,
    /// A pod was given to a node.
    Bind,
    /// A pod will get a node once others have left it.
    Pipelined,
    /// A job cannot be placed now.
    Wait,
    /// A pod was removed to make room, or because its gang is broken.
    Evict,
    /// A pod was removed to make room, and has another place waiting for it.
    Move,
    /// A pod has done its work, or a job all of it.
    Finish,
    /// A pod was lost with its node.
    Lost,
    /// An object was deleted by its user.
    Delete,
    /// A workload was given another size.
    Scale,
    /// A node failed, or was taken away.
    NodeDown,
    /// A node came, or came back.
    NodeUp,
    /// Something cannot be used as it is written.
    Warn,
}

impl Event {
    /// One word, as printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Run => "run",
            Self::Bind => "bind",
            Self::Pipelined => "pipelined",
            Self::Wait => "wait",
            Self::Evict => "evict",
            Self::Move => "move",
            Self::Finish => "finish",
            Self::Lost => "lost",
            Self::Delete => "delete",
            Self::Scale => "scale",
            Self::NodeDown => "node-down",
            Self::NodeUp => "node-up",
            Self::Warn => "warn",
        }
    }
}

/// The record of a run.
#[derive(Debug)]
pub(crate) struct Journal {
    start: Timestamp,
    entries: Vec<Entry>,
    /// The last entry about a subject, for events that every cycle repeats.
    last_entries: BTreeMap<(Event, Id), String>,
}

impl Journal {
    pub(crate) fn new(start: Timestamp) -> Self {
        Self { start, entries: Vec::new(), last_entries: BTreeMap::new() }
    }

    pub(crate) fn start(&self) -> Timestamp {
        self.start
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// All entries so far; the journal goes on without them.
    pub(crate) fn take(&mut self) -> Vec<Entry> {
        self.last_entries.clear();
        std::mem::take(&mut self.entries)
    }

    pub(crate) fn add(&mut self, now: Timestamp, event: Event, subject: &Id, node: Option<&str>, why: String) {
        if subject.kind == Kind::Pod
            && matches!(event, Event::Bind | Event::Evict | Event::Move | Event::Lost | Event::Delete)
        {
            // The pod is not pipelined any more.
            self.last_entries.remove(&(Event::Pipelined, subject.clone()));
        }
        self.entries.push(Entry {
            at: now.since(self.start),
            event,
            subject: subject.clone(),
            node: node.map(str::to_owned),
            why,
        });
    }

    /// Adds an entry that every cycle repeats, unless it has not changed: a person reads it once. Equal `dedup_key`s mean
    /// that nothing has changed.
    pub(crate) fn add_if_changed(
        &mut self,
        now: Timestamp,
        event: Event,
        subject: &Id,
        node: Option<&str>,
        dedup_key: &str,
        why: String,
    ) {
        if self.has_changed(event, subject, dedup_key) {
            self.add(now, event, subject, node, why);
            self.last_entries.insert((event, subject.clone()), dedup_key.to_owned());
        }
    }

    /// Whether this differs from the last entry.
    pub(crate) fn has_changed(&self, event: Event, subject: &Id, dedup_key: &str) -> bool {
        self.last_entries.get(&(event, subject.clone())).is_none_or(|last| last != dedup_key)
    }

    /// Forgets what holds about a kind of event, except for those who were named again.
    pub(crate) fn retain(&mut self, event: Event, named: &BTreeSet<Id>) {
        self.last_entries.retain(|(kind, subject), _| *kind != event || named.contains(subject));
    }
}
