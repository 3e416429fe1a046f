//! `kai admission`: what its webhooks take beside what every part takes.
#![allow(clippy::doc_markdown, reason = "doc comments are printed as help, where backticks would show")]

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use kai_control::admission::{PodRules, Reach};
use kai_live::{AdmissionOptions, Component};

use super::CommonArgs;
use crate::args::{Span, span};

#[derive(Clone, Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct AdmissionArgs {
    /// Where to answer the API server: a port of every address, or an address
    #[arg(long, default_value = "9443", value_name = "PORT", value_parser = address)]
    webhook_addr: SocketAddr,
    /// Where the API server finds us, such as https://10.1.2.3:9443, when we run outside of the cluster; otherwise it
    /// asks the Service `admission` of our namespace
    #[arg(long, value_name = "URL", value_parser = Reach::at)]
    webhook_url: Option<Reach>,
    /// For how long a certificate is good; it is renewed after two thirds of that
    #[arg(long, default_value = "8760h", value_name = "TIME", value_parser = span)]
    certificate_validity: Span,
    /// Let pods share GPUs
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    gpu_sharing_enabled: bool,
    /// Tell HAMi-core how much memory a pod may use
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    hami_core_enabled: bool,
    /// Hide GPUs from containers that ask for none
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    block_nvidia_visible_devices: bool,
    /// Runtime class of pods that share a GPU; empty to leave it
    #[arg(long, alias = "gpu-pod-runtime-class-name", default_value = "nvidia", value_name = "NAME")]
    gpu_fraction_runtime_class_name: String,
    /// Warn of queues with more quota than their parents
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_quota_validation: bool,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text).parse().ok();
    let everywhere = port.map(|port| SocketAddr::new(IpAddr::from(Ipv6Addr::UNSPECIFIED), port));
    everywhere.or_else(|| text.parse().ok()).ok_or_else(|| "write 9443 or 127.0.0.1:9443".to_owned())
}

impl AdmissionArgs {
    pub(super) fn component(&self, common: &CommonArgs) -> Component {
        let class = &self.gpu_fraction_runtime_class_name;
        let rules = PodRules {
            scheduler: common.scheduler_name.clone(),
            gpu_sharing: self.gpu_sharing_enabled,
            hami_core: self.hami_core_enabled,
            block_visible_devices: self.block_nvidia_visible_devices,
            runtime_class: Some(class.clone()).filter(|class| !class.is_empty()),
        };
        let reach = self.webhook_url.clone();
        Component::Admission(Box::new(AdmissionOptions {
            rules,
            check_quota: self.enable_quota_validation,
            address: self.webhook_addr,
            reach: reach.unwrap_or_else(|| Reach::Service { namespace: common.namespace.clone() }),
            namespace: common.namespace.clone(),
            certificate_life: kai_engine::units::Span(self.certificate_validity.0.max(12_000_000)),
        }))
    }
}
