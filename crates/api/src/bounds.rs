//! How much users may write: the bounds that CRDs, admission, the scheduler and the simulator share.
//!
//! Each is far above what any workload needs, and keeps one object from stopping the scheduler of all. NVIDIA KAI has none of
//! them, apart from the levels of a Topology; `docs/compat/bounds.md` lists them.

/// Sub-groups of a pod group. A workload may be cut into 10,000 segments, each of them a sub-group.
pub const SUB_GROUPS_MAX: usize = 16_384;

/// Levels of sub-groups below the pod group. Code that walks the tree recurses this deep and no deeper.
pub const SUB_GROUP_LEVELS_MAX: usize = 32;

/// Levels of queues. Each pod is charged to its queue and to all above it.
pub const QUEUE_LEVELS_MAX: usize = 64;

/// Levels of a Topology, as NVIDIA KAI has it.
pub const TOPOLOGY_LEVELS_MAX: usize = 16;

/// Characters of a name. Kubernetes gives objects at most 253, and values of labels, which name sub-groups, 63.
pub const NAME_LENGTH_MAX: usize = 253;

/// Characters of a label key: a domain of 253, a slash, and a name of 63, as in a Topology.
pub const LABEL_KEY_LENGTH_MAX: usize = 317;
