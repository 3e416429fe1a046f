//! Kubernetes events: short messages on objects, for `kubectl describe`. Repeated ones are counted on the stored event.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kai_control::controller::{NewEvent, Regarding};
use kube::api::{Api, ObjectMeta, Patch};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::api_error::status_code;
use crate::api_writer::{ApiWriter, PATCH, POST};

#[derive(Clone)]
pub(crate) struct EventRecorder {
    writer: ApiWriter,
    component: String,
    queue_slots: Arc<Semaphore>,
    correlator: Arc<Mutex<EventCorrelator>>,
}

/// Events that wait to be written. Further ones are dropped: they must not hold up binds.
const QUEUE_CAPACITY: usize = 10_000;

impl EventRecorder {
    pub(crate) fn new(writer: &ApiWriter, component: impl Into<String>) -> Self {
        Self {
            writer: writer.at_status_priority(),
            component: component.into(),
            queue_slots: Arc::new(Semaphore::new(QUEUE_CAPACITY)),
            correlator: Arc::default(),
        }
    }

    /// Queues an event to be written. The same event again is counted on the stored one.
    pub(crate) fn publish(&self, event: NewEvent) {
        let (reason, now) = (event.reason, Timestamp::now());
        let Ok(slot) = Arc::clone(&self.queue_slots).try_acquire_owned() else {
            tracing::debug!(reason, "event queue is full, dropping event");
            self.writer.metrics().event_dropped();
            return;
        };
        let due = self.correlator.lock().unwrap_or_else(PoisonError::into_inner).correlate(&event, now);
        let Some(Occurrence { name, first, count }) = due else { return };
        let event = Event { first_timestamp: Some(Time(first)), count: Some(count), ..self.event(event, name, now) };
        let writer = self.writer.clone();
        self.writer.spawn(move || async move {
            if let Err(error) = write(&writer, &event).await {
                tracing::debug!(%error, reason, "cannot write event");
            }
            drop(slot);
        });
    }

    fn event(&self, event: NewEvent, name: String, now: Timestamp) -> Event {
        let NewEvent { regarding, warning, reason, message, annotations } = event;
        let regarding = reference(&regarding);
        // Objects without a namespace have their events in the default one.
        let namespace = regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace),
                annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
                ..ObjectMeta::default()
            },
            involved_object: regarding,
            type_: Some(if warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(shortened(message)),
            source: Some(EventSource { component: Some(self.component.clone()), ..EventSource::default() }),
            reporting_component: Some(self.component.clone()),
            last_timestamp: Some(Time(now)),
            ..Event::default()
        }
    }
}

/// Creates the event, or counts on the one that is there. The API server forgets events after a while.
async fn write(writer: &ApiWriter, event: &Event) -> Result<(), kube::Error> {
    let ObjectMeta { name, namespace, .. } = &event.metadata;
    let (name, namespace) = (name.as_deref().unwrap_or_default(), namespace.as_deref().unwrap_or_default());
    let api: Api<Event> = Api::namespaced(writer.client.clone(), namespace);
    if event.count > Some(1) {
        let again = Patch::Merge(json!({"count": event.count, "lastTimestamp": event.last_timestamp}));
        match writer.call_once(api.patch(name, &PATCH, &again)).await {
            Err(error) if status_code(&error) == Some(404) => {}
            done => return done.map(|_| ()),
        }
    }
    writer.call_once(api.create(&POST, event)).await.map(|_| ())
}

/// Recent events: what fails once a second has one event with a count, not thousands.
#[derive(Debug, Default)]
struct EventCorrelator(BTreeMap<EventKey, Aggregate>);

/// What makes two events the same.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EventKey {
    /// The uid of the object, or its name if it has none.
    regarding: String,
    reason: &'static str,
    /// A hash, to keep few bytes.
    message: u64,
}

#[derive(Debug)]
struct Aggregate {
    event: Occurrence,
    last: Timestamp,
    written: Timestamp,
}

/// A stored event: its name, when it first occurred, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Occurrence {
    name: String,
    first: Timestamp,
    count: i32,
}

/// Between updates of the count on a stored event.
const COUNT_UPDATE_INTERVAL: SignedDuration = SignedDuration::from_secs(10);
/// After this without a repetition, the same event is a new one.
const DEDUP_WINDOW: SignedDuration = SignedDuration::from_mins(10);
const CACHE_CAPACITY: usize = 10_000;

impl EventCorrelator {
    /// Counts the event; returns what to write, if anything.
    fn correlate(&mut self, event: &NewEvent, now: Timestamp) -> Option<Occurrence> {
        let Regarding { key, uid, .. } = &event.regarding;
        let name = key.name.as_str();
        let mut message = DefaultHasher::new();
        event.message.hash(&mut message);
        let subject = EventKey {
            regarding: if uid.is_empty() { name.to_owned() } else { uid.clone() },
            reason: event.reason,
            message: message.finish(),
        };
        // After a clock was set back, everything counts as new.
        let since = |earlier: Timestamp, period: SignedDuration| {
            (SignedDuration::ZERO..period).contains(&now.duration_since(earlier))
        };
        if let Some(known) = self.0.get_mut(&subject).filter(|known| since(known.last, DEDUP_WINDOW)) {
            known.last = now;
            known.event.count = known.event.count.saturating_add(1);
            if since(known.written, COUNT_UPDATE_INTERVAL) {
                return None;
            }
            known.written = now;
            return Some(known.event.clone());
        }
        if self.0.len() >= CACHE_CAPACITY {
            self.0.retain(|_, known| since(known.last, COUNT_UPDATE_INTERVAL));
        }
        let event = Occurrence { name: format!("{name}.{:x}", now.as_nanosecond()), first: now, count: 1 };
        if self.0.len() < CACHE_CAPACITY {
            self.0.insert(subject, Aggregate { event: event.clone(), last: now, written: now });
        }
        Some(event)
    }
}

/// The API server rejects messages of more than a kilobyte.
fn shortened(mut message: String) -> String {
    const LENGTH_MAX: usize = 1024;
    if message.len() > LENGTH_MAX {
        let end = (0..=LENGTH_MAX - 4).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    message
}

/// Points at an object.
fn reference(Regarding { kind, key, uid }: &Regarding) -> ObjectReference {
    let row = kind.row();
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ObjectReference {
        api_version: text(row.api_version),
        kind: text(row.name),
        namespace: text(&key.namespace),
        name: text(&key.name),
        uid: text(uid),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kai_control::{Key, Kind};

    use super::*;

    #[test]
    fn long_messages_are_cut_between_characters() {
        assert_eq!(shortened("short".to_owned()), "short");
        let cut = shortened("ä".repeat(600));
        assert!(cut.len() <= 1024 && cut.ends_with('…'), "{}", cut.len());
    }

    #[test]
    fn repeated_events_are_counted_and_not_written_every_time() {
        let event = |message: &str| NewEvent {
            regarding: Regarding { kind: Kind::Pod, key: Key::new("lab", "p"), uid: "u".to_owned() },
            warning: true,
            reason: "BindingError",
            message: message.to_owned(),
            annotations: BTreeMap::new(),
        };
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut correlator = EventCorrelator::default();
        let first = correlator.correlate(&event("no room"), at(100)).unwrap();
        assert_eq!((first.count, first.first), (1, at(100)));
        assert_eq!(correlator.correlate(&event("no room"), at(101)), None);
        let other = correlator.correlate(&event("no node"), at(102)).unwrap();
        assert_eq!(other.count, 1);
        assert_ne!(other.name, first.name);
        assert_eq!(correlator.correlate(&event("no room"), at(110)), Some(Occurrence { count: 3, ..first.clone() }));
        assert_eq!(correlator.correlate(&event("no room"), at(119)), None);
        assert_eq!(
            correlator.correlate(&event("no room"), at(719)).map(|event| event.count),
            Some(1),
            "forgotten by then"
        );
    }
}
