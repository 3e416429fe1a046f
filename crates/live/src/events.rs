//! Events: short notes on objects, for people who describe them.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kai_control::Key;
use kube::api::{Api, ObjectMeta, Patch};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::writer::{PATCH, POST, Writer, code};

#[derive(Clone)]
pub(crate) struct Events {
    writer: Writer,
    component: String,
    room: Arc<Semaphore>,
    lately: Arc<Mutex<Lately>>,
}

/// What to tell about which object.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub(crate) about: ObjectReference,
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Notes that wait to be written. More than these are dropped: better no note than no room for binds.
const WAITING_MAX: usize = 10_000;

impl Events {
    pub(crate) fn new(writer: &Writer, component: impl Into<String>) -> Self {
        Self {
            writer: writer.for_words(),
            component: component.into(),
            room: Arc::new(Semaphore::new(WAITING_MAX)),
            lately: Arc::default(),
        }
    }

    /// Leaves a note, some time soon. The same note again is counted on the event that is there.
    pub(crate) fn tell(&self, note: Note) {
        let (reason, now) = (note.reason, Timestamp::now());
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            tracing::debug!(reason, "too many events wait already");
            return;
        };
        let told = self.lately.lock().unwrap_or_else(PoisonError::into_inner).tell(&note, now);
        let Some(Told { name, first, count }) = told else { return };
        let event = Event { first_timestamp: Some(Time(first)), count: Some(count), ..self.event(note, name, now) };
        let writer = self.writer.clone();
        self.writer.spawn(move || async move {
            if let Err(error) = write(&writer, &event).await {
                tracing::debug!(%error, reason, "an event was not written");
            }
            drop(room);
        });
    }

    fn event(&self, note: Note, name: String, now: Timestamp) -> Event {
        let Note { about, warning, reason, message, annotations } = note;
        // Objects without a namespace have their events in the default one.
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace),
                annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
                ..ObjectMeta::default()
            },
            involved_object: about,
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
async fn write(writer: &Writer, event: &Event) -> Result<(), kube::Error> {
    let ObjectMeta { name, namespace, .. } = &event.metadata;
    let (name, namespace) = (name.as_deref().unwrap_or_default(), namespace.as_deref().unwrap_or_default());
    let api: Api<Event> = Api::namespaced(writer.client.clone(), namespace);
    if event.count > Some(1) {
        let again = Patch::Merge(json!({"count": event.count, "lastTimestamp": event.last_timestamp}));
        match writer.call_once(api.patch(name, &PATCH, &again)).await {
            Err(error) if code(&error) == Some(404) => {}
            done => return done.map(|_| ()),
        }
    }
    writer.call_once(api.create(&POST, event)).await.map(|_| ())
}

/// What was told lately: whoever fails once a second has one event, not thousands.
#[derive(Debug, Default)]
struct Lately(BTreeMap<Subject, Repeated>);

/// Of an object: its uid, or its name if it has none.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    about: String,
    reason: &'static str,
    /// In few bytes.
    message: u64,
}

#[derive(Debug)]
struct Repeated {
    told: Told,
    last: Timestamp,
    written: Timestamp,
}

/// An event: its name, when it was first told, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    name: String,
    first: Timestamp,
    count: i32,
}

/// Between writes of a count.
const COUNT_PERIOD: SignedDuration = SignedDuration::from_secs(10);
/// After this it is news again.
const LATELY: SignedDuration = SignedDuration::from_mins(10);
const SUBJECTS_MAX: usize = 10_000;

impl Lately {
    /// What to write, if anything.
    fn tell(&mut self, note: &Note, now: Timestamp) -> Option<Told> {
        let name = note.about.name.as_deref().unwrap_or_default();
        let mut message = DefaultHasher::new();
        note.message.hash(&mut message);
        let subject = Subject {
            about: note.about.uid.clone().unwrap_or_else(|| name.to_owned()),
            reason: note.reason,
            message: message.finish(),
        };
        // A clock that was set back makes everything news.
        let since = |earlier: Timestamp, period: SignedDuration| {
            (SignedDuration::ZERO..period).contains(&now.duration_since(earlier))
        };
        if let Some(known) = self.0.get_mut(&subject).filter(|known| since(known.last, LATELY)) {
            known.last = now;
            known.told.count = known.told.count.saturating_add(1);
            if since(known.written, COUNT_PERIOD) {
                return None;
            }
            known.written = now;
            return Some(known.told.clone());
        }
        if self.0.len() >= SUBJECTS_MAX {
            self.0.retain(|_, known| since(known.last, COUNT_PERIOD));
        }
        let told = Told { name: format!("{name}.{:x}", now.as_nanosecond()), first: now, count: 1 };
        if self.0.len() < SUBJECTS_MAX {
            self.0.insert(subject, Repeated { told: told.clone(), last: now, written: now });
        }
        Some(told)
    }
}

/// The API server refuses messages of more than a kilobyte.
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
pub(crate) fn reference(api_version: &str, kind: &str, key: &Key, uid: &str) -> ObjectReference {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ObjectReference {
        api_version: text(api_version),
        kind: text(kind),
        namespace: text(&key.namespace),
        name: text(&key.name),
        uid: text(uid),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_between_characters() {
        assert_eq!(shortened("short".to_owned()), "short");
        let cut = shortened("ä".repeat(600));
        assert!(cut.len() <= 1024 && cut.ends_with('…'), "{}", cut.len());
    }

    #[test]
    fn what_is_told_again_is_counted_and_not_written_every_time() {
        let note = |message: &str| Note {
            about: reference("v1", "Pod", &Key::new("lab", "p"), "u"),
            warning: true,
            reason: "BindingError",
            message: message.to_owned(),
            annotations: BTreeMap::new(),
        };
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut lately = Lately::default();
        let first = lately.tell(&note("no room"), at(100)).unwrap();
        assert_eq!((first.count, first.first), (1, at(100)));
        assert_eq!(lately.tell(&note("no room"), at(101)), None);
        let other = lately.tell(&note("no node"), at(102)).unwrap();
        assert_eq!(other.count, 1);
        assert_ne!(other.name, first.name);
        assert_eq!(lately.tell(&note("no room"), at(110)), Some(Told { count: 3, ..first.clone() }));
        assert_eq!(lately.tell(&note("no room"), at(119)), None);
        assert_eq!(lately.tell(&note("no room"), at(719)).map(|told| told.count), Some(1), "it is news again");
    }
}
