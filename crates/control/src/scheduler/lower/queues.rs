//! The queue tree of the shard, cleaned: orphans and cycles are taken out and reported.

use std::collections::BTreeMap;

use kai_api::bounds::QUEUE_LEVELS_MAX;
use kai_engine::builder::Builder;
use kai_engine::ids::QueueId;
use kai_engine::snapshot::Queue as QueueRow;
use kai_engine::units::{Ceiling, ONE, Timestamp};

use super::{Names, QueueName, SYNTHETIC_QUEUE, in_shard};
use crate::ancestors::{Ancestry, ancestries};
use crate::kinds::ObjectId;
use crate::objects::Queue;
use crate::scheduler::effect::Problem;
use crate::scheduler::reasons::{ProblemReason, QueueFault};
use crate::scheduler::settings::Settings;
use crate::scheduler::usage::Usage;
use crate::world::World;

/// Queues that may hold work, and why others may not.
pub(super) struct ShardQueues<'w> {
    pub(super) rows: Rows<'w>,
    pub(super) problems: Vec<Problem>,
}

/// Queues by name with the name of the parent.
pub(super) type Rows<'w> = BTreeMap<&'w str, (QueueName<'w>, Option<&'w str>)>;

pub(super) fn select<'w>(world: &'w World, settings: &Settings) -> ShardQueues<'w> {
    let shard: BTreeMap<&str, &Queue> = world
        .queues
        .values()
        .filter(|queue| in_shard(&queue.labels, settings))
        .map(|queue| (queue.name.as_str(), queue))
        .collect();
    let parents = shard.iter().map(|(name, queue)| (*name, queue.parent.as_deref())).collect();
    let ancestries = ancestries(&parents);
    let mut rows = Rows::new();
    let mut problems = Vec::new();
    for (name, queue) in &shard {
        match fault(queue, ancestries[name]) {
            None => {
                rows.insert(name, (QueueName::Real(queue), queue.parent.as_deref()));
            }
            Some(fault) => problems
                .push(Problem { object: ObjectId::Queue((*name).to_owned()), reason: ProblemReason::Queue { fault } }),
        }
    }
    if !settings.full_hierarchy_fairness {
        rows = flatten(rows);
    }
    ShardQueues { rows, problems }
}

/// Why a queue is left out.
fn fault(queue: &Queue, ancestry: Ancestry<'_>) -> Option<QueueFault> {
    let parent = || queue.parent.clone().unwrap_or_default();
    match ancestry {
        Ancestry::Levels(levels) if levels > QUEUE_LEVELS_MAX => {
            Some(QueueFault::TooDeep { levels, most: QUEUE_LEVELS_MAX })
        }
        Ancestry::Levels(_) => None,
        Ancestry::Cycle => Some(QueueFault::Cycle),
        Ancestry::BelowCycle => Some(QueueFault::AncestorFaulty { queue: parent() }),
        Ancestry::Orphan(orphan) if orphan == queue.name => Some(QueueFault::ParentMissing { parent: parent() }),
        Ancestry::Orphan(orphan) => Some(QueueFault::AncestorFaulty { queue: orphan.to_owned() }),
    }
}

/// One level: every queue that has a parent hangs from one synthetic queue, top-level queues go.
fn flatten(rows: Rows<'_>) -> Rows<'_> {
    let mut flat: Rows<'_> = rows
        .into_iter()
        .filter(|(_, (_, parent))| parent.is_some())
        .map(|(name, (queue, _))| (name, (queue, Some(SYNTHETIC_QUEUE))))
        .collect();
    flat.insert(SYNTHETIC_QUEUE, (QueueName::Synthetic, None));
    flat
}

/// Adds the rows and answers with their ids.
pub(super) fn add<'w>(
    rows: Rows<'w>,
    usage: &Usage,
    now: Timestamp,
    builder: &mut Builder,
    names: &mut Names<'w>,
) -> BTreeMap<&'w str, QueueId> {
    let ids: BTreeMap<&str, QueueId> =
        rows.keys().enumerate().map(|(index, name)| (*name, QueueId::at(index))).collect();
    for (name, (queue, parent)) in rows {
        let parent = parent.map(|parent| ids[parent]);
        let usage = usage.queues.get(name).copied().unwrap_or_default();
        builder.queue(match queue {
            QueueName::Real(queue) => real(queue, parent, usage),
            QueueName::Synthetic => synthetic(now),
        });
        names.queues.push(queue);
    }
    ids
}

fn real(queue: &Queue, parent: Option<QueueId>, usage: [i64; 3]) -> QueueRow {
    let amounts = queue.amounts();
    QueueRow {
        parent,
        priority: queue.priority,
        created: queue.created,
        quota: amounts.map(|amount| amount.quota),
        limit: amounts.map(|amount| amount.limit),
        weight: amounts.map(|amount| amount.weight),
        usage,
        preempt_min_runtime: queue.preempt_min_runtime,
        reclaim_min_runtime: queue.reclaim_min_runtime,
    }
}

fn synthetic(now: Timestamp) -> QueueRow {
    QueueRow {
        parent: None,
        priority: kai_api::keys::priority::QUEUE_DEFAULT,
        created: now,
        quota: [Ceiling::Unlimited; 3],
        limit: [Ceiling::Unlimited; 3],
        weight: [ONE; 3],
        usage: [0; 3],
        preempt_min_runtime: None,
        reclaim_min_runtime: None,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;
    use crate::kinds::Object;

    /// Queues as `name<parent`, separated by spaces.
    fn check(queues: &str, settings: &Settings, want: &Expect) {
        let mut world = World::default();
        for text in queues.split_whitespace() {
            let (name, parent) = text.split_once('<').unwrap_or((text, ""));
            let queue = Queue::parse(&json!({"metadata": {"name": name}, "spec": {"parentQueue": parent}})).unwrap();
            world.apply(Object::Queue(Box::new(queue)));
        }
        let selected = select(&world, settings);
        let mut text: Vec<String> = selected
            .rows
            .iter()
            .map(|(name, (_, parent))| {
                parent.map_or_else(|| (*name).to_owned(), |parent| format!("{name} below {parent}"))
            })
            .collect();
        text.extend(selected.problems.iter().map(|problem| format!("{}: {}", problem.object, problem.reason.reason())));
        want.assert_eq(&text.join("\n"));
    }

    #[test]
    fn orphans_and_circles_are_left_out() {
        check(
            "team<dept dept lost<nowhere deep<lost a<b b<a under<a self<self",
            &Settings::default(),
            &expect![[r"
                dept
                team below dept
                queue a: QueueCycle
                queue b: QueueCycle
                queue deep: OrphanQueue
                queue lost: OrphanQueue
                queue self: QueueCycle
                queue under: OrphanQueue"]],
        );
    }

    #[test]
    fn queues_beyond_the_deepest_level_are_left_out() {
        let mut world = World::default();
        for level in 0..5_000_usize {
            let parent = level.checked_sub(1).map_or_else(String::new, |above| format!("q{above:04}"));
            let queue = json!({"metadata": {"name": format!("q{level:04}")}, "spec": {"parentQueue": parent}});
            world.apply(Object::Queue(Box::new(Queue::parse(&queue).unwrap())));
        }
        let selected = select(&world, &Settings::default());
        assert_eq!(selected.rows.len(), QUEUE_LEVELS_MAX);
        assert_eq!(selected.problems.len(), 5_000 - QUEUE_LEVELS_MAX);
        expect![[r"
            queue q0064: It is on level 65 of its tree, and at most 64 levels are taken, so that jobs of this queue wait. Name a spec.parentQueue that is nearer to the top."]]
        .assert_eq(&selected.problems[0].to_string());
    }

    #[test]
    fn flattening_leaves_one_level() {
        check(
            "dept team<dept sub<team lonely",
            &Settings { full_hierarchy_fairness: false, ..Settings::default() },
            &expect![[r"
                default
                sub below default
                team below default"]],
        );
    }
}
