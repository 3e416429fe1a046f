//! Cluster objects to engine snapshots, decisions back to effects.
