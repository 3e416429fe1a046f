//! Topology constraints written as annotations.

use kai_api::keys::annotation;

use crate::group::TopologyConstraint;
use crate::object::{FieldRef, Object};

impl TopologyConstraint {
    /// Empty strings count as absent; nothing at all is no constraint.
    pub(crate) fn new(topology: Option<&str>, required: Option<&str>, preferred: Option<&str>) -> Option<Self> {
        let filled = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(ToOwned::to_owned);
        let constraint =
            Self { topology: filled(topology), required_level: filled(required), preferred_level: filled(preferred) };
        (constraint != Self::default()).then_some(constraint)
    }

    pub(crate) fn has_level(&self) -> bool {
        self.required_level.is_some() || self.preferred_level.is_some()
    }

    /// Names a topology and at least one of its levels.
    pub(crate) fn is_complete(&self) -> bool {
        self.topology.is_some() && self.has_level()
    }
}

/// Of a whole group: the three annotations as they stand; what they mean is checked elsewhere.
pub(crate) fn of_object(object: Object<'_>) -> Option<TopologyConstraint> {
    TopologyConstraint::new(
        object.annotation(annotation::TOPOLOGY),
        object.annotation(annotation::TOPOLOGY_REQUIRED),
        object.annotation(annotation::TOPOLOGY_PREFERRED),
    )
}

/// Of a pod or job template, possibly incomplete.
pub(crate) fn of_template(template: &FieldRef<'_>) -> Option<TopologyConstraint> {
    TopologyConstraint::new(
        template.annotation(annotation::TOPOLOGY),
        template.annotation(annotation::TOPOLOGY_REQUIRED),
        template.annotation(annotation::TOPOLOGY_PREFERRED),
    )
}

/// Of one segment of workers: the pod's annotations, then its template's; the name also from the owner.
pub(crate) fn of_segment(
    pod: Object<'_>,
    template: Option<&FieldRef<'_>>,
    owner: Object<'_>,
) -> Option<TopologyConstraint> {
    let filled = |text: &&str| !text.is_empty();
    let nearest = |key: &str| {
        let templated = || template.and_then(|template| template.annotation(key)).filter(filled);
        pod.annotation(key).filter(filled).or_else(templated)
    };
    let topology = nearest(annotation::TOPOLOGY).or_else(|| owner.annotation(annotation::TOPOLOGY));
    TopologyConstraint::new(
        topology,
        nearest(annotation::SEGMENT_TOPOLOGY_REQUIRED),
        nearest(annotation::SEGMENT_TOPOLOGY_PREFERRED),
    )
    .filter(TopologyConstraint::is_complete)
}
