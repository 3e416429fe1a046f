//! Connections to the API server.

use std::path::Path;

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{Response, StatusCode};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use tower::util::MapResponseLayer;

use crate::FatalError;
use crate::api_metrics::ApiMetrics;

/// How to connect: as a kubeconfig says; without one as `KUBECONFIG`, the user's own, or the pod's service account says.
pub(crate) async fn config(kubeconfig: Option<&Path>) -> Result<Config, FatalError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let wrong = |source| FatalError::Kubeconfig { path: path.to_owned(), source };
            let read = Kubeconfig::read_from(path).map_err(wrong)?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.map_err(wrong)?
        }
        None => Config::infer().await.map_err(FatalError::NoCluster)?,
    };
    // Retries are those of `retry`: by default the client repeats 429, 503 and 504 up to 15 times for minutes, below the
    // rate limit, and the 429 of a PodDisruptionBudget as well.
    config.default_retry = false;
    Ok(config)
}

/// Connects, in tasks of the current runtime, and counts all requests.
pub(crate) fn connect(config: Config, metrics: &ApiMetrics) -> Result<Client, FatalError> {
    let builder = ClientBuilder::try_from(config).map_err(|error| FatalError::Client(Box::new(error)))?;
    Ok(builder.with_layer(metrics).with_layer(&MapResponseLayer::new(with_retry_after)).build())
}

/// Moves the header `Retry-After` to where `retry` finds it, `details.retryAfterSeconds` of the body: overload protection
/// of the API server sends the header and a line of text.
fn with_retry_after<B>(response: Response<B>) -> Response<Body>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let asked = response.headers().get(RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.parse::<u32>().ok());
    let is_json =
        response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let code = response.status();
    let busy = matches!(code, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let Some(seconds) = asked.filter(|_| busy && !is_json) else { return response.map(Body::new) };
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": code.canonical_reason(),
        "message": "the API server is overloaded and asks for a later attempt",
        "code": code.as_u16(),
        "details": {"retryAfterSeconds": seconds},
    });
    Response::builder().status(code).body(Body::from(status.to_string())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::response::IntoResponse as _;
    use k8s_openapi::api::core::v1::Pod;
    use kube::Error;
    use kube::api::Api;

    use super::*;
    use crate::Health;
    use crate::test_server::connect_to;

    #[tokio::test]
    async fn the_header_retry_after_is_found_whatever_the_body_is() {
        for (content_type, body, expected) in [
            ("text/plain", "Too many requests, please try again later.", 7),
            ("application/json", r#"{"kind": "Status", "code": 429, "details": {"retryAfterSeconds": 3}}"#, 3),
        ] {
            let answer = move || async move {
                (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "7"), (CONTENT_TYPE, content_type)], body)
                    .into_response()
            };
            let client = connect_to(Router::new().fallback(answer), &Health::new("kai")).await;
            let Err(Error::Api(status)) = Api::<Pod>::namespaced(client, "lab").get("p").await else {
                panic!("not rejected");
            };
            assert_eq!((status.code, status.details.map(|details| details.retry_after_seconds)), (429, Some(expected)));
        }
    }
}
