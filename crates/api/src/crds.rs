//! The CustomResourceDefinitions, ready to be applied.

use crate::{BindRequest, Config, PodGroup, Queue, SchedulingShard, Topology, schema};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// All kinds of this crate, by group and plural.
pub fn crds() -> Vec<CustomResourceDefinition> {
    [Config::crd(), SchedulingShard::crd(), Topology::crd(), BindRequest::crd(), PodGroup::crd(), Queue::crd()]
        .map(schema::finish)
        .into()
}

/// The same as YAML documents.
pub fn crds_yaml() -> String {
    let document = |crd| format!("---\n{}", yaml_serde::to_string(&crd).expect("a CRD is YAML"));
    crds().into_iter().map(document).collect()
}
