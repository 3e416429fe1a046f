//! Spans of time as people write them: Go's `1h30m`, and for some settings days and weeks.

use kai_engine::units::Span;

/// Microseconds of each unit that Go knows.
const GO_UNITS: [(&str, i128); 8] = [
    ("ns", 0),
    ("us", 1),
    ("µs", 1),
    ("μs", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
];

/// Units that only some settings accept.
const LONG_UNITS: [(&str, i128); 2] = [("d", 86_400_000_000), ("w", 604_800_000_000)];

/// Go's grammar: `90s`, `-1.5h`, `0`.
pub(crate) fn parse(text: &str) -> Option<Span> {
    parse_with(text, &[])
}

/// Go's grammar with days and weeks: `2d`, `1w`.
pub(crate) fn parse_long(text: &str) -> Option<Span> {
    parse_with(text, &LONG_UNITS)
}

fn parse_with(text: &str, more: &[(&str, i128)]) -> Option<Span> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(Span(0));
    }
    let mut micros: i128 = 0;
    loop {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = after.find(|letter: char| letter == '.' || letter.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let scale = GO_UNITS.iter().chain(more).find(|(name, _)| *name == unit)?.1;
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        // Six places are a microsecond of a second, and more than anyone writes of an hour.
        let places = fraction.get(..9).unwrap_or(fraction);
        let part = if places.is_empty() { 0 } else { places.parse::<i128>().ok()? };
        micros = micros
            .checked_add(whole.checked_mul(scale)?)?
            .checked_add(part * scale / 10_i128.pow(u32::try_from(places.len()).ok()?))?;
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    i64::try_from(if negative { -micros } else { micros }).ok().map(Span)
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()))
}

/// A span in its largest units: `2h30m`, `45s`, `0s`.
pub(crate) fn show(span: Span) -> String {
    let sign = if span.0 < 0 { "-" } else { "" };
    let micros = span.0.unsigned_abs();
    let (hours, minutes, rest) = (micros / 3_600_000_000, micros / 60_000_000 % 60, micros % 60_000_000);
    let mut text = sign.to_owned();
    if hours > 0 {
        text += &format!("{hours}h");
    }
    if minutes > 0 {
        text += &format!("{minutes}m");
    }
    if rest > 0 || (hours == 0 && minutes == 0) {
        text += &format!("{}s", crate::quantity::decimal(rest.cast_signed(), 1_000_000));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_reads() {
        for (text, micros) in [
            ("0", 0),
            ("30s", 30_000_000),
            ("1h30m", 5_400_000_000),
            ("1.5h", 5_400_000_000),
            ("-1s", -1_000_000),
            ("100ms", 100_000),
            ("7ns", 0),
        ] {
            assert_eq!(parse(text), Some(Span(micros)), "{text}");
        }
        for text in ["", "5", "s", "1d", "1h 30m", "-", "1.5.5s", "99999999999999999999h"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn days_and_weeks_are_read_where_allowed() {
        assert_eq!(parse_long("1w2d"), Some(Span::seconds(9 * 86_400)));
        assert_eq!(parse_long("3x"), None);
    }

    #[test]
    fn spans_are_shown_short() {
        for (seconds, text) in [(0, "0s"), (45, "45s"), (9_000, "2h30m"), (60, "1m"), (-3_601, "-1h1s")] {
            assert_eq!(show(Span::seconds(seconds)), text);
        }
    }
}
