//! Connections to the API server.

use std::path::Path;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::FatalError;
use crate::api_metrics::ApiMetrics;

/// Connects as a kubeconfig says; without one as `KUBECONFIG`, the user's own, or the pod's service account says. Counts
/// all requests.
pub(crate) async fn connect(kubeconfig: Option<&Path>, metrics: &ApiMetrics) -> Result<Client, FatalError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let wrong = |source| FatalError::Kubeconfig { path: path.to_owned(), source };
            let read = Kubeconfig::read_from(path).map_err(wrong)?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.map_err(wrong)?
        }
        None => Config::infer().await.map_err(FatalError::NoCluster)?,
    };
    // Retries are those of `retry`: by default the client repeats 429, 503 and 504 up to 15 times for minutes, below the
    // rate limit, and the 429 of a PodDisruptionBudget as well.
    config.default_retry = false;
    let builder = ClientBuilder::try_from(config).map_err(|error| FatalError::Client(Box::new(error)))?;
    Ok(builder.with_layer(metrics).build())
}
