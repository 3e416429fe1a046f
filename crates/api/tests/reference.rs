//! The page on labels, annotations and reasons is written from `keys.rs`, so that it cannot fall behind.

use std::fmt::Write as _;

use expect_test::expect_file;

const OPENING: &str = "\
# Labels, annotations and reasons

Written by a test of `kai-api` from its `keys.rs`; `UPDATE_EXPECT=1 cargo test -p kai-api` writes it anew. Names are those
of NVIDIA KAI unless noted.
";

/// Modules of `keys.rs` that have a section.
const SECTIONS: [(&str, &str); 10] = [
    ("label", "Labels"),
    ("node_label", "Labels of nodes"),
    ("annotation", "Annotations"),
    ("eviction_event", "Annotations of eviction events"),
    ("reason", "Types and reasons of conditions and events"),
    ("resource", "Resources"),
    ("received", "Kinds of allocated resources"),
    ("name", "Names of objects"),
    ("lease", "Names of Leases"),
    ("webhook", "Names of webhooks"),
];

#[test]
fn the_page_on_keys_is_up_to_date() {
    let keys = include_str!("../src/keys.rs");
    let mut page = OPENING.to_owned();
    for (module, title) in SECTIONS {
        let _ = write!(page, "\n## {title}\n\n| | |\n|---|---|\n");
        let start = format!("pub mod {module} {{\n");
        let (_, after) = keys.split_once(&start).unwrap_or_else(|| panic!("no module {module}"));
        let body = after.split("\n}").next().unwrap_or_default();
        let mut about: Vec<&str> = Vec::new();
        for line in body.lines().map(str::trim) {
            if let Some(text) = line.strip_prefix("///") {
                about.push(text.trim());
            } else if let Some(value) = value(line) {
                let _ = writeln!(page, "| `{value}` | {} |", plain(&about.join(" ")));
                about.clear();
            } else {
                about.clear();
            }
        }
    }
    expect_file!["../../../docs/reference/labels-and-annotations.md"].assert_eq(&page);
}

/// The text of a constant.
fn value(line: &str) -> Option<&str> {
    line.strip_prefix("pub const ")?.split_once(": &str = \"")?.1.strip_suffix("\";")
}

/// Without links between items.
fn plain(about: &str) -> String {
    let mut plain = String::new();
    for (number, part) in about.split(['[', ']']).enumerate() {
        let part = if number % 2 == 1 {
            part
        } else {
            part.split_once(')').filter(|_| part.starts_with('(')).map_or(part, |(_, rest)| rest)
        };
        plain.push_str(part);
    }
    plain
}
