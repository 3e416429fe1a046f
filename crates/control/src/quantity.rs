//! Kubernetes quantities as exact numbers.
//!
//! A quantity is a decimal number with a suffix: `1500m`, `1.5`, `2Gi`, `3e2`. It is read without ever passing
//! through a float, and rounded up when a unit is asked for that it does not divide, as Kubernetes does.

use std::fmt;

/// A number such as `1.5Gi`: `digits × 10^tens × 2^twos`, signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    digits: i128,
    tens: i32,
    twos: u32,
}

/// A text that is no quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAQuantity;

/// More digits than any real amount has, few enough for `i128` to hold them scaled.
const DIGITS_MAX: usize = 27;

impl Quantity {
    pub const ZERO: Self = Self { digits: 0, tens: 0, twos: 0 };

    pub fn parse(text: &str) -> Result<Self, NotAQuantity> {
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, rest) = leading_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), leading_digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(NotAQuantity);
        }
        let (tens, twos) = scale(suffix).ok_or(NotAQuantity)?;
        let written = [whole.trim_start_matches('0'), fraction.trim_end_matches('0')].concat();
        if written.len() > DIGITS_MAX {
            return Err(NotAQuantity);
        }
        let size: i128 = if written.is_empty() { 0 } else { written.parse().map_err(|_| NotAQuantity)? };
        let places = i32::try_from(fraction.trim_end_matches('0').len()).map_err(|_| NotAQuantity)?;
        Ok(Self { digits: if negative { -size } else { size }, tens: tens.saturating_sub(places), twos })
    }

    /// Whole units, rounded up.
    pub fn units(self) -> i64 {
        self.scaled(0)
    }

    /// Thousandths, rounded up.
    pub fn milli(self) -> i64 {
        self.scaled(3)
    }

    /// Billionths, the finest that Kubernetes counts, rounded up; `None` if that is beyond counting.
    pub(crate) fn nano(self) -> Option<i128> {
        self.exact(9)
    }

    /// Written with a suffix such as `Gi`, so that sums should be too.
    pub(crate) fn is_binary(self) -> bool {
        self.twos > 0
    }

    pub fn is_negative(self) -> bool {
        self.digits < 0
    }

    /// Billionths, the smallest part that Kubernetes keeps, rounded up; cut to what an `i128` holds.
    pub fn nanos(self) -> i128 {
        let limit = if self.digits < 0 { i128::MIN } else { i128::MAX };
        let tens = self.tens.saturating_add(9);
        let Some(scaled) = self.digits.checked_mul(1 << self.twos) else { return limit };
        let power = 10_i128.checked_pow(tens.unsigned_abs());
        match (tens >= 0, power) {
            (true, power) => power.and_then(|power| scaled.checked_mul(power)).unwrap_or(limit),
            (false, Some(power)) => scaled / power + i128::from(scaled % power != 0) * scaled.signum(),
            (false, None) => scaled.signum(),
        }
    }

    /// So many billionths.
    pub fn from_nanos(nanos: i128) -> Self {
        Self { digits: nanos, tens: -9, twos: 0 }
    }

    /// `self × 10^places`, rounded away from zero, cut to what an `i64` holds.
    fn scaled(self, places: i32) -> i64 {
        let limit = if self.digits < 0 { i64::MIN } else { i64::MAX };
        self.exact(places).and_then(|exact| i64::try_from(exact).ok()).unwrap_or(limit)
    }

    /// `self × 10^places`, rounded away from zero; `None` if that is beyond counting.
    fn exact(self, places: i32) -> Option<i128> {
        if self.digits == 0 {
            return Some(0);
        }
        let tens = self.tens.saturating_add(places);
        let scaled = self.digits.checked_mul(1 << self.twos)?;
        if tens >= 0 {
            return 10_i128.checked_pow(tens.unsigned_abs()).and_then(|power| scaled.checked_mul(power));
        }
        let power = 10_i128.checked_pow(tens.unsigned_abs()).unwrap_or(i128::MAX);
        let rest = i128::from(scaled % power != 0) * scaled.signum();
        Some(scaled / power + rest)
    }
}

fn leading_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()))
}

/// Powers of ten and two that a suffix stands for.
fn scale(suffix: &str) -> Option<(i32, u32)> {
    let decimal = |tens: i32| Some((tens, 0));
    let binary = |twos: u32| Some((0, twos));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            let plain = !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| exponent.parse().ok()).flatten().and_then(decimal)
        }
    }
}

/// An amount with at most three decimals and no trailing zeros, as people are shown it: `parts` per unit.
pub(crate) fn decimal(amount: i64, parts: i64) -> String {
    debug_assert!(parts >= 1);
    let thousandths = (i128::from(amount) * 1000 + i128::from(parts / 2)).div_euclid(i128::from(parts));
    let sign = if thousandths < 0 { "-" } else { "" };
    let (whole, rest) = (thousandths.unsigned_abs() / 1000, thousandths.unsigned_abs() % 1000);
    if rest == 0 {
        return format!("{sign}{whole}");
    }
    format!("{sign}{whole}.{}", format!("{rest:03}").trim_end_matches('0'))
}

impl fmt::Display for NotAQuantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("not a quantity such as 2, 500m, 1.5 or 8Gi")
    }
}

impl std::error::Error for NotAQuantity {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quantity(text: &str) -> Quantity {
        Quantity::parse(text).unwrap_or_else(|_| panic!("{text} is a quantity"))
    }

    #[test]
    fn reads_every_suffix() {
        for (text, units) in [
            ("0", 0),
            ("12", 12),
            ("+3", 3),
            ("-3", -3),
            ("1k", 1_000),
            ("2M", 2_000_000),
            ("2Mi", 2_097_152),
            ("1.5Gi", 1_610_612_736),
            (".5k", 500),
            ("5.", 5),
            ("1e3", 1_000),
            ("1E3", 1_000),
            ("12e-1", 2),
            ("1E", 1_000_000_000_000_000_000),
            ("7Ei", 8_070_450_532_247_928_832),
            ("000123", 123),
        ] {
            assert_eq!(quantity(text).units(), units, "{text}");
        }
    }

    #[test]
    fn rounds_up_where_the_unit_does_not_divide() {
        assert_eq!(quantity("100m").milli(), 100);
        assert_eq!(quantity("0.0001").milli(), 1);
        assert_eq!(quantity("1n").milli(), 1);
        assert_eq!(quantity("1.0005").milli(), 1_001);
        assert_eq!(quantity("1100m").units(), 2);
        assert_eq!(quantity("-1100m").units(), -2);
        assert_eq!(quantity("0.3Ki").units(), 308);
        assert_eq!(quantity("1e-400").units(), 1);
    }

    #[test]
    fn is_cut_to_what_can_be_counted() {
        assert_eq!(quantity("100E").units(), i64::MAX);
        assert_eq!(quantity("9E").milli(), i64::MAX);
        assert_eq!(quantity("1e400").units(), i64::MAX);
        assert_eq!(quantity("-100E").units(), i64::MIN);
        assert_eq!(quantity("0e400").units(), 0);
    }

    #[test]
    fn refuses_what_is_no_quantity() {
        for text in
            ["", ".", "-", "Gi", "1 Gi", "1gi", "1K", "1e", "1e+", "0x10", "1.2.3", "1mi", "NaN", "inf", "1e1.5", "½"]
        {
            assert_eq!(Quantity::parse(text), Err(NotAQuantity), "{text}");
        }
    }

    #[test]
    fn decimals_are_few_and_short() {
        assert_eq!(decimal(1500, 1000), "1.5");
        assert_eq!(decimal(2000, 1000), "2");
        assert_eq!(decimal(333_333, 1_000_000), "0.333");
        assert_eq!(decimal(-250_000, 1_000_000), "-0.25");
        assert_eq!(decimal(16_000_000_000, 1_000_000_000), "16");
        assert_eq!(decimal(1_099_511, 1_000_000_000), "0.001");
    }

    proptest! {
        #[test]
        fn milli_text_is_read_back(milli in -1_000_000_000_000_i64..1_000_000_000_000) {
            prop_assert_eq!(quantity(&format!("{milli}m")).milli(), milli);
            let sign = if milli < 0 { "-" } else { "" };
            let (whole, rest) = (milli.abs() / 1000, milli.abs() % 1000);
            prop_assert_eq!(quantity(&format!("{sign}{whole}.{rest:03}")).milli(), milli);
        }

        #[test]
        fn units_are_the_smallest_whole_number_not_below(milli in 0_i64..1_000_000_000) {
            let units = quantity(&format!("{milli}m")).units();
            prop_assert!(units * 1000 >= milli && (units - 1) * 1000 < milli);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[-+0-9.eEKMGimku]{0,40}") {
            let _ = Quantity::parse(&text).map(|quantity| (quantity.units(), quantity.milli()));
        }
    }
}
