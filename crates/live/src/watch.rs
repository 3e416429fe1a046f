//! Follows all objects of a kind, across lost connections and expired versions.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use kai_control::Key;
use kube::api::{Api, ApiResource};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::raw::{Contents, Raw};

/// A kind to follow.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) resource: ApiResource,
    /// Field selector, such as `spec.schedulerName=kai-scheduler`.
    pub(crate) fields: Option<String>,
}

/// What a watch shows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    Applied(Value),
    Deleted(Key),
    /// Everything there is, at the start and after every gap, and what is there no longer.
    Listed {
        all: Vec<Value>,
        gone: Vec<Key>,
    },
}

impl Watched {
    pub(crate) fn all<K: Resource<DynamicType = ()>>() -> Self {
        Self { resource: ApiResource::erase::<K>(&()), fields: None }
    }

    pub(crate) fn with<K: Resource<DynamicType = ()>>(fields: String) -> Self {
        Self { fields: Some(fields), ..Self::all::<K>() }
    }
}

/// Tells everything that is seen, until nobody listens any more.
pub(crate) async fn follow<T>(client: Client, watched: Watched, out: mpsc::Sender<T>, news: impl Fn(Seen) -> T + Send)
where
    T: Send,
{
    let Watched { resource, fields } = watched;
    let config = fields.iter().fold(watcher::Config::default(), |config, fields| config.fields(fields));
    let api: Api<Raw> = Api::all_with(client, &resource);
    let mut events = std::pin::pin!(watcher(api, config).default_backoff());
    let contents = if fields.is_some() { Contents::Wanted } else { Contents::NobodysBusiness };
    let mut listed = Vec::new();
    let mut names = BTreeSet::new();
    while let Some(event) = events.next().await {
        let seen = match event {
            Ok(watcher::Event::Init) => {
                listed = Vec::new();
                continue;
            }
            Ok(watcher::Event::InitApply(object)) => {
                listed.push(object.into_value(&resource, contents));
                continue;
            }
            Ok(watcher::Event::InitDone) => {
                let all = std::mem::take(&mut listed);
                let present: BTreeSet<Key> = all.iter().map(Key::of).collect();
                let gone = names.difference(&present).cloned().collect();
                names = present;
                Seen::Listed { all, gone }
            }
            Ok(watcher::Event::Apply(object)) => {
                let value = object.into_value(&resource, contents);
                names.insert(Key::of(&value));
                Seen::Applied(value)
            }
            Ok(watcher::Event::Delete(object)) => {
                let key = Key::of(&object.into_value(&resource, contents));
                names.remove(&key);
                Seen::Deleted(key)
            }
            Err(error) => {
                // The watcher goes on by itself, more and more slowly.
                tracing::warn!(kind = resource.kind, %error, "watch was interrupted");
                continue;
            }
        };
        if out.send(news(seen)).await.is_err() {
            return;
        }
    }
}
