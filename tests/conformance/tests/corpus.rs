//! The whole corpus, as a test: everything passes or is listed in `docs/compat`.

use std::io::Write;

use conformance::report::Report;
use conformance::run::Options;
use conformance::{compat_folder, corpus, default_corpus, known, run};

#[test]
fn every_case_passes_or_is_a_known_difference() {
    let folder = default_corpus();
    if !folder.exists() {
        // Written past the capture of test output: a skipped test must not look like a pass.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: no conformance corpus in {}; set KAI_CONFORMANCE_DIR to its folder",
            folder.display()
        );
        return;
    }
    let cases = corpus::read(&[folder]).expect("the corpus can be read");
    let known = known::read(&compat_folder()).expect("the lists of known differences can be read");
    let outcomes = run::all(&cases, &known, Options::default());
    let report = Report::new(&outcomes, &known, true);
    assert!(report.is_good(), "{}", report.text());
}
