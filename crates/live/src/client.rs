//! Connections to the API server.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::Fault;

/// Connects as a kubeconfig says; without one as `KUBECONFIG`, the user's own, or the pod's service account says.
pub(crate) async fn connect(kubeconfig: Option<&Path>) -> Result<Client, Fault> {
    let config = match kubeconfig {
        Some(path) => {
            let wrong = |source| Fault::Kubeconfig { path: path.to_owned(), source };
            let read = Kubeconfig::read_from(path).map_err(wrong)?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.map_err(wrong)?
        }
        None => Config::infer().await.map_err(Fault::NoCluster)?,
    };
    Client::try_from(config).map_err(|error| Fault::Client(Box::new(error)))
}
