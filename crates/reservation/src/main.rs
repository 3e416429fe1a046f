//! Runs in a reservation pod, which holds one GPU for all pods that share it: reports which GPU that is, and idles.
//!
//! ```text
//!   binder ── creates ──▶ reservation pod ── NVML: which GPU is mine? ──▶ annotation run.ai/reserve_for_gpu_index
//!      ▲                                                                                    │
//!      └────────────── lets the sharing pods use this GPU, binds them ──────────────────────┘
//! ```
//!
//! A program of its own, and a small one, because it runs beside the drivers of every GPU that is shared.
#![allow(clippy::print_stderr, reason = "standard error is the log of a pod")]

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kai_api::keys::annotation;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Config};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

/// As for the calls of components.
const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// The pod is started again after any of them.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the environment variable {0} is not set; the pod should set it to its own metadata")]
    NoName(&'static str),
    #[error("cannot reach the cluster: {0}")]
    NoCluster(kube::Error),
    #[error("no cluster is configured: {0}")]
    NoConfig(kube::config::InferConfigError),
    #[error("cannot read pod {pod}: {source}")]
    Unread { pod: String, source: kube::Error },
    #[error("cannot write annotation {} of pod {pod}: {source}", annotation::RESERVED_GPU)]
    Unwritten { pod: String, source: kube::Error },
    #[error("NVML does not answer: {0}; is the NVIDIA driver mounted into this pod?")]
    Nvml(#[from] NvmlError),
    #[error("found {0} devices, 1 was expected")]
    Devices(u32),
    #[error("cannot listen to signals: {0}")]
    Signals(std::io::Error),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Error> {
    let (namespace, name) = (variable("POD_NAMESPACE")?, variable("POD_NAME")?);
    let pod = format!("{namespace}/{name}");
    // Listen first: the pod may be deleted at any time.
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
    let client = connect().await?;
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let unread = |source| Error::Unread { pod: pod.clone(), source };
    let annotations = pods.get(&name).await.map_err(unread)?.metadata.annotations.unwrap_or_default();
    let known = annotations.get(annotation::RESERVED_GPU).filter(|device| !device.is_empty());
    let device = if let Some(known) = known {
        known.clone()
    } else {
        let device = own_device()?;
        let patch = json!({"metadata": {"annotations": {annotation::RESERVED_GPU: device}}});
        let written = pods.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        written.map_err(|source| Error::Unwritten { pod: pod.clone(), source })?;
        device
    };
    eprintln!("pod {pod} holds GPU {device}");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// As the components connect: requests have an end, and are not repeated below the program. The pod is started again.
async fn connect() -> Result<Client, Error> {
    let mut config = Config::infer().await.map_err(Error::NoConfig)?;
    config.default_retry = false;
    (config.read_timeout, config.write_timeout) = (Some(CALL_DEADLINE), Some(CALL_DEADLINE));
    Client::try_from(config).map_err(Error::NoCluster)
}

fn variable(name: &'static str) -> Result<String, Error> {
    env::var(name).ok().filter(|value| !value.is_empty()).ok_or(Error::NoName(name))
}

/// The one GPU that this pod can see.
fn own_device() -> Result<String, Error> {
    let nvml = Nvml::init()?;
    match nvml.device_count()? {
        1 => Ok(nvml.device_by_index(0)?.uuid()?),
        count => Err(Error::Devices(count)),
    }
}
