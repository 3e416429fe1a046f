//! The engine from outside: cases that show one behaviour each, and properties that hold for every cluster.

mod cases;
mod properties;
mod support;
