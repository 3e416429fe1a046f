//! Everything that a scheduling cycle depends on, read from a cluster once.

use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use kai_api::{BindRequest, PodGroup, Queue, Topology};
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, Error, Resource};
use serde_json::Value;

use crate::watch::stripped;
use crate::writer::code;
use crate::{Fault, client};

/// Objects a call, so that no answer is too large.
const PAGE: u32 = 500;

/// A cluster as it was within a moment.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// By kind, in the order in which snapshot files hold them.
    pub objects: Vec<Value>,
    /// What the API server says about itself.
    pub server_version: Value,
}

/// Reads a cluster; `tell` hears of each kind how many objects there are.
pub fn take_picture(kubeconfig: Option<&Path>, tell: impl Fn(&str, usize)) -> Result<Picture, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Fault::Runtime)?;
    runtime.block_on(async {
        let client = client::connect(kubeconfig).await?;
        let version = client.apiserver_version().await.map_err(|error| Fault::Client(Box::new(error)))?;
        let mut picture =
            Picture { objects: Vec::new(), server_version: serde_json::to_value(version).unwrap_or_default() };
        for kind in kinds() {
            let before = picture.objects.len();
            let unread = |source| Fault::Unread { kind: kind.kind.clone(), source: Box::new(source) };
            all(&client, &kind, &mut picture.objects).await.map_err(unread)?;
            tell(&kind.plural, picture.objects.len() - before);
        }
        Ok(picture)
    })
}

async fn all(client: &Client, kind: &ApiResource, objects: &mut Vec<Value>) -> Result<(), Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), kind);
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = match api.list(&page).await {
            // This cluster does not know the kind.
            Err(error) if code(&error) == Some(404) => return Ok(()),
            list => list?,
        };
        objects.extend(list.items.into_iter().map(|object| without_secrets(stripped(object, kind))));
        let Some(next) = list.metadata.continue_.filter(|next| !next.is_empty()) else { return Ok(()) };
        page = page.continue_token(&next);
    }
}

/// Of config maps only their names matter, and what is in them is nobody's business.
fn without_secrets(mut object: Value) -> Value {
    if object["kind"] == "ConfigMap"
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("data");
        fields.remove("binaryData");
    }
    object
}

fn kinds() -> [ApiResource; 19] {
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
