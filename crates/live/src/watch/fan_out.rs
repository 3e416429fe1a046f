//! One watch, many subscribers: objects are received once, and each subscriber gets those that its selector matches.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kai_control::Key;
use kai_control::controller::{FieldSelector, WatchUpdate, WatchView};
use kube::runtime::watcher::{self, Event};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::stripped_object::StrippedObject;

/// A component that watches a kind.
#[derive(Debug)]
pub(super) struct Subscriber {
    view: WatchView,
    out: mpsc::Sender<WatchUpdate>,
}

impl Subscriber {
    pub(super) fn new(selector: FieldSelector, out: mpsc::Sender<WatchUpdate>) -> Self {
        Self { view: WatchView::new(selector), out }
    }
}

/// Forwards one watch to all subscribers, until the last has left. `open` begins the watch, with a list. For those who
/// subscribe after the list it begins again, and all subscribers get the new list: nothing is stored for late subscribers.
pub(super) async fn fan_out<S>(
    mut new_subscribers: mpsc::UnboundedReceiver<Subscriber>,
    window: Duration,
    read: impl Fn(StrippedObject) -> Value,
    open: impl Fn() -> S,
) where
    S: Stream<Item = watcher::Result<Event<StrippedObject>>>,
{
    let read = |object| {
        let value = read(object);
        (Arc::new(Key::of(&value)), Arc::new(value))
    };
    let Some(first) = new_subscribers.recv().await else { return };
    let mut subscribers = vec![first];
    loop {
        // Others subscribe at about the same time, and one list is enough for all of them.
        tokio::time::sleep(window).await;
        let mut events = std::pin::pin!(open());
        // What was listed so far, until the list is complete.
        let mut listing = Some(Vec::new());
        loop {
            let event = tokio::select! {
                biased;
                new_subscriber = new_subscribers.recv() => {
                    let Some(new_subscriber) = new_subscriber else { return };
                    subscribers.push(new_subscriber);
                    if listing.is_none() {
                        break;
                    }
                    continue;
                }
                event = events.next() => event,
            };
            match event {
                Some(Ok(Event::Init)) => {
                    // A list is everything there is of a kind, and so may be the one before. Of a watch that starts over
                    // again and again, a component that is slow has one list, not all of them.
                    wait_for_all(&mut subscribers).await;
                    listing = Some(Vec::new());
                }
                Some(Ok(Event::InitApply(object))) => listing.get_or_insert_default().push(read(object)),
                Some(Ok(Event::InitDone)) => {
                    let everything = listing.take().unwrap_or_default();
                    broadcast(&mut subscribers, |subscriber| {
                        Some(subscriber.view.relist(everything.iter().map(|(key, value)| (key, value))))
                    })
                    .await;
                }
                Some(Ok(Event::Apply(object))) => {
                    let (key, value) = read(object);
                    broadcast(&mut subscribers, |subscriber| subscriber.view.apply(&key, &value)).await;
                }
                Some(Ok(Event::Delete(object))) => {
                    let (key, _) = read(object);
                    broadcast(&mut subscribers, |subscriber| subscriber.view.delete(&key)).await;
                }
                // The watcher resumes by itself.
                Some(Err(_)) => {}
                None => return,
            }
        }
    }
}

/// Subscribers that have left are removed. All wait for one whose channel is full.
async fn broadcast(subscribers: &mut Vec<Subscriber>, update: impl Fn(&mut Subscriber) -> Option<WatchUpdate>) {
    for place in (0..subscribers.len()).rev() {
        let subscriber = &mut subscribers[place];
        if let Some(update) = update(subscriber)
            && subscriber.out.send(update).await.is_err()
        {
            subscribers.remove(place);
        }
    }
}

/// Waits until the subscribers have taken all updates so far.
async fn wait_for_all(subscribers: &mut Vec<Subscriber>) {
    for place in (0..subscribers.len()).rev() {
        let out = &subscribers[place].out;
        if out.reserve_many(out.max_capacity()).await.is_err() {
            subscribers.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::stream;
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::ApiResource;
    use serde_json::json;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::stripped_object::ConfigMapData;

    /// A watch without an API server.
    struct Fake {
        subscribe: mpsc::UnboundedSender<Subscriber>,
        /// Events of the next watch to be opened, then of the one that is open.
        events: mpsc::UnboundedSender<Event<StrippedObject>>,
        opened: Arc<AtomicUsize>,
        fan_out: JoinHandle<()>,
    }

    const SOON: Duration = Duration::from_millis(20);

    fn raw(value: Value) -> StrippedObject {
        serde_json::from_value(value).unwrap()
    }

    fn pod(name: &str, scheduler: &str) -> Value {
        let metadata = json!({"namespace": "lab", "name": name});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"schedulerName": scheduler}})
    }

    fn read(object: StrippedObject) -> Value {
        object.into_value(&ApiResource::erase::<Pod>(&()), ConfigMapData::Keep)
    }

    impl Fake {
        fn start() -> Self {
            let (subscribe, new_subscribers) = mpsc::unbounded_channel();
            let (events, source) = mpsc::unbounded_channel();
            let (source, opened) = (Arc::new(tokio::sync::Mutex::new(source)), Arc::new(AtomicUsize::new(0)));
            let count = Arc::clone(&opened);
            let open = move || -> Pin<Box<dyn Stream<Item = watcher::Result<Event<StrippedObject>>> + Send>> {
                count.fetch_add(1, Ordering::SeqCst);
                let source = Arc::clone(&source);
                Box::pin(stream::unfold(source, |source| async {
                    let event = source.lock().await.recv().await?;
                    Some((Ok(event), source))
                }))
            };
            let fan_out = tokio::spawn(fan_out(new_subscribers, SOON, read, open));
            Self { subscribe, events, opened, fan_out }
        }

        fn subscribe(&self, selector: FieldSelector, capacity: usize) -> mpsc::Receiver<WatchUpdate> {
            let (out, updates) = mpsc::channel(capacity);
            self.subscribe.send(Subscriber::new(selector, out)).unwrap();
            updates
        }

        fn list(&self, pods: &[Value]) {
            let all = pods.iter().map(|pod| Event::InitApply(raw(pod.clone())));
            for event in [Event::Init].into_iter().chain(all).chain([Event::InitDone]) {
                self.events.send(event).unwrap();
            }
        }

        fn apply(&self, pod: Value) {
            self.events.send(Event::Apply(raw(pod))).unwrap();
        }

        fn delete(&self, pod: Value) {
            self.events.send(Event::Delete(raw(pod))).unwrap();
        }

        fn opened(&self) -> usize {
            self.opened.load(Ordering::SeqCst)
        }
    }

    async fn next(updates: &mut mpsc::Receiver<WatchUpdate>) -> WatchUpdate {
        updates.recv().await.expect("the watch goes on")
    }

    fn relisted(objects: &[Value], removed: &[&str]) -> WatchUpdate {
        let objects = objects.iter().cloned().map(Arc::new).collect();
        WatchUpdate::Relisted { objects, removed: removed.iter().map(|name| Key::new("lab", *name)).collect() }
    }

    fn applied(pod: Value) -> WatchUpdate {
        WatchUpdate::Applied(Arc::new(pod))
    }

    fn deleted(name: &str) -> WatchUpdate {
        WatchUpdate::Deleted(Key::new("lab", name))
    }

    #[tokio::test]
    async fn subscribers_of_the_same_moment_share_a_list_and_its_objects() {
        let fake = Fake::start();
        let (mut one, mut two) =
            (fake.subscribe(FieldSelector::default(), 8), fake.subscribe(FieldSelector::default(), 8));
        fake.list(&[pod("a", "kai")]);
        let (WatchUpdate::Relisted { objects: ones, .. }, WatchUpdate::Relisted { objects: twos, .. }) =
            (next(&mut one).await, next(&mut two).await)
        else {
            panic!("not listed");
        };
        assert!(Arc::ptr_eq(&ones[0], &twos[0]));
        fake.apply(pod("b", "kai"));
        assert_eq!(next(&mut one).await, applied(pod("b", "kai")));
        assert_eq!(next(&mut two).await, applied(pod("b", "kai")));
        assert_eq!(fake.opened(), 1);
    }

    #[tokio::test]
    async fn a_late_subscriber_gets_everything_and_others_what_they_missed() {
        let fake = Fake::start();
        let mut one = fake.subscribe(FieldSelector::default(), 8);
        fake.list(&[pod("a", "kai"), pod("b", "kai")]);
        assert_eq!(next(&mut one).await, relisted(&[pod("a", "kai"), pod("b", "kai")], &[]));
        let (mut two, mut three) =
            (fake.subscribe(FieldSelector::default(), 8), fake.subscribe(FieldSelector::default(), 8));
        while fake.opened() < 2 {
            tokio::task::yield_now().await;
        }
        fake.list(&[pod("b", "kai"), pod("c", "kai")]);
        let now = [pod("b", "kai"), pod("c", "kai")];
        assert_eq!(next(&mut one).await, relisted(&now, &["a"]));
        assert_eq!(next(&mut two).await, relisted(&now, &[]), "nothing before everything");
        assert_eq!(next(&mut three).await, relisted(&now, &[]));
        assert_eq!(fake.opened(), 2);
    }

    #[tokio::test]
    async fn each_subscriber_gets_what_its_selector_matches() {
        let fake = Fake::start();
        let mut all = fake.subscribe(FieldSelector::default(), 8);
        let mut ours = fake.subscribe(FieldSelector::scheduler("kai"), 8);
        fake.list(&[pod("a", "kai"), pod("b", "other")]);
        assert_eq!(next(&mut ours).await, relisted(&[pod("a", "kai")], &[]));
        fake.apply(pod("b", "third"));
        fake.apply(pod("a", "other"));
        fake.delete(pod("a", "other"));
        fake.delete(pod("b", "third"));
        fake.apply(pod("c", "kai"));
        assert_eq!(next(&mut ours).await, deleted("a"));
        assert_eq!(next(&mut ours).await, applied(pod("c", "kai")), "it never knew of the other one");
        let mut changes = Vec::new();
        for _ in 0..6 {
            changes.push(next(&mut all).await);
        }
        fake.list(&[pod("c", "other")]);
        assert_eq!(next(&mut ours).await, relisted(&[], &["c"]));
        changes.push(next(&mut all).await);
        let want = [
            relisted(&[pod("a", "kai"), pod("b", "other")], &[]),
            applied(pod("b", "third")),
            applied(pod("a", "other")),
            deleted("a"),
            deleted("b"),
            applied(pod("c", "kai")),
            relisted(&[pod("c", "other")], &[]),
        ];
        assert_eq!(changes, want);
    }

    #[tokio::test]
    async fn others_go_on_while_one_is_slow() {
        let fake = Fake::start();
        let (mut quick, mut slow) =
            (fake.subscribe(FieldSelector::default(), 1), fake.subscribe(FieldSelector::default(), 8));
        fake.list(&[]);
        for _ in 0..7 {
            fake.apply(pod("a", "kai"));
        }
        for _ in 0..8 {
            assert!(quick.recv().await.is_some());
        }
        assert_eq!(next(&mut slow).await, relisted(&[], &[]), "and misses nothing");
        for _ in 0..7 {
            assert_eq!(next(&mut slow).await, applied(pod("a", "kai")));
        }
    }

    #[tokio::test]
    async fn a_slow_subscriber_of_a_watch_that_starts_over_and_over_has_one_list() {
        let fake = Fake::start();
        let mut slow = fake.subscribe(FieldSelector::default(), 8);
        fake.list(&[pod("a", "kai")]);
        for _ in 0..50 {
            fake.list(&[pod("b", "kai")]);
        }
        tokio::time::sleep(SOON * 3).await;
        assert_eq!(slow.len(), 1, "others are not even requested");
        assert_eq!(next(&mut slow).await, relisted(&[pod("a", "kai")], &[]));
        assert_eq!(next(&mut slow).await, relisted(&[pod("b", "kai")], &["a"]));
        for _ in 1..50 {
            assert_eq!(next(&mut slow).await, relisted(&[pod("b", "kai")], &[]));
        }
    }

    #[tokio::test]
    async fn a_watch_goes_on_for_those_who_stay_and_ends_with_the_last() {
        let fake = Fake::start();
        let (mut one, two) = (fake.subscribe(FieldSelector::default(), 8), fake.subscribe(FieldSelector::default(), 8));
        fake.list(&[]);
        assert!(one.recv().await.is_some());
        drop(two);
        for name in ["a", "b"] {
            fake.apply(pod(name, "kai"));
            assert_eq!(next(&mut one).await, applied(pod(name, "kai")));
        }
        drop(fake.subscribe);
        fake.fan_out.await.unwrap();
        assert!(one.recv().await.is_none());
    }
}
