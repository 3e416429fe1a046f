//! The shipped admission rules, asked about what is on its way into the store, as an API server asks webhooks. While
//! they are unavailable, the same holds as on a cluster: pods that share a GPU and deletions of queues are rejected,
//! all else is stored without being checked.

use kai_control::admission::{
    AdmissionResult, PodRules, delete_queue, mutate_pod, shares_gpu, validate_pod, validate_pod_group,
};
use serde_json::Value;

use super::Cluster;
use crate::manifest::{Id, Kind};

#[derive(Debug)]
pub(crate) struct Webhooks {
    rules: PodRules,
    /// Whether they answer.
    pub(crate) available: bool,
}

const UNAVAILABLE: &str = "the admission webhook is unavailable; try again later";

impl Webhooks {
    pub(super) fn new(scheduler: &str) -> Self {
        let rules = PodRules { scheduler: scheduler.to_owned(), gpu_sharing: true, ..PodRules::default() };
        Self { rules, available: true }
    }
}

impl Cluster {
    /// A new object as it is to be stored, or why it must not be.
    pub(super) fn admit(&self, id: &Id, value: Value) -> Result<Value, String> {
        // One that was copied from a cluster has come in there.
        if value.pointer("/metadata/uid").is_some() {
            return Ok(value);
        }
        let Webhooks { rules, available } = &self.webhooks;
        match id.kind {
            Kind::Pod if !available && shares_gpu(&value) => Err(UNAVAILABLE.to_owned()),
            Kind::Pod if *available => {
                let suffix = format!("{:07}", self.store.version());
                let pod = mutate_pod(&value, &id.namespace, &suffix, rules).map_err(|answer| answer.message())?;
                allowed(&validate_pod(&pod, &id.namespace, rules)).map(|()| pod)
            }
            Kind::PodGroup if *available => allowed(&validate_pod_group(&value, false)).map(|()| value),
            _ => Ok(value),
        }
    }

    /// Whether a pod group may be changed so.
    pub(super) fn admit_change(&self, old: &Value, new: &Value) -> Result<(), String> {
        if !self.webhooks.available {
            return Ok(());
        }
        allowed(&validate_pod_group(new, true).tolerating_existing(&validate_pod_group(old, true)))
    }

    /// Whether a user may change an object so.
    pub(super) fn admit_user_change(&self, id: &Id, old: &Value, new: &Value) -> Result<(), String> {
        match id.kind {
            Kind::Pod if self.webhooks.available => allowed(&validate_pod(new, &id.namespace, &self.webhooks.rules)),
            Kind::PodGroup => self.admit_change(old, new),
            _ => Ok(()),
        }
    }

    /// Whether a queue may go.
    pub(super) fn admit_deletion(&self, queue: &str) -> Result<(), String> {
        if !self.webhooks.available {
            return Err(UNAVAILABLE.to_owned());
        }
        allowed(&delete_queue(queue, self.world()))
    }

    /// Whether a controller cannot make its pods for now, and has to try again.
    pub(super) fn blocked_by_webhook(&self, controller: &Id) -> bool {
        let template = || self.store.get(controller).and_then(|value| value.pointer("/spec/template"));
        !self.webhooks.available && template().is_some_and(shares_gpu)
    }
}

fn allowed(answer: &AdmissionResult) -> Result<(), String> {
    if answer.allowed() { Ok(()) } else { Err(answer.message()) }
}
