use std::future::pending;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;

use axum::body::Bytes;
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;

/// Short, for tests: what takes 30 s elsewhere takes a moment here.
const LIMITS: ServerLimits = ServerLimits {
    connections: 64,
    head: Duration::from_millis(500),
    request: Duration::from_millis(500),
    lifetime: Duration::from_mins(1),
    drain: Duration::from_millis(500),
};

struct Served {
    address: SocketAddr,
    stop: CancellationToken,
    ended: JoinHandle<()>,
}

async fn serve(limits: ServerLimits, tls: Option<ServedCertificate>) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let routes = Router::new()
        .route("/", get(|| async { "fine" }))
        .route("/slow", get(pending::<()>))
        .route("/echo", post(|body: Bytes| async move { body }))
        .route("/large", get(|| async { vec![b'x'; 64 << 20] }));
    let mut server = HttpServer::new(listener, routes, limits, stop.clone());
    if let Some(certificate) = tls {
        server = server.with_tls(certificate);
    }
    Served { address, stop, ended: tokio::spawn(server.serve()) }
}

impl Served {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn send(&self, text: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// The answer to a GET request on a connection of its own.
    async fn get(&self, path: &str) -> String {
        let mut stream = self.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await;
        rest(&mut stream).await
    }

    /// Stops, and returns how long the server went on.
    async fn stop(self) -> Duration {
        let started = Instant::now();
        self.stop.cancel();
        within_seconds(self.ended).await.unwrap();
        started.elapsed()
    }
}

async fn within_seconds<T>(ends: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(10), ends).await.expect("this takes too long")
}

/// All that the server sends until it closes the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // A reset closes it as well.
    let _ = within_seconds(stream.read_to_end(&mut text)).await;
    String::from_utf8_lossy(&text).into_owned()
}

const HALF_SENT: &str = "GET / HTTP/1.1\r\nhost: x\r\n";

#[tokio::test]
async fn a_half_sent_request_does_not_keep_the_server_from_ending() {
    let served = serve(ServerLimits { head: Duration::from_mins(1), ..LIMITS }, None).await;
    let _half_sent = served.send(HALF_SENT).await;
    let _silent = served.connect().await;
    let _slow = served.send("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(served.get("/").await.ends_with("fine"));
    let took = served.stop().await;
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test]
async fn requests_in_flight_are_answered_before_the_server_ends() {
    let served = serve(ServerLimits { drain: Duration::from_secs(5), ..LIMITS }, None).await;
    let mut echoing = served.send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nab").await;
    assert!(served.get("/").await.ends_with("fine"), "so the other request has arrived");
    served.stop.cancel();
    echoing.write_all(b"cd").await.unwrap();
    assert!(rest(&mut echoing).await.ends_with("abcd"));
    within_seconds(served.ended).await.unwrap();
}

#[tokio::test]
async fn connections_that_are_silent_are_closed() {
    let served = serve(LIMITS, None).await;
    for sent in ["", HALF_SENT, "GET / HTTP/1.1\r\nhost: x\r\n\r\n"] {
        let (mut stream, started) = (served.send(sent).await, Instant::now());
        rest(&mut stream).await;
        assert!(started.elapsed() < Duration::from_secs(5), "{sent:?}");
    }
}

#[tokio::test]
async fn a_slow_body_is_not_awaited() {
    let served = serve(LIMITS, None).await;
    let mut stream = served.send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nab").await;
    assert!(rest(&mut stream).await.starts_with("HTTP/1.1 408"));
    let mut stream = served.send("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(rest(&mut stream).await.starts_with("HTTP/1.1 408"), "nor is a slow answer");
}

#[tokio::test]
async fn an_answer_that_is_not_read_has_an_end() {
    let served = serve(ServerLimits { lifetime: Duration::from_millis(300), ..LIMITS }, None).await;
    let mut stream = served.send("GET /large HTTP/1.1\r\nhost: x\r\n\r\n").await;
    sleep(Duration::from_millis(1500)).await;
    assert!(rest(&mut stream).await.len() < 64 << 20, "it was cut");
}

#[tokio::test]
async fn a_thousand_idle_connections_keep_no_other_client_out() {
    let limits = ServerLimits { head: Duration::from_mins(1), ..LIMITS };
    let served = serve(limits, None).await;
    let mut idle = Vec::new();
    for index in 0..1000 {
        idle.push(served.send(if index % 2 == 0 { HALF_SENT } else { "" }).await);
        if idle.len() > 200 {
            // The server has closed its end; this one would only use up the files of the test.
            idle.remove(1);
        }
    }
    let started = Instant::now();
    assert!(served.get("/").await.ends_with("fine"));
    assert!(started.elapsed() < Duration::from_secs(1));
    assert_eq!(rest(&mut idle[0]).await, "", "the oldest one was closed");
}

#[test]
fn connections_without_a_request_are_closed_first() {
    let connections = Connections::default();
    let [busy, idle] = [(), ()].map(|()| connections.open(2));
    busy.state.has_request.store(true, Ordering::Relaxed);
    let next = connections.open(2);
    assert_eq!([&busy, &idle, &next].map(|open| open.state.closed.is_cancelled()), [false, true, false]);
    next.state.has_request.store(true, Ordering::Relaxed);
    let last = connections.open(2);
    assert_eq!([&busy, &next, &last].map(|open| open.state.closed.is_cancelled()), [true, false, false]);
    drop((busy, idle, next, last));
    assert!(connections.lock().open.is_empty());
}

#[tokio::test]
async fn a_tls_handshake_has_an_end() {
    let key = rcgen::generate_simple_self_signed(vec!["here".to_owned()]).unwrap();
    let certificate =
        ServedCertificate::new(key.cert.pem().as_bytes(), key.signing_key.serialize_pem().as_bytes()).unwrap();
    let served = serve(LIMITS, Some(certificate.clone())).await;
    let mut silent = served.connect().await;
    assert_eq!(rest(&mut silent).await, "");
    served.stop().await;
    let served = serve(ServerLimits { head: Duration::from_mins(1), ..LIMITS }, Some(certificate)).await;
    let _silent = served.connect().await;
    assert!(served.stop().await < Duration::from_secs(5));
}

#[tokio::test]
async fn expensive_requests_are_answered_a_few_at_a_time() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let slow = || async {
        if ASKED.fetch_add(1, Ordering::SeqCst) == 0 {
            sleep(Duration::from_millis(400)).await;
        }
        "done"
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let routes = limit_concurrency(Router::new().route("/", get(slow)), 1).route("/cheap", get(|| async { "cheap" }));
    let ended = tokio::spawn(HttpServer::new(listener, routes, LIMITS, stop.clone()).serve());
    let served = Served { address, stop, ended };
    let first = async { served.get("/").await };
    let second = async {
        while ASKED.load(Ordering::SeqCst) == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        (served.get("/").await, served.get("/cheap").await)
    };
    let (first, (second, cheap)) = tokio::join!(first, second);
    assert!(first.contains("content-length: 4") && first.ends_with("done"), "{first}");
    assert!(second.starts_with("HTTP/1.1 503") && second.contains("retry-after: 1"), "{second}");
    assert!(cheap.ends_with("cheap"));
    assert!(served.get("/").await.ends_with("done"));
}
