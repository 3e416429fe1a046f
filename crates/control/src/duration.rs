//! Spans of time as people write them: Go's `1h30m`, and for some settings days and weeks.

use kai_api::Duration;
use kai_engine::units::Span;

/// Go's grammar: `90s`, `-1.5h`, `0`.
pub(crate) fn parse(text: &str) -> Option<Span> {
    text.parse::<Duration>().ok().map(|duration| Span(duration.as_nanos() / 1_000))
}

/// Go's grammar, after days and weeks: `2d`, `1w12h`.
pub(crate) fn parse_long(text: &str) -> Option<Span> {
    let mut rest = text;
    let mut long = 0_i64;
    for (unit, seconds) in [('w', 604_800), ('d', 86_400)] {
        if let Some((count, after)) = rest.split_once(unit) {
            long = long.checked_add(count.parse::<i64>().ok()?.checked_mul(seconds)?)?;
            rest = after;
        }
    }
    let short = if rest.is_empty() && rest.len() < text.len() { Span(0) } else { parse(rest)? };
    long.checked_mul(1_000_000)?.checked_add(short.0).map(Span)
}

/// A span in its largest units: `2h30m`, `45s`, `0s`.
pub(crate) fn show(span: Span) -> String {
    let sign = if span.0 < 0 { "-" } else { "" };
    let micros = span.0.unsigned_abs();
    let (hours, minutes, rest) = (micros / 3_600_000_000, micros / 60_000_000 % 60, micros % 60_000_000);
    let seconds = crate::quantity::decimal(rest.cast_signed(), 1_000_000);
    let parts = [
        (hours > 0, format!("{hours}h")),
        (minutes > 0, format!("{minutes}m")),
        (rest > 0 || (hours == 0 && minutes == 0), format!("{seconds}s")),
    ];
    let shown: String = parts.into_iter().filter(|(shown, _)| *shown).map(|(_, part)| part).collect();
    format!("{sign}{shown}")
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
        ] {
            assert_eq!(parse(text), Some(Span(micros)), "{text}");
        }
        for text in ["", "5", "s", "1d", "1h 30m", "-", "1.5.5s"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn days_and_weeks_are_read_where_allowed() {
        assert_eq!(parse_long("1w2d"), Some(Span::seconds(9 * 86_400)));
        assert_eq!(parse_long("1d12h"), Some(Span::seconds(36 * 3_600)));
        assert_eq!(parse_long("90s"), Some(Span::seconds(90)));
        for text in ["", "3x", "d", "99999999999999w", "1d1d"] {
            assert_eq!(parse_long(text), None, "{text}");
        }
    }

    #[test]
    fn spans_are_shown_short() {
        for (seconds, text) in [(0, "0s"), (45, "45s"), (9_000, "2h30m"), (60, "1m"), (-3_601, "-1h1s")] {
            assert_eq!(show(Span::seconds(seconds)), text);
        }
    }
}
