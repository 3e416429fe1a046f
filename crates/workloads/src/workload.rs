//! Everything a rule may look at.

use serde_json::Value;

use crate::error::{Fault, GroupError};
use crate::object::Object;
use crate::object_ref::ObjectRef;
use crate::related::ClusterReader;
use crate::settings::Settings;

#[derive(Clone)]
pub struct Workload<'a> {
    /// The object the rule computes from: the top owner, or the pod if it has no owner.
    pub object: Object<'a>,
    /// Owners of the pod, nearest first, the top owner last; metadata suffices. Empty for a bare pod.
    pub owners: Vec<Object<'a>>,
    pub pod: Object<'a>,
    pub related: &'a dyn ClusterReader,
    pub settings: &'a Settings,
}

impl<'a> Workload<'a> {
    pub fn new(
        object: Object<'a>,
        owners: Vec<Object<'a>>,
        pod: Object<'a>,
        related: &'a dyn ClusterReader,
        settings: &'a Settings,
    ) -> Self {
        Self { object, owners, pod, related, settings }
    }

    /// Reads an object named by `field` of `by`.
    pub(crate) fn read(&self, at: ObjectRef, by: Object<'_>, field: &str) -> Result<&'a Value, GroupError> {
        self.related.object(&at).ok_or_else(|| by.fault(field, Fault::NotFound(Box::new(at))))
    }
}
