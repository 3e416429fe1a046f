//! How reasons and records are written as JSON: times in RFC 3339, spans in microseconds, amounts by unit, actions by the
//! names of the configuration.

use std::borrow::Borrow;

use kai_engine::units::{Ceiling, ResourceQuantities, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number for each queue resource.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Amounts<T> {
    cpu_milli: T,
    memory_bytes: T,
    gpu_micro: T,
}

impl<T> From<[T; 3]> for Amounts<T> {
    fn from([cpu_milli, memory_bytes, gpu_micro]: [T; 3]) -> Self {
        Self { cpu_milli, memory_bytes, gpu_micro }
    }
}

impl<T> From<Amounts<T>> for [T; 3] {
    fn from(amounts: Amounts<T>) -> Self {
        [amounts.cpu_milli, amounts.memory_bytes, amounts.gpu_micro]
    }
}

pub(in crate::scheduler) mod numbers {
    use super::{Amounts, Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::scheduler) fn serialize<S: Serializer>(amounts: &[i64; 3], out: S) -> Result<S::Ok, S::Error> {
        Amounts::from(*amounts).serialize(out)
    }

    pub(in crate::scheduler) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[i64; 3], D::Error> {
        Ok(Amounts::deserialize(from)?.into())
    }
}

pub(in crate::scheduler) mod triple {
    use super::{Deserializer, ResourceQuantities, Serializer, numbers};

    pub(in crate::scheduler) fn serialize<S: Serializer>(
        amounts: &ResourceQuantities,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        numbers::serialize(&amounts.0, out)
    }

    pub(in crate::scheduler) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<ResourceQuantities, D::Error> {
        numbers::deserialize(from).map(ResourceQuantities)
    }
}

/// A bound is a number, or `null` for none.
pub(in crate::scheduler) mod ceiling {
    use super::{Ceiling, Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn number(ceiling: Ceiling) -> Option<i64> {
        match ceiling {
            Ceiling::Unlimited => None,
            Ceiling::At(amount) => Some(amount),
        }
    }

    pub(super) fn of(number: Option<i64>) -> Ceiling {
        number.map_or(Ceiling::Unlimited, Ceiling::At)
    }

    pub(in crate::scheduler) fn serialize<S: Serializer>(bound: &Ceiling, out: S) -> Result<S::Ok, S::Error> {
        number(*bound).serialize(out)
    }

    pub(in crate::scheduler) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Ceiling, D::Error> {
        Option::deserialize(from).map(of)
    }
}

pub(in crate::scheduler) mod ceilings {
    use super::{Amounts, Ceiling, Deserialize, Deserializer, Serialize, Serializer, ceiling};

    pub(in crate::scheduler) fn serialize<S: Serializer>(bounds: &[Ceiling; 3], out: S) -> Result<S::Ok, S::Error> {
        Amounts::from(bounds.map(ceiling::number)).serialize(out)
    }

    pub(in crate::scheduler) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[Ceiling; 3], D::Error> {
        let numbers: [Option<i64>; 3] = Amounts::deserialize(from)?.into();
        Ok(numbers.map(ceiling::of))
    }
}

pub(in crate::scheduler) mod time {
    use super::{Borrow, Deserialize, Deserializer, Serialize, Serializer, Timestamp, de};

    pub(in crate::scheduler) fn serialize<S: Serializer>(
        time: &impl Borrow<Timestamp>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        match jiff::Timestamp::from_microsecond(time.borrow().0) {
            Ok(instant) => instant.to_string().serialize(out),
            // Out of the calendar: microseconds.
            Err(_) => time.borrow().0.serialize(out),
        }
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Micros(i64),
    }

    pub(in crate::scheduler) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        match Written::deserialize(from)? {
            Written::Micros(micros) => Ok(Timestamp(micros)),
            Written::Text(text) => {
                let instant: jiff::Timestamp = text.parse().map_err(de::Error::custom)?;
                Ok(Timestamp(instant.as_microsecond()))
            }
        }
    }
}

pub(in crate::scheduler) mod maybe_time {
    use super::{Borrow, Deserialize, Deserializer, Serialize, Serializer, Timestamp, time};

    /// A time as [`time`] writes it.
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Written(#[serde(with = "time")] Timestamp);

    pub(in crate::scheduler) fn serialize<S: Serializer>(
        time: &impl Borrow<Option<Timestamp>>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        time.borrow().map(Written).serialize(out)
    }

    pub(in crate::scheduler) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<Written>::deserialize(from)?.map(|written| written.0))
    }
}

pub(in crate::scheduler) mod micros {
    use kai_engine::units::Span;

    use super::{Borrow, Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::scheduler) fn serialize<S: Serializer>(span: &impl Borrow<Span>, out: S) -> Result<S::Ok, S::Error> {
        span.borrow().0.serialize(out)
    }

    pub(in crate::scheduler) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        i64::deserialize(from).map(Span)
    }
}

pub(in crate::scheduler) mod maybe_micros {
    use kai_engine::units::Span;

    use super::{Borrow, Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::scheduler) fn serialize<S: Serializer>(
        span: &impl Borrow<Option<Span>>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        span.borrow().map(|span| span.0).serialize(out)
    }

    pub(in crate::scheduler) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Span>, D::Error> {
        Ok(Option::<i64>::deserialize(from)?.map(Span))
    }
}

/// An action by its name in the configuration.
pub(in crate::scheduler) mod action {
    use kai_engine::policy::Action;

    use super::{Borrow, Deserialize, Deserializer, Serialize, Serializer, de};
    use crate::scheduler::config::{action_name, action_named};

    pub(in crate::scheduler) fn serialize<S: Serializer>(
        action: &impl Borrow<Action>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        action_name(*action.borrow()).serialize(out)
    }

    pub(in crate::scheduler) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Action, D::Error> {
        let name = String::deserialize(from)?;
        action_named(&name).ok_or_else(|| de::Error::custom(format!("`{name}` is not an action")))
    }
}

/// A queue resource by its name in the queue's spec.
pub(in crate::scheduler) mod resource {
    use kai_engine::units::QueueResource;

    use super::{Borrow, Deserialize, Deserializer, Serialize, Serializer, de};

    pub(in crate::scheduler) fn name(resource: QueueResource) -> &'static str {
        match resource {
            QueueResource::Cpu => "cpu",
            QueueResource::Memory => "memory",
            QueueResource::Gpu => "gpu",
        }
    }

    pub(in crate::scheduler) fn serialize<S: Serializer>(
        resource: &impl Borrow<QueueResource>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        name(*resource.borrow()).serialize(out)
    }

    pub(in crate::scheduler) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<QueueResource, D::Error> {
        match String::deserialize(from)?.as_str() {
            "cpu" => Ok(QueueResource::Cpu),
            "memory" => Ok(QueueResource::Memory),
            "gpu" => Ok(QueueResource::Gpu),
            other => Err(de::Error::custom(format!("`{other}` is not a queue resource"))),
        }
    }
}
