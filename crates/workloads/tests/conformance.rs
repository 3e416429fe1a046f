//! The recorded pod-grouper cases, if they are at hand.
//!
//! They live outside of the repository: in `$KAI_CONFORMANCE_DIR`, or in `shared/conformance` beside the checkout.

#[path = "../../../tests/conformance/src/podgrouper.rs"]
#[allow(unreachable_pub, reason = "public in the runner it is borrowed from")]
mod podgrouper;

use std::env;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

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
    let file: Value = serde_json::from_str(&text).expect("the corpus is JSON");
    let cases = file["cases"].as_array().expect("the corpus is a list of cases");
    assert!(!cases.is_empty());
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| Some(format!("{}: {}", case["id"], podgrouper::check_case(case, &mut String::new()).err()?)))
        .collect();
    assert!(failures.is_empty(), "{} of {} differ\n{}", failures.len(), cases.len(), failures.join("\n"));
}
