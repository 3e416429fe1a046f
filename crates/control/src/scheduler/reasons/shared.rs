//! Data that many jobs share, with its text, which is made when it is first read.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Written as the data; copies share data and text.
#[derive(Debug)]
pub struct Shared<T>(Arc<Inner<T>>);

#[derive(Debug)]
struct Inner<T> {
    data: T,
    text: OnceLock<String>,
}

impl<T> Shared<T> {
    pub fn new(data: T) -> Self {
        Self(Arc::new(Inner { data, text: OnceLock::new() }))
    }

    /// The text; `render` must give the same text whenever the data is equal.
    pub(in crate::scheduler) fn text(&self, render: impl FnOnce(&T) -> String) -> &str {
        self.0.text.get_or_init(|| render(&self.0.data))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.data
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.data == other.0.data
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.0.data.serialize(out)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::deserialize(from).map(Self::new)
    }
}
