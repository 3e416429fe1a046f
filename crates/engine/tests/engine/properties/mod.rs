//! What holds for every cluster.
//!
//! Each test runs a cycle on random clusters and judges the outcome by plain counting. A failing cluster is cut down
//! and printed in the language of the cases; put it there. `PROPTEST_CASES` sets how many
//! clusters are tried.

mod claims;
mod evictions;
mod generate;
mod inter_pod;
mod jobs;
mod ledger;
mod outcome_view;
mod placement;
mod queues;
mod room;
mod volumes;

use std::collections::BTreeSet;
use std::thread;

use kai_engine::builder::{Builder, NodeRow};
use kai_engine::gang::Gang;
use kai_engine::ids::{NodeSet, TaskId};
use kai_engine::nodes::filter::PodFilters;
use kai_engine::outcome::{Reason, ScenarioRejections, SearchStop};
use kai_engine::policy::Action;
use kai_engine::session::Session;
use kai_engine::snapshot::{Queue, Status};
use kai_engine::units::{Ceiling, GPU, ONE, Timestamp};
use kai_engine::{Outcome, actions};
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::support::{NOW, World, parse};
use generate::{Shown, clusters};
use outcome_view::{CheckResult, OutcomeView, ensure};

/// Clusters are small and rare events many, so eight times as many as usual are tried, 2,048; `PROPTEST_CASES` still counts.
/// A failing cluster is printed whole, so no seed is kept.
fn config() -> Config {
    let usual = Config::default();
    Config { cases: usual.cases * 8, failure_persistence: None, ..usual }
}

/// So many nodes with nothing on them, and one queue that may have it all.
fn idle_cluster(nodes: usize) -> Builder {
    let mut builder = Builder::new(Vec::new());
    for _ in 0..nodes {
        builder.node(NodeRow::idle(vec![64_000, 1 << 30, 8 * GPU, 110]));
    }
    let bounds = [Ceiling::Unlimited; 3];
    builder.queue(Queue {
        parent: None,
        priority: 100,
        created: Timestamp(0),
        quota: bounds,
        limit: bounds,
        weight: [ONE; 3],
        usage: [0; 3],
        preempt_min_runtime: None,
        reclaim_min_runtime: None,
    });
    builder
}

/// Runs `test` on random clusters.
fn for_clusters(test: impl Fn(&Shown) -> CheckResult) {
    let result = TestRunner::new(config()).run(&clusters(), |shown| test(&shown).map_err(TestCaseError::fail));
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// Judges the outcome of one cycle on random clusters, with these settings.
fn always(settings: &[(&str, &str)], invariant: fn(&OutcomeView<'_>) -> CheckResult) {
    for_clusters(|shown| {
        let mut cluster = shown.0.clone();
        cluster.settings.extend(settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let world = World::of(&cluster);
        let outcome = world.cycle();
        invariant(&OutcomeView::of(&world, &outcome)?)
    });
}

macro_rules! invariants {
    ($($(#[$mark:meta])* $name:ident: $module:ident::$function:ident $settings:tt;)+) => {
        $(
            #[test]
            $(#[$mark])*
            fn $name() {
                always(&$settings, $module::$function);
            }
        )+
    };
}

invariants! {
    decisions_make_sense: placement::decisions_make_sense [];
    nothing_is_over_committed: placement::nothing_is_over_committed [];
    rules_and_ports_are_obeyed: placement::rules_and_ports_are_obeyed [];
    gangs_start_whole: placement::gangs_start_whole [];
    required_domains_hold: placement::required_domains_hold [];
    starts_are_noted: placement::starts_are_noted [];
    waiting_jobs_have_a_reason: placement::waiting_jobs_have_a_reason [];
    // Without actions that make room, what is left over is too little for those who wait.
    room_is_used: placement::room_is_used [("actions", "allocate")];

    pods_keep_apart: inter_pod::pods_keep_apart [];
    // Evictions may undo later what a pod was placed for, so that only pure placement can be replayed.
    inter_pod_rules_are_obeyed: inter_pod::inter_pod_rules_are_obeyed [("actions", "allocate")];

    limits_hold: queues::limits_hold [];
    fixed_work_stays_within_quota: queues::fixed_work_stays_within_quota [];
    totals_add_up: queues::totals_add_up [];
    quotas_are_guaranteed: queues::quotas_are_guaranteed [];

    victims_may_be_taken: evictions::victims_may_be_taken [];
    preemption_delays_are_kept: evictions::preemption_delays_are_kept [];
    losses_help_someone: evictions::losses_help_someone [];
    moves_help_someone: evictions::moves_help_someone [];
    pods_keep_a_place_in_consolidation: evictions::pods_keep_a_place_in_consolidation [];
    gangs_keep_their_minimum_or_go: evictions::gangs_keep_their_minimum_or_go [];
    young_jobs_keep_what_they_need: evictions::young_jobs_keep_what_they_need [];
    reclaim_leaves_what_is_protected: evictions::reclaim_leaves_what_is_protected [];
    stale_gangs_go_after_their_grace: evictions::stale_gangs_go_after_their_grace [];
}

/// Runs the actions of a cycle one by one, on a session prepared by `prepare`; sums are checked after each.
fn step_by_step(world: &World, prepare: fn(&mut Session<'_>)) -> Outcome {
    let mut session = Session::open(&world.snapshot, &world.policy, NOW);
    prepare(&mut session);
    for action in &world.policy.actions {
        match action {
            Action::Allocate => actions::allocate::run(&mut session),
            Action::Consolidate => actions::consolidate::run(&mut session),
            Action::Reclaim => actions::reclaim::run(&mut session),
            Action::Preempt => actions::preempt::run(&mut session),
            Action::EvictStale => actions::stale::run(&mut session),
        }
        session.ledger.assert_consistent();
    }
    session.close()
}

#[test]
fn sums_are_right_after_every_action() {
    for_clusters(|shown| {
        let world = World::of(&shown.0);
        same(&world.cycle(), &step_by_step(&world, |_| {}))
    });
}

/// A node is feasible for a waiting pod, or it has an obstacle: never both, never neither; whatever filters are on.
#[test]
fn nodes_are_feasible_or_have_an_obstacle() {
    for_clusters(|shown| {
        let mut world = World::of(&shown.0);
        for filters in [true, false] {
            world.policy.filters = filters;
            let session = Session::open(&world.snapshot, &world.policy, NOW);
            let waits = |task: &TaskId| world.snapshot.task(*task).status == Status::Pending;
            for task in (0..world.snapshot.tasks.len()).map(TaskId::at).filter(waits) {
                let pod = PodFilters::new(&session.ledger, &world.policy, task);
                for node in world.snapshot.nodes.ids() {
                    let (feasible, obstacle) = (pod.accept(node), pod.obstacle(NodeSet::All, node));
                    ensure!(feasible == obstacle.is_none(), "{task:?} on {node:?}: {feasible}, {obstacle:?}");
                }
            }
        }
        Ok(())
    });
}

/// Tournaments, bounds and early ends decide, and explain, as if every node were looked at for every job in turn.
#[test]
fn cached_and_full_scan_cycles_agree() {
    for_clusters(|shown| {
        let world = World::of(&shown.0);
        same(&world.cycle(), &step_by_step(&world, |session| session.finder.full_scan = true))
    });
}

/// Jobs of a single pod set are served without a walk through their tree; a job without no pods takes the long way.
#[test]
fn the_fast_path_of_a_gang_equals_the_walk_through_its_tree() {
    for_clusters(|shown| {
        let world = World::of(&shown.0);
        let session = Session::open(&world.snapshot, &world.policy, NOW);
        let none = BTreeSet::new();
        for job in world.snapshot.job_ids() {
            let short = Gang::new(&session.ledger, job);
            let long = short.without(&none);
            let seen = |gang: Gang<'_>| {
                let chunks = (gang.chunk(false), gang.chunk(true));
                (gang.is_ready(), gang.is_present(), gang.is_stale(), gang.state(), chunks)
            };
            let (short, long) = (seen(short), seen(long));
            ensure!(short == long, "{job:?} is {short:?} by the fast path, {long:?} by the walk");
        }
        Ok(())
    });
}

/// Rooms of domains that follow the ledger equal those measured anew every time.
#[test]
fn remembered_rooms_equal_measured_ones() {
    for_clusters(|shown| {
        let world = World::of(&shown.0);
        same(&world.cycle(), &step_by_step(&world, |session| session.topologies.capacities.no_cache = true))
    });
}

/// Bounds that end a search early never hide a solution.
#[test]
fn searches_with_bounds_decide_as_those_without() {
    for_clusters(|shown| {
        let mut cluster = shown.0.clone();
        // Bounds save steps, so that a search may get further than it would without.
        cluster.settings.retain(|(key, _)| key != "steps");
        with_bounds_and_without(&World::of(&cluster))
    });
}

/// Clusters in which bounds once refused what works.
#[test]
fn bounds_refuse_nothing_that_works() {
    let clusters = ["
        node n0 gpu=4
        queue q0 quota=3 weight=0 priority=100
        queue q0-0 parent=q0 quota=3.5 weight=0 priority=50
        queue q0-1 parent=q0 weight=0 priority=50
        queue q1 quota=0 weight=1 priority=50
        job j0 queue=q0-0 prio=25 min=1 gpu=0.2 pending=1
        job j1 queue=q1 prio=25
          set s0 min=0 gpu=1 pods=0
          group t
            set s1 min=2 gpu=1 pending=2
            set s2 min=1 gpu=2x0.2 running=n0#0+1
        job j2 queue=q0-0 prio=25 min=1 gpu=3 pending=1
        job j3 queue=q0-0 prio=25 min=0 gpu=1 pods=0"];
    for cluster in clusters {
        with_bounds_and_without(&World::of(&parse(cluster))).expect(cluster);
    }
}

fn with_bounds_and_without(world: &World) -> CheckResult {
    let mut plain = step_by_step(world, |session| session.victim_search.no_loss_bounds = true);
    let mut bounded = world.cycle();
    [&mut plain, &mut bounded].into_iter().for_each(forget_effort);
    same(&bounded, &plain)
}

/// How many scenarios were tried is not part of a decision, nor how it was found out that none can work.
fn forget_effort(outcome: &mut Outcome) {
    for reason in outcome.verdicts.iter_mut().flat_map(|verdict| &mut verdict.reasons) {
        if let Reason::NoVictims { scenarios, refused, stop, .. } = reason {
            (*scenarios, *refused) = (0, ScenarioRejections::default());
            if matches!(stop, SearchStop::HeadOfLineBlocked(_)) {
                *stop = SearchStop::Exhausted;
            }
        }
    }
}

#[test]
fn the_same_cluster_gives_the_same_outcome_on_any_thread() {
    for_clusters(|shown| {
        let world = World::of(&shown.0);
        let outcome = World::of(&shown.0).cycle();
        let outcomes: Vec<Outcome> = thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| world.cycle())).collect();
            threads.into_iter().map(|thread| thread.join().expect("the cycle ends")).collect()
        });
        outcomes.iter().try_for_each(|other| same(&outcome, other))
    });
}

fn same(left: &Outcome, right: &Outcome) -> CheckResult {
    if left == right { Ok(()) } else { Err(format!("{left:#?}\ndiffers from\n{right:#?}")) }
}

#[test]
fn a_cluster_is_read_as_it_was_written() {
    for_clusters(|shown| {
        let read = parse(&shown.0.to_string());
        if read == shown.0 { Ok(()) } else { Err(format!("read as\n{read}")) }
    });
}
