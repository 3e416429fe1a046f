//! The page on labels, annotations and reasons is written from `keys.rs`, so that it cannot fall behind.

use std::fmt::Write as _;

use expect_test::expect_file;
use kai_api::keys::origins::{ANNOTATIONS, KeyOrigin, LABELS, Origin};

const OPENING: &str = "\
# Labels, annotations and reasons

Written by a test of `kai-api` from its `keys.rs`; `UPDATE_EXPECT=1 cargo test -p kai-api` writes it anew. Names are those
of NVIDIA KAI unless noted.

Labels and annotations that *kai* writes are state of its components: on pods and pod groups they may be neither set nor
changed by others, which a policy that `kai rbac` prints sees to, and they are never copied from a workload to its pod group.
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
        let origins = match module {
            "label" => Some(LABELS),
            "annotation" => Some(ANNOTATIONS),
            _ => None,
        };
        let head = if origins.is_some() { "| | written by | |\n|---|---|---|" } else { "| | |\n|---|---|" };
        let _ = write!(page, "\n## {title}\n\n{head}\n");
        let start = format!("pub mod {module} {{\n");
        let (_, after) = keys.split_once(&start).unwrap_or_else(|| panic!("no module {module}"));
        let body = after.split("\n}").next().unwrap_or_default();
        let mut about: Vec<&str> = Vec::new();
        for line in body.lines().map(str::trim) {
            if let Some(text) = line.strip_prefix("///") {
                about.push(text.trim());
            } else if let Some(value) = value(line) {
                let written_by = origins.map_or_else(String::new, |rows| format!(" {} |", written_by(rows, value)));
                let _ = writeln!(page, "| `{value}` |{written_by} {} |", plain(&about.join(" ")));
                about.clear();
            } else {
                about.clear();
            }
        }
    }
    expect_file!["../../../docs/reference/labels-and-annotations.md"].assert_eq(&page);
}

/// Every key has exactly one row.
fn written_by(rows: &[KeyOrigin], key: &str) -> String {
    let rows: Vec<&KeyOrigin> = rows.iter().filter(|row| row.key == key).collect();
    let [row] = rows[..] else { panic!("{key} has {} rows in keys/origins.rs", rows.len()) };
    match row.origin {
        Origin::Users => "users".to_owned(),
        Origin::State => "kai".to_owned(),
        Origin::Both(why) => format!("both: {why}"),
    }
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
