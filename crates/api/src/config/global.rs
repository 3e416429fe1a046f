//! Settings common to all components.

use super::Vpa;
use crate::{schema, wire::omit_empty};
use k8s_openapi::api::core::v1::{Affinity, SecurityContext, Toleration};
use std::collections::BTreeMap;

omit_empty! {
    /// Settings common to all components.
    pub struct Global {
        /// Whether this is OpenShift, which sets security contexts itself.
        pub openshift: Option<bool>,
        /// Where pods go, unless a component says otherwise.
        #[schemars(transform = schema::embedded)]
        pub affinity: Option<Affinity>,
        /// Keeps pods of one component on different nodes at all costs, not just if possible.
        pub require_default_pod_anti_affinity_term: Option<bool>,
        /// Security context of every container.
        #[schemars(transform = schema::embedded)]
        pub security_context: Option<SecurityContext>,
        /// Secrets for pulling images.
        pub additional_image_pull_secrets: Vec<String>,
        /// One more such secret; superseded by `additionalImagePullSecrets`.
        pub images_pull_secret: Option<String>,
        /// PriorityClass of the pods.
        pub priority_class_name: Option<String>,
        /// Whether logs are JSON.
        pub json_log: Option<bool>,
        /// Nodes the pods may run on.
        pub node_selector: BTreeMap<String, String>,
        /// Taints the pods tolerate.
        #[schemars(transform = schema::node_tolerations)]
        pub tolerations: Vec<Toleration>,
        /// Taints the pods of daemon sets tolerate as well.
        #[schemars(transform = schema::node_tolerations)]
        pub daemonsets_tolerations: Vec<Toleration>,
        /// Replicas of components that do not set their own.
        pub replica_count: Option<i32>,
        /// Label that names the queue of a workload.
        pub queue_label_key: Option<String>,
        /// The `schedulerName` that pods ask for.
        pub scheduler_name: Option<String>,
        /// Label that assigns nodes, queues and groups to shards.
        pub node_pool_label_key: Option<String>,
        /// Namespaces in which webhooks and grouping apply; all when empty.
        pub namespace_label_selector: BTreeMap<String, String>,
        /// Pods to which webhooks and grouping apply; all when empty.
        pub pod_label_selector: BTreeMap<String, String>,
        /// Vertical autoscaling of components that do not set their own.
        pub vpa: Option<Vpa>,
    }
}
