//! What users of a real API server wait for: pods until they are bound, gangs until they are told why they are not, and
//! jobs until room is made for them. Beside it, what that API server can do at best.
#![allow(clippy::disallowed_types, reason = "waiting is measured by the clock on the wall")]

use std::collections::BTreeSet;
use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kai_meter::memory_of;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use test_cluster::{Cluster, Kubectl, Options, Progress};

use crate::account::Account;

/// Calls at the same time, of the bench and of each part.
pub(crate) const WORKERS: usize = 32;
pub(crate) const GPUS: u32 = 8;
const PATIENCE: Duration = Duration::from_mins(10);
const APART: [&str; 5] = ["podgrouper", "scheduler", "binder", "podgroupcontroller", "queuecontroller"];
const TOGETHER: [&str; 1] = ["all-in-one"];

pub(crate) type Failed = Box<dyn Error>;

/// What was measured.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) pods: usize,
    /// Binds a second, with nothing else to do.
    pub(crate) bare_binds: f64,
    /// Pods a second from the first that is created to the last that is bound, with a client that binds each itself.
    pub(crate) bare_pods: f64,
    /// Pods a second that wait when our parts are started, from the start to the last that is bound.
    pub(crate) backlog: f64,
    /// From the first that is created to the last that is bound, with all parts of ours at work.
    pub(crate) pods_per_second: f64,
    /// From the first that is created until all run and their requests are known to be carried out.
    pub(crate) rest: Duration,
    /// Until every pod of a gang for which there is no room is told so.
    pub(crate) unschedulable: Duration,
    /// Until a pod is bound for which another queue must give up a GPU.
    pub(crate) reclaim: Duration,
    /// What creating and binding the pods took, bare and with all parts of ours.
    pub(crate) bare_bill: Account,
    pub(crate) bill: Account,
    /// MiB in use by each part in the end.
    pub(crate) memory: Vec<(&'static str, u64)>,
}

/// Starts a cluster and measures; `kai` is the program.
pub(crate) fn measure(kai: &Path, nodes: u32, pods: usize, apart: bool) -> Result<Report, Failed> {
    let base = std::env::temp_dir().join("kai-bench");
    fs::create_dir_all(&base)?;
    let options = Options { name: "live".to_owned(), base: base.clone(), nodes, gpus: GPUS, operators: Vec::new() };
    let progress = Progress::start("live");
    let cluster = Cluster::start(&options, &progress)?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(run(kai, &cluster, &progress, pods, apart))
}

async fn run(kai: &Path, cluster: &Cluster, progress: &Progress, count: usize, apart: bool) -> Result<Report, Failed> {
    let kubeconfig = &cluster.state().kubeconfig;
    let client = connect(kubeconfig).await?;
    let api: Api<Pod> = Api::namespaced(client.clone(), "default");

    let mut processes = processes_of(cluster);
    let before = Account::read(&cluster.kubectl(), &processes)?;
    let started = Instant::now();
    create(&api, count, "bare", "nobody", "first").await?;
    let created = started.elapsed();
    let started = Instant::now();
    bind_all(&api, count, "bare").await?;
    let bound = started.elapsed();
    let bare_bill = Account::read(&cluster.kubectl(), &processes)?.since(&before);
    progress.say(format!("{count} bare pods created in {created:.1?} and bound in {bound:.1?}"));
    clear(&client, cluster).await?;

    cluster.kubectl().apply(&queues(count))?;
    create(&api, count, "late", "kai-scheduler", "first").await?;
    let started = Instant::now();
    let parts = Parts::start(kai, kubeconfig, apart)?;
    await_bound(&api, count).await?;
    let late = started.elapsed();
    drop(parts);
    progress.say(format!("{count} pods that waited for kai to start were bound in {late:.1?}"));
    clear(&client, cluster).await?;

    let parts = Parts::start(kai, kubeconfig, apart)?;
    processes.extend(parts.ids());
    let before = Account::read(&cluster.kubectl(), &processes)?;
    let started = Instant::now();
    create(&api, count, "ours", "kai-scheduler", "first").await?;
    progress.say(format!("{count} pods created in {:.1?}", started.elapsed()));
    await_bound(&api, count).await?;
    let ours = started.elapsed();
    let bill = Account::read(&cluster.kubectl(), &processes)?.since(&before);
    progress.say(format!("all bound after {ours:.1?}"));
    await_rest(&api).await?;
    let rest = started.elapsed();
    progress.say(format!("all run, and everything is said about them, after {rest:.1?}"));

    let started = Instant::now();
    gang(&api, 10).await?;
    let told = |pods: &[Pod]| pods.len() == 10 && pods.iter().all(is_told);
    await_pods(&api, "bench=gang", "the gang is told why it waits", told).await?;
    let unschedulable = started.elapsed();
    progress.say(format!("a gang of 10 was told after {unschedulable:.1?}"));

    let started = Instant::now();
    create(&api, 1, "claim", "kai-scheduler", "second").await?;
    await_pods(&api, "bench=claim", "room is made for the claim", |pods| pods.iter().any(is_bound)).await?;
    let reclaim = started.elapsed();
    progress.say(format!("one GPU was reclaimed after {reclaim:.1?}"));

    let seconds = |elapsed: Duration| count as f64 / elapsed.as_secs_f64();
    Ok(Report {
        pods: count,
        bare_binds: seconds(bound),
        bare_pods: seconds(created + bound),
        backlog: seconds(late),
        pods_per_second: seconds(ours),
        rest,
        unschedulable,
        reclaim,
        bare_bill,
        bill,
        memory: parts.memory(),
    })
}

/// Whose CPU time counts, before our parts are started.
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

/// Removes all pods and what was written about them, and waits until nothing is left to do.
async fn clear(client: &Client, cluster: &Cluster) -> Result<(), Failed> {
    let (at_once, all) = (DeleteParams::default().grace_period(0), ListParams::default());
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    pods.delete_collection(&at_once, &all).await?;
    await_pods(&pods, "", "no pod is left", <[Pod]>::is_empty).await?;
    Api::<kai_api::PodGroup>::namespaced(client.clone(), "default").delete_collection(&at_once, &all).await?;
    Api::<kai_api::BindRequest>::namespaced(client.clone(), "default").delete_collection(&at_once, &all).await?;
    await_quiet(&cluster.kubectl()).await
}

/// Simulated nodes go on deleting pods that are gone: what comes next should not be held up by that.
pub(crate) async fn await_quiet(kubectl: &Kubectl) -> Result<(), Failed> {
    let started = Instant::now();
    let mut before = Account::read(kubectl, &[])?;
    while started.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = Account::read(kubectl, &[])?;
        let deletes = |account: &Account| -> u64 {
            account.calls.iter().filter(|(call, _)| call.starts_with("DELETE ")).map(|(_, count)| count).sum()
        };
        if deletes(&now) == deletes(&before) {
            return Ok(());
        }
        before = now;
    }
    Err(format!("{PATIENCE:?} later what is gone is still being deleted").into())
}

async fn bind_all(api: &Api<Pod>, count: usize, kind: &str) -> Result<(), Failed> {
    let params = PostParams::default();
    let calls = (0..count).map(|number| {
        let (name, node) = (format!("{kind}-{number}"), format!("node-{}", number / GPUS as usize));
        let params = &params;
        async move {
            let target = json!({"apiVersion": "v1", "kind": "Node", "name": node});
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
            api.create_subresource::<Value, Value>("binding", &name, params, &binding).await.map(|_| ())
        }
    });
    Ok(stream::iter(calls).buffer_unordered(WORKERS).try_collect::<()>().await?)
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

/// Follows names of bound pods, which costs the API server next to nothing.
async fn await_bound(api: &Api<Pod>, count: usize) -> Result<(), Failed> {
    let (started, mut bound) = (Instant::now(), BTreeSet::new());
    while started.elapsed() < PATIENCE {
        let which = WatchParams::default().fields("spec.nodeName!=").disable_bookmarks();
        let mut events = std::pin::pin!(api.watch_metadata(&which, "0").await?);
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Added(pod) | WatchEvent::Modified(pod) = event {
                bound.extend(pod.metadata.name);
            }
            if bound.len() == count {
                return Ok(());
            }
        }
    }
    Err(format!("{PATIENCE:?} later only {} of {count} pods are bound", bound.len()).into())
}

/// What comes after a burst of pods does not wait behind what is left of it: simulated nodes start pods one by one, and
/// words are written after deeds.
async fn await_rest(api: &Api<Pod>) -> Result<(), Failed> {
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    await_pods(api, "bench=ours", "all pods run", |pods| {
        pods.iter().all(|pod| phase(pod).as_deref() == Some("Running"))
    })
    .await?;
    await_pods(api, "bench=ours", "everything is said about all pods", |pods| pods.iter().all(is_described)).await
}

/// Whether it is linked to its group, and told that it is bound.
fn is_described(pod: &Pod) -> bool {
    let linked = pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key("pod-group-name"));
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    linked && conditions.any(|condition| condition.type_ == "PodBound" && condition.status == "True")
}

/// Looks at pods with such labels, from the API server's cache, until it holds.
pub(crate) async fn await_pods(
    api: &Api<Pod>,
    labels: &str,
    what: &str,
    holds: impl Fn(&[Pod]) -> bool,
) -> Result<(), Failed> {
    let (started, which) = (Instant::now(), ListParams::default().match_any().labels(labels));
    while started.elapsed() < PATIENCE {
        let pods = api.list(&which).await?;
        if holds(&pods.items) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(format!("{PATIENCE:?} later it still does not hold that {what}").into())
}

pub(crate) fn is_bound(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

pub(crate) fn is_told(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.reason.as_deref() == Some("Unschedulable"))
}

/// All parts, in one process or in one each; they end with the value.
pub(crate) struct Parts(Vec<(&'static str, Child)>);

impl Parts {
    pub(crate) fn start(kai: &Path, kubeconfig: &Path, apart: bool) -> Result<Self, Failed> {
        let mut parts = Self(Vec::new());
        let names: &[&'static str] = if apart { &APART } else { &TOGETHER };
        for part in names.iter().copied() {
            let log: PathBuf = kubeconfig.with_file_name(format!("{part}.log"));
            let mut command = Command::new(kai);
            command.arg(part).arg("--kubeconfig").arg(kubeconfig);
            command.args(["--listen-address", "off", "--qps", "0", "--workers", &WORKERS.to_string()]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(log)?);
            parts.0.push((part, command.spawn()?));
        }
        Ok(parts)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.iter().map(|(part, child)| (*part, child.id()))
    }

    pub(crate) fn memory(&self) -> Vec<(&'static str, u64)> {
        let mib = |child: &Child| memory_of(child.id()).unwrap_or(0) >> 20;
        self.0.iter().map(|(part, child)| (*part, mib(child))).collect()
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
