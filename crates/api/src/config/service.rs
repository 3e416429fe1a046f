//! What every component's pods have in common.

use crate::{schema, wire::omit_empty};
use k8s_openapi::api::core::v1::{Affinity, ResourceRequirements};

omit_empty! {
    /// Pods of one component.
    pub struct Service {
        /// Whether the component is installed.
        pub enabled: Option<bool>,
        /// Its container image.
        pub image: Image,
        /// Requests and limits of its container.
        #[schemars(transform = schema::embedded)]
        pub resources: Option<ResourceRequirements>,
        /// How fast it may talk to the API server.
        #[serde(rename = "k8sClientConfig")]
        pub k8s_client_config: K8sClientConfig,
        /// Where its pods go; replaces the global one part by part.
        #[schemars(transform = schema::embedded)]
        pub affinity: Option<Affinity>,
        /// How many of its pods may be away at once.
        pub pod_disruption_budget: PodDisruptionBudget,
    }

    /// Where a container image comes from: `repository/name:tag`.
    pub struct Image {
        /// Registry and path.
        pub repository: Option<String>,
        /// Name within the repository.
        pub name: Option<String>,
        /// Version.
        pub tag: Option<String>,
        /// When the node fetches it.
        pub pull_policy: Option<String>,
    }

    /// How fast a component may talk to the API server.
    pub struct K8sClientConfig {
        /// Requests per second, sustained.
        #[schemars(transform = schema::plain_int)]
        pub qps: Option<i64>,
        /// Requests at once.
        #[schemars(transform = schema::plain_int)]
        pub burst: Option<i64>,
    }

    /// How many pods of a component may be away at once.
    pub struct PodDisruptionBudget {
        /// Whether there is such a bound.
        pub enabled: Option<bool>,
        /// The bound.
        pub max_unavailable: Option<i32>,
    }

    /// A port of a Service and the container port behind it.
    pub struct ServicePort {
        /// Name of the port.
        pub name: Option<String>,
        /// Port of the Service.
        #[schemars(transform = schema::plain_int)]
        pub port: Option<i64>,
        /// Port of the container.
        #[schemars(transform = schema::plain_int)]
        pub target_port: Option<i64>,
    }

    /// Validation a controller does for its own kind.
    pub struct Webhooks {
        /// Whether objects are validated.
        pub enable_validation: Option<bool>,
        /// Start of the webhook configuration's name; the API version follows.
        pub webhook_configuration_name_prefix: Option<String>,
    }
}
