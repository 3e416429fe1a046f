//! Compares a session with what a case expects.

use std::collections::BTreeMap;

use kai_engine::ids::{JobId, TaskId};
use kai_engine::outcome::Reason;
use kai_engine::snapshot::{GpuAsk, LevelRef, Shape};
use kai_engine::units::compat::memory_to_share;
use kai_engine::units::{GPU, Span};

use super::case::{Case, Counters, FitError, Wanted};
use super::lower::NOW;
use super::session::Session;
use super::{devices, held, numa};
use crate::verdict::Difference;

/// The written expectations, on a session after its actions; `last` is the session that ran actions last.
pub(super) fn expected(case: &Case, session: &Session<'_>, last: &Session<'_>) -> Vec<Difference> {
    let mut judge = Judge { case, session, last, differences: Vec::new() };
    for (uid, wanted) in &case.expect.jobs {
        let Some((id, job)) = session.job(uid) else { continue };
        let tasks: Vec<&str> = job.tasks.iter().map(|task| task.uid.as_str()).collect();
        judge.wanted(uid, wanted, id, &tasks);
    }
    for (uid, wanted) in &case.expect.tasks {
        let Some((job, _)) = session.task(uid) else { continue };
        judge.wanted(uid, wanted, job, &[uid]);
    }
    judge.nodes();
    let mut differences = judge.differences;
    if case.observed.gpu_groups_check.as_deref() == Some("holds") {
        differences.extend(devices::symbolic(case, session));
    }
    differences
}

/// What KAI did in the same round, task by task.
pub(super) fn observed(case: &Case, session: &Session<'_>, round: usize) -> Vec<Difference> {
    let Some(theirs) = case.observed.rounds.get(round) else {
        return vec![Difference::new("recording", format!("round {}", round + 1), "nothing recorded")];
    };
    let mut differences: Vec<Difference> = theirs
        .tasks
        .iter()
        .filter_map(|(uid, expected)| {
            let got = session.after.placements.get(uid).map_or_else(|| "no such task".to_string(), ToString::to_string);
            (*expected != got).then(|| Difference::new(uid.as_str(), expected, got))
        })
        .collect();
    // Devices are worth comparing only where nodes agree.
    if differences.is_empty()
        && let Some(labels) = &theirs.gpu_groups
    {
        differences.extend(devices::observed(session, labels));
    }
    differences
}

/// Calls beyond what one round may make.
pub(super) fn limits(case: &Case, got: Counters) -> Vec<Difference> {
    let Some(limit) = case.expect.limits_per_round else { return Vec::new() };
    let counts = [
        ("binds", limit.binds, got.binds),
        ("evictions", limit.evictions, got.evictions),
        ("pipelines", limit.pipelines, got.pipelines),
    ];
    let exceeded = counts.into_iter().filter(|(_, limit, got)| got > limit);
    exceeded.map(|(what, limit, got)| Difference::new(what, format!("at most {limit}"), got)).collect()
}

struct Judge<'a> {
    case: &'a Case,
    session: &'a Session<'a>,
    last: &'a Session<'a>,
    differences: Vec<Difference>,
}

impl Judge<'_> {
    /// Conditions on all of `tasks`, which belong to one job.
    fn wanted(&mut self, name: &str, wanted: &Wanted, job: JobId, tasks: &[&str]) {
        for uid in tasks {
            let placement = self.session.after.get(uid);
            let node_differs = wanted.node.is_some() && wanted.node != placement.node;
            if placement.status != wanted.status || node_differs {
                let node = wanted.node.as_ref().map_or_else(String::new, |node| format!("@{node}"));
                self.differs(*uid, format!("{:?}{node}", wanted.status), placement);
            }
        }
        self.amounts(name, wanted, tasks);
        self.last_start(name, wanted, job);
        for uid in tasks.iter().filter(|_| wanted.numa_zones.is_some()) {
            let (expected, got) = (wanted.numa_zones.clone().unwrap_or_default(), numa::occupied(self.session, uid));
            if expected != got {
                self.differs(format!("{uid} NUMA zones"), format!("{expected:?}"), format!("{got:?}"));
            }
        }
        if let Some(error) = &wanted.fit_error {
            self.fit_error(name, error);
        }
    }

    fn amounts(&mut self, name: &str, wanted: &Wanted, tasks: &[&str]) {
        let ids: Vec<TaskId> = tasks.iter().filter_map(|uid| self.session.task(uid)).map(|(_, id)| id).collect();
        let snapshot = &self.session.lowered.snapshot;
        let shapes = || ids.iter().map(|id| snapshot.shape(snapshot.task(*id).shape));
        // GPUs through claims are not counted here.
        let claimed = |id: &TaskId| {
            let claims = self.session.lowered.claims.as_ref();
            let claimed = claims.and_then(|claims| claims.of(&self.session.lowered.tasks[id.index()].uid));
            claimed.map_or(0, |claimed| i64::from(claimed.quota_gpus) * GPU)
        };
        let asked = |shape: &Shape| {
            if matches!(shape.gpu, GpuAsk::Whole | GpuAsk::Fraction { .. }) { shape.quota_gpu } else { 0 }
        };
        let requested: i64 = shapes().map(asked).sum::<i64>() - ids.iter().map(claimed).sum::<i64>();
        let accepted: i64 = ids.iter().map(|id| self.accepted(*id)).sum();
        let cpu: i64 = shapes().map(|shape| shape.need[kai_engine::snapshot::CPU]).sum();
        let memory: i64 = shapes().map(|shape| shape.need[kai_engine::snapshot::MEMORY]).sum();
        let gpus = |micro: i64| micro as f64 / GPU as f64;
        let checks = [
            ("GPUs requested", wanted.gpus_requested, gpus(requested)),
            ("GPUs accepted", wanted.gpus_accepted, gpus(accepted)),
            ("millicores requested", wanted.cpu_milli_requested.map(|amount| amount as f64), cpu as f64),
            ("bytes requested", wanted.memory_bytes_requested.map(|amount| amount as f64), memory as f64),
        ];
        for (what, expected, got) in checks {
            // Within the engine's own unit, a millionth of a GPU.
            if let Some(expected) = expected
                && (expected - got).abs() > 1e-6
            {
                self.differs(format!("{name} {what}"), expected, got);
            }
        }
    }

    /// GPUs that a task holds where it stands.
    fn accepted(&self, task: TaskId) -> i64 {
        let lowered = &self.session.lowered;
        let placement = self.session.after.get(&lowered.tasks[task.index()].uid);
        let node = lowered.nodes.iter().position(|node| Some(&node.name) == placement.node.as_ref());
        let (Some(node), true) = (node, placement.status.is_used()) else { return 0 };
        let shape = lowered.snapshot.shape(lowered.snapshot.task(task).shape);
        match shape.gpu {
            GpuAsk::Memory { devices, mib } => {
                i64::from(devices) * memory_to_share(mib, lowered.snapshot.nodes.device_memory[node])
            }
            GpuAsk::Whole | GpuAsk::Fraction { .. } => shape.quota_gpu,
            GpuAsk::None | GpuAsk::Mig => 0,
        }
    }

    /// A job that runs has a time since when.
    fn last_start(&mut self, name: &str, wanted: &Wanted, job: JobId) {
        if !wanted.status.is_allocated() {
            return;
        }
        match (self.session.last_start(job), wanted.last_start_older_than_seconds) {
            (None, _) => self.differs(format!("{name} last start"), "set", "unset"),
            (Some(start), Some(age)) if NOW.since(start) < Span::seconds(age) => {
                let got = format!("{} s", NOW.since(start).0 / 1_000_000);
                self.differs(format!("{name} last start"), format!("at least {age} s ago"), got);
            }
            _ => {}
        }
    }

    fn fit_error(&mut self, name: &str, error: &FitError) {
        let reasons = self.last.job(name).map_or(&[][..], |(job, _)| self.last.reasons(job));
        let matched = if error.topology.is_some() || error.level.is_some() {
            reasons.iter().any(|reason| self.speaks_of_domain(reason, error))
        } else {
            !reasons.is_empty()
        };
        if !matched {
            let domains: Vec<String> = error
                .domains
                .iter()
                .map(|domain| format!("{} {}/{}", domain.domain, domain.fits, domain.needs))
                .collect();
            let expected = [Some(error.reason.clone()), error.topology.clone(), error.level.clone()];
            let expected: Vec<String> = expected.into_iter().flatten().chain(domains).collect();
            self.differs(format!("{name} reason"), expected.join(" "), format!("{reasons:?}"));
        }
    }

    /// Whether the reason is that no domain of the named level is large enough.
    fn speaks_of_domain(&self, reason: &Reason, error: &FitError) -> bool {
        let Reason::NoDomain { constraint, wanted, domains } = reason else { return false };
        let lowered = &self.last.lowered;
        let constraint = &lowered.snapshot.constraints[*constraint as usize];
        let Some(id) = constraint.topology else { return false };
        let topology = &self.case.cluster.topologies[id.index()];
        let level = match constraint.required.or(constraint.preferred) {
            Some(LevelRef::At(index)) => topology.levels.get(index as usize),
            Some(LevelRef::Unknown) | None => None,
        };
        let same_place = Some(&topology.name) == error.topology.as_ref() && level == error.level.as_ref();
        let same_scope = domains.is_empty() == (error.reason == "cluster_capacity");
        let fits: BTreeMap<&str, Option<u32>> = domains
            .iter()
            .map(|fit| (lowered.domains[id.index()][fit.level as usize][fit.domain as usize].as_str(), fit.fits))
            .collect();
        let same_fit = error
            .domains
            .iter()
            .all(|domain| domain.needs == *wanted && fits.get(domain.domain.as_str()) == Some(&Some(domain.fits)));
        same_place && same_scope && same_fit
    }

    fn nodes(&mut self) {
        if self.case.expect.nodes.is_empty() {
            return;
        }
        let held = held::after(self.session);
        for (name, wanted) in &self.case.expect.nodes {
            let got = held.get(name.as_str()).copied().unwrap_or_default();
            let checks = [("idle", wanted.idle_gpus, got.idle), ("releasing", wanted.releasing_gpus, got.releasing)];
            for (what, expected, got) in checks {
                if let Some(expected) = expected
                    && expected != got
                {
                    self.differs(format!("{name} {what} GPUs"), expected, got);
                }
            }
            if let Some(expected) = &wanted.numa_zones_available {
                let got = numa::available(self.session, name);
                if *expected != got {
                    self.differs(format!("{name} NUMA zones"), format!("{expected:?}"), format!("{got:?}"));
                }
            }
        }
    }

    #[allow(clippy::needless_pass_by_value, reason = "callers pass numbers and fresh texts")]
    fn differs(&mut self, what: impl Into<String>, expected: impl ToString, got: impl ToString) {
        self.differences.push(Difference::new(what, expected, got));
    }
}
