//! Random clusters with random stories, under faults: late and restarted watches, lost calls and answers, crashes, two
//! leaders, clocks that jump, nodes that fail; in some of the runs a hostile tenant, faults of the API server, or a lease
//! that is lost. Whatever goes wrong, nothing is over-committed, and once nothing goes wrong any more, everything is as it
//! should be.
//!
//! `KAI_SEED=17 cargo test -p kai-sim --test chaos -- --nocapture` replays one seed, prints its manifests and
//! everything that happens; `KAI_SEEDS=5000` tries more of them.
#![allow(clippy::print_stderr, reason = "a failing seed shows its manifests")]

mod random_scenario;

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::thread;

use kai_sim::{SimulationError, Source, Trace, manifest, run_with_faults};
use random_scenario::generate;

/// Enough to meet every fault in every situation many times.
const SEEDS: u64 = 2_000;

/// Enough for reservation pods, too, which the scheduler does not foresee.
const SLOTS: u32 = 110;

/// Seeds that fail today, each by a fault that is not mended yet. TODO: an entry goes with its mend; a seed that passes
/// again fails the test until it is taken out.
///
/// - 141, 594: reservation pods and a pod that is bound at the same moment exceed the node.
/// - 247, 384, 499, 1841: a cluster with a hostile tenant does not converge.
/// - 304: the assumption of a bind may have expired before the watch showed it, and its queue exceeds the limit.
/// - 1542: two claims are given one device: the binder does not check devices again.
const KNOWN_FAILURES: [u64; 8] = [141, 247, 304, 384, 499, 594, 1542, 1841];

/// Runs are independent of each other.
const THREADS: u64 = 2;

fn run(seed: u64, trace: Option<Trace<'_>>) -> Result<BTreeMap<&'static str, u64>, SimulationError> {
    let plan = manifest::read(&[Source { name: format!("seed-{seed}.yaml"), text: generate(seed, SLOTS) }])?;
    Ok(run_with_faults(&plan, seed, trace)?.seen)
}

/// What happened, or why the run failed: an invariant, or a panic of a component.
fn outcome(seed: u64) -> Result<BTreeMap<&'static str, u64>, String> {
    match catch_unwind(|| run(seed, None)) {
        Ok(done) => done.map_err(|stop| stop.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Err(format!("panicked: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")))
        }
    }
}

#[test]
fn random_stories_end_well_whatever_goes_wrong() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("KAI_SEED") {
        eprintln!("{}", generate(seed, SLOTS));
        let seen = run(seed, Some(&mut |line| eprintln!("{line}"))).unwrap_or_else(|stop| panic!("{stop}"));
        eprintln!("{seen:?}");
        return;
    }
    let seeds = number("KAI_SEEDS").unwrap_or(SEEDS);
    let share = |first: u64| {
        let mut seen: BTreeMap<&'static str, u64> = BTreeMap::new();
        let mut failed = Vec::new();
        for seed in (first..seeds).step_by(THREADS as usize) {
            match outcome(seed) {
                Ok(counts) => {
                    for (what, count) in counts {
                        *seen.entry(what).or_default() += count;
                    }
                }
                Err(stop) => failed.push((seed, stop)),
            }
        }
        (seen, failed)
    };
    let mut seen: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut failed = Vec::new();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || share(first))).collect();
        for thread in threads {
            let (counts, stops) = thread.join().expect("a run panicked; its thread says where");
            for (what, count) in counts {
                *seen.entry(what).or_default() += count;
            }
            failed.extend(stops);
        }
    });
    eprintln!("{seen:?}");
    failed.sort_by_key(|(seed, _)| *seed);
    for (seed, stop) in &failed {
        eprintln!("{stop}\nreplay: KAI_SEED={seed} cargo test -p kai-sim --test chaos -- --nocapture");
    }
    let failed: Vec<u64> = failed.into_iter().map(|(seed, _)| seed).collect();
    let mut known = KNOWN_FAILURES.to_vec();
    known.retain(|seed| *seed < seeds);
    assert_eq!(failed, known, "these seeds failed, those were known to");
    // A fault that never happens proves nothing.
    let events = [
        "bind",
        "clock",
        "compaction",
        "config map deleted",
        "crash",
        "evict",
        "finish",
        "GPU group edited",
        "group queue edited",
        "group times edited",
        "hostile queue",
        "hostile tree",
        "impossible amounts",
        "kind not served",
        "lease lost",
        "lease taken over",
        "link edited",
        "lost",
        "MIG or MPS asked for",
        "partial outage",
        "planned write",
        "probe",
        "scale",
        "scaling pod",
        "sharing edited",
        "slow watcher",
        "state on owner",
        "throttled",
        "unanswered",
        "watch storm",
    ];
    for event in events {
        assert!(seeds < SEEDS || seen.contains_key(event), "no story has a {event}");
    }
}
