//! The table of hostile inputs: none ends the process, takes long, needs much memory or is answered at length.
//!
//! `KAI_HOSTILE=text` runs those whose names contain it, and prints what each took.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use fuzz::hostile::table;

/// On a busy machine and without optimisation; optimised, none takes a tenth of it.
const TIME_MAX: Duration = Duration::from_secs(15);

const MEMORY_MAX: u64 = 1 << 30;

#[test]
fn hostile_inputs_are_survived_in_time_and_memory() {
    let only = env::var("KAI_HOSTILE").ok();
    let table = table();
    assert!(table.len() >= 300, "{}", table.len());
    let mut failures = Vec::new();
    for hostile in table.iter().filter(|hostile| only.as_ref().is_none_or(|only| hostile.name.contains(only))) {
        let input = hostile.input();
        let start = Instant::now();
        if only.is_some() {
            println!("{}", hostile.name);
        }
        if catch_unwind(AssertUnwindSafe(|| (hostile.target)(&input))).is_err() {
            failures.push(format!("{}: panicked", hostile.name));
        }
        let took = start.elapsed();
        if only.is_some() {
            println!("    {took:?}");
        }
        if took > TIME_MAX {
            failures.push(format!("{}: took {took:?}", hostile.name));
        }
    }
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), table.len(), failures.join("\n"));
    let peak = kai_process_stats::peak_rss_bytes().unwrap_or_default();
    assert!(peak < MEMORY_MAX, "{} MiB", peak >> 20);
}
