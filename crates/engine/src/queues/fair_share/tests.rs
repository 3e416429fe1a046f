use proptest::prelude::*;

use super::*;
use crate::units::GPU;

fn claim(quota: i64, weight: i64, request: i64) -> QueueDemand {
    QueueDemand {
        quota: Ceiling::At(quota * GPU),
        limit: Ceiling::Unlimited,
        weight: weight * ONE,
        usage: 0,
        request: request * GPU,
        priority: 100,
        created: Timestamp(0),
        share: 0,
    }
}

fn check(total: i64, k_value: i64, mut claims: Vec<QueueDemand>, shares: &[f64], rest: f64) {
    let left = divide(total * GPU, GPU, k_value, &mut claims);
    let got: Vec<f64> = claims.iter().map(|claim| claim.share as f64 / GPU as f64).collect();
    assert_eq!((got.as_slice(), left as f64 / GPU as f64), (shares, rest));
}

#[test]
fn larger_fraction_gets_the_last_unit() {
    check(11, 0, vec![claim(2, 1, 10), claim(2, 4, 10)], &[3.0, 8.0], 0.0);
}

#[test]
fn limit_forces_a_second_round() {
    let limited = QueueDemand { limit: Ceiling::At(400 * GPU), ..claim(150, 2, 5000) };
    check(1000, 0, vec![claim(250, 1, 5000), limited], &[600.0, 400.0], 0.0);
}

#[test]
fn fractional_requests_are_given_exactly() {
    let micro = |claim: QueueDemand, request: i64| QueueDemand { request, ..claim };
    let claims = vec![
        micro(claim(12, 12, 0), 32_550_000),
        micro(claim(7, 7, 0), 9_500_000),
        QueueDemand { limit: Ceiling::At(2 * GPU), ..micro(claim(2, 2, 0), 1_650_000) },
    ];
    check(45, 0, claims, &[32.55, 9.5, 1.65], 1.3);
}

#[test]
fn rounding_remainder_goes_to_lower_priority_first() {
    let with = |priority: i32| QueueDemand { priority, ..claim(0, 1, 5) };
    check(3, 0, vec![with(2), with(2), with(1)], &[1.0, 1.0, 1.0], 0.0);
}

#[test]
fn last_unit_may_exceed_the_request() {
    let older = QueueDemand { request: 2_600_000, created: Timestamp(-1), ..claim(0, 1, 0) };
    check(5, 0, vec![older, claim(0, 1, 9)], &[3.0, 2.0], 0.0);
}

#[test]
fn past_usage_lowers_the_share() {
    let used = QueueDemand { usage: 500_000, ..claim(0, 1, 10) };
    check(10, ONE, vec![used, claim(0, 1, 10)], &[3.0, 7.0], 0.0);
}

#[test]
fn oversubscribed_quotas_stay_guaranteed() {
    check(10, 0, vec![claim(5, 1, 5), claim(5, 1, 5), claim(5, 1, 5)], &[5.0, 5.0, 5.0], -5.0);
}

fn any_claim() -> impl Strategy<Value = QueueDemand> {
    let ceiling = || prop_oneof![Just(Ceiling::Unlimited), (0..20i64).prop_map(|n| Ceiling::At(n * GPU / 2))];
    (ceiling(), ceiling(), 0..5i64, 0..ONE, 0..40i64, 0..3i32, 0..3i64).prop_map(
        |(quota, limit, weight, usage, request, priority, created)| QueueDemand {
            quota,
            limit,
            weight: weight * ONE,
            usage,
            request: request * GPU / 4,
            priority,
            created: Timestamp(created),
            share: 0,
        },
    )
}

proptest! {
    #[test]
    fn every_queue_gets_its_guarantee_and_none_passes_its_limit_by_a_unit(
        total in 0..60i64, k in 0..3i64, mut claims in prop::collection::vec(any_claim(), 1..7)
    ) {
        let total = total * GPU / 2;
        let rest = divide(total, GPU, k * ONE / 2, &mut claims);
        let given: i64 = claims.iter().map(|claim| claim.share).sum();
        prop_assert_eq!(given + rest, total);
        for claim in &claims {
            let quota = match claim.quota { Ceiling::Unlimited => total, Ceiling::At(quota) => quota };
            prop_assert!(claim.share >= quota.min(claim.requestable()));
            prop_assert!(claim.share < claim.requestable().max(0) + GPU);
        }
    }

    #[test]
    fn order_of_input_does_not_matter(
        total in 0..60i64, k in 0..3i64, mut claims in prop::collection::vec(any_claim(), 1..7), turn in 0..7usize
    ) {
        // Names are the last tie-break and follow the input order, so make creation times distinct.
        for (index, claim) in claims.iter_mut().enumerate() {
            claim.created = Timestamp(index as i64);
        }
        let mut turned = claims.clone();
        turned.rotate_left(turn % claims.len());
        divide(total * GPU, GPU, k * ONE, &mut claims);
        divide(total * GPU, GPU, k * ONE, &mut turned);
        turned.sort_by_key(|claim| claim.created);
        let shares = |claims: &[QueueDemand]| claims.iter().map(|claim| claim.share).collect::<Vec<_>>();
        prop_assert_eq!(shares(&claims), shares(&turned));
    }
}
