//! `kai admission`: the arguments of its webhooks.
#![allow(clippy::doc_markdown, reason = "doc comments are printed as help, where backticks would show")]

use std::net::SocketAddr;

use kai_control::admission::{PodRules, WebhookEndpoint};
use kai_live::{AdmissionOptions, Component};

use super::{CommonArgs, Components};
use crate::error::CliError;
use crate::values::{Span, everywhere, span};

#[derive(Clone, Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct AdmissionArgs {
    /// Address of the webhook server: a port of every address, or an address
    #[arg(long, default_value = "9443", value_name = "PORT", value_parser = address)]
    webhook_addr: SocketAddr,
    /// URL of the webhook server for the API server, such as https://10.1.2.3:9443, when it runs outside of the cluster;
    /// otherwise the Service `admission` in --namespace
    #[arg(long, value_name = "URL", value_parser = WebhookEndpoint::at)]
    webhook_url: Option<WebhookEndpoint>,
    /// Validity of the serving certificate; it is renewed after two thirds of it
    #[arg(long, default_value = "8760h", value_name = "TIME", value_parser = span)]
    certificate_validity: Span,
    /// Allow pods to share GPUs
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    gpu_sharing_enabled: bool,
    /// Set the GPU memory limit of HAMi-core in pods that share a GPU
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    hami_core_enabled: bool,
    /// Hide GPUs from containers that request none
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    block_nvidia_visible_devices: bool,
    /// Runtime class of pods that share a GPU; empty: leave it as it is
    #[arg(long, alias = "gpu-pod-runtime-class-name", default_value = "nvidia", value_name = "NAME")]
    gpu_fraction_runtime_class_name: String,
    /// Warn about queues with more quota than their parent
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_quota_validation: bool,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text).parse().ok();
    port.map(everywhere).or_else(|| text.parse().ok()).ok_or_else(|| "write 9443 or 127.0.0.1:9443".to_owned())
}

impl Components for AdmissionArgs {
    fn components(&self, common: &CommonArgs) -> Result<Vec<Component>, CliError> {
        let class = &self.gpu_fraction_runtime_class_name;
        let rules = PodRules {
            scheduler: common.scheduler_name.clone(),
            gpu_sharing: self.gpu_sharing_enabled,
            hami_core: self.hami_core_enabled,
            block_visible_devices: self.block_nvidia_visible_devices,
            runtime_class: Some(class.clone()).filter(|class| !class.is_empty()),
        };
        let reach = self.webhook_url.clone();
        Ok(vec![Component::Admission(Box::new(AdmissionOptions {
            rules,
            check_quota: self.enable_quota_validation,
            address: self.webhook_addr,
            reach: reach.unwrap_or_else(|| WebhookEndpoint::Service { namespace: common.namespace.clone() }),
            namespace: common.namespace.clone(),
            certificate_life: kai_engine::units::Span(self.certificate_validity.0.max(12_000_000)),
        }))])
    }
}
