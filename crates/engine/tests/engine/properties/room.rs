//! What is left on a node, counted in the plainest way, to place running pods of random clusters.

use crate::support::{Ask, Gpu, Node};

/// GPU memory of a node that does not say: one unit is one percent.
const PERCENT: i64 = 100;

/// What is left on one node.
#[derive(Clone, Debug)]
pub(super) struct Room {
    node: Node,
    whole_gpus: i64,
    /// MiB taken on each shared GPU.
    shared: Vec<i64>,
    ports: Vec<u16>,
}

impl Room {
    pub(super) fn of(node: &Node) -> Self {
        let whole_gpus = node.gpus - node.taken;
        Self { node: node.clone(), whole_gpus, shared: Vec::new(), ports: Vec::new() }
    }

    /// Takes room for a pod, if there is enough: the node's name and numbers of shared GPUs.
    pub(super) fn take(&mut self, ask: &Ask, ports: &[u16]) -> Option<(String, Vec<u32>)> {
        let node = &self.node;
        let enough = ask.cpu_milli <= node.cpu_milli
            && ask.memory <= node.memory
            && node.pods >= 1
            && ask.extra.iter().all(|(name, count)| node.extra.get(name).is_some_and(|left| count <= left))
            && !ports.iter().any(|port| self.ports.contains(port));
        if !enough {
            return None;
        }
        let devices = self.take_gpus(ask)?;
        self.node.cpu_milli -= ask.cpu_milli;
        self.node.memory -= ask.memory;
        self.node.pods -= 1;
        for (name, count) in &ask.extra {
            *self.node.extra.get_mut(name).expect("counted above") -= count;
        }
        self.ports.extend(ports);
        Some((self.node.name.clone(), devices))
    }

    fn take_gpus(&mut self, ask: &Ask) -> Option<Vec<u32>> {
        let device_memory = self.node.gpu_memory.unwrap_or(PERCENT);
        let (devices, mib) = match ask.gpu {
            Gpu::None => return Some(Vec::new()),
            Gpu::Whole(count) => {
                self.whole_gpus = Some(self.whole_gpus - count).filter(|left| *left >= 0)?;
                return Some(Vec::new());
            }
            Gpu::Share { devices, portion } => (devices as usize, (portion * device_memory) / 1_000_000),
            Gpu::Memory { devices, mib } => (devices as usize, mib),
        };
        if matches!(ask.gpu, Gpu::Memory { .. }) && self.node.gpu_memory.is_none() || mib > device_memory {
            return None;
        }
        let fits = |taken: &i64| taken + mib <= device_memory;
        let mut chosen: Vec<usize> = (0..self.shared.len()).filter(|index| fits(&self.shared[*index])).collect();
        chosen.truncate(devices);
        let fresh = (devices - chosen.len()) as i64;
        if fresh > self.whole_gpus {
            return None;
        }
        self.whole_gpus -= fresh;
        for _ in 0..fresh {
            chosen.push(self.shared.len());
            self.shared.push(0);
        }
        for index in &chosen {
            self.shared[*index] += mib;
        }
        Some(chosen.into_iter().map(|index| index as u32).collect())
    }
}
