//! The Prometheus that keeps usage history.

use crate::{schema, wire::omit_empty};

omit_empty! {
    /// A Prometheus of our own, or one that is already there.
    pub struct Prometheus {
        /// Whether usage history is kept.
        pub enabled: Option<bool>,
        /// Name of our own instance.
        pub instance_name: Option<String>,
        /// How long history is kept, such as `2w`.
        pub retention_period: Option<String>,
        /// Accepted, without effect.
        pub sample_interval: Option<String>,
        /// Whether history survives the pod; true when unset.
        pub enable_persistent_storage: Option<bool>,
        /// Size of the volume.
        pub storage_size: Option<String>,
        /// Storage class of the volume.
        pub storage_class_name: Option<String>,
        /// Scraping of our components.
        pub service_monitor: ServiceMonitor,
        /// An existing Prometheus to use instead of our own.
        pub external_prometheus_url: Option<String>,
        /// Checks that the existing one answers.
        pub external_prometheus_health_probe: HealthProbe,
        /// Label by which Prometheus finds what to scrape.
        pub accounting_label_key: Option<String>,
        /// Its value.
        pub accounting_label_value: Option<String>,
    }

    /// Scraping of our components.
    pub struct ServiceMonitor {
        /// Whether they are scraped.
        pub enabled: Option<bool>,
        /// Time between scrapes.
        pub interval: Option<String>,
        /// How long a scrape may take.
        pub scrape_timeout: Option<String>,
        /// File with the token to scrape with.
        pub bearer_token_file: Option<String>,
    }

    /// Checks that an existing Prometheus answers.
    pub struct HealthProbe {
        /// Seconds between checks.
        #[schemars(transform = schema::plain_int)]
        pub interval: Option<i64>,
        /// Seconds a check may take.
        #[schemars(transform = schema::plain_int)]
        pub timeout: Option<i64>,
        /// Failed checks before it counts as down.
        #[schemars(transform = schema::plain_int)]
        pub max_retries: Option<i64>,
    }
}
