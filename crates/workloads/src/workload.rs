//! Everything a rule may look at.

use serde_json::Value;

use crate::base;
use crate::error::{Fault, GroupError};
use crate::group::GroupSpec;
use crate::object::{Object, ObjectRef};
use crate::priority;
use crate::related::ClusterReader;
use crate::settings::Settings;
use crate::table::{Row, TABLE};

#[derive(Clone)]
pub struct Workload<'a> {
    /// The object the rule computes from: the top owner, or the pod when nobody owns it.
    pub object: Object<'a>,
    /// Owners of the pod, nearest first, the top owner last; metadata suffices. Empty for a bare pod.
    pub owners: Vec<Object<'a>>,
    pub pod: Object<'a>,
    pub related: &'a dyn ClusterReader,
    pub settings: &'a Settings,
    /// Where a wrapper looks for the rule of what it wraps.
    pub table: &'a [Row],
}

impl<'a> Workload<'a> {
    pub fn new(
        object: Object<'a>,
        owners: Vec<Object<'a>>,
        pod: Object<'a>,
        related: &'a dyn ClusterReader,
        settings: &'a Settings,
    ) -> Self {
        Self { object, owners, pod, related, settings, table: TABLE }
    }

    /// The base rule on the object, asking the whole owner chain.
    pub(crate) fn base_on_chain(&self) -> GroupSpec {
        if self.owners.is_empty() {
            return self.base();
        }
        base::group(self, self.object, &self.owners, priority::TRAIN)
    }

    /// The base rule on the object, asking nobody else.
    pub(crate) fn base(&self) -> GroupSpec {
        self.base_on(self.object, priority::TRAIN)
    }

    /// The base rule on another object, or with another default class.
    pub(crate) fn base_on(&self, object: Object<'_>, class: &str) -> GroupSpec {
        base::group(self, object, &[object], class)
    }

    /// Reads an object named by `field` of `by`.
    pub(crate) fn read(&self, at: ObjectRef, by: Object<'_>, field: &str) -> Result<&'a Value, GroupError> {
        self.related.object(&at).ok_or_else(|| by.fault(field, Fault::NotFound(Box::new(at))))
    }
}
