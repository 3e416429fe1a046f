//! Reservation pods: each holds one GPU as a whole while others share it, and tells which one it is.

use std::collections::BTreeMap;

use kai_api::keys::{annotation, label, resource};
use kai_engine::units::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::rows::{BindInputs, PodRow, RequestRow};
use super::{BindEffect, Binder};
use crate::key::{Key, PodKey};

impl Binder {
    /// The pod that reserves the shared GPU.
    pub(super) fn reservation(&self, group: &str) -> Option<&PodRow> {
        self.members_of(group).find(|pod| self.is_reservation(pod) && !pod.deleting)
    }

    /// A pod that holds the shared GPU, though nothing reserves it any more.
    pub(super) fn orphaned_user(&self, group: &str) -> Option<&PodRow> {
        self.members_of(group).find(|pod| pod.is_placed() && !self.is_reservation(pod))
    }

    pub(super) fn is_reservation(&self, pod: &PodRow) -> bool {
        pod.key.namespace == self.settings.reservation_namespace
    }

    fn members_of(&self, group: &str) -> impl Iterator<Item = &PodRow> {
        self.pods_by_gpu_group.get(group).into_iter().flatten().filter_map(|key| self.pods.get(key))
    }

    /// Keeps one reservation for each shared GPU in use: none without users, no running users without one.
    pub fn sync_gpu_group(&self, group: &str, now: Timestamp) -> Vec<BindEffect> {
        let (reservations, users): (Vec<&PodRow>, Vec<&PodRow>) =
            self.members_of(group).partition(|pod| self.is_reservation(pod));
        // One that waits only carries the label of an attempt that failed.
        let used = users.iter().any(|pod| pod.is_alive() && pod.node.is_some()) || self.assumed.uses(group, now);
        let delete = |pod: &PodRow| BindEffect::DeletePod { pod: pod.key.clone(), uid: pod.uid.clone(), version: None };
        // A pending request may use it, or a bind not yet observed.
        let expected = self.requests_for(group).any(|row| row.is_pending() || self.pending_bind_pod(row).is_some());
        if reservations.is_empty() {
            if let Some((pod, _)) = self.assumed_reservations.get(group).filter(|_| !used && !expected) {
                return vec![BindEffect::DeletePod { pod: pod.clone(), uid: String::new(), version: None }];
            }
            // Without its reservation pod the GPU can be allocated to another pod. So every user that has a node is
            // deleted, running or not: a new reservation could get another GPU than the config maps of the users name.
            return users.iter().filter(|pod| pod.is_placed()).map(|pod| delete(pod)).collect();
        }
        if used || expected {
            return Vec::new();
        }
        reservations.iter().filter(|pod| !pod.deleting).map(|pod| delete(pod)).collect()
    }

    /// Notes a reservation that may exist before a watch shows it.
    pub(super) fn assume_reservation(&mut self, pod: &Value, node: &str) {
        let Some(group) = pod["metadata"]["labels"][label::GPU_GROUP].as_str() else { return };
        let key = reservation_key(&self.settings.reservation_namespace, node, group);
        self.assumed_reservations.assume(group.to_owned(), (key, node.to_owned()));
    }

    /// Assumes the pod deleted until the watch shows it; drops an assumed reservation of that pod.
    pub fn assume_deleted(&mut self, pod: &PodKey, uid: &str) {
        self.assumed_reservations.forget_where(|(reservation, _)| reservation == pod);
        if let Some(row) = self.pods.get_mut(pod).filter(|row| row.uid == uid) {
            row.deleting = true;
            self.assumed.assume_deleted(pod.clone(), uid.to_owned());
        }
    }

    /// The pods that reserve the shared GPUs of a request.
    pub(super) fn reservations_for(&self, request: &Key) -> impl Iterator<Item = &PodKey> {
        let groups = self.requests.get(request).into_iter().flat_map(|row| &row.bind_request.gpu_groups);
        groups.filter_map(|group| self.reservation(group)).map(|pod| &pod.key)
    }

    /// An autoscaler is about to bring nodes: a reservation now could take a GPU from the pod it is asked for.
    pub(super) fn autoscaler_pending(&self) -> bool {
        let namespace = &self.settings.scale_adjust_namespace;
        let from_there = self.pods.range(PodKey::new(namespace, "")..);
        from_there.take_while(|(key, _)| key.namespace == *namespace).any(|(_, pod)| pod.unscheduled)
    }

    pub(super) fn reservation_pod(&self, request: &RequestRow, group: &str, user: &BindInputs) -> Value {
        let settings = &self.settings;
        let key = reservation_key(&settings.reservation_namespace, &request.bind_request.node, group);
        let mut amounts: BTreeMap<&str, &str> = settings
            .reservation_resources
            .iter()
            .filter(|(name, _)| *name != resource::NVIDIA_GPU)
            .map(|(name, amount)| (name.as_str(), amount.as_str()))
            .collect();
        amounts.insert(resource::NVIDIA_GPU, "1");
        let from_field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let mut container = json!({
            "name": "resource-reservation",
            "image": settings.reservation_image,
            "imagePullPolicy": "IfNotPresent",
            "resources": {"requests": amounts, "limits": amounts},
            "env": [from_field("POD_NAME", "metadata.name"), from_field("POD_NAMESPACE", "metadata.namespace")],
        });
        if settings.fake_gpu_nodes {
            container["image"] = json!("ubuntu");
            container["args"] = json!(["sleep", "infinity"]);
        }
        if let Some(security) = &settings.reservation_container_security {
            container["securityContext"] = security.clone();
        }
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "labels": {label::APP: settings.reservation_app, label::GPU_GROUP: group},
                "annotations": {annotation::DO_NOT_DISRUPT: "true"},
            },
            "spec": {
                "nodeName": request.bind_request.node,
                "serviceAccountName": settings.reservation_service_account,
                "containers": [container],
            },
        });
        if user.tolerations.is_array() {
            pod["spec"]["tolerations"] = user.tolerations.clone();
        }
        if let Some(security) = &settings.reservation_pod_security {
            pod["spec"]["securityContext"] = security.clone();
        }
        if let Some(class) = &settings.runtime_class {
            pod["spec"]["runtimeClassName"] = json!(class);
        }
        pod
    }
}

/// The same for every binder, so that the API server lets only one reservation be made.
fn reservation_key(namespace: &str, node: &str, group: &str) -> PodKey {
    let digest = Sha256::digest(format!("{node}/{group}"));
    let start = digest[..8].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    PodKey::new(namespace, format!("gpu-reservation-{start:016x}"))
}
