//! YAML that nests without end. The parser refuses what is deeper than 128 levels, but only after it has read all of it, in
//! time that grows with the square of the depth.

/// More than the parser takes, and little enough to be read quickly.
const LEVELS_MAX: usize = 1_000;

/// Whether a text must not be given to the YAML parser. Brackets in quotes count, too: no text has a thousand open ones.
pub fn nests_too_deep(yaml: &str) -> bool {
    let (mut open, mut dashes) = (0_usize, 0_usize);
    let mut bytes = yaml.bytes().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        // `- - -` opens a list in a list in a list, `? ? ?` a key that is a key of a key.
        let opens = matches!(byte, b'-' | b'?') && bytes.peek().is_some_and(u8::is_ascii_whitespace);
        if opens {
            dashes += 1;
        } else if !matches!(byte, b' ' | b'\t') {
            dashes = 0;
        }
        if open > LEVELS_MAX || dashes > LEVELS_MAX {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_opens_without_end_is_too_deep() {
        for part in ["[", "{a: ", "- ", "? ", "[ ["] {
            assert!(nests_too_deep(&part.repeat(200_000)), "{part}");
        }
        for part in ["- a\n", "- [x, {y: z}]\n", "---\n", "a: [1, 2]\n"] {
            assert!(!nests_too_deep(&part.repeat(200_000)), "{part}");
        }
    }
}
