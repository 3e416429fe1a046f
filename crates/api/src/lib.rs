//! Kubernetes API types of the scheduler.
