//! Every path a source file mentions, spelled out: imports are expanded, and names they bring in are followed.

use super::tokens::Token;
use std::collections::BTreeMap;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mention {
    pub(super) line: usize,
    /// Joined by `::`; a glob ends in `*`.
    pub(super) path: String,
}

/// All that a file mentions, and what the names that it imports stand for.
#[derive(Default)]
pub(super) struct Source {
    pub(super) mentions: Vec<Mention>,
    pub(super) imported: BTreeMap<String, String>,
}

pub(super) fn mentions(tokens: &[Token<'_>]) -> Vec<Mention> {
    read(tokens).mentions
}

pub(super) fn read(tokens: &[Token<'_>]) -> Source {
    let mut found = Vec::new();
    let mut imported = BTreeMap::new();
    let mut at = 0;
    let mut rest = Vec::new();
    while at < tokens.len() {
        if tokens[at].text == "use" && starts_import(&tokens[at + 1..]) {
            let end = at + tokens[at..].iter().position(|token| token.text == ";").unwrap_or(tokens.len() - at);
            expand(&tokens[at + 1..end], "", &mut found, &mut imported);
            at = end;
        } else {
            rest.push(tokens[at]);
            at += 1;
        }
    }
    found.extend(spelled_out(&rest, &imported));
    Source { mentions: found, imported }
}

/// Tells an import from a `use<'a>` bound.
fn starts_import(next: &[Token<'_>]) -> bool {
    next.first().is_some_and(|token| token.text != "<")
}

/// Reads one import tree below a prefix, and notes what each name in it stands for.
fn expand(tree: &[Token<'_>], prefix: &str, found: &mut Vec<Mention>, imported: &mut BTreeMap<String, String>) {
    let mut path = prefix.to_owned();
    let mut at = 0;
    while at < tree.len() {
        match tree[at].text {
            "::" => {}
            "{" => {
                for branch in branches(&tree[at + 1..]) {
                    expand(branch, &path, found, imported);
                }
                return;
            }
            "as" => break,
            "self" if !path.is_empty() => {}
            word => path = join(&path, word),
        }
        at += 1;
    }
    let Some(last) = tree.last() else { return };
    let name = if last.text == "self" { path.rsplit("::").next().unwrap_or_default() } else { last.text };
    imported.insert(name.to_owned(), path.clone());
    found.push(Mention { line: last.line, path });
}

/// Splits what follows an opening brace at its own commas, up to its closing brace.
fn branches<'a, 'b>(tokens: &'a [Token<'b>]) -> Vec<&'a [Token<'b>]> {
    let mut branches = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "{" => depth += 1,
            "}" if depth > 0 => depth -= 1,
            "}" => {
                branches.push(&tokens[start..at]);
                return branches;
            }
            "," if depth == 0 => {
                branches.push(&tokens[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    branches
}

/// Paths outside of imports, with their first name replaced by what it was imported as.
fn spelled_out(tokens: &[Token<'_>], imported: &BTreeMap<String, String>) -> Vec<Mention> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let Token { line, text: first } = tokens[at];
        at += 1;
        if !first.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            continue;
        }
        let mut path = imported.get(first).cloned().unwrap_or_else(|| first.to_owned());
        while at + 1 < tokens.len() && tokens[at].text == "::" && tokens[at + 1].text != "<" {
            path = join(&path, tokens[at + 1].text);
            at += 2;
        }
        if path.contains("::") {
            found.push(Mention { line, path });
        }
    }
    found
}

fn join(path: &str, word: &str) -> String {
    if path.is_empty() { word.to_owned() } else { format!("{path}::{word}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tokens::tokens;

    fn found(source: &str) -> Vec<String> {
        mentions(&tokens(source)).into_iter().map(|mention| mention.path).collect()
    }

    #[test]
    fn imports_are_expanded() {
        assert_eq!(found("use a::b;"), ["a::b"]);
        assert_eq!(found("use a::{self, b, c::{d, e::*}, f as g,};"), ["a", "a::b", "a::c::d", "a::c::e::*", "a::f"]);
        assert_eq!(found("use ::a::b as _;"), ["a::b"]);
    }

    #[test]
    fn names_are_followed_to_where_they_come_from() {
        assert_eq!(found("use a::b; fn f() { b::c() }"), ["a::b", "a::b::c"]);
        assert_eq!(found("use a::b as x; type T = x;"), ["a::b", "a::b"]);
        assert_eq!(found("use a::{self}; a::b::<u8>(); local"), ["a", "a::b"]);
    }

    #[test]
    fn captures_are_no_imports() {
        assert_eq!(found("fn f<'a>() -> impl X + use<'a> { a::b }"), ["a::b"]);
    }
}
