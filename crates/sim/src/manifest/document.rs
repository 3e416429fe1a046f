//! Text to documents: finds the borders, keeps their line numbers, and turns YAML into JSON values.

use std::fmt;

use kai_workloads::nests_too_deep;
use serde::de::{DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde_json::{Map, Number, Value};
use yaml_serde::Value as Yaml;

use crate::input_error::{InputError, SourceLocation};

/// A file that the caller has read.
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
    pub(crate) location: SourceLocation,
    /// Its content.
    pub(crate) value: Value,
}

/// The documents of a file that hold something.
pub(crate) fn read(source: &Source) -> Result<Vec<Document>, InputError> {
    let mut documents = Vec::new();
    for (first_line, text) in split(&source.text) {
        let content = text.lines().position(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
        let Some(blank_lines) = content else { continue };
        let location = SourceLocation {
            document: Some(documents.len() + 1),
            line: Some(first_line + blank_lines),
            ..SourceLocation::file(source.name.clone())
        };
        let value = parse(&text, first_line, &location)?;
        if !value.is_null() {
            documents.push(Document { location, value });
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

fn parse(text: &str, first_line: usize, location: &SourceLocation) -> Result<Value, InputError> {
    let broken = |error: &yaml_serde::Error| {
        let line = error.location().map(|location| location.line() + first_line - 1);
        let text = error.to_string();
        // The parser's own position counts from the piece, not from the file.
        let problem = text.split(" at line ").next().unwrap_or(&text).to_owned();
        InputError::new(
            SourceLocation { line: line.or(location.line), ..location.clone() },
            format!("this is not valid YAML: {problem}"),
            "check indentation, quotes and colons around that line",
        )
    };
    if nests_too_deep(text) {
        return Err(InputError::new(
            location.clone(),
            "this is not valid YAML: lists and maps nest without end",
            "check that every bracket is closed",
        ));
    }
    if text.contains('&') && NodeCount::of(text) > NODES_MAX {
        return Err(InputError::new(
            location.clone(),
            format!("this document has more than {NODES_MAX} values once its aliases are resolved"),
            "write what the aliases stand for, or divide the document",
        ));
    }
    let mut yaml: Yaml = yaml_serde::from_str(text).map_err(|error| broken(&error))?;
    yaml.apply_merge().map_err(|error| broken(&error))?;
    let object = described(&yaml);
    to_json(yaml).map_err(|Unusable { path, problem, help }| {
        let location = object.map_or_else(|| location.clone(), |object| location.object(object));
        let path: String = path.into_iter().rev().collect();
        InputError::new(location.field(path.trim_start_matches('.')), problem, help)
    })
}

/// Values of a document with aliases. An alias costs a few letters and may stand for all that was written before.
const NODES_MAX: usize = 1_000_000;

/// Counts values as a parser would make them, without keeping any.
struct NodeCount<'c>(&'c mut usize);

impl NodeCount<'_> {
    /// How many values the text stands for; counting ends a little above [`NODES_MAX`], and where the text is broken.
    fn of(text: &str) -> usize {
        let mut count = 0;
        // What is wrong with the text is reported by the parser proper.
        let _ = NodeCount(&mut count).deserialize(yaml_serde::Deserializer::from_str(text));
        count
    }

    fn count<E: serde::de::Error>(self) -> Result<(), E> {
        *self.0 += 1;
        if *self.0 > NODES_MAX { Err(E::custom("too many values")) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for NodeCount<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NodeCount<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any value")
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        self.count()
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        self.count()
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        self.count()
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.count()
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        self.count()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.count()
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<(), E> {
        self.count()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(NodeCount(&mut *self.0))?.is_some() {}
        self.count()
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<(), A::Error> {
        while pairs.next_key_seed(NodeCount(&mut *self.0))?.is_some() {
            pairs.next_value_seed(NodeCount(&mut *self.0))?;
        }
        self.count()
    }

    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<(), A::Error> {
        let ((), content) = tagged.variant_seed(NodeCount(&mut *self.0))?;
        content.newtype_variant_seed(self)
    }
}

/// Kind and name of what a document describes, as far as it says.
fn described(yaml: &Yaml) -> Option<String> {
    let kind = yaml.get("kind")?.as_str()?;
    let metadata = yaml.get("metadata");
    let text = |key: &str| metadata.and_then(|metadata| metadata.get(key)?.as_str());
    Some(match (text("namespace"), text("name")) {
        (Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
        (None, Some(name)) => format!("{kind} {name}"),
        (_, None) => kind.to_owned(),
    })
}

/// YAML that has no JSON equivalent.
struct Unusable {
    /// Parts of the path, the innermost first: paths are made only if there is something to say.
    path: Vec<String>,
    problem: String,
    help: &'static str,
}

impl Unusable {
    fn below(mut self, part: String) -> Self {
        self.path.push(part);
        self
    }
}

/// YAML holds more than JSON; whatever has no equivalent is refused rather than bent. The parser bounds how deep it nests.
fn to_json(yaml: Yaml) -> Result<Value, Unusable> {
    let unusable = |problem: String, help| Unusable { path: Vec::new(), problem, help };
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
            Value::Number(json.ok_or_else(|| {
                unusable(format!("`{number}` is not a number that can be used"), "write a finite number")
            })?)
        }
        Yaml::Sequence(items) => {
            let item = |(index, item)| to_json(item).map_err(|wrong| wrong.below(format!("[{index}]")));
            Value::Array(items.into_iter().enumerate().map(item).collect::<Result<_, _>>()?)
        }
        Yaml::Mapping(pairs) => {
            let mut map = Map::new();
            for (key, item) in pairs {
                let key = match key {
                    Yaml::String(text) => text,
                    Yaml::Bool(flag) => flag.to_string(),
                    Yaml::Number(number) => number.to_string(),
                    _ => {
                        return Err(unusable(
                            "a key is not plain text".to_owned(),
                            "write `key: value` with a plain key",
                        ));
                    }
                };
                let item = to_json(item).map_err(|wrong| wrong.below(format!(".{key}")))?;
                map.insert(key, item);
            }
            Value::Object(map)
        }
        Yaml::Tagged(tagged) => {
            let problem = format!("the YAML tag `{}` is not understood", tagged.tag);
            return Err(unusable(problem, "remove it; Kubernetes knows no tags"));
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_raw_string_hashes, reason = "expectations are written by a tool")]

    use expect_test::{Expect, expect};

    use super::*;

    fn check(text: &str, expected: &Expect) {
        let source = Source { name: "a.yaml".to_owned(), text: text.to_owned() };
        let shown = match read(&source) {
            Ok(documents) => {
                let lines = documents.iter().map(|document| {
                    format!(
                        "{}: {}
",
                        document.location, document.value
                    )
                });
                lines.collect::<Vec<_>>().concat()
            }
            Err(fault) => format!("{fault}\n  --> {}\n  help: {}\n", fault.location, fault.help),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn documents_know_their_lines() {
        check(
            "# a comment\na: 1\n---\n---\n# only a comment\n--- # and another\n\nb: [x, .5]\n...\n---\nc: {d: null}\n",
            &expect![[r#"
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
            &expect![[r#"
                a.yaml, document 1 (line 1): {"base":{"x":1},"more":{"x":1,"y":2}}
            "#]],
        );
    }

    #[test]
    fn a_broken_document_names_its_line_in_the_file() {
        check(
            "a: 1\n---\nb: 2\nc: [1\n",
            &expect![[r#"
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
            &expect![[r#"
            this is not valid YAML: duplicate entry with key "a"
              --> a.yaml, document 1 (line 1)
              help: check indentation, quotes and colons around that line
        "#]],
        );
    }

    #[test]
    fn aliases_that_multiply_are_refused() {
        let line =
            |level: usize| format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 10].join(", "));
        let levels: Vec<String> = (1..9).map(line).collect();
        let source = |text: String| Source { name: "a.yaml".to_owned(), text };
        let wrong = read(&source(format!("a0: &a0 [1]\n{}", levels.concat()))).unwrap_err();
        assert!(wrong.location.to_string().len() < 2_000 && wrong.problem.len() < 500, "{wrong}");
        let deep = "[".repeat(200_000);
        assert!(read(&source(deep.clone())).is_err());
        assert!(read(&source(format!("{deep}{}", "]".repeat(200_000)))).is_err());
        assert!(read(&source("- ".repeat(200_000))).is_err());
        assert!(read(&source("{a: ".repeat(100_000))).is_err());
    }

    #[test]
    fn a_long_key_is_not_repeated_for_all_below_it() {
        let key = "k".repeat(100_000);
        let text = format!("{key}: [{}{{.nan: [.nan]}}]\n", "1, ".repeat(100_000));
        let wrong = read(&Source { name: "a.yaml".to_owned(), text }).unwrap_err();
        assert!(wrong.location.to_string().len() < 1_000);
    }

    #[test]
    fn not_a_number_is_refused() {
        check(
            "spec: {quota: .nan}\n",
            &expect![[r#"
                `.nan` is not a number that can be used
                  --> a.yaml, document 1 (line 1), spec.quota
                  help: write a finite number
            "#]],
        );
    }
}
