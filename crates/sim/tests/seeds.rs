//! Random clusters with random stories: the shipped scheduler must never break what the checkers state.
//!
//! `KAI_SEED=17 cargo test -p kai-sim --test seeds` replays one seed and prints its manifests;
//! `KAI_SEEDS=5000` tries more of them.
#![allow(clippy::print_stderr, reason = "a failing seed shows its manifests")]

mod random_scenario;

use std::collections::BTreeMap;

use kai_sim::{Options, SimulationError, Source, manifest, simulate};
use random_scenario::generate;

/// Enough to meet every feature many times, few enough for every run of the tests.
const SEEDS: u64 = 2_000;

/// Few enough to run out.
const SLOTS: u32 = 20;

/// No story is longer than this; most end long before, when nothing more happens.
const UNTIL: kai_sim::Span = kai_sim::Span::seconds(600);

/// Runs a story and counts what happened in it.
fn run(seed: u64, seen: &mut BTreeMap<&'static str, u64>) -> Result<(), SimulationError> {
    let sources = [Source { name: format!("seed-{seed}.yaml"), text: generate(seed, SLOTS) }];
    let plan = manifest::read(&sources)?;
    let report = simulate(&plan, Options { until: Some(UNTIL), seed }, &mut |_| {})?;
    for row in &report.timeline {
        *seen.entry(row.event).or_default() += 1;
    }
    Ok(())
}

#[test]
fn random_stories_break_nothing() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds: std::ops::Range<u64> = match number("KAI_SEED") {
        Some(seed) => {
            eprintln!("{}", generate(seed, SLOTS));
            seed..seed + 1
        }
        None => 0..number("KAI_SEEDS").unwrap_or(SEEDS),
    };
    let all = seeds.end - seeds.start >= SEEDS;
    let mut seen = BTreeMap::new();
    for seed in seeds {
        if let Err(stop) = run(seed, &mut seen) {
            panic!("{stop}\nreplay: KAI_SEED={seed} cargo test -p kai-sim --test seeds -- --nocapture");
        }
    }
    eprintln!("{seen:?}");
    // A checker that never sees an eviction proves nothing about evictions.
    for event in ["bind", "delete", "evict", "finish", "lost", "move", "pipelined", "scale", "wait"] {
        assert!(!all || seen.contains_key(event), "no story has a {event}");
    }
}

#[test]
fn a_seed_always_gives_the_same_story() {
    for seed in 0..20 {
        let report = || {
            let sources = [Source { name: "seed.yaml".to_owned(), text: generate(seed, SLOTS) }];
            let plan = manifest::read(&sources).expect("stories are well-formed");
            let report = simulate(&plan, Options { until: Some(UNTIL), seed }, &mut |_| {});
            serde_json::to_string(&report.expect("stories end well")).expect("reports are plain data")
        };
        assert_eq!(report(), report());
    }
}
