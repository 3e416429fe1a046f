//! When the certificate of the webhooks is renewed.
//!
//! The API server must trust a certificate before it is served, on every replica, and for as long as one replica may
//! still serve it. So a life has twelve parts:
//!
//! ```text
//!   0            made; good since one part ago, for clocks that are late
//!   8  Prepare   the next one is made; both are trusted from here on
//!   9  Switch    the next one is served
//!  12            the old one ends, and with it the trust in it
//! ```

use kai_engine::units::{Span, Timestamp};

const PARTS: i64 = 12;
const PREPARE: i64 = 8;

/// When a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub from: Timestamp,
    pub until: Timestamp,
}

/// What is kept for all replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredCertificates {
    pub served: Option<Validity>,
    /// Trusted already, but not served yet.
    pub next: Option<Validity>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationStep {
    /// All is well until then.
    Wait(Timestamp),
    /// There is nothing to serve: make a certificate and serve it.
    Issue,
    /// Make the next certificate, to be trusted beside the one that is served.
    Prepare,
    /// Serve the next certificate.
    Promote,
}

impl Validity {
    /// Of a certificate that is made now and lives for so long.
    pub fn starting(now: Timestamp, life: Span) -> Self {
        Self { from: now.plus(Span(-part(life))), until: now.plus(life) }
    }

    pub fn covers(&self, now: Timestamp) -> bool {
        (self.from..self.until).contains(&now)
    }
}

fn part(life: Span) -> i64 {
    (life.0 / PARTS).max(1)
}

/// What is to be done now, with certificates that live for so long.
pub fn step(kept: StoredCertificates, life: Span, now: Timestamp) -> RotationStep {
    let good = |validity: &Validity| validity.covers(now);
    let part = part(life);
    match (kept.served.filter(good), kept.next.filter(good)) {
        (None, None) => RotationStep::Issue,
        (None, Some(_)) => RotationStep::Promote,
        (Some(served), None) => {
            let due = served.until.plus(Span(-part * (PARTS - PREPARE)));
            if now >= due { RotationStep::Prepare } else { RotationStep::Wait(due) }
        }
        (Some(served), Some(next)) => {
            // One part after it was made, which was one part after it became good.
            let due = next.from.plus(Span(2 * part)).min(served.until);
            if now >= due { RotationStep::Promote } else { RotationStep::Wait(due) }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIFE: Span = Span::seconds(120);

    fn at(seconds: i64) -> Timestamp {
        Timestamp(0).plus(Span::seconds(seconds))
    }

    fn made(seconds: i64) -> Validity {
        Validity::starting(at(seconds), LIFE)
    }

    #[test]
    fn a_life_goes_through_its_steps() {
        let fresh = StoredCertificates { served: Some(made(0)), next: None };
        let prepared = StoredCertificates { served: Some(made(0)), next: Some(made(80)) };
        let switched = StoredCertificates { served: Some(made(80)), next: None };
        let cases = [
            (StoredCertificates::default(), 0, RotationStep::Issue),
            (fresh, 0, RotationStep::Wait(at(80))),
            (fresh, 79, RotationStep::Wait(at(80))),
            (fresh, 80, RotationStep::Prepare),
            (prepared, 80, RotationStep::Wait(at(90))),
            (prepared, 90, RotationStep::Promote),
            (switched, 90, RotationStep::Wait(at(160))),
        ];
        for (kept, now, want) in cases {
            assert_eq!(step(kept, LIFE, at(now)), want, "{kept:?} at {now}");
        }
    }

    #[test]
    fn a_certificate_that_was_not_renewed_in_time_is_replaced() {
        let late = StoredCertificates { served: Some(made(0)), next: None };
        assert_eq!(step(late, LIFE, at(119)), RotationStep::Prepare, "trust first, for as long as the old one is good");
        assert_eq!(
            step(StoredCertificates { next: Some(made(119)), ..late }, LIFE, at(119)),
            RotationStep::Wait(at(120))
        );
        assert_eq!(step(StoredCertificates { next: Some(made(119)), ..late }, LIFE, at(120)), RotationStep::Promote);
        assert_eq!(step(late, LIFE, at(120)), RotationStep::Issue);
        assert_eq!(
            step(StoredCertificates { served: Some(made(0)), next: Some(made(80)) }, LIFE, at(500)),
            RotationStep::Issue,
            "both have ended"
        );
    }

    #[test]
    fn a_certificate_of_the_future_is_none() {
        assert_eq!(step(StoredCertificates { served: Some(made(100)), next: None }, LIFE, at(0)), RotationStep::Issue);
    }

    proptest! {
        /// A server that checks at least once per part serves a valid certificate that has been trusted for a while.
        #[test]
        fn looking_now_and_then_is_enough(pauses in prop::collection::vec(1_i64..=9, 1..200)) {
            let (mut kept, mut now, mut trusted_since) = (StoredCertificates::default(), 0, 0);
            for pause in pauses {
                loop {
                    match step(kept, LIFE, at(now)) {
                        RotationStep::Wait(until) => {
                            prop_assert!(until > at(now));
                            break;
                        }
                        RotationStep::Issue => {
                            prop_assert_eq!(kept, StoredCertificates::default());
                            kept.served = Some(made(now));
                        }
                        RotationStep::Prepare => {
                            kept.next = Some(made(now));
                            trusted_since = now;
                        }
                        RotationStep::Promote => {
                            prop_assert!(now - trusted_since >= 10);
                            kept = StoredCertificates { served: kept.next, next: None };
                        }
                    }
                }
                let served = kept.served.unwrap();
                // A replica that has not looked since then still serves a good one.
                prop_assert!(served.covers(at(now + 10)));
                now += pause;
            }
        }
    }
}
