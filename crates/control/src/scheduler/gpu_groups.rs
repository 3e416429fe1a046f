//! Names for shared GPUs. KAI draws a random one; here it follows from the first pod, its node and the time.

use std::collections::BTreeSet;

use kai_engine::units::Timestamp;

/// Letters of the node's name that are kept: with the digits that follow, a label value has room for 63.
const NODE_LETTERS_MAX: usize = 48;

/// A name that no shared GPU has yet: the node, then digits from the pod, the device's number and the time.
///
/// The time is part of it because a pod may come back under its old name while others still share its old device.
pub(super) fn fresh_name(node: &str, pod_uid: &str, number: u32, now: Timestamp, taken: &BTreeSet<String>) -> String {
    let node: String = node.chars().take(NODE_LETTERS_MAX).collect();
    // One more name than there are taken ones cannot all be taken.
    (0..=taken.len() as u64)
        .map(|attempt| {
            let mut digits = Digest::new();
            for part in [node.as_bytes(), pod_uid.as_bytes()] {
                digits.add(part);
            }
            digits.add(&number.to_le_bytes());
            digits.add(&now.0.to_le_bytes());
            digits.add(&attempt.to_le_bytes());
            format!("{node}-{:010x}", digits.0 >> 24)
        })
        .find(|name| !taken.contains(name))
        .expect("some number is free")
}

/// FNV-1a: short, and the same on every machine.
struct Digest(u64);

impl Digest {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().chain(&[0xff]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_stable_distinct_and_fit_a_label() {
        let node = "a".repeat(80);
        let name = |number: u32, now: i64| fresh_name(&node, "uid", number, Timestamp(now), &BTreeSet::new());
        assert_eq!(name(0, 1), name(0, 1));
        assert_ne!(name(0, 1), name(1, 1));
        assert_ne!(name(0, 1), name(0, 2));
        assert!(name(0, 1).len() <= 63, "{}", name(0, 1));
        let taken = BTreeSet::from([name(0, 1)]);
        assert_ne!(fresh_name(&node, "uid", 0, Timestamp(1), &taken), name(0, 1));
    }
}
