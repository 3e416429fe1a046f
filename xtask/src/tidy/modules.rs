//! Modules of a library build on each other in one direction, at every level; those of the engine in the order in which
//! ARCHITECTURE.md lists them. Code that only tests see does not count.

use super::{
    Problem,
    paths::{Source, read},
    tokens::{Token, tokens},
};
use crate::workspace::{File, Workspace};
use std::collections::{BTreeMap, BTreeSet};

/// A module by its names from the root of its crate.
type Path = Vec<String>;

/// The modules of one crate.
#[derive(Default)]
struct Crate {
    /// With the paths of their files.
    sources: BTreeMap<Path, (String, Source)>,
    /// Modules that are compiled for tests only.
    of_tests: BTreeSet<Path>,
}

/// Of the children of one module, which uses which, and where first.
type Uses = BTreeMap<Path, BTreeMap<(String, String), String>>;

pub(super) fn check(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in crates(workspace) {
        let uses = Crate::read(workspace, &name).uses();
        for (parent, uses) in &uses {
            problems.extend(cycles(uses).into_iter().map(|cycle| {
                let within = if parent.is_empty() { "the crate".to_owned() } else { parent.join("::") };
                let why: Vec<String> = cycle.windows(2).map(|pair| place_of(uses, &pair[0], &pair[1])).collect();
                let what = format!("modules of {within} use each other: {} ({})", cycle.join(" → "), why.join(", "));
                Problem::new(format!("crates/{name}"), what)
            }));
        }
        let order = listed(workspace, &name);
        let top = uses.get(&Path::new()).into_iter().flatten();
        problems.extend(top.filter_map(|((user, used), place)| {
            let at = |module: &String| order.iter().position(|listed| listed == module);
            let (user_at, used_at) = (at(user)?, at(used)?);
            (user_at < used_at).then(|| {
                Problem::new(place, format!("{user} uses {used}, which ARCHITECTURE.md lists as building on it"))
            })
        }));
    }
    problems
}

fn crates(workspace: &Workspace) -> BTreeSet<String> {
    let name = |file: &File| Some(file.path.strip_prefix("crates/")?.split_once("/src/")?.0.to_owned());
    workspace.files.iter().filter_map(name).collect()
}

/// The modules of the crate whose map says that they come in the order in which they build on each other.
fn listed(workspace: &Workspace, name: &str) -> Vec<String> {
    let map = workspace.files.iter().find(|file| file.path == "ARCHITECTURE.md");
    let heading = format!("`crates/{name}`");
    let mut sections = map.into_iter().flat_map(|map| map.text.split("### "));
    let Some(section) = sections.find(|section| section.starts_with(&heading)) else { return Vec::new() };
    if !section.contains("in the order in which they build on each other") {
        return Vec::new();
    }
    let link = format!("](crates/{name}/src/");
    let links = section.split(&link).skip(1);
    links.filter_map(|link| link.split([')', '/', '.']).next().map(str::to_owned)).collect()
}

impl Crate {
    fn read(workspace: &Workspace, name: &str) -> Self {
        let root = format!("crates/{name}/src/");
        let mut read_so_far = Self::default();
        for file in workspace.files.iter().filter(|file| file.is_rust()) {
            let Some(module) = file.path.strip_prefix(&root).and_then(module_of) else { continue };
            let (shipped, of_tests) = without_tests(&tokens(&file.text));
            read_so_far.of_tests.extend(of_tests.into_iter().map(|name| child(&module, &name)));
            read_so_far.sources.insert(module, (file.path.clone(), read(&shipped)));
        }
        let Self { sources, of_tests } = &mut read_so_far;
        sources.retain(|module, _| (0..=module.len()).all(|length| !of_tests.contains(&module[..length])));
        read_so_far
    }

    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (module, (file, source)) in &self.sources {
            for mention in &source.mentions {
                let Some(used) = self.resolve(module, &mention.path, 0) else { continue };
                let shared = module.iter().zip(&used).take_while(|(a, b)| a == b).count();
                let (Some(from), Some(to)) = (module.get(shared), used.get(shared)) else { continue };
                let place = format!("{file}:{}", mention.line);
                let pairs = uses.entry(module[..shared].to_vec()).or_default();
                pairs.entry((from.clone(), to.clone())).or_insert(place);
            }
        }
        uses
    }

    /// The module that a path leads to, through names that other modules import.
    fn resolve(&self, from: &Path, path: &str, depth: usize) -> Option<Path> {
        let mut at: Option<Path> = None;
        for name in path.split("::") {
            at = Some(match (name, at) {
                ("crate", None) => Path::new(),
                ("self", None) => from.clone(),
                ("super", at) => {
                    let mut parent = at.unwrap_or_else(|| from.clone());
                    parent.pop()?;
                    parent
                }
                (name, None) => {
                    let below = child(from, name);
                    self.sources.contains_key(&below).then_some(below)?
                }
                (name, Some(at)) => {
                    let below = child(&at, name);
                    if self.sources.contains_key(&below) {
                        below
                    } else {
                        let imported = self.sources.get(&at).and_then(|(_, source)| source.imported.get(name));
                        // A name may be imported through one that stands for itself.
                        let followed = imported.filter(|_| depth < 8);
                        return followed.and_then(|path| self.resolve(&at, path, depth + 1)).or(Some(at));
                    }
                }
            });
        }
        at
    }
}

fn child(module: &Path, name: &str) -> Path {
    let mut below = module.clone();
    below.push(name.to_owned());
    below
}

/// `a/mod.rs` and `a.rs` are `a`; `lib.rs` is the root. A program's `main.rs` is a crate of its own.
fn module_of(path: &str) -> Option<Path> {
    let path = path.strip_suffix(".rs")?;
    let mut names: Path = path.split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|last| last == "mod" || last == "lib" && path == "lib") {
        names.pop();
    }
    Some(names)
}

/// What is left without items under `#[cfg(test)]`, and the modules in files of their own among these.
fn without_tests<'a>(tokens: &[Token<'a>]) -> (Vec<Token<'a>>, Vec<String>) {
    const CFG_TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut shipped, mut modules) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        let here = &tokens[at..];
        if here.len() >= CFG_TEST.len() && here.iter().zip(CFG_TEST).all(|(token, text)| token.text == text) {
            let length = item(&here[CFG_TEST.len()..]);
            let item = &here[CFG_TEST.len()..][..length];
            let name = item.windows(3).find(|words| words[0].text == "mod" && words[2].text == ";");
            modules.extend(name.map(|words| words[1].text.to_owned()));
            at += CFG_TEST.len() + length;
        } else {
            shipped.push(tokens[at]);
            at += 1;
        }
    }
    (shipped, modules)
}

/// How many tokens the item has that starts here: up to its semicolon, or to the end of its body. A comma ends a field.
fn item(tokens: &[Token<'_>]) -> usize {
    let (mut depth, mut is_import) = (0_usize, false);
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "use" if depth == 0 => is_import = true,
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                let Some(less) = depth.checked_sub(1) else { return at };
                depth = less;
                if depth == 0 && token.text == "}" && !is_import {
                    return at + 1;
                }
            }
            ";" | "," if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// A shortest cycle through each module that is on one, each set of modules once. The first module stands at both ends.
fn cycles(uses: &BTreeMap<(String, String), String>) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    let modules: BTreeSet<&String> = uses.keys().map(|(user, _)| user).collect();
    for start in modules {
        let Some(cycle) = shortest_cycle(uses, start) else { continue };
        let members: BTreeSet<&String> = cycle.iter().collect();
        if !found.iter().any(|other| other.iter().collect::<BTreeSet<_>>() == members) {
            found.push(cycle);
        }
    }
    found
}

fn shortest_cycle(uses: &BTreeMap<(String, String), String>, start: &String) -> Option<Vec<String>> {
    let mut paths = vec![vec![start.clone()]];
    let mut seen = BTreeSet::new();
    let mut next = 0;
    while let Some(path) = paths.get(next).cloned() {
        next += 1;
        let last = path.last()?;
        for (_, used) in uses.keys().filter(|(user, used)| user == last && used != user) {
            let longer: Vec<String> = path.iter().chain([used]).cloned().collect();
            if used == start {
                return Some(longer);
            }
            if seen.insert(used) {
                paths.push(longer);
            }
        }
    }
    None
}

fn place_of(uses: &BTreeMap<(String, String), String>, user: &str, used: &str) -> String {
    uses.get(&(user.to_owned(), used.to_owned())).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{lines, sample};

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, &str)> =
            files.iter().map(|&(path, text)| (path.replace("src/", "crates/engine/src/"), text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        lines(&check(&sample(&files, &[])))
    }

    #[test]
    fn modules_that_use_each_other_are_caught_with_the_places() {
        let files =
            [("src/a.rs", "\nuse crate::b::B;"), ("src/b/mod.rs", "fn f() { crate::a::f() }"), ("src/lib.rs", "")];
        assert_eq!(
            found(&files),
            ["crates/engine: modules of the crate use each other: a → b → a \
              (crates/engine/src/a.rs:2, crates/engine/src/b/mod.rs:1)"]
        );
    }

    #[test]
    fn so_are_longer_cycles_and_those_inside_a_folder() {
        let long = [("src/a.rs", "use crate::b;"), ("src/b.rs", "use super::c;"), ("src/c.rs", "use crate::a::A;")];
        assert_eq!(found(&long).len(), 1);
        let inside = [("src/x/a.rs", "use super::b::B;"), ("src/x/b.rs", "use crate::x::a;"), ("src/x/mod.rs", "")];
        assert!(found(&inside)[0].contains("modules of x use each other: a → b → a"), "{:?}", found(&inside));
    }

    #[test]
    fn names_are_followed_through_the_module_that_exports_them() {
        let files = [("src/lib.rs", "pub use b::B;"), ("src/a.rs", "use crate::B;"), ("src/b.rs", "use crate::a::A;")];
        assert_eq!(found(&files).len(), 1);
        let through_itself = [("src/lib.rs", "pub use self::b::b;"), ("src/b.rs", "use crate::b::b;")];
        assert!(found(&through_itself).is_empty());
    }

    #[test]
    fn one_direction_is_fine_and_so_are_parents_and_tests() {
        let files = [
            ("src/lib.rs", "mod a; mod b; pub use b::B;"),
            ("src/a.rs", "#[cfg(test)] mod tests; #[cfg(test)] use crate::b::{B, C}; pub struct A;"),
            ("src/a/tests.rs", "use crate::b::B;"),
            ("src/b/mod.rs", "mod c; use c::C; use crate::a::A; #[cfg(test)] mod tests { use crate::d::D; }"),
            ("src/b/c.rs", "use super::B; use crate::a::A;"),
            ("src/d.rs", "use crate::b::B; struct D { #[cfg(test)] e: crate::e::E, f: u8 }"),
            ("src/e.rs", "use crate::d::D;"),
        ];
        assert!(found(&files).is_empty(), "{:?}", found(&files));
    }

    #[test]
    fn the_order_in_the_map_holds() {
        let map = "### `crates/engine`: x\n\nIt lists modules in the order in which they build on each other.\n\
             | [a.rs](crates/engine/src/a.rs) | |\n| [b/](crates/engine/src/b) | |\n\n### `crates/other`\n";
        let files = |a, b| found(&[("ARCHITECTURE.md", map), ("src/a.rs", a), ("src/b/mod.rs", b)]);
        assert!(files("", "use crate::a::A;").is_empty());
        assert_eq!(
            files("use crate::b::B;", ""),
            ["crates/engine/src/a.rs:1: a uses b, which ARCHITECTURE.md lists as building on it"]
        );
    }
}
