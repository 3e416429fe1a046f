//! The binder and the pods it uses to hold shared GPUs.

use super::{Image, Service, Vpa};
use crate::{PluginConfig, schema, wire::omit_empty};
use k8s_openapi::api::core::v1::{PodSecurityContext, ResourceRequirements, SecurityContext};
use std::collections::BTreeMap;

omit_empty! {
    /// The binder.
    pub struct Binder {
        /// Its pods.
        pub service: Service,
        /// Their vertical autoscaling.
        pub vpa: Option<Vpa>,
        /// Pods that hold shared GPUs.
        pub resource_reservation: ResourceReservation,
        /// Number of pods.
        pub replicas: Option<i32>,
        /// Requests worked on at once.
        #[schemars(transform = schema::plain_int)]
        pub max_concurrent_reconciles: Option<i64>,
        /// How long volumes may take to bind.
        #[schemars(transform = schema::plain_int)]
        pub volume_binding_timeout_seconds: Option<i64>,
        /// Port for health checks.
        #[schemars(transform = schema::plain_int)]
        pub probe_port: Option<i64>,
        /// Port for metrics.
        #[schemars(transform = schema::plain_int)]
        pub metrics_port: Option<i64>,
        /// Whether devices reach containers through CDI; found out from the GPU operator when unset.
        pub cdi_enabled: Option<bool>,
        /// Changes to the built-in plugins, by name.
        pub plugins: BTreeMap<String, PluginConfig>,
    }

    /// Pods that hold shared GPUs on behalf of the pods sharing them.
    pub struct ResourceReservation {
        /// Their image.
        pub image: Image,
        /// How long one may take to learn its GPU, in seconds.
        #[schemars(transform = schema::plain_int)]
        pub allocation_timeout: Option<i64>,
        /// Their namespace.
        pub namespace: Option<String>,
        /// Their service account.
        pub service_account_name: Option<String>,
        /// Value of their `app` label.
        pub app_label: Option<String>,
        /// Their runtime class.
        pub runtime_class_name: Option<String>,
        /// Their requests and limits for cpu and memory.
        #[schemars(transform = schema::embedded)]
        pub pod_resources: Option<ResourceRequirements>,
        /// Their pod security context.
        #[schemars(transform = schema::embedded)]
        pub reservation_pod_security_context: Option<PodSecurityContext>,
        /// Their container security context.
        #[schemars(transform = schema::embedded)]
        pub reservation_container_security_context: Option<SecurityContext>,
    }
}
