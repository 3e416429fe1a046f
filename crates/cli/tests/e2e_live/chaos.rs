//! Whatever dies or lies, the same work is done in the end, and nothing is given to two.

use std::env;
use std::thread;
use std::time::Duration;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng as _;
use test_cluster::Kubectl;

use crate::ask::apply;
use crate::kai::{Components, cluster};
use crate::load::{QUEUES, Watchman, left_over, submit};
use crate::proxy::Proxy;

const WAVES: u32 = 10;
const KILLS: u32 = 50;

/// Any process may be killed at any moment.
#[test]
#[ignore = "starts a real cluster"]
fn e2e_killed_processes_lose_nothing() {
    let seed = seed();
    let mut rng = Pcg64::new(u128::from(seed), 1);
    let mut cluster = cluster("e2e-kills", 4, 8);
    let kubectl = cluster.kubectl();
    let mut components = Components::start(&cluster);
    apply(&kubectl, QUEUES);
    let watchman = Watchman::start(&kubectl, 8.0);
    for kill in 0..KILLS {
        if kill % (KILLS / WAVES) == 0 {
            submit(&kubectl, kill / (KILLS / WAVES));
        }
        thread::sleep(Duration::from_millis(50 + u64::from(rng.next_u32() % 400)));
        components.kill(rng.next_u32() as usize);
    }
    settle(&kubectl, seed);
    assert_eq!(watchman.report(), Vec::<String>::new(), "seed {seed}");
    cluster.check("testing").unwrap_or_else(|fault| panic!("{fault}"));
    components.end_politely();
}

/// The API server may refuse, answer late or not at all, or do something and not say so.
#[test]
#[ignore = "starts a real cluster"]
fn e2e_a_faulty_api_server_loses_nothing() {
    let seed = seed();
    let mut cluster = cluster("e2e-faults", 4, 8);
    let kubectl = cluster.kubectl();
    let proxy = Proxy::start(&cluster, seed);
    let mut components = Components::start_through(&cluster, &proxy.url());
    apply(&kubectl, QUEUES);
    let watchman = Watchman::start(&kubectl, 8.0);
    for wave in 0..WAVES {
        submit(&kubectl, wave);
        thread::sleep(Duration::from_secs(2));
    }
    assert!(proxy.faults() > 100, "only {} faults", proxy.faults());
    proxy.behave();
    settle(&kubectl, seed);
    assert_eq!(watchman.report(), Vec::<String>::new(), "seed {seed}");
    cluster.check("testing").unwrap_or_else(|fault| panic!("{fault}"));
    components.end();
}

fn seed() -> u64 {
    env::var("KAI_E2E_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// Waits until all work is done and nothing is left behind, for as long as there is progress.
fn settle(kubectl: &Kubectl, seed: u64) {
    let mut problems = Vec::new();
    let mut unchanged = 0;
    while unchanged < 60 {
        let left = left_over(kubectl, WAVES);
        if left.is_empty() {
            return;
        }
        unchanged = if left == problems { unchanged + 1 } else { 0 };
        problems = left;
        thread::sleep(Duration::from_secs(1));
    }
    panic!("nothing has changed for a minute, with KAI_E2E_SEED={seed}:\n{}", problems.join("\n"));
}
