//! The one place that reads the time of day.

use kai_engine::units::Timestamp;

pub(crate) fn now() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_microsecond())
}
