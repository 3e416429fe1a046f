//! Rust source as names and marks, with or without its comments and what stands in quotes.

/// A word, or a single mark; `::` is one mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) line: usize,
    pub(super) text: &'a str,
}

/// What a stretch of source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name, a keyword or a mark.
    Token,
    /// With its slashes.
    Comment,
    /// A string or a character, with its quotes.
    Literal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    pub(super) line: usize,
    pub(super) kind: Kind,
    pub(super) text: &'a str,
}

pub(super) fn tokens(source: &str) -> Vec<Token<'_>> {
    let tokens = pieces(source).into_iter().filter(|piece| piece.kind == Kind::Token);
    tokens.map(|Piece { line, text, .. }| Token { line, text }).collect()
}

/// The whole source in order, without the space between.
pub(super) fn pieces(source: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut line = 1;
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let (kind, length) = match skipped(rest) {
            Some(length) if rest.starts_with('/') => (Kind::Comment, length),
            Some(length) => (Kind::Literal, length),
            None if is_word(first) => (Kind::Token, rest.find(|c| !is_word(c)).unwrap_or(rest.len())),
            None if rest.starts_with("::") => (Kind::Token, 2),
            None => (Kind::Token, first.len_utf8()),
        };
        if !first.is_whitespace() {
            pieces.push(Piece { line, kind, text: &rest[..length] });
        }
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    pieces
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Length of the comment or literal that starts here, if one does.
fn skipped(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(block_comment(rest));
    }
    if rest.starts_with('\'') {
        return char_literal(rest);
    }
    // Prefixes belong to the literal: b"", c"", r"", br"", r#""#.
    let quoted = rest.trim_start_matches(['b', 'c']);
    let prefix = rest.len() - quoted.len();
    if prefix > 1 {
        return None;
    }
    if quoted.starts_with('"') {
        return Some(prefix + escaped(quoted, '"'));
    }
    if prefix == 1 && quoted.starts_with('\'') {
        return char_literal(quoted).map(|length| prefix + length);
    }
    let hashes = quoted.strip_prefix('r')?;
    let count = hashes.len() - hashes.trim_start_matches('#').len();
    let body = hashes[count..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(count));
    let end = body.find(&close).map_or(body.len(), |at| at + close.len());
    Some(rest.len() - body.len() + end)
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// A quote opens a character only if one follows; otherwise it is a lifetime.
fn char_literal(rest: &str) -> Option<usize> {
    let mut chars = rest[1..].chars();
    match (chars.next()?, chars.next()) {
        ('\\', _) => Some(escaped(rest, '\'')),
        (only, Some('\'')) => Some(2 + only.len_utf8()),
        _ => None,
    }
}

/// Length of a literal in such quotes, in which a backslash covers what follows it.
fn escaped(rest: &str, quote: char) -> usize {
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote {
            return at + 1;
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> String {
        tokens(source).iter().map(|token| token.text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_quotes_are_left_out() {
        assert_eq!(words("a // b\nc /* d /* e */ f */ g"), "a c g");
        assert_eq!(words(r#"a("b \" c", b"d", 'e', '\'', '"', b'f')"#), "a ( , , , , , )");
        assert_eq!(words(r##"a(r"b\", r#"c " d"#, br"e") f"##), "a ( , , ) f");
        assert_eq!(words("//! a\n/// b\n#[doc = \"c\"] d"), "# [ doc = ] d");
    }

    #[test]
    fn pieces_keep_comments_and_quotes() {
        let found: Vec<_> =
            pieces("a // b\nr#\"c\"# 'd'").iter().map(|piece| (piece.line, piece.kind, piece.text)).collect();
        assert_eq!(
            found,
            [
                (1, Kind::Token, "a"),
                (1, Kind::Comment, "// b"),
                (2, Kind::Literal, "r#\"c\"#"),
                (2, Kind::Literal, "'d'")
            ]
        );
    }

    #[test]
    fn lifetimes_and_names_are_not_quotes() {
        assert_eq!(words("fn a<'b>(c: &'b str) {}"), "fn a < ' b > ( c : & ' b str ) { }");
        assert_eq!(words("bar r c rb bc"), "bar r c rb bc");
        assert_eq!(words("r#type"), "r # type");
    }

    #[test]
    fn paths_keep_their_joints_and_lines_are_counted() {
        assert_eq!(words("std::fs::read(x)?"), "std :: fs :: read ( x ) ?");
        let lines: Vec<usize> = tokens("a\n\"b\nc\"\n/* d\n */ e").iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 5]);
    }

    #[test]
    fn unfinished_literals_end_with_the_file() {
        assert_eq!(words("a \"b"), "a");
        assert_eq!(words("a /* b"), "a");
        assert_eq!(words("a r#\"b"), "a");
    }
}
