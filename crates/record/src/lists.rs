//! Which list holds which kind.

use kai_control::Kind;

/// Written by every version from v0.17 on, filled or not, and by none before.
pub(crate) fn v0_17_marker_list() -> &'static str {
    Kind::NodeResourceTopology.row().snapshot_list
}

pub(crate) fn kind_of(list: &str) -> Option<Kind> {
    Kind::CYCLE_INPUTS.iter().copied().find(|kind| kind.row().snapshot_list == list)
}
