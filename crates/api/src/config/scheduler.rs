//! What the schedulers of all shards have in common.

use super::{Service, Vpa};
use crate::{schema, wire::omit_empty};

omit_empty! {
    /// The schedulers of all shards.
    pub struct Scheduler {
        /// Their pods.
        pub service: Service,
        /// Their vertical autoscaling.
        pub vpa: Option<Vpa>,
        /// Memory setting of KAI's own runtime; accepted, without effect.
        #[serde(rename = "GOGC")]
        #[schemars(transform = schema::plain_int)]
        pub gogc: Option<i64>,
        /// Their Services.
        pub scheduler_service: SchedulerService,
        /// Number of pods per shard.
        pub replicas: Option<i32>,
    }

    /// Service of a scheduler.
    pub struct SchedulerService {
        /// Kind of Service.
        #[serde(rename = "type")]
        pub type_: Option<String>,
        /// Port of the Service.
        #[schemars(transform = schema::plain_int)]
        pub port: Option<i64>,
        /// Port of the container.
        #[schemars(transform = schema::plain_int)]
        pub target_port: Option<i64>,
    }
}
