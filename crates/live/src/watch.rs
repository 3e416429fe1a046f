//! Watches of kinds, across lost connections and expired versions. Components of one process share a watch per kind: what
//! the API server sends, and is decrypted and parsed here, is most of the cost of a watch.
//!
//! What client-go calls a `SharedInformerFactory`, without the store: each component keeps what it needs. kube's
//! `reflector::store_shared` keeps whole objects, and tells its subscribers of neither deletions nor relists.

mod fan_out;
mod resume;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kai_control::controller::{FieldSelector, WatchSpec, WatchUpdate};
use kube::Client;
use kube::api::Api;
use kube::runtime::watcher;
use tokio::sync::mpsc;

use crate::api_metrics::ApiMetrics;
use crate::api_resource::resource;
use crate::stripped_object::{ConfigMapData, StrippedObject};
use fan_out::{Subscriber, fan_out};
use resume::resume;

/// The watches of a process.
#[derive(Clone)]
pub(crate) struct SharedWatches {
    client: Client,
    metrics: ApiMetrics,
    /// Whether several components may watch the same kinds.
    shared: bool,
    /// A watch ends when its last subscriber has left.
    active: Arc<Mutex<Vec<ActiveWatch>>>,
}

/// What is watched, and how to subscribe.
type ActiveWatch = (WatchSpec, mpsc::WeakUnboundedSender<Subscriber>);

/// Components that start within this time share one list.
const SUBSCRIBE_WINDOW: Duration = Duration::from_millis(100);

/// How far a component may be behind before others wait for it: the scheduler receives nothing during a cycle, which may
/// be a second in which thousands of pods change. More than a few thousand objects should not pile up in memory; then
/// all wait, and the API server with them, as it does for a process with one component.
const CHANNEL_CAPACITY: usize = 4096;

impl SharedWatches {
    pub(crate) fn new(client: Client, metrics: ApiMetrics, shared: bool) -> Self {
        Self { client, metrics, shared, active: Arc::default() }
    }

    /// Updates from now on, and what keeps the watch open.
    fn subscribe(&self, spec: WatchSpec) -> (mpsc::Receiver<WatchUpdate>, mpsc::UnboundedSender<Subscriber>) {
        let (out, updates) = mpsc::channel(if self.shared { CHANNEL_CAPACITY } else { 1 });
        let subscriber = Subscriber::new(spec.selector.clone(), out);
        let spec = self.shared_spec(spec);
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        active.retain(|(_, subscribe)| subscribe.strong_count() > 0);
        let found = active.iter().find(|(other, _)| *other == spec).and_then(|(_, subscribe)| subscribe.upgrade());
        let subscribe = found.unwrap_or_else(|| {
            let (subscribe, new_subscribers) = mpsc::unbounded_channel();
            active.push((spec.clone(), subscribe.downgrade()));
            tokio::spawn(self.watch(spec, new_subscribers));
            subscribe
        });
        drop(active);
        // The watch accepts subscribers for as long as there is a sender.
        let _ = subscribe.send(subscriber);
        (updates, subscribe)
    }

    /// The watch that serves this spec. Watches of single objects are not shared: they would cost a watch of all.
    fn shared_spec(&self, spec: WatchSpec) -> WatchSpec {
        if self.shared && !spec.selector.selects_one_object() {
            WatchSpec { selector: FieldSelector::default(), ..spec }
        } else {
            spec
        }
    }

    fn watch(
        &self,
        WatchSpec { kind, selector }: WatchSpec,
        new_subscribers: mpsc::UnboundedReceiver<Subscriber>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (query, resource) = (selector.query(), resource(kind));
        let data = if query.is_some() { ConfigMapData::Keep } else { ConfigMapData::Drop };
        let config = query.iter().fold(watcher::Config::default(), |config, fields| config.fields(fields));
        let api: Api<StrippedObject> = Api::all_with(self.client.clone(), &resource);
        let window = if self.shared { SUBSCRIBE_WINDOW } else { Duration::ZERO };
        let metrics = self.metrics.clone();
        let open = move || {
            let (kind, metrics) = (kind.name(), metrics.clone());
            resume(watcher(api.clone(), config.clone()), move |delay, error| {
                tracing::warn!(kind, ?delay, %error, "watch interrupted, resuming after a delay");
                metrics.watch_restarted(kind);
            })
        };
        fan_out(new_subscribers, window, move |object| object.into_value(&resource, data), open)
    }
}

/// Forwards the updates of a watch, until the receiver is dropped.
pub(crate) async fn forward_updates<T>(
    watches: SharedWatches,
    spec: WatchSpec,
    out: mpsc::Sender<T>,
    input: impl Fn(WatchUpdate) -> T + Send,
) where
    T: Send,
{
    let (mut updates, _keep_open) = watches.subscribe(spec);
    while let Some(update) = updates.recv().await {
        let is_list = matches!(update, WatchUpdate::Relisted { .. });
        if out.send(input(update)).await.is_err() {
            return;
        }
        // Until the component has taken it, so that the next list is not begun before.
        if is_list && out.reserve_many(out.max_capacity()).await.is_err() {
            return;
        }
    }
}
