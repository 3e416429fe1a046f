//! A cluster in memory, on a virtual clock.
