//! The filters of nodes, once: which nodes a pod may use, and what keeps it from each of the others.
//!
//! [`FILTERS`] is the one list. The finder asks whether a node passes, explanations ask for the first filter that it does
//! not pass; so a node that is not feasible always has an obstacle.

use super::inter_pod::InterPodFilter;
use super::resources::{self, device_is_large_enough};
use super::{claims, numa, volumes};
use crate::ids::{NodeId, NodeSet, TaskId};
use crate::ledger::{Ledger, When};
use crate::outcome::NodeObstacle;
use crate::policy::Policy;
use crate::queues::capacity;
use crate::snapshot::{GPUS, GpuAsk, PODS, Shape, Task};
use crate::units::GPU;

/// A pod, and the state against which its nodes are filtered.
pub struct PodFilters<'l, 's> {
    pub(super) ledger: &'l Ledger<'s>,
    pub(super) policy: &'l Policy,
    task: TaskId,
    pub(super) row: &'s Task,
    pub(super) shape: &'s Shape,
    pub(super) inter_pod: Option<InterPodFilter<'l, 's>>,
}

/// What a filter looks at, and by that when it is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Rules about nodes: the cheapest, and what rules out most. The answer is the same for all pods with equal rules.
    Rules,
    /// The request: the answer is the same for all pods with an equal one.
    Request,
    /// This pod alone, its queue included.
    Pod,
    /// This pod's resource claims: a search for devices, too expensive for every node.
    Claims,
}

/// One reason for which a node may not do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filter {
    Resources,
    NodeRules,
    Queue,
    SharedGpus,
    Claims,
    Numa,
    Ports,
    InterPod,
    Volumes,
}

/// All filters, in the order in which obstacles are named: amounts first, since users look at them first.
const FILTERS: [Filter; 9] = [
    Filter::Resources,
    Filter::NodeRules,
    Filter::Queue,
    Filter::SharedGpus,
    Filter::Claims,
    Filter::Numa,
    Filter::Ports,
    Filter::InterPod,
    Filter::Volumes,
];

impl Filter {
    #[inline]
    fn stage(self) -> Stage {
        match self {
            Self::NodeRules => Stage::Rules,
            Self::Resources | Self::SharedGpus | Self::Numa => Stage::Request,
            Self::Queue | Self::Ports | Self::InterPod | Self::Volumes => Stage::Pod,
            Self::Claims => Stage::Claims,
        }
    }

    /// When the node passes; `None` if it does not.
    #[inline]
    fn check(self, pod: &PodFilters<'_, '_>, node: NodeId) -> Option<When> {
        match self {
            Self::Resources => pod.resources(node),
            Self::NodeRules => pod.node_rules(node),
            Self::Queue => pod.queue(node),
            Self::SharedGpus => pod.shared_gpus(node),
            Self::Claims => pod.claims(node),
            Self::Numa => pod.numa(node),
            Self::Ports => pod.ports(node),
            Self::InterPod => pod.inter_pod(node),
            Self::Volumes => pod.volumes(node),
        }
    }

    /// What is missing on a node that does not pass.
    fn obstacle(self, pod: &PodFilters<'_, '_>, node: NodeId) -> Option<NodeObstacle> {
        match self {
            Self::Resources => Some(pod.shortage(node)),
            Self::NodeRules => pod.failed_rule(node),
            Self::Queue => pod.queue_obstacle(node),
            Self::SharedGpus => pod.shared_gpu_obstacle(node),
            Self::Claims => pod.claim_obstacle(node),
            Self::Numa => Some(NodeObstacle::Numa),
            Self::Ports => Some(NodeObstacle::Ports),
            Self::InterPod => pod.inter_pod_obstacle(node),
            Self::Volumes => pod.volume_obstacle(node),
        }
    }
}

impl<'l, 's> PodFilters<'l, 's> {
    /// The filters for a pod.
    pub fn new(ledger: &'l Ledger<'s>, policy: &'l Policy, task: TaskId) -> Self {
        let row = ledger.snapshot.task(task);
        let shape = ledger.snapshot.shape(row.shape);
        Self { ledger, policy, task, row, shape, inter_pod: InterPodFilter::of(ledger, task) }
    }

    /// Whether the pod may be placed on the node, now or later.
    pub fn accept(&self, node: NodeId) -> bool {
        self.accept_request(node) && self.accept_pod(node).is_some() && self.accept_claims(node)
    }

    /// The first obstacle on the node; `None` if the pod may be placed there.
    pub fn obstacle(&self, nodes: NodeSet<'_>, node: NodeId) -> Option<NodeObstacle> {
        if !nodes.contains(node) {
            return Some(NodeObstacle::OutsideDomain);
        }
        let filter = FILTERS.into_iter().find(|filter| filter.check(self, node).is_none())?;
        Some(filter.obstacle(self, node).expect("a filter that a node does not pass names an obstacle"))
    }

    /// Whether any pod with this request and node filter could use the node.
    pub(super) fn accept_request(&self, node: NodeId) -> bool {
        self.passes(Stage::Rules, node).is_some() && self.passes(Stage::Request, node).is_some()
    }

    /// When this pod may use the node, as far as its queue, ports, volumes and other pods are concerned.
    pub fn accept_pod(&self, node: NodeId) -> Option<When> {
        self.passes(Stage::Pod, node)
    }

    /// Whether the node can serve the pod's resource claims.
    pub(super) fn accept_claims(&self, node: NodeId) -> bool {
        self.passes(Stage::Claims, node).is_some()
    }

    #[inline]
    fn passes(&self, stage: Stage, node: NodeId) -> Option<When> {
        let mut when = When::Now;
        for filter in FILTERS {
            if filter.stage() == stage {
                when = when.max(filter.check(self, node)?);
            }
        }
        Some(when)
    }

    /// Whether the pod prefers some nodes to others because of the pods there.
    pub(super) fn has_preferences(&self) -> bool {
        self.policy.scores.pod_affinity && self.inter_pod.as_ref().is_some_and(InterPodFilter::has_preferences)
    }

    /// Resources are tested for later: scores tell which of the nodes have them now.
    fn resources(&self, node: NodeId) -> Option<When> {
        pass(resources::fits(self.ledger, self.shape, node, When::Later))
    }

    /// The first column that the node has too little of.
    fn shortage(&self, node: NodeId) -> NodeObstacle {
        let (ledger, shape) = (self.ledger, self.shape);
        let (idle, releasing) = (ledger.idle(node), ledger.releasing(node));
        let missing = |column: usize| shape.need[column] - idle[column] - releasing[column];
        for column in resources::columns_in_order(ledger.snapshot, shape) {
            if missing(column) > 0 && !resources::left_to_claims(ledger, node, column) {
                return if column == PODS {
                    NodeObstacle::PodSlots
                } else {
                    NodeObstacle::Short { column: column as u32, least: missing(column) }
                };
            }
        }
        if !device_is_large_enough(ledger, shape.gpu, node) {
            return NodeObstacle::DeviceTooSmall { largest: ledger.snapshot.nodes.device_memory[node.index()] };
        }
        match shape.gpu.shared_devices() {
            // No device of the node has anything to do with GPUs.
            Some(devices) if ledger.snapshot.row(&ledger.snapshot.nodes.allocatable, node)[GPUS] < GPU => {
                NodeObstacle::Short { column: GPUS as u32, least: i64::from(devices) * GPU }
            }
            _ => NodeObstacle::DeviceMemory,
        }
    }

    /// Rules that hold whatever else runs on the node.
    fn node_rules(&self, node: NodeId) -> Option<When> {
        let node_filter = &self.ledger.snapshot.node_filters[self.row.node_filter.index()];
        pass(!self.policy.filters || node_filter.feasible.contains(node.index()))
    }

    fn failed_rule(&self, node: NodeId) -> Option<NodeObstacle> {
        let node_filter = &self.ledger.snapshot.node_filters[self.row.node_filter.index()];
        let mut failed = node_filter.excluded.iter().filter(|(_, nodes)| nodes.contains(node.index()));
        failed.next().map(|(rule, _)| NodeObstacle::Rule(*rule))
    }

    /// What the pod costs on this node must be within the bounds of its queue.
    fn queue(&self, node: NodeId) -> Option<When> {
        pass(over_capacity(self.ledger, self.policy, self.task, node).is_none())
    }

    fn queue_obstacle(&self, node: NodeId) -> Option<NodeObstacle> {
        let exceeded = over_capacity(self.ledger, self.policy, self.task, node)?.exceeded();
        Some(NodeObstacle::Queue(exceeded.queue, exceeded.resource))
    }

    fn shared_gpus(&self, node: NodeId) -> Option<When> {
        pass(self.shape.gpu.shared_devices().is_none() || self.shared_gpu_obstacle(node).is_none())
    }

    fn shared_gpu_obstacle(&self, node: NodeId) -> Option<NodeObstacle> {
        match resources::choose_devices(self.ledger, self.shape, node, self.policy.device_order) {
            None => Some(NodeObstacle::DeviceMemory),
            Some(choice) if self.policy.filters && !resources::slots_suffice(self.ledger, node, choice.fresh) => {
                Some(NodeObstacle::PodSlots)
            }
            Some(_) => None,
        }
    }

    fn claims(&self, node: NodeId) -> Option<When> {
        pass(claims::fits(self.ledger, self.task, node))
    }

    fn claim_obstacle(&self, node: NodeId) -> Option<NodeObstacle> {
        claims::choose(self.ledger, self.task, node, When::Later).err().map(NodeObstacle::Claim)
    }

    fn numa(&self, node: NodeId) -> Option<When> {
        pass(!self.policy.numa || numa::fits(self.ledger, self.shape, node))
    }

    fn ports(&self, node: NodeId) -> Option<When> {
        let ports = self.row.ports.map_or(&[][..], |set| &self.ledger.snapshot.port_sets[set as usize]);
        pass(!self.policy.filters || ports.iter().all(|port| !self.ledger.port_taken(node, *port)))
    }

    fn inter_pod(&self, node: NodeId) -> Option<When> {
        match &self.inter_pod {
            Some(rules) if self.policy.filters => rules.check(node).ok(),
            _ => Some(When::Now),
        }
    }

    fn inter_pod_obstacle(&self, node: NodeId) -> Option<NodeObstacle> {
        self.inter_pod.as_ref()?.check(node).err().map(NodeObstacle::InterPod)
    }

    fn volumes(&self, node: NodeId) -> Option<When> {
        if self.policy.filters { volumes::when(self.ledger, self.task, node).ok() } else { Some(When::Now) }
    }

    fn volume_obstacle(&self, node: NodeId) -> Option<NodeObstacle> {
        volumes::when(self.ledger, self.task, node).err().map(NodeObstacle::Volumes)
    }
}

fn pass(passes: bool) -> Option<When> {
    passes.then_some(When::Now)
}

/// The bound of the pod's queue that it would exceed on this node.
fn over_capacity(ledger: &Ledger<'_>, policy: &Policy, task: TaskId, node: NodeId) -> Option<capacity::Exceeded> {
    let job = ledger.snapshot.job(ledger.snapshot.task(task).job);
    if !policy.filters || policy.proportion.is_none() {
        return None;
    }
    capacity::check(&ledger.queues, job.queue?, job.preemptible, ledger.cost(task, node))
}

/// What a pod costs differs between nodes only if it asks for GPU memory.
pub(super) fn over_capacity_everywhere(ledger: &Ledger<'_>, policy: &Policy, task: TaskId, shape: &Shape) -> bool {
    let same = !matches!(shape.gpu, GpuAsk::Memory { .. });
    same && !ledger.snapshot.nodes.is_empty() && over_capacity(ledger, policy, task, NodeId(0)).is_some()
}
