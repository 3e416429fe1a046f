//! A case and its rounds as text, to find out why they differ.

use std::collections::BTreeMap;
use std::fmt::Write;

use kai_engine::units::{GPU, ResourceQuantities};

use super::case::{Case, Grant, Job, Kind, PodSet, Queue, Request, SubGroups, Task, TopologyConstraint};
use super::held;
use super::session::Session;

/// One round: the cluster before it (in full the first time), every task before and after, reasons, shares.
pub(super) fn round(log: &mut String, case: &Case, session: &Session<'_>, index: usize, judged: bool) {
    if index == 0 {
        cluster(log, case, session);
    }
    let counters = session.counters;
    let _ = writeln!(
        log,
        "\nround {}: {} binds, {} evictions, {} pipelines",
        index + 1,
        counters.binds,
        counters.evictions,
        counters.pipelines
    );
    tasks(log, case, session, Some(index), judged);
    nodes(log, "nodes after", session, &held::after(session));
    for verdict in &session.outcome.verdicts {
        let _ = writeln!(log, "  why {}: {:?}", session.lowered.jobs[verdict.job.index()].uid, verdict.reasons);
    }
    for (state, name) in session.outcome.queue_states.iter().zip(&session.lowered.queues) {
        let _ = writeln!(
            log,
            "  share {name}: fair {}, held {} (non-preemptible {}), asked {}",
            triple(state.fair_share),
            triple(state.allocated),
            triple(state.allocated_non_preemptible),
            triple(state.request),
        );
    }
    for decision in &session.outcome.decisions {
        let _ = writeln!(log, "  {decision:?}");
    }
}

/// A session without actions, on the state that the rounds so far led to.
pub(super) fn fresh(log: &mut String, case: &Case, session: &Session<'_>) {
    let _ = writeln!(log, "\nfresh session");
    tasks(log, case, session, None, true);
}

fn cluster(log: &mut String, case: &Case, session: &Session<'_>) {
    let plugins: Vec<String> = case
        .config
        .plugins
        .iter()
        .map(|plugin| {
            let arguments: Vec<String> = plugin.arguments.iter().map(|(key, value)| format!("{key}={value}")).collect();
            if arguments.is_empty() { plugin.name.clone() } else { format!("{}({})", plugin.name, arguments.join(",")) }
        })
        .collect();
    let _ = writeln!(log, "case {}\nactions {}", case.id, case.config.actions.join(", "));
    let _ = writeln!(log, "plugins {}", plugins.join(" "));
    nodes(log, "nodes", session, &held::before(session));
    for topology in &case.cluster.topologies {
        let _ = writeln!(log, "topology {} {}", topology.name, topology.levels.join(" > "));
    }
    let _ = writeln!(log, "queues");
    let mut queues: Vec<&Queue> = case.cluster.queues.iter().collect();
    queues.sort_by_key(|queue| &queue.name);
    children(log, &queues, "", 1);
    let _ = writeln!(log, "jobs");
    for job in &case.cluster.jobs {
        job_lines(log, job, session);
    }
}

fn nodes(log: &mut String, title: &str, session: &Session<'_>, held: &BTreeMap<&str, held::Gpus>) {
    let _ = writeln!(log, "{title}");
    for node in &session.lowered.nodes {
        let amounts = &node.allocatable;
        let gpus = held[node.name.as_str()];
        let _ = write!(
            log,
            "  {}: {} GPUs (idle {}, releasing {}), {}m, {} B, {} pods",
            node.name, amounts.gpus, gpus.idle, gpus.releasing, amounts.cpu_milli, amounts.memory_bytes, amounts.pods
        );
        for (profile, count) in &amounts.mig {
            let _ = write!(log, ", {count} {profile}");
        }
        if let Some(memory) = node.gpu_memory_mib {
            let _ = write!(log, ", {memory} MiB each");
        }
        let labels = node.labels.iter().filter(|(key, _)| !key.starts_with("nvidia.com/gpu"));
        let labels: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
        let _ = writeln!(log, "  [{}]", labels.join(" "));
    }
}

fn children(log: &mut String, queues: &[&Queue], parent: &str, depth: usize) {
    for queue in queues.iter().filter(|queue| queue.parent == parent) {
        let grant = |grant: Grant| format!("{}/{}/{}", grant.quota, grant.limit, grant.weight);
        let _ = write!(
            log,
            "{:indent$}{}: priority {}, created {:+} s, quota/limit/weight gpu {} cpu {} memory {}",
            "",
            queue.name,
            queue.priority,
            queue.created_offset_seconds,
            grant(queue.gpu),
            grant(queue.cpu_milli),
            grant(queue.memory_mb),
            indent = depth * 2
        );
        if let Some(seconds) = queue.preempt_min_runtime_seconds {
            let _ = write!(log, ", preempt min runtime {seconds} s");
        }
        if let Some(seconds) = queue.reclaim_min_runtime_seconds {
            let _ = write!(log, ", reclaim min runtime {seconds} s");
        }
        let _ = writeln!(log);
        children(log, queues, &queue.name, depth + 1);
    }
}

fn job_lines(log: &mut String, job: &Job, session: &Session<'_>) {
    let _ = write!(
        log,
        "  {}: queue {}, priority {}{}, age {} s",
        job.uid,
        job.queue,
        job.priority,
        if job.preemptible { "" } else { " (non-preemptible)" },
        job.age_seconds
    );
    if let Some(seconds) = job.stale_for_seconds {
        let _ = write!(log, ", stale for {seconds} s");
    }
    if let Some(seconds) = job.preemption_delay_seconds {
        let _ = write!(log, ", preemption delay {seconds} s");
    }
    let _ = writeln!(log, ", {}", tree(&job.subgroups));
    for task in &job.tasks {
        let placement = session.before.get(&task.uid);
        let _ = write!(log, "    {}: {placement} {}", task.uid, request(&task.request));
        if !placement.groups.is_empty() {
            let _ = write!(log, " on {}", placement.groups.join("+"));
        }
        if job.subgroups.pod_sets.len() + job.subgroups.groups.len() > 1 || task.pod_set != "default" {
            let _ = write!(log, " in {}", task.pod_set);
        }
        extras(log, task);
        let _ = writeln!(log);
    }
}

fn extras(log: &mut String, task: &Task) {
    if let Some(order) = &task.task_order {
        let _ = write!(log, ", order {order}");
    }
    if task.legacy_mig {
        let _ = write!(log, ", legacy MIG");
    }
    for rule in &task.required_node_affinity {
        let _ = write!(log, ", {} {} {:?}", rule.key, rule.op, rule.values);
    }
    for (word, terms) in [("near", &task.required_pod_affinity), ("apart from", &task.required_pod_anti_affinity)] {
        for term in terms {
            let _ = write!(log, ", {word} {:?} by {}", term.match_labels, term.topology_key);
        }
    }
    for claim in &task.resource_claims {
        let _ = write!(log, ", claim {}", claim.claim_name);
    }
}

fn tree(group: &SubGroups) -> String {
    let mut members: Vec<(&str, String)> =
        group.groups.iter().map(|group| (group.name.as_str(), tree(group))).collect();
    members.extend(group.pod_sets.iter().map(|set| (set.name.as_str(), leaf(set))));
    members.sort();
    let members: Vec<String> = members.into_iter().map(|(_, text)| text).collect();
    let need = group.min_sub_groups.map_or_else(String::new, |need| format!(" need {need}"));
    format!("{}{need}{}[{}]", group.name, constraint(group.topology_constraint.as_ref()), members.join(" "))
}

fn leaf(set: &PodSet) -> String {
    format!("{} min {}{}", set.name, set.min_available, constraint(set.topology_constraint.as_ref()))
}

fn constraint(constraint: Option<&TopologyConstraint>) -> String {
    constraint.map_or_else(String::new, |constraint| {
        let TopologyConstraint { topology, required_level, preferred_level } = constraint;
        format!(" ({topology}: required {required_level:?}, preferred {preferred_level:?})")
    })
}

fn request(request: &Request) -> String {
    let devices = request.fraction_devices.map_or_else(String::new, |devices| format!("{devices} x "));
    let gpu = match request.kind {
        Kind::None => String::new(),
        Kind::Gpu => format!(" {} GPU", request.gpus),
        Kind::Fraction => format!(" {devices}{} GPU", request.fraction),
        Kind::GpuMemory => format!(" {devices}{} MiB", request.gpu_memory_mib),
        Kind::Mig => {
            let profiles: Vec<String> = request.mig.iter().map(|(name, count)| format!(" {count} {name}")).collect();
            profiles.concat()
        }
        Kind::Dra => " claims".to_string(),
    };
    format!("{}m {} B{gpu}", request.cpu_milli, request.memory_bytes)
}

/// Every task: before, expected, of NVIDIA KAI, of the engine; `≠` where the engine differs from what is judged.
fn tasks(log: &mut String, case: &Case, session: &Session<'_>, round: Option<usize>, judged: bool) {
    let recorded = round.and_then(|round| case.observed.rounds.get(round));
    let mut rows = vec![["", "task", "before", "expected", "KAI", "got"].map(str::to_string)];
    for (job, task) in case.tasks() {
        let wanted = case.expect.tasks.get(&task.uid).or_else(|| case.expect.jobs.get(&job.uid));
        let placement = session.after.get(&task.uid);
        let got = placement.to_string();
        let kai = recorded.and_then(|round| round.tasks.get(&task.uid));
        let expected = wanted.filter(|_| judged).map(|wanted| match &wanted.node {
            Some(node) => format!("{:?}@{node}", wanted.status),
            None => format!("{:?}", wanted.status),
        });
        let differs = match &expected {
            _ if case.judged_by_observation() => kai.is_some_and(|kai| *kai != got),
            Some(expected) if expected.contains('@') => *expected != got,
            Some(expected) => *expected != got.split('@').next().unwrap_or_default(),
            None => false,
        };
        let devices = |labels: Option<&Vec<String>>| {
            labels
                .filter(|labels| !labels.is_empty())
                .map_or_else(String::new, |labels| format!(" {}", labels.join("+")))
        };
        let kai_labels = recorded.and_then(|round| round.gpu_groups.as_ref()).and_then(|groups| groups.get(&task.uid));
        rows.push([
            if differs { "≠" } else { "" }.to_string(),
            task.uid.clone(),
            session.before.get(&task.uid).to_string(),
            expected.unwrap_or_default(),
            kai.map_or_else(String::new, |kai| format!("{kai}{}", devices(kai_labels))),
            format!("{got}{}", devices(Some(&placement.groups))),
        ]);
    }
    log.push_str(&columns(&rows));
}

/// Left-aligned columns, two blanks apart.
fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: Vec<usize> =
        (0..N).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    let line = |row: &[String; N]| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}", width = *width)).collect();
        format!("  {}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn triple(amount: ResourceQuantities) -> String {
    let [cpu, memory, gpu] = amount.0;
    format!("{cpu}m/{memory}B/{}gpu", gpu as f64 / GPU as f64)
}
