//! Errors of the input: what is wrong, where, and what to do about it.

use std::fmt;

use kai_control::did_you_mean::closest_match;
use kai_workloads::brief;
use thiserror::Error;

/// An error in the input. A simulation starts with none or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct InputError {
    /// What is wrong, in one sentence without a full stop.
    pub problem: String,
    /// Where it is. Boxed to keep results small.
    pub location: Box<SourceLocation>,
    /// What to do about it.
    pub help: String,
}

/// A location in the input, as precise as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceLocation {
    /// File name, as the caller gave it.
    pub file: String,
    /// Number of the document in its file, from one.
    pub document: Option<usize>,
    /// Line in the file, from one.
    pub line: Option<usize>,
    /// Kind and name of the object.
    pub object: Option<String>,
    /// Path of the field in the object.
    pub field: Option<String>,
}

impl InputError {
    /// An error at a location.
    pub fn new(location: SourceLocation, problem: impl Into<String>, help: impl Into<String>) -> Self {
        let (problem, help) = (brief(&problem.into(), 500).into_owned(), brief(&help.into(), 500).into_owned());
        Self { problem, location: Box::new(location), help }
    }
}

impl SourceLocation {
    /// A whole file.
    pub fn file(name: impl Into<String>) -> Self {
        Self { file: name.into(), ..Self::default() }
    }

    /// The same location, narrowed to a field.
    #[must_use]
    pub fn field(&self, path: impl Into<String>) -> Self {
        Self { field: Some(brief(&path.into(), 300).into_owned()), ..self.clone() }
    }

    /// The same location, with its object named.
    #[must_use]
    pub fn object(&self, name: impl fmt::Display) -> Self {
        Self { object: Some(brief(&name.to_string(), 400).into_owned()), ..self.clone() }
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.file)?;
        match (self.document, self.line) {
            (Some(document), Some(line)) => write!(out, ", document {document} (line {line})")?,
            (Some(document), None) => write!(out, ", document {document}")?,
            (None, Some(line)) => write!(out, ", line {line}")?,
            (None, None) => {}
        }
        if let Some(object) = &self.object {
            write!(out, ", {object}")?;
        }
        if let Some(field) = self.field.as_deref().filter(|field| !field.is_empty()) {
            write!(out, ", {field}")?;
        }
        Ok(())
    }
}

/// `did you mean …?` where a near candidate exists, else a list of all of them.
pub fn suggest(word: &str, candidates: &[&str]) -> String {
    match closest_match(word, candidates.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("understood here: {}", candidates.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_recognised() {
        assert_eq!(suggest("untill", &["until", "steps"]), "did you mean `until`?");
        assert_eq!(suggest("nodedown", &["nodeDown", "nodeUp"]), "did you mean `nodeDown`?");
        assert_eq!(suggest("weather", &["until", "steps"]), "understood here: until, steps");
    }

    #[test]
    fn a_place_reads_from_wide_to_narrow() {
        let location = SourceLocation { document: Some(3), line: Some(41), ..SourceLocation::file("pods.yaml") };
        assert_eq!(
            location.object("Pod team-a/x").field("spec.containers").to_string(),
            "pods.yaml, document 3 (line 41), Pod team-a/x, spec.containers"
        );
    }
}
