//! The next step of a request, and the way back.

use std::collections::BTreeMap;

use kai_api::keys::{annotation, phase};
use kai_engine::units::{GPU, Span, Timestamp, compat};
use serde_json::{Value, json};

use super::rows::{BindInputs, PodRow, RequestRow};
use super::{BindEffect, Binder, Plan};
use crate::controller::Backoff;
use crate::gpu_config_maps;
use crate::key::{Key, PodKey};
use crate::objects::pod::{gpu_group_labels, is_gpu_group_label};
use crate::objects::{BoundShare, GpuSharing, Node, gpu_memory_mib};
use crate::quantity::Quantity;

/// How long the pod of a request may be unknown: watches of two kinds are not equally fast.
const POD_LOOKUP_TIMEOUT: Span = Span::seconds(10);

/// How long a node may seem full: the scheduler may have seen earlier who left it. And how often to look meanwhile.
const FIT_TIMEOUT: Span = Span::seconds(10);
const FIT_RETRY_PERIOD: Span = Span::seconds(1);

/// Bind requests have shares of a GPU in hundredths.
const HUNDREDTH: u64 = GPU.unsigned_abs() / 100;

/// Between attempts of a request.
const ATTEMPT_BACKOFF: Backoff = Backoff::new(Span::seconds(1), Span::seconds(64));

/// Why an attempt ends.
pub(super) enum Stop {
    /// Look again later.
    Wait {
        why: String,
        until: Option<Timestamp>,
        effects: Vec<BindEffect>,
    },
    Fail(String),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Fail(why)
    }
}

impl Binder {
    /// What to do about the request now.
    pub fn plan(&mut self, key: &Key, now: Timestamp) -> Plan {
        let Some(request) = self.requests.get(key).filter(|row| row.is_pending()) else { return Plan::default() };
        let node = request.bind_request.node.clone();
        let plan = match self.steps(request, now) {
            Ok(effects) => Plan { effects, requeue_at: None, wait_reason: None },
            Err(Stop::Wait { why, until, effects }) => Plan { effects, requeue_at: until, wait_reason: Some(why) },
            Err(Stop::Fail(why)) => self.failed(key, &why, now),
        };
        self.assume_prebinds(&plan.effects, now);
        for effect in &plan.effects {
            match effect {
                BindEffect::CreatePod(pod) => self.assume_reservation(pod, &node),
                BindEffect::Bind { pod, uid, node, .. } => {
                    let groups =
                        self.requests.get(key).map(|row| row.bind_request.gpu_groups.clone()).unwrap_or_default();
                    self.assumed.assume_bound(pod.clone(), uid.clone(), node.clone(), groups);
                }
                _ => {}
            }
        }
        plan
    }

    /// A plan was not carried out, or not as far as its bind, if it has one.
    pub fn forget_bind(&mut self, effects: &[BindEffect]) {
        for pod in effects.iter().filter_map(bound) {
            self.assumed.forget(pod);
        }
    }

    /// The outcome of the plan's bind is unknown.
    pub fn mark_bind_unknown(&mut self, effects: &[BindEffect], now: Timestamp) {
        for pod in effects.iter().filter_map(bound) {
            self.assumed.mark_unknown(pod, now);
        }
    }

    fn steps(&self, request: &RequestRow, now: Timestamp) -> Result<Vec<BindEffect>, Stop> {
        let pod_key = request.bind_request.pod.clone();
        let same = |pod: &&PodRow| request.bind_request.pod_uid.as_ref().is_none_or(|uid| *uid == pod.uid);
        let Some(pod) = self.pods.get(&pod_key).filter(same) else {
            let deadline = Timestamp(request.created.0 + POD_LOOKUP_TIMEOUT.0);
            if now < deadline {
                return Err(wait(format!("pod {pod_key} to appear"), Some(deadline)));
            }
            return Err(Stop::Fail(format!("pod {pod_key} does not exist")));
        };
        let Some(bind_inputs) = &pod.bind_inputs else {
            return match &pod.node {
                Some(other) if *other != request.bind_request.node => {
                    Err(Stop::Fail(format!("the pod is already bound to node {other}")))
                }
                _ => Ok(vec![succeeded(request)]),
            };
        };
        let Some(node) = self.nodes.get(&request.bind_request.node) else {
            return Err(Stop::Fail(format!("node {} does not exist", request.bind_request.node)));
        };
        if let Some(lack) = self.insufficient_resource(request, pod, node, now) {
            let deadline = Timestamp(request.created.0 + FIT_TIMEOUT.0);
            if now < deadline {
                let next = Timestamp(now.0 + FIT_RETRY_PERIOD.0);
                return Err(wait(format!("node to fit: {lack}"), Some(next.min(deadline))));
            }
            return Err(Stop::Fail(lack));
        }
        let mut effects = Vec::new();
        let mut annotations =
            BTreeMap::from([(annotation::RECEIVED_RESOURCE_TYPE.to_owned(), request.received.clone())]);
        if request.is_fraction() {
            if request.bind_request.gpu_groups.is_empty() {
                return Err(Stop::Fail("the request is for a part of a GPU but names no GPU group".to_owned()));
            }
            let share = BoundShare::new(scheduled_share(request, pod, node)?, &request.bind_request.gpu_groups);
            annotations.insert(annotation::BOUND_GPU_SHARE.to_owned(), share.to_text());
            let devices = self.devices(request, pod, bind_inputs, now)?;
            effects.push(BindEffect::LabelPod {
                pod: pod_key.clone(),
                uid: pod.uid.clone(),
                node: request.bind_request.node.clone(),
                labels: {
                    let groups = &request.bind_request.gpu_groups;
                    gpu_group_labels(groups, pod.devices > 1 || groups.len() > 1)
                },
            });
            effects.extend(self.write_maps(request, pod, bind_inputs, &devices)?);
        }
        self.volumes(request, bind_inputs, node, now)?;
        effects.extend(device_claims(request, pod, bind_inputs)?);
        if let Some(zones) = &request.numa_zones {
            annotations.insert(annotation::NUMA_PLACEMENT_PREDICTED.to_owned(), zones.to_string());
        }
        effects.push(BindEffect::Bind {
            pod: pod_key.clone(),
            uid: pod.uid.clone(),
            node: request.bind_request.node.clone(),
            annotations,
        });
        effects.push(succeeded(request));
        effects.push(BindEffect::ReportResult {
            pod: pod_key,
            bound: true,
            message: format!("Pod bound successfully to node {}", request.bind_request.node),
        });
        Ok(effects)
    }

    /// The devices behind the request's GPU groups, in their order.
    fn devices(
        &self,
        request: &RequestRow,
        pod: &PodRow,
        user: &BindInputs,
        now: Timestamp,
    ) -> Result<Vec<String>, Stop> {
        let mut devices = Vec::new();
        let mut create = Vec::new();
        let mut until: Option<Timestamp> = None;
        for group in &request.bind_request.gpu_groups {
            let Some(reservation) = self.reservation(group) else {
                if let Some(other) = self.orphaned_user(group) {
                    return Err(wait(
                        format!("pod {} to release GPU group {group} (its reservation pod is gone)", other.key),
                        None,
                    ));
                }
                if self.autoscaler_pending() {
                    return Err(Stop::Fail(format!(
                        "failed to reserve GPUs for pod <{}> in gpu group <{group}>: cluster is scaling up, could not \
                         create reservation pod",
                        pod.key
                    )));
                }
                create.push(BindEffect::CreatePod(Box::new(self.reservation_pod(request, group, user))));
                continue;
            };
            if let Some(device) = &reservation.device {
                devices.push(device.clone());
                continue;
            }
            let timeout = Timestamp(reservation.created.0 + self.settings.reservation_timeout.0);
            if now >= timeout {
                return Err(Stop::Fail(format!(
                    "failed to reserve GPUs for pod <{}> in gpu group <{group}>: failed waiting for GPU reservation \
                     pod to allocate: {}",
                    pod.key, reservation.key
                )));
            }
            until = Some(until.map_or(timeout, |known| known.min(timeout)));
        }
        if devices.len() == request.bind_request.gpu_groups.len() {
            return Ok(devices);
        }
        let missing = request.bind_request.gpu_groups.len() - devices.len();
        Err(Stop::Wait { why: format!("{missing} GPU reservation(s) to name their device"), until, effects: create })
    }

    fn write_maps(
        &self,
        request: &RequestRow,
        pod: &PodRow,
        user: &BindInputs,
        devices: &[String],
    ) -> Result<Vec<BindEffect>, Stop> {
        let gpu_env = user.gpu_env.as_ref().map_err(|why| Stop::Fail(why.clone()))?;
        // Admission was off when the pod was created: the container runs, but does not get the names of its devices.
        let Some(maps) = &gpu_env.maps else { return Ok(Vec::new()) };
        let named = |device: &String| {
            if self.settings.cdi { format!("k8s.device-plugin.nvidia.com/gpu={device}") } else { device.clone() }
        };
        let devices = devices.iter().map(named).collect::<Vec<_>>().join(",");
        let limit = if self.settings.hami_core { self.memory_limit(request) } else { None };
        let [capabilities, env] = gpu_config_maps::contents(&devices, &request.portion, gpu_env.by_key, limit);
        let map = |name: &str, data: &BTreeMap<String, String>| {
            BindEffect::WriteConfigMap(Box::new(json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": name,
                    "namespace": pod.key.namespace,
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod.key.name, "uid": pod.uid}],
                },
                "data": data,
            })))
        };
        Ok(vec![map(&maps.capabilities, &capabilities), map(&maps.env, &env)])
    }

    /// MiB that HAMi-core lets the container use; none where no label states the memory of the node's GPUs. The label is
    /// not rounded here, as in KAI.
    fn memory_limit(&self, request: &RequestRow) -> Option<String> {
        let memory = gpu_memory_mib(&self.nodes.get(&request.bind_request.node)?.labels)?;
        let portion = Quantity::parse(&request.portion).ok()?.milli();
        (memory > 0 && portion > 0).then(|| format!("{}m", i128::from(memory) * i128::from(portion) / 1000))
    }

    /// Ends an attempt and counts it. `why` is what an effect was answered.
    pub fn failed(&self, key: &Key, why: &str, now: Timestamp) -> Plan {
        let Some(request) = self.requests.get(key).filter(|row| row.is_pending()) else { return Plan::default() };
        let pod_key = request.bind_request.pod.clone();
        let mut effects = Vec::new();
        // A reservation that has not found its GPU would fail the next attempt as well. It is kept if it has found its GPU
        // by now, as another request may use it.
        for group in &request.bind_request.gpu_groups {
            if let Some(reservation) = self.reservation(group).filter(|pod| pod.device.is_none()) {
                let (pod, uid) = (reservation.key.clone(), reservation.uid.clone());
                let version = Some(reservation.version.clone()).filter(|version| !version.is_empty());
                effects.push(BindEffect::DeletePod { pod, uid, version });
            }
        }
        let attempts = request.bind_request.failed_attempts.saturating_add(1);
        let retry = request.bind_request.backoff_limit.is_some_and(|limit| attempts < limit);
        effects.push(BindEffect::SetPhase {
            request: key.clone(),
            version: request.version.clone(),
            phase: phase::FAILED,
            reason: why.to_owned(),
            failed_attempts: attempts,
        });
        effects.push(BindEffect::ReportResult {
            pod: pod_key.clone(),
            bound: false,
            message: format!("Failed to bind pod {pod_key} to node {}: {why}", request.bind_request.node),
        });
        let pause = ATTEMPT_BACKOFF.after(request.bind_request.failed_attempts);
        Plan { effects, requeue_at: retry.then(|| now.plus(pause)), wait_reason: None }
    }
}

/// What the pod asks for of each shared GPU, which must still be what it was scheduled for: annotations can be changed while
/// a bind request is in flight. Requests have two decimals.
fn scheduled_share(request: &RequestRow, pod: &PodRow, node: &Node) -> Result<GpuSharing, Stop> {
    let Some(sharing) = pod.sharing else {
        return Err(Stop::Fail("the pod no longer asks for a part of a GPU".to_owned()));
    };
    let asked = match sharing {
        GpuSharing::Fraction { portion, .. } => Some(portion),
        GpuSharing::Memory { mib, .. } => node.device_memory().map(|memory| compat::memory_to_share(mib, memory)),
    };
    let scheduled = Quantity::parse(&request.portion).ok().map(|portion| portion.milli().saturating_mul(GPU / 1000));
    let differs = asked.zip(scheduled).is_some_and(|(asked, scheduled)| asked.abs_diff(scheduled) > HUNDREDTH);
    if differs || sharing.devices() as usize != request.bind_request.gpu_groups.len() {
        return Err(Stop::Fail("the pod asks for another part of a GPU than it was scheduled for".to_owned()));
    }
    Ok(sharing)
}

/// The pod that the effect binds.
fn bound(effect: &BindEffect) -> Option<&PodKey> {
    match effect {
        BindEffect::Bind { pod, .. } => Some(pod),
        _ => None,
    }
}

fn wait(why: String, until: Option<Timestamp>) -> Stop {
    Stop::Wait { why, until, effects: Vec::new() }
}

fn succeeded(request: &RequestRow) -> BindEffect {
    BindEffect::SetPhase {
        request: request.bind_request.key.clone(),
        version: request.version.clone(),
        phase: phase::SUCCEEDED,
        reason: String::new(),
        failed_attempts: request.bind_request.failed_attempts,
    }
}

/// What to change about a pod's labels so that it shares the GPUs named by these and no others; `None` removes one.
pub fn gpu_group_label_changes<'a>(
    stored: impl IntoIterator<Item = (&'a String, &'a String)>,
    wanted: &BTreeMap<String, String>,
) -> BTreeMap<String, Option<String>> {
    let stored: BTreeMap<&String, &String> = stored.into_iter().collect();
    let gone = stored.keys().filter(|key| is_gpu_group_label(key) && !wanted.contains_key(**key));
    let new = wanted.iter().filter(|(key, group)| stored.get(key) != Some(group));
    gone.map(|key| ((*key).clone(), None)).chain(new.map(|(key, group)| (key.clone(), Some(group.clone())))).collect()
}

fn device_claims(request: &RequestRow, pod: &PodRow, user: &BindInputs) -> Result<Vec<BindEffect>, String> {
    let mut effects = Vec::new();
    for (own, object) in &user.claims {
        let chosen = request.allocations.iter().find(|(name, _)| name == own);
        let Some((_, allocation)) = chosen else { continue };
        if allocation.is_null() {
            return Err(format!("plugin dynamicresources failed in PreBind: empty status for claim {own}"));
        }
        let object = object.as_ref().ok_or_else(|| {
            format!("plugin dynamicresources failed in PreBind: the claim {own} of pod {} is not made yet", pod.key)
        })?;
        effects.push(BindEffect::AllocateClaim {
            claim: Key::new(&pod.key.namespace, object),
            pod: pod.key.clone(),
            uid: pod.uid.clone(),
            allocation: Box::new(Value::clone(allocation)),
        });
    }
    Ok(effects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_limit_is_in_mib_whatever_the_label_is_in() {
        let spec = json!({"podName": "p", "selectedNode": "n", "receivedGPU": {"count": 1, "portion": "0.50"}});
        let request = RequestRow::read(&json!({"metadata": {"name": "p", "namespace": "lab"}, "spec": spec})).unwrap();
        let limit = |memory: &str| {
            let mut binder = Binder::default();
            let labels = json!({"nvidia.com/gpu.memory": memory});
            binder.apply_node(&json!({"metadata": {"name": "n", "labels": labels}})).unwrap();
            binder.memory_limit(&request)
        };
        assert_eq!(limit("16125").as_deref(), Some("8062m"), "not rounded to a hundred");
        assert_eq!(limit("16777216000").as_deref(), Some("8000m"), "a label in bytes");
        assert_eq!(limit("much"), None);
    }
}
