//! Links between documents lead somewhere, and so do the paths of files that they name.

use super::Problem;
use crate::workspace::{File, Workspace};
use std::collections::BTreeSet;

/// A name in code font that begins so is a path from the root.
const FOLDERS: [&str; 8] = ["bench/", "crates/", "docs/", "examples/", "fuzz/", "tests/", "xtask/", ".ci/"];

pub(super) fn check(workspace: &Workspace) -> Vec<Problem> {
    let known = known_paths(&workspace.files);
    let mut problems = Vec::new();
    for file in workspace.files.iter().filter(|file| is_document(&file.path)) {
        for (number, line) in prose(&file.text) {
            let place = || format!("{}:{number}", file.path);
            for link in links(line) {
                let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
                let Some(path) = resolve(&file.path, path).filter(|path| known.contains(path.as_str())) else {
                    problems.push(Problem::new(place(), format!("links to {link}, which is not there")));
                    continue;
                };
                let target = workspace.files.iter().find(|file| file.path == path && is_document(&file.path));
                if !anchor.is_empty() && target.is_some_and(|target| !headings(&target.text).contains(anchor)) {
                    problems.push(Problem::new(place(), format!("links to {link}, which is no heading there")));
                }
            }
            for name in code_spans(line).filter(|name| is_path(name)) {
                if !known.contains(name.trim_end_matches('/')) {
                    problems.push(Problem::new(place(), format!("names {name}, which is not there")));
                }
            }
        }
    }
    problems
}

fn is_document(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, extension)| extension == "md")
}

/// Files and all folders above them.
fn known_paths(files: &[File]) -> BTreeSet<&str> {
    let mut known = BTreeSet::from([""]);
    for file in files {
        let ends = file.path.match_indices('/').map(|(at, _)| at).chain([file.path.len()]);
        known.extend(ends.map(|end| &file.path[..end]));
    }
    known
}

/// Numbered lines outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// Targets of `[text](target)` within the repository.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    targets.filter(|target| !target.contains("://") && !target.is_empty())
}

/// Text between backticks.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether it is a path from the root, and not a pattern for several.
fn is_path(name: &str) -> bool {
    FOLDERS.iter().any(|folder| name.starts_with(folder)) && !name.contains(['<', '*', '{', ' ', '…'])
}

/// A path from the root; `None` if it leads out of it.
fn resolve(from: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

/// Anchors of a document: its headings in small letters, with dashes.
fn headings(text: &str) -> BTreeSet<String> {
    let titles = prose(text).filter_map(|(_, line)| line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' '));
    let kept = |letter: &char| letter.is_alphanumeric() || ['-', '_', ' '].contains(letter);
    titles.map(|title| title.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{lines, sample};

    #[test]
    fn dead_links_and_paths_are_caught() {
        let text = "# One\n[a](docs/a.md#two-words) [b](docs/b.md) [c](https://c) [d](#one) [e](docs) `docs/a.md`\n\
                    `crates/gone.rs` `crates/<name>.rs` [f](../up.md) [g](docs/a.md#three)\n```\n[h](gone.md)\n```\n";
        let workspace = sample(&[("README.md", text), ("docs/a.md", "## Two words\n[up](../README.md#one)\n")], &[]);
        let found = [
            "README.md:2: links to docs/b.md, which is not there",
            "README.md:3: links to ../up.md, which is not there",
            "README.md:3: links to docs/a.md#three, which is no heading there",
            "README.md:3: names crates/gone.rs, which is not there",
        ];
        assert_eq!(lines(&check(&workspace)), found);
    }
}
