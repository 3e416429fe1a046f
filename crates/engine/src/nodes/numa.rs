//! Which NUMA zones of a node a pod would use, as the kubelet's topology manager would have it.
//!
//! Looks at one node at a time. A node without zones, or a pod that asks for nothing that zones hold, is not
//! concerned. Policies `single-numa-node` and `restricted` refuse a node; `best-effort` only prefers.

use std::cmp::Reverse;

use crate::ids::NodeId;
use crate::ledger::{Ledger, When};
use crate::snapshot::{NumaAsk, NumaNode, Shape, TopologyManagerPolicy, TopologyManagerScope, ZoneAllocation};

/// Where a pod's aligned resources would come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Zones {
    /// Nothing is aligned here.
    Unconcerned,
    /// From these zones, in order of zone and column.
    From(Vec<ZoneAllocation>),
    /// The policy finds no zones that would do.
    Refused,
}

/// Chooses zones on the node.
pub fn choose(ledger: &Ledger<'_>, shape: &Shape, node: NodeId, when: When) -> Zones {
    let numa = &ledger.snapshot.numa;
    let (Some(ask), Some(Some(row))) = (shape.numa, numa.nodes.get(node.index())) else { return Zones::Unconcerned };
    if row.policy == TopologyManagerPolicy::None {
        return Zones::Unconcerned;
    }
    let room = ZoneAllocator { ledger, row, node, when, used: Vec::new() };
    match room.place(&numa.asks[ask as usize]) {
        Some(shares) if shares.is_empty() => Zones::Unconcerned,
        Some(shares) => Zones::From(shares),
        None if row.policy == TopologyManagerPolicy::BestEffort => Zones::Unconcerned,
        None => Zones::Refused,
    }
}

/// Whether the node could align the pod, now or later.
pub fn fits(ledger: &Ledger<'_>, shape: &Shape, node: NodeId) -> bool {
    choose(ledger, shape, node, When::Later) != Zones::Refused
}

/// Whether these shares of the node's zones are free once everything that is leaving has left.
pub fn still_free(ledger: &Ledger<'_>, node: NodeId, shares: &[ZoneAllocation]) -> bool {
    shares.iter().all(|share| share.amount <= ledger.zone_free(node, share.zone, share.column, When::Later))
}

/// Score of a node that needs this few zones for the pod; nothing for pods that zones do not concern.
pub fn points(ledger: &Ledger<'_>, shape: &Shape, node: NodeId) -> i64 {
    let numa = &ledger.snapshot.numa;
    let Some(ask) = shape.numa else { return 0 };
    let span = match numa.nodes.get(node.index()) {
        Some(Some(row)) => match choose(ledger, shape, node, When::Later) {
            Zones::From(shares) => distinct_zones(&shares),
            Zones::Refused => return 0,
            // Best effort that cannot be met has no score; where nothing is aligned, any zone may be used.
            Zones::Unconcerned
                if row.policy == TopologyManagerPolicy::BestEffort && row.holds(&numa.asks[ask as usize]) =>
            {
                return 0;
            }
            Zones::Unconcerned => row.zones.len(),
        },
        _ => numa.nodes.iter().flatten().map(|row| row.zones.len()).max().unwrap_or(0),
    };
    if span == 0 { 0 } else { 100 / span as i64 }
}

fn distinct_zones(shares: &[ZoneAllocation]) -> usize {
    let mut zones: Vec<u32> = shares.iter().map(|share| share.zone).collect();
    zones.dedup();
    zones.len()
}

impl NumaNode {
    /// Whether some zone has any of the column.
    fn reports(&self, column: u32) -> bool {
        self.zones.iter().any(|zone| zone.allocatable[column as usize] > 0)
    }

    /// Whether zones hold anything of what is asked for.
    fn holds(&self, ask: &NumaAsk) -> bool {
        ask.pod.iter().any(|(column, _)| self.reports(*column))
    }
}

/// What zones of one node have left while a pod is placed container by container.
struct ZoneAllocator<'a, 's> {
    ledger: &'a Ledger<'s>,
    row: &'a NumaNode,
    node: NodeId,
    when: When,
    /// Taken by containers of the same pod that came before.
    used: Vec<ZoneAllocation>,
}

impl ZoneAllocator<'_, '_> {
    fn place(mut self, ask: &NumaAsk) -> Option<Vec<ZoneAllocation>> {
        if self.row.scope == TopologyManagerScope::Pod {
            return self.unit(&ask.pod);
        }
        for unit in &ask.containers {
            let shares = self.unit(&unit.need)?;
            // An init container is gone before the others start.
            if unit.keeps_running {
                self.used.extend(shares);
            }
        }
        Some(merged(self.used))
    }

    fn unit(&self, need: &[(u32, i64)]) -> Option<Vec<ZoneAllocation>> {
        let need: Vec<(u32, i64)> = need.iter().copied().filter(|(column, _)| self.row.reports(*column)).collect();
        if need.is_empty() {
            return Some(Vec::new());
        }
        match self.row.policy {
            TopologyManagerPolicy::None => Some(Vec::new()),
            TopologyManagerPolicy::SingleZone => {
                let zone = (0..self.count())
                    .find(|zone| need.iter().all(|(column, amount)| *amount <= self.free(*zone, *column)))?;
                Some(
                    need.iter()
                        .map(|(column, amount)| ZoneAllocation { zone, column: *column, amount: *amount })
                        .collect(),
                )
            }
            TopologyManagerPolicy::Restricted => {
                let fewest = self.fewest(&need)?;
                let zones = (0..self.count()).collect::<Vec<_>>();
                combinations(&zones, fewest).find_map(|zones| self.fill(&need, &zones))
            }
            TopologyManagerPolicy::BestEffort => self.greedy(need),
        }
    }

    fn count(&self) -> u32 {
        self.row.zones.len() as u32
    }

    fn free(&self, zone: u32, column: u32) -> i64 {
        let used: i64 = self
            .used
            .iter()
            .filter(|share| share.zone == zone && share.column == column)
            .map(|share| share.amount)
            .sum();
        (self.ledger.zone_free(self.node, zone, column, self.when) - used).max(0)
    }

    /// The number of zones that each resource needs at least, by what zones have when empty; all must agree.
    fn fewest(&self, need: &[(u32, i64)]) -> Option<usize> {
        let mut agreed = None;
        for (column, amount) in need {
            let mut sizes: Vec<i64> = self.row.zones.iter().map(|zone| zone.allocatable[*column as usize]).collect();
            sizes.sort_unstable_by_key(|size| Reverse(*size));
            let mut left = *amount;
            let count = sizes.iter().position(|size| {
                left -= size;
                left <= 0
            })? + 1;
            if *agreed.get_or_insert(count) != count {
                return None;
            }
        }
        agreed
    }

    /// Fills the zones one after the other; `None` if they do not suffice together.
    fn fill(&self, need: &[(u32, i64)], zones: &[u32]) -> Option<Vec<ZoneAllocation>> {
        let mut shares = Vec::new();
        for (column, amount) in need {
            let mut left = *amount;
            for zone in zones {
                let taken = left.min(self.free(*zone, *column));
                if taken > 0 {
                    shares.push(ZoneAllocation { zone: *zone, column: *column, amount: taken });
                    left -= taken;
                }
            }
            if left > 0 {
                return None;
            }
        }
        Some(merged(shares))
    }

    /// Takes the zone that covers most of what is still missing, until nothing is.
    fn greedy(&self, need: Vec<(u32, i64)>) -> Option<Vec<ZoneAllocation>> {
        let whole = need.clone();
        let mut left = need;
        let mut zones: Vec<u32> = (0..self.count()).collect();
        let mut shares = Vec::new();
        while left.iter().any(|(_, amount)| *amount > 0) {
            let cover = |zone: &u32| -> i128 {
                let part = |((column, left), (_, all)): (&(u32, i64), &(u32, i64))| {
                    i128::from((*left).min(self.free(*zone, *column))) * 1_000_000 / i128::from((*all).max(1))
                };
                left.iter().zip(&whole).map(part).sum()
            };
            let best = zones.iter().copied().max_by_key(|zone| (cover(zone), Reverse(*zone)))?;
            if cover(&best) == 0 {
                return None;
            }
            for (column, amount) in &mut left {
                let taken = (*amount).min(self.free(best, *column));
                if taken > 0 {
                    shares.push(ZoneAllocation { zone: best, column: *column, amount: taken });
                    *amount -= taken;
                }
            }
            zones.retain(|zone| *zone != best);
        }
        Some(merged(shares))
    }
}

/// Adds up shares of the same zone and column, in order.
fn merged(mut shares: Vec<ZoneAllocation>) -> Vec<ZoneAllocation> {
    shares.sort_unstable_by_key(|share| (share.zone, share.column));
    shares.dedup_by(|next, kept| {
        let same = (next.zone, next.column) == (kept.zone, kept.column);
        if same {
            kept.amount += next.amount;
        }
        same
    });
    shares
}

/// All ways to choose `count` of the zones, lowest first.
fn combinations(zones: &[u32], count: usize) -> impl Iterator<Item = Vec<u32>> {
    let mut picks: Option<Vec<usize>> = (count <= zones.len()).then(|| (0..count).collect());
    std::iter::from_fn(move || {
        let current = picks.clone()?;
        // The last pick that can still move up, with all behind it right after it.
        picks = (0..count).rev().find(|slot| current[*slot] < zones.len() - count + slot).map(|slot| {
            let mut next = current.clone();
            for (offset, pick) in next[slot..].iter_mut().enumerate() {
                *pick = current[slot] + 1 + offset;
            }
            next
        });
        Some(current.iter().map(|pick| zones[*pick]).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_come_lowest_first() {
        let all: Vec<Vec<u32>> = combinations(&[0, 1, 2, 3], 2).collect();
        assert_eq!(all, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        assert_eq!(combinations(&[0, 1], 2).count(), 1);
        assert_eq!(combinations(&[0, 1], 3).count(), 0);
    }
}
