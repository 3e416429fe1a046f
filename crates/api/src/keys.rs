//! Keys and fixed values, spelled as KAI does. All crates take them from here. Which labels and annotations users write,
//! and which are state of components, is in [`origins`].

pub mod origins;

/// Labels on workloads, pods and custom resources.
pub mod label {
    /// Queue of a workload, on its owner or pods. The key can be configured.
    pub const QUEUE: &str = "kai.scheduler/queue";
    /// Shard of a node, queue, group or pod. The key can be configured.
    pub const NODE_POOL: &str = "kai.scheduler/node-pool";
    /// Project of a workload; names its queue when nothing else does.
    pub const PROJECT: &str = "project";
    /// PriorityClass of a workload.
    pub const PRIORITY_CLASS_NAME: &str = "priorityClassName";
    /// PriorityClass of a Ray workload.
    pub const RAY_PRIORITY_CLASS_NAME: &str = "ray.io/priority-class-name";
    /// Whether others may evict a workload.
    pub const PREEMPTIBILITY: &str = "kai.scheduler/preemptibility";
    /// User of a workload. Read as annotation too.
    pub const USER: &str = "user";
    /// Order of a pod within its group, as an integer; higher first.
    pub const TASK_PRIORITY: &str = "kai.scheduler/task-priority";
    /// Leaf of the sub-group tree a pod belongs to.
    pub const SUB_GROUP_NAME: &str = "kai.scheduler/subgroup-name";
    /// Shared-GPU group of a pod on one device, and of the pod reserving that device.
    pub const GPU_GROUP: &str = "runai-gpu-group";
    /// Start of one label per device for pods on several; the group follows, and is the value.
    pub const GPU_GROUP_PREFIX: &str = "runai-gpu-group/";
    /// Node of a BindRequest.
    pub const SELECTED_NODE: &str = "selected-node";
    /// Number of requests in a BindRequest that holds several. Not in NVIDIA KAI.
    pub const BIND_BATCH: &str = "kai.scheduler/bind-batch";
    /// Component a pod belongs to; reservation and scaling pods are recognised by it.
    pub const APP: &str = "app";
    /// Pod a scaling pod stands for.
    pub const SHARED_GPU_POD_NAME: &str = "shared-gpu-pod-name";
    /// Namespace of the pod a scaling pod stands for.
    pub const SHARED_GPU_POD_NAMESPACE: &str = "shared-gpu-pod-namespace";
    /// Group of the workloads a Karta object describes.
    pub const KARTA_GROUP: &str = "run.ai/karta-group";
    /// Version of the workloads a Karta object describes.
    pub const KARTA_VERSION: &str = "run.ai/karta-version";
    /// Kind of the workloads a Karta object describes.
    pub const KARTA_KIND: &str = "run.ai/karta-kind";
    /// What manages an installed object.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// What Prometheus scrapes. The key can be configured.
    pub const ACCOUNTING: &str = "kai.scheduler/accounting";
}

/// Labels read from nodes.
pub mod node_label {
    /// Name of the node.
    pub const HOSTNAME: &str = "kubernetes.io/hostname";
    /// Memory of each GPU, in mebibytes.
    pub const GPU_MEMORY: &str = "nvidia.com/gpu.memory";
    /// Number of GPUs.
    pub const GPU_COUNT: &str = "nvidia.com/gpu.count";
    /// How GPUs are split into MIG instances.
    pub const MIG_STRATEGY: &str = "nvidia.com/mig.strategy";
    /// Start of the label that carries the memory of AMD GPUs in its own name.
    pub const AMD_GPU_MEMORY_PREFIX: &str = "beta.amd.com/gpu.vram";
    /// Marks nodes for GPU pods. The key can be configured.
    pub const GPU_WORKER: &str = "node-role.kubernetes.io/gpu-worker";
    /// Marks nodes for pods without GPUs. The key can be configured.
    pub const CPU_WORKER: &str = "node-role.kubernetes.io/cpu-worker";
    /// Marks nodes whose GPUs are split. The key can be configured.
    pub const MIG_ENABLED: &str = "node-role.kubernetes.io/mig-enabled";
    /// Marks nodes whose GPUs are simulated.
    pub const FAKE_GPU: &str = "run.ai/fake.gpu";
}

/// Annotations on workloads, pods and custom resources.
pub mod annotation {
    /// Group a pod belongs to.
    pub const POD_GROUP_NAME: &str = "pod-group-name";
    /// Part of a GPU's memory a pod asks for, between 0 and 1.
    pub const GPU_FRACTION: &str = "gpu-fraction";
    /// Mebibytes of a GPU's memory a pod asks for.
    pub const GPU_MEMORY: &str = "gpu-memory";
    /// Devices on which a pod asks for such a part, 1 when unset.
    pub const GPU_FRACTION_NUM_DEVICES: &str = "gpu-fraction-num-devices";
    /// Container that receives the GPU; the first one when unset.
    pub const GPU_FRACTION_CONTAINER_NAME: &str = "gpu-fraction-container-name";
    /// Whether a pod shares its GPU through MPS.
    pub const MPS: &str = "mps";
    /// Start of the names of the config maps that tell a pod its GPU.
    pub const SHARED_GPU_CONFIG_MAP: &str = "runai/shared-gpu-configmap";
    /// Start of the annotations that hold one request each in a BindRequest with several; a number follows. Not in NVIDIA KAI.
    pub const BIND_BATCH_PREFIX: &str = "bind-batch.kai.scheduler/";
    /// Kind of resources that a bound pod was allocated; see [`received`](super::received).
    pub const RECEIVED_RESOURCE_TYPE: &str = "received-resource-type";
    /// Part of shared GPUs that a pod was bound with, as JSON: it counts until the pod ends. Not in NVIDIA KAI.
    pub const BOUND_GPU_SHARE: &str = "kai.scheduler/bound-gpu-share";
    /// GPU a reservation pod found itself on.
    pub const RESERVED_GPU: &str = "run.ai/reserve_for_gpu_index";
    /// Owner of a group, as YAML.
    pub const TOP_OWNER_METADATA: &str = "kai.scheduler/top-owner-metadata";
    /// Since when a group runs below its minimum.
    pub const STALE_POD_GROUP_TIMESTAMP: &str = "kai.scheduler/stale-podgroup-timestamp";
    /// When a group last started.
    pub const LAST_START_TIMESTAMP: &str = "kai.scheduler/last-start-timestamp";
    /// When a pod of a group was last evicted.
    pub const LAST_EVICTION_TIMESTAMP: &str = "kai.scheduler/last-eviction-timestamp";
    /// Where the scheduler expects a pod's NUMA resources to come from.
    pub const NUMA_PLACEMENT_PREDICTED: &str = "kai.scheduler/numa-placement-predicted";
    /// Where a pod's NUMA resources did come from.
    pub const NUMA_PLACEMENT_OBSERVED: &str = "kai.scheduler/numa-placement-observed";
    /// Topology of a workload.
    pub const TOPOLOGY: &str = "kai.scheduler/topology";
    /// Level all its pods must share.
    pub const TOPOLOGY_REQUIRED: &str = "kai.scheduler/topology-required-placement";
    /// Level its pods share if possible.
    pub const TOPOLOGY_PREFERRED: &str = "kai.scheduler/topology-preferred-placement";
    /// Pods per segment of a workload.
    pub const SEGMENT_SIZE: &str = "kai.scheduler/segment-size";
    /// Level all pods of a segment must share.
    pub const SEGMENT_TOPOLOGY_REQUIRED: &str = "kai.scheduler/segment-topology-required-placement";
    /// Level the pods of a segment share if possible.
    pub const SEGMENT_TOPOLOGY_PREFERRED: &str = "kai.scheduler/segment-topology-preferred-placement";
    /// Keeps a pod, or all pods of an owner, from being grouped.
    pub const SKIP_POD_GROUPER: &str = "kai.scheduler/skip-podgrouper";
    /// Pods of a Job or JobSet that must start together.
    pub const BATCH_MIN_MEMBER: &str = "kai.scheduler/batch-min-member";
    /// How long a workload waits before others are evicted for it.
    pub const PREEMPTION_DELAY: &str = "kai.scheduler/preemption-delay";
    /// How long a workload may run below its minimum.
    pub const STALENESS_GRACE_PERIOD: &str = "kai.scheduler/staleness-grace-period";
    /// Namespaces that may use a queue and those below it, separated by commas. Not in NVIDIA KAI.
    pub const QUEUE_NAMESPACES: &str = "kai.scheduler/namespaces";
    /// Labels of namespaces that may use a queue and those below it, as a label selector. Not in NVIDIA KAI.
    pub const QUEUE_NAMESPACE_SELECTOR: &str = "kai.scheduler/namespace-selector";
    /// Keeps Karpenter from removing the node of a reservation pod.
    pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
    /// Version of the config map a scheduler was started with.
    pub const CONFIG_MAP_VERSION: &str = "configMapVersion";
    /// Whether Prometheus scrapes a Service.
    pub const PROMETHEUS_SCRAPE: &str = "prometheus.io/scrape";
    /// When the operator's Prometheus was disabled.
    pub const DEPRECATION_TIMESTAMP: &str = "kai/deprecation-timestamp";
    /// Where a Topology was copied from.
    pub const MIGRATED_FROM: &str = "kai.scheduler/migrated-from";
}

/// Annotations on the events that report evictions.
pub mod eviction_event {
    /// Pods evicted.
    pub const NUM_EVICTED_PODS: &str = "num-evicted-pods";
    /// Action that evicted them.
    pub const EVICTOR_ACTION_TYPE: &str = "evictor-action-type";
    /// Group they made room for.
    pub const EVICTOR_POD_GROUP_NAME: &str = "evictor-pod-group-name";
    /// Its namespace.
    pub const EVICTOR_POD_GROUP_NAMESPACE: &str = "evictor-pod-group-namespace";
}

/// Names of resources.
pub mod resource {
    /// Cores.
    pub const CPU: &str = "cpu";
    /// Bytes.
    pub const MEMORY: &str = "memory";
    /// Pods on a node.
    pub const PODS: &str = "pods";
    /// Whole GPUs by NVIDIA.
    pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
    /// Whole GPUs by AMD.
    pub const AMD_GPU: &str = "amd.com/gpu";
    /// Start of the names of MIG profiles.
    pub const MIG_PREFIX: &str = "nvidia.com/mig-";
    /// Mebibytes of GPU memory, in the status of groups and queues.
    pub const GPU_MEMORY: &str = "run.ai/gpu.memory";
}

/// Kinds of resources that a bound pod was allocated.
pub mod received {
    /// Whole GPUs, or none.
    pub const REGULAR: &str = "Regular";
    /// Parts of GPUs.
    pub const FRACTION: &str = "Fraction";
    /// MIG instances.
    pub const MIG_INSTANCE: &str = "MigInstance";
}

/// Phases of a BindRequest.
pub mod phase {
    /// Not yet tried; usually written as nothing at all.
    pub const PENDING: &str = "Pending";
    /// The pod is bound.
    pub const SUCCEEDED: &str = "Succeeded";
    /// The last attempt failed.
    pub const FAILED: &str = "Failed";
}

/// Types and reasons of conditions and events on groups and pods.
pub mod reason {
    /// Type of a group's scheduling condition.
    pub const UNSCHEDULABLE_ON_NODE_POOL: &str = "UnschedulableOnNodePool";
    /// No node was found.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// A non-preemptible group does not fit into its queue's quota.
    pub const NON_PREEMPTIBLE_OVER_QUOTA: &str = "NonPreemptibleOverQuota";
    /// A group does not fit into its queue's limit.
    pub const OVER_LIMIT: &str = "OverLimit";
    /// Reasons of a pod that its queue blocks, not a lack of nodes.
    pub const QUOTA: [&str; 2] = [NON_PREEMPTIBLE_OVER_QUOTA, OVER_LIMIT];
    /// A group names a queue that is not there.
    pub const QUEUE_DOES_NOT_EXIST: &str = "QueueDoesNotExist";
    /// A group's queue, or one above it, is not for its namespace. Not in NVIDIA KAI.
    pub const NAMESPACE_NOT_ALLOWED: &str = "NamespaceNotAllowed";
    /// A group must wait before others are evicted for it.
    pub const PREEMPTION_DELAY_NOT_ELAPSED: &str = "PreemptionDelayNotElapsed";
    /// No node fits.
    pub const POD_SCHEDULING_ERRORS: &str = "PodSchedulingErrors";
    /// A group lacks pods.
    pub const NOT_READY: &str = "NotReady";
    /// A group fell below its minimum.
    pub const STALE_JOB: &str = "StaleJob";
    /// A pod was evicted.
    pub const EVICT: &str = "Evict";
    /// A pod waits on its node for resources that others are releasing.
    pub const PIPELINED: &str = "Pipelined";
    /// A node was chosen for a pod.
    pub const SCHEDULED: &str = "Scheduled";
    /// A field of a pod or pod group cannot be used. Not in NVIDIA KAI.
    pub const MALFORMED: &str = "Malformed";
    /// The bind request of a pod could not be written.
    pub const FAILED_BINDING: &str = "FailedBinding";
    /// Type of the condition that tells whether a pod was bound.
    pub const POD_BOUND: &str = "PodBound";
    /// A pod was bound.
    pub const BOUND: &str = "Bound";
    /// A pod could not be bound.
    pub const BINDING_ERROR: &str = "BindingError";
    /// Kubernetes' reason for a pod that is about to be evicted.
    pub const PREEMPTION_BY_SCHEDULER: &str = "PreemptionByScheduler";
}

/// Priorities of workloads.
pub mod priority {
    /// PriorityClasses the chart installs, with their values.
    pub const SHIPPED_CLASSES: [(&str, i32); 4] = [TRAIN, BUILD_PREEMPTIBLE, BUILD, INFERENCE];
    /// Training.
    pub const TRAIN: (&str, i32) = ("train", 50);
    /// Interactive work that may be evicted.
    pub const BUILD_PREEMPTIBLE: (&str, i32) = ("build-preemptible", 75);
    /// Interactive work.
    pub const BUILD: (&str, i32) = ("build", 100);
    /// Serving.
    pub const INFERENCE: (&str, i32) = ("inference", 125);
    /// Priority of a group whose class is unknown, in a cluster without a default class.
    pub const DEFAULT: i32 = 50;
    /// From here on up groups are not preemptible, unless they say so.
    pub const NON_PREEMPTIBLE_MIN: i32 = 100;
    /// Priority of a queue that sets none.
    pub const QUEUE_DEFAULT: i32 = 100;
}

/// Names of Leases: those of NVIDIA's KAI, so that its components and these are never leaders at the same time. The
/// scheduler's is its own name, with the shard.
pub mod lease {
    /// Of the pod grouper.
    pub const POD_GROUPER: &str = "54dff599.kai.scheduler";
    /// Of the binder.
    pub const BINDER: &str = "2ad35f9c.kai.scheduler";
    /// Of the pod group controller.
    pub const POD_GROUP_CONTROLLER: &str = "o1x22tjj.kai.scheduler";
    /// Of the queue controller.
    pub const QUEUE_CONTROLLER: &str = "ov3xj497.kai.scheduler";
    /// Of the node-scale adjuster.
    pub const NODE_SCALE_ADJUSTER: &str = "7n7h49uc.kai.scheduler";
}

/// Fixed names of objects.
pub mod name {
    /// The only Config that counts.
    pub const CONFIG: &str = "kai-config";
    /// The `schedulerName` that pods ask for, unless configured.
    pub const SCHEDULER: &str = "kai-scheduler";
    /// Namespace of the components, unless configured.
    pub const NAMESPACE: &str = "kai-scheduler";
    /// Namespace, service account and `app` label of reservation pods, unless configured.
    pub const RESOURCE_RESERVATION: &str = "kai-resource-reservation";
    /// Namespace and service account of scaling pods, unless configured.
    pub const SCALE_ADJUST: &str = "kai-scale-adjust";
    /// Service account, in the namespace of the components, of all of them in one process. Not in NVIDIA KAI.
    pub const ALL_IN_ONE: &str = "kai-all-in-one";
    /// Name and `app` label of scaling pods, unless configured.
    pub const SCALING_POD: &str = "scaling-pod";
    /// Top queue the chart installs.
    pub const DEFAULT_PARENT_QUEUE: &str = "default-parent-queue";
    /// Leaf queue the chart installs.
    pub const DEFAULT_QUEUE: &str = "default-queue";
    /// Shard the chart installs, and node pool of objects without the label.
    pub const DEFAULT_SHARD: &str = "default";
    /// Sub-group of pods in a group that has none.
    pub const DEFAULT_SUB_GROUP: &str = "default";
    /// Config map in which users declare workload kinds, in the namespace of the components.
    pub const WORKLOAD_KINDS: &str = "kai-workload-kinds";
    /// Value of [`label::MANAGED_BY`](super::label::MANAGED_BY) on what the operator installs.
    pub const OPERATOR: &str = "kai-operator";
}

/// Names of what admission registers, stores and serves.
pub mod webhook {
    /// Service through which the API server calls the webhooks.
    pub const SERVICE: &str = "admission";
    /// Secret with the certificate.
    pub const SECRET: &str = "kai-admission-webhook-tls-secret";
    /// Configuration of the mutating webhook for pods.
    pub const MUTATING: &str = "mutating-kai-admission";
    /// Configuration of the validating webhooks for pods and topologies.
    pub const VALIDATING: &str = "validating-kai-admission";
    /// Configuration of the validating webhook for queues.
    pub const QUEUES: &str = "kai-queue-validation-v2";
    /// Configuration of the validating webhook for pod groups.
    pub const POD_GROUPS: &str = "kai-podgroup-validation-v2alpha2";
    /// Path of the mutating webhook for pods.
    pub const MUTATE_POD_PATH: &str = "/mutate--v1-pod";
    /// Path of the validating webhook for pods.
    pub const POD_PATH: &str = "/validate--v1-pod";
    /// Path of the validating webhook for topologies.
    pub const TOPOLOGY_PATH: &str = "/validate-kai-scheduler-v1alpha1-topology";
    /// Path of the validating webhook for queues.
    pub const QUEUE_PATH: &str = "/validate-scheduling-run-ai-v2-queue";
    /// Path of the validating webhook for pod groups.
    pub const POD_GROUP_PATH: &str = "/validate-scheduling-run-ai-v2alpha2-podgroup";
}
