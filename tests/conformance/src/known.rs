//! Differences that are meant: listed in the compatibility documents, each with its reason.
//!
//! A list is a fenced block marked `known-differences` below the heading that explains it, one case per line:
//!
//! ````text
//! ## Queues are compared anew on every pop
//! ...why...
//! ```known-differences
//! random/0017
//! random/0234 — the second department is also ahead
//! ```
//! ````
//!
//! What follows the dash is a note of that case; without one the heading is the reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The fence that opens a list.
const FENCE: &str = "```known-differences";

/// One listed case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The document, by file name.
    pub document: String,
    pub reason: String,
}

/// A list that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KnownError {
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{document}: {key} is listed without a heading or a note that says why")]
    NoReason { document: String, key: String },
    #[error("{document}: {key} is listed in {other} already")]
    Twice { document: String, other: String, key: String },
    #[error("{document}: a list is not closed")]
    Unclosed { document: String },
}

/// Reads all lists of a folder, by case. A folder that does not exist lists nothing.
pub fn read(folder: &Path) -> Result<BTreeMap<String, Known>, KnownError> {
    let mut known = BTreeMap::new();
    if !folder.exists() {
        return Ok(known);
    }
    let fail = |error| KnownError::Io { path: folder.to_path_buf(), error };
    let entries = fs::read_dir(folder).map_err(fail)?.collect::<Result<Vec<_>, _>>().map_err(fail)?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(path).map_err(|error| KnownError::Io { path: path.clone(), error })?;
        let document = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        parse(&document, &text, &mut known)?;
    }
    Ok(known)
}

fn parse(document: &str, text: &str, known: &mut BTreeMap<String, Known>) -> Result<(), KnownError> {
    let mut heading = "";
    let mut inside = Inside::Text;
    for line in text.lines() {
        match inside {
            Inside::Text if line.trim_end() == FENCE => inside = Inside::List,
            // Other fences may show a list as an example; nothing in them counts.
            Inside::Text if line.starts_with("```") => {
                inside = Inside::Other(line.chars().take_while(|letter| *letter == '`').count());
            }
            Inside::Text => {
                if let Some(title) = line.strip_prefix('#') {
                    heading = title.trim_start_matches('#').trim();
                }
            }
            Inside::Other(ticks) if line.trim_end() == "`".repeat(ticks) => inside = Inside::Text,
            Inside::Other(_) => {}
            Inside::List if line.trim_end() == "```" => inside = Inside::Text,
            Inside::List => entry(document, heading, line, known)?,
        }
    }
    if inside == Inside::List {
        return Err(KnownError::Unclosed { document: document.to_string() });
    }
    Ok(())
}

/// Where a line stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Text,
    List,
    /// Another fence, opened by this many ticks.
    Other(usize),
}

fn entry(document: &str, heading: &str, line: &str, known: &mut BTreeMap<String, Known>) -> Result<(), KnownError> {
    let (key, note) = line.split_once(" — ").map_or((line, ""), |(key, note)| (key, note.trim()));
    let key = key.trim();
    if key.is_empty() {
        return Ok(());
    }
    let reason = if note.is_empty() { heading } else { note };
    if reason.is_empty() {
        return Err(KnownError::NoReason { document: document.to_string(), key: key.to_string() });
    }
    let row = Known { document: document.to_string(), reason: reason.to_string() };
    if let Some(other) = known.insert(key.to_string(), row) {
        return Err(KnownError::Twice { document: document.to_string(), other: other.document, key: key.to_string() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<(String, String)>, String> {
        let mut known = BTreeMap::new();
        parse("a.md", text, &mut known).map_err(|error| error.to_string())?;
        Ok(known.into_iter().map(|(key, known)| (key, known.reason)).collect())
    }

    #[test]
    fn the_heading_is_the_reason_unless_there_is_a_note() {
        let text = "# Order\n## Ties\nwhy\n```known-differences\nrandom/1\nrandom/2 — a note\n\n```\n";
        let expected = [("random/1", "Ties"), ("random/2", "a note")];
        let expected = expected.map(|(key, reason)| (key.to_string(), reason.to_string()));
        assert_eq!(parsed(text), Ok(expected.to_vec()));
    }

    #[test]
    fn an_example_in_another_fence_lists_nothing() {
        assert_eq!(parsed("````text\n```known-differences\nrandom/1\n```\n````\n"), Ok(Vec::new()));
    }

    #[test]
    fn a_case_is_listed_once_and_with_a_reason() {
        let twice = "# Ties\n```known-differences\nrandom/1\nrandom/1\n```";
        assert_eq!(parsed(twice), Err("a.md: random/1 is listed in a.md already".to_string()));
        let bare = "```known-differences\nrandom/1\n```";
        assert_eq!(parsed(bare), Err("a.md: random/1 is listed without a heading or a note that says why".to_string()));
        assert_eq!(parsed("# A\n```known-differences\nrandom/1"), Err("a.md: a list is not closed".to_string()));
    }
}
