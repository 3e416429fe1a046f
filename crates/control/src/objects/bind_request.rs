//! A placement on its way to the kubelet.

use std::collections::BTreeMap;

use serde_json::Value;

use super::field_reader::FieldReader;
use super::{ClaimAllocation, Malformed, Pod, ZoneAmount};
use crate::bind_batch;
use crate::key::{Key, PodKey};

/// What matters of a `BindRequest`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BindRequest {
    pub key: Key,
    pub labels: BTreeMap<String, String>,
    pub pod: PodKey,
    /// Identity of the pod it was made for, if it says.
    pub pod_uid: Option<String>,
    pub node: String,
    pub gpu_groups: Vec<String>,
    pub numa_zones: Vec<ZoneAmount>,
    /// Devices by the pod's own names for its claims.
    pub claims: Vec<(String, ClaimAllocation)>,
    pub phase: BindPhase,
    pub failed_attempts: u32,
    pub backoff_limit: Option<u32>,
    /// Requests that it holds. A batch asks for nothing itself.
    pub batch: Option<Vec<BindRequest>>,
}

/// How far a bind has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BindPhase {
    #[default]
    Pending,
    Succeeded,
    Failed,
}

impl BindRequest {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let batch = bind_batch::is_batch(value)
            .then(|| bind_batch::unpack(value).iter().map(Self::parse_single).collect())
            .transpose()?;
        Ok(Self { batch, ..Self::parse_single(value)? })
    }

    fn parse_single(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let (spec, status) = (root.field("spec"), root.field("status"));
        let key = Key::new(root.object_namespace()?, root.object_name()?);
        let pod = spec.field("podName").non_empty_text()?.unwrap_or_else(|| key.name.clone());
        Ok(Self {
            pod: PodKey::new(key.namespace.clone(), pod),
            pod_uid: root
                .field("metadata")
                .field("ownerReferences")
                .items()?
                .first()
                .map_or(Ok(None), |owner| owner.field("uid").non_empty_text())?,
            key,
            labels: root.field("metadata").field("labels").string_map()?,
            node: spec.field("selectedNode").text_or_empty()?,
            gpu_groups: spec.field("selectedGPUGroups").text_list()?,
            numa_zones: ZoneAmount::read_all(&spec.field("predictedNUMAZones"))?,
            claims: claims(&spec.field("resourceClaimAllocations"))?,
            phase: match status.field("phase").text()? {
                Some("Succeeded") => BindPhase::Succeeded,
                Some("Failed") => BindPhase::Failed,
                _ => BindPhase::Pending,
            },
            failed_attempts: status.field("failedAttempts").count()?.unwrap_or(0),
            backoff_limit: spec.field("backoffLimit").count()?,
            batch: None,
        })
    }

    /// Whether it was made for this very pod, and not for an earlier one of the same name.
    pub fn is_for(&self, pod: &Pod) -> bool {
        self.pod_uid.as_ref().is_none_or(|uid| *uid == pod.uid)
    }

    /// Whether the binder has given up, so that the pod waits again.
    pub fn given_up(&self) -> bool {
        self.phase == BindPhase::Failed && self.backoff_limit.is_none_or(|limit| self.failed_attempts >= limit)
    }
}

fn claims(place: &FieldReader<'_>) -> Result<Vec<(String, ClaimAllocation)>, Malformed> {
    let mut claims = Vec::new();
    for item in place.items()? {
        let allocation = ClaimAllocation::read(&item.field("allocation"))?;
        claims.extend(allocation.map(|allocation| Ok((item.field("name").text_or_empty()?, allocation))).transpose()?);
    }
    Ok(claims)
}

#[cfg(test)]
impl BindRequest {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        json!({"metadata": {"name": "p", "ownerReferences": [{"uid": "u"}]},
        "spec": {"podName": "p", "selectedNode": "n", "selectedGPUGroups": ["g"], "backoffLimit": 1},
        "status": {"phase": "Failed", "failedAttempts": 1}})
    }
}
