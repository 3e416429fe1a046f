//! How deliberately running jobs are evicted for others. Not in KAI.
//!
//! ```yaml
//! evictions:
//!   period: 1s               # consolidation, reclaim and preemption run at most so often
//!   settleTimeout: 3s        # they wait so long at most for binds and terminating pods
//!   cooldown: 20s            # a job that was evicted is not evicted again so soon
//!   moveCooldown: 5m         # nor moved by consolidation
//!   maxMoves: auto           # pods that consolidation moves per window: a number, auto, or -1 for no limit
//!   movesWindow: 2m
//!   maxLostWorkPerGpu: 10m   # run time × GPUs that moved pods may lose for each GPU that starts; absent is no limit
//!   leastWorkFirst: false    # of victims of equal priority, those that lose the least work
//! ```

use kai_engine::units::Span;

use super::suggestion;
use crate::objects::Malformed;
use crate::objects::field_reader::FieldReader;
use crate::scheduler::settings::{MoveBudget, Settings};

const KEYS: [&str; 8] = [
    "period",
    "settleTimeout",
    "cooldown",
    "moveCooldown",
    "maxMoves",
    "movesWindow",
    "maxLostWorkPerGpu",
    "leastWorkFirst",
];

pub(super) fn read(
    place: &FieldReader<'_>,
    settings: &mut Settings,
    warnings: &mut Vec<String>,
) -> Result<(), Malformed> {
    for (key, _) in place.entries()? {
        if !KEYS.contains(&key) {
            warnings.push(format!("evictions.{key} is not a setting{}", suggestion(key, KEYS)));
        }
    }
    let (evictions, disruption) = (&mut settings.evictions, &mut settings.policy.disruption);
    let spans = [
        ("period", &mut evictions.period),
        ("settleTimeout", &mut evictions.settle_timeout),
        ("cooldown", &mut disruption.eviction_cooldown),
        ("moveCooldown", &mut disruption.move_cooldown),
        ("movesWindow", &mut evictions.moves_window),
    ];
    for (key, setting) in spans {
        if let Some(written) = span(&place.field(key))? {
            *setting = written;
        }
    }
    disruption.lost_work_per_gpu_max = span(&place.field("maxLostWorkPerGpu"))?;
    disruption.least_work_first = place.field("leastWorkFirst").flag()?.unwrap_or(false);
    let moves = place.field("maxMoves");
    if let Some(text) = moves.scalar_text()? {
        evictions.moves = match text.as_str() {
            "auto" => MoveBudget::Auto,
            "-1" => MoveBudget::Unlimited,
            number => MoveBudget::At(number.parse().map_err(|_| {
                moves.invalid(format!("`{number}` is not a number of pods"), "use a number, auto, or -1 for no limit")
            })?),
        };
    }
    Ok(())
}

fn span(place: &FieldReader<'_>) -> Result<Option<Span>, Malformed> {
    match place.span()? {
        Some(Span(..0)) => Err(place.invalid("must not be negative", "use a duration such as 60s, or 0s")),
        span => Ok(span),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheduler::config::Configured;

    #[test]
    fn evictions_are_configured_as_written() {
        let configured = Configured::read(&json!({"evictions": {
            "period": "5s", "settleTimeout": "0s", "cooldown": "2m", "moveCooldown": "1h", "maxMoves": 3,
            "movesWindow": "1m", "maxLostWorkPerGpu": "10m", "leastWorkFirst": true, "perid": "1s",
        }}))
        .unwrap();
        let (evictions, disruption) = (configured.settings.evictions, configured.settings.policy.disruption);
        assert_eq!((evictions.period, evictions.settle_timeout), (Span::seconds(5), Span(0)));
        assert_eq!((evictions.moves, evictions.moves_window), (MoveBudget::At(3), Span::seconds(60)));
        assert_eq!((disruption.eviction_cooldown, disruption.move_cooldown), (Span::seconds(120), Span::seconds(3600)));
        assert_eq!(disruption.lost_work_per_gpu_max, Some(Span::seconds(600)));
        assert!(disruption.least_work_first && disruption.allowed);
        assert_eq!(configured.warnings, ["evictions.perid is not a setting; did you mean period?"]);
    }

    #[test]
    fn a_budget_of_moves_is_a_number_auto_or_none() {
        let moves = |value: serde_json::Value| {
            Configured::read(&json!({"evictions": {"maxMoves": value}}))
                .map(|configured| configured.settings.evictions.moves)
                .map_err(|wrong| wrong.to_string())
        };
        assert_eq!(moves(json!("auto")), Ok(MoveBudget::Auto));
        assert_eq!(moves(json!(-1)), Ok(MoveBudget::Unlimited));
        assert_eq!(moves(json!(0)), Ok(MoveBudget::At(0)));
        assert_eq!(moves(json!("many")), Err("evictions.maxMoves: `many` is not a number of pods".to_owned()));
        let negative = Configured::read(&json!({"evictions": {"cooldown": "-1s"}})).unwrap_err();
        assert_eq!(negative.to_string(), "evictions.cooldown: must not be negative");
    }
}
