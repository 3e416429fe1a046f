//! Stands between the components and the API server, and behaves as badly as networks and busy servers do.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng as _;
use test_cluster::Cluster;
use tokio::runtime::Runtime;

/// Ends with the value.
pub(crate) struct Proxy {
    address: SocketAddr,
    inner: Arc<Inner>,
    _runtime: Runtime,
}

struct Inner {
    server: Client,
    rng: Mutex<Pcg64>,
    faulty: AtomicBool,
    faults: AtomicU32,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The request is rejected with this status.
    Refused(StatusCode),
    /// The request is performed, and the reply is lost.
    ReplyLost,
    /// The request is dropped.
    Dropped,
    /// What a watch shows comes late, and after a while no more.
    Stuttering,
}

impl Proxy {
    pub(crate) fn start(cluster: &Cluster, seed: u64) -> Self {
        let runtime = Runtime::new().unwrap();
        let kubeconfig = Kubeconfig::read_from(&cluster.state().kubeconfig).unwrap();
        let (address, inner) = runtime.block_on(async {
            let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
            // Clients authenticate themselves.
            config.auth_info = AuthInfo::default();
            let inner = Arc::new(Inner {
                server: Client::try_from(config).unwrap(),
                rng: Mutex::new(Pcg64::new(u128::from(seed), 2)),
                faulty: AtomicBool::new(true),
                faults: AtomicU32::new(0),
            });
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let routes = axum::Router::new().fallback(forward).with_state(Arc::clone(&inner));
            tokio::spawn(async move { axum::serve(listener, routes).await });
            (address, inner)
        });
        Self { address, inner, _runtime: runtime }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// No more faults from here on.
    pub(crate) fn behave(&self) {
        self.inner.faulty.store(false, Ordering::SeqCst);
    }

    pub(crate) fn faults(&self) -> u32 {
        self.inner.faults.load(Ordering::SeqCst)
    }
}

async fn forward(State(inner): State<Arc<Inner>>, request: Request) -> Response {
    let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let fault = inner.fault(request.method(), watch);
    if fault.is_some() {
        inner.faults.fetch_add(1, Ordering::SeqCst);
    }
    match fault {
        Some(Fault::Refused(code)) => return refusal(code),
        Some(Fault::Dropped) => return cut(),
        _ => {}
    }
    let (head, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else { return cut() };
    let request = axum::http::Request::from_parts(head, kube::client::Body::from(body.to_vec()));
    let Ok(answer) = inner.server.send(request).await else { return cut() };
    let (head, body) = answer.into_parts();
    match fault {
        Some(Fault::ReplyLost) => cut(),
        Some(Fault::Stuttering) => {
            let shown = Body::new(body).into_data_stream();
            let late = shown.take(40).then(|chunk| async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                chunk
            });
            Response::from_parts(head, Body::from_stream(late))
        }
        _ => Response::from_parts(head, Body::new(body)),
    }
}

impl Inner {
    fn fault(&self, method: &Method, watch: bool) -> Option<Fault> {
        let percent = self.rng.lock().unwrap().next_u32() % 100;
        if !self.faulty.load(Ordering::SeqCst) {
            return None;
        }
        if watch {
            return Some(Fault::Stuttering).filter(|_| percent < 70);
        }
        let writes = *method != Method::GET;
        match percent {
            0..3 => Some(Fault::Refused(StatusCode::TOO_MANY_REQUESTS)),
            3..6 => Some(Fault::Refused(StatusCode::INTERNAL_SERVER_ERROR)),
            6..9 => Some(Fault::Dropped),
            9..13 if writes => Some(Fault::ReplyLost),
            13..16 if writes => Some(Fault::Refused(StatusCode::CONFLICT)),
            // There are few of them.
            16..40 if *method == Method::DELETE => Some(Fault::Refused(StatusCode::CONFLICT)),
            _ => None,
        }
    }
}

fn refusal(code: StatusCode) -> Response {
    let reason = match code {
        StatusCode::CONFLICT => "Conflict",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        _ => "InternalError",
    };
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "not today", "reason": reason, "code": code.as_u16(),
    });
    (code, [(CONTENT_TYPE, "application/json")], status.to_string()).into_response()
}

/// The connection breaks in the middle of the answer.
fn cut() -> Response {
    let broken = futures::stream::once(async { Err::<Bytes, _>(std::io::Error::other("cut")) });
    Response::new(Body::from_stream(broken))
}
