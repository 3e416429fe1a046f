//! What NVIDIA KAI needs for the same work: one full cycle, CPU time in milliseconds, best run, on a machine of two cores.
//!
//! Measured with KAI's own code (v0.13 and v0.17, Go 1.26) on snapshots made by the same rules. Only their number
//! and kind can be compared with those of `kai`: NVIDIA KAI is not deterministic, two of its runs differ in places and victims.

/// CPU time in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cost {
    /// Measured.
    Ms(u32),
    /// Stopped after so long.
    Over(u32),
    /// Extrapolated from a part of the cycle.
    About(u32),
}

impl Cost {
    /// The number, whatever its standing: a stopped run cost at least this much.
    pub fn ms(self) -> f64 {
        match self {
            Self::Ms(ms) | Self::Over(ms) | Self::About(ms) => f64::from(ms),
        }
    }
}

/// KAI at one scenario and size.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    /// Name of the scenario.
    pub scenario: &'static str,
    /// Nodes.
    pub nodes: usize,
    /// KAI v0.13.
    pub v13: Option<Cost>,
    /// KAI v0.17.
    pub v17: Option<Cost>,
}

/// Decisions of KAI at 1,000 nodes: bound, evicted, pipelined.
#[derive(Clone, Copy, Debug)]
pub struct Decisions {
    /// Name of the scenario.
    pub scenario: &'static str,
    /// KAI v0.13.
    pub v13: &'static str,
    /// KAI v0.17.
    pub v17: &'static str,
    /// Peak memory in MB.
    pub peak_mb: (Option<u32>, Option<u32>),
}

const fn row(scenario: &'static str, nodes: usize, v13: u32, v17: u32) -> Reference {
    Reference { scenario, nodes, v13: Some(Cost::Ms(v13)), v17: Some(Cost::Ms(v17)) }
}

/// Everything that was measured.
pub const REFERENCES: [Reference; 31] = [
    row("allocate", 100, 542, 390),
    row("allocate", 500, 10_307, 5_140),
    row("allocate", 1000, 50_519, 22_900),
    Reference { scenario: "allocate", nodes: 5000, v13: Some(Cost::About(1_590_000)), v17: None },
    row("saturated", 100, 235, 151),
    row("saturated", 500, 5_255, 2_960),
    row("saturated", 1000, 26_913, 12_600),
    row("reclaim", 100, 2_205, 12_400),
    Reference { scenario: "reclaim", nodes: 500, v13: Some(Cost::Over(151_000)), v17: Some(Cost::Ms(89_600)) },
    Reference { scenario: "reclaim", nodes: 1000, v13: None, v17: Some(Cost::Over(263_000)) },
    row("reclaim_g1", 100, 14, 16),
    row("reclaim_g1", 500, 1_129, 1_230),
    row("reclaim_g1", 1000, 2_970, 3_230),
    row("preempt", 100, 92, 78),
    row("preempt", 500, 15_363, 5_500),
    row("preempt", 1000, 50_341, 24_400),
    row("preempt_even", 100, 89, 81),
    row("preempt_even", 500, 1_990, 1_540),
    row("preempt_even", 1000, 11_252, 7_810),
    row("consolidation", 100, 12, 13),
    row("consolidation", 500, 296, 291),
    row("consolidation", 1000, 1_075, 1_350),
    row("consolidation_hard", 100, 462, 20),
    row("consolidation_hard", 500, 23_190, 322),
    row("consolidation_hard", 1000, 140_488, 1_030),
    row("topology", 100, 75, 61),
    row("topology", 500, 426, 342),
    row("topology", 1000, 1_306, 840),
    row("topology_rack", 100, 68, 56),
    row("topology_rack", 500, 509, 349),
    row("topology_rack", 1000, 1_561, 859),
];

/// What KAI decided at 1,000 nodes, and in how much memory.
pub const DECISIONS: [Decisions; 10] = [
    decided("allocate", "10000/0/0", "10000/0/0", Some(897), Some(768)),
    decided("saturated", "0/0/0", "0/0/0", Some(1782), Some(1028)),
    decided("reclaim", "–", "0/328/304 when stopped", None, Some(660)),
    decided("reclaim_g1", "0/44–50/76–78", "0/46–48/73–74", Some(537), Some(450)),
    decided("preempt", "0/294/469", "0/294/460", Some(765), Some(530)),
    decided("preempt_even", "0/155/155", "0/155/155", Some(900), Some(771)),
    decided("consolidation", "0/50/100", "0/50/100", Some(217), Some(197)),
    decided("consolidation_hard", "0/286/336", "0/0/0, gives up", Some(665), Some(455)),
    decided("topology", "3968/0/0", "3968/0/0", Some(449), Some(393)),
    decided("topology_rack", "3968/0/0", "3968/0/0", Some(452), Some(404)),
];

const fn decided(
    scenario: &'static str,
    v13: &'static str,
    v17: &'static str,
    peak13: Option<u32>,
    peak17: Option<u32>,
) -> Decisions {
    Decisions { scenario, v13, v17, peak_mb: (peak13, peak17) }
}

/// KAI at that scenario and size, if it was measured.
pub fn reference(scenario: &str, nodes: usize) -> Option<&'static Reference> {
    REFERENCES.iter().find(|known| known.scenario == scenario && known.nodes == nodes)
}

/// What KAI decided there, if that was noted.
pub fn decisions(scenario: &str, nodes: usize) -> Option<&'static Decisions> {
    DECISIONS.iter().find(|known| known.scenario == scenario && nodes == 1000)
}
