//! Components as processes: what they survive, and that they end.

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Ends with the test, whatever happens in it.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Retries for about ten seconds: processes need a moment.
fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    for _ in 0..500 {
        if let Some(done) = attempt() {
            return done;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what}");
}

fn healthz(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// The API server never answers, no log line can be written, clients hold the port for metrics, and still it is healthy
/// and ends when asked to.
#[test]
fn a_scheduler_ends_in_time_whatever_its_clients_and_its_disk_do() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    let kubeconfig = std::env::temp_dir().join(format!("kai-cli-processes-{}.json", std::process::id()));
    let text = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    });
    fs::write(&kubeconfig, text.to_string()).unwrap();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_kai"))
        .arg("scheduler")
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .args(["--listen-address", &port.to_string(), "--plugin-server-port", "0", "--log-level", "trace"])
        .args(["--leader-elect"])
        .stderr(Stdio::from(full))
        .spawn();
    let mut process = Process(child.unwrap());
    let healthy = eventually("the port is served", || healthz(port));
    assert!(healthy.starts_with("HTTP/1.1 200"), "{healthy}");
    fs::remove_file(&kubeconfig).unwrap();

    let mut half_sent = TcpStream::connect(port).unwrap();
    half_sent.write_all(b"GET /metrics HTTP/1.1\r\nhost:").unwrap();
    let _idle = TcpStream::connect(port).unwrap();
    let id = process.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let status = eventually("it ends", || process.0.try_wait().unwrap());
    assert!(status.success(), "{status}");
}
