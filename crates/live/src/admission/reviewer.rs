//! Answers admission reviews: decodes them, evaluates them with `control::admission`, encodes the result.
//!
//! Pods and groups are watched, for there are many. Queues are listed whenever one changes: a child may follow its
//! parent within the same `kubectl apply`, sooner than a watch would show it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use kai_api::Queue;
use kai_api::keys::webhook;
use kai_control::admission::{
    AdmissionCache, AdmissionResult, PodRules, delete_queue, mutate_pod, namespace_warning, validate_pod,
    validate_pod_group, validate_queue, validate_topology,
};
use kai_control::controller::{Clock, Controller, Output, Skipped, WatchSpec, WorkResult};
use kai_control::{Key, Kind, World};
use kai_engine::units::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use serde_json::Value;
use tokio::sync::watch;

use crate::Health;
use crate::api_writer::ApiWriter;
use crate::object_decode::parse_or_warn;
use crate::stripped_object::{ConfigMapData, StrippedObject};

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
/// Less than the API server waits for an answer.
const LIST_MAX: Duration = Duration::from_secs(2);

pub(super) struct Reviewer {
    writer: ApiWriter,
    rules: PodRules,
    check_quota: bool,
    /// What may run in a queue.
    cache: Mutex<AdmissionCache>,
    /// Whether pods and pod groups were listed once.
    synced: watch::Sender<bool>,
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
        let answer = move |body: Bytes| async move { reviewer.respond(webhook_kind, &body).await };
        routes = routes.route(path, post(answer));
    }
    routes.layer(DefaultBodyLimit::max(BODY_MAX))
}

impl Reviewer {
    pub(super) fn new(writer: ApiWriter, rules: PodRules, check_quota: bool, health: &Health) -> Self {
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
        Self { writer, rules, check_quota, cache, synced, answers }
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
        let world = if webhook_kind == Webhook::Queue { self.queues().await? } else { World::default() };
        if request.operation == Operation::Delete {
            let name = old["metadata"]["name"].as_str().unwrap_or(&request.name);
            return Ok(to_response(response, self.delete(name, world)?));
        }
        let validate = |object: &Value| match webhook_kind {
            Webhook::MutatePod | Webhook::Pod => validate_pod(object, namespace, &self.rules),
            Webhook::Queue => validate_queue(object, &world, self.check_quota),
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

    /// Whether a queue may go; `world` has the queues.
    fn delete(&self, name: &str, world: World) -> Result<AdmissionResult, String> {
        if !*self.synced.borrow() {
            return Err("pods and pod groups are not listed yet; try again in a moment".to_owned());
        }
        let mut cache = self.cache();
        cache.world.queues = world.queues;
        Ok(delete_queue(name, &cache.world))
    }

    /// All queues as they are now.
    async fn queues(&self) -> Result<World, String> {
        let resource = ApiResource::erase::<Queue>(&());
        let api: Api<StrippedObject> = Api::all_with(self.writer.client.clone(), &resource);
        let everything = ListParams::default();
        let listed = tokio::time::timeout(LIST_MAX, self.writer.call(|| api.list(&everything))).await;
        let listed = listed
            .map_err(|_| "cannot list queues: it takes too long".to_owned())?
            .map_err(|error| format!("cannot list queues: {error}"))?;
        let mut world = World::default();
        for queue in listed
            .items
            .into_iter()
            .filter_map(|queue| parse_or_warn(&queue.into_value(&resource, ConfigMapData::Drop)))
        {
            world.apply(queue);
        }
        Ok(world)
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
