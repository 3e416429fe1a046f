//! Runs in a reservation pod, which holds one GPU for all pods that share it: tells which GPU that is, and idles.
//!
//! ```text
//!   binder ── creates ──▶ reservation pod ── NVML: which GPU is mine? ──▶ annotation run.ai/reserve_for_gpu_index
//!      ▲                                                                                    │
//!      └────────────── tells the sharing pods to use this GPU, binds them ──────────────────┘
//! ```
//!
//! A program of its own, and a small one, because it runs beside the drivers of every GPU that is shared.
#![allow(clippy::print_stderr, reason = "standard error is the log of a pod")]

use std::env;
use std::process::ExitCode;

use k8s_openapi::api::core::v1::Pod;
use kai_api::keys::annotation;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Error};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

/// The pod is started again after any of them.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("the environment variable {0} is not set; the pod should set it to its own metadata")]
    NoName(&'static str),
    #[error("cannot reach the cluster: {0}")]
    NoCluster(Error),
    #[error("cannot read pod {pod}: {source}")]
    Unread { pod: String, source: Error },
    #[error("cannot write annotation {} of pod {pod}: {source}", annotation::RESERVED_GPU)]
    Unwritten { pod: String, source: Error },
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
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Fault> {
    let (namespace, name) = (variable("POD_NAMESPACE")?, variable("POD_NAME")?);
    let pod = format!("{namespace}/{name}");
    // Listen first: whoever ends us may do so at any time.
    let mut terminate = signal(SignalKind::terminate()).map_err(Fault::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Fault::Signals)?;
    let client = Client::try_default().await.map_err(Fault::NoCluster)?;
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let unread = |source| Fault::Unread { pod: pod.clone(), source };
    let annotations = pods.get(&name).await.map_err(unread)?.metadata.annotations.unwrap_or_default();
    let known = annotations.get(annotation::RESERVED_GPU).filter(|device| !device.is_empty());
    let device = if let Some(known) = known {
        known.clone()
    } else {
        let device = own_device()?;
        let patch = json!({"metadata": {"annotations": {annotation::RESERVED_GPU: device}}});
        let written = pods.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        written.map_err(|source| Fault::Unwritten { pod: pod.clone(), source })?;
        device
    };
    eprintln!("pod {pod} holds GPU {device}");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

fn variable(name: &'static str) -> Result<String, Fault> {
    env::var(name).ok().filter(|value| !value.is_empty()).ok_or(Fault::NoName(name))
}

/// The one GPU that this pod can see.
fn own_device() -> Result<String, Fault> {
    let nvml = Nvml::init()?;
    match nvml.device_count()? {
        1 => Ok(nvml.device_by_index(0)?.uuid()?),
        count => Err(Fault::Devices(count)),
    }
}
