//! Quantities of the engine: whole numbers with a fixed unit each, so that undo is exact and ties are real.
//!
//! CPU is counted in milli-cores, memory in bytes, GPUs in millionths of a device. Text becomes numbers outside.

pub mod compat;
mod ratio;

use std::ops::{Add, AddAssign, Sub, SubAssign};

pub use ratio::Ratio;

/// One whole GPU in the engine's unit (millionths of a device).
pub const GPU: i64 = 1_000_000;

/// One in every "parts per million" number: weights, usage, multipliers.
pub const ONE: i64 = 1_000_000;

/// A point in time: microseconds since the Unix epoch. The engine never reads a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// A span of time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub i64);

impl Timestamp {
    /// Older than every real creation time.
    pub const EARLIEST: Self = Self(i64::MIN / 4);

    /// The time `span` after this one.
    #[must_use]
    pub fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// How long ago `earlier` was.
    pub fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// A span of whole seconds.
    pub const fn seconds(seconds: i64) -> Self {
        Self(seconds * 1_000_000)
    }
}

/// An upper bound that may be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ceiling {
    /// No bound at all; written `-1` by users.
    Unlimited,
    /// At most this much; exactly this much is allowed.
    At(i64),
}

impl Ceiling {
    /// Whether `amount` stays within the bound.
    pub fn allows(self, amount: i64) -> bool {
        match self {
            Self::Unlimited => true,
            Self::At(bound) => amount <= bound,
        }
    }

    /// `amount` cut down to the bound.
    pub fn cap(self, amount: i64) -> i64 {
        match self {
            Self::Unlimited => amount,
            Self::At(bound) => amount.min(bound),
        }
    }
}

/// The three resources that queues account for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueResource {
    /// Milli-cores.
    Cpu,
    /// Bytes.
    Memory,
    /// Millionths of a GPU.
    Gpu,
}

impl QueueResource {
    /// In the order in which every rule visits them.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Gpu];

    /// The smallest piece that fair share hands out whole: a milli-core, a byte, a GPU.
    pub fn unit(self) -> i64 {
        match self {
            Self::Cpu | Self::Memory => 1,
            Self::Gpu => GPU,
        }
    }
}

/// An amount of each queue resource: milli-cores, bytes, millionths of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceQuantities(pub [i64; 3]);

impl ResourceQuantities {
    /// Nothing of anything.
    pub const ZERO: Self = Self([0; 3]);

    /// Builds one from its parts.
    pub fn new(cpu_milli: i64, memory_bytes: i64, gpu_micro: i64) -> Self {
        Self([cpu_milli, memory_bytes, gpu_micro])
    }

    /// The amount of one resource.
    pub fn get(self, resource: QueueResource) -> i64 {
        self.0[resource as usize]
    }

    /// Whether every part is within its ceiling.
    pub fn within(self, ceilings: [Ceiling; 3]) -> bool {
        self.0.iter().zip(ceilings).all(|(amount, ceiling)| ceiling.allows(*amount))
    }

    /// Whether every part is at most the same part of `other`.
    pub fn fits_in(self, other: Self) -> bool {
        self.0.iter().zip(other.0).all(|(left, right)| *left <= right)
    }

    /// Of each part the larger one.
    #[must_use]
    pub fn max_each(self, other: Self) -> Self {
        Self(std::array::from_fn(|part| self.0[part].max(other.0[part])))
    }

    /// Of each part the smaller one.
    #[must_use]
    pub fn min_each(self, other: Self) -> Self {
        Self(std::array::from_fn(|part| self.0[part].min(other.0[part])))
    }

    /// Whether nothing is asked for.
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

impl Add for ResourceQuantities {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self([self.0[0] + other.0[0], self.0[1] + other.0[1], self.0[2] + other.0[2]])
    }
}

impl Sub for ResourceQuantities {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self([self.0[0] - other.0[0], self.0[1] - other.0[1], self.0[2] - other.0[2]])
    }
}

impl AddAssign for ResourceQuantities {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for ResourceQuantities {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}
