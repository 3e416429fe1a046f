//! KAI's arithmetic where users can observe it: rounding of GPU shares and of device memory.
//!
//! One function per rule, one test per line of the rule. Everything else in the engine is exact.

use super::GPU;

/// Hundredths of a GPU in the engine's unit.
const HUNDREDTH: i64 = GPU / 100;

/// Node GPU memory is kept as a multiple of 100 MiB, rounded down.
pub fn floor_device_memory(mib: i64) -> i64 {
    mib - mib.rem_euclid(100)
}

/// Memory of a GPU of which nothing is known: one unit is one percent.
pub const DEVICE_MEMORY_DEFAULT: i64 = 100;

/// What a fractional request costs a queue: hundredths of a GPU, half away from zero, on each device.
pub fn share_of_gpu(portion_micro: i64, devices: u32) -> i64 {
    (portion_micro + HUNDREDTH / 2).div_euclid(HUNDREDTH) * HUNDREDTH * i64::from(devices)
}

/// Device memory of a fractional request: the product of doubles, cut to whole MiB.
///
/// KAI multiplies doubles, so 0.57 of 46,000 MiB is 26,219; packing depends on it.
pub fn share_to_memory(portion_micro: i64, device_mib: i64) -> i64 {
    let portion = portion_micro as f64 / GPU as f64;
    (portion * device_mib as f64) as i64
}

/// Share of a device that `mib` takes: hundredths, rounded up.
pub fn memory_to_share(mib: i64, device_mib: i64) -> i64 {
    if device_mib <= 0 {
        return 0;
    }
    -(-mib * 100).div_euclid(device_mib) * HUNDREDTH
}

/// One pod in the unit of [`spread_weight`].
pub const SPREAD_UNIT: i64 = 1 << 20;

/// How much a pod more weighs where pods should be spread over so many domains: kube-scheduler's natural logarithm of
/// two more than that, in fixed point, since nothing else here needs fractions of a logarithm.
pub fn spread_weight(domains: usize) -> i64 {
    const LN_2: i64 = 726_817;
    let number = domains as u64 + 2;
    let whole = number.ilog2();
    // The mantissa, from 1 up to 2, in 32 binary digits; squaring it yields the next digit of its logarithm.
    let mut mantissa = (u128::from(number) << 32) >> whole;
    let mut log = i64::from(whole);
    for _ in 0..20 {
        mantissa = (mantissa * mantissa) >> 32;
        let digit = mantissa >> 33;
        mantissa >>= digit;
        log = 2 * log + digit as i64;
    }
    (log * LN_2) >> 20
}

/// Queue memory is written in 10⁶ bytes, whatever its users call it.
pub const QUEUE_MEMORY_UNIT: i64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_memory_is_floored_to_a_hundred() {
        assert_eq!(floor_device_memory(81_559), 81_500);
        assert_eq!(floor_device_memory(100), 100);
    }

    #[test]
    fn shares_are_rounded_to_hundredths_per_device() {
        assert_eq!(share_of_gpu(333_300, 1), 330_000);
        assert_eq!(share_of_gpu(335_000, 2), 680_000);
        assert_eq!(share_of_gpu(500_000, 2), GPU);
    }

    #[test]
    fn share_to_memory_keeps_the_double_product() {
        assert_eq!(share_to_memory(570_000, 46_000), 26_219);
        assert_eq!(share_to_memory(290_000, 100), 28);
        assert_eq!(share_to_memory(500_000, 16_000), 8_000);
    }

    #[test]
    fn spread_weights_are_logarithms() {
        for domains in [0, 1, 2, 3, 6, 7, 100, 5_000] {
            let exact = ((domains + 2) as f64).ln();
            let fixed = spread_weight(domains) as f64 / SPREAD_UNIT as f64;
            assert!((exact - fixed).abs() < 0.000_01, "{domains}: {fixed} instead of {exact}");
        }
    }

    #[test]
    fn memory_to_share_rounds_up_to_hundredths() {
        assert_eq!(memory_to_share(2_000, 16_000), 130_000);
        assert_eq!(memory_to_share(8_000, 16_000), 500_000);
        assert_eq!(memory_to_share(16_001, 16_000), 1_010_000);
    }
}
