//! Who shares a GPU with whom, compared without regard to the names of new devices.

use std::collections::{BTreeMap, BTreeSet};

use super::case::{Case, Status, Wanted};
use super::session::{FRESH, Session};
use crate::verdict::Difference;

/// A device: its label, unless it was opened in this round, with the tasks on it.
type Sharing = Vec<(Option<String>, BTreeSet<String>)>;

/// Compares with the recorded labels of the tasks that have some.
pub(super) fn observed(session: &Session<'_>, labels: &BTreeMap<String, Vec<String>>) -> Vec<Difference> {
    // A task that was evicted leaves the device it held; KAI may have relabelled it in a what-if that came to nothing.
    let evicted = |uid: &str| {
        session.after.get(uid).status == Status::Releasing && session.before.get(uid).status != Status::Releasing
    };
    let labels: BTreeMap<_, _> = labels.iter().filter(|(uid, _)| !evicted(uid)).collect();
    let expected = sharing(labels.iter().map(|(uid, labels)| (*uid, *labels)), "new-");
    let ours = labels.keys().map(|uid| (*uid, &session.after.get(uid).groups));
    let got = sharing(ours, FRESH);
    if expected == got {
        return Vec::new();
    }
    let missing = expected.iter().filter(|device| !got.contains(device)).map(text);
    let surplus = got.iter().filter(|device| !expected.contains(device)).map(text);
    let (missing, surplus): (Vec<String>, Vec<String>) = (missing.collect(), surplus.collect());
    vec![Difference::new("shared devices", missing.join(" "), surplus.join(" "))]
}

fn sharing<'a>(tasks: impl Iterator<Item = (&'a String, &'a Vec<String>)>, fresh: &str) -> Sharing {
    let mut devices: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (uid, labels) in tasks {
        for label in labels {
            devices.entry(label).or_default().insert(uid.clone());
        }
    }
    let name = |label: &str| (!label.starts_with(fresh)).then(|| label.to_string());
    let mut sharing: Sharing = devices.into_iter().map(|(label, tasks)| (name(label), tasks)).collect();
    sharing.sort();
    sharing
}

fn text((label, tasks): &(Option<String>, BTreeSet<String>)) -> String {
    let tasks = tasks.iter().map(String::as_str).collect::<Vec<_>>().join("+");
    format!("{}={tasks}", label.as_deref().unwrap_or("new"))
}

/// Checks symbolic labels: on one node, tasks share as many devices as they share labels.
pub(super) fn symbolic(case: &Case, session: &Session<'_>) -> Vec<Difference> {
    let labelled: Vec<(&str, &Vec<String>)> = case
        .tasks()
        .filter_map(|(job, task)| {
            let wanted = wanted(case, &job.uid, &task.uid)?;
            (task.request.kind.shares() && !wanted.ignore_gpu_groups && !wanted.gpu_groups.is_empty())
                .then_some((task.uid.as_str(), &wanted.gpu_groups))
        })
        .collect();
    let mut differences = Vec::new();
    for (index, (left, left_labels)) in labelled.iter().enumerate() {
        for (right, right_labels) in &labelled[index + 1..] {
            let (here, there) = (session.after.get(left), session.after.get(right));
            if here.node.is_none() || here.node != there.node {
                continue;
            }
            let expected = common(left_labels, right_labels);
            let got = common(&here.groups, &there.groups);
            if expected != got {
                differences.push(Difference::new(format!("devices shared by {left} and {right}"), expected, got));
            }
        }
    }
    differences
}

/// What is expected of a task, by its own name or by its job's.
fn wanted<'a>(case: &'a Case, job: &str, task: &str) -> Option<&'a Wanted> {
    case.expect.tasks.get(task).or_else(|| case.expect.jobs.get(job))
}

fn common(left: &[String], right: &[String]) -> usize {
    left.iter().filter(|label| right.contains(label)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(tasks: &[(&str, &[&str])], fresh: &str) -> Sharing {
        let owned: BTreeMap<String, Vec<String>> = tasks
            .iter()
            .map(|(uid, labels)| ((*uid).to_string(), labels.iter().map(ToString::to_string).collect()))
            .collect();
        sharing(owned.iter(), fresh)
    }

    #[test]
    fn new_devices_are_identified_by_the_pods_on_them() {
        let theirs = shared(&[("a", &["new-0", "new-1"]), ("b", &["new-1"]), ("c", &["0-g0"])], "new-");
        let ours = [("a", &["opened-1-7", "opened-1-2"][..]), ("b", &["opened-1-7"]), ("c", &["0-g0"])];
        assert_eq!(theirs, shared(&ours, FRESH));
        let apart = [("a", &["opened-1-7", "opened-1-2"][..]), ("b", &["opened-1-3"]), ("c", &["0-g0"])];
        assert_ne!(theirs, shared(&apart, FRESH));
    }

    #[test]
    fn devices_of_the_input_keep_their_names() {
        assert_ne!(shared(&[("a", &["0-g0"])], "new-"), shared(&[("a", &["0-g1"])], FRESH));
        assert_ne!(shared(&[("a", &["new-0"])], "new-"), shared(&[("a", &["0-g1"])], FRESH));
    }
}
