//! Label and annotation keys of the scheduler itself, spelled as users already write them.
//!
//! Keys that belong to one workload kind stand in that kind's file.

pub const POD_GROUP: &str = "pod-group-name";
pub const SKIP: &str = "kai.scheduler/skip-podgrouper";
pub const TOP_OWNER: &str = "kai.scheduler/top-owner-metadata";

pub const QUEUE: &str = "kai.scheduler/queue";
pub const NODE_POOL: &str = "kai.scheduler/node-pool";
pub const PROJECT: &str = "project";
pub const USER: &str = "user";

pub const PRIORITY_CLASS: &str = "priorityClassName";
pub const PREEMPTIBILITY: &str = "kai.scheduler/preemptibility";
pub const PREEMPTION_DELAY: &str = "kai.scheduler/preemption-delay";
pub const STALENESS_GRACE_PERIOD: &str = "kai.scheduler/staleness-grace-period";

pub const TOPOLOGY: &str = "kai.scheduler/topology";
pub const TOPOLOGY_REQUIRED: &str = "kai.scheduler/topology-required-placement";
pub const TOPOLOGY_PREFERRED: &str = "kai.scheduler/topology-preferred-placement";

pub const SEGMENT_SIZE: &str = "kai.scheduler/segment-size";
pub const SEGMENT_REQUIRED: &str = "kai.scheduler/segment-topology-required-placement";
pub const SEGMENT_PREFERRED: &str = "kai.scheduler/segment-topology-preferred-placement";

pub const BATCH_MIN_MEMBER: &str = "kai.scheduler/batch-min-member";
