//! The controllers that keep pod groups and queues.

use super::{K8sClientConfig, Service, ServicePort, Vpa, Webhooks};
use crate::{schema, wire::omit_empty};

omit_empty! {
    /// The pod grouper.
    pub struct PodGrouper {
        /// Its pods.
        pub service: Service,
        /// Their vertical autoscaling.
        pub vpa: Option<Vpa>,
        /// What it does differently from the default.
        pub args: PodGrouperArgs,
        /// How fast it may talk to the API server.
        #[serde(rename = "k8sClientConfig")]
        pub k8s_client_config: K8sClientConfig,
        /// Pods worked on at once.
        #[schemars(transform = schema::plain_int)]
        pub max_concurrent_reconciles: Option<i64>,
        /// Number of pods.
        pub replicas: Option<i32>,
    }

    /// What the pod grouper does differently from the default.
    pub struct PodGrouperArgs {
        /// Whether the pods of a Knative revision form a gang; true when unset.
        pub gang_schedule_knative: Option<bool>,
        /// Whether kinds without rules of their own may be described by a Karta object; true when unset.
        pub generic_karta_fallback: Option<bool>,
        /// ConfigMap with default priorities by kind.
        pub default_priorities_config_map_name: Option<String>,
        /// Its namespace.
        pub default_priorities_config_map_namespace: Option<String>,
    }

    /// The pod group controller.
    pub struct PodGroupController {
        /// Its pods.
        pub service: Service,
        /// Their vertical autoscaling.
        pub vpa: Option<Vpa>,
        /// Its Service.
        pub controller_service: PodGroupControllerService,
        /// Validation of PodGroups.
        pub webhooks: Webhooks,
        /// Groups worked on at once.
        #[schemars(transform = schema::plain_int)]
        pub max_concurrent_reconciles: Option<i64>,
        /// Number of pods.
        pub replicas: Option<i32>,
    }

    /// Service of the pod group controller.
    pub struct PodGroupControllerService {
        /// Port of the webhook.
        pub webhook: ServicePort,
    }

    /// The queue controller.
    pub struct QueueController {
        /// Its pods.
        pub service: Service,
        /// Their vertical autoscaling.
        pub vpa: Option<Vpa>,
        /// Its Service.
        pub controller_service: QueueControllerService,
        /// Validation of Queues.
        pub webhooks: Webhooks,
        /// Number of pods.
        pub replicas: Option<i32>,
        /// Prefix of the metric names.
        pub metrics_namespace: Option<String>,
        /// Queue labels to show as metric labels, as `label=metric,…`.
        pub queue_label_to_metric_label: Option<String>,
        /// Values of those metric labels where the queue has none, as `label=value,…`.
        pub queue_label_to_default_metric_value: Option<String>,
    }

    /// Service of the queue controller.
    pub struct QueueControllerService {
        /// Port for metrics.
        pub metrics: ServicePort,
        /// Port of the webhook.
        pub webhook: ServicePort,
    }
}
