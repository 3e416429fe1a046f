//! Text to tokens.

use super::JqError;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// `.name`
    Field(String),
    Word(String),
    Text(String),
    Number(serde_json::Number),
    /// Punctuation and operators, as written.
    Sign(&'static str),
}

/// Longer ones first, so that `//` is not read as two divisions.
const SIGNS: [&str; 23] = [
    "//", "==", "!=", "<=", ">=", "..", "|", ",", "<", ">", "+", "-", "*", "/", "%", "?", ":", "(", ")", "[", "]", ".",
    "$",
];

pub(super) fn tokens(text: &str) -> Result<Vec<Token>, JqError> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, after) = match first {
            '"' => text_token(rest)?,
            '0'..='9' => number_token(rest)?,
            '.' if rest[1..].starts_with(is_word_start) => {
                let (name, after) = word(&rest[1..]);
                (Token::Field(name.to_owned()), after)
            }
            first if is_word_start(first) => {
                let (name, after) = word(rest);
                (Token::Word(name.to_owned()), after)
            }
            first => {
                let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
                let sign = sign.ok_or_else(|| JqError(format!("unexpected {first:?}")))?;
                (Token::Sign(sign), &rest[sign.len()..])
            }
        };
        tokens.push(token);
        rest = after.trim_start();
    }
    Ok(tokens)
}

fn is_word_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn word(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    text.split_at(end.unwrap_or(text.len()))
}

/// A JSON string. Interpolation is an escape JSON does not know, and so refused.
fn text_token(text: &str) -> Result<(Token, &str), JqError> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => {
                let (literal, after) = text.split_at(at + 1);
                let parsed = serde_json::from_str(literal);
                return parsed.map(|text| (Token::Text(text), after)).map_err(|error| JqError(error.to_string()));
            }
            _ => {}
        }
    }
    Err(JqError("unfinished string".to_owned()))
}

fn number_token(text: &str) -> Result<(Token, &str), JqError> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (digits, after) = text.split_at(end);
    let parsed = serde_json::from_str(digits);
    parsed.map(|number| (Token::Number(number), after)).map_err(|_| JqError(format!("{digits} is no number")))
}
