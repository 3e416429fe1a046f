//! What users of a real API server wait for: pods until they are bound, gangs until their conditions name the reason, and
//! jobs until room is made for them. Beside it, what that API server can do at best.
#![allow(clippy::disallowed_types, reason = "waiting is measured by the clock on the wall")]

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kai_process_stats::rss_bytes_of;
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use test_cluster::{Cluster, Operator, Options, Progress};

use crate::cost::Cost;

/// Concurrent calls, of the bench and of each component.
pub(crate) const WORKERS: usize = 32;
pub(crate) const GPUS: u32 = 8;
const TIMEOUT: Duration = Duration::from_mins(10);
/// For kai to sync, where it is to be running already.
pub(crate) const START: Duration = Duration::from_secs(3);
const SEPARATE: [&str; 5] = ["podgrouper", "scheduler", "binder", "podgroupcontroller", "queuecontroller"];
const TOGETHER: [&str; 1] = ["all-in-one"];

pub(crate) type Failed = Box<dyn Error + Send + Sync>;

/// What was measured.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) pods: usize,
    pub(crate) rounds: Vec<Round>,
    pub(crate) full: Full,
    /// What creating and binding the pods took in the last round, baseline and with kai.
    pub(crate) baseline_cost: Cost,
    pub(crate) cost: Cost,
}

/// Pods a second, each on a cluster of its own: one that has deleted thousands of pods is slower than a new one. The
/// speed of a machine changes from minute to minute, so what is compared is measured right after each other.
#[derive(Debug)]
pub(crate) struct Round {
    /// Binds, with nothing else to do.
    pub(crate) baseline_binds: f64,
    /// Pending when kai is started, from the start to the last that is bound.
    pub(crate) backlog: f64,
    /// From the first that is created to the last that is bound, with a client that binds each itself at once.
    pub(crate) baseline: f64,
    /// The same with all components of kai running.
    pub(crate) with_kai: f64,
}

/// How things are on a cluster that has no GPU left.
#[derive(Debug)]
pub(crate) struct Full {
    /// From the first that is created until all run and their requests are known to be carried out.
    pub(crate) rest: Duration,
    /// Until every pod of a gang for which there is no room is marked unschedulable.
    pub(crate) unschedulable: Duration,
    /// Until a pod is bound for which another queue must give up a GPU.
    pub(crate) reclaim: Duration,
    /// MiB in use by each component in the end.
    pub(crate) memory: Vec<(&'static str, u64)>,
}

/// What to measure.
pub(crate) struct Bench<'a> {
    /// The program.
    pub(crate) kai: &'a Path,
    pub(crate) nodes: u32,
    pub(crate) pods: usize,
    pub(crate) separate_processes: bool,
    pub(crate) rounds: u32,
}

impl Bench<'_> {
    pub(crate) fn run(&self) -> Result<Report, Failed> {
        let progress = Progress::start("live");
        let mut rounds = Vec::new();
        for _ in 1..self.rounds {
            rounds.push(self.round(&progress, false)?.0);
        }
        let (last, baseline_cost, cost, full) = self.round(&progress, true)?;
        rounds.push(last);
        let full = full.ok_or("nothing was measured on the full cluster")?;
        Ok(Report { pods: self.pods, rounds, full, baseline_cost, cost })
    }

    fn round(&self, progress: &Progress, to_the_end: bool) -> Result<(Round, Cost, Cost, Option<Full>), Failed> {
        let baseline_binds =
            on_a_new_cluster(self.nodes, &[], progress, async |cluster| self.baseline_binds(cluster, progress).await)?;
        let backlog =
            on_a_new_cluster(self.nodes, &[], progress, async |cluster| self.backlog(cluster, progress).await)?;
        let (baseline, baseline_cost) =
            on_a_new_cluster(self.nodes, &[], progress, async |cluster| self.baseline(cluster, progress).await)?;
        let (with_kai, cost, full) = on_a_new_cluster(self.nodes, &[], progress, async |cluster| {
            self.with_kai(cluster, progress, to_the_end).await
        })?;
        Ok((Round { baseline_binds, backlog, baseline, with_kai }, baseline_cost, cost, full))
    }

    fn a_second(&self, elapsed: Duration) -> f64 {
        self.pods as f64 / elapsed.as_secs_f64()
    }

    async fn baseline_binds(&self, cluster: &Cluster, progress: &Progress) -> Result<f64, Failed> {
        let api = pods_of(cluster).await?;
        create(&api, self.pods, "baseline", "nobody", "first").await?;
        let started = Instant::now();
        let params = PostParams::default();
        let calls = (0..self.pods).map(|number| bind(&api, &params, "baseline", number));
        stream::iter(calls).buffer_unordered(WORKERS).try_collect::<()>().await?;
        let bound = self.a_second(started.elapsed());
        progress.report(format!("{bound:.0} baseline binds a second"));
        Ok(bound)
    }

    async fn backlog(&self, cluster: &Cluster, progress: &Progress) -> Result<f64, Failed> {
        let api = pods_of(cluster).await?;
        cluster.kubectl().apply(&queues(self.pods))?;
        create(&api, self.pods, "late", "kai-scheduler", "first").await?;
        let started = Instant::now();
        let _components = Components::start(self.kai, &cluster.state().kubeconfig, self.separate_processes)?;
        let bound = self.a_second(await_bound(&api, self.pods).await? - started);
        progress.report(format!("{bound:.0} pods a second that waited for kai to start were bound"));
        Ok(bound)
    }

    async fn baseline(&self, cluster: &Cluster, progress: &Progress) -> Result<(f64, Cost), Failed> {
        let api = pods_of(cluster).await?;
        // As late as when kai is started first: nodes renew their leases every ten seconds.
        tokio::time::sleep(START).await;
        let processes = processes_of(cluster);
        let before = Cost::read(&cluster.kubectl(), &processes)?;
        let started = Instant::now();
        let params = PostParams::default();
        let calls = (0..self.pods).map(|number| {
            let (api, params) = (&api, &params);
            async move {
                api.create(params, &pod("baseline", number, "nobody", "first")).await?;
                bind(api, params, "baseline", number).await
            }
        });
        // As many calls at once as when the bench creates and kai binds.
        stream::iter(calls).buffer_unordered(2 * WORKERS).try_collect::<()>().await?;
        let baseline = self.a_second(started.elapsed());
        let cost = Cost::read(&cluster.kubectl(), &processes)?.since(&before);
        progress.report(format!("{baseline:.0} pods a second created and bound, baseline"));
        Ok((baseline, cost))
    }

    async fn with_kai(
        &self,
        cluster: &Cluster,
        progress: &Progress,
        to_the_end: bool,
    ) -> Result<(f64, Cost, Option<Full>), Failed> {
        let api = pods_of(cluster).await?;
        cluster.kubectl().apply(&queues(self.pods))?;
        let components = Components::start(self.kai, &cluster.state().kubeconfig, self.separate_processes)?;
        tokio::time::sleep(START).await;
        let mut processes = processes_of(cluster);
        processes.extend(components.ids());
        let before = Cost::read(&cluster.kubectl(), &processes)?;
        let started = Instant::now();
        create(&api, self.pods, "with-kai", "kai-scheduler", "first").await?;
        progress.report(format!("{} pods created in {:.1?}", self.pods, started.elapsed()));
        let with_kai = self.a_second(await_bound(&api, self.pods).await? - started);
        let cost = Cost::read(&cluster.kubectl(), &processes)?.since(&before);
        progress.report(format!("{with_kai:.0} pods a second created and bound by kai"));
        let full = if to_the_end { Some(full(&api, progress, started, &components).await?) } else { None };
        Ok((with_kai, cost, full))
    }
}

/// Runs a phase of a bench on a cluster of its own.
pub(crate) fn on_a_new_cluster<T>(
    nodes: u32,
    operators: &[Operator],
    progress: &Progress,
    phase: impl AsyncFnOnce(&Cluster) -> Result<T, Failed>,
) -> Result<T, Failed> {
    let base = std::env::temp_dir().join("kai-bench");
    let options = Options { name: "live".to_owned(), base, nodes, gpus: GPUS, operators: operators.to_vec() };
    let cluster = Cluster::start(&options, progress)?;
    tokio::runtime::Runtime::new()?.block_on(phase(&cluster))
}

async fn full(api: &Api<Pod>, progress: &Progress, created: Instant, components: &Components) -> Result<Full, Failed> {
    await_rest(api).await?;
    let rest = created.elapsed();
    progress.report(format!("all run and all status is written after {rest:.1?}"));

    let started = Instant::now();
    gang(api, 10).await?;
    let explained = |pods: &[Pod]| pods.len() == 10 && pods.iter().all(is_explained);
    await_pods(api, "bench=gang", "the gang is marked unschedulable", explained).await?;
    let unschedulable = started.elapsed();
    progress.report(format!("a gang of 10 was marked unschedulable after {unschedulable:.1?}"));

    let started = Instant::now();
    create(api, 1, "claim", "kai-scheduler", "second").await?;
    await_pods(api, "bench=claim", "room is made for the claim", |pods| pods.iter().any(is_bound)).await?;
    let reclaim = started.elapsed();
    progress.report(format!("one GPU was reclaimed after {reclaim:.1?}"));
    Ok(Full { rest, unschedulable, reclaim, memory: components.memory() })
}

async fn pods_of(cluster: &Cluster) -> Result<Api<Pod>, Failed> {
    Ok(Api::namespaced(connect(&cluster.state().kubeconfig).await?, "default"))
}

/// Whose CPU time counts, before kai is started.
pub(crate) fn processes_of(cluster: &Cluster) -> Vec<(&str, u32)> {
    let processes = cluster.state().processes.iter().map(|it| (it.name.as_str(), it.pid));
    processes.chain([("bench", std::process::id())]).collect()
}

pub(crate) async fn connect(kubeconfig: &Path) -> Result<Client, Failed> {
    let read = Kubeconfig::read_from(kubeconfig)?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?)?)
}

/// The first queue holds everything; the second is entitled to some of it.
fn queues(gpus: usize) -> String {
    let queue = |name: &str, parent: &str, quota: usize| {
        json!({
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"parentQueue": parent, "resources": {
                "gpu": {"quota": quota, "limit": -1, "overQuotaWeight": 1},
                "cpu": {"quota": -1, "limit": -1, "overQuotaWeight": 1},
                "memory": {"quota": -1, "limit": -1, "overQuotaWeight": 1},
            }},
        })
    };
    let all = [queue("all", "", gpus), queue("first", "all", gpus - 64), queue("second", "all", 64)];
    json!({"apiVersion": "v1", "kind": "List", "items": all}).to_string()
}

fn pod(kind: &str, number: usize, scheduler: &str, queue: &str) -> Pod {
    let name = format!("{kind}-{number}");
    let pod = json!({
        "metadata": {"name": name, "labels": {"kai.scheduler/queue": queue, "bench": kind}},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": "any", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
    });
    serde_json::from_value(pod).expect("it is a pod")
}

async fn create(api: &Api<Pod>, count: usize, kind: &str, scheduler: &str, queue: &str) -> Result<(), Failed> {
    let params = PostParams::default();
    let pods = (0..count).map(|number| pod(kind, number, scheduler, queue));
    let calls = pods.map(|pod| {
        let params = &params;
        async move { api.create(params, &pod).await.map(|_| ()) }
    });
    Ok(stream::iter(calls).buffer_unordered(WORKERS).try_collect::<()>().await?)
}

async fn bind(api: &Api<Pod>, params: &PostParams, kind: &str, number: usize) -> Result<(), kube::Error> {
    let (name, node) = (format!("{kind}-{number}"), format!("node-{}", number / GPUS as usize));
    api.create_subresource::<Value, Value>("binding", &name, params, &binding(&name, &node)).await.map(|_| ())
}

pub(crate) fn binding(pod: &str, node: &str) -> Value {
    let target = json!({"apiVersion": "v1", "kind": "Node", "name": node});
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target})
}

/// Pods of a job that want more than there is.
async fn gang(api: &Api<Pod>, size: usize) -> Result<(), Failed> {
    let group = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "default"},
        "spec": {"queue": "first", "minMember": size},
    });
    let groups: Api<kai_api::PodGroup> = Api::namespaced(api.clone().into_client(), "default");
    groups.create(&PostParams::default(), &serde_json::from_value(group)?).await?;
    for number in 0..size {
        let mut pod = pod("gang", number, "kai-scheduler", "first");
        pod.metadata.annotations = Some([("pod-group-name".to_owned(), "gang".to_owned())].into());
        api.create(&PostParams::default(), &pod).await?;
    }
    Ok(())
}

/// Until all are bound; returns when that was. Asks for names of those that are not, the more often the fewer there are,
/// and makes sure in the end: the API server's cache may not know of all pods yet.
async fn await_bound(api: &Api<Pod>, count: usize) -> Result<Instant, Failed> {
    let started = Instant::now();
    let with = async |node: &str| {
        let listed =
            api.list_metadata(&ListParams::default().match_any().fields(&format!("spec.nodeName{node}="))).await;
        listed.map(|listed| listed.items.len())
    };
    while started.elapsed() < TIMEOUT {
        let open = with("").await?;
        let ended = Instant::now();
        if open == 0 && with("!").await? == count {
            return Ok(ended);
        }
        tokio::time::sleep(Duration::from_millis(50 + open as u64)).await;
    }
    Err(format!("{TIMEOUT:?} later {} of {count} pods are not bound", with("").await?).into())
}

/// What comes after a burst of pods does not wait behind what is left of it: simulated nodes start pods one by one, and
/// status is written after binds.
async fn await_rest(api: &Api<Pod>) -> Result<(), Failed> {
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    await_pods(api, "bench=with-kai", "all pods run", |pods| {
        pods.iter().all(|pod| phase(pod).as_deref() == Some("Running"))
    })
    .await?;
    await_pods(api, "bench=with-kai", "all pods have their pod group and the condition PodBound", |pods| {
        pods.iter().all(is_described)
    })
    .await
}

/// Whether it is linked to its pod group and has the condition that it is bound.
fn is_described(pod: &Pod) -> bool {
    let linked = pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key("pod-group-name"));
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    linked && conditions.any(|condition| condition.type_ == "PodBound" && condition.status == "True")
}

/// Polls pods with these labels, from the API server's cache, until `holds`.
pub(crate) async fn await_pods(
    api: &Api<Pod>,
    labels: &str,
    what: &str,
    holds: impl Fn(&[Pod]) -> bool,
) -> Result<(), Failed> {
    let (started, which) = (Instant::now(), ListParams::default().match_any().labels(labels));
    while started.elapsed() < TIMEOUT {
        let pods = api.list(&which).await?;
        if holds(&pods.items) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(format!("{TIMEOUT:?} later it still does not hold that {what}").into())
}

fn is_bound(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

fn is_explained(pod: &Pod) -> bool {
    pod.status.iter().flat_map(|status| status.conditions.iter().flatten()).any(is_unschedulable)
}

/// Whether this is why a pod waits.
pub(crate) fn is_unschedulable(condition: &PodCondition) -> bool {
    condition.reason.as_deref() == Some("Unschedulable")
}

/// All components, in one process or in one each; they end with the value.
pub(crate) struct Components(Vec<(&'static str, Child)>);

impl Components {
    pub(crate) fn start(kai: &Path, kubeconfig: &Path, separate_processes: bool) -> Result<Self, Failed> {
        let mut components = Self(Vec::new());
        let names: &[&'static str] = if separate_processes { &SEPARATE } else { &TOGETHER };
        for component in names.iter().copied() {
            let log: PathBuf = kubeconfig.with_file_name(format!("{component}.log"));
            let mut command = Command::new(kai);
            command.arg(component).arg("--kubeconfig").arg(kubeconfig);
            command.args(["--listen-address", "off", "--qps", "0", "--workers", &WORKERS.to_string()]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(log)?);
            components.0.push((component, command.spawn()?));
        }
        Ok(components)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.iter().map(|(component, child)| (*component, child.id()))
    }

    pub(crate) fn memory(&self) -> Vec<(&'static str, u64)> {
        let mib = |child: &Child| rss_bytes_of(child.id()).unwrap_or(0) >> 20;
        self.0.iter().map(|(component, child)| (*component, mib(child))).collect()
    }
}

impl Drop for Components {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
