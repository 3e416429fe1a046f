//! Clusters as pictures: a text goes in, the decisions of a cycle come out as text.
//!
//! ```text
//! policy actions=allocate gpu=spread          settings, see `settings.rs`
//! topology zone rack                          levels, wide to narrow; nodes name their domains
//! node a gpu=2 cpu=8 mem=16Gi pods=110 gpumem=16000 mig-1g.5gb=7 +rdma=1 taken=1 leaving=1 zone=x rack=y tainted
//! queue dep quota=4                           GPUs; cpu-quota=, mem-limit= …; `none` is unlimited
//! queue team parent=dep quota=2 limit=4 weight=1 priority=100 preempt-min=60
//! job left queue=team pods=3 min=1 gpu=0.5 prio=50 running=a#0 releasing=a#0
//! job right queue=team need=1 required=zone   a tree: at least one of the members below
//!   set master gpu=2 only=a
//!   set workers pods=4 min=2 gpumem=2x8000
//! job web queue=team labels=web anti-affinity=web@node affinity=db@zone prefer=cache@rack*10 spread=web@zone*1 soft-spread=web@node
//! ```
//!
//! What is left out has its default: pods wait, a job needs all of its pods, queues guarantee no GPUs and limit
//! nothing, what is written first is oldest. Times are seconds before now. Pods are called `job-0` or `job.set-0`.

mod build;
mod cluster;
mod inter_pod;
mod parse;
mod render;
mod settings;
mod write;

pub(crate) use build::{NOW, World};
pub(crate) use cluster::{
    Ask, Cluster, Flag, Gpu, Grace, Group, Job, LevelConstraint, Member, Node, Pod, PodRule, PodRuleKind, Queue, Set,
};
pub(crate) use parse::parse;

use expect_test::Expect;
use kai_engine::{ActionStats, CycleProgress, cycle_with_progress};

/// Decisions of one cycle, and why jobs wait.
pub(crate) fn decide(text: &str) -> String {
    let (world, outcome) = run(text);
    render::outcome(&world, &outcome)
}

fn run(text: &str) -> (World, kai_engine::Outcome) {
    let world = World::of(&parse(text));
    let outcome = world.cycle();
    (world, outcome)
}

/// Compares the decisions of one cycle, and why jobs wait.
#[expect(clippy::needless_pass_by_value, reason = "an expectation is used once, where it is written")]
pub(crate) fn check(text: &str, expected: Expect) {
    expected.assert_eq(&decide(text));
}

/// Compares the causes of evictions.
#[expect(clippy::needless_pass_by_value, reason = "an expectation is used once, where it is written")]
pub(crate) fn check_causes(text: &str, expected: Expect) {
    let (world, outcome) = run(text);
    expected.assert_eq(&render::causes(&world, &outcome));
}

/// Compares what the queues are entitled to.
#[expect(clippy::needless_pass_by_value, reason = "an expectation is used once, where it is written")]
pub(crate) fn check_shares(text: &str, expected: Expect) {
    let (world, outcome) = run(text);
    expected.assert_eq(&render::shares(&world, &outcome));
}

/// Compares the times to remember.
#[expect(clippy::needless_pass_by_value, reason = "an expectation is used once, where it is written")]
pub(crate) fn check_notes(text: &str, expected: Expect) {
    let (world, outcome) = run(text);
    expected.assert_eq(&render::notes(&world, &outcome));
}

/// Compares the nominations to persist.
#[expect(clippy::needless_pass_by_value, reason = "an expectation is used once, where it is written")]
pub(crate) fn check_nominations(text: &str, expected: Expect) {
    let (world, outcome) = run(text);
    expected.assert_eq(&render::nominations(&world, &outcome));
}

/// In how many seconds the next cycle may decide otherwise, though nothing has happened.
pub(crate) fn next_change(text: &str) -> Option<i64> {
    let (_, outcome) = run(text);
    outcome.next_change_at.map(|time| time.since(NOW).0 / 1_000_000)
}

/// Compares what each action has done, whatever came of it.
#[expect(clippy::needless_pass_by_value, reason = "an expectation is used once, where it is written")]
pub(crate) fn check_efforts(text: &str, expected: Expect) {
    let world = World::of(&parse(text));
    let mut lines = Vec::new();
    cycle_with_progress(&world.snapshot, &world.policy, NOW, |moment| {
        if let CycleProgress::ActionDone(action, ActionStats { job_attempts, simulated, filtered }) = moment {
            lines.push(format!(
                "{}: {job_attempts} attempts, {simulated} simulated, {filtered} filtered",
                settings::action_word(action)
            ));
        }
    });
    expected.assert_eq(&lines.join("\n"));
}
