//! Walks the queue tree: children divide what their parent got, each resource on its own.

use super::{QueueDemand, divide};
use crate::ids::QueueId;
use crate::ledger::QueueAccounts;
use crate::units::QueueResource;

/// Computes the fair share of every queue, adding to what is there.
pub fn divide_tree(accounts: &mut QueueAccounts, k_value: i64) {
    let mut children: Vec<Vec<QueueId>> = vec![Vec::new(); accounts.rows.len()];
    let mut level = Vec::new();
    for (index, row) in accounts.rows.iter().enumerate() {
        match row.parent {
            Some(parent) => children[parent.index()].push(QueueId::at(index)),
            None => level.push(QueueId::at(index)),
        }
    }
    let mut families = vec![(None, level)];
    while let Some((parent, family)) = families.pop() {
        for resource in QueueResource::ALL {
            let amount = parent.map_or(accounts.total, |parent: QueueId| accounts.row(parent).fair_share).get(resource);
            divide_family(accounts, &family, resource, amount, k_value);
        }
        for queue in family {
            let below = std::mem::take(&mut children[queue.index()]);
            if !below.is_empty() {
                families.push((Some(queue), below));
            }
        }
    }
}

fn divide_family(accounts: &mut QueueAccounts, family: &[QueueId], resource: QueueResource, amount: i64, k_value: i64) {
    let index = resource as usize;
    let mut claims: Vec<QueueDemand> = family
        .iter()
        .map(|queue| {
            let row = accounts.row(*queue);
            QueueDemand {
                quota: row.quota[index],
                limit: row.limit[index],
                weight: row.weight[index],
                usage: row.usage[index],
                request: row.request.get(resource),
                priority: row.priority,
                created: row.created,
                share: row.fair_share.get(resource),
            }
        })
        .collect();
    divide(amount, resource.unit(), k_value, &mut claims);
    for (queue, claim) in family.iter().zip(claims) {
        accounts.rows[queue.index()].fair_share.0[index] = claim.share;
    }
}
