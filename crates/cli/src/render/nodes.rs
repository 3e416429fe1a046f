//! A map of the GPUs of each node, with its pods.
//!
//! One character a GPU: a letter for the pod that has it whole, `*` where pods share it, `.` where it is free;
//! `-` marks pods without a GPU.
//! Which device a whole-GPU pod gets is the kubelet's choice, so positions only show amounts.

use anstyle::{AnsiColor, Style};
use kai_sim::report::{Amount, NodeRow, PodRow};

use super::table::{Cell, lines};
use super::{DIM, ERROR, paint};

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
        let state = if node.ready { String::new() } else { paint(ERROR, "  not ready") };
        let line = format!("{:<name_width$}  {open}{map}{close}{pad}  {room}{state}\n", node.name);
        out.extend([line, pods(node)]);
    }
    out
}

fn whole(amount: Amount) -> usize {
    usize::try_from(amount.0 / GPU).unwrap_or(0)
}

/// The glyphs of a node's pods: letters in turn for those with GPUs of their own.
fn glyphs(node: &NodeRow) -> Vec<char> {
    let mut letters = ('A'..='Z').chain('a'..='z').chain(std::iter::repeat('#'));
    let sign = |pod: &PodRow| match (pod.gpu.0, pod.devices.is_empty()) {
        (0, _) => Some('-'),
        (_, false) => Some('*'),
        (_, true) => letters.next(),
    };
    node.pods.iter().filter_map(sign).collect()
}

fn color(position: usize) -> Style {
    COLORS[position % COLORS.len()].on_default()
}

fn map(node: &NodeRow) -> String {
    let total = whole(node.gpu.total);
    let mut cells: Vec<String> = Vec::new();
    for (position, (pod, sign)) in node.pods.iter().zip(glyphs(node)).enumerate() {
        if pod.devices.is_empty() {
            cells.extend(std::iter::repeat_n(paint(color(position), sign), whole(pod.gpu)));
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
    for (position, (pod, mark)) in node.pods.iter().zip(glyphs(node)).enumerate() {
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
        ..=GPU => format!("{} GPU", pod.gpu),
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
