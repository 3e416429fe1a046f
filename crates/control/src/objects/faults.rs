//! What becomes of fields that cannot be used.

use std::collections::BTreeMap;

use super::field_reader::{FieldReader, Malformed};

/// A field that cannot be used keeps a pod without a node out. A pod with a node holds resources whatever its text looks
/// like: its other fields count, and this one as the most that it can mean.
#[derive(Debug)]
pub(crate) enum Faults {
    Refuse,
    /// The first of them, and how many there are.
    Collect {
        found: Vec<Malformed>,
        count: usize,
    },
}

/// One object has no more to report: its author mends these first.
const FOUND_MAX: usize = 16;

impl Faults {
    pub(crate) fn collect() -> Self {
        Self::Collect { found: Vec::new(), count: 0 }
    }

    /// Notes what is wrong, or ends the reading with it.
    pub(crate) fn note(&mut self, malformed: Malformed) -> Result<(), Malformed> {
        match self {
            Self::Refuse => Err(malformed),
            Self::Collect { found, count } => {
                *count += 1;
                // Some fields are read twice.
                if found.len() < FOUND_MAX && !found.contains(&malformed) {
                    found.push(malformed);
                }
                Ok(())
            }
        }
    }

    /// What was read, or `otherwise` in its place.
    pub(crate) fn value_or<T>(&mut self, read: Result<T, Malformed>, otherwise: T) -> Result<T, Malformed> {
        self.value_or_else(read, |_| otherwise)
    }

    pub(crate) fn value_or_else<T>(
        &mut self,
        read: Result<T, Malformed>,
        otherwise: impl FnOnce(&mut Self) -> T,
    ) -> Result<T, Malformed> {
        match read {
            Ok(value) => Ok(value),
            Err(malformed) => {
                self.note(malformed)?;
                Ok(otherwise(self))
            }
        }
    }

    /// How many were noted.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Refuse => 0,
            Self::Collect { count, .. } => *count,
        }
    }

    pub(crate) fn into_found(self) -> Vec<Malformed> {
        match self {
            Self::Refuse => Vec::new(),
            Self::Collect { found, .. } => found,
        }
    }
}

impl FieldReader<'_> {
    /// Labels or annotations of which those that are no text are left out; numbers and booleans count as text.
    pub(crate) fn string_map_with(&self, faults: &mut Faults) -> Result<BTreeMap<String, String>, Malformed> {
        let mut texts = BTreeMap::new();
        for (key, place) in faults.value_or(self.entries(), Vec::new())? {
            let read = place.text_or_empty().map(Some);
            let text = faults.value_or_else(read, |_| place.scalar_text().ok().flatten())?;
            texts.extend(text.map(|text| (key.to_owned(), text)));
        }
        Ok(texts)
    }
}
