//! Pure crates touch nothing outside: same input, same output, on any machine at any time.

use super::{
    PURE, Problem,
    paths::{Mention, mentions},
    tokens::{Token, tokens},
};
use crate::workspace::{File, Workspace};

/// Paths, and all below them.
const BANNED: [(&str, &str); 20] = [
    ("std::time::Instant", "time is an argument"),
    ("std::time::SystemTime", "time is an argument"),
    ("std::time::UNIX_EPOCH", "time is an argument"),
    ("jiff::Timestamp::now", "time is an argument"),
    ("jiff::Zoned::now", "time is an argument"),
    ("std::fs", "files belong to the shell"),
    ("std::net", "the network belongs to the shell"),
    ("std::env", "settings are arguments"),
    ("std::process", "processes belong to the shell"),
    ("std::thread", "threads belong to the shell"),
    ("std::io::stdin", "terminals belong to the shell"),
    ("std::io::stdout", "terminals belong to the shell"),
    ("std::io::stderr", "terminals belong to the shell"),
    ("rand", "chance is an argument"),
    ("fastrand", "chance is an argument"),
    ("tokio", "nothing here waits"),
    ("std::collections::HashMap", "its order varies between runs"),
    ("std::collections::HashSet", "its order varies between runs"),
    ("std::collections::hash_map", "its order varies between runs"),
    ("hashbrown", "its order varies between runs"),
];
/// Plain values that live in a banned module.
const ALLOWED: [&str; 4] = ["std::net::AddrParseError", "std::net::IpAddr", "std::net::Ipv4Addr", "std::net::Ipv6Addr"];
const BANNED_WORDS: [(&str, &str); 2] = [("async", "nothing here waits"), ("await", "nothing here waits")];
const BANNED_MACROS: [&str; 5] = ["println", "eprintln", "print", "eprint", "dbg"];

pub(super) fn check(workspace: &Workspace) -> Vec<Problem> {
    let pure = |file: &&File| {
        let within = PURE.iter().any(|name| file.path.starts_with(&format!("crates/{name}/src/")));
        within && file.is_rust()
    };
    workspace.files.iter().filter(pure).flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Problem> {
    let tokens = tokens(&file.text);
    let mut hits: Vec<(usize, String)> = mentions(&tokens).iter().filter_map(banned_path).collect();
    hits.extend(tokens.windows(2).filter_map(banned_macro));
    hits.extend(tokens.iter().filter_map(banned_word));
    hits.sort();
    hits.dedup();
    hits.into_iter().map(|(line, what)| Problem::new(format!("{}:{line}", file.path), what)).collect()
}

fn banned_path(mention: &Mention) -> Option<(usize, String)> {
    let path = &mention.path;
    if ALLOWED.iter().any(|allowed| covers(allowed, path)) && !path.ends_with('*') {
        return None;
    }
    let (banned, why) = BANNED.iter().find(|(banned, _)| covers(banned, path))?;
    Some((mention.line, format!("{banned} in a pure crate: {why}")))
}

/// Whether a mentioned path is the banned one, lies below it, or is a glob that brings it in.
fn covers(banned: &str, path: &str) -> bool {
    if let Some(module) = path.strip_suffix("::*") {
        return banned.strip_prefix(module).is_some_and(|rest| rest.starts_with("::")) || covers(banned, module);
    }
    path.strip_prefix(banned).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn banned_macro(pair: &[Token<'_>]) -> Option<(usize, String)> {
    let [name, mark] = pair else { return None };
    let banned = mark.text == "!" && BANNED_MACROS.contains(&name.text);
    banned.then(|| (name.line, format!("{}! in a pure crate: terminals belong to the shell", name.text)))
}

fn banned_word(token: &Token<'_>) -> Option<(usize, String)> {
    let (word, why) = BANNED_WORDS.iter().find(|(word, _)| *word == token.text)?;
    Some((token.line, format!("{word} in a pure crate: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{lines, sample};

    fn found(source: &str) -> Vec<String> {
        lines(&check(&sample(&[("crates/engine/src/x.rs", source)], &[])))
    }

    #[track_caller]
    fn caught(source: &str, what: &str) {
        let found = found(source);
        assert!(!found.is_empty(), "missed: {source}");
        assert!(found.iter().all(|line| line.contains(what)), "{found:?}");
    }

    #[test]
    fn every_banned_path_is_caught_imported_or_spelled_out() {
        for (path, _) in BANNED {
            caught(&format!("use {path};"), path);
            caught(&format!("fn f() {{ {path}::x(); }}"), path);
            caught(&format!("use {path} as y;"), path);
        }
    }

    #[test]
    fn detours_are_caught() {
        caught("use std::time::{Duration, Instant};", "std::time::Instant");
        caught("use std::time; fn f() { time::Instant::now(); }", "std::time::Instant");
        caught("use std::time::*;", "std::time");
        caught("use std::net::*;", "std::net");
        caught("use std::net::{IpAddr, TcpStream};", "std::net");
        caught("use std::{fs, collections::BTreeMap};", "std::fs");
        caught("use std::collections as c; type M = c::HashMap<u8, u8>;", "HashMap");
        caught("use jiff::Timestamp; fn f() { Timestamp::now(); }", "jiff::Timestamp::now");
        caught("use std as s; fn f() { s::env::var(\"A\"); }", "std::env");
    }

    #[test]
    fn waiting_and_printing_are_caught() {
        caught("async fn f() {}", "async");
        caught("fn f() { g().await; }", "await");
        for name in BANNED_MACROS {
            caught(&format!("fn f() {{ {name}!(\"x\"); }}"), name);
        }
    }

    #[test]
    fn a_hit_names_its_line_once() {
        assert_eq!(
            found("//! Story.\n\nuse std::fs;\n"),
            ["crates/engine/src/x.rs:3: std::fs in a pure crate: files belong to the shell"]
        );
    }

    #[test]
    fn every_pure_crate_is_looked_at_and_no_other() {
        for name in PURE {
            let path = format!("crates/{name}/src/deep/x.rs");
            assert_eq!(check(&sample(&[(&path, "use std::fs;")], &[])).len(), 1, "{path}");
        }
        for path in ["crates/cli/src/x.rs", "crates/engine/benches/x.rs", "crates/engine/src/x.md"] {
            assert!(check(&sample(&[(path, "use std::fs;")], &[])).is_empty(), "{path}");
        }
    }

    #[test]
    fn lookalikes_are_not() {
        for source in [
            "// std::fs and HashMap, println!",
            "/// Never a HashMap.\nfn f() {}",
            "const WHY: &str = \"std::time::Instant\";",
            "use std::time::Duration;",
            "use std::net::IpAddr; fn f() { IpAddr::from([0; 4]); }",
            "use crate::time::Instant; fn f(now: Instant) {}",
            "use std::collections::BTreeMap;",
            "use std::fmt::Write; fn f() { writeln!(x, \"y\"); }",
            "struct HashMapLike; fn random() {} mod brand { }",
            "fn f() { env!(\"CARGO_MANIFEST_DIR\"); }",
            "use crate::env; fn f() { env::var(); }",
        ] {
            assert!(found(source).is_empty(), "{source}: {:?}", found(source));
        }
    }
}
