use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};

use axum::Router;
use axum::http::{Method, Request, StatusCode, Uri};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::ApiLimits;
use crate::api_writer::ApiWriter;

/// The API server: one lease, and a count of writes. Each replica has a connection of its own, which may be faulty.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    lease: Option<Value>,
    version: u64,
    faults: BTreeMap<&'static str, Fault>,
    /// When the lease was last written, and by which replica.
    renewed: Option<(&'static str, Instant)>,
    /// When each replica last sent a write.
    written: BTreeMap<&'static str, Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Leases cannot be read or written, and other writes are to be repeated.
    Errors,
    /// Requests for leases get no answer at all: a connection that is half open.
    Hangs,
    /// Requests arrive late.
    Delays(Duration),
    /// Requests are done at once, and answered late; after the first one that writes there is no answer any more.
    OneLateAnswer(Duration),
}

const DURATION: Duration = Duration::from_secs(15);
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

fn failed(code: StatusCode, reason: &str) -> (StatusCode, String) {
    let status =
        json!({"kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": code.as_u16()});
    (code, status.to_string())
}

impl Server {
    async fn answer(self, from: &'static str, method: Method, uri: Uri, body: String) -> (StatusCode, String) {
        let fault = self.0.lock().unwrap().faults.get(from).copied();
        if !uri.path().contains("/leases") {
            self.0.lock().unwrap().written.insert(from, Instant::now());
            return match fault {
                Some(Fault::Errors) => failed(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
                _ => (StatusCode::OK, "{}".to_owned()),
            };
        }
        match fault {
            Some(Fault::Errors) => return failed(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::Delays(time)) => sleep(time).await,
            Some(Fault::OneLateAnswer(_)) | None => {}
        }
        let writes = method != Method::GET;
        let answer = self.do_lease(from, &method, serde_json::from_str(&body).ok());
        if let Some(Fault::OneLateAnswer(time)) = fault {
            if writes {
                self.set_fault(from, Some(Fault::Hangs));
            }
            sleep(time).await;
        }
        answer
    }

    fn do_lease(&self, from: &'static str, method: &Method, body: Option<Value>) -> (StatusCode, String) {
        let mut stored = self.0.lock().unwrap();
        let Some(mut lease) = body else {
            return match &stored.lease {
                Some(lease) => (StatusCode::OK, lease.to_string()),
                None => failed(StatusCode::NOT_FOUND, "NotFound"),
            };
        };
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        let fits = match &stored.lease {
            Some(known) => *method == Method::PUT && version(known) == version(&lease),
            None => *method == Method::POST,
        };
        if !fits {
            return failed(StatusCode::CONFLICT, "Conflict");
        }
        stored.version += 1;
        lease["metadata"]["resourceVersion"] = json!(stored.version.to_string());
        stored.lease = Some(lease.clone());
        stored.renewed = Some((from, Instant::now()));
        (StatusCode::OK, lease.to_string())
    }

    fn holder(&self) -> Option<String> {
        Some(self.0.lock().unwrap().lease.as_ref()?["spec"]["holderIdentity"].as_str()?.to_owned())
    }

    fn set_fault(&self, of: &'static str, fault: Option<Fault>) {
        let faults = &mut self.0.lock().unwrap().faults;
        match fault {
            Some(fault) => faults.insert(of, fault),
            None => faults.remove(of),
        };
    }

    fn written(&self, by: &str) -> Option<Instant> {
        self.0.lock().unwrap().written.get(by).copied()
    }

    fn renewed(&self) -> (&'static str, Instant) {
        self.0.lock().unwrap().renewed.unwrap()
    }

    /// Another replica takes the lease from its holder.
    fn take_over(&self, identity: &str) {
        let mut stored = self.0.lock().unwrap();
        stored.version += 1;
        let version = stored.version.to_string();
        let lease = stored.lease.as_mut().unwrap();
        lease["spec"]["holderIdentity"] = json!(identity);
        lease["metadata"]["resourceVersion"] = json!(version);
    }

    /// A connection of a replica.
    fn client(&self, identity: &'static str) -> Client {
        let server = self.clone();
        let answer = move |method: Method, uri: Uri, body: String| server.clone().answer(identity, method, uri, body);
        Client::new(Router::new().fallback(answer), "default")
    }

    /// A replica that leads until stopped, and writes ten times a second while it does.
    fn replica(&self, identity: &'static str) -> Replica {
        let (health, stop, client) = (Health::new("kai"), CancellationToken::new(), self.client(identity));
        let _readiness = health.add_component("scheduler");
        let limits = Arc::new(ApiLimits::new(0.0, 1, Arc::default(), health.api_metrics().clone()));
        let writer = ApiWriter::new(client.clone(), Arc::clone(&limits), 32);
        let (shared, stopped) = (health.clone(), stop.clone());
        let ended = tokio::spawn(async move {
            let work = write_until(writer, stopped.clone());
            let component = (&shared, "scheduler");
            run_as_leader(LeaseClient::here(client), component, Some(options(identity)), limits.fence(), stopped, work)
                .await
        });
        Replica { health, stop, ended }
    }
}

fn options(identity: &str) -> LeaderElectionOptions {
    LeaderElectionOptions {
        namespace: "kai-scheduler".to_owned(),
        name: "kai-scheduler".to_owned(),
        identity: identity.to_owned(),
        duration: DURATION,
        renew_deadline: RENEW_DEADLINE,
        retry_period: Duration::from_secs(2),
    }
}

async fn write_until(writer: ApiWriter, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let calls = writer.clone();
        writer.spawn(move || async move {
            let write = || calls.client.request_text(Request::post("/write").body(Vec::new()).unwrap());
            let _ = calls.call(write).await;
        });
        sleep(Duration::from_millis(100)).await;
    }
}

struct Replica {
    health: Health,
    stop: CancellationToken,
    ended: JoinHandle<Result<(), FatalError>>,
}

impl Replica {
    fn leads(&self) -> bool {
        self.health.metrics().contains("kai_leader{lease=\"kai-scheduler\"} 1")
    }

    fn is_standby(&self) -> bool {
        self.health.readiness() == (StatusCode::OK, "ready (standby)".to_owned())
    }

    async fn ended(self) -> String {
        self.ended.await.unwrap().unwrap_err().to_string()
    }
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_mins(1), "{what}");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_other_stands_by_ready_until_the_lease_is_released() {
    let server = Server::default();
    let one = server.replica("one");
    eventually("one leads", || one.leads()).await;
    let other = server.replica("other");
    eventually("the other is a ready standby", || other.is_standby()).await;
    sleep(Duration::from_mins(1)).await;
    assert!(one.leads() && !other.leads() && server.written("other").is_none());
    let released = Instant::now();
    one.stop.cancel();
    one.ended.await.unwrap().unwrap();
    eventually("the other leads", || other.leads()).await;
    assert!(released.elapsed() < Duration::from_secs(3), "it need not expire");
    assert_eq!(server.holder().as_deref(), Some("other"));
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_dead_leader_is_taken_over_after_it_has_expired() {
    let server = Server::default();
    let one = server.replica("one");
    eventually("one leads", || one.leads()).await;
    one.ended.abort();
    let _ = one.ended.await;
    server.take_over("dead");
    let (other, started) = (server.replica("other"), Instant::now());
    eventually("the other leads", || other.leads()).await;
    assert!(started.elapsed() > DURATION, "not before it has expired");
}

#[tokio::test(start_paused = true)]
async fn a_leader_ends_when_another_replica_has_taken_the_lease() {
    let server = Server::default();
    let one = server.replica("one");
    eventually("one leads", || one.leads()).await;
    server.take_over("other");
    assert_eq!(one.ended().await, "leader lease kai-scheduler was taken by other");
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_does_not_keep_a_replica_from_taking_over() {
    let server = Server::default();
    server.set_fault("one", Some(Fault::Hangs));
    let one = server.replica("one");
    sleep(Duration::from_millis(200)).await;
    assert!(!one.leads());
    server.set_fault("one", None);
    eventually("one leads", || one.leads()).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_no_lost_lease() {
    let server = Server::default();
    let one = server.replica("one");
    eventually("one leads", || one.leads()).await;
    for _ in 0..10 {
        server.set_fault("one", Some(Fault::Hangs));
        sleep(Duration::from_secs(3)).await;
        server.set_fault("one", None);
        sleep(Duration::from_secs(8)).await;
        assert!(one.leads());
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_does_not_keep_a_leader_from_ending() {
    let server = Server::default();
    let one = server.replica("one");
    eventually("one leads", || one.leads()).await;
    server.set_fault("one", Some(Fault::Hangs));
    one.stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(6), one.ended).await;
    ended.expect("the release has an end").unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_stops_writing_before_another_replica_takes_over() {
    for errors in 0..12 {
        let server = Server::default();
        let one = server.replica("one");
        eventually("one leads", || one.leads()).await;
        let other = server.replica("other");
        sleep(Duration::from_secs(20)).await;
        server.set_fault("one", Some(Fault::Errors));
        sleep(Duration::from_secs(errors)).await;
        server.set_fault("one", Some(Fault::Hangs));
        let (_, renewed) = server.renewed();
        eventually("the other leads", || other.leads()).await;
        let (written, taken_over) = (server.written("one").unwrap(), Instant::now());
        assert!(written <= renewed + RENEW_DEADLINE, "{:?} after its last renewal", written - renewed);
        assert!(taken_over > renewed + DURATION);
        assert_eq!(one.ended().await, "could not renew leader lease kai-scheduler within 10 s");
        sleep(Duration::from_mins(1)).await;
        assert_eq!(server.written("one"), Some(written), "nothing that was queued or repeated");
        assert!(server.written("other") > Some(taken_over));
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_lease_counts_from_when_it_was_requested() {
    let server = Server::default();
    server.set_fault("one", Some(Fault::OneLateAnswer(Duration::from_secs(2))));
    let one = server.replica("one");
    eventually("one leads", || one.leads()).await;
    let (_, renewed) = server.renewed();
    assert_eq!(one.ended().await, "could not renew leader lease kai-scheduler within 10 s");
    let written = server.written("one").unwrap();
    assert!(written <= renewed + RENEW_DEADLINE, "{:?} after the lease was stored", written - renewed);
}

#[tokio::test(start_paused = true)]
async fn a_late_request_does_not_let_a_lease_expire_early() {
    for seconds in 20..30 {
        let server = Server::default();
        let one = server.replica("one");
        eventually("one leads", || one.leads()).await;
        server.set_fault("other", Some(Fault::Delays(Duration::from_millis(4_500))));
        let other = server.replica("other");
        sleep(Duration::from_secs(seconds)).await;
        one.ended.abort();
        let _ = one.ended.await;
        let (holder, renewed) = server.renewed();
        assert_eq!(holder, "one");
        server.set_fault("other", None);
        eventually("the other leads", || other.leads()).await;
        assert!(renewed.elapsed() > DURATION, "{seconds}: after {:?}", renewed.elapsed());
        other.ended.abort();
    }
}

/// With a thread for leases, as a process has it.
#[test]
fn renewal_goes_on_while_a_cycle_keeps_its_thread_busy() {
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let leases = {
        let _here = threads.enter();
        LeaseClient::here(Server::default().client("one"))
    };
    let options = LeaderElectionOptions {
        duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry_period: Duration::from_millis(100),
        ..options("one")
    };
    let (health, fence) = (Health::new("kai"), WriteFence::default());
    let (writes, written) = mpsc::channel();
    let asked = fence.clone();
    let work = async move {
        std::thread::sleep(Duration::from_millis(2_500));
        writes.send(asked.may_write()).unwrap();
    };
    let component = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let leading = run_as_leader(leases, (&health, "scheduler"), Some(options), &fence, CancellationToken::new(), work);
    component.block_on(leading).unwrap();
    assert!(written.recv().unwrap(), "the lease was renewed meanwhile");
    threads.shutdown_background();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_leader_ends_at_once_when_its_lease_was_taken() {
    let server = Server::default();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let (go_on, end) = mpsc::channel::<()>();
    let work = async move {
        begin.send(()).unwrap();
        let _ = end.recv();
    };
    let (taken, fence) = (server.clone(), WriteFence::default());
    let leading = async {
        let options = LeaderElectionOptions { retry_period: Duration::from_millis(50), ..options("one") };
        let health = Health::new("kai");
        let leases = LeaseClient::here(server.client("one"));
        run_as_leader(leases, (&health, "scheduler"), Some(options), &fence, CancellationToken::new(), work).await
    };
    let taking = async {
        begun.await.unwrap();
        taken.take_over("other");
    };
    let (ended, ()) =
        tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(leading, taking) }).await.unwrap();
    assert!(matches!(ended, Err(FatalError::LeaseTaken { .. })) && !fence.may_write());
    drop(go_on);
}
