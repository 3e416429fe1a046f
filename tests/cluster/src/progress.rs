//! One line per step on standard error, with the time since the beginning.
#![allow(clippy::print_stderr, reason = "printing is what it is for")]
#![allow(clippy::disallowed_types, reason = "how long a step took is for people to see")]

use std::fmt::Display;
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub struct Progress {
    begun: Stopwatch,
    /// Put before each line, to tell clusters apart.
    prefix: String,
}

impl Progress {
    pub fn start(prefix: impl Into<String>) -> Self {
        Self { begun: Stopwatch::start(), prefix: prefix.into() }
    }

    /// Something is done, or about to take long.
    pub fn report(&self, what: impl Display) {
        eprintln!("{} {:7.1} s  {what}", self.prefix, self.begun.elapsed().as_secs_f64());
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
