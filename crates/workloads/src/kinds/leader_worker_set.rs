//! `LeaderWorkerSet`: one group per replica, its leader and its workers as leaves.
//!
//! Workers may be cut into segments that stay together. With type `LeaderWorker` the leader lives in the
//! first segment, with `LeaderExcluded` beside them:
//!
//! ```text
//! size 5, segments of 2:
//!   segment-0   2 children            leader      1
//!   segment-1   2                     segment-0   2
//!   ├ leader    1   < segment-0       segment-1   2
//!   └ workers   2   < segment-0
//! ```

use kai_api::keys::annotation;

use crate::error::GroupError;
use crate::group::{GroupSpec, Minimum, SubGroupSpec};
use crate::kinds::SEGMENTS_MAX;
use crate::object::{FieldRef, Object};
use crate::priority::TRAIN;
use crate::row::RuleDoc;
use crate::topology;
use crate::workload::Workload;

const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
const SIZE: &str = "leaderworkerset.sigs.k8s.io/size";

pub const ABOUT: RuleDoc = RuleDoc {
    group: "per replica",
    minimum: "the size of a replica; the leader alone until it runs, with `LeaderReady`",
    sub_groups: "`leader` and `workers`, or segments",
    class: TRAIN,
};

pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    let (set, pod) = (workload.object, workload.pod);
    let template = set.root().field_required("spec.leaderWorkerTemplate")?;
    let index = worker_index(pod)?;
    let gang = gang(set, pod, &template, index)?;

    let mut spec = workload.base();
    if let Ok(Some(replica)) = pod.label_int(GROUP_INDEX) {
        spec.name = format!("{}-group-{replica}", spec.name);
    }
    spec.minimum = Minimum::Members(if gang.leader_only { 1 } else { gang.size });
    spec.sub_groups = match segments(set, &template, gang.size)? {
        None => leader_and_workers(&gang, pod, index),
        Some(segments) => segmented(workload, &template, &segments, index)?,
    };
    if gang.leader_only {
        require_only_the_leader(&mut spec.sub_groups);
    }
    Ok(spec)
}

struct Gang {
    size: i32,
    /// The workers are created once the leader is ready: until then it must not wait for them.
    leader_only: bool,
}

fn gang(set: Object<'_>, pod: Object<'_>, template: &FieldRef<'_>, index: Option<i32>) -> Result<Gang, GroupError> {
    let size = template.field_required("size")?;
    let declared = size.as_int()?;
    if declared <= 0 {
        return Err(size.malformed("above 0"));
    }
    match set.root().field("spec.startupPolicy")? {
        None => Ok(Gang { size: declared, leader_only: false }),
        Some(policy) => match policy.as_text()? {
            "LeaderCreated" => Ok(Gang { size: declared, leader_only: false }),
            "LeaderReady" => {
                // The pod remembers the size it was created with, which outlives an edit of the set.
                let created = pod.annotation_int(SIZE).ok().flatten().filter(|size| *size > 0);
                let scheduled = pod.value["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
                Ok(Gang { size: created.unwrap_or(declared), leader_only: index == Some(0) && !scheduled })
            }
            _ => Err(policy.malformed("LeaderCreated or LeaderReady")),
        },
    }
}

fn worker_index(pod: Object<'_>) -> Result<Option<i32>, GroupError> {
    let index = pod.label_int(WORKER_INDEX)?;
    if index.is_some_and(|index| index < 0) {
        let found = pod.label(WORKER_INDEX).unwrap_or_default();
        return Err(pod.malformed(format!("label {WORKER_INDEX}"), "an integer from 0", found));
    }
    Ok(index)
}

fn leader_and_workers(gang: &Gang, pod: Object<'_>, index: Option<i32>) -> Vec<SubGroupSpec> {
    let is_leader = index == Some(0);
    let mut leaves = vec![SubGroupSpec::leaf("leader", 1).holding(pod, is_leader)];
    if gang.size > 1 && !gang.leader_only {
        leaves.push(SubGroupSpec::leaf("workers", gang.size - 1).holding(pod, !is_leader));
    }
    leaves
}

/// Every other leaf keeps its place and fills up once the leader runs.
fn require_only_the_leader(sub_groups: &mut [SubGroupSpec]) {
    for sub_group in sub_groups {
        if let (Minimum::Members(members), false) = (&mut sub_group.minimum, sub_group.name == "leader") {
            *members = 0;
        }
    }
}

/// How the indices 0 … size-1 fall into segments.
struct Segments {
    count: i32,
    /// Pods in a full segment.
    full: i32,
    size: i32,
    /// The workers divide evenly, and the leader is on top of the first segment.
    leader_on_top: bool,
    leader_inside: bool,
}

impl Segments {
    fn of(&self, index: i32) -> i32 {
        if self.leader_on_top { (index - 1).max(0) / self.full } else { index / self.full }
    }

    /// Pods in a segment, the leader included.
    fn pods(&self, segment: i32) -> i32 {
        if self.leader_on_top {
            self.full + i32::from(segment == 0)
        } else {
            self.full.min(self.size - segment * self.full)
        }
    }
}

fn segments(set: Object<'_>, template: &FieldRef<'_>, size: i32) -> Result<Option<Segments>, GroupError> {
    let Some(full) = segment_size(set, template)? else { return Ok(None) };
    let refused =
        |expected: String| template.field_required("size").map_or_else(|e| e, |size| size.malformed(expected));
    if full <= 1 || full > size {
        return Err(refused(format!("at least the size of a segment, which is {full} and must be above 1")));
    }
    let leader_on_top = (size - 1) % full == 0;
    let leader_inside = match template.field("subGroupPolicy.subGroupPolicyType")? {
        None => true,
        Some(kind) => match kind.as_text()? {
            "LeaderWorker" => true,
            "LeaderExcluded" => false,
            _ => return Err(kind.malformed("LeaderWorker or LeaderExcluded")),
        },
    };
    if !leader_inside && !leader_on_top {
        return Err(refused(format!("one leader and a multiple of {full} workers")));
    }
    let mut segments = Segments { count: 0, full, size, leader_on_top, leader_inside };
    segments.count = segments.of(size - 1) + 1;
    if segments.count > SEGMENTS_MAX {
        return Err(refused(format!("cut into at most {SEGMENTS_MAX} segments")));
    }
    Ok(Some(segments))
}

/// The set's own policy, else our annotation on the set, else on the template of its workers.
fn segment_size(set: Object<'_>, template: &FieldRef<'_>) -> Result<Option<i32>, GroupError> {
    if let Some(size) = template.int("subGroupPolicy.subGroupSize")? {
        return Ok(Some(size));
    }
    if let Some(size) = set.annotation_int(annotation::SEGMENT_SIZE)? {
        return Ok(Some(size));
    }
    let Some(worker) = template.field("workerTemplate")? else { return Ok(None) };
    let Some(text) = worker.annotation(annotation::SEGMENT_SIZE) else { return Ok(None) };
    let error = |_| worker.malformed_annotation(annotation::SEGMENT_SIZE, "an integer", text);
    text.parse().map(Some).map_err(error)
}

fn segmented(
    workload: &Workload<'_>,
    template: &FieldRef<'_>,
    segments: &Segments,
    index: Option<i32>,
) -> Result<Vec<SubGroupSpec>, GroupError> {
    let pod = workload.pod;
    let index = match index {
        Some(index) => index,
        None => pod.label_required(WORKER_INDEX).map(|_| 0)?,
    };
    let is_leader = index == 0;
    // An index left over from a larger size may fall behind the last segment: then it has no leaf.
    let mine = segments.of(index);
    let worker = template.field("workerTemplate")?;
    let constraint = topology::of_segment(pod, worker.as_ref(), workload.object);
    let leader = SubGroupSpec::leaf("leader", 1).holding(pod, is_leader);
    let leaf = |segment: i32, members: i32| {
        SubGroupSpec::leaf(format!("segment-{segment}"), members)
            .within(constraint.clone())
            .holding(pod, !is_leader && mine == segment)
    };
    if !segments.leader_inside {
        let leaves = (0..segments.count).map(|segment| leaf(segment, segments.full));
        return Ok([leader].into_iter().chain(leaves).collect());
    }
    let first = "segment-0";
    let mut sub_groups = vec![SubGroupSpec::parent(first, 2).within(constraint.clone())];
    sub_groups.extend((1..segments.count).map(|segment| leaf(segment, segments.pods(segment))));
    let workers = SubGroupSpec::leaf("workers", segments.pods(0) - 1).holding(pod, !is_leader && mine == 0);
    sub_groups.extend([leader.below(first), workers.below(first)]);
    Ok(sub_groups)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::related::ObjectStore;
    use crate::testing::{outline, try_group};

    fn set(size: i32, policy: &Value) -> Value {
        json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
            "metadata": {"name": "lws", "uid": "u"},
            "spec": {"leaderWorkerTemplate": {"size": size, "subGroupPolicy": policy}}})
    }

    fn pod(index: i32) -> Value {
        json!({"metadata": {"name": "p", "labels": {WORKER_INDEX: index.to_string(), GROUP_INDEX: "3"}}})
    }

    fn group(set: &Value, pod: &Value) -> Result<String, GroupError> {
        try_group(std::slice::from_ref(set), pod, &ObjectStore::default()).map(|spec| outline(&spec))
    }

    #[track_caller]
    fn check_inside(size: i32, segment: i32, index: i32, expected: &str) {
        let set = set(size, &json!({"subGroupSize": segment}));
        assert_eq!(group(&set, &pod(index)).unwrap(), expected);
    }

    #[track_caller]
    fn check_excluded(size: i32, segment: i32, index: i32, expected: &str) {
        let set = set(size, &json!({"subGroupSize": segment, "subGroupPolicyType": "LeaderExcluded"}));
        assert_eq!(group(&set, &pod(index)).unwrap(), expected);
    }

    #[test]
    fn each_replica_is_a_gang_of_leader_and_workers() {
        let spec = try_group(&[set(5, &Value::Null)], &pod(0), &ObjectStore::default()).unwrap();
        assert_eq!((spec.name.as_str(), outline(&spec).as_str()), ("pg-lws-u-group-3", "* 5\nleader 1 [p]\nworkers 4"));
        assert_eq!(group(&set(1, &Value::Null), &pod(0)).unwrap(), "* 1\nleader 1 [p]");
    }

    #[test]
    fn workers_that_divide_evenly_leave_the_leader_on_top() {
        let tree = "segment-0 2!\nsegment-1 2\nleader 1 < segment-0\nworkers 2 < segment-0";
        check_inside(5, 2, 2, &format!("* 5\n{tree} [p]"));
        check_inside(5, 2, 3, &format!("* 5\n{}", tree.replace("segment-1 2", "segment-1 2 [p]")));
        check_inside(5, 2, 5, &format!("* 5\n{tree}"));
        check_excluded(5, 2, 4, "* 5\nleader 1\nsegment-0 2\nsegment-1 2 [p]");
        check_inside(9, 4, 0, "* 9\nsegment-0 2!\nsegment-1 4\nleader 1 < segment-0 [p]\nworkers 4 < segment-0");
    }

    #[test]
    fn otherwise_the_leader_takes_a_place_in_the_first_segment() {
        check_inside(
            6,
            2,
            1,
            "* 6\nsegment-0 2!\nsegment-1 2\nsegment-2 2\nleader 1 < segment-0\nworkers 1 < segment-0 [p]",
        );
        check_inside(8, 4, 7, "* 8\nsegment-0 2!\nsegment-1 4 [p]\nleader 1 < segment-0\nworkers 3 < segment-0");
        check_inside(
            10,
            4,
            9,
            "* 10\nsegment-0 2!\nsegment-1 4\nsegment-2 2 [p]\nleader 1 < segment-0\nworkers 3 < segment-0",
        );
        check_inside(2, 2, 1, "* 2\nsegment-0 2!\nleader 1 < segment-0\nworkers 1 < segment-0 [p]");
        assert!(group(&set(6, &json!({"subGroupSize": 2, "subGroupPolicyType": "LeaderExcluded"})), &pod(0)).is_err());
    }

    #[test]
    fn a_single_segment_does_not_count_the_leader_twice() {
        check_inside(3, 2, 1, "* 3\nsegment-0 2!\nleader 1 < segment-0\nworkers 2 < segment-0 [p]");
        check_excluded(3, 2, 1, "* 3\nleader 1\nsegment-0 2 [p]");
    }

    #[test]
    fn a_leader_that_must_be_ready_first_starts_alone() {
        let mut plain = set(5, &Value::Null);
        plain["spec"]["startupPolicy"] = json!("LeaderReady");
        assert_eq!(group(&plain, &pod(0)).unwrap(), "* 1\nleader 1 [p]");
        let mut running = pod(0);
        running["spec"] = json!({"nodeName": "n"});
        running["metadata"]["annotations"] = json!({SIZE: "4"});
        assert_eq!(group(&plain, &running).unwrap(), "* 4\nleader 1 [p]\nworkers 3");

        let mut cut = set(5, &json!({"subGroupSize": 2}));
        cut["spec"]["startupPolicy"] = json!("LeaderReady");
        let expected = "* 1\nsegment-0 2!\nsegment-1 0\nleader 1 < segment-0 [p]\nworkers 0 < segment-0";
        assert_eq!(group(&cut, &pod(0)).unwrap(), expected);
    }

    #[test]
    fn sizes_and_indices_must_make_sense() {
        for policy in [json!({"subGroupSize": 1}), json!({"subGroupSize": 6}), json!({"subGroupSize": "2"})] {
            assert!(group(&set(5, &policy), &pod(0)).is_err(), "{policy}");
        }
        assert!(group(&set(0, &Value::Null), &pod(0)).is_err());
        assert!(group(&set(5, &Value::Null), &pod(-1)).is_err());
        assert!(group(&set(i32::MAX, &json!({"subGroupSize": 2})), &pod(0)).is_err());
        let unlabelled = json!({"metadata": {"name": "p"}});
        assert!(group(&set(5, &json!({"subGroupSize": 2})), &unlabelled).is_err());
        let mut annotated = set(5, &Value::Null);
        annotated["metadata"]["annotations"] = json!({annotation::SEGMENT_SIZE: ""});
        assert!(group(&annotated, &pod(0)).is_err());
    }
}
