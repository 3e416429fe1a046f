//! Work of controllers: API calls to be made, and what became of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kai_engine::units::Span;
use kai_workloads::ObjectRef;
use serde_json::Value;

use super::Skipped;
use crate::calls::{BindEffect, GroupEffect, PlannedWrite, Write};
use crate::key::{GroupKey, Key, PodKey};
use crate::kinds::Kind;

/// What a controller asks for, in the order in which it is to be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// For another controller of the process, before it is written: a watch shows it later.
    pub planned: Vec<PlannedWrite>,
    pub events: Vec<NewEvent>,
    /// What was left out, for the log.
    pub skipped: Vec<Skipped>,
    pub work: Vec<WorkItem>,
}

/// Calls about one object, made one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkItem<C = ApiCall> {
    pub key: WorkKey,
    pub calls: Vec<C>,
    pub on_error: OnError,
    pub priority: WritePriority,
    /// Calls from this position on are made at another priority: what waits for those before does not wait for them.
    pub tail: Option<(usize, WritePriority)>,
    /// How long it may be deferred for more urgent writes, if there is a limit.
    pub max_defer: Option<Span>,
    /// Queued status writes of these keys do not hold any more, nor do those of its own key if it is an action.
    pub supersedes: BTreeSet<WorkKey>,
}

/// What work is about: newer status writes of the same key replace older ones that have not begun.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkKey {
    Pod(PodKey),
    PodGroup(GroupKey),
    /// Times on a pod group, which are independent of its conditions.
    PodGroupTimestamps(GroupKey),
    BindRequest(Key),
    Queue(String),
    /// A GET of an object that is not watched.
    Object(ObjectRef),
    /// A shared GPU, or a batch of bind requests.
    CleanUp,
}

/// What a failed call means for those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    Stop,
    Continue,
}

/// The order in which writes of a process are made. Lower ones are deferred while higher ones are in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WritePriority {
    /// Lets pods start, or makes room for them.
    Action,
    /// First reason why a pod or group is pending.
    PendingReason,
    /// Everything else.
    Status,
}

/// One call to the API server. All can be made again without harm.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiCall {
    /// Reads an object that is not watched.
    Get(ObjectRef),
    Schedule(Write),
    Bind(BindEffect),
    Group(GroupEffect),
    /// A merge patch of a status.
    PatchStatus {
        kind: Kind,
        key: Key,
        patch: Value,
    },
    /// Creates the pod, and marks it as unschedulable, as autoscalers expect. That it exists already is as good.
    CreateScalingPod(Box<Value>),
    /// Deletes the pod. That it is gone already is as good.
    DeleteScalingPod(PodKey),
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The object is another one by now, or another version.
    Conflict(String),
    NotFound(String),
    Forbidden(String),
    /// The API server rejected it: nothing was done.
    Rejected(String),
    /// There was no reply: it may have been done all the same.
    Unknown(String),
    /// A more urgent item took its place: it was never made.
    Superseded,
}

/// What became of a work item.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkResult<C = ApiCall> {
    pub item: WorkItem<C>,
    /// Calls that were made, or tried where an error does not stop the rest.
    pub completed: usize,
    /// Those of them that failed.
    pub errors: BTreeMap<usize, CallError>,
    /// What a GET found.
    pub found: Option<Box<Value>>,
}

/// An event about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    pub regarding: Regarding,
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
    pub annotations: BTreeMap<String, String>,
}

/// The object of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regarding {
    pub kind: Kind,
    pub key: Key,
    pub uid: String,
}

impl<C> WorkItem<C> {
    pub fn new(key: WorkKey, calls: Vec<C>) -> Self {
        Self {
            key,
            calls,
            on_error: OnError::Stop,
            priority: WritePriority::Action,
            tail: None,
            max_defer: None,
            supersedes: BTreeSet::new(),
        }
    }

    /// The same about calls in another form.
    pub fn map_calls<D>(self, form: impl FnMut(C) -> D) -> WorkItem<D> {
        WorkItem {
            key: self.key,
            calls: self.calls.into_iter().map(form).collect(),
            on_error: self.on_error,
            priority: self.priority,
            tail: self.tail,
            max_defer: self.max_defer,
            supersedes: self.supersedes,
        }
    }
}

impl WorkItem {
    /// Whether it writes nothing.
    pub fn is_read(&self) -> bool {
        self.calls.iter().all(|call| matches!(call, ApiCall::Get(_)))
    }
}

impl<C> WorkResult<C> {
    /// Before any call was made.
    pub fn new(item: WorkItem<C>) -> Self {
        Self { item, completed: 0, errors: BTreeMap::new(), found: None }
    }

    pub fn map_calls<D>(self, form: impl FnMut(C) -> D) -> WorkResult<D> {
        let Self { item, completed, errors, found } = self;
        WorkResult { item: item.map_calls(form), completed, errors, found }
    }

    /// The call to make next. Nothing once the item has ended.
    pub fn next_call(&self) -> Option<&C> {
        let stopped = self.item.on_error == OnError::Stop && !self.errors.is_empty();
        self.item.calls.get(self.completed).filter(|_| !stopped)
    }

    /// At which priority the next call is to be made.
    pub fn next_priority(&self) -> WritePriority {
        self.item.tail.filter(|(from, _)| *from <= self.completed).map_or(self.item.priority, |(_, priority)| priority)
    }

    /// The next call was made, or failed.
    pub fn record(&mut self, reply: Result<Option<Value>, CallError>) {
        match reply {
            Ok(found) => {
                self.found = found.map(Box::new).or(self.found.take());
                self.completed += 1;
            }
            Err(error) => {
                self.errors.insert(self.completed, error);
                if self.item.on_error == OnError::Continue {
                    self.completed += 1;
                }
            }
        }
    }

    /// Calls that were made and did not fail.
    pub fn performed(&self) -> impl Iterator<Item = &C> {
        let made = self.item.calls.iter().enumerate().take(self.completed);
        made.filter(|(at, _)| !self.errors.contains_key(at)).map(|(_, call)| call)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(why)
            | Self::NotFound(why)
            | Self::Forbidden(why)
            | Self::Rejected(why)
            | Self::Unknown(why) => out.write_str(why),
            Self::Superseded => out.write_str("superseded by a more urgent write"),
        }
    }
}

/// In a line, for traces.
impl fmt::Display for ApiCall {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONG: usize = 200;
        let text = match self {
            Self::Get(object) => format!("Get {object}"),
            Self::Schedule(Write::CreateBindRequest(request)) => {
                let (name, spec) = (request.metadata.name.as_deref().unwrap_or_default(), &request.spec);
                format!("CreateBindRequest {name} to {} {:?}", spec.selected_node, spec.selected_gpu_groups)
            }
            Self::Schedule(Write::CreateBindBatch { batch, pods }) => {
                let pods: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
                format!("CreateBindBatch {} of {}", batch.metadata.name.as_deref().unwrap_or_default(), pods.join(" "))
            }
            Self::Bind(BindEffect::CreatePod(pod)) => {
                let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                format!(
                    "CreatePod {} {} on {}",
                    text("/metadata/name"),
                    pod["metadata"]["labels"],
                    text("/spec/nodeName")
                )
            }
            Self::Schedule(write) => format!("{write:?}"),
            Self::Bind(effect) => format!("{effect:?}"),
            Self::Group(effect) => format!("{effect:?}"),
            Self::PatchStatus { kind, key, patch } => format!("PatchStatus {} {key} {patch}", kind.name()),
            Self::CreateScalingPod(pod) => format!("CreateScalingPod {}", Key::of(pod)),
            Self::DeleteScalingPod(pod) => format!("DeleteScalingPod {pod}"),
        };
        out.write_str(&text.replace("Key { namespace: ", "").chars().take(LONG).collect::<String>())
    }
}

impl fmt::Display for WorkItem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls: Vec<String> = self.calls.iter().map(ToString::to_string).collect();
        out.write_str(&calls.join(" · "))
    }
}
