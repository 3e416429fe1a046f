//! Fit check before binding. The scheduler may have decided on a stale cache, and two schedulers may be active during a
//! failover; a kubelet cannot reject what is too much for a shared GPU, and whatever else it rejects costs a pod. The
//! binder sees all requests, so it counts the pods of the node and the pending binds once more.

use std::collections::BTreeMap;

use kai_engine::units::{Timestamp, compat};

use super::Binder;
use super::rows::{PodRow, RequestRow};
use crate::key::PodKey;
use crate::objects::{GpuSharing, Node, Resources};

/// What the pods of a node use.
#[derive(Default)]
struct NodeUsage<'a> {
    resources: Resources,
    /// MiB by shared GPU.
    shared: BTreeMap<&'a str, i64>,
}

impl<'a> NodeUsage<'a> {
    fn add(&mut self, pod: &PodRow, groups: &'a [String], reserves_gpu: bool, node: &Node, memory: i64) {
        let mut resources = pod.resources.clone();
        if pod.request_unclear {
            resources.lower_to(&node.allocatable);
        }
        if reserves_gpu && !groups.is_empty() {
            // It requests the GPU that others share.
            resources.gpus = 0;
        }
        if let Some(sharing) = pod.sharing.filter(|_| pod.node.is_some() && groups.is_empty()) {
            // It is unknown which ones it shares.
            resources.gpus = resources.gpus.saturating_add(sharing.devices().into());
        }
        self.resources.add(&resources);
        let each = match pod.sharing {
            Some(GpuSharing::Fraction { portion, .. }) => compat::share_to_memory(portion, memory),
            Some(GpuSharing::Memory { mib, .. }) => mib,
            None => 0,
        };
        for group in groups {
            let used = self.shared.entry(group).or_default();
            *used = used.saturating_add(each);
        }
    }

    fn gpus(&self) -> i64 {
        self.resources.gpus.saturating_add(self.shared.len() as i64)
    }
}

impl Binder {
    /// What is insufficient on the node for the pod, beside its pods and pending binds.
    pub(super) fn insufficient_resource(
        &self,
        request: &RequestRow,
        pod: &PodRow,
        node: &Node,
        now: Timestamp,
    ) -> Option<String> {
        let memory = node.device_memory().unwrap_or(compat::DEVICE_MEMORY_DEFAULT);
        let mut before = NodeUsage::default();
        for other in self.pods_by_node.get(&node.name).into_iter().flatten().filter_map(|key| self.pods.get(key)) {
            if other.is_alive() {
                before.add(other, &other.groups, self.is_reservation(other), node, memory);
            }
        }
        let mut coming: BTreeMap<&PodKey, &[String]> = BTreeMap::new();
        for (pod, placed) in self.assumed.on_node(&node.name, now) {
            coming.insert(pod, &placed.groups);
        }
        for key in self.requests_by_node.get(&node.name).into_iter().flatten() {
            if let Some((other, pod)) =
                self.requests.get(key).and_then(|other| Some((other, self.pending_bind_pod(other)?)))
            {
                coming.insert(&pod.key, &other.bind_request.gpu_groups);
            }
        }
        coming.remove(&pod.key);
        for (other, groups) in coming {
            if let Some(other) = self.pods.get(other).filter(|other| other.node.is_none() && other.is_alive()) {
                before.add(other, groups, self.is_reservation(other), node, memory);
            }
        }
        for (group, _) in self.assumed_reservations.iter().filter(|(_, (_, on))| *on == node.name) {
            before.shared.entry(group).or_default();
        }
        let mut after = before;
        after.add(pod, &request.bind_request.gpu_groups, self.is_reservation(pod), node, memory);
        let full = |what: &str, asked: i64, sum: i64, offered: i64| {
            (asked > 0 && sum > offered).then(|| (what.to_owned(), sum - offered))
        };
        let (own, sum, offered) = (&pod.resources, &after.resources, &node.allocatable);
        let mut lack = full("milli-CPU", own.cpu_milli, sum.cpu_milli, offered.cpu_milli)
            .or_else(|| full("bytes of memory", own.memory_bytes, sum.memory_bytes, offered.memory_bytes))
            .or_else(|| full("pods", own.pods, sum.pods, offered.pods));
        // Resources that a node does not list may come from device claims.
        if offered.gpus > 0 {
            let own = own.gpus + request.bind_request.gpu_groups.len() as i64;
            lack = lack.or_else(|| full("GPUs", own, after.gpus(), offered.gpus));
        }
        for (name, asked) in &own.scalars {
            let (Some(sum), Some(offered)) = (sum.scalars.get(name), offered.scalars.get(name)) else { continue };
            lack = lack.or_else(|| full(name, *asked, *sum, *offered));
        }
        for group in &request.bind_request.gpu_groups {
            let used = after.shared.get(group.as_str()).copied().unwrap_or(0);
            lack = lack.or_else(|| full(&format!("MiB on GPU {group}"), used, used, memory));
        }
        lack.map(|(what, excess)| {
            format!("insufficient {what} on node {}: pod {} would exceed allocatable by {excess}", node.name, pod.key)
        })
    }

    /// The pod of a request, while it may be bound and no watch shows it.
    pub(super) fn pending_bind_pod(&self, request: &RequestRow) -> Option<&PodRow> {
        let pod = self.pods.get(&request.bind_request.pod)?;
        let same = request.bind_request.pod_uid.as_ref().is_none_or(|uid| *uid == pod.uid);
        (same && pod.node.is_none() && pod.is_alive() && !request.deleting && !request.bind_request.given_up())
            .then_some(pod)
    }
}
