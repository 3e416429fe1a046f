//! The binder on a cluster: carries out bind requests as their steps become possible.

mod perform;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kai_api::BindRequest;
use kai_control::Key;
use kai_control::binder::{BindEffect, Binder, Plan, Settings};
use kai_engine::units::{Span, Timestamp};
use kube::Client;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::events::Events;
use crate::health::Part;
use crate::watch::{Seen, Watched, follow};
use crate::writer::Writer;
use crate::{Fault, Health, LeaseOptions, Pace, clock, lease};
use perform::Performer;

#[derive(Clone, Debug)]
pub struct BinderOptions {
    pub settings: Settings,
    /// Requests carried out at the same time.
    pub workers: usize,
    pub lease: Option<LeaseOptions>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Requests,
    Pods,
    Nodes,
    VolumeClaims,
}

const KINDS: [Kind; 4] = [Kind::Requests, Kind::Pods, Kind::Nodes, Kind::VolumeClaims];

enum News {
    Seen(Kind, Seen),
    /// The effects of a plan were done, or one of them was not.
    Done(Key, End),
    /// A pod was deleted.
    Gone(Key),
}

/// What became of a plan.
#[derive(Debug)]
enum End {
    Done,
    /// It cannot be ended otherwise any more, but not everything was written.
    Unfinished,
    Failed(String),
}

/// How often reservations are looked after even if nothing seems to happen.
const SYNC_PERIOD: Duration = Duration::from_secs(30);

/// Before the rest is written of a bind that is done.
const PAUSE: Span = Span::seconds(1);

/// Binds until stopped.
pub(crate) async fn run(
    client: Client,
    options: BinderOptions,
    pace: Arc<Pace>,
    health: Health,
    stop: CancellationToken,
) -> Result<(), Fault> {
    let part = health.part();
    let BinderOptions { settings, workers, lease } = options;
    let writer = Writer::new(client.clone(), pace, workers);
    let events = Events::new(writer.clone(), "binder");
    let (finish, finished) = mpsc::unbounded_channel();
    let shell = Shell {
        client: client.clone(),
        binder: Binder::new(settings),
        unseen: KINDS.into(),
        due: BTreeMap::new(),
        busy: BTreeMap::new(),
        over: BTreeMap::new(),
        performer: Performer::new(writer, events),
        finish,
        part,
    };
    lease::lead(client, lease, stop.clone(), shell.run(stop, finished)).await?;
    tracing::info!("binder has ended");
    Ok(())
}

struct Shell {
    client: Client,
    binder: Binder,
    unseen: BTreeSet<Kind>,
    /// Requests to look at, and when.
    due: BTreeMap<Key, Timestamp>,
    /// Requests whose effects are under way; with its uid if these are the last ones.
    busy: BTreeMap<Key, Option<String>>,
    /// Requests that were carried out or given up, by uid: a watch may not show it yet.
    over: BTreeMap<Key, String>,
    performer: Performer,
    /// Where what is under way tells its end.
    finish: mpsc::UnboundedSender<News>,
    part: Part,
}

fn watched(kind: Kind) -> Watched {
    match kind {
        Kind::Requests => Watched::all::<BindRequest>(),
        Kind::Pods => Watched::all::<Pod>(),
        Kind::Nodes => Watched::all::<Node>(),
        Kind::VolumeClaims => Watched::all::<PersistentVolumeClaim>(),
    }
}

impl Shell {
    async fn run(mut self, stop: CancellationToken, mut finished: mpsc::UnboundedReceiver<News>) {
        let (out, mut news) = mpsc::channel(1024);
        let mut watches = tokio::task::JoinSet::new();
        for kind in KINDS {
            watches.spawn(follow(self.client.clone(), watched(kind), out.clone(), move |seen| News::Seen(kind, seen)));
        }
        let mut sync = tokio::time::interval(SYNC_PERIOD);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(done) = finished.recv() => self.take(done),
                Some(seen) = news.recv() => self.take(seen),
                _ = sync.tick() => self.sync_all(),
                () = tokio::time::sleep(self.until_next()) => {}
            }
            if self.part.is_ready() {
                self.carry_on();
            }
        }
        drop(watches);
        self.performer.writer.drain().await;
    }

    /// How long nothing is due.
    fn until_next(&self) -> Duration {
        if !self.part.is_ready() {
            return SYNC_PERIOD;
        }
        let idle = self.due.iter().filter(|(request, _)| !self.busy.contains_key(*request));
        let next = idle.map(|(_, at)| at.since(clock::now()).0.max(0)).min();
        // A little more than asked for: rules speak of times that have passed.
        next.map_or(SYNC_PERIOD, |micros| Duration::from_micros(micros.unsigned_abs() + 1000))
    }

    fn take(&mut self, news: News) {
        match news {
            News::Seen(kind, Seen::Applied(value)) => self.see(kind, &value),
            News::Seen(kind, Seen::Deleted(key)) => self.lose(kind, &key),
            News::Seen(kind, Seen::Listed { all, gone }) => {
                for key in &gone {
                    self.lose(kind, key);
                }
                for value in &all {
                    self.see(kind, value);
                }
                self.unseen.remove(&kind);
                if self.unseen.is_empty() && !self.part.is_ready() {
                    tracing::info!(requests = self.binder.open_requests().count(), "the cluster is known");
                    self.part.ready();
                    self.sync_all();
                }
            }
            News::Gone(pod) => self.binder.is_gone(&pod),
            News::Done(request, end) => {
                let last = self.busy.remove(&request).flatten();
                match end {
                    End::Done => self.over.extend(last.map(|uid| (request, uid))),
                    End::Unfinished => {
                        self.due.insert(request, clock::now().plus(PAUSE));
                    }
                    End::Failed(why) => self.fail(&request, &why),
                }
            }
        }
    }

    fn see(&mut self, kind: Kind, value: &Value) {
        let key = Key::of(value);
        let read = match kind {
            Kind::Requests => self.binder.apply_request(value).map(|key| self.look_at(key)),
            Kind::Pods => self.binder.apply_pod(value).map(|groups| self.pod_changed(&key, &groups)),
            Kind::Nodes => self.binder.apply_node(value),
            Kind::VolumeClaims => {
                self.binder.apply_volume_claim(value).map(|()| self.look_at_namespace(&key.namespace))
            }
        };
        if let Err(why) = read {
            tracing::warn!(?kind, %key, "ignored: {why}");
        }
    }

    fn lose(&mut self, kind: Kind, key: &Key) {
        match kind {
            Kind::Requests => {
                let groups = self.binder.delete_request(key);
                self.due.remove(key);
                self.over.remove(key);
                self.sync(&groups);
            }
            Kind::Pods => {
                let groups = self.binder.delete_pod(key);
                self.pod_changed(key, &groups);
            }
            Kind::Nodes => self.binder.delete_node(&key.name),
            Kind::VolumeClaims => self.binder.delete_volume_claim(key),
        }
    }

    fn look_at(&mut self, request: Key) {
        self.due.insert(request, clock::now());
    }

    fn look_at_namespace(&mut self, namespace: &str) {
        let requests: Vec<Key> =
            self.binder.open_requests().filter(|key| key.namespace == namespace).cloned().collect();
        for request in requests {
            self.look_at(request);
        }
    }

    fn pod_changed(&mut self, pod: &Key, groups: &[String]) {
        self.binder.requests_about(pod, groups).into_iter().for_each(|request| self.look_at(request));
        self.sync(groups);
    }

    fn sync_all(&self) {
        let groups: Vec<String> = self.binder.groups().into_iter().collect();
        self.sync(&groups);
    }

    /// Reservations nobody needs go, and so do pods whose reservation is gone.
    fn sync(&self, groups: &[String]) {
        // Only with everything in sight: a pod that has not been listed yet is not a missing one.
        if !self.part.is_ready() {
            return;
        }
        for effect in groups.iter().flat_map(|group| self.binder.sync(group)) {
            let (performer, finish) = (self.performer.clone(), self.finish.clone());
            self.performer.writer.spawn(async move {
                match (performer.perform(&effect).await, effect) {
                    // The loop may have ended.
                    (Ok(()), BindEffect::DeletePod { pod, .. }) => drop(finish.send(News::Gone(pod))),
                    (Ok(()), _) => {}
                    (Err(why), effect) => tracing::warn!(?effect, why, "not done; tried again later"),
                }
            });
        }
    }

    /// Plans and starts whatever is due.
    fn carry_on(&mut self) {
        let now = clock::now();
        let ready = |(request, at): (&Key, &Timestamp)| {
            (*at <= now && !self.busy.contains_key(request)).then(|| request.clone())
        };
        let due: Vec<Key> = self.due.iter().filter_map(ready).collect();
        for request in due {
            self.due.remove(&request);
            if self.over.get(&request).map(String::as_str) == self.binder.open_uid(&request) {
                // Until a watch shows it, what is done would be planned once more.
                continue;
            }
            let plan = self.binder.plan(&request, now);
            if let Some(why) = &plan.waiting {
                tracing::debug!(%request, "waits for {why}");
            }
            if let Some(again) = plan.again {
                self.due.insert(request.clone(), again.max(now.plus(Span(1))));
            }
            self.start(request, plan);
        }
    }

    /// Its effects are under way; once the last of them are done, the request is over, whatever watches still show.
    fn begin(&mut self, request: &Key, plan: &Plan) {
        let last = plan.is_last().then(|| self.binder.open_uid(request).unwrap_or_default().to_owned());
        self.busy.insert(request.clone(), last);
    }

    fn start(&mut self, request: Key, plan: Plan) {
        if plan.effects.is_empty() {
            return;
        }
        self.begin(&request, &plan);
        let (performer, finish) = (self.performer.clone(), self.finish.clone());
        self.performer.writer.spawn(async move {
            let (mut end, mut bound) = (End::Done, false);
            for effect in &plan.effects {
                match performer.perform(effect).await {
                    Ok(()) => bound |= matches!(effect, BindEffect::Bind { .. }),
                    Err(why) if bound => {
                        tracing::warn!(%request, ?effect, why, "not done");
                        end = End::Unfinished;
                        break;
                    }
                    Err(why) => {
                        end = End::Failed(why);
                        break;
                    }
                }
            }
            // The loop may have ended.
            let _ = finish.send(News::Done(request, end));
        });
    }

    /// Ends an attempt.
    fn fail(&mut self, request: &Key, why: &str) {
        tracing::warn!(%request, "cannot bind: {why}");
        let now = clock::now();
        let plan = self.binder.failed(request, why, now);
        if let Some(again) = plan.again {
            self.due.insert(request.clone(), again);
        }
        self.begin(request, &plan);
        let (performer, finish, request) = (self.performer.clone(), self.finish.clone(), request.clone());
        self.performer.writer.spawn(async move {
            let mut end = End::Done;
            for effect in &plan.effects {
                if let Err(why) = performer.perform(effect).await {
                    tracing::warn!(?effect, why, "not done");
                    end = End::Unfinished;
                }
            }
            let _ = finish.send(News::Done(request, end));
        });
    }
}
