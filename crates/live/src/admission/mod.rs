//! The admission webhooks: validate pods, queues, pod groups and topologies, and inject GPU sharing.
//!
//! ```text
//!   Secret ◀──certificates──▶ cert_rotator ──CA bundle──────▶ webhook configurations
//!                               │ serving certificate
//!                               ▼
//!   kube-apiserver ──review──▶ reviewer ──▶ control::admission ──answer──▶ kube-apiserver
//! ```
//!
//! Every replica answers; they agree on certificates through the Secret.

mod cert_rotator;
mod pem;
mod reviewer;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kai_control::admission::{COMPONENT, PodRules, WebhookEndpoint, configurations};
use kai_engine::units::Span;
use kube::Error;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::FatalError;
use crate::api_writer::ApiWriter;
use crate::controller_loop::{Context, ControllerLoop, Writers};
use crate::health::ReadinessHandle;
use crate::http_server::{HttpServer, ServedCertificate, ServerLimits};
use cert_rotator::{CertRotator, Certificates};
use reviewer::Reviewer;

#[derive(Clone, Debug)]
pub struct AdmissionOptions {
    pub rules: PodRules,
    /// Whether quotas of queues are compared with those of their parents.
    pub check_quota: bool,
    pub address: SocketAddr,
    pub reach: WebhookEndpoint,
    /// Namespace of the certificate Secret.
    pub namespace: String,
    /// Validity of certificates.
    pub certificate_life: Span,
}

/// Before a retry.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// The cache of the reviewer, in logs and probes.
const CACHE: &str = "admission-cache";
const FIELD_MANAGER: &str = "kai-admission";

/// Serves until stopped.
pub(crate) async fn run(options: AdmissionOptions, context: Context) -> Result<(), FatalError> {
    let name = COMPONENT.name;
    let Context { client, limits, health, stop, .. } = context.clone();
    let readiness = health.add_component(name);
    let address = options.address;
    let cannot_listen = |source| FatalError::Bind { address, source };
    let listener = TcpListener::bind(address).await.map_err(cannot_listen)?;

    let writer = ApiWriter::new(client, limits, 1);
    let cert_rotator = CertRotator::new(writer.clone(), &options);
    let certificates = tokio::select! {
        () = stop.cancelled() => return Ok(()),
        certificates = cert_rotator.ensure_with_retry() => certificates,
    };
    let tls = ServedCertificate::new(&certificates.served, &certificates.key).map_err(cannot_listen)?;
    let reviewer = Arc::new(Reviewer::new(options.rules.clone(), options.check_quota, &health));
    let writers = Writers::new(&context, 1);
    let cache = ControllerLoop::new(CACHE, name, reviewer.cache_controller(), writers, context);
    let server = HttpServer::new(listener, reviewer::routes(&reviewer), ServerLimits::WEBHOOKS, stop);
    let server = server.with_tls(tls.clone());
    let registrar = Registrar { writer, options, reviewer: Arc::clone(&reviewer), cert_rotator, tls, readiness };
    tracing::info!(%address, "webhook server listening");
    let cache = async {
        let ended = cache.run(None).await;
        // Reviews in flight may still need it.
        std::future::pending::<()>().await;
        ended
    };
    // Only the server comes to an end.
    tokio::select! {
        () = server.serve() => {}
        ended = cache => ended?,
        () = registrar.run(certificates) => {}
    }
    tracing::info!(component = name, "component stopped");
    Ok(())
}

/// Keeps the webhook configurations of the API server while the webhooks are served.
struct Registrar {
    writer: ApiWriter,
    options: AdmissionOptions,
    reviewer: Arc<Reviewer>,
    cert_rotator: CertRotator,
    tls: ServedCertificate,
    readiness: ReadinessHandle,
}

impl Registrar {
    async fn run(mut self, mut certificates: Certificates) {
        let mut loaded = certificates.served.clone();
        self.reviewer.wait_for_sync().await;
        loop {
            let delay = match self.register(&certificates.trusted).await {
                Ok(()) => {
                    self.readiness.ready();
                    self.cert_rotator.next_check(&certificates)
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot register the webhooks, retrying in 2 s");
                    RETRY_DELAY
                }
            };
            if loaded != certificates.served {
                match self.tls.replace(&certificates.served, &certificates.key) {
                    Ok(()) => {
                        tracing::info!("serving a new certificate");
                        loaded.clone_from(&certificates.served);
                    }
                    Err(error) => tracing::error!(%error, "cannot serve the new certificate"),
                }
            }
            tokio::time::sleep(delay).await;
            certificates = self.cert_rotator.ensure_with_retry().await;
        }
    }

    /// Applies the configurations, also where others have changed them.
    async fn register(&self, trusted: &[u8]) -> Result<(), Error> {
        let AdmissionOptions { reach, namespace, rules, .. } = &self.options;
        for configuration in configurations(reach, namespace, rules, trusted) {
            self.apply(&configuration).await?;
        }
        Ok(())
    }

    async fn apply(&self, configuration: &Value) -> Result<(), Error> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&configuration["kind"]), text(&configuration["metadata"]["name"]));
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", &kind);
        let api: Api<DynamicObject> = Api::all_with(self.writer.client.clone(), &ApiResource::from_gvk(&kind));
        let (parameters, patch) = (PatchParams::apply(FIELD_MANAGER).force(), Patch::Apply(configuration));
        self.writer.call(|| api.patch(&name, &parameters, &patch)).await.map(|_| ())
    }
}
