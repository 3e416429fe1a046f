//! Topology: the levels at which nodes are near each other, widest first.

use crate::schema;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Levels of one physical layout.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kai.scheduler",
    version = "v1alpha1",
    kind = "Topology",
    plural = "topologies",
    doc = "Physical layout of the cluster, as levels of node labels.",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpec {
    /// From the widest domain to the narrowest. Labels are fixed once written; aliases may change.
    #[schemars(length(min = 1, max = 16), transform = schema::topology_levels)]
    pub levels: Vec<TopologyLevel>,
}

/// One level of a layout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    /// Node label whose value names the domain a node is in, such as `cloud.provider.com/topology-rack`.
    #[schemars(transform = schema::label_key)]
    pub node_label: String,
    /// Short name that constraints may use instead of the label. Unique within the layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::label_key)]
    pub alias: Option<String>,
}
