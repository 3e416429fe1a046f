//! Volumes, devices and NUMA zones of random scenarios. Drawn from a random stream of their own: scenarios that have none
//! of them are as they would be without this file.

use std::fmt::Write;

use rand_pcg::Pcg32;

use super::Rng;

/// GPUs and CPUs of a node.
pub(super) type NodeSize = (u32, u32);

const ACCESS_MODES: [&str; 3] = ["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"];

/// Which of them a scenario has.
pub(super) struct Claims {
    rng: Rng,
    /// How many volume claims pods may share.
    shared_volumes: u32,
    devices: bool,
    numa: bool,
}

impl Claims {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng(Pcg32::new(seed, 10));
        let shared_volumes = if rng.one_in(4) { rng.between(1, 3) } else { 0 };
        Self { devices: rng.one_in(4), numa: rng.one_in(4), shared_volumes, rng }
    }

    /// GPUs that the node's device plugin offers. Where devices are claimed some nodes have none: a node gives its GPUs out
    /// in one of the two ways.
    pub(super) fn plugin_gpus(&mut self, gpus: u32) -> u32 {
        if self.devices && self.rng.one_in(2) { 0 } else { gpus }
    }

    /// Everything but pods.
    pub(super) fn write_cluster(&mut self, out: &mut String, nodes: &[NodeSize]) {
        if self.shared_volumes > 0 {
            self.storage_classes(out, nodes);
            self.volumes(out, nodes);
        }
        if self.devices {
            self.device_slices(out, nodes);
        }
        if self.numa {
            for (node, size) in nodes.iter().enumerate() {
                self.zones(out, node, *size);
            }
        }
    }

    /// A class whose volumes an administrator has made, one whose volumes a driver makes, and what the driver reports.
    fn storage_classes(&mut self, out: &mut String, nodes: &[NodeSize]) {
        let mode = self.rng.pick(&["Immediate", "WaitForFirstConsumer"]);
        let _ = write!(
            out,
            "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: local}}\n\
             provisioner: kubernetes.io/no-provisioner\nvolumeBindingMode: WaitForFirstConsumer\n\
             ---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: made}}\n\
             provisioner: disk.example.com\nvolumeBindingMode: {mode}\n"
        );
        if self.rng.one_in(2) {
            let capacity = self.rng.between(1, 10) * 20;
            let _ = write!(
                out,
                "---\napiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {{name: disk.example.com}}\n\
                 spec: {{storageCapacity: true}}\n\
                 ---\napiVersion: storage.k8s.io/v1\nkind: CSIStorageCapacity\nmetadata: {{name: made, namespace: storage}}\n\
                 storageClassName: made\nnodeTopology: {{}}\ncapacity: {capacity}Gi\n"
            );
        }
        for node in 0..nodes.len() {
            if self.rng.one_in(3) {
                let count = self.rng.between(1, 4);
                let _ = write!(
                    out,
                    "---\napiVersion: storage.k8s.io/v1\nkind: CSINode\nmetadata: {{name: node-{node}}}\n\
                     spec: {{drivers: [{{name: disk.example.com, allocatable: {{count: {count}}}}}]}}\n"
                );
            }
        }
    }

    /// Volumes that are there, each in one node, and claims that pods may share.
    fn volumes(&mut self, out: &mut String, nodes: &[NodeSize]) {
        for number in 0..self.rng.between(0, 6) {
            let (node, size) = (self.rng.between(0, nodes.len() as u32 - 1), self.rng.between(1, 4) * 10);
            let _ = write!(
                out,
                "---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: local-{number}}}\nspec:\n  \
                 storageClassName: local\n  capacity: {{storage: {size}Gi}}\n  \
                 accessModes: [ReadWriteOnce, ReadWriteMany, ReadWriteOncePod]\n  local: {{path: /disk}}\n  \
                 nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: \
                 [{{key: kubernetes.io/hostname, operator: In, values: [node-{node}]}}]}}]}}}}\n"
            );
        }
        for number in 0..self.shared_volumes {
            // Pods of one cycle that share a claim may go to several nodes, from which a volume of one node is not reached:
            // the binder refuses them, but here binds are immediate.
            let class = self.rng.pick(&["local", "made"]);
            let mode = if class == "local" { "ReadWriteOncePod" } else { self.rng.pick(&ACCESS_MODES) };
            let spec = self.claim_spec(class, mode);
            let _ = write!(
                out,
                "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: shared-{number}, namespace: team}}\n\
                 spec: {spec}\n"
            );
        }
    }

    fn claim_spec(&mut self, class: &str, mode: &str) -> String {
        let size = self.rng.between(1, 4) * 10;
        format!("{{storageClassName: {class}, accessModes: [{mode}], resources: {{requests: {{storage: {size}Gi}}}}}}")
    }

    /// Up to four devices in a node without other GPUs, templates of claims, and a claim that pods may share.
    fn device_slices(&mut self, out: &mut String, nodes: &[NodeSize]) {
        out.push_str(
            "---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu.example.com}\n\
             spec: {selectors: [{cel: {expression: device.driver == \"gpu.example.com\"}}]}\n",
        );
        for (node, _) in nodes.iter().enumerate().filter(|(_, (gpus, _))| *gpus == 0) {
            let devices: Vec<String> =
                (0..self.rng.between(1, 4)).map(|device| format!("{{name: gpu-{device}}}")).collect();
            let _ = write!(
                out,
                "---\napiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: node-{node}}}\nspec:\n  \
                 driver: gpu.example.com\n  nodeName: node-{node}\n  \
                 pool: {{name: node-{node}, generation: 1, resourceSliceCount: 1}}\n  devices: [{}]\n",
                devices.join(", ")
            );
        }
        let request = |count: u32| {
            format!(
                "devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: gpu.example.com, count: {count}}}}}]}}"
            )
        };
        for count in 1..=2 {
            let _ = write!(
                out,
                "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\n\
                 metadata: {{name: devices-{count}, namespace: team}}\nspec: {{spec: {{{}}}}}\n",
                request(count)
            );
        }
        let _ = write!(
            out,
            "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: shared-device, namespace: team}}\n\
             spec: {{{}}}\n",
            request(1)
        );
    }

    /// Two zones with half of a node each.
    fn zones(&mut self, out: &mut String, node: usize, (gpus, cpus): NodeSize) {
        let policy = self.rng.pick(&["none", "best-effort", "restricted", "single-numa-node"]);
        let scope = self.rng.pick(&["container", "pod"]);
        let _ = write!(
            out,
            "---\napiVersion: topology.node.k8s.io/v1alpha2\nkind: NodeResourceTopology\nmetadata: {{name: node-{node}}}\n\
             attributes:\n- {{name: topologyManagerPolicy, value: {policy}}}\n- {{name: topologyManagerScope, value: {scope}}}\n\
             zones:\n"
        );
        for zone in 0..2 {
            let half = |all: u32| u32::midpoint(all, zone);
            let _ = write!(out, "- name: node-{zone}\n  type: Node\n  resources:\n");
            for (name, amount) in [("cpu", half(cpus)), ("nvidia.com/gpu", half(gpus))] {
                let _ = writeln!(
                    out,
                    "  - {{name: {name}, capacity: \"{amount}\", allocatable: \"{amount}\", available: \"{amount}\"}}"
                );
            }
        }
    }

    /// What the pods of a workload use: keys of their `spec`, and of the resources of their container.
    pub(super) fn of_pods(&mut self) -> (String, &'static str) {
        let (mut spec, mut resources) = (String::new(), "");
        if self.shared_volumes > 0 && self.rng.one_in(2) {
            let volume = if self.rng.one_in(2) {
                let number = self.rng.between(0, self.shared_volumes - 1);
                format!("persistentVolumeClaim: {{claimName: shared-{number}}}")
            } else {
                let (class, mode) = (self.rng.pick(&["local", "made"]), self.rng.pick(&ACCESS_MODES));
                format!("ephemeral: {{volumeClaimTemplate: {{spec: {}}}}}", self.claim_spec(class, mode))
            };
            let _ = write!(spec, "volumes: [{{name: data, {volume}}}], ");
        }
        if self.devices && self.rng.one_in(2) {
            let source = self.rng.pick(&[
                "resourceClaimName: shared-device",
                "resourceClaimTemplateName: devices-1",
                "resourceClaimTemplateName: devices-2",
            ]);
            let _ = write!(spec, "resourceClaims: [{{name: gpu, {source}}}], ");
            resources = "claims: [{name: gpu}], ";
        }
        (spec, resources)
    }

    /// The default plugins, and the one that looks at NUMA zones.
    pub(super) fn scheduler(&self) -> String {
        const PLUGINS: &str = "predicates, proportion, priority, elastic, kubeflow, ray, nodeavailability, gpusharingorder, \
            gpupack, resourcetype, podaffinity, subgrouporder, taskorder, nominatednode, dynamicresources, nodeplacement, \
            minruntime, topology, snapshot, sg-nodelocalgreedy, sg-multinodegang, numa";
        if !self.numa {
            return String::new();
        }
        let plugins: Vec<String> = PLUGINS.split(", ").map(|name| format!("{{name: {}}}", name.trim())).collect();
        format!("  scheduler: {{tiers: [{{plugins: [{}]}}]}}\n", plugins.join(", "))
    }
}
