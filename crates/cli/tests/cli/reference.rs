//! The page on the command line is written from the help texts, so that it cannot fall behind.

use std::fmt::Write as _;

use expect_test::expect_file;

use super::invocation::{kai, root, stdout};

const OPENING: &str = "\
# Command line

Written by a test of `kai-cli` from the help texts; `UPDATE_EXPECT=1 cargo test -p kai-cli reference` writes it anew. Flags of
components have the names that NVIDIA KAI gives them, where it has them.
";

#[test]
fn the_page_on_the_command_line_is_up_to_date() {
    let overview = stdout(&kai(&root(), &["--help"]));
    let mut page = format!("{OPENING}\n## kai\n\n```text\n{overview}```\n");
    for command in commands(&overview) {
        let help = stdout(&kai(&root(), &[command, "--help"]));
        let _ = write!(page, "\n## kai {command}\n\n```text\n{help}```\n");
    }
    expect_file!["../../../../docs/reference/cli.md"].assert_eq(&page);
}

/// Names in the overview, which are indented by two; `help` itself has none.
fn commands(overview: &str) -> impl Iterator<Item = &str> {
    let lines = overview.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = lines.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help")
}
