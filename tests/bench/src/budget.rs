//! What a cycle may cost.

use crate::kai::Reference;

/// Bytes for a pod and for a node.
pub const POD_BYTES: u64 = 1024;
/// Bytes for a node.
pub const NODE_BYTES: u64 = 2048;

/// From here on NVIDIA KAI is so slow that users notice, and the factor that is asked for is larger.
const SLOW_MS: f64 = 10_000.0;

/// CPU milliseconds that one cycle may take; `None` where there is no budget.
///
/// A fixed time for many new jobs at once, else a part of what NVIDIA KAI v0.13 needs (of v0.17 where only that was measured).
pub fn cpu_ms(scenario: &str, nodes: usize, kai: Option<&Reference>) -> Option<f64> {
    match (scenario, nodes) {
        ("mixed", 1000) => return Some(100.0),
        ("mixed", 5000) => return Some(1000.0),
        _ => {}
    }
    let kai = kai.and_then(|kai| kai.v13.or(kai.v17))?.ms();
    Some(if kai > SLOW_MS { kai / 300.0 } else { kai / 50.0 })
}

/// Bytes that snapshot and cycle may take together.
pub fn memory(nodes: usize, pods: usize) -> u64 {
    POD_BYTES * pods as u64 + NODE_BYTES * nodes as u64
}

/// The exponent with which n·log n grows between two sizes.
pub fn growth(from: usize, to: usize) -> f64 {
    let cost = |n: usize| n as f64 * (n as f64).ln();
    exponent((from, cost(from)), (to, cost(to)))
}

/// The exponent with which cost grows between two sizes: 1 is linear, 2 is quadratic.
pub fn exponent(from: (usize, f64), to: (usize, f64)) -> f64 {
    (to.1 / from.1).ln() / (to.0 as f64 / from.0 as f64).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kai::reference;

    #[test]
    fn budgets_follow_kai() {
        let budget = |scenario, nodes| cpu_ms(scenario, nodes, reference(scenario, nodes));
        assert_eq!(budget("mixed", 1000), Some(100.0));
        assert_eq!(budget("topology", 100), Some(1.5));
        assert_eq!(budget("consolidation_hard", 500), Some(77.3));
        assert_eq!(budget("saturated", 5000), None);
    }

    #[test]
    fn exponents_follow_growth() {
        assert!((exponent((100, 5.0), (200, 20.0)) - 2.0).abs() < 1e-9);
        assert!((1.1..1.2).contains(&growth(500, 1000)));
    }
}
