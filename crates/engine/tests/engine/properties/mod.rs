//! What holds for every cluster.
//!
//! Each test runs a cycle on random clusters and judges the outcome by plain counting. A failing cluster is cut down
//! and printed in the language of the cases; put it there. `PROPTEST_CASES` sets how many clusters are tried.

mod after;
mod evictions;
mod generate;
mod placement;
mod queues;
mod room;

use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::support::{World, parse};
use after::{After, Found};
use generate::{Shown, clusters};

/// Runs `test` on random clusters.
fn for_clusters(test: impl Fn(&Shown) -> Found) {
    let config = Config { failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&clusters(), |shown| test(&shown).map_err(TestCaseError::fail));
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// Judges the outcome of one cycle on random clusters.
fn always(truth: fn(&After<'_>) -> Found) {
    always_with(&[], truth);
}

/// The same with some settings fixed.
fn always_with(settings: &[(&str, &str)], truth: fn(&After<'_>) -> Found) {
    for_clusters(|shown| {
        let mut cluster = shown.0.clone();
        cluster.settings.extend(settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let world = World::of(&cluster);
        let outcome = world.cycle();
        truth(&After::of(&world, &outcome)?)
    });
}

macro_rules! truths {
    ($($module:ident: $($truth:ident),+;)+) => {
        $($(
            #[test]
            fn $truth() {
                always($module::$truth);
            }
        )+)+
    };
}

truths! {
    placement: decisions_make_sense, nothing_is_over_committed, rules_and_ports_are_obeyed, gangs_start_whole,
        required_domains_hold, starts_are_noted, waiting_jobs_say_why;
    queues: limits_hold, fixed_work_stays_within_quota, totals_add_up, quotas_are_guaranteed;
    evictions: victims_may_be_taken, preemption_delays_are_kept, evictions_help_someone,
        consolidation_loses_nobody_a_place, gangs_keep_their_minimum_or_go, young_jobs_keep_what_they_need,
        reclaim_takes_from_the_rich, stale_gangs_go_after_their_grace;
}

/// Without actions that make room, what is left over is too little for those who wait.
#[test]
fn room_is_used() {
    always_with(&[("actions", "allocate")], placement::room_is_used);
}

#[test]
fn t1() {
    for actions in ["allocate,consolidate", "allocate,reclaim", "allocate,preempt,stale"] {
        always_with(&[("actions", actions)], evictions::consolidation_loses_nobody_a_place);
        always_with(&[("actions", actions)], evictions::evictions_help_someone);
        always_with(&[("actions", actions)], evictions::gangs_keep_their_minimum_or_go);
    }
}
#[test]
fn t2() {
    always_with(&[("devices", "pack")], placement::nothing_is_over_committed);
}

#[test]
fn a_cluster_is_read_as_it_was_written() {
    for_clusters(|shown| {
        let read = parse(&shown.0.to_string());
        if read == shown.0 { Ok(()) } else { Err(format!("read as\n{read}")) }
    });
}
