//! Who may depend on whom. An arrow may be skipped, never reversed.

use super::{PURE, Problem};
use crate::workspace::{Dependency, Workspace};

enum May {
    Use(&'static [&'static str]),
    UseAnything,
}

const LAYERS: [(&str, May); 19] = [
    ("kai-engine", May::Use(&[])),
    ("kai-api", May::Use(&[])),
    ("kai-workloads", May::Use(&["kai-api"])),
    ("kai-control", May::Use(&["kai-engine", "kai-api", "kai-workloads"])),
    ("kai-process-stats", May::Use(&[])),
    ("kai-generate", May::Use(&["kai-api"])),
    ("kai-record", May::Use(&["kai-control", "kai-engine", "kai-api", "kai-workloads"])),
    ("kai-sim", May::Use(&["kai-control", "kai-engine", "kai-api", "kai-workloads"])),
    ("kai-live", May::Use(&["kai-control", "kai-engine", "kai-api", "kai-workloads", "kai-process-stats"])),
    ("kai-reservation", May::Use(&["kai-api", "test-cluster"])),
    ("kai-cli", May::UseAnything),
    ("bench", May::UseAnything),
    ("bench-churn", May::UseAnything),
    ("bench-live", May::UseAnything),
    ("conformance", May::UseAnything),
    ("fuzz", May::UseAnything),
    ("golden", May::UseAnything),
    ("test-cluster", May::Use(&["kai-api"])),
    ("xtask", May::UseAnything),
];

/// Crates that bring a runtime, a network, or chance, whatever else they are good for.
const IMPURE: [&str; 15] = [
    "async-std",
    "async-trait",
    "fastrand",
    "futures",
    "futures-util",
    "getrandom",
    "hyper",
    "kube-client",
    "kube-runtime",
    "rand",
    "reqwest",
    "smol",
    "tokio",
    "tokio-util",
    "tower",
];
/// Features of kube that bring the same.
const IMPURE_KUBE: [&str; 6] = ["client", "config", "default", "rustls-tls", "runtime", "ws"];

pub(super) fn check(workspace: &Workspace) -> Vec<Problem> {
    let ours: Vec<&str> = workspace.packages.iter().map(|package| package.name.as_str()).collect();
    let mut problems = Vec::new();
    for package in &workspace.packages {
        let Some((_, may)) = LAYERS.iter().find(|(name, _)| *name == package.name) else {
            problems.push(Problem::new(&package.name, "has no place in the table of layers"));
            continue;
        };
        if let May::Use(allowed) = may {
            let below = |name: &str| !ours.contains(&name) || allowed.contains(&name);
            for dependency in package.dependencies.iter().filter(|dependency| !below(&dependency.name)) {
                problems.push(Problem::new(&package.name, format!("must not depend on {}", dependency.name)));
            }
        }
        if is_pure(&package.name) {
            for what in package.dependencies.iter().filter_map(impurity) {
                problems.push(Problem::new(&package.name, format!("is pure and must not depend on {what}")));
            }
        }
    }
    problems
}

/// `api` has no logic to keep pure, but every pure crate above links what it links.
fn is_pure(package: &str) -> bool {
    package.strip_prefix("kai-").is_some_and(|name| name == "api" || PURE.contains(&name))
}

fn impurity(dependency: &Dependency) -> Option<String> {
    if IMPURE.contains(&dependency.name.as_str()) {
        return Some(dependency.name.clone());
    }
    let feature = dependency.features.iter().find(|feature| IMPURE_KUBE.contains(&feature.as_str()))?;
    (dependency.name == "kube").then(|| format!("kube with feature {feature}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{lines, sample};

    fn found(packages: &[(&str, &[&str])]) -> Vec<String> {
        lines(&check(&sample(&[], packages)))
    }

    #[test]
    fn the_intended_arrows_are_fine() {
        let packages: &[(&str, &[&str])] = &[
            ("kai-engine", &["fixedbitset"]),
            ("kai-api", &["kube+derive"]),
            ("kai-workloads", &["kai-api"]),
            ("kai-control", &["kai-engine", "kai-api", "kai-workloads"]),
            ("kai-sim", &["kai-control", "kai-engine"]),
            ("kai-live", &["kai-control", "tokio", "kube+client+runtime"]),
            ("kai-cli", &["kai-sim", "kai-live", "kai-engine"]),
            ("conformance", &["kai-sim"]),
        ];
        assert!(found(packages).is_empty());
    }

    #[test]
    fn a_reversed_arrow_is_caught() {
        assert_eq!(
            found(&[("kai-engine", &["kai-api"]), ("kai-api", &[])]),
            ["kai-engine: must not depend on kai-api"]
        );
        assert_eq!(
            found(&[("kai-control", &["kai-sim"]), ("kai-sim", &[])]),
            ["kai-control: must not depend on kai-sim"]
        );
        assert_eq!(
            found(&[("kai-workloads", &["kai-engine"]), ("kai-engine", &[])]),
            ["kai-workloads: must not depend on kai-engine"]
        );
    }

    #[test]
    fn a_runtime_or_client_in_a_pure_crate_is_caught() {
        assert_eq!(found(&[("kai-sim", &["tokio"])]), ["kai-sim: is pure and must not depend on tokio"]);
        assert_eq!(found(&[("kai-engine", &["rand"])]), ["kai-engine: is pure and must not depend on rand"]);
        assert_eq!(
            found(&[("kai-api", &["kube+derive+client"])]),
            ["kai-api: is pure and must not depend on kube with feature client"]
        );
    }

    #[test]
    fn a_new_crate_must_be_given_its_place() {
        assert_eq!(found(&[("kai-novelty", &[])]), ["kai-novelty: has no place in the table of layers"]);
    }
}
