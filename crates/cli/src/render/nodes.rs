//! A map of the GPUs of each node, with its pods.
//!
//! One character a GPU: a letter for the pod that has it whole, `*` where pods share it, `.` where it is free.
//! Which device a whole-GPU pod gets is the kubelet's choice, so positions only show amounts.

use anstyle::{AnsiColor, Style};
use kai_sim::report::{Amount, NodeRow, PodRow};

use super::table::{Cell, lines};
use super::{BAD, DIM, paint};

/// Colours take turns; letters tell pods apart without them.
const COLORS: [AnsiColor; 6] =
    [AnsiColor::Cyan, AnsiColor::Magenta, AnsiColor::Green, AnsiColor::Yellow, AnsiColor::Blue, AnsiColor::Red];

const GPU: i64 = 1_000_000;

pub(super) fn render(nodes: &[NodeRow]) -> String {
    if nodes.is_empty() {
        return "none\n".to_owned();
    }
    let name_width = nodes.iter().map(|node| node.name.chars().count()).max().unwrap_or(0);
    let gpus_max = nodes.iter().map(|node| whole(node.gpu.total)).max().unwrap_or(0);
    let mut out = String::new();
    for node in nodes {
        let total = whole(node.gpu.total);
        let map = map(node);
        let pad = " ".repeat(gpus_max - total);
        let (open, close) = if gpus_max == 0 { ("", "") } else { ("[", "]") };
        let room = if total == 0 {
            format!("{} of {} CPUs free", node.cpu.free, node.cpu.total)
        } else {
            format!("{} of {} GPUs free", node.gpu.free, node.gpu.total)
        };
        let state = if node.ready { String::new() } else { paint(BAD, "  not ready") };
        out.push_str(&format!("{:<name_width$}  {open}{map}{close}{pad}  {room}{state}\n", node.name));
        out.push_str(&pods(node));
    }
    out
}

fn whole(amount: Amount) -> usize {
    usize::try_from(amount.0 / GPU).unwrap_or(0)
}

/// The sign of the n-th pod of a node.
fn sign(position: usize) -> char {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    LETTERS.get(position).map_or('#', |letter| char::from(*letter))
}

fn color(position: usize) -> Style {
    COLORS[position % COLORS.len()].on_default()
}

fn map(node: &NodeRow) -> String {
    let total = whole(node.gpu.total);
    let mut cells: Vec<String> = Vec::new();
    for (position, pod) in node.pods.iter().enumerate().filter(|(_, pod)| pod.devices.is_empty()) {
        for _ in 0..whole(pod.gpu) {
            cells.push(paint(color(position), sign(position)));
        }
    }
    for device in &node.devices {
        // A shared GPU that only one pod uses is still open to others.
        let style = if device.free.0 > 0 { DIM } else { Style::new() };
        cells.push(paint(style, '*'));
    }
    // Pinned pods can hold more than there is; the numbers beside the map tell.
    cells.truncate(total);
    let free = total - cells.len();
    cells.concat() + &".".repeat(free)
}

fn pods(node: &NodeRow) -> String {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for (position, pod) in node.pods.iter().enumerate() {
        let mark = if pod.devices.is_empty() { sign(position) } else { '*' };
        let queue = pod.queue.as_ref().map(|queue| format!("queue {queue}")).unwrap_or_default();
        rows.push(vec![
            Cell::left("   "),
            Cell::left(mark.to_string()).style(color(position)),
            Cell::left(pod.name.clone()),
            Cell::right(amount(pod)),
            Cell::left(queue).style(DIM),
            Cell::left(note(node, pod)).style(DIM),
        ]);
    }
    lines(&rows)
}

fn amount(pod: &PodRow) -> String {
    match pod.gpu.0 {
        0 => String::new(),
        GPU => "1 GPU".to_owned(),
        _ => format!("{} GPUs", pod.gpu),
    }
}

/// Which shared GPUs, and whether the pod is on its way in or out.
fn note(node: &NodeRow, pod: &PodRow) -> String {
    let mut notes = Vec::new();
    if pod.phase != "Running" {
        notes.push(pod.phase.to_lowercase());
    }
    let number = |name: &String| node.devices.iter().position(|device| device.name == *name);
    for number in pod.devices.iter().filter_map(number) {
        let device = &node.devices[number];
        let share =
            device.pods.iter().find(|share| share.name == pod.name).map(|share| share.share).unwrap_or_default();
        notes.push(format!("{share} of shared GPU {}", number + 1));
    }
    notes.join(", ")
}
