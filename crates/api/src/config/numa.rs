//! The NUMA placement exporter.

use super::Service;
use crate::{Duration, schema, wire::omit_empty};
use k8s_openapi::api::core::v1::Toleration;
use std::collections::BTreeMap;

omit_empty! {
    /// Runs on each node and notes on pods where the kubelet placed them.
    pub struct NumaPlacementExporter {
        /// Its pods. Unset `enabled` installs it when some shard uses the `numa` plugin.
        pub service: Service,
        /// Nodes it runs on. The global node selector does not apply: it is for management pods.
        pub node_selector: BTreeMap<String, String>,
        /// Taints it tolerates, besides those all daemon sets do.
        #[schemars(transform = schema::node_tolerations)]
        pub tolerations: Vec<Toleration>,
        /// Time between readings on the node; one second when unset.
        pub poll_interval: Option<Duration>,
        /// Time between repairs of its notes; a minute when unset, 0 is never.
        pub drift_resync_interval: Option<Duration>,
        /// Socket it reads, inside the directory below.
        pub pod_resources_socket: Option<String>,
        /// Directory of the node that holds the socket.
        pub pod_resources_host_path: Option<String>,
        /// Directory of the node that tells which CPU is in which zone.
        pub sysfs_host_path: Option<String>,
    }
}
