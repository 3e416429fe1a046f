//! Divides capacity among sibling queues.
//!
//! Guaranteed quota first, then the rest by priority band, over-quota weight and past usage, in whole units.
//! [`divide`] works on one resource and one set of siblings; [`divide_tree`] walks down. Knows nothing of jobs,
//! nodes or time. All arithmetic is exact, so the result does not depend on the order of the input.

mod tree;

use std::cmp::Reverse;
use std::collections::BTreeMap;

pub use tree::divide_tree;

use crate::units::{Ceiling, ONE, Timestamp};

/// One queue's side of a division. Siblings are given in name order, the last tie-break.
#[derive(Clone, Debug)]
pub struct QueueDemand {
    /// Guaranteed amount; unlimited guarantees everything there is.
    pub quota: Ceiling,
    /// Amount never to be exceeded.
    pub limit: Ceiling,
    /// Weight in the rest, in millionths.
    pub weight: i64,
    /// Past usage as a share of the cluster, in millionths.
    pub usage: i64,
    /// Amount held and waited for.
    pub request: i64,
    /// Higher bands are served first.
    pub priority: i32,
    /// Older queues get the last units.
    pub created: Timestamp,
    /// Result: added to by the division.
    pub share: i64,
}

impl QueueDemand {
    fn requestable(&self) -> i64 {
        self.limit.cap(self.request)
    }

    fn need(&self) -> i64 {
        (self.requestable() - self.share).max(0)
    }

    fn is_open(&self) -> bool {
        self.request > self.share
            && match self.limit {
                Ceiling::Unlimited => true,
                Ceiling::At(limit) => limit > self.share,
            }
    }
}

/// Divides `total` of one resource, in pieces of `unit`, and returns the rest.
///
/// `k_value` is the influence of past usage, in millionths.
pub fn divide(total: i64, unit: i64, k_value: i64, claims: &mut [QueueDemand]) -> i64 {
    let mut rest = total;
    // The guaranteed part ignores scarcity: over-subscribed quotas stay what they are.
    for claim in claims.iter_mut() {
        let quota = match claim.quota {
            Ceiling::Unlimited => total,
            Ceiling::At(quota) => quota,
        };
        let given = quota.min(claim.requestable());
        claim.share += given;
        rest -= given;
    }
    if rest <= 0 {
        return rest;
    }

    let mut bands: BTreeMap<Reverse<i32>, Band> = BTreeMap::new();
    for (index, claim) in claims.iter().enumerate() {
        bands.entry(Reverse(claim.priority)).or_default().members.push(index);
    }
    for band in bands.values_mut() {
        rest = over_quota(rest, unit, k_value, claims, band);
    }
    // A higher band's rounding remainder was offered to lower bands above; KAI does so, and users watch the shares.
    for band in bands.values() {
        let mut leftovers: Vec<_> = band.leftovers.iter().collect();
        leftovers.sort_by_key(|(index, fraction)| (Reverse(**fraction), claims[**index].created, **index));
        for (index, _) in leftovers {
            if rest <= 0 {
                return rest;
            }
            let given = unit.min(rest);
            claims[*index].share += given;
            rest -= given;
        }
    }
    rest
}

/// Queues of one priority.
#[derive(Default)]
struct Band {
    members: Vec<usize>,
    /// Part of a unit that rounding kept from a queue, in billionths of the unit.
    leftovers: BTreeMap<usize, i64>,
}

fn over_quota(mut rest: i64, unit: i64, k_value: i64, claims: &mut [QueueDemand], band: &mut Band) -> i64 {
    loop {
        let budget = rest;
        let parts = parts(claims, &band.members, k_value);
        let sum: i128 = parts.iter().sum();
        if sum == 0 {
            return rest;
        }
        let mut again = false;
        for (&index, &part) in band.members.iter().zip(&parts) {
            if rest == 0 {
                break;
            }
            let claim = &mut claims[index];
            if !claim.is_open() || claim.weight == 0 {
                continue;
            }
            let need = claim.need();
            // The queue's share is `scaled / sum`; both sides are kept as products so that nothing is rounded early.
            let scaled = i128::from(budget) * part;
            // Cut to what fits: more than any budget, whatever it is.
            let wanted = i128::from(need).saturating_mul(sum);
            let given = if wanted <= scaled {
                band.leftovers.remove(&index);
                need
            } else {
                let piece = sum * i128::from(unit);
                let fraction = (scaled % piece) * 1_000_000_000 / piece;
                if fraction > 0 {
                    band.leftovers.insert(index, fraction as i64);
                }
                (scaled / piece) as i64 * unit
            };
            if given == 0 {
                continue;
            }
            claim.share += given;
            rest -= given;
            again |= wanted < scaled;
        }
        if !again || rest == 0 {
            return rest;
        }
    }
}

/// Relative part of each member in this round: its weight, corrected by how far past usage is from it.
fn parts(claims: &[QueueDemand], members: &[usize], k_value: i64) -> Vec<i128> {
    let weights: i128 = members.iter().filter(|i| claims[**i].need() > 0).map(|i| i128::from(claims[*i].weight)).sum();
    if weights == 0 {
        return vec![0; members.len()];
    }
    // weight/weights + k·(weight/weights − usage), multiplied out by `weights` and the two millions.
    let part = |claim: &QueueDemand| {
        let by_weight = i128::from(claim.weight) * i128::from(ONE + k_value) * i128::from(ONE);
        let by_usage = i128::from(k_value) * i128::from(claim.usage) * weights;
        (by_weight - by_usage) * weights.signum()
    };
    let mut parts: Vec<i128> = members
        .iter()
        .map(|index| Some(&claims[*index]).filter(|claim| claim.is_open()).map_or(0, |claim| part(claim).max(0)))
        .collect();
    // Keep 60 bits, so that a product with any amount fits.
    let bits = 128 - parts.iter().copied().max().unwrap_or(0).leading_zeros();
    for part in &mut parts {
        *part >>= bits.saturating_sub(60);
    }
    parts
}

#[cfg(test)]
mod tests;
