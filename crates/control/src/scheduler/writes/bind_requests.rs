//! Bind requests.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kai_api::keys::{label, name, reason, received};
use kai_api::{
    BindRequest, BindRequestSpec, ContainerMapping, ExtendedResourceClaimAllocation, NumaZone, ReceivedGpu,
    ResourceClaimAllocation,
};

use super::{CycleWrites, Write};
use crate::key::PodKey;
use crate::scheduler::effect::{self, BindExtras, ClaimedDevices, ExtendedDevices, Received, ResourceType};
use crate::scheduler::explain::actions;

impl CycleWrites<'_> {
    pub(super) fn bind(&mut self, pod: &PodKey, node: &str, got: Received, groups: Vec<String>, extras: &BindExtras) {
        let Some(row) = self.world.pods.get(pod) else { return };
        let pool = Some(&self.settings.node_pool_label_key).filter(|key| !key.is_empty());
        let pool = pool.zip(self.settings.node_pool_value.as_ref());
        let mut labels = BTreeMap::from([(label::SELECTED_NODE.to_owned(), node.to_owned())]);
        if let Some((key, value)) = pool {
            labels.insert(key.clone(), value.clone());
        }
        let mut request = BindRequest::new(
            &pod.name,
            BindRequestSpec {
                pod_name: pod.name.clone(),
                selected_node: node.to_owned(),
                received_resource_type: match got.kind {
                    ResourceType::Regular => received::REGULAR,
                    ResourceType::Fraction => received::FRACTION,
                    ResourceType::MigInstance => received::MIG_INSTANCE,
                }
                .to_owned(),
                received_gpu: Some(ReceivedGpu { count: i64::from(got.devices), portion: hundredths(got.portion) }),
                selected_gpu_groups: groups,
                resource_claim_allocations: extras.claims.iter().map(claimed).collect(),
                extended_resource_claim_allocation: extras.extended.as_ref().map(extended),
                predicted_numa_zones: extras.numa_zones.iter().map(zone).collect(),
                ..BindRequestSpec::default()
            },
        );
        request.metadata.namespace = Some(pod.namespace.clone());
        request.metadata.labels = Some(labels);
        request.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: pod.name.clone(),
            uid: row.uid.clone(),
            ..OwnerReference::default()
        }]);
        self.writes.push(Write::CreateBindRequest(Box::new(request)));
        if let Some((key, value)) = pool
            && row.labels.get(key) != Some(value)
        {
            self.writes.push(Write::LabelPod { pod: pod.clone(), key: key.clone(), value: value.clone() });
        }
        let shown = pool.map_or(name::DEFAULT_SHARD, |(_, value)| value);
        self.pod_event(pod, false, reason::SCHEDULED, actions::bind_requested(pod, node, shown));
    }
}

/// Millionths with two decimals.
fn hundredths(millionths: i64) -> String {
    let rounded = (millionths + 5_000) / 10_000;
    format!("{}.{:02}", rounded / 100, rounded % 100)
}

fn claimed(devices: &ClaimedDevices) -> ResourceClaimAllocation {
    ResourceClaimAllocation { name: devices.name.clone(), allocation: from_json(&devices.allocation) }
}

fn extended(devices: &ExtendedDevices) -> ExtendedResourceClaimAllocation {
    let mapping = |(container, resource, request): &(String, String, String)| ContainerMapping {
        container_name: container.clone(),
        resource_name: resource.clone(),
        request_name: request.clone(),
    };
    ExtendedResourceClaimAllocation {
        allocation: from_json(&devices.allocation),
        device_requests: devices.requests.iter().filter_map(from_json).collect(),
        container_mappings: devices.mappings.iter().map(mapping).collect(),
    }
}

fn zone(zone: &effect::NumaZone) -> NumaZone {
    let amount = zone.amount.iter().map(|(name, amount)| (name.clone(), Quantity(amount.clone()))).collect();
    NumaZone { zone: zone.zone.clone(), amount }
}

/// What was written or read as the API has it can be read back.
fn from_json<T: serde::de::DeserializeOwned>(value: &serde_json::Value) -> Option<T> {
    serde_json::from_value(value.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_have_two_decimals() {
        assert_eq!((hundredths(500_000), hundredths(1_000_000)), ("0.50".to_owned(), "1.00".to_owned()));
        assert_eq!((hundredths(333_300), hundredths(0)), ("0.33".to_owned(), "0.00".to_owned()));
    }
}
