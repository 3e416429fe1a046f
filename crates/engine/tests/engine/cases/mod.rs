//! One behaviour each, in the smallest cluster that shows it.

mod bonds;
mod claims;
mod consolidate;
mod devices;
mod efforts;
mod gangs;
mod nodes;
mod numa;
mod preempt;
mod queues;
mod reclaim;
mod shares;
mod spare;
mod stale;
mod subgroups;
mod topology;
mod whole_nodes;
