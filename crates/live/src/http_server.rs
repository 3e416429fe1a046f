//! The HTTP server behind every port. Connections, requests and their end are bounded in number and time: a client that is
//! slow, silent or hostile neither keeps others out nor keeps the process from ending.
//!
//! ```text
//!   listener ──▶ [TLS handshake] ──▶ head of a request ──▶ routes ──▶ answer ──▶ head of the next request …
//!      │              └──── ServerLimits::head ────┘   └── request ──┘  └────── head ──────┘
//!      └── one connection too many closes the oldest one that is idle
//! ```

mod tls;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

pub(crate) use tls::ServedCertificate;

/// What clients of a port may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerLimits {
    /// Open connections. A further one closes the oldest one without a request, or else the oldest one: those who hold
    /// connections keep no other client out. All ports together stay below 1,024, a usual limit of open files.
    pub(crate) connections: usize,
    /// For a TLS handshake, and for the head of a request; also how long a connection may be idle.
    pub(crate) head: Duration,
    /// For the body of a request and its answer.
    pub(crate) request: Duration,
    /// After so long a connection is closed: answers that a client does not read have an end as well.
    pub(crate) lifetime: Duration,
    /// For the requests in flight when the process ends.
    pub(crate) drain: Duration,
}

impl ServerLimits {
    /// Probes and scrapes: a few clients, each with one request at a time.
    pub(crate) const HEALTH: Self = Self {
        connections: 128,
        head: Duration::from_secs(30),
        request: Duration::from_secs(10),
        lifetime: Duration::from_mins(10),
        drain: Duration::from_secs(3),
    };

    /// API servers, each with as many connections as reviews in flight. They wait 3 s for an answer.
    pub(crate) const WEBHOOKS: Self = Self { connections: 512, request: Duration::from_secs(5), ..Self::HEALTH };

    /// People and scripts on the same machine. A snapshot lists the whole cluster.
    pub(crate) const SNAPSHOTS: Self = Self { connections: 16, request: Duration::from_mins(5), ..Self::HEALTH };
}

/// The largest head of a request.
const HEAD_MAX: usize = 64 << 10;

/// Before the next attempt to accept a connection, when the process has no file descriptor left.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);

/// Serves routes on a port.
pub(crate) struct HttpServer {
    listener: TcpListener,
    port: Port,
}

/// What connections of a port share.
struct Port {
    routes: Router,
    limits: ServerLimits,
    tls: Option<ServedCertificate>,
    stop: CancellationToken,
}

impl HttpServer {
    pub(crate) fn new(listener: TcpListener, routes: Router, limits: ServerLimits, stop: CancellationToken) -> Self {
        Self { listener, port: Port { routes, limits, tls: None, stop } }
    }

    pub(crate) fn with_tls(mut self, certificate: ServedCertificate) -> Self {
        self.port.tls = Some(certificate);
        self
    }

    /// Serves until stopped; requests in flight have the time of `drain` then.
    pub(crate) async fn serve(self) {
        let (port, connections) = (Arc::new(self.port), Connections::default());
        let tasks = TaskTracker::new();
        let accepting = async {
            loop {
                match self.listener.accept().await {
                    Ok((stream, _)) => {
                        let connection = connections.open(port.limits.connections);
                        tasks.spawn(serve_connection(stream, connection, Arc::clone(&port)));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection, closing the oldest one");
                        connections.close_oldest();
                        sleep(ACCEPT_DELAY).await;
                    }
                }
            }
        };
        tokio::select! {
            () = port.stop.cancelled() => {}
            () = accepting => {}
        }
        drop(self.listener);
        tasks.close();
        // Each has an end of its own.
        tasks.wait().await;
    }
}

async fn serve_connection(stream: TcpStream, connection: Connection, port: Arc<Port>) {
    // Answers are short; without it they would only be later.
    let _ = stream.set_nodelay(true);
    let state = Arc::clone(&connection.state);
    let serving = async {
        let Some(tls) = &port.tls else { return serve_requests(stream, &state, &port).await };
        let handshake = timeout(port.limits.head, tls.acceptor().accept(stream));
        tokio::select! {
            () = port.stop.cancelled() => {}
            // Clients that do not trust the certificate see that themselves.
            secured = handshake => if let Ok(Ok(stream)) = secured {
                serve_requests(stream, &state, &port).await;
            },
        }
    };
    tokio::select! {
        () = state.closed.cancelled() => {}
        () = serving => {}
    }
}

async fn serve_requests<S>(stream: S, state: &Arc<ConnectionState>, port: &Arc<Port>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Port { limits, stop, .. } = &**port;
    let service = service_fn(|request| {
        let (state, port) = (Arc::clone(state), Arc::clone(port));
        async move {
            state.has_request.store(true, Ordering::Relaxed);
            let response = answer(&port, request).await;
            state.has_request.store(false, Ordering::Relaxed);
            Ok::<_, Infallible>(response)
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(HEAD_MAX);
    let mut serving = pin!(http.serve_connection(TokioIo::new(stream), service));
    let rest = tokio::select! {
        // How a connection ended is the client's matter.
        _ = serving.as_mut() => return,
        () = stop.cancelled() => limits.drain,
        () = sleep(limits.lifetime) => limits.request,
    };
    serving.as_mut().graceful_shutdown();
    let drained = async {
        stop.cancelled().await;
        sleep(limits.drain).await;
    };
    tokio::select! {
        _ = timeout(rest, serving) => {}
        () = drained => {}
    }
}

async fn answer(port: &Port, request: Request<Incoming>) -> Response {
    let mut routes = port.routes.clone();
    match timeout(port.limits.request, routes.call(request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "the request took too long").into_response(),
    }
}

/// Answers so many requests for these routes at a time, until they have been sent. Others are refused: they cost nothing,
/// and may be repeated.
pub(crate) fn limit_concurrency(routes: Router, at_most: usize) -> Router {
    let slots = Arc::new(Semaphore::new(at_most));
    let limited = move |request: Request, next: Next| {
        let slots = Arc::clone(&slots);
        async move {
            let Ok(slot) = slots.try_acquire_owned() else {
                let busy = "too many requests at the same time, try again in a second";
                return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], busy).into_response();
            };
            hold_until_sent(next.run(request).await, slot)
        }
    };
    routes.layer(middleware::from_fn(limited))
}

fn hold_until_sent(response: Response, slot: OwnedSemaphorePermit) -> Response {
    let length = response.body().size_hint().exact();
    let mut response = response.map(|body| {
        Body::from_stream(body.into_data_stream().inspect(move |_| {
            // It ends with the stream.
            let _ = &slot;
        }))
    });
    if let Some(length) = length {
        response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(HeaderValue::from(length));
    }
    response
}

/// The open connections of a port, in the order in which they were opened.
#[derive(Clone, Debug, Default)]
struct Connections(Arc<Mutex<OpenConnections>>);

#[derive(Debug, Default)]
struct OpenConnections {
    opened: u64,
    open: BTreeMap<u64, Arc<ConnectionState>>,
}

#[derive(Debug, Default)]
struct ConnectionState {
    has_request: AtomicBool,
    closed: CancellationToken,
}

/// A connection counts as open until this is dropped.
#[derive(Debug)]
struct Connection {
    id: u64,
    state: Arc<ConnectionState>,
    all: Connections,
}

impl Connections {
    /// Opens a connection, of so many at most.
    fn open(&self, at_most: usize) -> Connection {
        let mut all = self.lock();
        while all.open.len() >= at_most.max(1) {
            all.close_oldest();
        }
        let (id, state) = (all.opened, Arc::<ConnectionState>::default());
        all.opened += 1;
        all.open.insert(id, Arc::clone(&state));
        drop(all);
        Connection { id, state, all: self.clone() }
    }

    fn close_oldest(&self) {
        self.lock().close_oldest();
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    /// Of those without a request, if there are any: what a client waits for comes first.
    fn close_oldest(&mut self) {
        let mut idle = self.open.iter().filter(|(_, state)| !state.has_request.load(Ordering::Relaxed));
        let oldest = idle.next().or_else(|| self.open.iter().next()).map(|(id, _)| *id);
        if let Some(state) = oldest.and_then(|id| self.open.remove(&id)) {
            state.closed.cancel();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.lock().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
