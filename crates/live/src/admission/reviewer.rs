//! Answers admission reviews: decodes them, evaluates them with `control::admission`, encodes the result.
//!
//! All that a review depends on is watched: clients of this port are not known, and must not be able to cause API calls. A
//! child queue may follow its parent within the same `kubectl apply`, sooner than the watch shows it. So a queue whose
//! parent is missing, or that is to be deleted and still has children, waits a moment for the watch.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::StreamExt as _;
use kai_api::keys::webhook;
use kai_control::admission::{
    AdmissionCache, AdmissionResult, PodRules, delete_queue, mutate_pod, namespace_warning, validate_pod,
    validate_pod_group, validate_queue, validate_topology,
};
use kai_control::controller::{Clock, Controller, Output, Skipped, WatchSpec, WorkResult};
use kai_control::{Key, Kind, World};
use kai_engine::units::Timestamp;
use kube::api::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use crate::Health;

/// Each has a path of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Webhook {
    MutatePod,
    Pod,
    Queue,
    PodGroup,
    Topology,
}

impl Webhook {
    fn name(self) -> &'static str {
        match self {
            Self::MutatePod => "mutate-pod",
            Self::Pod => "validate-pod",
            Self::Queue => "validate-queue",
            Self::PodGroup => "validate-pod-group",
            Self::Topology => "validate-topology",
        }
    }
}

const WEBHOOKS: [(&str, Webhook); 5] = [
    (webhook::MUTATE_POD_PATH, Webhook::MutatePod),
    (webhook::POD_PATH, Webhook::Pod),
    (webhook::QUEUE_PATH, Webhook::Queue),
    (webhook::POD_GROUP_PATH, Webhook::PodGroup),
    (webhook::TOPOLOGY_PATH, Webhook::Topology),
];

/// An object before and after a change, each as large as the API server accepts, and some more.
const BODY_MAX: usize = 8 << 20;
/// Bodies of all reviews in flight: some of the largest kind, or hundreds of the usual kind. Parsed they take several times
/// as much.
const BODIES_MAX: usize = 32 << 20;
/// How far the watch of queues may be behind. Less than the API server waits for an answer.
const WATCH_LAG_MAX: Duration = Duration::from_secs(2);
const WATCH_LAG_POLL: Duration = Duration::from_millis(20);
/// Reviews that wait for the watch at the same time. Further ones are decided at once.
const WAITING_MAX: usize = 64;

pub(super) struct Reviewer {
    rules: PodRules,
    check_quota: bool,
    /// Queues, and what may run in them.
    cache: Mutex<AdmissionCache>,
    /// Whether everything was listed once.
    synced: watch::Sender<bool>,
    /// Bytes of bodies that may be read.
    bodies: Arc<Semaphore>,
    waiting: Semaphore,
    /// Whether a queue may be deleted depends on many pods: one at a time, so that other threads go on.
    deletions: tokio::sync::Mutex<()>,
    answers: Family<Labels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    webhook: &'static str,
    allowed: String,
}

pub(super) fn routes(reviewer: &Arc<Reviewer>) -> Router {
    let mut routes = Router::new();
    for (path, webhook_kind) in WEBHOOKS {
        let reviewer = Arc::clone(reviewer);
        let answer = move |body: Body| async move {
            let (mut text, mut held) = (Vec::new(), None);
            match reviewer.read(body, &mut text, &mut held).await {
                Ok(()) => reviewer.respond(webhook_kind, &text).await,
                Err((code, why)) => (code, why).into_response(),
            }
        };
        routes = routes.route(path, post(answer));
    }
    routes
}

impl Reviewer {
    pub(super) fn new(rules: PodRules, check_quota: bool, health: &Health) -> Self {
        let answers = Family::default();
        health.register(|registry| {
            registry.register(
                "admission_reviews",
                "Admission reviews answered, by webhook and outcome",
                answers.clone(),
            );
        });
        let (synced, _) = watch::channel(false);
        let cache = Mutex::new(AdmissionCache::new(&rules.scheduler));
        Self {
            rules,
            check_quota,
            cache,
            synced,
            bodies: Arc::new(Semaphore::new(BODIES_MAX)),
            waiting: Semaphore::new(WAITING_MAX),
            deletions: tokio::sync::Mutex::default(),
            answers,
        }
    }

    /// Waits until everything was listed once.
    pub(super) async fn wait_for_sync(&self) {
        // Fails only without a sender, which lives as long as this.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// The controller that keeps the cache.
    pub(super) fn cache_controller(self: &Arc<Self>) -> CacheController {
        CacheController(Arc::clone(self))
    }

    fn cache(&self) -> MutexGuard<'_, AdmissionCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a body into `text`, which counts for as long as `held` is held.
    async fn read(
        &self,
        body: Body,
        text: &mut Vec<u8>,
        held: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<(), (StatusCode, String)> {
        let mut chunks = body.into_data_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| (StatusCode::BAD_REQUEST, format!("cannot read the review: {error}")))?;
            if text.len() + chunk.len() > BODY_MAX {
                return Err((StatusCode::PAYLOAD_TOO_LARGE, format!("a review has at most {BODY_MAX} bytes")));
            }
            let bytes = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
            let Ok(more) = Arc::clone(&self.bodies).try_acquire_many_owned(bytes) else {
                return Err((StatusCode::SERVICE_UNAVAILABLE, "too many reviews at the same time".to_owned()));
            };
            match held {
                Some(held) => held.merge(more),
                None => *held = Some(more),
            }
            text.extend_from_slice(&chunk);
        }
        Ok(())
    }

    async fn respond(&self, webhook_kind: Webhook, body: &[u8]) -> Response {
        let request: AdmissionRequest<DynamicObject> = match serde_json::from_slice(body)
            .map_err(|error| error.to_string())
            .and_then(|review: AdmissionReview<DynamicObject>| review.try_into().map_err(|_| "no request".to_owned()))
        {
            Ok(request) => request,
            Err(why) => return (StatusCode::BAD_REQUEST, format!("not an AdmissionReview: {why}")).into_response(),
        };
        let AdmissionRequest { operation, namespace, name, .. } = &request;
        match self.decide(webhook_kind, &request).await {
            Ok(response) => {
                if !response.allowed {
                    let why = &response.result.message;
                    tracing::info!(webhook = webhook_kind.name(), ?operation, namespace, name, why, "denied");
                }
                let labels = Labels { webhook: webhook_kind.name(), allowed: response.allowed.to_string() };
                self.answers.get_or_create(&labels).inc();
                json(&response.into_review())
            }
            Err(why) => {
                tracing::warn!(
                    webhook = webhook_kind.name(),
                    ?operation,
                    namespace,
                    name,
                    error = why,
                    "admission review failed"
                );
                (StatusCode::INTERNAL_SERVER_ERROR, why).into_response()
            }
        }
    }

    async fn decide(
        &self,
        webhook_kind: Webhook,
        request: &AdmissionRequest<DynamicObject>,
    ) -> Result<AdmissionResponse, String> {
        let namespace = request.namespace.as_deref().unwrap_or_default();
        let (object, old) = (value(request.object.as_ref())?, value(request.old_object.as_ref())?);
        let response = AdmissionResponse::from(request);
        if webhook_kind == Webhook::MutatePod {
            // The review's id is random already.
            let suffix: String = request.uid.chars().filter(char::is_ascii_alphanumeric).take(7).collect();
            return match mutate_pod(&object, namespace, &suffix, &self.rules) {
                Ok(wanted) if wanted == object => Ok(response),
                Ok(wanted) => {
                    response.with_patch(json_patch::diff(&object, &wanted)).map_err(|error| error.to_string())
                }
                Err(answer) => Ok(to_response(response, answer)),
            };
        }
        let update = request.operation == Operation::Update;
        if request.operation == Operation::Delete {
            let name = old["metadata"]["name"].as_str().unwrap_or(&request.name);
            return Ok(to_response(response, self.delete(name).await?));
        }
        if webhook_kind == Webhook::Queue
            && let Some(parent) = object["spec"]["parentQueue"].as_str().filter(|parent| !parent.is_empty())
        {
            self.wait_for_watch(|world| world.queues.contains_key(parent)).await?;
        }
        let validate = |object: &Value| match webhook_kind {
            Webhook::MutatePod | Webhook::Pod => validate_pod(object, namespace, &self.rules),
            Webhook::Queue => validate_queue(object, &self.cache().world, self.check_quota),
            Webhook::PodGroup => {
                let mut result = validate_pod_group(object, update);
                result.warnings.extend(namespace_warning(object, &self.cache().world));
                result
            }
            Webhook::Topology => validate_topology(object),
        };
        let answer = validate(&object);
        Ok(to_response(response, if update { answer.tolerating_existing(&validate(&old)) } else { answer }))
    }

    /// Whether a queue may go.
    async fn delete(&self, name: &str) -> Result<AdmissionResult, String> {
        let is_parent = |world: &World| world.queues.values().any(|queue| queue.parent.as_deref() == Some(name));
        self.wait_for_watch(|world| !is_parent(world)).await?;
        let _one_at_a_time = self.deletions.lock().await;
        Ok(delete_queue(name, &self.cache().world))
    }

    /// Waits for what another client may have written a moment ago.
    async fn wait_for_watch(&self, arrived: impl Fn(&World) -> bool) -> Result<(), String> {
        let deadline = Instant::now() + WATCH_LAG_MAX;
        let arrived = || *self.synced.borrow() && arrived(&self.cache().world);
        if !arrived()
            && let Ok(_waiting) = self.waiting.try_acquire()
        {
            while !arrived() && Instant::now() < deadline {
                tokio::time::sleep(WATCH_LAG_POLL).await;
            }
        }
        if *self.synced.borrow() {
            Ok(())
        } else {
            Err("queues, pods and pod groups are not listed yet; try again in a moment".to_owned())
        }
    }
}

/// The cache, which reviews read while a loop keeps it up to date.
pub(super) struct CacheController(Arc<Reviewer>);

impl Controller for CacheController {
    fn watches(&self) -> Vec<WatchSpec> {
        self.0.cache().watches()
    }

    fn on_apply(&mut self, kind: Kind, object: &Arc<Value>, now: Clock) -> Vec<Skipped> {
        self.0.cache().on_apply(kind, object, now)
    }

    fn on_delete(&mut self, kind: Kind, key: &Key, now: Clock) {
        self.0.cache().on_delete(kind, key, now);
    }

    fn poll(&mut self, now: Clock) -> Output {
        // Not before everything was listed once.
        self.0.synced.send_replace(true);
        self.0.cache().poll(now)
    }

    fn on_result(&mut self, result: WorkResult, now: Clock) {
        self.0.cache().on_result(result, now);
    }

    fn next_poll(&self, now: Clock) -> Option<Timestamp> {
        self.0.cache().next_poll(now)
    }

    fn size(&self) -> usize {
        self.0.cache().size()
    }
}

fn to_response(mut response: AdmissionResponse, answer: AdmissionResult) -> AdmissionResponse {
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

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use futures::stream;
    use kai_engine::units::Timestamp;
    use serde_json::json;

    use super::*;

    const NOW: Clock = Clock { wall: Timestamp(0), steady: Timestamp(0) };

    /// A reviewer, without any connection to an API server, and the controller of its cache.
    fn reviewer() -> (Arc<Reviewer>, CacheController) {
        let reviewer = Arc::new(Reviewer::new(PodRules::default(), false, &Health::new("kai")));
        let cache = reviewer.cache_controller();
        (reviewer, cache)
    }

    fn queue(name: &str, parent: &str) -> Value {
        let resource = json!({"quota": 0, "limit": -1, "overQuotaWeight": 1});
        json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name},
            "spec": {"parentQueue": parent, "resources": {"gpu": resource, "cpu": resource, "memory": resource}}})
    }

    /// The code of the answer, and the reason of a denial.
    async fn review(reviewer: &Reviewer, operation: &str, queue: &Value) -> (StatusCode, String) {
        let object = if operation == "DELETE" { "oldObject" } else { "object" };
        let kind = json!({"group": "scheduling.run.ai", "version": "v2", "kind": "Queue"});
        let resource = json!({"group": "scheduling.run.ai", "version": "v2", "resource": "queues"});
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": kind, "resource": resource, "name": queue["metadata"]["name"], "operation": operation,
            "userInfo": {}, object: queue}});
        let response = reviewer.respond(Webhook::Queue, review.to_string().as_bytes()).await;
        let code = response.status();
        let text = axum::body::to_bytes(response.into_body(), BODY_MAX).await.unwrap();
        let answer: Value = serde_json::from_slice(&text).unwrap_or_default();
        (code, answer["response"]["status"]["message"].as_str().unwrap_or_default().to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_may_follow_its_parent_sooner_than_the_watch_shows_it() {
        let (reviewer, mut cache) = reviewer();
        cache.poll(NOW);
        let child = queue("child", "top");
        let appears = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            cache.on_apply(Kind::Queue, &Arc::new(queue("top", "")), NOW);
        };
        let began = Instant::now();
        let (answer, ()) = tokio::join!(review(&reviewer, "CREATE", &child), appears);
        assert_eq!(answer, (StatusCode::OK, String::new()));
        assert!(began.elapsed() < WATCH_LAG_MAX);
        let began = Instant::now();
        let (code, why) = review(&reviewer, "CREATE", &queue("child", "other")).await;
        assert_eq!(code, StatusCode::OK);
        assert!(why.contains("its parent other does not exist"), "{why}");
        assert_eq!(began.elapsed().as_secs(), 2, "less than the API server waits");
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_may_be_deleted_right_after_its_children() {
        let (reviewer, mut cache) = reviewer();
        for queue in [queue("top", ""), queue("child", "top")] {
            cache.on_apply(Kind::Queue, &Arc::new(queue), NOW);
        }
        cache.poll(NOW);
        let (_, why) = review(&reviewer, "DELETE", &queue("top", "")).await;
        assert!(why.contains("it has child queues child"), "{why}");
        let disappears = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            cache.on_delete(Kind::Queue, &Key::new("", "child"), NOW);
        };
        let top = queue("top", "");
        let (answer, ()) = tokio::join!(review(&reviewer, "DELETE", &top), disappears);
        assert_eq!(answer, (StatusCode::OK, String::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn queues_are_not_reviewed_before_the_first_lists() {
        let (reviewer, _cache) = reviewer();
        for operation in ["CREATE", "DELETE"] {
            let (code, _) = review(&reviewer, operation, &queue("child", "top")).await;
            assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR, "{operation}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_reviews_that_wait_for_the_watch_is_answered_at_once() {
        let (reviewer, mut cache) = reviewer();
        cache.poll(NOW);
        let (began, child) = (Instant::now(), queue("child", "top"));
        let reviews = (0..WAITING_MAX + 100).map(|_| async {
            review(&reviewer, "CREATE", &child).await;
            began.elapsed()
        });
        let took = futures::future::join_all(reviews).await;
        let at_once = took.iter().filter(|took| took.is_zero()).count();
        assert_eq!(at_once, 100);
        assert!(took.iter().all(|took| *took < Duration::from_secs(3)));
    }

    #[tokio::test]
    async fn bodies_are_bounded_each_and_together() {
        let (reviewer, _cache) = reviewer();
        let of = |bytes: usize| Body::from(vec![b' '; bytes]);
        let read = async |body: Body| {
            let (mut text, mut held) = (Vec::new(), None);
            reviewer.read(body, &mut text, &mut held).await.map(|()| held).map_err(|(code, _)| code)
        };
        assert_eq!(read(of(BODY_MAX + 1)).await.unwrap_err(), StatusCode::PAYLOAD_TOO_LARGE);
        let mut all = Vec::new();
        while all.len() < BODIES_MAX / BODY_MAX {
            all.push(read(of(BODY_MAX)).await.unwrap());
        }
        assert_eq!(read(of(1)).await.unwrap_err(), StatusCode::SERVICE_UNAVAILABLE);
        all.pop();
        assert!(read(of(1)).await.is_ok());
        let broken: Pin<Box<dyn futures::Stream<Item = Result<String, std::io::Error>> + Send>> =
            Box::pin(stream::iter([Ok("{".to_owned()), Err(std::io::Error::other("reset"))]));
        assert_eq!(read(Body::from_stream(broken)).await.unwrap_err(), StatusCode::BAD_REQUEST);
    }
}
