//! Labels, annotations and values that users and tools already write.

pub(crate) const POD_GROUP: &str = "pod-group-name";
pub(crate) const SUB_GROUP: &str = "kai.scheduler/subgroup-name";
pub(crate) const TASK_PRIORITY: &str = "kai.scheduler/task-priority";

pub(crate) const GPU_FRACTION: &str = "gpu-fraction";
pub(crate) const GPU_MEMORY: &str = "gpu-memory";
pub(crate) const GPU_FRACTION_DEVICES: &str = "gpu-fraction-num-devices";
pub(crate) const MPS: &str = "mps";
pub(crate) const GPU_GROUP: &str = "runai-gpu-group";
pub(crate) const GPU_GROUP_PREFIX: &str = "runai-gpu-group/";

pub(crate) const LAST_START: &str = "kai.scheduler/last-start-timestamp";
pub(crate) const STALE_SINCE: &str = "kai.scheduler/stale-podgroup-timestamp";
pub(crate) const LAST_EVICTION: &str = "kai.scheduler/last-eviction-timestamp";

pub(crate) const NVIDIA_GPU: &str = "nvidia.com/gpu";
pub(crate) const AMD_GPU: &str = "amd.com/gpu";
pub(crate) const MIG_PREFIX: &str = "nvidia.com/mig-";
pub(crate) const NODE_GPU_MEMORY: &str = "nvidia.com/gpu.memory";
pub(crate) const NODE_MIG_STRATEGY: &str = "nvidia.com/mig.strategy";

pub(crate) const KUBEFLOW_ROLE: &str = "training.kubeflow.org/job-role";
pub(crate) const RAY_NODE_TYPE: &str = "ray.io/node-type";

/// Label that pods holding a GPU for others, and pods that only wake the autoscaler, are known by.
pub(crate) const APP: &str = "app";
pub(crate) const SCALING_APP: &str = "scaling-pod";
