//! Plays the jobs: on a real API server with simulated nodes, or in `kai simulate`.
#![allow(clippy::disallowed_types, reason = "jobs are created by the clock on the wall")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kai_process_stats::cpu_time_of;
use serde_json::{Value, json};
use test_cluster::{Cluster, Kubectl, Options, Progress};

use crate::Failed;
use crate::tally::{self, Tally};
use crate::workload::{GPUS, Job, Kubelet, NAMESPACE, batches, list, queues};

/// Counted when so much time has passed since the first job was created.
pub(crate) const WINDOW: Duration = Duration::from_secs(280);
/// For the scheduler to read the cluster.
const START: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Upstream,
    Kai,
}

/// What a round of one side came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) tally: Tally,
    /// Of the programs of this side.
    pub(crate) cpu: Duration,
}

/// Plays the jobs on a new cluster.
pub(crate) fn live(side: Side, kai: &Path, nodes: u32, jobs: &[Job], base: PathBuf) -> Result<Round, Failed> {
    let progress = Progress::start(side.name());
    let options = Options { name: side.name().to_owned(), base, nodes, gpus: GPUS, operators: Vec::new() };
    let mut cluster = Cluster::start(&options, &progress)?;
    let kubectl = cluster.kubectl();
    match side {
        Side::Upstream => cluster.start_upstream_kai(&progress)?,
        Side::Kai => {
            let kubeconfig = cluster.state().kubeconfig.clone();
            cluster.start_program("kai", |port| {
                let mut command = Command::new(kai);
                command.args(["all-in-one", "--fake-gpu-nodes", "--kubeconfig"]).arg(&kubeconfig);
                command.args(["--listen-address", &format!("127.0.0.1:{port}")]);
                command
            })?;
        }
    }
    kubectl.run_with(&["create", "--filename=-"], Some(&list(&queues(nodes))))?;
    let watch = Watch::start(&kubectl, cluster.state().kubeconfig.parent().unwrap_or(Path::new(".")))?;
    thread::sleep(START);
    let programs: Vec<u32> = cluster.state().processes.iter().filter(|it| side.is(&it.name)).map(|it| it.pid).collect();
    let cpu = || programs.iter().filter_map(|&id| cpu_time_of(id)).sum::<Duration>();
    let before = cpu();
    create(&kubectl, &progress, jobs, &watch)?;
    cluster.check("playing the jobs")?;
    let round = Round { tally: watch.tally()?, cpu: cpu().saturating_sub(before) };
    progress.report(format_args!("{} finished, {} evicted", round.tally.finished, round.tally.evicted));
    Ok(round)
}

fn create(kubectl: &Kubectl, progress: &Progress, jobs: &[Job], watch: &Watch) -> Result<(), Failed> {
    let started = Instant::now();
    let wait_until = |at: Duration| thread::sleep(at.saturating_sub(started.elapsed()));
    for (number, (at, batch)) in batches(jobs).enumerate() {
        wait_until(at);
        let manifests: Vec<Value> = batch.iter().map(|job| job.manifest(Kubelet::TestCluster)).collect();
        kubectl.run_with(&["create", "--filename=-"], Some(&list(&manifests)))?;
        if number % 15 == 14 {
            let Tally { finished, evicted, .. } = watch.tally()?;
            progress.report(format_args!(
                "{:.0} s: {finished} finished, {evicted} evicted",
                started.elapsed().as_secs_f64()
            ));
        }
    }
    wait_until(WINDOW);
    Ok(())
}

impl Side {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Upstream => "churn-upstream",
            Self::Kai => "churn-kai",
        }
    }

    fn is(self, program: &str) -> bool {
        match self {
            Self::Upstream => program.starts_with("upstream-"),
            Self::Kai => program == "kai",
        }
    }
}

/// Every state of every pod, in a file.
struct Watch {
    child: Child,
    file: PathBuf,
}

impl Watch {
    fn start(kubectl: &Kubectl, dir: &Path) -> Result<Self, Failed> {
        let file = dir.join("pods.watch");
        let mut command = kubectl.command();
        command.args(["get", "pods", "--namespace", NAMESPACE, "--watch", "--output=json"]);
        let child = command.stdin(Stdio::null()).stdout(File::create(&file)?).spawn()?;
        Ok(Self { child, file })
    }

    fn tally(&self) -> Result<Tally, Failed> {
        Ok(tally::of_watch(&fs::read_to_string(&self.file)?))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Plays the jobs in `kai simulate`, from files in this folder.
pub(crate) fn simulated(kai: &Path, nodes: u32, jobs: &[Job], dir: &Path) -> Result<Tally, Failed> {
    fs::create_dir_all(dir)?;
    let node = |number: u32| {
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": format!("node-{number}")},
            "status": {"allocatable": {
                "cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": GPUS.to_string(),
            }},
        })
    };
    let mut steps = Vec::new();
    for (number, (at, batch)) in batches(jobs).enumerate() {
        let file = format!("batch-{number}.json");
        let manifests: Vec<Value> = batch.iter().map(|job| job.manifest(Kubelet::Simulator)).collect();
        fs::create_dir_all(dir.join("batches"))?;
        fs::write(dir.join("batches").join(&file), list(&manifests))?;
        steps.push(json!({"at": format!("{}ms", at.as_millis()), "apply": format!("batches/{file}")}));
    }
    let scenario = json!({
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Scenario",
        "spec": {"until": format!("{}s", WINDOW.as_secs()), "steps": steps},
    });
    let cluster: Vec<Value> = (0..nodes).map(node).chain(queues(nodes)).chain([scenario]).collect();
    let file = dir.join("cluster.json");
    fs::write(&file, list(&cluster))?;
    let output = Command::new(kai).args(["simulate", "-o", "json"]).arg(&file).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let report: Value = serde_json::from_slice(&output.stdout)?;
    Ok(tally::of_simulation(&report, |name| jobs.iter().find(|job| job.name() == name).map_or(0, |job| job.gpus)))
}
