//! The table of hostile inputs: none ends the process, takes long, needs much memory or is answered at length.
//!
//! `KAI_HOSTILE=text` runs those whose names contain it, and prints each before it starts and what it took.

use std::env;
use std::io::{Write as _, stderr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use fuzz::hostile::table;
use kai_process_stats::{peak_rss_bytes, thread_cpu_time};

/// CPU time without optimisation; optimised, none takes a tenth of it.
const TIME_MAX: Duration = Duration::from_secs(15);

const MEMORY_MAX: u64 = 1 << 30;

#[test]
fn hostile_inputs_are_survived_in_time_and_memory() {
    let only = env::var("KAI_HOSTILE").ok();
    // Past the test harness, so that the name of one that does not end is seen.
    let report = |text: &str| {
        if only.is_some() {
            writeln!(stderr(), "{text}").expect("standard error is open");
        }
    };
    let table = table();
    assert!(table.len() >= 300, "{}", table.len());
    let mut failures = Vec::new();
    for hostile in table.iter().filter(|hostile| only.as_ref().is_none_or(|only| hostile.name.contains(only))) {
        report(&hostile.name);
        let input = hostile.input();
        let start = thread_cpu_time();
        if catch_unwind(AssertUnwindSafe(|| (hostile.target)(&input))).is_err() {
            failures.push(format!("{}: panicked", hostile.name));
        }
        let took = thread_cpu_time().saturating_sub(start);
        report(&format!("    {took:?}"));
        if took > TIME_MAX {
            failures.push(format!("{}: took {took:?}", hostile.name));
        }
    }
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), table.len(), failures.join("\n"));
    let peak = peak_rss_bytes().unwrap_or_default();
    assert!(peak < MEMORY_MAX, "{} MiB", peak >> 20);
}
