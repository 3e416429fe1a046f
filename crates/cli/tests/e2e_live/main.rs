//! `kai` on a real cluster: real API server, real controllers, simulated kubelets. One file a story.
//!
//! Ignored by plain `cargo test`, for it needs programs that take minutes to build the first time:
//! `cargo test -p kai-cli --test e2e_live -- --ignored`.

mod admission;
mod ask;
mod autoscaler;
mod chaos;
mod kai;
mod load;
mod own_kinds;
mod proxy;
mod ray;
mod scheduling;
mod state;
mod time_fairness;
mod walkthroughs;
mod workloads;
