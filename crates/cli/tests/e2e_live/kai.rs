//! The program under test, and the cluster it is tested on.
#![allow(clippy::print_stderr, reason = "prints where the logs of a failed test are")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use test_cluster::{Cluster, Operator, Options, Progress};

use crate::ask::apply;

/// A fresh cluster of this many nodes with so many GPUs each.
pub(crate) fn cluster(name: &str, nodes: u32, gpus: u32) -> Cluster {
    cluster_with(name, nodes, gpus, &[])
}

/// One with operators in it.
pub(crate) fn cluster_with(name: &str, nodes: u32, gpus: u32, operators: &[Operator]) -> Cluster {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clusters");
    let options = Options { name: name.to_owned(), base, nodes, gpus, operators: operators.to_vec() };
    Cluster::start(&options, &Progress::start(name)).unwrap_or_else(|fault| panic!("{fault}"))
}

/// What the program prints.
#[track_caller]
pub(crate) fn kai(arguments: &[&Path]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_kai")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Components of the control plane: subcommand, service account, arguments of its own.
const COMPONENTS: [(&str, &str, &[&str]); 5] = [
    ("podgrouper", "pod-grouper", &[]),
    ("scheduler", "scheduler", &[]),
    ("binder", "binder", &["--fake-gpu-nodes"]),
    ("podgroupcontroller", "podgroup-controller", &[]),
    ("queuecontroller", "queue-controller", &[]),
];

/// All components, each as a process and a service account of its own.
pub(crate) struct Components {
    running: Vec<Kai>,
    killed: Vec<Kai>,
}

impl Components {
    pub(crate) fn start(cluster: &Cluster) -> Self {
        Self::start_with(cluster, &[])
    }

    /// With further arguments for the scheduler.
    pub(crate) fn start_with(cluster: &Cluster, scheduler: &[&str]) -> Self {
        Self::start_as(cluster, None, scheduler)
    }

    /// Connected to a proxy of the API server.
    pub(crate) fn start_through(cluster: &Cluster, url: &str) -> Self {
        Self::start_as(cluster, Some(url), &[])
    }

    fn start_as(cluster: &Cluster, through: Option<&str>, scheduler: &[&str]) -> Self {
        give_roles(cluster);
        let launch = |(subcommand, account, arguments): (&str, &str, &[&str])| {
            let more = if subcommand == "scheduler" { scheduler } else { &[] };
            Kai::launch(&kubeconfig_of(cluster, account, through), subcommand, &[arguments, more].concat())
        };
        let mut components = Self { running: COMPONENTS.map(launch).into(), killed: Vec::new() };
        components.running.iter_mut().for_each(Kai::await_ready);
        components
    }

    /// Kills one of them, without a signal that it could handle, and starts it anew.
    pub(crate) fn kill(&mut self, which: usize) {
        let which = which % self.running.len();
        let component = &mut self.running[which];
        component.child.kill().unwrap();
        component.child.wait().unwrap();
        let successor = component.again();
        self.killed.push(std::mem::replace(component, successor));
    }

    /// Ends all of them; their logs may have errors.
    pub(crate) fn end(&mut self) {
        for component in &mut self.running {
            assert!(component.terminate().success(), "{} should exit with status 0 on SIGTERM", component.name);
        }
    }

    pub(crate) fn get(&self, subcommand: &str, path: &str) -> String {
        self.component(subcommand).get(path).unwrap_or_else(|| panic!("{subcommand} does not answer {path}"))
    }

    /// Where it answers.
    pub(crate) fn port(&self, subcommand: &str) -> u16 {
        self.component(subcommand).port
    }

    /// What it has written so far.
    pub(crate) fn log(&self, subcommand: &str) -> String {
        std::fs::read_to_string(&self.component(subcommand).log).unwrap()
    }

    fn component(&self, subcommand: &str) -> &Kai {
        self.running.iter().find(|component| component.name.starts_with(subcommand)).expect("the component runs")
    }

    pub(crate) fn end_politely(&mut self) {
        self.running.iter_mut().for_each(Kai::end_politely);
    }
}

/// Makes the service accounts, with the shipped roles.
fn give_roles(cluster: &Cluster) {
    apply(&cluster.kubectl(), &kai(&["rbac".as_ref()]));
}

fn kubeconfig_of(cluster: &Cluster, account: &str, through: Option<&str>) -> PathBuf {
    cluster.kubeconfig_of("kai-scheduler", account, through).unwrap_or_else(|fault| panic!("{fault}"))
}

/// The program under test.
pub(crate) struct Kai {
    name: String,
    command: Vec<String>,
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Kai {
    /// Starts a subcommand as a service account of its own and waits until it is ready.
    pub(crate) fn start(cluster: &Cluster, subcommand: &str, account: &str, arguments: &[&str]) -> Self {
        give_roles(cluster);
        let mut kai = Self::launch(&kubeconfig_of(cluster, account, None), subcommand, arguments);
        kai.await_ready();
        kai
    }

    /// Starts a subcommand and does not wait.
    fn launch(kubeconfig: &Path, subcommand: &str, arguments: &[&str]) -> Self {
        let port = free_port();
        let name = format!("{subcommand}-{port}");
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.log"));
        let mut command = vec![subcommand, "--kubeconfig", kubeconfig.to_str().unwrap()];
        command.extend(arguments);
        let address = format!("127.0.0.1:{port}");
        command.extend(["--log-json", "--listen-address", &address]);
        let command: Vec<String> = command.into_iter().map(str::to_owned).collect();
        let child = spawn(&command, &log);
        Self { name, command, child, port, log }
    }

    /// Another one like it, where the first has ended.
    fn again(&self) -> Self {
        let log = self.log.with_extension(format!("{}.log", self.child.id()));
        let child = spawn(&self.command, &log);
        Self { name: self.name.clone(), command: self.command.clone(), child, port: self.port, log }
    }

    fn terminate(&mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.child.wait().unwrap()
    }

    fn await_ready(&mut self) {
        for _ in 0..300 {
            if self.get("/readyz").is_some_and(|answer| answer.starts_with("HTTP/1.1 200")) {
                return;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("{} ended ({status}):\n{}", self.name, std::fs::read_to_string(&self.log).unwrap());
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("{} is not ready after 30 s:\n{}", self.name, std::fs::read_to_string(&self.log).unwrap());
    }

    pub(crate) fn get(&self, path: &str) -> Option<String> {
        String::from_utf8(fetch(self.port, path)?).ok()
    }

    /// Ends it as Kubernetes would, and checks that its log has no errors.
    pub(crate) fn end_politely(&mut self) {
        assert!(self.terminate().success(), "{} should exit with status 0 on SIGTERM", self.name);
        let log = std::fs::read_to_string(&self.log).unwrap();
        for line in log.lines() {
            let entry: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
            assert_ne!(entry["level"], "ERROR", "{line}");
        }
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What is answered, head and all.
pub(crate) fn fetch(port: u16, path: &str) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    Some(answer)
}

fn spawn(arguments: &[String], log: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kai"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(log).unwrap());
    command.spawn().unwrap()
}

impl Drop for Kai {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(8)..].join("\n");
            eprintln!("the log of {}, {}, ends with:\n{tail}", self.name, self.log.display());
        }
    }
}
