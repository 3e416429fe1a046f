//! Follows all objects of a kind, across lost connections and expired versions. Components of one process share a watch
//! a kind: what the API server sends, and we decrypt and parse, is most of what watching costs.

mod audience;
mod condition;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::TryStreamExt as _;
use kai_control::Key;
use kube::api::{Api, ApiResource};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::raw::{Contents, Raw};
use audience::{Member, feed};
pub(crate) use condition::Condition;

/// A kind to follow.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Watched {
    pub(crate) resource: ApiResource,
    pub(crate) condition: Condition,
}

/// What a watch shows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    Applied(Arc<Value>),
    Deleted(Key),
    /// Everything there is, at the start, after every gap and when others begin to follow the kind, and what is there no
    /// longer.
    Listed {
        all: Vec<Arc<Value>>,
        gone: Vec<Key>,
    },
}

impl Watched {
    pub(crate) fn all<K: Resource<DynamicType = ()>>() -> Self {
        Self::with::<K>(Condition::default())
    }

    pub(crate) fn with<K: Resource<DynamicType = ()>>(condition: Condition) -> Self {
        Self { resource: ApiResource::erase::<K>(&()), condition }
    }
}

/// The watches of a process.
#[derive(Clone)]
pub(crate) struct Watches {
    client: Client,
    /// Whether several components follow the same kinds.
    shared: bool,
    /// A watch ends when all who joined it have left.
    open: Arc<Mutex<Vec<Open>>>,
}

/// What is watched, and how to join.
type Open = (Watched, mpsc::WeakUnboundedSender<Member>);

/// Components that start within this time have one list made for all.
const SETTLE: Duration = Duration::from_millis(100);

/// How far a component may be behind before others wait for it: the scheduler takes nothing during a cycle, which may
/// be a second in which thousands of pods change. More than a few thousand objects should not pile up in memory; then
/// all wait, and the API server with them, as it does for a process that follows alone.
const BACKLOG: usize = 4096;

impl Watches {
    pub(crate) fn new(client: Client, shared: bool) -> Self {
        Self { client, shared, open: Arc::default() }
    }

    /// What is seen from now on, and what keeps the watch open.
    fn join(&self, watched: Watched) -> (mpsc::Receiver<Seen>, mpsc::UnboundedSender<Member>) {
        let (out, seen) = mpsc::channel(if self.shared { BACKLOG } else { 1 });
        let member = Member::new(watched.condition.clone(), out);
        let source = self.source(watched);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, join)| join.strong_count() > 0);
        let known = open.iter().find(|(other, _)| *other == source).and_then(|(_, join)| join.upgrade());
        let join = known.unwrap_or_else(|| {
            let (join, newcomers) = mpsc::unbounded_channel();
            open.push((source.clone(), join.downgrade()));
            tokio::spawn(self.watch(source, newcomers));
            join
        });
        drop(open);
        // It listens for as long as anybody could join.
        let _ = join.send(member);
        (seen, join)
    }

    /// What to watch for somebody who wants to see this. Nobody shares a watch of one object; nor would one want to see
    /// all config maps for one of them.
    fn source(&self, watched: Watched) -> Watched {
        if self.shared && !watched.condition.names_one() {
            Watched { condition: Condition::default(), ..watched }
        } else {
            watched
        }
    }

    fn watch(
        &self,
        Watched { resource, condition }: Watched,
        newcomers: mpsc::UnboundedReceiver<Member>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let selector = condition.selector();
        let contents = if selector.is_some() { Contents::Wanted } else { Contents::NobodysBusiness };
        let config = selector.iter().fold(watcher::Config::default(), |config, fields| config.fields(fields));
        let api: Api<Raw> = Api::all_with(self.client.clone(), &resource);
        let settle = if self.shared { SETTLE } else { Duration::ZERO };
        let kind = resource.kind.clone();
        let open = move || {
            let kind = kind.clone();
            let events = watcher(api.clone(), config.clone()).default_backoff();
            // It goes on by itself, more and more slowly.
            events.inspect_err(move |error| tracing::warn!(kind, %error, "watch was interrupted"))
        };
        feed(newcomers, settle, move |object| object.into_value(&resource, contents), open)
    }
}

/// Tells everything that is seen, until nobody listens any more.
pub(crate) async fn follow<T>(watches: Watches, watched: Watched, out: mpsc::Sender<T>, news: impl Fn(Seen) -> T + Send)
where
    T: Send,
{
    let (mut seen, _stay) = watches.join(watched);
    while let Some(seen) = seen.recv().await {
        if out.send(news(seen)).await.is_err() {
            return;
        }
    }
}
