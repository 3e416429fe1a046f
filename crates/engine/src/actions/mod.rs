//! The actions of a cycle, from least to most disruptive; one file each.

pub mod allocate;
