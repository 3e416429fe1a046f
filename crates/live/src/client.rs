//! Connections to the API server.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::FatalError;

/// Connects as a kubeconfig says; without one as `KUBECONFIG`, the user's own, or the pod's service account says.
pub(crate) async fn connect(kubeconfig: Option<&Path>) -> Result<Client, FatalError> {
    let config = match kubeconfig {
        Some(path) => {
            let wrong = |source| FatalError::Kubeconfig { path: path.to_owned(), source };
            let read = Kubeconfig::read_from(path).map_err(wrong)?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.map_err(wrong)?
        }
        None => Config::infer().await.map_err(FatalError::NoCluster)?,
    };
    Client::try_from(config).map_err(|error| FatalError::Client(Box::new(error)))
}
