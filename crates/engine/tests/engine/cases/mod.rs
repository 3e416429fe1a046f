//! One behaviour each, in the smallest cluster that shows it.

mod action_stats;
mod consolidate;
mod devices;
mod disruption;
mod gangs;
mod inter_pod;
mod next_change;
mod nodes;
mod nominations;
mod numa;
mod preempt;
mod queues;
mod reclaim;
mod reprieve;
mod shares;
mod stale;
mod subgroups;
mod topology;
mod whole_nodes;
