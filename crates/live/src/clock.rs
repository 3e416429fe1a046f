//! The only place that reads the wall clock.

use kai_engine::units::Timestamp;

pub(crate) fn now() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_microsecond())
}
