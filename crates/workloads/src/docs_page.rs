//! The page that tells users how each kind is grouped, written from the table so that it cannot fall behind.

use std::fmt::Write;

use crate::kinds::{Row, TABLE, readable};

const OPENING: &str = "\
# Workload kinds

Written by a test of `kai-workloads` from the table of kinds; `UPDATE_EXPECT=1 cargo test -p kai-workloads` writes it anew.

The pod grouper follows the first owner of a pod, the owner of that, and so on, as far as it may read; the last one, the top
owner, decides by its kind. Pods get the annotation `pod-group-name`, and the label `kai.scheduler/subgroup-name` where the
group has sub-groups. All pods of a group's minimum start together or not at all; further ones start one by one and are the
first to go.

| | comes from |
|---|---|
| name | `pg-<name>-<uid>` of whatever the group is per |
| queue | label `kai.scheduler/queue` of the owner, then of the pod; else label `project`, with the pod's `kai.scheduler/node-pool`; \
else `default-queue`. Decided once: later, edit `spec.queue` of the PodGroup |
| priority | label `priorityClassName` of the owner, then of the pod, then the pod's `spec.priorityClassName`; else the \
defaults of its kind, from the config map that `--default-priorities-configmap-name` and `-namespace` name; else the class in the table. Ray also: label `ray.io/priority-class-name` |
| preemptibility | label `kai.scheduler/preemptibility` of the owner, then of the pod; else the defaults of its kind; else by priority |
| topology | annotations `kai.scheduler/topology`, `kai.scheduler/topology-required-placement` and \
`kai.scheduler/topology-preferred-placement` of the owner |
| Kubernetes' own gangs | a pod with `spec.workloadRef` or `spec.schedulingGroup` is grouped as that Workload or PodGroup of \
`scheduling.k8s.io` says (`minCount`); queue and priority are as above |
| opting out | annotation `kai.scheduler/skip-podgrouper: \"true\"` on the pod or any owner |

";

const READING: &str = "
## What the grouper may read

`kai rbac` allows the grouper to read objects of these kinds and no others. An owner that it may not read is as if it were
not there: the object below it decides.

";

/// The whole page.
fn page() -> String {
    let mut page = OPENING.to_owned();
    page.push_str(
        "| kind | API | pod group | minimum | sub-groups | class | reads also |\n|---|---|---|---|---|---|---|\n",
    );
    for row in TABLE {
        let _ = writeln!(page, "{}", line(row));
    }
    page.push_str(
        "| that a Karta of `run.ai` describes | | as the Karta says | as the Karta says | per component | train | |\n",
    );
    page.push_str("| any other | | per owner | 1 | – | train | |\n");
    page.push_str(READING);
    let readable: Vec<_> = readable().into_iter().collect();
    for group in readable.chunk_by(|one, other| one.0 == other.0) {
        let kinds: Vec<&str> = group.iter().map(|(_, kind)| *kind).collect();
        let _ = writeln!(page, "- {}: {}", named(group[0].0), kinds.join(", "));
    }
    page
}

fn line(row: &Row) -> String {
    let api: Vec<String> = row.versions.iter().map(|version| api(row.group, version)).collect();
    let related: Vec<&str> = row.related.iter().map(|kind| kind.kind).collect();
    let about = row.about;
    let cells =
        [row.kind, &api.join(", "), about.group, about.minimum, about.sub_groups, about.class, &related.join(", ")];
    format!("| {} |", cells.join(" | "))
}

fn api(group: &str, version: &str) -> String {
    if group.is_empty() { format!("`{version}`") } else { format!("`{group}/{version}`") }
}

fn named(group: &str) -> String {
    if group.is_empty() { "core".to_owned() } else { format!("`{group}`") }
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;

    #[test]
    fn the_page_is_up_to_date() {
        expect_file!["../../../docs/reference/workloads.md"].assert_eq(&super::page());
    }
}
