//! Queues as a tree: what each may have, holds and wants.

use kai_sim::report::{Amount, QueueAmounts, QueueRow};

use super::table::{Cell, lines};
use super::{BOLD, WARN};

/// Bytes are unreadable; a GiB is what people count memory in.
const GIB: i64 = 1 << 30;

type Pick = fn(&QueueRow) -> QueueAmounts;

pub(crate) fn render(queues: &[QueueRow], no_gpus: bool) -> String {
    if queues.is_empty() {
        return "none\n".to_owned();
    }
    let mut out = table(queues, "GPUs", |queue| queue.gpu);
    let tables: [(&str, Pick); 2] = [("CPUs", |queue| queue.cpu), ("GiB of memory", |queue| in_gib(queue.memory))];
    for (unit, pick) in tables {
        // Worth a table only where a queue has a bound on it, or where there is nothing else to share.
        let bounded = queues
            .iter()
            .map(pick)
            .any(|amounts| amounts.limit.is_some() || amounts.quota.is_some_and(|quota| quota.0 > 0));
        if bounded || no_gpus {
            out.push('\n');
            out.push_str(&table(queues, unit, pick));
        }
    }
    out
}

fn in_gib(bytes: QueueAmounts) -> QueueAmounts {
    // To hundredths: queues are written in decimal megabytes, which are no round number of GiB.
    let scale = |amount: Amount| Amount((amount.0 as f64 / GIB as f64 / 10_000.0).round() as i64 * 10_000);
    QueueAmounts {
        quota: bytes.quota.map(scale),
        limit: bytes.limit.map(scale),
        fair_share: scale(bytes.fair_share),
        allocated: scale(bytes.allocated),
        requested: scale(bytes.requested),
    }
}

fn table(queues: &[QueueRow], unit: &str, pick: Pick) -> String {
    let head = ["priority", "quota", "limit", "fair share", "allocated", "requested"];
    let mut rows = vec![
        std::iter::once(Cell::left(unit).style(BOLD))
            .chain(head.iter().map(|text| Cell::right(*text).style(BOLD)))
            .collect(),
    ];
    for queue in queues {
        let amounts = pick(queue);
        let bound = |bound: Option<Amount>| bound.map_or_else(|| "none".to_owned(), |amount| amount.to_string());
        let waits = amounts.requested > amounts.allocated;
        let requested = Cell::right(amounts.requested.to_string());
        rows.push(vec![
            Cell::left(format!("{}{}", "  ".repeat(queue.depth), queue.name)),
            Cell::right(queue.priority.to_string()),
            Cell::right(bound(amounts.quota)),
            Cell::right(bound(amounts.limit)),
            Cell::right(amounts.fair_share.to_string()),
            Cell::right(amounts.allocated.to_string()),
            if waits { requested.style(WARN) } else { requested },
        ]);
    }
    lines(&rows)
}
