//! One cluster, from its credentials to its nodes.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::control_plane::{self, LaunchContext};
use crate::credentials::Credentials;
use crate::operators::{Installation, Ports};
use crate::orphan_reaper::OrphanReaper;
use crate::process::{Process, Record};
use crate::progress::Stopwatch;
use crate::state::State;
use crate::{Error, Kubectl, Operator, Programs, Progress, manifests, ports};

#[derive(Clone, Debug)]
pub struct Options {
    pub name: String,
    /// Clusters have folders of their names in it.
    pub base: PathBuf,
    pub nodes: u32,
    /// Of each node.
    pub gpus: u32,
    /// Started after everything else.
    pub operators: Vec<Operator>,
}

/// A running cluster. Ends when dropped, unless detached.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) dir: PathBuf,
    pub(crate) credentials: Credentials,
    state: State,
    processes: Vec<Process>,
    reaper: Option<OrphanReaper>,
    /// Held as long as this cluster is used: no other process starts or ends one of this name.
    _lock: File,
    on_drop: OnDrop,
}

#[derive(Debug, PartialEq, Eq)]
enum OnDrop {
    /// Ends, but its logs stay: it is not complete, or a user wants to read them.
    KeepLogs,
    /// Ends without a trace.
    Remove,
    /// Lives on.
    Detach,
}

/// Long for a machine that does nothing else; tests often run on one that does.
const READY_TIMEOUT: Duration = Duration::from_mins(2);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Cluster {
    /// Starts everything and waits until all nodes are ready. If that fails, nothing is left running.
    pub fn start(options: &Options, progress: &Progress) -> Result<Self, Error> {
        let programs = Programs::find_or_build(progress)?;
        let Options { name, base, nodes, gpus, operators } = options;
        let prepare = |operator: &Operator| Installation::prepare(*operator, progress);
        let operators = operators.iter().map(prepare).collect::<Result<Vec<_>, _>>()?;
        check_name(name)?;
        fs::create_dir_all(base).map_err(Error::io("create", base))?;
        // Programs run elsewhere, and get this path as an argument.
        let base = base.canonicalize().map_err(Error::io("find", base))?;
        let lock = lock(&base, name)?;
        let dir = base.join(name);
        remove_stale(&dir, name)?;
        fs::create_dir_all(&dir).map_err(Error::io("create", &dir))?;
        let state = State {
            name: name.clone(),
            server: String::new(),
            kubeconfig: dir.join("kubeconfig"),
            kubectl: programs.kubectl.clone(),
            nodes: *nodes,
            gpus: *gpus,
            processes: Vec::new(),
        };
        let credentials = Credentials::create(&dir.join("keys"))?;
        let reaper = Some(OrphanReaper::start(&dir)?);
        let mut cluster =
            Self { dir, credentials, state, processes: Vec::new(), reaper, _lock: lock, on_drop: OnDrop::KeepLogs };
        cluster.bring_up(&programs, &operators, progress)?;
        cluster.on_drop = OnDrop::Remove;
        Ok(cluster)
    }

    pub fn kubectl(&self) -> Kubectl {
        self.state.kubectl()
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Lets a service account in: directly, or through a proxy of the API server at this address.
    pub fn kubeconfig_of(&self, namespace: &str, account: &str, through: Option<&str>) -> Result<PathBuf, Error> {
        let token = self.kubectl().run(&format!("create token {account} --namespace {namespace}"))?;
        let path = self.dir.join(format!("kubeconfig-{account}"));
        let State { name, server, .. } = &self.state;
        self.credentials.write_kubeconfig(&path, name, through.unwrap_or(server), token.trim())?;
        Ok(path)
    }

    /// Complains if any of its processes has ended.
    pub fn check(&mut self, during: &str) -> Result<(), Error> {
        self.processes.iter_mut().try_for_each(|process| process.check(during))
    }

    /// Starts a program that ends with the cluster, and waits until it answers on the free port that it is given.
    pub fn start_program(&mut self, name: &'static str, command: impl Fn(u16) -> Command) -> Result<(), Error> {
        self.on_free_ports(|cluster| {
            let [port] = ports::free()?;
            cluster.spawn(name, command(port))?;
            cluster.wait(name, &format!("{name} to answer"), |_| control_plane::answers(port))
        })
    }

    /// Ends a program that was started.
    pub fn stop_program(&mut self, name: &str) -> Result<(), Error> {
        let Some(place) = self.processes.iter().position(|process| process.name == name) else { return Ok(()) };
        let mut process = self.processes.remove(place);
        process.end();
        self.forget(process.record.pid)
    }

    /// Lets it run on after us, until [`down`].
    pub fn detach(mut self) {
        self.on_drop = OnDrop::Detach;
    }

    /// Ends it, but keeps what its processes wrote.
    pub fn end_with_logs(mut self) {
        self.on_drop = OnDrop::KeepLogs;
    }

    fn bring_up(&mut self, programs: &Programs, operators: &[Installation], progress: &Progress) -> Result<(), Error> {
        let credentials = self.credentials.clone();
        let context = LaunchContext {
            dir: &self.dir.clone(),
            kubeconfig: &self.state.kubeconfig.clone(),
            programs,
            credentials: &credentials,
        };
        progress.report("credentials made");

        let etcd = self.on_free_ports(|cluster| cluster.start_etcd(&context))?;
        progress.report(format_args!("etcd listens on port {etcd}"));
        self.on_free_ports(|cluster| cluster.start_api_server(&context, etcd))?;
        progress.report(format_args!("kube-apiserver is ready at {}", self.state.server));
        let kubectl = self.kubectl();
        self.on_free_ports(|cluster| cluster.start_controllers(&context))?;
        create(&kubectl, &manifests::crds())?;
        for operator in operators {
            create(&kubectl, &manifests::list(operator.kinds()))?;
        }
        create(&kubectl, &manifests::priority_classes())?;
        create(&kubectl, manifests::RUNTIME_CLASS)?;
        kubectl.run("wait --for=condition=Established crd --all --timeout=60s")?;
        progress.report("custom resources and priority classes are served");
        self.wait("kube-controller-manager", "its first service account", |kubectl| {
            kubectl.run("get serviceaccount default").is_ok()
        })?;
        progress.report("kube-controller-manager works");

        let (nodes, gpus) = (self.state.nodes, self.state.gpus);
        if nodes > 0 {
            create(&kubectl, &manifests::nodes(nodes, gpus))?;
        }
        self.spawn("kwok", control_plane::kwok(&context)?)?;
        self.wait("kwok", "all nodes to be ready", |kubectl| ready_nodes(kubectl).is_ok_and(|ready| ready == nodes))?;
        progress.report(format_args!("{nodes} nodes with {gpus} GPUs each are ready"));
        for operator in operators {
            self.on_free_ports(|cluster| cluster.start_operator(&context, operator))?;
            progress.report(format_args!("{} works", operator.operator.name()));
        }
        self.state.write(&self.dir)
    }

    fn start_etcd(&mut self, context: &LaunchContext<'_>) -> Result<u16, Error> {
        let [client, peer] = ports::free()?;
        self.spawn("etcd", control_plane::etcd(context, client, peer))?;
        self.wait("etcd", "etcd to answer", |_| control_plane::answers(client))?;
        Ok(client)
    }

    fn start_api_server(&mut self, context: &LaunchContext<'_>, etcd: u16) -> Result<(), Error> {
        let [port] = ports::free()?;
        self.state.server = format!("https://127.0.0.1:{port}");
        let State { name, server, .. } = &self.state;
        context.credentials.write_kubeconfig(context.kubeconfig, name, server, &context.credentials.token)?;
        self.spawn("kube-apiserver", control_plane::api_server(context, port, etcd))?;
        self.wait("kube-apiserver", "the API server to be ready", |kubectl| {
            control_plane::answers(port) && kubectl.run("get --raw=/readyz").is_ok()
        })
    }

    fn start_controllers(&mut self, context: &LaunchContext<'_>) -> Result<(), Error> {
        let [port] = ports::free()?;
        self.spawn("kube-controller-manager", control_plane::controllers(context, port))?;
        self.wait("kube-controller-manager", "controllers to start", |_| control_plane::answers(port))
    }

    fn start_operator(&mut self, context: &LaunchContext<'_>, installation: &Installation) -> Result<(), Error> {
        let [probes, webhooks] = ports::free()?;
        let name = installation.operator.name();
        self.spawn(name, installation.command(context, Ports { probes, webhooks })?)?;
        self.wait(name, &format!("{name} to answer"), |_| {
            control_plane::answers(probes) && (!installation.has_webhooks() || control_plane::answers(webhooks))
        })?;
        if installation.has_webhooks() {
            let configurations = installation.webhooks(webhooks, &context.credentials.authority)?;
            create(&self.kubectl(), &manifests::list(&configurations))?;
        }
        Ok(())
    }

    /// Ports are free when they are chosen, and may not be a moment later.
    pub(crate) fn on_free_ports<T>(&mut self, start: impl Fn(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        for _ in 1..3 {
            match start(self) {
                Err(fault) if fault.is_port_taken() => {
                    if let Some(mut process) = self.processes.pop() {
                        process.end();
                        self.forget(process.record.pid)?;
                    }
                }
                done => return done,
            }
        }
        start(self)
    }

    pub(crate) fn spawn(&mut self, name: &'static str, command: Command) -> Result<(), Error> {
        let process = Process::spawn(name, &self.dir, command)?;
        let record = process.record.clone();
        self.processes.push(process);
        if let Some(reaper) = &mut self.reaper {
            reaper.add(record.pid)?;
        }
        self.state.processes.push(record);
        // At once: if this process ends, the next one must find what to clean up.
        self.state.write(&self.dir)
    }

    /// Takes a process that has ended off the list of those to be ended.
    fn forget(&mut self, pid: u32) -> Result<(), Error> {
        self.state.processes.retain(|record| record.pid != pid);
        if let Some(reaper) = &mut self.reaper {
            reaper.remove(pid)?;
        }
        self.state.write(&self.dir)
    }

    /// Waits until the probe holds. A process that ends meanwhile ends the waiting.
    pub(crate) fn wait(
        &mut self,
        process: &str,
        what: &str,
        mut probe: impl FnMut(&Kubectl) -> bool,
    ) -> Result<(), Error> {
        let kubectl = self.kubectl();
        let watch = Stopwatch::start();
        while !probe(&kubectl) {
            self.check(&format!("waiting for {what}"))?;
            if watch.elapsed() > READY_TIMEOUT {
                let record = self.processes.iter().map(|process| &process.record).find(|record| record.name == process);
                let (log, tail) = record.map(|record| (record.log.clone(), record.tail())).unwrap_or_default();
                return Err(Error::Late { what: format!("waiting for {what}"), after: READY_TIMEOUT, log, tail });
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.on_drop == OnDrop::Detach {
            return;
        }
        self.processes.iter_mut().rev().for_each(Process::end);
        self.reaper = None;
        if self.on_drop == OnDrop::Remove && !thread::panicking() {
            // A folder that stays does no harm; the next cluster of this name clears it.
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Ends a cluster and removes its folder; `false` if there was none.
pub fn down(base: &Path, name: &str) -> Result<bool, Error> {
    check_name(name)?;
    let dir = base.join(name);
    if !dir.exists() {
        return Ok(false);
    }
    let _lock = lock(base, name)?;
    if let Some(state) = State::read(&dir)? {
        state.processes.iter().rev().for_each(Record::end);
    }
    fs::remove_dir_all(&dir).map_err(Error::io("remove", &dir))?;
    Ok(true)
}

/// Creates what a new cluster starts with. It is known to be valid; having `kubectl` check it would take seconds.
pub(crate) fn create(kubectl: &Kubectl, manifests: &str) -> Result<(), Error> {
    kubectl.run_with(&["create", "--validate=false", "--filename=-"], Some(manifests)).map(|_| ())
}

/// How many nodes say that they are ready.
pub(crate) fn ready_nodes(kubectl: &Kubectl) -> Result<u32, Error> {
    let ready = r#"-o=jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}"#;
    let statuses = kubectl.run_with(&["get", "nodes", ready], None)?;
    Ok(statuses.lines().filter(|status| *status == "True").count() as u32)
}

/// Names become names of folders and contexts.
fn check_name(name: &str) -> Result<(), Error> {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.starts_with('-') || !name.chars().all(fine) {
        return Err(Error::BadName { name: name.to_owned() });
    }
    Ok(())
}

fn lock(base: &Path, name: &str) -> Result<File, Error> {
    let path = base.join(format!("{name}.lock"));
    let lock = File::create(&path).map_err(Error::io("create", &path))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Error::Busy { name: name.to_owned() }),
        Err(TryLockError::Error(error)) => Err(Error::io("lock", &path)(error)),
    }
}

/// Removes what a cluster of this name has left behind; refuses if it still runs.
fn remove_stale(dir: &Path, name: &str) -> Result<(), Error> {
    if let Some(state) = State::read(dir)?
        && state.processes.iter().any(|record| record.stats().is_some())
    {
        return Err(Error::Exists { name: name.to_owned() });
    }
    if dir.exists() {
        fs::remove_dir_all(dir).map_err(Error::io("remove", dir))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;

    fn base(name: &str) -> PathBuf {
        let base = env::temp_dir().join(format!("test-cluster-{}-{name}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        base
    }

    /// A cluster whose only process does nothing.
    fn sleeping(base: &Path, name: &str) -> Process {
        let dir = base.join(name);
        fs::create_dir_all(&dir).unwrap();
        let mut command = Command::new("sleep");
        command.arg("60");
        let process = Process::spawn("etcd", &dir, command).unwrap();
        let state = State {
            name: name.to_owned(),
            server: String::new(),
            kubeconfig: PathBuf::new(),
            kubectl: PathBuf::new(),
            nodes: 0,
            gpus: 0,
            processes: vec![process.record.clone()],
        };
        state.write(&dir).unwrap();
        process
    }

    #[test]
    fn down_ends_the_named_cluster_only_and_may_be_repeated() {
        let base = base("down");
        let (mut one, mut other) = (sleeping(&base, "one"), sleeping(&base, "other"));
        assert!(down(&base, "one").unwrap());
        assert!(one.check("testing").is_err());
        assert!(other.check("testing").is_ok());
        assert!(!down(&base, "one").unwrap());
        assert_eq!(State::read_all(&base).unwrap().len(), 1);
        other.end();
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_running_cluster_is_not_cleared_and_a_dead_one_is() {
        let base = base("clear");
        let mut process = sleeping(&base, "one");
        let dir = base.join("one");
        assert!(matches!(remove_stale(&dir, "one"), Err(Error::Exists { .. })));
        process.end();
        remove_stale(&dir, "one").unwrap();
        assert!(!dir.exists());
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_cluster_in_use_is_left_alone() {
        let base = base("busy");
        let mut process = sleeping(&base, "one");
        let held = lock(&base, "one").unwrap();
        assert!(matches!(down(&base, "one"), Err(Error::Busy { .. })));
        assert!(process.check("testing").is_ok());
        drop(held);
        assert!(down(&base, "one").unwrap());
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn names_cannot_leave_the_folder() {
        for name in ["", "..", "a/b", "-x", "A"] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name("big-500").is_ok());
    }
}
