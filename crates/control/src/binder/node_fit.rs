//! Whether a node has room: the last look before a pod is bound.
//!
//! Whoever decided may have seen an old state, and for a while there may be two who decide. A node cannot refuse what
//! is too much for a shared GPU, and whatever else it refuses costs a pod. So what is on a node and what is on its way
//! there is counted once more, by the one who sees all requests.

use std::collections::BTreeMap;

use kai_engine::units::{Timestamp, compat};

use super::Binder;
use super::rows::{PodRow, RequestRow};
use crate::key::PodKey;
use crate::objects::{GpuSharing, Node, Resources};

/// What pods hold on a node.
#[derive(Default)]
struct NodeUsage<'a> {
    resources: Resources,
    /// MiB by shared GPU.
    shared: BTreeMap<&'a str, i64>,
}

impl<'a> NodeUsage<'a> {
    fn add(&mut self, pod: &PodRow, groups: &'a [String], memory: i64) {
        let mut resources = pod.resources.clone();
        if !groups.is_empty() {
            // A reservation asks for the GPU that its users share.
            resources.gpus = 0;
        }
        self.resources.add(&resources);
        let each = match pod.sharing {
            Some(GpuSharing::Fraction { portion, .. }) => compat::share_to_memory(portion, memory),
            Some(GpuSharing::Memory { mib, .. }) => mib,
            None => 0,
        };
        for group in groups {
            *self.shared.entry(group).or_default() += each;
        }
    }

    fn gpus(&self) -> i64 {
        self.resources.gpus + self.shared.len() as i64
    }
}

impl Binder {
    /// What the node insufficient_resource for the pod beside all that are there or on their way.
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
                before.add(other, &other.groups, memory);
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
                before.add(other, groups, memory);
            }
        }
        for (group, _) in self.assumed_reservations.iter().filter(|(_, (_, on))| *on == node.name) {
            before.shared.entry(group).or_default();
        }
        let mut after = before;
        after.add(pod, &request.bind_request.gpu_groups, memory);
        let full = |what: &str, asked: i64, sum: i64, offered: i64| {
            (asked > 0 && sum > offered).then(|| format!("{} {what} more than it has", sum - offered))
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
        lack.map(|lack| format!("node {} has no room: with pod {} it would hold {lack}", node.name, pod.key))
    }

    /// The pod of a request, while it may have got its node without our knowing.
    pub(super) fn pending_bind_pod(&self, request: &RequestRow) -> Option<&PodRow> {
        let pod = self.pods.get(&request.bind_request.pod)?;
        let same = request.bind_request.pod_uid.as_ref().is_none_or(|uid| *uid == pod.uid);
        (same && pod.node.is_none() && pod.is_alive() && !request.deleting && !request.bind_request.given_up())
            .then_some(pod)
    }
}
