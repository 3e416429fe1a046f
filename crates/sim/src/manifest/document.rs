//! Text to documents: finds the borders, keeps their line numbers, and turns YAML into JSON values.

use serde_json::{Map, Number, Value};
use serde_norway::Value as Yaml;

use crate::fault::{Fault, Place};

/// A file that somebody else has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its path, as people would type it.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// One document of a file.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// File, number and first line.
    pub(crate) place: Place,
    /// Its content.
    pub(crate) value: Value,
}

/// The documents of a file that hold something.
pub(crate) fn read(source: &Source) -> Result<Vec<Document>, Fault> {
    let mut documents = Vec::new();
    for (first_line, text) in split(&source.text) {
        let content = text.lines().position(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
        let Some(blank_lines) = content else { continue };
        let place = Place {
            document: Some(documents.len() + 1),
            line: Some(first_line + blank_lines),
            ..Place::file(source.name.clone())
        };
        let value = parse(&text, first_line, &place)?;
        if !value.is_null() {
            documents.push(Document { place, value });
        }
    }
    Ok(documents)
}

/// Cuts a file at its `---` lines. A line that starts with `---` can be nothing else in YAML, so the cut needs
/// no parser and each piece knows its first line.
fn split(text: &str) -> Vec<(usize, String)> {
    let mut pieces = vec![(1, String::new())];
    for (index, line) in text.lines().enumerate() {
        if let Some(rest) = line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t'])) {
            // Content may follow the marker on the same line; keep the columns for error messages.
            pieces.push((index + 1, format!("   {rest}\n")));
        } else if line == "..." {
            pieces.push((index + 2, String::new()));
        } else if let Some((_, piece)) = pieces.last_mut() {
            piece.push_str(line);
            piece.push('\n');
        }
    }
    pieces
}

fn parse(text: &str, first_line: usize, place: &Place) -> Result<Value, Fault> {
    let broken = |error: &serde_norway::Error| {
        let line = error.location().map(|location| location.line() + first_line - 1);
        let text = error.to_string();
        // The parser's own position counts from the piece, not from the file.
        let problem = text.split(" at line ").next().unwrap_or(&text).to_owned();
        Fault::new(
            Place { line: line.or(place.line), ..place.clone() },
            format!("this is not valid YAML: {problem}"),
            "check indentation, quotes and colons around that line",
        )
    };
    let mut yaml: Yaml = serde_norway::from_str(text).map_err(|error| broken(&error))?;
    yaml.apply_merge().map_err(|error| broken(&error))?;
    to_json(yaml, "").map_err(|(field, problem)| {
        Fault::new(place.field(field), problem, "write plain YAML that has a JSON equivalent, as Kubernetes requires")
    })
}

/// YAML holds more than JSON; whatever has no equivalent is refused rather than bent.
fn to_json(yaml: Yaml, path: &str) -> Result<Value, (String, String)> {
    Ok(match yaml {
        Yaml::Null => Value::Null,
        Yaml::Bool(flag) => Value::Bool(flag),
        Yaml::String(text) => Value::String(text),
        Yaml::Number(number) => {
            let json = if let Some(whole) = number.as_i64() {
                Some(Number::from(whole))
            } else if let Some(whole) = number.as_u64() {
                Some(Number::from(whole))
            } else {
                number.as_f64().and_then(Number::from_f64)
            };
            Value::Number(
                json.ok_or_else(|| (path.to_owned(), format!("`{number}` is not a number that can be used")))?,
            )
        }
        Yaml::Sequence(items) => {
            let items = items.into_iter().enumerate().map(|(index, item)| to_json(item, &format!("{path}[{index}]")));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Yaml::Mapping(pairs) => {
            let mut map = Map::new();
            for (key, item) in pairs {
                let key = match key {
                    Yaml::String(text) => text,
                    Yaml::Bool(flag) => flag.to_string(),
                    Yaml::Number(number) => number.to_string(),
                    _ => return Err((path.to_owned(), "a key is not plain text".to_owned())),
                };
                let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                map.insert(key, to_json(item, &inner)?);
            }
            Value::Object(map)
        }
        Yaml::Tagged(tagged) => {
            return Err((path.to_owned(), format!("the YAML tag `{}` is not understood", tagged.tag)));
        }
    })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(text: &str, expected: Expect) {
        let source = Source { name: "a.yaml".to_owned(), text: text.to_owned() };
        let shown = match read(&source) {
            Ok(documents) => {
                documents.iter().map(|document| format!("{}: {}\n", document.place, document.value)).collect::<String>()
            }
            Err(fault) => format!("{fault}\n  --> {}\n  help: {}\n", fault.place, fault.help),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn documents_know_their_lines() {
        check(
            "# a comment\na: 1\n---\n---\n# only a comment\n--- # and another\n\nb: [x, .5]\n...\n---\nc: {d: null}\n",
            expect![[r#"
                a.yaml, document 1 (line 2): {"a":1}
                a.yaml, document 2 (line 8): {"b":["x",0.5]}
                a.yaml, document 3 (line 11): {"c":{"d":null}}
            "#]],
        );
    }

    #[test]
    fn anchors_and_merges_are_resolved() {
        check(
            "base: &base {x: 1}\nmore: {<<: *base, y: 2}\n",
            expect![[r#"
                a.yaml, document 1 (line 1): {"base":{"x":1},"more":{"x":1,"y":2}}
            "#]],
        );
    }

    #[test]
    fn a_broken_document_names_its_line_in_the_file() {
        check(
            "a: 1\n---\nb: 2\nc: [1\n",
            expect![[r#"
            this is not valid YAML: did not find expected ',' or ']'
              --> a.yaml, document 2 (line 5)
              help: check indentation, quotes and colons around that line
        "#]],
        );
    }

    #[test]
    fn a_key_given_twice_is_refused() {
        check(
            "a: 1\na: 2\n",
            expect![[r#"
            this is not valid YAML: duplicate entry with key "a"
              --> a.yaml, document 1 (line 1)
              help: check indentation, quotes and colons around that line
        "#]],
        );
    }

    #[test]
    fn not_a_number_is_refused() {
        check(
            "spec: {quota: .nan}\n",
            expect![[r#"
            `.nan` is not a number that can be used
              --> a.yaml, document 1 (line 1), spec.quota
              help: write plain YAML that has a JSON equivalent, as Kubernetes requires
        "#]],
        );
    }
}
