//! Calls of controllers against an API server that a test plays.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use kai_control::Key;
use kai_control::binder::BindEffect;
use kai_control::controller::{ApiCall, CallError};
use kai_control::scheduler::Write;
use serde_json::json;

use super::Executor;
use crate::api_writer::{ApiLimits, ApiWriter};
use crate::events::EventRecorder;
use crate::test_server::connect_to;
use crate::{Health, api_calls::CallFields};

type Requested = Arc<Mutex<Vec<String>>>;

async fn start(routes: Router, slots: usize) -> (ApiWriter, Executor, Health) {
    let health = Health::new("kai");
    let client = connect_to(routes, &health).await;
    let limits = ApiLimits::new(0.0, 1, Arc::default(), health.api_metrics().clone());
    let writer = ApiWriter::new(client, Arc::new(limits.with_deadline(Duration::from_millis(200))), slots);
    let executor = Executor::new(EventRecorder::new(&writer, "test"));
    (writer, executor, health)
}

/// An API server whose pod disruption budgets forbid all evictions, and the paths that were requested.
fn forbidding() -> (Router, Requested) {
    let requested: Requested = Arc::default();
    let record = Arc::clone(&requested);
    let answer = move |method: Method, uri: Uri| {
        let record = Arc::clone(&record);
        async move {
            record.lock().unwrap().push(format!("{method} {}", uri.path()));
            if uri.path().ends_with("/eviction") {
                let status = json!({"kind": "Status", "status": "Failure", "reason": "TooManyRequests", "code": 429,
                    "message": "Cannot evict pod as it would violate the pod's disruption budget."});
                (StatusCode::TOO_MANY_REQUESTS, status.to_string())
            } else if method == Method::GET {
                let metadata = json!({"namespace": "lab", "name": "victim", "uid": "u", "resourceVersion": "1"});
                (StatusCode::OK, json!({"metadata": metadata}).to_string())
            } else {
                let metadata = json!({"namespace": "lab", "name": "p"});
                let spec = json!({"podName": "p", "selectedNode": "n"});
                (StatusCode::CREATED, json!({"metadata": metadata, "spec": spec}).to_string())
            }
        }
    };
    (Router::new().fallback(answer), requested)
}

fn bind_request() -> ApiCall {
    let spec = json!({"podName": "p", "selectedNode": "n"});
    let request = json!({"metadata": {"namespace": "lab", "name": "p"}, "spec": spec});
    ApiCall::Schedule(Write::CreateBindRequest(serde_json::from_value(request).unwrap()))
}

#[tokio::test]
async fn a_forbidden_eviction_is_requested_once_and_does_not_hold_up_binds() {
    let (routes, requested) = forbidding();
    let (writer, executor, health) = start(routes, 2).await;
    for number in 0..2 {
        let (evicting, executor) = (writer.clone(), executor.clone());
        writer.spawn(move || async move {
            let pod = Key::new("lab", format!("victim-{number}"));
            let evict = Write::Evict { pod, uid: "u".to_owned(), message: String::new() };
            let done = executor.call(&evicting, &ApiCall::Schedule(evict)).await;
            assert!(matches!(done, Err(CallError::Rejected(_))), "{done:?}");
        });
    }
    let (binding, (bound, done)) = (writer.clone(), tokio::sync::oneshot::channel());
    writer.spawn(move || async move {
        let _ = bound.send(executor.call(&binding, &bind_request()).await.is_ok());
    });
    let soon = Duration::from_secs(1);
    assert!(tokio::time::timeout(soon, done).await.expect("evictions give back their slots").unwrap());
    writer.drain().await;
    let requested = requested.lock().unwrap().clone();
    let evictions = requested.iter().filter(|path| path.ends_with("/eviction")).count();
    // Each pod is read before it is evicted.
    assert_eq!((evictions, requested.len()), (2, 5), "{requested:?}");
    let metrics = health.metrics();
    assert!(metrics.contains(r#"kai_api_requests_total{verb="create",code="429"} 2"#), "{metrics}");
}

#[tokio::test]
async fn a_call_without_an_answer_ends_and_gives_back_its_slot() {
    let (answering, requested) = forbidding();
    let hangs = std::future::pending::<StatusCode>;
    let routes = answering.route("/api/v1/namespaces/lab/pods/silent", axum::routing::delete(hangs));
    let (writer, executor, _) = start(routes, 1).await;
    let (calling, other, (ended, end)) = (writer.clone(), executor.clone(), tokio::sync::oneshot::channel());
    writer.spawn(move || async move {
        let silent = ApiCall::DeleteScalingPod(Key::new("lab", "silent"));
        let _ = ended.send(other.call(&calling, &silent).await);
    });
    let (binding, (bound, done)) = (writer.clone(), tokio::sync::oneshot::channel());
    writer.spawn(move || async move {
        let _ = bound.send(executor.call(&binding, &bind_request()).await.is_ok());
    });
    let end = tokio::time::timeout(Duration::from_secs(5), end).await.expect("the call has a deadline").unwrap();
    assert!(matches!(&end, Err(CallError::Unknown(why)) if why.contains("no reply")), "{end:?}");
    assert!(tokio::time::timeout(Duration::from_secs(5), done).await.expect("the slot is free again").unwrap());
    assert_eq!(requested.lock().unwrap().len(), 1);
}

#[test]
fn log_lines_name_step_object_and_node() {
    let call = bind_request();
    let fields = CallFields::of(&call);
    assert_eq!((fields.step, fields.object.as_str(), fields.node), ("create bind request", "lab/p", Some("n")));
}

/// An API server with one config map in namespace `lab`, owned by the pod of this uid, and what was requested of it.
fn with_config_map(owner: &str) -> (Router, Requested) {
    let requested: Requested = Arc::default();
    let record = Arc::clone(&requested);
    let metadata = json!({"namespace": "lab", "name": "settings-0", "resourceVersion": "7", "ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner}]});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}});
    let answer = move |method: Method, uri: Uri, body: String| {
        let (record, map) = (Arc::clone(&record), map.clone());
        async move {
            record.lock().unwrap().push(format!("{method} {} {body}", uri.path()).trim_end().to_owned());
            if method == Method::GET && uri.path().ends_with("/new-0") {
                let status = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
                return (StatusCode::NOT_FOUND, status.to_string());
            }
            (StatusCode::OK, map.to_string())
        }
    };
    (Router::new().fallback(answer), requested)
}

fn config_map(name: &str) -> ApiCall {
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "2"},
        "metadata": {"namespace": "lab", "name": name, "ownerReferences": [owner]}});
    ApiCall::Bind(BindEffect::WriteConfigMap(Box::new(map)))
}

#[tokio::test]
async fn a_config_map_of_others_is_not_written() {
    let (routes, requested) = with_config_map("another");
    let (writer, executor, _) = start(routes, 1).await;
    let done = executor.call(&writer, &config_map("settings-0")).await;
    let Err(CallError::Rejected(why)) = done else { panic!("{done:?}") };
    assert!(why.starts_with("config map lab/settings-0 exists and does not belong to pod p"), "{why}");
    assert_eq!(*requested.lock().unwrap(), ["GET /api/v1/namespaces/lab/configmaps/settings-0"]);
}

#[tokio::test]
async fn a_config_map_of_the_pod_is_created_once_and_then_changed() {
    let (routes, requested) = with_config_map("u");
    let (writer, executor, _) = start(routes, 1).await;
    for name in ["new-0", "settings-0"] {
        executor.call(&writer, &config_map(name)).await.unwrap();
    }
    let requested = requested.lock().unwrap().clone();
    assert!(requested[1].starts_with("POST /api/v1/namespaces/lab/configmaps {"), "{requested:?}");
    let changed =
        r#"PATCH /api/v1/namespaces/lab/configmaps/settings-0 {"data":{"b":"2"},"metadata":{"resourceVersion":"7"}}"#;
    assert_eq!(requested[3], changed);
}
