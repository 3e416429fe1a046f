//! Help texts, usage errors, exit codes.

use expect_test::{Expect, expect, expect_file};

use super::invocation::{Folder, kai, root, stdout, test_name, transcript};

fn check(arguments: &[&str], expected: &Expect) {
    expected.assert_eq(&transcript(&kai(&root(), arguments)));
}

#[test]
fn long_help() {
    expect_file!["snapshots/help.txt"].assert_eq(&stdout(&kai(&root(), &["--help"])));
}

#[test]
fn long_help_of_simulate() {
    expect_file!["snapshots/help-simulate.txt"].assert_eq(&stdout(&kai(&root(), &["simulate", "--help"])));
}

#[test]
fn short_help_of_simulate() {
    expect_file!["snapshots/help-simulate-short.txt"].assert_eq(&stdout(&kai(&root(), &["simulate", "-h"])));
}

#[test]
fn long_help_of_check_config() {
    expect_file!["snapshots/help-check-config.txt"].assert_eq(&stdout(&kai(&root(), &["check-config", "--help"])));
}

#[test]
fn long_help_of_components() {
    for command in [
        "scheduler",
        "binder",
        "podgrouper",
        "podgroupcontroller",
        "queuecontroller",
        "admission",
        "nodescaleadjuster",
        "all-in-one",
    ] {
        let expected = root().join(format!("crates/cli/tests/cli/snapshots/help-{command}.txt"));
        expect_file![expected].assert_eq(&stdout(&kai(&root(), &[command, "--help"])));
    }
}

#[test]
fn all_in_one_names_what_it_runs() {
    let help = stdout(&kai(&root(), &["all-in-one", "--help"]));
    let words: Vec<&str> = help.split_whitespace().collect();
    let expected =
        "Run scheduler, binder, podgrouper and both status controllers in one process (and admission with --webhooks)";
    assert!(words.join(" ").starts_with(expected), "{help}");
}

#[test]
fn version() {
    check(
        &["--version"],
        &expect![[r#"
        exit 0
        -- stdout
        kai 0.1.0
    "#]],
    );
}

#[test]
fn a_command_is_needed() {
    assert_eq!(kai(&root(), &[]).status.code(), Some(2));
}

#[test]
fn a_path_is_needed() {
    check(
        &["simulate"],
        &expect![[r#"
        exit 2
        -- stderr
        error: the following required arguments were not provided:
          <PATH>...

        Usage: kai simulate <PATH>...

        For more information, try '--help'.
    "#]],
    );
}

#[test]
fn an_unknown_format() {
    check(
        &["simulate", "examples/gang", "-o", "jsn"],
        &expect![[r#"
        exit 2
        -- stderr
        error: invalid value 'jsn' for '--output <FORMAT>'
          [possible values: table, json, yaml]

          tip: a similar value exists: 'json'

        For more information, try '--help'.
    "#]],
    );
}

#[test]
fn a_time_that_is_none() {
    check(
        &["simulate", "examples/gang", "--until", "soon"],
        &expect![[r#"
        exit 2
        -- stderr
        error: invalid value 'soon' for '--until <TIME>': write a time such as 90s, 5m or 1h30m

        For more information, try '--help'.
    "#]],
    );
}

#[test]
fn a_misspelt_command() {
    check(
        &["simulat", "examples/gang"],
        &expect![[r#"
        exit 2
        -- stderr
        error: unrecognized subcommand 'simulat'

          tip: a similar subcommand exists: 'simulate'

        Usage: kai [OPTIONS] <COMMAND>

        For more information, try '--help'.
    "#]],
    );
}

#[test]
fn crds_are_yaml() {
    let text = stdout(&kai(&root(), &["crds"]));
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  name: ")).collect();
    expect![[r#"
        configs.kai.scheduler
        schedulingshards.kai.scheduler
        topologies.kai.scheduler
        bindrequests.scheduling.run.ai
        podgroups.scheduling.run.ai
        queues.scheduling.run.ai"#]]
    .assert_eq(&names.join("\n"));
}

#[test]
fn a_missing_file() {
    let folder = Folder::new(&test_name());
    expect![[r#"
        exit 1
        -- stderr
        error: cannot read nowhere.yaml: there is no such file or folder
          help: check the path; give files or folders with Kubernetes YAML
    "#]]
    .assert_eq(&transcript(&folder.run(&["simulate", "nowhere.yaml"])));
}

#[test]
fn an_empty_folder() {
    let folder = Folder::new(&test_name());
    expect![[r#"
        exit 1
        -- stderr
        error: there are no manifests in .
          help: add manifests with the extension .yaml, .yml or .json
    "#]]
    .assert_eq(&transcript(&folder.run(&["simulate", "."])));
}

#[test]
fn a_configuration_file_that_the_scheduler_would_refuse() {
    let folder = Folder::new(&test_name()).file("config.yaml", "queueDepthPerAction: {allocate: 0}\n");
    expect![[r#"
        exit 2
        -- stderr
        error: queueDepthPerAction.allocate: must be at least 1
          --> config.yaml
          help: use a number from 1 up, or remove the line for all jobs
    "#]]
    .assert_eq(&transcript(&folder.run(&["check-config", "config.yaml"])));
}

#[test]
fn a_configuration_file_with_a_plugin_that_does_not_exist() {
    let config = "actions: allocate\ntiers: [{plugins: [{name: proportion}, {name: gpupak}]}]\nkeepNodesWhole: true\n";
    let folder = Folder::new(&test_name()).file("config.yaml", config);
    expect![[r#"
        exit 0
        -- stdout
        Actions
        allocate

        Plugins
        proportion, gpupak

        Settings
        placement                    off
        keep nodes whole             yes
        jobs tried per queue         all
        pods moved by consolidation  16
        past usage of queues         does not count
        -- stderr
        warning: gpupak is not a plugin and is skipped; did you mean gpupack?
    "#]]
    .assert_eq(&transcript(&folder.run(&["check-config", "config.yaml"])));
}
