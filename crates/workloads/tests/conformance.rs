//! The recorded pod-grouper cases, if they are at hand.
//!
//! They live outside of the repository: in `$KAI_CONFORMANCE_DIR`, or in `shared/conformance` beside the checkout.

#[path = "../../../tests/conformance/src/podgrouper.rs"]
mod podgrouper;

use std::env;
use std::fs;
use std::path::PathBuf;

#[test]
#[allow(clippy::print_stderr, reason = "a skipped test must say so")]
fn recorded_cases() {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance");
    let folder = env::var_os("KAI_CONFORMANCE_DIR").map_or(beside, PathBuf::from);
    let path = folder.join("podgrouper.json");
    let Ok(text) = fs::read_to_string(&path) else {
        eprintln!("SKIPPED: no conformance cases at {}; set KAI_CONFORMANCE_DIR", path.display());
        return;
    };
    let results = podgrouper::run(&serde_json::from_str(&text).expect("the corpus is JSON"));
    assert!(!results.is_empty(), "the corpus has cases");
    let failures: Vec<String> =
        results.iter().filter_map(|(id, result)| Some(format!("{id}: {}", result.as_ref().err()?))).collect();
    let passed = results.len() - failures.len();
    assert!(failures.is_empty(), "{passed} of {} pass\n{}", results.len(), failures.join("\n"));
}
