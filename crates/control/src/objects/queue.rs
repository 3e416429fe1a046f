//! A queue as its owner wrote it, in engine units.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kai_api::keys::annotation;
use kai_engine::units::compat::QUEUE_MEMORY_UNIT;
use kai_engine::units::{Ceiling, GPU, ONE, Span, Timestamp};
use serde_json::Value;

use super::field_reader::FieldReader;
use super::{LabelSelector, Malformed, Namespace};

/// What matters of a `Queue`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub created: Timestamp,
    pub display_name: Option<String>,
    pub parent: Option<String>,
    pub priority: i32,
    pub cpu: QueueAmounts,
    pub memory: QueueAmounts,
    pub gpu: QueueAmounts,
    pub preempt_min_runtime: Option<Span>,
    pub reclaim_min_runtime: Option<Span>,
    /// Which namespaces may use it and the queues below it; `None` is all.
    pub namespaces: Option<NamespaceRule>,
}

/// Namespaces that may use a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceRule {
    pub names: BTreeSet<String>,
    /// Their labels, or what is wrong with the selector, which then selects none.
    pub selector: Option<Result<LabelSelector, String>>,
}

/// Amounts of one resource: milli-cores, bytes or millionths of a GPU; the weight in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueAmounts {
    pub quota: Ceiling,
    pub limit: Ceiling,
    pub weight: i64,
}

/// Priority of a queue that names none.
const PRIORITY_DEFAULT: i32 = kai_api::keys::priority::QUEUE_DEFAULT;

/// Larger than any cluster, small enough to be added up.
const AMOUNT_CAP: f64 = 1e17;

/// A billion times the weight of others.
const WEIGHT_CAP: f64 = 1e15;

impl Queue {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let (metadata, spec) = (root.field("metadata"), root.field("spec"));
        let resources = spec.field("resources");
        Ok(Self {
            name: root.object_name()?,
            labels: metadata.field("labels").string_map()?,
            created: metadata.field("creationTimestamp").time()?.unwrap_or(Timestamp(0)),
            display_name: spec.field("displayName").non_empty_text()?,
            parent: spec.field("parentQueue").non_empty_text()?,
            priority: spec.field("priority").int32()?.unwrap_or(PRIORITY_DEFAULT),
            cpu: QueueAmounts::read(&resources.field("cpu"), 1)?,
            memory: QueueAmounts::read(&resources.field("memory"), QUEUE_MEMORY_UNIT)?,
            gpu: QueueAmounts::read(&resources.field("gpu"), GPU)?,
            preempt_min_runtime: spec.field("preemptMinRuntime").span()?,
            reclaim_min_runtime: spec.field("reclaimMinRuntime").span()?,
            namespaces: NamespaceRule::read(&metadata.field("annotations"))?,
        })
    }

    /// CPU, memory, GPU.
    pub fn amounts(&self) -> [QueueAmounts; 3] {
        [self.cpu, self.memory, self.gpu]
    }

    /// What people call it.
    pub fn shown(&self) -> &str {
        self.display_name.as_deref().unwrap_or(&self.name)
    }
}

impl NamespaceRule {
    /// An annotation without text is as good as none.
    fn read(annotations: &FieldReader<'_>) -> Result<Option<Self>, Malformed> {
        let names = annotations.field(annotation::QUEUE_NAMESPACES).text_or_empty()?;
        let selector = annotations.field(annotation::QUEUE_NAMESPACE_SELECTOR).text_or_empty()?;
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let selector = Some(selector.trim()).filter(|text| !text.is_empty()).map(LabelSelector::from_text);
        let rule = Self { names, selector };
        Ok((rule != Self::default()).then_some(rule))
    }

    pub fn allows(&self, namespace: &Namespace) -> bool {
        let selected = || matches!(&self.selector, Some(Ok(selector)) if selector.selects(&namespace.labels));
        self.names.contains(&namespace.name) || selected()
    }
}

/// For people, such as `a, b and those with team=x`.
impl fmt::Display for NamespaceRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let selected = match &self.selector {
            None => None,
            Some(Ok(selector)) => Some(format!("those labelled {selector}")),
            Some(Err(_)) => Some("those of a selector that cannot be read".to_owned()),
        };
        let parts: Vec<String> = Some(names).filter(|names| !names.is_empty()).into_iter().chain(selected).collect();
        out.write_str(&parts.join(" and "))
    }
}

impl QueueAmounts {
    fn read(place: &FieldReader<'_>, unit: i64) -> Result<Self, Malformed> {
        let weight = place.field("overQuotaWeight");
        let amount = weight.number()?.unwrap_or(0.0);
        if amount < 0.0 {
            return Err(weight.invalid(format!("the weight {amount} is negative"), "use 0 for no share above quota"));
        }
        Ok(Self {
            quota: ceiling(&place.field("quota"), unit)?,
            limit: ceiling(&place.field("limit"), unit)?,
            weight: (amount * ONE as f64).round().min(WEIGHT_CAP) as i64,
        })
    }
}

/// Negative amounts are unlimited. KAI does this for memory only and takes -2 GPUs literally.
fn ceiling(place: &FieldReader<'_>, unit: i64) -> Result<Ceiling, Malformed> {
    let amount = place.number()?.unwrap_or(0.0);
    if amount < 0.0 {
        return Ok(Ceiling::Unlimited);
    }
    Ok(Ceiling::At((amount * unit as f64).round().min(AMOUNT_CAP) as i64))
}

#[cfg(test)]
impl Queue {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        let amounts = json!({"quota": 1.5, "limit": -1, "overQuotaWeight": 2});
        json!({"metadata": {"name": "q", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {
            "kai.scheduler/namespaces": "a,b", "kai.scheduler/namespace-selector": "team=x"}},
        "spec": {"displayName": "Q", "parentQueue": "r", "priority": 1, "preemptMinRuntime": "1h", "reclaimMinRuntime": "1s",
            "resources": {"cpu": amounts, "memory": amounts, "gpu": amounts}}})
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn queue(spec: &Value) -> Result<Queue, Malformed> {
        Queue::parse(&json!({"metadata": {"name": "team"}, "spec": spec}))
    }

    #[test]
    fn amounts_are_turned_into_engine_units() {
        let queue = queue(&json!({"resources": {
            "cpu": {"quota": 1500, "limit": -1, "overQuotaWeight": 2},
            "memory": {"quota": 16, "limit": 32.5},
            "gpu": {"quota": 0.5, "limit": -3, "overQuotaWeight": 0.25},
        }}));
        let queue = queue.unwrap();
        assert_eq!(queue.cpu, QueueAmounts { quota: Ceiling::At(1500), limit: Ceiling::Unlimited, weight: 2 * ONE });
        let memory = QueueAmounts { quota: Ceiling::At(16_000_000), limit: Ceiling::At(32_500_000), weight: 0 };
        assert_eq!(queue.memory, memory);
        let gpu = QueueAmounts { quota: Ceiling::At(GPU / 2), limit: Ceiling::Unlimited, weight: ONE / 4 };
        assert_eq!(queue.gpu, gpu);
    }

    #[test]
    fn absent_amounts_are_zero() {
        let queue = queue(&json!({})).unwrap();
        assert_eq!(queue.gpu, QueueAmounts { quota: Ceiling::At(0), limit: Ceiling::At(0), weight: 0 });
        assert_eq!((queue.priority, queue.parent, queue.preempt_min_runtime), (100, None, None));
    }

    #[test]
    fn namespaces_are_listed_or_selected() {
        let rule = |annotations: Value| {
            let queue = json!({"metadata": {"name": "team", "annotations": annotations}});
            Queue::parse(&queue).unwrap().namespaces
        };
        assert_eq!(rule(json!({})), None);
        assert_eq!(rule(json!({"kai.scheduler/namespaces": " ,"})), None);
        let labelled = Namespace { labels: [("team".to_owned(), "x".to_owned())].into(), ..Namespace::named("c") };
        let both =
            rule(json!({"kai.scheduler/namespaces": "a, b", "kai.scheduler/namespace-selector": "team=x"})).unwrap();
        assert_eq!(both.to_string(), "a, b and those labelled team=x");
        let allowed = [Namespace::named("a"), Namespace::named("b"), labelled, Namespace::named("d")];
        assert_eq!(allowed.map(|namespace| both.allows(&namespace)), [true, true, true, false]);
        let unreadable = rule(json!({"kai.scheduler/namespace-selector": "team in x"})).unwrap();
        assert!(!unreadable.allows(&Namespace::named("a")), "a mistake does not open the queue");
    }

    #[test]
    fn mistakes_are_named() {
        let wrong = queue(&json!({"preemptMinRuntime": "soon"})).unwrap_err();
        assert_eq!(wrong.to_string(), "spec.preemptMinRuntime: `soon` is not a duration");
        let wrong = queue(&json!({"resources": {"gpu": {"quota": "8"}}})).unwrap_err();
        assert_eq!(wrong.to_string(), "spec.resources.gpu.quota: expected a number, found the text `8`");
        let wrong = queue(&json!({"resources": {"gpu": {"overQuotaWeight": -1}}})).unwrap_err();
        assert_eq!(wrong.field, "spec.resources.gpu.overQuotaWeight");
    }
}
