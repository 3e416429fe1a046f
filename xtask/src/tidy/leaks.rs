//! No tracked file names the machine or the registry of a person or a company.

use super::Problem;
use crate::workspace::Workspace;

// Taken apart, so that this file does not name what it looks for.
const MACHINE: [&str; 5] = [
    concat!("/wo", "rk/"),
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/tm", "p/target"),
];
const REGISTRIES: [&str; 8] = [
    concat!("docker", ".io"),
    concat!("gcr", ".io"),
    concat!("ghcr", ".io"),
    concat!("mcr.microsoft", ".com"),
    concat!("nvcr", ".io"),
    concat!("public.ecr", ".aws"),
    concat!("quay", ".io"),
    concat!("registry.k8s", ".io"),
];

pub(super) fn check(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in &workspace.files {
        for (index, line) in file.text.lines().enumerate() {
            let place = || format!("{}:{}", file.path, index + 1);
            if let Some(path) = MACHINE.iter().find(|path| has_root(line, path)) {
                problems.push(Problem::new(place(), format!("names a place on some machine, {path}")));
            }
            if let Some(host) = REGISTRIES.iter().find(|host| has_host(line, host)) {
                problems.push(Problem::new(place(), format!("names a registry, {host}")));
            }
        }
    }
    problems
}

/// Whether an absolute path starts like that: `a/home/b` and `https://host/home/b` do not count.
fn has_root(line: &str, root: &str) -> bool {
    line.match_indices(root).any(|(at, _)| !line[..at].ends_with(in_word))
}

/// Whether a host is named so, or ends so; a longer word that merely contains it is another host.
fn has_host(line: &str, host: &str) -> bool {
    line.match_indices(host).any(|(at, _)| {
        let after = &line[at + host.len()..];
        let whole = !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '-');
        whole && !after.starts_with(in_word)
    })
}

fn in_word(c: char) -> bool {
    c.is_alphanumeric() || ['.', '-', '_'].contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{lines, sample};

    fn found(text: &str) -> Vec<String> {
        lines(&check(&sample(&[("file", text)], &[])))
    }

    #[test]
    fn a_machine_path_is_caught() {
        for root in MACHINE {
            for text in [format!("fine\npath = \"{root}me/x\""), format!("\n{root}me")] {
                assert_eq!(found(&text), [format!("file:2: names a place on some machine, {root}")]);
            }
        }
    }

    #[test]
    fn a_registry_is_caught() {
        for host in REGISTRIES {
            for text in [format!("image: {host}/x/y:1"), format!("see https://{host}")] {
                assert_eq!(found(&text), [format!("file:1: names a registry, {host}")]);
            }
        }
        assert_eq!(found(&format!("eu.{}", REGISTRIES[1])).len(), 1, "regional hosts count");
    }

    #[test]
    fn lookalikes_are_not() {
        let [work, home, ..] = MACHINE;
        for text in [
            format!("docs{work}x"),
            format!("https://example.com{home}x"),
            format!("..{work}x"),
            format!("x{}", REGISTRIES[1]),
            format!("{}ta", REGISTRIES[1]),
            "/var/lib/kubelet".to_owned(),
        ] {
            assert!(found(&text).is_empty(), "{text}");
        }
    }
}
