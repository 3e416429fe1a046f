//! How the kinds of the table are called by the client.

use std::time::Duration;

use kai_control::Kind;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use kube::{Client, Error};

use crate::api_error::status_code;
use crate::deadline::with_deadline;

pub(crate) fn resource(kind: Kind) -> ApiResource {
    let row = kind.row();
    ApiResource {
        group: row.group().to_owned(),
        version: row.version().to_owned(),
        api_version: row.api_version.to_owned(),
        kind: row.name.to_owned(),
        plural: row.plural.to_owned(),
    }
}

/// Whether the API server has this kind. Asks until it answers.
pub(crate) async fn is_served(client: &Client, kind: &ApiResource) -> bool {
    loop {
        let wanted = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
        match with_deadline(kube::discovery::pinned_kind(client, &wanted)).await {
            Ok(_) => return true,
            Err(Error::Discovery(_)) => return false,
            Err(error) if status_code(&error) == Some(404) => return false,
            Err(error) => tracing::warn!(kind = kind.kind, %error, "API discovery failed, retrying in 1 s"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
