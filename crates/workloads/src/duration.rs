//! Durations as users write them in annotations: `90s`, `1h30m`, `-1s`, `1.5h`.

use std::fmt;

/// Signed length of time. A negative grace period means "never".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    pub nanos: i64,
}

const UNITS: &[(&str, i64)] = &[
    // Two letters before one, so that `ms` is not read as `m`.
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3_600 * SECOND),
];
const SECOND: i64 = 1_000_000_000;

impl Span {
    /// Reads the notation of Go's `time.ParseDuration`; `None` if the text is anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, mut rest) = match text.strip_prefix(['-', '+']) {
            Some(rest) => (text.starts_with('-'), rest),
            None => (false, text),
        };
        if rest == "0" {
            return Some(Self { nanos: 0 });
        }
        let mut nanos: i128 = 0;
        loop {
            let (term, after) = leading_term(rest)?;
            nanos += term;
            if nanos > i128::from(i64::MAX) {
                return None;
            }
            if after.is_empty() {
                break;
            }
            rest = after;
        }
        let nanos = if negative { -nanos } else { nanos };
        Some(Self { nanos: i64::try_from(nanos).ok()? })
    }
}

/// One `number unit` pair, and what follows it.
fn leading_term(text: &str) -> Option<(i128, &str)> {
    let digits_end = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (whole, rest) = text.split_at(digits_end(text));
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits_end(rest)),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (unit, nanos) = UNITS.iter().find(|(unit, _)| rest.starts_with(unit))?;
    let nanos = i128::from(*nanos);
    let whole: i128 = if whole.is_empty() { 0 } else { i128::from(whole.parse::<i64>().ok()?) };
    // An hour has 13 digits of nanoseconds; further digits of a fraction cannot matter.
    let fraction = &fraction[..fraction.len().min(15)];
    let part = match fraction {
        "" => 0,
        digits => digits.parse::<i128>().ok()? * nanos / 10_i128.pow(digits.len() as u32),
    };
    Some((whole * nanos + part, &rest[unit.len()..]))
}

impl fmt::Display for Span {
    /// The canonical form the API server stores: `1h30m0s`, `1.5s`, `20ms`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.nanos < 0 { "-" } else { "" };
        let nanos = self.nanos.unsigned_abs();
        let second = SECOND.unsigned_abs();
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{sign}{nanos}ns"),
            1_000..1_000_000 => write!(f, "{sign}{}µs", decimal(nanos, 1_000)),
            1_000_000..1_000_000_000 => write!(f, "{sign}{}ms", decimal(nanos, 1_000_000)),
            _ => {
                let (minutes, rest) = (nanos / (60 * second), nanos % (60 * second));
                f.write_str(sign)?;
                match (minutes / 60, minutes % 60) {
                    (0, 0) => {}
                    (0, minutes) => write!(f, "{minutes}m")?,
                    (hours, minutes) => write!(f, "{hours}h{minutes}m")?,
                }
                write!(f, "{}s", decimal(rest, second))
            }
        }
    }
}

fn decimal(nanos: u64, unit: u64) -> String {
    let digits = unit.ilog10() as usize;
    let fraction = format!("{:0digits$}", nanos % unit);
    match fraction.trim_end_matches('0') {
        "" => (nanos / unit).to_string(),
        fraction => format!("{}.{fraction}", nanos / unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_what_go_does() {
        for (text, canonical) in [
            ("90s", "1m30s"),
            ("1h30m", "1h30m0s"),
            ("1.5h", "1h30m0s"),
            ("-1s", "-1s"),
            ("+2m", "2m0s"),
            ("0", "0s"),
            (".5s", "500ms"),
            ("1.25ms", "1.25ms"),
            ("3us", "3µs"),
            ("1h0.5s", "1h0m0.5s"),
        ] {
            assert_eq!(Span::parse(text).unwrap().to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in ["", "-", "5", "s", "1d", "1h ", " 1h", "1 h", ".s", "99999999999h", "1s1", "1é"] {
            assert_eq!(Span::parse(text), None, "{text}");
        }
    }
}
