//! The kinds of objects that scheduling depends on.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use kai_api::{BindRequest, PodGroup, Queue, Topology};
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use kube::{Client, Error, Resource};

use crate::writer::code;

/// In the order in which snapshot files hold them.
pub(crate) fn all() -> [ApiResource; 19] {
    fn kind<K: Resource<DynamicType = ()>>() -> ApiResource {
        ApiResource::erase::<K>(&())
    }
    [
        kind::<Pod>(),
        kind::<Node>(),
        kind::<Queue>(),
        kind::<PodGroup>(),
        kind::<BindRequest>(),
        kind::<PriorityClass>(),
        kind::<ConfigMap>(),
        kind::<PersistentVolume>(),
        kind::<PersistentVolumeClaim>(),
        kind::<CSIStorageCapacity>(),
        kind::<StorageClass>(),
        kind::<CSIDriver>(),
        kind::<ResourceClaim>(),
        kind::<ResourceSlice>(),
        kind::<DeviceClass>(),
        kind::<Topology>(),
        ApiResource {
            group: "topology.node.k8s.io".to_owned(),
            version: "v1alpha2".to_owned(),
            api_version: "topology.node.k8s.io/v1alpha2".to_owned(),
            kind: "NodeResourceTopology".to_owned(),
            plural: "noderesourcetopologies".to_owned(),
        },
        kind::<Namespace>(),
        kind::<CSINode>(),
    ]
}

/// Whether the API server has this kind. Asks until it answers.
pub(crate) async fn is_served(client: &Client, kind: &ApiResource) -> bool {
    loop {
        let wanted = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
        match kube::discovery::pinned_kind(client, &wanted).await {
            Ok(_) => return true,
            Err(Error::Discovery(_)) => return false,
            Err(error) if code(&error) == Some(404) => return false,
            Err(error) => tracing::warn!(kind = kind.kind, %error, "cannot ask whether the kind is served"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
