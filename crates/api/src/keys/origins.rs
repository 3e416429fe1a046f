//! Who writes a label or annotation. What components note for themselves is believed only if they wrote it: users could
//! otherwise make a running workload look as if it had just started, or a pod as if it held a GPU.

use super::{annotation, label};

/// Who writes a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Users and their tools.
    Users,
    /// Components only: state that they read again.
    State,
    /// Users and components; why that is safe.
    Both(&'static str),
}

/// Objects that carry a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Pods.
    Pods,
    /// Pod groups.
    PodGroups,
    /// Bind requests.
    BindRequests,
    /// Workloads, queues, or several kinds.
    Others,
}

/// A row of the tables.
#[derive(Clone, Copy, Debug)]
pub struct KeyOrigin {
    /// The key; one that ends with `/` stands for all keys that begin with it.
    pub key: &'static str,
    /// Who writes it.
    pub origin: Origin,
    /// What carries it.
    pub carrier: Carrier,
}

const fn users(key: &'static str) -> KeyOrigin {
    KeyOrigin { key, origin: Origin::Users, carrier: Carrier::Others }
}

const fn both(key: &'static str, why: &'static str) -> KeyOrigin {
    KeyOrigin { key, origin: Origin::Both(why), carrier: Carrier::Others }
}

const fn state(key: &'static str, carrier: Carrier) -> KeyOrigin {
    KeyOrigin { key, origin: Origin::State, carrier }
}

/// All of [`label`].
pub static LABELS: &[KeyOrigin] = &[
    users(label::QUEUE),
    both(label::NODE_POOL, "the scheduler of a shard labels pods that it binds; it only chooses among shards"),
    users(label::PROJECT),
    users(label::PRIORITY_CLASS_NAME),
    users(label::RAY_PRIORITY_CLASS_NAME),
    users(label::PREEMPTIBILITY),
    users(label::USER),
    users(label::TASK_PRIORITY),
    both(label::SUB_GROUP_NAME, "the podgrouper sets it; pods of a pod group that users made name their leaf"),
    state(label::GPU_GROUP, Carrier::Pods),
    state(label::GPU_GROUP_PREFIX, Carrier::Pods),
    state(label::SELECTED_NODE, Carrier::BindRequests),
    state(label::BIND_BATCH, Carrier::BindRequests),
    both(label::APP, "other programs use it as well; reservation and scaling pods need more than this label"),
    state(label::SHARED_GPU_POD_NAME, Carrier::Pods),
    state(label::SHARED_GPU_POD_NAMESPACE, Carrier::Pods),
    users(label::KARTA_GROUP),
    users(label::KARTA_VERSION),
    users(label::KARTA_KIND),
    both(label::MANAGED_BY, "other programs use it as well; only objects in the namespace of the components matter"),
    both(label::ACCOUNTING, "only Prometheus reads it"),
];

/// All of [`annotation`].
pub static ANNOTATIONS: &[KeyOrigin] = &[
    both(
        annotation::POD_GROUP_NAME,
        "the podgrouper links pods; one that it does not group names a pod group of its own",
    ),
    users(annotation::GPU_FRACTION),
    users(annotation::GPU_MEMORY),
    users(annotation::GPU_FRACTION_NUM_DEVICES),
    users(annotation::GPU_FRACTION_CONTAINER_NAME),
    users(annotation::MPS),
    both(
        annotation::SHARED_GPU_CONFIG_MAP,
        "admission keeps what is there; the binder writes only maps that belong to the pod",
    ),
    state(annotation::BIND_BATCH_PREFIX, Carrier::BindRequests),
    state(annotation::RECEIVED_RESOURCE_TYPE, Carrier::Pods),
    state(annotation::BOUND_GPU_SHARE, Carrier::Pods),
    state(annotation::RESERVED_GPU, Carrier::Pods),
    state(annotation::TOP_OWNER_METADATA, Carrier::PodGroups),
    state(annotation::STALE_POD_GROUP_TIMESTAMP, Carrier::PodGroups),
    state(annotation::LAST_START_TIMESTAMP, Carrier::PodGroups),
    state(annotation::LAST_EVICTION_TIMESTAMP, Carrier::PodGroups),
    state(annotation::NUMA_PLACEMENT_PREDICTED, Carrier::Pods),
    state(annotation::NUMA_PLACEMENT_OBSERVED, Carrier::Pods),
    users(annotation::TOPOLOGY),
    users(annotation::TOPOLOGY_REQUIRED),
    users(annotation::TOPOLOGY_PREFERRED),
    users(annotation::SEGMENT_SIZE),
    users(annotation::SEGMENT_TOPOLOGY_REQUIRED),
    users(annotation::SEGMENT_TOPOLOGY_PREFERRED),
    users(annotation::SKIP_POD_GROUPER),
    users(annotation::BATCH_MIN_MEMBER),
    users(annotation::PREEMPTION_DELAY),
    users(annotation::STALENESS_GRACE_PERIOD),
    users(annotation::QUEUE_NAMESPACES),
    users(annotation::QUEUE_NAMESPACE_SELECTOR),
    both(annotation::DO_NOT_DISRUPT, "only Karpenter reads it"),
    both(annotation::CONFIG_MAP_VERSION, "no component reads it"),
    both(annotation::PROMETHEUS_SCRAPE, "only Prometheus reads it"),
    both(annotation::DEPRECATION_TIMESTAMP, "only the operator of NVIDIA KAI reads it"),
    both(annotation::MIGRATED_FROM, "no component reads it"),
];

impl KeyOrigin {
    /// Whether the row is about this key.
    pub fn covers(&self, key: &str) -> bool {
        if self.key.ends_with('/') { key.starts_with(self.key) } else { key == self.key }
    }
}

/// Whether only components write the label.
pub fn is_state_label(key: &str) -> bool {
    is_state(LABELS, key)
}

/// Whether only components write the annotation.
pub fn is_state_annotation(key: &str) -> bool {
    is_state(ANNOTATIONS, key)
}

fn is_state(rows: &[KeyOrigin], key: &str) -> bool {
    rows.iter().any(|row| row.origin == Origin::State && row.covers(key))
}

/// Keys that only components write, on objects of this kind.
pub fn state_of(rows: &'static [KeyOrigin], carrier: Carrier) -> impl Iterator<Item = &'static str> {
    rows.iter().filter(move |row| row.origin == Origin::State && row.carrier == carrier).map(|row| row.key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_begin_alike_are_state_together() {
        assert!(is_state_label("runai-gpu-group") && is_state_label("runai-gpu-group/7f"));
        assert!(!is_state_label("runai-gpu-groups") && !is_state_label("kai.scheduler/queue"));
        assert!(is_state_annotation("kai.scheduler/last-start-timestamp"));
        assert!(!is_state_annotation("pod-group-name"));
    }
}
