//! Spans of virtual time as people write and read them.

use kai_engine::units::Span;

/// Units in which a span may be written, in microseconds; longest spelling first where one starts another.
const UNITS: [(&str, i64); 8] = [
    ("ms", 1_000),
    ("us", 1),
    ("µs", 1),
    ("s", 1_000_000),
    ("m", 60 * 1_000_000),
    ("h", 3_600 * 1_000_000),
    ("d", 86_400 * 1_000_000),
    ("w", 7 * 86_400 * 1_000_000),
];

/// Reads `90s`, `1h30m`, `1.5s`, `2d`, or `0`. Negative spans make no sense here.
pub fn parse_span(text: &str) -> Option<Span> {
    let mut rest = text.trim();
    if rest == "0" {
        return Some(Span(0));
    }
    let mut total: i64 = 0;
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, tail) = rest.split_at(digits);
        let (name, micros) = UNITS.iter().find(|(name, _)| tail.starts_with(name))?;
        total = total.checked_add(scaled(number, *micros)?)?;
        rest = &tail[name.len()..];
        parts += 1;
    }
    (parts > 0).then_some(Span(total))
}

/// `number` units, exactly; digits finer than a microsecond are cut off.
fn scaled(number: &str, micros: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut sum = if whole.is_empty() { 0 } else { whole.parse::<i64>().ok()?.checked_mul(micros)? };
    let mut place = micros;
    for digit in fraction.chars() {
        place /= 10;
        sum = sum.checked_add(i64::from(digit.to_digit(10)?) * place)?;
    }
    Some(sum)
}

/// Writes a span as [`parse_span`] reads it, with the largest units that matter.
pub fn show_span(span: Span) -> String {
    let seconds = span.0.div_euclid(1_000_000);
    let micros = span.0.rem_euclid(1_000_000);
    if seconds < 60 && micros != 0 {
        let text = format!("{seconds}.{micros:06}");
        return format!("{}s", text.trim_end_matches('0'));
    }
    let steps = [(seconds / 86_400, "d"), (seconds / 3_600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let Some(first) = steps.iter().position(|(count, _)| *count > 0) else { return "0s".to_owned() };
    let parts = steps[first..].iter().take(3).filter(|(count, _)| *count > 0);
    parts.map(|(count, unit)| format!("{count}{unit}")).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read() {
        let micros = |text| parse_span(text).map(|span| span.0);
        assert_eq!(micros("10s"), Some(10_000_000));
        assert_eq!(micros("1h30m"), Some(5_400_000_000));
        assert_eq!(micros("1.5s"), Some(1_500_000));
        assert_eq!(micros("250ms"), Some(250_000));
        assert_eq!(micros("2d"), Some(172_800_000_000));
        assert_eq!(micros("0"), Some(0));
        for wrong in ["", "10", "-5s", "s", "1x", "1h 30", "ten", ".s", "99999999999999999w"] {
            assert_eq!(micros(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn spans_are_written() {
        for text in ["0s", "10s", "1.5s", "1h30m", "2d", "1m5s"] {
            assert_eq!(show_span(parse_span(text).unwrap()), text);
        }
    }
}
