//! Text of users in messages: short, on one line, and without anything that a terminal acts upon.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text with its middle left out if it is longer than so many characters, and with control characters written as
/// escapes. Both ends stay, since a message begins with what is meant and ends with what is wrong.
///
/// Every message that may hold text of users goes through this where it is made: errors of objects and of manifests,
/// denials, conditions, events.
pub fn brief(text: &str, most: usize) -> Cow<'_, str> {
    let length = if text.len() <= most { 0 } else { text.chars().count() };
    if length <= most && !text.chars().any(is_special) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    if length <= most {
        escape(text.chars(), &mut out);
        return Cow::Owned(out);
    }
    let head = most * 2 / 3;
    let tail = most - head;
    escape(text.chars().take(head), &mut out);
    write!(out, "…({} more characters)…", length - most).expect("text can be written to text");
    escape(text.chars().skip(length - tail), &mut out);
    Cow::Owned(out)
}

/// Whether a terminal, or a reader of lines, would take it for something else than a letter: also what turns the direction
/// of writing.
fn is_special(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape(letters: impl Iterator<Item = char>, out: &mut String) {
    for letter in letters {
        if is_special(letter) { out.extend(letter.escape_default()) } else { out.push(letter) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_text_stays_and_long_text_keeps_its_ends() {
        assert!(matches!(brief("`3.5x` is no quantity", 100), Cow::Borrowed(_)));
        assert_eq!(brief(&format!("{}é", "x".repeat(20)), 6), "xxxx…(15 more characters)…xé");
        assert_eq!(brief("ééé", 3), "ééé");
    }

    #[test]
    fn nothing_reaches_the_terminal_but_letters() {
        assert_eq!(brief("a\u{1b}[31m\nb\u{202e}", 100), "a\\u{1b}[31m\\nb\\u{202e}");
        let hostile = "\u{1b}]0;title\u{7}".repeat(1_000);
        let shown = brief(&hostile, 100);
        assert!(shown.chars().count() < 800 && !shown.chars().any(char::is_control), "{shown}");
    }
}
