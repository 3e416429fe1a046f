//! Who waits at the end, and why.

use kai_sim::report::PendingRow;

use super::{BOLD, DIM, WARN, paint};

pub(super) fn render(rows: &[PendingRow]) -> String {
    if rows.is_empty() {
        return "nothing waits\n".to_owned();
    }
    let mut out = String::new();
    for row in rows {
        let queue = row.queue.as_ref().map(|queue| format!(", queue {queue}")).unwrap_or_default();
        let count = row.pods.len();
        let pods = if count == 1 { "1 pod".to_owned() } else { format!("{count} pods") };
        let placed = if row.placed > 0 { format!(", {} placed", row.placed) } else { String::new() };
        let facts = paint(DIM, format!("{}, {pods} waiting{placed}{queue}", row.kind));
        out.extend([&paint(BOLD, &row.name), "  ", &facts, "\n"]);
        for reason in &row.reasons {
            out.extend(["  ", &paint(WARN, "-"), " ", reason, "\n"]);
        }
    }
    out
}
