//! Kubernetes quantities as exact numbers.
