//! Spans of time as Go writes them: `90s`, `1h30m`, `-1.5h`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{borrow::Cow, fmt, str::FromStr};

/// A signed span of time in whole nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration {
    nanos: i64,
}

/// A text that is no duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseDurationError {
    text: String,
}

const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3_600 * SECOND),
];
const SECOND: i64 = 1_000_000_000;

impl Duration {
    /// The span of so many nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self { nanos }
    }

    /// The span of so many seconds.
    pub const fn from_secs(secs: i64) -> Self {
        Self { nanos: secs * SECOND }
    }

    /// Its length in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.nanos
    }
}

impl FromStr for Duration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseDurationError { text: text.to_owned() };
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if unsigned == "0" {
            return Ok(Self::default());
        }
        let size = nanos(unsigned).ok_or_else(refuse)?;
        let signed = if negative { -size } else { size };
        let nanos = i64::try_from(signed).map_err(|_| refuse())?;
        Ok(Self { nanos })
    }
}

/// Sums `number unit` pairs, each number with an optional fraction. `None` if it is anything else.
fn nanos(mut text: &str) -> Option<i128> {
    if text.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !text.is_empty() {
        let (whole, rest) = digits(text);
        let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (unit, rest) = rest.split_at(rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len()));
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;

        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(i128::from(*scale))?)?;
        total = total.checked_add(part_of(*scale, fraction))?;
        text = rest;
    }
    Some(total)
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// `0.fraction` of the scale, cut to whole nanoseconds. Digits past the fifteenth change nothing: an hour has 13.
fn part_of(scale: i64, fraction: &str) -> i128 {
    let kept = &fraction[..fraction.len().min(15)];
    let numerator: i128 = kept.parse().unwrap_or(0);
    i128::from(scale) * numerator / 10_i128.pow(kept.len() as u32)
}

impl fmt::Display for Duration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos < 0 {
            out.write_str("-")?;
        }
        let nanos = self.nanos.unsigned_abs();
        let second = SECOND.unsigned_abs();
        match nanos {
            0 => out.write_str("0s"),
            1..1_000 => write!(out, "{nanos}ns"),
            1_000..1_000_000 => write!(out, "{}\u{b5}s", Decimal(nanos, 3)),
            1_000_000..1_000_000_000 => write!(out, "{}ms", Decimal(nanos, 6)),
            _ => {
                let (hours, minutes) = (nanos / (3_600 * second), nanos / (60 * second) % 60);
                if hours > 0 {
                    write!(out, "{hours}h")?;
                }
                if hours > 0 || minutes > 0 {
                    write!(out, "{minutes}m")?;
                }
                write!(out, "{}s", Decimal(nanos % (60 * second), 9))
            }
        }
    }
}

/// A whole number shown with its point moved left by some places, without trailing zeros.
struct Decimal(u64, u32);

impl fmt::Display for Decimal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decimal(number, places) = *self;
        let one = 10_u64.pow(places);
        write!(out, "{}", number / one)?;
        if number.is_multiple_of(one) {
            return Ok(());
        }
        let fraction = format!("{:0width$}", number % one, width = places as usize);
        write!(out, ".{}", fraction.trim_end_matches('0'))
    }
}

impl fmt::Display for ParseDurationError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} is not a duration such as 90s or 1h30m", self.text)
    }
}

impl std::error::Error for ParseDurationError {}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(from)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_reads() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("30s", 30 * SECOND),
            ("1h30m", 5_400 * SECOND),
            ("1.5h", 5_400 * SECOND),
            (".5s", SECOND / 2),
            ("1.s", SECOND),
            ("-1s", -SECOND),
            ("+5m", 300 * SECOND),
            ("1m0.25s", 60 * SECOND + SECOND / 4),
            ("100ms", 100_000_000),
            ("3us", 3_000),
            ("3\u{b5}s", 3_000),
            ("3\u{3bc}s", 3_000),
            ("7ns", 7),
            ("-9223372036854775808ns", i64::MIN),
        ] {
            assert_eq!(text.parse(), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in ["", "-", "5", "1d", "s", ".s", "1h 30m", "1.5.5s", "--1s", "9223372036854775808ns", "2562048h"] {
            assert!(text.parse::<Duration>().is_err(), "{text}");
        }
    }

    #[test]
    fn writes_as_go_writes() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5\u{b5}s"),
            (2_000_000, "2ms"),
            (30 * SECOND, "30s"),
            (90 * SECOND, "1m30s"),
            (3_600 * SECOND, "1h0m0s"),
            (-(5_400 * SECOND + SECOND / 2), "-1h30m0.5s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(duration.to_string(), text);
            assert_eq!(text.parse(), Ok(duration), "{text}");
        }
    }
}
