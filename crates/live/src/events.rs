//! Events: short notes on objects, for people who describe them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kai_control::Key;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::sync::Semaphore;

use crate::writer::Writer;

#[derive(Clone)]
pub(crate) struct Events {
    writer: Writer,
    component: String,
    room: Arc<Semaphore>,
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
        Self { writer: writer.for_words(), component: component.into(), room: Arc::new(Semaphore::new(WAITING_MAX)) }
    }

    /// Leaves a note, some time soon.
    pub(crate) fn tell(&self, note: Note) {
        let reason = note.reason;
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            tracing::debug!(reason, "too many events wait already");
            return;
        };
        let event = self.event(note);
        let writer = self.writer.clone();
        self.writer.spawn(async move {
            let namespace = event.metadata.namespace.clone().unwrap_or_default();
            let api: Api<Event> = Api::namespaced(writer.client.clone(), &namespace);
            if let Err(error) = writer.call_once(api.create(&PostParams::default(), &event)).await {
                tracing::debug!(%error, reason, "an event was not written");
            }
            drop(room);
        });
    }

    fn event(&self, note: Note) -> Event {
        let Note { about, warning, reason, message, annotations } = note;
        let now = jiff::Timestamp::now();
        // Objects without a namespace have their events in the default one.
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let name = format!("{}.{:x}", about.name.as_deref().unwrap_or_default(), now.as_nanosecond());
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
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..Event::default()
        }
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
}
