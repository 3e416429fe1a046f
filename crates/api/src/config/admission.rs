//! The admission webhooks for pods.

use super::{Service, Vpa};
use crate::{schema, wire::omit_empty};

omit_empty! {
    /// The admission webhooks for pods.
    pub struct Admission {
        /// Its pods.
        pub service: Service,
        /// Their vertical autoscaling.
        pub vpa: Option<Vpa>,
        /// Its ports.
        pub webhook: AdmissionPorts,
        /// Number of pods.
        pub replicas: Option<i32>,
        /// Whether pods may ask for parts of a GPU.
        pub gpu_sharing: Option<bool>,
        /// Whether only namespaces with a queue label are looked at.
        pub queue_label_selector: Option<bool>,
        /// Name of the validating webhook configuration.
        pub validating_webhook_configuration_name: Option<String>,
        /// Name of the mutating webhook configuration.
        pub mutating_webhook_configuration_name: Option<String>,
        /// Runtime class given to pods that ask for part of a GPU; empty leaves them alone.
        pub gpu_fraction_runtime_class_name: Option<String>,
        /// Superseded by `gpuFractionRuntimeClassName`, which wins.
        pub gpu_pod_runtime_class_name: Option<String>,
        /// Whether containers are kept from choosing GPUs through `NVIDIA_VISIBLE_DEVICES`.
        pub block_nvidia_visible_devices: Option<bool>,
    }

    /// Ports of the admission webhooks.
    pub struct AdmissionPorts {
        /// Port of the Service.
        #[schemars(transform = schema::plain_int)]
        pub port: Option<i64>,
        /// Port of the container.
        #[schemars(transform = schema::plain_int)]
        pub target_port: Option<i64>,
        /// Port for health checks.
        #[schemars(transform = schema::plain_int)]
        pub probe_port: Option<i64>,
        /// Port for metrics.
        #[schemars(transform = schema::plain_int)]
        pub metrics_port: Option<i64>,
    }
}
