//! The node scale adjuster.

use super::{Image, Service, Vpa};
use crate::wire::omit_empty;

omit_empty! {
    /// Stands in whole-GPU pods for pending pods that share GPUs, so that autoscalers add nodes.
    pub struct NodeScaleAdjuster {
        /// Its pods.
        pub service: Service,
        /// Their vertical autoscaling.
        pub vpa: Option<Vpa>,
        /// The pods it makes.
        pub args: NodeScaleAdjusterArgs,
    }

    /// The pods a node scale adjuster makes.
    pub struct NodeScaleAdjusterArgs {
        /// Their image.
        pub scaling_pod_image: Image,
        /// Their namespace.
        pub node_scale_namespace: Option<String>,
        /// Their service account.
        pub node_scale_service_account: Option<String>,
        /// Part of a GPU to assume for a request in memory.
        pub gpu_memory_to_fraction_ratio: Option<f64>,
    }
}
