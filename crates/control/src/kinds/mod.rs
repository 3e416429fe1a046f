//! What is made from the table of kinds in [`objects`](crate::objects): types and ids here, the tables of the
//! [`World`](crate::World), watches, read permissions, lists of snapshot files and the simulator's API server elsewhere.

mod object_id;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::for_each_kind;
use crate::key::Key;
use crate::objects::{self, Malformed};

/// Whether the objects of a kind have a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespaced,
}

/// Whether a cluster may lack a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Required,
    Optional,
}

/// What there is to know of a kind.
#[derive(Debug)]
pub struct KindRow {
    pub kind: Kind,
    /// As objects write it.
    pub name: &'static str,
    /// As objects write it.
    pub api_version: &'static str,
    pub plural: &'static str,
    pub scope: Scope,
    pub presence: Presence,
    /// Its list in snapshot files; empty if no scheduling cycle depends on the kind.
    pub snapshot_list: &'static str,
}

/// What identifies an object of this scope within its kind.
macro_rules! key_type {
    (Namespaced) => {
        $crate::key::Key
    };
    (Cluster) => {
        String
    };
}

macro_rules! key_of {
    (Namespaced $row:ident) => {
        $row.key.clone()
    };
    (Cluster $row:ident) => {
        $row.name.clone()
    };
}

macro_rules! key_into {
    (Namespaced $key:ident) => {
        $key.clone()
    };
    (Cluster $key:ident) => {
        $crate::key::Key::new("", $key.as_str())
    };
}

macro_rules! key_from {
    (Namespaced $key:ident) => {
        $key
    };
    (Cluster $key:ident) => {
        $key.name
    };
}

pub(crate) use {key_of, key_type};

macro_rules! kinds {
    ($($variant:ident $table:ident $name:literal $api_version:literal $plural:literal $scope:ident $presence:ident
        $list:literal;)*) => {
        /// A kind of objects that controllers watch.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($variant,)*
        }

        /// One object of a kind.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Object {
            $($variant(Box<objects::$variant>),)*
        }

        /// Identity of one object of a kind.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ObjectId {
            $($variant(key_type!($scope)),)*
        }

        const ROWS: [KindRow; Kind::ALL.len()] = [
            $(KindRow {
                kind: Kind::$variant,
                name: $name,
                api_version: $api_version,
                plural: $plural,
                scope: Scope::$scope,
                presence: Presence::$presence,
                snapshot_list: $list,
            },)*
        ];

        impl Kind {
            /// In the order of the table.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
        }

        impl Object {
            /// Parses an object as one of this kind, whatever it says itself.
            pub fn parse_as(kind: Kind, value: &Value) -> Result<Self, Malformed> {
                Ok(match kind {
                    $(Kind::$variant => Self::$variant(Box::new(objects::$variant::parse(value)?)),)*
                })
            }

            /// The name of the object, to find or delete it.
            pub fn id(&self) -> ObjectId {
                match self {
                    $(Self::$variant(row) => ObjectId::$variant(key_of!($scope row)),)*
                }
            }
        }

        impl ObjectId {
            /// The object of this kind and name; kinds without namespaces use the name only.
            pub fn new(kind: Kind, key: Key) -> Self {
                match kind {
                    $(Kind::$variant => Self::$variant(key_from!($scope key)),)*
                }
            }

            pub fn kind(&self) -> Kind {
                match self {
                    $(Self::$variant(_) => Kind::$variant,)*
                }
            }

            /// Namespace and name; the namespace is empty where the kind has none.
            pub fn key(&self) -> Key {
                match self {
                    $(Self::$variant(key) => key_into!($scope key),)*
                }
            }
        }
    };
}

for_each_kind!(kinds);

impl KindRow {
    /// Empty for the core group.
    pub fn group(&self) -> &'static str {
        group_of(self.api_version)
    }

    pub fn version(&self) -> &'static str {
        self.api_version.split_once('/').map_or(self.api_version, |(_, version)| version)
    }
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// How many kinds scheduling cycles depend on. Others come behind them, so that positions in the table are those of the
/// lists in snapshot files.
const fn cycle_inputs() -> usize {
    let mut inputs = 0;
    while inputs < ROWS.len() && !ROWS[inputs].snapshot_list.is_empty() {
        inputs += 1;
    }
    let mut others = inputs;
    while others < ROWS.len() {
        assert!(ROWS[others].snapshot_list.is_empty(), "kinds without a list come last in the table");
        others += 1;
    }
    inputs
}

impl Kind {
    /// Kinds that a scheduling cycle depends on: what the scheduler watches and snapshot files hold, in the order of their
    /// lists there.
    pub const CYCLE_INPUTS: &[Self] = Self::ALL.split_at(cycle_inputs()).0;

    pub fn row(self) -> &'static KindRow {
        &ROWS[self as usize]
    }

    /// As objects write it.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The key of an object of this kind; the namespace is empty where the kind has none.
    pub fn key_of(self, object: &Value) -> Key {
        let key = Key::of(object);
        match self.row().scope {
            Scope::Namespaced => key,
            Scope::Cluster => Key::new("", key.name),
        }
    }

    /// The kind of that name in the group of `api_version`, of whatever version: other groups have kinds of the same names.
    /// Objects without any `apiVersion` go by their `kind`.
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        let is = |row: &&KindRow| row.name == kind && (api_version.is_empty() || row.group() == group_of(api_version));
        ROWS.iter().find(is).map(|row| row.kind)
    }
}

impl Object {
    /// Fields that cannot be used, though the object counts.
    pub fn problems(&self) -> &[Malformed] {
        match self {
            Self::Pod(pod) => &pod.problems,
            _ => &[],
        }
    }

    /// Parses an object of any kind of the table; `None` for others.
    pub fn parse(value: &Value) -> Result<Option<Self>, Malformed> {
        let (api_version, kind) = objects::type_of(value)?;
        Kind::of(api_version, kind).map(|kind| Self::parse_as(kind, value)).transpose()
    }
}
