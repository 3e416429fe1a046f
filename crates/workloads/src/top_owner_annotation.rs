//! The annotation that remembers which object a group was computed from.

use std::fmt::Write;

use crate::object::Object;

/// Five lines of YAML; tools outside parse them.
pub(crate) fn of(object: Object<'_>) -> String {
    let mut text = String::new();
    for (key, value) in [
        ("name", object.name()),
        ("uid", object.uid()),
        ("group", object.group()),
        ("version", object.version()),
        ("kind", object.kind),
    ] {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{key}: {}", scalar(value));
    }
    text
}

/// Plain where every YAML reader takes it for a string, quoted otherwise.
fn scalar(text: &str) -> String {
    let plain_chars = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '/'));
    let plain_start = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if plain_chars && plain_start && !is_other_type(text) {
        text.to_owned()
    } else {
        // A JSON string is a YAML double-quoted scalar.
        serde_json::Value::from(text).to_string()
    }
}

/// Would a YAML 1.1 or 1.2 reader make a number, a date, a boolean or null of it?
fn is_other_type(text: &str) -> bool {
    const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let lower = text.to_ascii_lowercase();
    let digits = lower.replace('_', "");
    let radix = ["0x", "0o", "0b"].iter().any(|prefix| digits.starts_with(prefix));
    WORDS.contains(&lower.as_str()) || radix || is_number(&digits) || is_date(&digits)
}

fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && text.parse::<f64>().is_ok()
}

/// `2024-1-31`, possibly with a time behind it.
fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let digits = |part: Option<&str>| part.map_or(0, |part| part.bytes().take_while(u8::is_ascii_digit).count());
    let (year, month, day) = (parts.next(), parts.next(), parts.next());
    let all_digits = |part: Option<&str>| part.is_some_and(|part| digits(Some(part)) == part.len());
    digits(year) == 4
        && all_digits(year)
        && matches!(digits(month), 1 | 2)
        && all_digits(month)
        && matches!(digits(day), 1 | 2)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn describes_the_object_in_a_fixed_order() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "uid": "12e4"}});
        assert_eq!(of(Object::new(&pod)), "name: probe\nuid: \"12e4\"\ngroup: \"\"\nversion: v1\nkind: Pod\n");
    }

    #[test]
    fn every_value_reads_back_as_the_same_string() {
        for text in [
            "",
            "1",
            "1e5",
            "0x1F",
            "1_000",
            "true",
            "No",
            "~",
            "null",
            "2024-01-31",
            "2024-1-2t3",
            "a: b",
            "- a",
            "#a",
            "a #b",
            "\"",
            "a\nb",
            "é",
            "1.5",
            ".5",
            "-1",
            "+1",
            "12:30:45",
            "3f1c0a52-0b6e-4d0e-9f61-000000000000",
            "12345678-1e05-4d0e-9f61-000000000000",
            "batch/v1",
            "nan",
            "inf",
            ".inf",
            "*x",
            "&x",
            "!x",
            "%x",
            "@x",
            "`",
        ] {
            let back: yaml_serde::Value = yaml_serde::from_str(&format!("v: {}\n", scalar(text))).unwrap();
            assert_eq!(back["v"].as_str(), Some(text), "{}", scalar(text));
        }
        let uid = "12345678-1e05-4d0e-9f61-000000000000";
        assert_eq!(scalar(uid), uid, "ordinary identifiers stay plain");
    }
}
