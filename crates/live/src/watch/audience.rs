//! Those who follow one kind together: its objects come once and are shown to each of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kai_control::Key;
use kube::runtime::watcher::{self, Event};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{Condition, Seen};
use crate::raw::Raw;

/// Somebody who follows a kind.
#[derive(Debug)]
pub(super) struct Member {
    condition: Condition,
    out: mpsc::Sender<Seen>,
    /// What it was shown and is still there. Keys only, and most of them are shared with other members.
    known: BTreeSet<Arc<Key>>,
}

impl Member {
    pub(super) fn new(condition: Condition, out: mpsc::Sender<Seen>) -> Self {
        Self { condition, out, known: BTreeSet::new() }
    }

    fn list(&mut self, everything: &[(Arc<Key>, Arc<Value>)]) -> Seen {
        let (mut all, mut present) = (Vec::new(), BTreeSet::new());
        for (key, value) in everything.iter().filter(|(_, value)| self.condition.holds(value)) {
            all.push(Arc::clone(value));
            present.insert(Arc::clone(key));
        }
        let gone = self.known.difference(&present).map(|key| Key::clone(key)).collect();
        self.known = present;
        Seen::Listed { all, gone }
    }

    fn apply(&mut self, key: &Arc<Key>, value: &Arc<Value>) -> Option<Seen> {
        if !self.condition.holds(value) {
            // As the API server does with a selector: what matches no longer is gone.
            return self.delete(key);
        }
        self.known.insert(Arc::clone(key));
        Some(Seen::Applied(Arc::clone(value)))
    }

    fn delete(&mut self, key: &Key) -> Option<Seen> {
        self.known.remove(key).then(|| Seen::Deleted(key.clone()))
    }
}

/// Reads one watch for all who come, until all have left. `open` begins the watch, with a list. For those who come when
/// that is over it is begun again, and everybody is shown the new list: nothing is kept for those who may come.
pub(super) async fn feed<S>(
    mut newcomers: mpsc::UnboundedReceiver<Member>,
    settle: Duration,
    read: impl Fn(Raw) -> Value,
    open: impl Fn() -> S,
) where
    S: Stream<Item = watcher::Result<Event<Raw>>>,
{
    let read = |object| {
        let value = read(object);
        (Arc::new(Key::of(&value)), Arc::new(value))
    };
    let Some(first) = newcomers.recv().await else { return };
    let mut members = vec![first];
    loop {
        // Others come at about the same time, and one list is enough for all of them.
        tokio::time::sleep(settle).await;
        let mut events = std::pin::pin!(open());
        // What was listed so far, until that is over.
        let mut listing = Some(Vec::new());
        loop {
            let event = tokio::select! {
                biased;
                newcomer = newcomers.recv() => {
                    let Some(newcomer) = newcomer else { return };
                    members.push(newcomer);
                    if listing.is_none() {
                        break;
                    }
                    continue;
                }
                event = events.next() => event,
            };
            match event {
                Some(Ok(Event::Init)) => listing = Some(Vec::new()),
                Some(Ok(Event::InitApply(object))) => listing.get_or_insert_default().push(read(object)),
                Some(Ok(Event::InitDone)) => {
                    let everything = listing.take().unwrap_or_default();
                    tell(&mut members, |member| Some(member.list(&everything))).await;
                }
                Some(Ok(Event::Apply(object))) => {
                    let (key, value) = read(object);
                    tell(&mut members, |member| member.apply(&key, &value)).await;
                }
                Some(Ok(Event::Delete(object))) => {
                    let (key, _) = read(object);
                    tell(&mut members, |member| member.delete(&key)).await;
                }
                // It goes on by itself.
                Some(Err(_)) => {}
                None => return,
            }
        }
    }
}

/// Members that have left are forgotten. Others wait for one that is behind by all that its channel holds.
async fn tell(members: &mut Vec<Member>, what: impl Fn(&mut Member) -> Option<Seen>) {
    for place in (0..members.len()).rev() {
        let member = &mut members[place];
        if let Some(seen) = what(member)
            && member.out.send(seen).await.is_err()
        {
            members.remove(place);
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
    use crate::raw::Contents;

    /// A watch without an API server.
    struct Fake {
        join: mpsc::UnboundedSender<Member>,
        /// Events of the next watch to be opened, then of the one that is open.
        events: mpsc::UnboundedSender<Event<Raw>>,
        opened: Arc<AtomicUsize>,
        feed: JoinHandle<()>,
    }

    const SOON: Duration = Duration::from_millis(20);

    fn raw(value: Value) -> Raw {
        serde_json::from_value(value).unwrap()
    }

    fn pod(name: &str, scheduler: &str) -> Value {
        let metadata = json!({"namespace": "lab", "name": name});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"schedulerName": scheduler}})
    }

    fn read(object: Raw) -> Value {
        object.into_value(&ApiResource::erase::<Pod>(&()), Contents::Wanted)
    }

    impl Fake {
        fn start() -> Self {
            let (join, newcomers) = mpsc::unbounded_channel();
            let (events, source) = mpsc::unbounded_channel();
            let (source, opened) = (Arc::new(tokio::sync::Mutex::new(source)), Arc::new(AtomicUsize::new(0)));
            let count = Arc::clone(&opened);
            let open = move || -> Pin<Box<dyn Stream<Item = watcher::Result<Event<Raw>>> + Send>> {
                count.fetch_add(1, Ordering::SeqCst);
                let source = Arc::clone(&source);
                Box::pin(stream::unfold(source, |source| async {
                    let event = source.lock().await.recv().await?;
                    Some((Ok(event), source))
                }))
            };
            let feed = tokio::spawn(feed(newcomers, SOON, read, open));
            Self { join, events, opened, feed }
        }

        fn join(&self, condition: Condition, backlog: usize) -> mpsc::Receiver<Seen> {
            let (out, seen) = mpsc::channel(backlog);
            self.join.send(Member::new(condition, out)).unwrap();
            seen
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

    async fn next(seen: &mut mpsc::Receiver<Seen>) -> Seen {
        seen.recv().await.expect("the watch goes on")
    }

    fn listed(all: &[Value], gone: &[&str]) -> Seen {
        let all = all.iter().cloned().map(Arc::new).collect();
        Seen::Listed { all, gone: gone.iter().map(|name| Key::new("lab", *name)).collect() }
    }

    fn applied(pod: Value) -> Seen {
        Seen::Applied(Arc::new(pod))
    }

    fn deleted(name: &str) -> Seen {
        Seen::Deleted(Key::new("lab", name))
    }

    #[tokio::test]
    async fn those_who_come_together_share_a_list_and_its_objects() {
        let fake = Fake::start();
        let (mut one, mut two) = (fake.join(Condition::default(), 8), fake.join(Condition::default(), 8));
        fake.list(&[pod("a", "kai")]);
        let (Seen::Listed { all: ones, .. }, Seen::Listed { all: twos, .. }) =
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
    async fn who_comes_later_is_shown_everything_and_others_what_they_missed() {
        let fake = Fake::start();
        let mut one = fake.join(Condition::default(), 8);
        fake.list(&[pod("a", "kai"), pod("b", "kai")]);
        assert_eq!(next(&mut one).await, listed(&[pod("a", "kai"), pod("b", "kai")], &[]));
        let (mut two, mut three) = (fake.join(Condition::default(), 8), fake.join(Condition::default(), 8));
        while fake.opened() < 2 {
            tokio::task::yield_now().await;
        }
        fake.list(&[pod("b", "kai"), pod("c", "kai")]);
        let now = [pod("b", "kai"), pod("c", "kai")];
        assert_eq!(next(&mut one).await, listed(&now, &["a"]));
        assert_eq!(next(&mut two).await, listed(&now, &[]), "nothing before everything");
        assert_eq!(next(&mut three).await, listed(&now, &[]));
        assert_eq!(fake.opened(), 2);
    }

    #[tokio::test]
    async fn each_sees_what_it_asked_for_and_when_that_is_over() {
        let fake = Fake::start();
        let mut all = fake.join(Condition::default(), 8);
        let mut ours = fake.join(Condition::scheduler("kai"), 8);
        fake.list(&[pod("a", "kai"), pod("b", "other")]);
        assert_eq!(next(&mut ours).await, listed(&[pod("a", "kai")], &[]));
        fake.apply(pod("b", "third"));
        fake.apply(pod("a", "other"));
        fake.delete(pod("a", "other"));
        fake.delete(pod("b", "third"));
        fake.apply(pod("c", "kai"));
        assert_eq!(next(&mut ours).await, deleted("a"));
        assert_eq!(next(&mut ours).await, applied(pod("c", "kai")), "it never knew of the other one");
        fake.list(&[pod("c", "other")]);
        assert_eq!(next(&mut ours).await, listed(&[], &["c"]));
        let mut changes = Vec::new();
        for _ in 0..7 {
            changes.push(next(&mut all).await);
        }
        let want = [
            listed(&[pod("a", "kai"), pod("b", "other")], &[]),
            applied(pod("b", "third")),
            applied(pod("a", "other")),
            deleted("a"),
            deleted("b"),
            applied(pod("c", "kai")),
            listed(&[pod("c", "other")], &[]),
        ];
        assert_eq!(changes, want);
    }

    #[tokio::test]
    async fn others_go_on_while_one_is_slow() {
        let fake = Fake::start();
        let (mut quick, mut slow) = (fake.join(Condition::default(), 1), fake.join(Condition::default(), 8));
        fake.list(&[]);
        for _ in 0..7 {
            fake.apply(pod("a", "kai"));
        }
        for _ in 0..8 {
            assert!(quick.recv().await.is_some());
        }
        assert_eq!(next(&mut slow).await, listed(&[], &[]), "and misses nothing");
        for _ in 0..7 {
            assert_eq!(next(&mut slow).await, applied(pod("a", "kai")));
        }
    }

    #[tokio::test]
    async fn a_watch_goes_on_for_those_who_stay_and_ends_with_the_last() {
        let fake = Fake::start();
        let (mut one, two) = (fake.join(Condition::default(), 8), fake.join(Condition::default(), 8));
        fake.list(&[]);
        assert!(one.recv().await.is_some());
        drop(two);
        for name in ["a", "b"] {
            fake.apply(pod(name, "kai"));
            assert_eq!(next(&mut one).await, applied(pod(name, "kai")));
        }
        drop(fake.join);
        fake.feed.await.unwrap();
        assert!(one.recv().await.is_none());
    }
}
