//! Workload owners and their pods to pod groups.
