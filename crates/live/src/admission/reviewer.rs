//! Answers reviews: decodes them, asks `control::admission`, encodes what it says.
//!
//! Pods and groups are watched, for there are many. Queues are listed whenever one changes: a child may follow its
//! parent within the same `kubectl apply`, sooner than a watch would show it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use k8s_openapi::api::core::v1::Pod;
use kai_api::keys::webhook;
use kai_api::{PodGroup, Queue};
use kai_control::admission::{
    Answer, PodRules, delete_queue, mutate_pod, validate_pod, validate_pod_group, validate_queue, validate_topology,
};
use kai_control::{Key, Kind, ObjectId, World};
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::Health;
use crate::raw::{Contents, Raw};
use crate::scheduler::read;
use crate::watch::{Condition, Seen, Watched, Watches, follow};
use crate::writer::Writer;

/// What is asked, by the path on which it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    MutatePod,
    Pod,
    Queue,
    PodGroup,
    Topology,
}

const QUESTIONS: [(&str, Question); 5] = [
    (webhook::MUTATE_POD_PATH, Question::MutatePod),
    (webhook::POD_PATH, Question::Pod),
    (webhook::QUEUE_PATH, Question::Queue),
    (webhook::POD_GROUP_PATH, Question::PodGroup),
    (webhook::TOPOLOGY_PATH, Question::Topology),
];

/// An object before and after a change, each as large as the API server accepts, and some more.
const BODY_MAX: usize = 8 << 20;
/// Less than the API server waits for an answer.
const LIST_MAX: Duration = Duration::from_secs(2);

pub(super) struct Reviewer {
    writer: Writer,
    rules: PodRules,
    check_quota: bool,
    /// What may run in a queue.
    known: Mutex<World>,
    /// Whether everything was listed once.
    complete: watch::Sender<bool>,
    answers: Family<Labels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    webhook: String,
    allowed: String,
}

pub(super) fn routes(reviewer: &Arc<Reviewer>) -> Router {
    let mut routes = Router::new();
    for (path, question) in QUESTIONS {
        let reviewer = Arc::clone(reviewer);
        let answer = move |body: Bytes| async move { reviewer.respond(question, &body).await };
        routes = routes.route(path, post(answer));
    }
    routes.layer(DefaultBodyLimit::max(BODY_MAX))
}

impl Reviewer {
    pub(super) fn new(writer: Writer, rules: PodRules, check_quota: bool, health: &Health) -> Self {
        let answers = Family::default();
        health.register(|registry| {
            registry.register("admission_reviews", "Reviews that were answered", answers.clone());
        });
        let (complete, _) = watch::channel(false);
        Self { writer, rules, check_quota, known: Mutex::default(), complete, answers }
    }

    /// Waits until everything was listed once.
    pub(super) async fn knows_the_cluster(&self) {
        // Fails only if nobody could ever tell.
        let _ = self.complete.subscribe().wait_for(|complete| *complete).await;
    }

    /// Follows what may run in a queue.
    pub(super) async fn watch(&self, watches: Watches) {
        let (out, mut news) = mpsc::channel(1024);
        let mut followed = tokio::task::JoinSet::new();
        let working = Condition::working(&self.rules.scheduler);
        let mut unseen = BTreeSet::new();
        for (kind, watched) in
            [(Kind::Pod, Watched::with::<Pod>(working)), (Kind::PodGroup, Watched::all::<PodGroup>())]
        {
            unseen.insert(kind);
            followed.spawn(follow(watches.clone(), watched, out.clone(), move |seen| (kind, seen)));
        }
        while let Some((kind, seen)) = news.recv().await {
            let listed = matches!(seen, Seen::Listed { .. });
            take(&mut self.known(), kind, seen);
            if listed && unseen.remove(&kind) && unseen.is_empty() {
                self.complete.send_replace(true);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, World> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn respond(&self, question: Question, body: &[u8]) -> Response {
        let request: AdmissionRequest<DynamicObject> = match serde_json::from_slice(body)
            .map_err(|error| error.to_string())
            .and_then(|review: AdmissionReview<DynamicObject>| review.try_into().map_err(|_| "no request".to_owned()))
        {
            Ok(request) => request,
            Err(why) => return (StatusCode::BAD_REQUEST, format!("not an AdmissionReview: {why}")).into_response(),
        };
        let AdmissionRequest { operation, namespace, name, .. } = &request;
        match self.decide(question, &request).await {
            Ok(response) => {
                if !response.allowed {
                    let why = &response.result.message;
                    tracing::info!(?question, ?operation, namespace, name, "refused: {why}");
                }
                let labels = Labels { webhook: format!("{question:?}"), allowed: response.allowed.to_string() };
                self.answers.get_or_create(&labels).inc();
                json(&response.into_review())
            }
            Err(why) => {
                tracing::warn!(?question, ?operation, namespace, name, "not answered: {why}");
                (StatusCode::INTERNAL_SERVER_ERROR, why).into_response()
            }
        }
    }

    async fn decide(
        &self,
        question: Question,
        request: &AdmissionRequest<DynamicObject>,
    ) -> Result<AdmissionResponse, String> {
        let namespace = request.namespace.as_deref().unwrap_or_default();
        let (object, old) = (value(request.object.as_ref())?, value(request.old_object.as_ref())?);
        let response = AdmissionResponse::from(request);
        if question == Question::MutatePod {
            // The review's id is random already.
            let suffix: String = request.uid.chars().filter(char::is_ascii_alphanumeric).take(7).collect();
            return match mutate_pod(&object, namespace, &suffix, &self.rules) {
                Ok(wanted) if wanted == object => Ok(response),
                Ok(wanted) => {
                    response.with_patch(json_patch::diff(&object, &wanted)).map_err(|error| error.to_string())
                }
                Err(answer) => Ok(tell(response, answer)),
            };
        }
        let update = request.operation == Operation::Update;
        let world = if question == Question::Queue { self.queues().await? } else { World::default() };
        if request.operation == Operation::Delete {
            let name = old["metadata"]["name"].as_str().unwrap_or(&request.name);
            return Ok(tell(response, self.delete(name, world)?));
        }
        let judge = |object: &Value| match question {
            Question::MutatePod | Question::Pod => validate_pod(object, namespace, &self.rules),
            Question::Queue => validate_queue(object, &world, self.check_quota),
            Question::PodGroup => validate_pod_group(object, update),
            Question::Topology => validate_topology(object),
        };
        let answer = judge(&object);
        Ok(tell(response, if update { answer.compared_with(&judge(&old)) } else { answer }))
    }

    /// Whether a queue may go; `world` has the queues.
    fn delete(&self, name: &str, world: World) -> Result<Answer, String> {
        if !*self.complete.borrow() {
            return Err("what runs in the cluster is not known yet; try again in a moment".to_owned());
        }
        let mut known = self.known();
        known.queues = world.queues;
        Ok(delete_queue(name, &known))
    }

    /// All queues as they are now.
    async fn queues(&self) -> Result<World, String> {
        let resource = ApiResource::erase::<Queue>(&());
        let api: Api<Raw> = Api::all_with(self.writer.client.clone(), &resource);
        let everything = ListParams::default();
        let listed = tokio::time::timeout(LIST_MAX, self.writer.call(|| api.list(&everything))).await;
        let listed = listed
            .map_err(|_| "cannot list queues: it takes too long".to_owned())?
            .map_err(|error| format!("cannot list queues: {error}"))?;
        let mut world = World::default();
        for queue in
            listed.items.into_iter().filter_map(|queue| read(&queue.into_value(&resource, Contents::NobodysBusiness)))
        {
            world.apply(queue);
        }
        Ok(world)
    }
}

fn take(known: &mut World, kind: Kind, seen: Seen) {
    match seen {
        Seen::Listed { all, gone } => {
            for key in gone {
                forget(known, kind, key);
            }
            for value in &all {
                see(known, kind, value);
            }
        }
        Seen::Applied(value) => see(known, kind, &value),
        Seen::Deleted(key) => forget(known, kind, key),
    }
}

fn see(known: &mut World, kind: Kind, value: &Value) {
    match read(value) {
        Some(object) => known.apply(object),
        None => forget(known, kind, Key::of(value)),
    }
}

fn forget(known: &mut World, kind: Kind, key: Key) {
    known.delete(&ObjectId::new(kind, key));
}

fn tell(mut response: AdmissionResponse, answer: Answer) -> AdmissionResponse {
    if !answer.allowed() {
        response = response.deny(answer.message());
    }
    response.warnings = Some(answer.warnings).filter(|warnings| !warnings.is_empty());
    response
}

fn value(object: Option<&DynamicObject>) -> Result<Value, String> {
    object.map_or(Ok(Value::Null), |object| serde_json::to_value(object).map_err(|error| error.to_string()))
}

fn json(review: &AdmissionReview<DynamicObject>) -> Response {
    match serde_json::to_vec(review) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
