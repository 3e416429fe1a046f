//! Inputs that mean harm, through the binary: it ends by itself, says in short what is wrong, and sends the terminal nothing
//! that it would act upon. `tests/fuzz` has hundreds more, without a process for each.

use super::invocation::{Folder, test_name};

fn queues(length: usize) -> String {
    let queue = |index: usize| {
        let parent = index.checked_sub(1).map_or_else(String::new, |above| format!("q{above}"));
        format!(
            "---\n{{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {{name: q{index}}}, spec: {{parentQueue: \"{parent}\", \
             resources: {{}}}}}}\n"
        )
    };
    (0..length).map(queue).collect::<Vec<_>>().concat()
}

fn sub_groups(length: usize) -> String {
    let sub_group = |index: usize| match index {
        0 => "{name: s0}".to_owned(),
        _ => format!("{{name: s{index}, parent: s{}}}", index - 1),
    };
    let all: Vec<String> = (0..length).map(sub_group).collect();
    format!(
        "---\n{{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {{name: g, namespace: team}}, spec: {{queue: q0, \
         subGroups: [{}]}}}}\n",
        all.join(", ")
    )
}

/// Runs a command on a text; it must refuse it in short, with this in its error.
fn refused(command: &str, file: &str, text: &str, expected: &str) {
    let output = Folder::new(&test_name()).file(file, text).run(&[command, file]);
    let written = String::from_utf8_lossy(&output.stderr).into_owned();
    let start: String = text.chars().take(60).collect();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{start}: {:?} {written}", output.status);
    assert!(written.contains(expected), "{start}: {written}");
    assert!(written.len() < 2_000, "{start}: {} bytes", written.len());
    assert!(!written.chars().any(|letter| letter.is_control() && letter != '\n'), "{start}: {written:?}");
}

#[test]
fn what_is_beyond_a_bound_is_refused_by_its_name() {
    refused("simulate", "a.yaml", &queues(5_000), "at most 64");
    refused("simulate", "a.yaml", &(queues(1) + &sub_groups(5_000)), "at most 32");
    refused("simulate", "a.yaml", &(queues(1) + &sub_groups(20_000)), "at most 16384");
}

#[test]
fn nesting_without_end_is_refused() {
    for text in ["[".repeat(200_000), "- ".repeat(200_000), "{a: ".repeat(200_000)] {
        refused("simulate", "a.yaml", &text, "error");
        refused("check-config", "a.yaml", &text, "error");
    }
    refused("replay", "a.json", &format!("{{\"rawObjects\": {}", "[".repeat(200_000)), "error");
}

#[test]
fn errors_are_short_and_plain_whatever_they_repeat() {
    let escapes = "\\u001b]0;owned\\u0007\\u001b[2J".to_owned();
    let pod = |name: &str| {
        format!(
            "{{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {{\"name\": \"{name}\"}}, \"spec\": {{\"containers\": []}}}}\n"
        )
    };
    refused("simulate", "a.yaml", &pod(&escapes), "is not a name that Kubernetes accepts");
    refused("simulate", "a.yaml", &pod(&"x".repeat(1_000_000)), "is not a name that Kubernetes accepts");
    refused("simulate", "a.yaml", &format!("{{\"kind\": \"{}\"}}", "x".repeat(1_000_000)), "error");
    refused("simulate", "a.yaml", &format!("{{\"kind\": \"{escapes}\"}}"), "error");
    refused("check-config", "a.yaml", &format!("actions: \"{}\"", "x".repeat(100_000)), "is not an action");
    refused("check-config", "a.yaml", &format!("actions: \"{escapes}\""), "is not an action");
    refused("replay", "a.json", &format!("{{\"rawObjects\": \"{}\"}}", "x".repeat(1_000_000)), "snapshot");
}
