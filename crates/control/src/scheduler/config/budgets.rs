//! Bounds on the victim search. Users write time; steps are counted, so that a slow machine decides the same.

use kai_engine::policy::SearchBudget;
use kai_engine::units::Span;

use super::suggestion;
use crate::objects::Malformed;
use crate::objects::field_reader::FieldReader;

pub(super) fn read(place: &FieldReader<'_>) -> Result<SearchBudget, Malformed> {
    let built_in = SearchBudget::default();
    let actions = place.field("maxActionSearchDuration");
    let generators = place.field("maxGeneratorSearchDuration");
    known_keys(&actions, &["reclaim", "preempt", "consolidation", "default"])?;
    known_keys(&generators, &["NodeLocalGreedy", "MultiNodeGang", "default"])?;
    let job = place.field("maxJobSearchDuration");
    let least = place.field("minJobSearchDuration");
    let budget = SearchBudget {
        reclaim: own_or_default(&actions, "reclaim", built_in.reclaim)?,
        preempt: own_or_default(&actions, "preempt", built_in.preempt)?,
        consolidate: own_or_default(&actions, "consolidation", built_in.consolidate)?,
        job_max: steps(&job)?.map_or(built_in.job_max, |Bound(steps)| steps),
        job_min: steps(&least)?.map_or(built_in.job_min, |Bound(steps)| steps.unwrap_or(0)),
        node_local_greedy: own_or_default(&generators, "NodeLocalGreedy", built_in.node_local_greedy)?,
        multi_node_gang: own_or_default(&generators, "MultiNodeGang", built_in.multi_node_gang)?,
    };
    if budget.job_max.is_some_and(|most| budget.job_min >= most) {
        return Err(least.invalid(
            "the guaranteed search is not shorter than the longest",
            "make it shorter than maxJobSearchDuration",
        ));
    }
    Ok(budget)
}

fn known_keys(map: &FieldReader<'_>, known: &[&str]) -> Result<(), Malformed> {
    for (key, place) in map.entries()? {
        if !known.contains(&key) {
            let problem = format!("`{key}` has no budget{}", suggestion(key, known.iter().copied()));
            return Err(place.invalid(problem, format!("use {}", known.join(", "))));
        }
    }
    Ok(())
}

/// The entry itself, else the configured default, else the built-in value.
fn own_or_default(map: &FieldReader<'_>, key: &str, built_in: Option<u64>) -> Result<Option<u64>, Malformed> {
    let own = steps(&map.field(key))?;
    let default = steps(&map.field("default"))?;
    Ok(own.or(default).map_or(built_in, |Bound(steps)| steps))
}

/// A bound as written; `None` is no bound.
struct Bound(Option<u64>);

/// `None` if nothing is written.
fn steps(place: &FieldReader<'_>) -> Result<Option<Bound>, Malformed> {
    let Some(Span(micros)) = place.span()? else { return Ok(None) };
    if micros < 0 {
        return Err(place.invalid("must not be negative", "use 0 for no bound"));
    }
    let steps = u128::from(micros.unsigned_abs()) * u128::from(SearchBudget::STEPS_PER_SECOND) / 1_000_000;
    Ok(Some(Bound((micros > 0).then(|| u64::try_from(steps).unwrap_or(u64::MAX).max(1)))))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn budget(value: &Value) -> Result<SearchBudget, Malformed> {
        read(&FieldReader::root(value))
    }

    const SECOND: u64 = SearchBudget::STEPS_PER_SECOND;

    #[test]
    fn a_configured_default_replaces_built_in_values() {
        let found = budget(&json!({
            "maxActionSearchDuration": {"default": "10s", "preempt": "0s"},
            "maxGeneratorSearchDuration": {"default": "1s"},
            "minJobSearchDuration": "2s",
        }))
        .unwrap();
        assert_eq!((found.reclaim, found.preempt), (Some(10 * SECOND), None));
        assert_eq!((found.node_local_greedy, found.multi_node_gang), (Some(SECOND), Some(SECOND)));
        assert_eq!((found.job_max, found.job_min), (Some(240 * SECOND), 2 * SECOND));
    }

    #[test]
    fn nonsense_is_refused() {
        let wrong = |value: Value| budget(&value).unwrap_err().to_string();
        assert_eq!(
            wrong(json!({"maxActionSearchDuration": {"reclam": "1s"}})),
            "maxActionSearchDuration.reclam: `reclam` has no budget; did you mean reclaim?"
        );
        assert_eq!(wrong(json!({"maxJobSearchDuration": "-1s"})), "maxJobSearchDuration: must not be negative");
        assert_eq!(
            wrong(json!({"minJobSearchDuration": "4m"})),
            "minJobSearchDuration: the guaranteed search is not shorter than the longest"
        );
    }
}
