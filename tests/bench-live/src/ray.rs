//! Many `RayCluster`s created at once: until each has the right pod group, and each gang is bound or marked unschedulable.
//!
//! `KubeRay` makes the pods of one cluster; those of the others are made after them, and they name
//! another manager to the operator, which would be the slowest of all by far.
#![allow(clippy::disallowed_types, reason = "waiting is measured by the clock on the wall")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::stream::{self, Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kai_api::PodGroup;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, ObjectList, ObjectMeta, Patch, PatchParams, PostParams,
    Request, WatchEvent, WatchParams,
};
use serde::Deserialize;
use serde_json::{Value, json};
use test_cluster::{Cluster, Operator, Progress};
use tokio::task::JoinHandle;

use crate::cost::Cost;
use crate::measure::{
    Components, Failed, GPUS, START, WORKERS, await_pods, binding, connect, is_unschedulable, on_a_new_cluster,
    processes_of,
};

/// Of each cluster: a head without GPUs, and workers with one each.
const WORKER_PODS: usize = 7;
pub(crate) const PODS: usize = 1 + WORKER_PODS;
const CLUSTER: &str = "ray.io/cluster";
const TIMEOUT: Duration = Duration::from_mins(10);
/// Between two checks of all gangs.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) clusters: usize,
    pub(crate) rounds: Vec<Round>,
    /// What all of it took in the last round, baseline and with kai.
    pub(crate) baseline_cost: Cost,
    pub(crate) cost: Cost,
    /// The most MiB that each component was seen to use.
    pub(crate) memory: BTreeMap<&'static str, u64>,
}

/// Times since the first cluster was created, as seen by the bench, which follows the pods.
#[derive(Debug)]
pub(crate) struct Round {
    /// Until one client had created the same clusters and pods, and bound the pods or marked them unschedulable, with
    /// nothing else to do.
    pub(crate) baseline: Duration,
    /// Until all clusters and their pods were created, with all components at work.
    pub(crate) created: Duration,
    /// Until the last gang was bound or marked unschedulable, and every pod group was right.
    pub(crate) with_kai: Duration,
    pub(crate) bound: usize,
}

pub(crate) fn measure(
    kai: &Path,
    nodes: u32,
    clusters: usize,
    separate_processes: bool,
    rounds: u32,
) -> Result<Report, Failed> {
    let progress = Progress::start("ray");
    let mut done = Vec::new();
    let mut memory = BTreeMap::new();
    loop {
        let (template_pods, baseline, baseline_cost) =
            on_a_new_cluster(nodes, &[Operator::Kuberay], &progress, async |cluster| {
                baseline(cluster, nodes, clusters, &progress).await
            })?;
        let (created, with_kai, bound, cost) =
            on_a_new_cluster(nodes, &[Operator::Kuberay], &progress, async |cluster| {
                let components = Components::start(kai, &cluster.state().kubeconfig, separate_processes)?;
                by_kai(cluster, &components, &template_pods, clusters, &mut memory, &progress).await
            })?;
        done.push(Round { baseline, created, with_kai, bound });
        if done.len() >= rounds as usize {
            return Ok(Report { clusters, rounds: done, baseline_cost, cost, memory });
        }
    }
}

async fn baseline(
    cluster: &Cluster,
    nodes: u32,
    clusters: usize,
    progress: &Progress,
) -> Result<(Vec<Pod>, Duration, Cost), Failed> {
    let bench = Bench::new(cluster).await?;
    let template_pods = bench.template_pods().await?;
    let processes = processes_of(cluster);
    let before = Cost::read(&cluster.kubectl(), &processes)?;
    let room = nodes as usize * GPUS as usize / WORKER_PODS;
    let (started, settled) = (Instant::now(), bench.settled(clusters));
    bench.baseline(&template_pods, clusters, room).await?;
    settled.await??;
    let baseline = started.elapsed();
    progress.report(format!(
        "{clusters} RayClusters created and their pods bound or marked unschedulable, baseline, in {baseline:.1?}"
    ));
    Ok((template_pods, baseline, Cost::read(&cluster.kubectl(), &processes)?.since(&before)))
}

async fn by_kai(
    cluster: &Cluster,
    components: &Components,
    template_pods: &[Pod],
    clusters: usize,
    memory: &mut BTreeMap<&'static str, u64>,
    progress: &Progress,
) -> Result<(Duration, Duration, usize, Cost), Failed> {
    let bench = Bench::new(cluster).await?;
    cluster.kubectl().apply(QUEUES)?;
    tokio::time::sleep(START).await;
    let mut processes = processes_of(cluster);
    processes.extend(components.ids());
    let before = Cost::read(&cluster.kubectl(), &processes)?;
    let (started, mut settled) = (Instant::now(), bench.settled(clusters));
    let create = async {
        bench.create_clusters(template_pods, clusters).await?;
        let created = started.elapsed();
        progress.report(format!("{clusters} RayClusters with their pods created in {created:.1?}"));
        Ok::<_, Failed>(created)
    };
    let settle = async {
        loop {
            for (component, mib) in components.memory() {
                let most = memory.entry(component).or_insert(0);
                *most = mib.max(*most);
            }
            if let Ok(gangs) = tokio::time::timeout(POLL_INTERVAL, &mut settled).await {
                return gangs?;
            }
        }
    };
    let (created, gangs) = tokio::try_join!(create, settle)?;
    progress.report(format!("all bound or marked unschedulable after {:.1?}", started.elapsed()));
    bench.await_groups(clusters).await?;
    let with_kai = started.elapsed();
    let cost = Cost::read(&cluster.kubectl(), &processes)?.since(&before);
    progress.report(format!("all pod groups are as they should be after {with_kai:.1?}"));
    let bound = gangs.values().filter(|gang| gang.bound == PODS).count();
    Ok((created, with_kai, bound, cost))
}

/// How many pods of a cluster there are, and how they do.
#[derive(Debug, Default)]
struct Gang {
    pods: usize,
    bound: usize,
    explained: usize,
}

impl Gang {
    fn is_settled(&self) -> bool {
        self.pods == PODS && (self.bound == PODS || self.explained == PODS)
    }
}

/// How a pod does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PodState {
    Pending,
    Bound,
    Explained,
}

/// As much of a pod as is polled at, since thousands are.
#[derive(Clone, Debug, Deserialize)]
struct PodSummary {
    metadata: ObjectMeta,
    spec: Assignment,
    #[serde(default)]
    status: StatusSummary,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Assignment {
    node_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct StatusSummary {
    #[serde(default)]
    conditions: Vec<PodCondition>,
}

impl PodSummary {
    fn state(&self) -> PodState {
        match (self.spec.node_name.is_some(), self.status.conditions.iter().any(is_unschedulable)) {
            (true, _) => PodState::Bound,
            (false, true) => PodState::Explained,
            (false, false) => PodState::Pending,
        }
    }

    /// Its name, its cluster and how it does.
    fn row(self) -> (String, (String, PodState)) {
        let state = self.state();
        let cluster = self.metadata.labels.and_then(|mut labels| labels.remove(CLUSTER));
        (self.metadata.name.unwrap_or_default(), (cluster.unwrap_or_default(), state))
    }
}

fn gangs<'p>(pods: impl Iterator<Item = &'p (String, PodState)>) -> BTreeMap<String, Gang> {
    let mut gangs: BTreeMap<String, Gang> = BTreeMap::new();
    for (cluster, state) in pods {
        let gang = gangs.entry(cluster.clone()).or_default();
        gang.pods += 1;
        gang.bound += usize::from(*state == PodState::Bound);
        gang.explained += usize::from(*state == PodState::Explained);
    }
    gangs
}

#[derive(Clone)]
struct Bench {
    client: Client,
    pods: Api<Pod>,
    rays: Api<DynamicObject>,
}

impl Bench {
    async fn new(cluster: &Cluster) -> Result<Self, Failed> {
        let client = connect(&cluster.state().kubeconfig).await?;
        let pods = Api::namespaced(client.clone(), "default");
        let rays = Api::namespaced_with(client.clone(), "default", &ray_kind());
        Ok(Self { client, pods, rays })
    }

    /// The pods that `KubeRay` makes of a cluster.
    async fn template_pods(&self) -> Result<Vec<Pod>, Failed> {
        let mut cluster = ray_cluster("template");
        cluster.data["spec"]["managedBy"] = json!("ray.io/kuberay-operator");
        self.rays.create(&PostParams::default(), &cluster).await?;
        await_pods(&self.pods, "", "KubeRay has made its pods", |pods| pods.len() == PODS).await?;
        let pods = self.pods.list(&ListParams::default()).await?.items;
        self.rays.delete("template", &DeleteParams::default()).await?;
        await_pods(&self.pods, "", "no pod is left", <[Pod]>::is_empty).await?;
        Ok(pods)
    }

    /// What the API server can do at best: the same objects and the same end, by one client that need not decide. Pods of
    /// as many clusters are bound as there is `room` for.
    async fn baseline(&self, template_pods: &[Pod], clusters: usize, room: usize) -> Result<(), Failed> {
        let calls = (0..clusters).map(|number| async move {
            let name = format!("ray-{number}");
            let pods = self.create_cluster(template_pods, &name, "none").await?;
            for (at, pod) in pods.iter().enumerate() {
                if number < room {
                    self.bind(pod, (number * WORKER_PODS + at.min(WORKER_PODS - 1)) / GPUS as usize).await?;
                } else {
                    self.mark_unschedulable(pod).await?;
                }
            }
            Ok::<(), kube::Error>(())
        });
        // As many calls at once as when the bench creates and kai binds.
        Ok(stream::iter(calls).buffer_unordered(2 * WORKERS).try_collect::<()>().await?)
    }

    async fn bind(&self, pod: &str, node: usize) -> Result<(), kube::Error> {
        let binding = binding(pod, &format!("node-{node}"));
        let bind = || self.pods.create_subresource::<Value, Value>("binding", pod, &CREATE, &binding);
        unless_conflict(retry_connection_errors(bind).await)
    }

    async fn mark_unschedulable(&self, pod: &str) -> Result<(), kube::Error> {
        let condition =
            json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"});
        let (params, patch) =
            (PatchParams::default(), Patch::Strategic(json!({"status": {"conditions": [condition]}})));
        retry_connection_errors(|| self.pods.patch_status(pod, &params, &patch)).await.map(|_| ())
    }

    async fn create_clusters(&self, template_pods: &[Pod], clusters: usize) -> Result<(), Failed> {
        let calls = (0..clusters).map(|number| async move {
            self.create_cluster(template_pods, &format!("ray-{number}"), "kai-scheduler").await.map(|_| ())
        });
        Ok(stream::iter(calls).buffer_unordered(WORKERS).try_collect::<()>().await?)
    }

    /// One with its pods, as soon as it is there. Returns their names.
    async fn create_cluster(
        &self,
        template_pods: &[Pod],
        name: &str,
        scheduler: &str,
    ) -> Result<Vec<String>, kube::Error> {
        let ray = ray_cluster(name);
        let created = match retry_connection_errors(|| self.rays.create(&CREATE, &ray)).await {
            // What was done by a call whose answer was lost is done.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                retry_connection_errors(|| self.rays.get(name)).await?
            }
            done => done?,
        };
        let uid = created.metadata.uid.unwrap_or_default();
        let mut names = Vec::new();
        for (number, pod) in template_pods.iter().enumerate() {
            let mut pod = member(pod, name, number, &uid);
            pod.spec.get_or_insert_default().scheduler_name = Some(scheduler.to_owned());
            self.create_pod(&pod).await?;
            names.extend(pod.metadata.name);
        }
        Ok(names)
    }

    async fn create_pod(&self, pod: &Pod) -> Result<(), kube::Error> {
        unless_conflict(retry_connection_errors(|| self.pods.create(&CREATE, pod)).await)
    }

    /// Follows the pods until every gang is bound or marked unschedulable. From the first pod on, since to ask for all of them
    /// in the end would take longer than what is measured; and beside everything else, since the API server ends watches
    /// that are not read fast enough.
    fn settled(&self, clusters: usize) -> JoinHandle<Result<BTreeMap<String, Gang>, Failed>> {
        let bench = self.clone();
        tokio::spawn(async move { bench.follow(clusters).await })
    }

    async fn follow(&self, clusters: usize) -> Result<BTreeMap<String, Gang>, Failed> {
        let (started, mut polled) = (Instant::now(), Instant::now());
        let mut pods: BTreeMap<String, (String, PodState)> = BTreeMap::new();
        let mut version = None;
        while started.elapsed() < TIMEOUT {
            let from = if let Some(version) = version.take() {
                version
            } else {
                let listed: ObjectList<PodSummary> = retry_connection_errors(|| self.list()).await?;
                pods.extend(listed.items.into_iter().map(PodSummary::row));
                listed.metadata.resource_version.unwrap_or_default()
            };
            let mut events = Box::pin(retry_connection_errors(|| self.watch(&from)).await?);
            // Where to go on if it ends.
            version = Some(from);
            loop {
                // There may be no more.
                match tokio::time::timeout(POLL_INTERVAL, events.try_next()).await {
                    Ok(Ok(Some(WatchEvent::Added(pod) | WatchEvent::Modified(pod)))) => {
                        version.clone_from(&pod.metadata.resource_version);
                        pods.extend([pod.row()]);
                    }
                    // It was too far behind.
                    Ok(Ok(Some(WatchEvent::Error(_)))) => version = None,
                    Ok(Ok(None) | Err(_)) => break,
                    Ok(_) | Err(_) => {}
                }
                if polled.elapsed() < POLL_INTERVAL {
                    continue;
                }
                polled = Instant::now();
                let gangs = gangs(pods.values());
                if gangs.len() == clusters && gangs.values().all(Gang::is_settled) {
                    return Ok(gangs);
                }
            }
        }
        let open = gangs(pods.values()).values().filter(|gang| !gang.is_settled()).count();
        Err(format!("{TIMEOUT:?} later {open} gangs are neither bound nor marked unschedulable").into())
    }

    async fn list(&self) -> Result<ObjectList<PodSummary>, kube::Error> {
        let request = Request::new(self.pods.resource_url()).list(&ListParams::default());
        self.client.request(request.map_err(kube::Error::BuildRequest)?).await
    }

    async fn watch(
        &self,
        from: &str,
    ) -> Result<impl Stream<Item = Result<WatchEvent<PodSummary>, kube::Error>> + use<>, kube::Error> {
        let request = Request::new(self.pods.resource_url()).watch(&WatchParams::default().disable_bookmarks(), from);
        self.client.request_events(request.map_err(kube::Error::BuildRequest)?).await
    }

    /// One for each cluster, and each as it should be.
    async fn await_groups(&self, clusters: usize) -> Result<(), Failed> {
        let groups: Api<PodGroup> = Api::namespaced(self.client.clone(), "default");
        let started = Instant::now();
        loop {
            let found = groups.list(&ListParams::default()).await?.items;
            match check_groups(&found, clusters) {
                Err(_) if started.elapsed() < TIMEOUT => tokio::time::sleep(Duration::from_millis(500)).await,
                done => return Ok(done?),
            }
        }
    }
}

fn check_groups(groups: &[PodGroup], clusters: usize) -> Result<(), String> {
    let right = |group: &&PodGroup| {
        let spec = json!(group.spec);
        let leaves = json!([{"name": "headgroup", "minMember": 1}, {"name": "gpu", "minMember": WORKER_PODS}]);
        let owner = group.metadata.owner_references.iter().flatten().next();
        owner.is_some_and(|owner| owner.kind == "RayCluster" && owner.name.starts_with("ray-"))
            && (&spec["minMember"], &spec["queue"], &spec["subGroups"]) == (&json!(PODS), &json!("ray"), &leaves)
    };
    if let Some(wrong) = groups.iter().find(|group| !right(group)) {
        return Err(format!("a pod group is not as it should be: {}", json!(wrong)));
    }
    if groups.len() != clusters {
        return Err(format!("{} pod groups for {clusters} RayClusters", groups.len()));
    }
    Ok(())
}

const CREATE: PostParams = PostParams { dry_run: false, field_manager: None };

/// Tries again when the connection breaks: with so many calls at once some do.
async fn retry_connection_errors<T, F>(call: impl Fn() -> F) -> Result<T, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    for _ in 0..10 {
        match call().await {
            Err(kube::Error::Service(_) | kube::Error::HyperError(_)) => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            done => return done,
        }
    }
    call().await
}

/// What was done by a call whose answer was lost is done.
fn unless_conflict<T>(done: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match done {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        done => done.map(|_| ()),
    }
}

/// A pod like the template, of another cluster.
fn member(template: &Pod, cluster: &str, number: usize, uid: &str) -> Pod {
    let mut pod = Pod { metadata: template.metadata.clone(), spec: template.spec.clone(), status: None };
    let metadata = &mut pod.metadata;
    metadata.name = Some(format!("{cluster}-{number}"));
    metadata.generate_name = None;
    metadata.uid = None;
    metadata.resource_version = None;
    metadata.managed_fields = None;
    metadata.creation_timestamp = None;
    metadata.labels.get_or_insert_default().insert(CLUSTER.to_owned(), cluster.to_owned());
    for owner in metadata.owner_references.iter_mut().flatten() {
        cluster.clone_into(&mut owner.name);
        uid.clone_into(&mut owner.uid);
    }
    pod
}

fn ray_kind() -> ApiResource {
    ApiResource {
        group: "ray.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "ray.io/v1".to_owned(),
        kind: "RayCluster".to_owned(),
        plural: "rayclusters".to_owned(),
    }
}

fn ray_cluster(name: &str) -> DynamicObject {
    let template = |limits: Value| {
        let container = json!({"name": "ray", "image": "rayproject/ray:2.46.0", "resources": {"limits": limits, "requests": limits}});
        json!({"spec": {"containers": [container]}})
    };
    let worker = json!({
        "groupName": "gpu", "replicas": WORKER_PODS, "minReplicas": WORKER_PODS,
        "template": template(json!({"cpu": "1", "memory": "2Gi", "nvidia.com/gpu": "1"})),
    });
    let spec = json!({
        "managedBy": "kueue.x-k8s.io/multikueue",
        "headGroupSpec": {"template": template(json!({"cpu": "1", "memory": "2Gi"}))},
        "workerGroupSpecs": [worker],
    });
    let mut cluster = DynamicObject::new(name, &ray_kind()).data(json!({"spec": spec}));
    cluster.metadata.labels = Some([("kai.scheduler/queue".to_owned(), "ray".to_owned())].into());
    cluster
}

const QUEUES: &str = "
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: all}
spec: {resources: {cpu: {quota: -1, limit: -1}, gpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: ray}
spec: {parentQueue: all, resources: {cpu: {quota: -1, limit: -1}, gpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}}
";
