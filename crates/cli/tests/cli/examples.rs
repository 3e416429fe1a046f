//! Each example gives what its README promises: as tables, beside the manifests, and as JSON.

use expect_test::expect_file;

use super::invocation::{kai, root, stdout};

macro_rules! examples {
    ($($test:ident: $name:literal, $expected:literal, [$($path:literal),+];)*) => {$(
        #[test]
        fn $test() {
            let table = kai(&root(), &["simulate", $($path),+]);
            expect_file![concat!("../../../../examples/", $expected)].assert_eq(&stdout(&table));
            let json = kai(&root(), &["simulate", $($path),+, "--output", "json"]);
            expect_file![concat!("snapshots/", $name, ".json")].assert_eq(&stdout(&json));
        }
    )*};
}

examples! {
    consolidation: "consolidation", "consolidation/expected.txt", ["examples/consolidation"];
    elastic: "elastic", "elastic/expected.txt", ["examples/elastic"];
    fair_share: "fair-share", "fair-share/expected.txt", ["examples/fair-share"];
    fractions: "fractions", "fractions/expected.txt", ["examples/fractions"];
    gang: "gang", "gang/expected.txt", ["examples/gang"];
    binpack: "binpack", "spread-vs-binpack/expected.txt", ["examples/spread-vs-binpack"];
    spread: "spread", "spread-vs-binpack/spread/expected.txt",
        ["examples/spread-vs-binpack/cluster.yaml", "examples/spread-vs-binpack/spread"];
}

#[test]
fn every_example_folder_is_tested_and_explained() {
    let tested = ["consolidation", "elastic", "fair-share", "fractions", "gang", "spread-vs-binpack"];
    let folders = std::fs::read_dir(root().join("examples")).expect("examples are there");
    for folder in folders.map(|entry| entry.expect("examples can be read").path()).filter(|path| path.is_dir()) {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        assert!(tested.contains(&name.as_str()), "examples/{name} has no test");
        assert!(folder.join("README.md").is_file(), "examples/{name} has no README.md");
    }
}

#[test]
fn yaml_says_the_same_as_json() {
    let arguments = |format| ["simulate", "examples/consolidation", "-o", format];
    let json: serde_json::Value = serde_json::from_str(&stdout(&kai(&root(), &arguments("json")))).expect("it is JSON");
    let yaml: serde_json::Value =
        serde_norway::from_str(&stdout(&kai(&root(), &arguments("yaml")))).expect("it is YAML");
    assert_eq!(json, yaml);
}

#[test]
fn colours_are_shown_on_demand_only() {
    let run = |color| stdout(&kai(&root(), &["simulate", "examples/gang", "--color", color]));
    assert!(run("always").contains("\u{1b}["));
    assert!(!run("auto").contains("\u{1b}["), "standard output is no terminal here");
    assert!(!run("never").contains("\u{1b}["));
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let run = || stdout(&kai(&root(), &["simulate", "examples/gang", "-o", "json", "--seed", "7"]));
    assert_eq!(run(), run());
}
