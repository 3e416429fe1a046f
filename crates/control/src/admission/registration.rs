//! Webhook configurations: which requests the API server sends to the webhook.
//!
//! `failurePolicy` is `Ignore` where the scheduler validates again, so that an outage of the webhook does not block the
//! cluster, and `Fail` where nothing else protects:
//!
//! | what | because |
//! |---|---|
//! | pods that share a GPU | unwired, a container may see all GPUs of its node |
//! | all our pods, if GPUs are hidden from containers that ask for none | an unchanged container may see them |
//! | deletion of a queue | what runs in it would belong nowhere |

use k8s_openapi::ByteString;
use kai_api::keys::origins::{ANNOTATIONS, Carrier, KeyOrigin, LABELS, state_of};
use kai_api::keys::{annotation, webhook};
use serde_json::{Value, json};

use super::PodRules;

/// How the API server reaches the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookEndpoint {
    /// Through the Service of admission in this namespace.
    Service { namespace: String },
    /// Directly, such as `https://127.0.0.1:9443`.
    Url { base: String, host: String },
}

impl WebhookEndpoint {
    /// Reads a URL of scheme and host, and perhaps a port.
    pub fn at(url: &str) -> Result<Self, String> {
        let wrong = || "write https://HOST:PORT".to_owned();
        let base = url.trim_end_matches('/');
        let address = base.strip_prefix("https://").ok_or_else(wrong)?;
        let host = match address.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(wrong)?.0,
            None => address.split_once(':').map_or(address, |(host, _)| host),
        };
        if host.is_empty() || address.contains(['/', '?', '#', '@']) {
            return Err(wrong());
        }
        Ok(Self::Url { base: base.to_owned(), host: host.to_owned() })
    }

    /// Whom the certificate must be for.
    pub fn host(&self) -> String {
        match self {
            Self::Service { namespace } => format!("{}.{namespace}.svc", webhook::SERVICE),
            Self::Url { host, .. } => host.clone(),
        }
    }

    fn client(&self, path: &str, authorities: &ByteString) -> Value {
        match self {
            Self::Service { namespace } => json!({
                "service": {"namespace": namespace, "name": webhook::SERVICE, "path": path, "port": 443},
                "caBundle": authorities,
            }),
            Self::Url { base, .. } => json!({"url": format!("{base}{path}"), "caBundle": authorities}),
        }
    }
}

/// One webhook of a configuration, before it has its selectors.
struct WebhookSpec<'h> {
    name: &'h str,
    path: &'h str,
    operations: &'h [&'h str],
    /// Group, version, plural, scope.
    kind: [&'h str; 4],
    /// For when the webhook does not respond.
    failure_policy: &'h str,
}

const CREATE: [&str; 1] = ["CREATE"];
const CHANGES: [&str; 2] = ["CREATE", "UPDATE"];
const DELETE: [&str; 1] = ["DELETE"];
const PODS: [&str; 4] = ["", "v1", "pods", "Namespaced"];
const QUEUES: [&str; 4] = ["scheduling.run.ai", "v2", "queues", "Cluster"];
const POD_GROUPS: [&str; 4] = ["scheduling.run.ai", "v2alpha2", "podgroups", "Namespaced"];
const TOPOLOGIES: [&str; 4] = ["kai.scheduler", "v1alpha1", "topologies", "Cluster"];

/// All configurations. `namespace` is that of the webhook; `authorities` are the trusted CA certificates as PEM.
pub fn configurations(endpoint: &WebhookEndpoint, namespace: &str, rules: &PodRules, authorities: &[u8]) -> Vec<Value> {
    let authorities = ByteString(authorities.to_vec());
    let webhook_of = |webhook: WebhookSpec<'_>| {
        let [group, version, resource, scope] = webhook.kind;
        json!({
            "name": webhook.name,
            "clientConfig": endpoint.client(webhook.path, &authorities),
            "rules": [{
                "operations": webhook.operations, "apiGroups": [group], "apiVersions": [version],
                "resources": [resource], "scope": scope,
            }],
            "failurePolicy": webhook.failure_policy,
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            // The creation of a pod waits for it.
            "timeoutSeconds": 3,
            "admissionReviewVersions": ["v1"],
        })
    };
    let about_pods = |mut webhook: Value, conditions: Vec<Value>| {
        webhook["matchConditions"] = json!(conditions);
        // Pods of the control plane and of this webhook must be able to start during an outage of it.
        webhook["namespaceSelector"] = json!({"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", namespace]},
        ]});
        webhook
    };
    let scheduler_matches = json!({
        "name": "scheduler-name-match",
        "expression": format!("object.spec.schedulerName == '{}'", rules.scheduler),
    });
    // Other pods are not sent: an outage of the webhook must not affect them.
    let changes = shares_or_has_state();
    let has_share_annotation =
        [annotation::GPU_FRACTION, annotation::GPU_MEMORY, annotation::GPU_FRACTION_NUM_DEVICES, annotation::MPS];
    let has_share_annotation = has_annotation("speaks-of-gpu-shares", &has_share_annotation);
    let pod = format!("{}.{namespace}.svc", webhook::SERVICE);
    let topology = format!("topology.{pod}");
    let hidden = rules.block_visible_devices;

    let mutate = WebhookSpec {
        name: &pod,
        path: webhook::MUTATE_POD_PATH,
        operations: &CREATE,
        kind: PODS,
        failure_policy: "Fail",
    };
    let scheduler_matches_and = |unless_hidden: Value| {
        if hidden { vec![scheduler_matches.clone()] } else { vec![scheduler_matches.clone(), unless_hidden] }
    };
    let mut mutate = about_pods(webhook_of(mutate), scheduler_matches_and(changes));
    mutate["reinvocationPolicy"] = json!("IfNeeded");
    let validate_pod = WebhookSpec {
        name: &pod,
        path: webhook::POD_PATH,
        operations: &CHANGES,
        kind: PODS,
        failure_policy: if hidden { "Fail" } else { "Ignore" },
    };
    let validate_topology = WebhookSpec {
        name: &topology,
        path: webhook::TOPOLOGY_PATH,
        operations: &CHANGES,
        kind: TOPOLOGIES,
        failure_policy: "Ignore",
    };
    let validate_queue = |name, operations, failure_policy| {
        webhook_of(WebhookSpec { name, path: webhook::QUEUE_PATH, operations, kind: QUEUES, failure_policy })
    };
    let validate_group = WebhookSpec {
        name: "podgroup-validation.kai.scheduler",
        path: webhook::POD_GROUP_PATH,
        operations: &CHANGES,
        kind: POD_GROUPS,
        failure_policy: "Ignore",
    };
    vec![
        configuration("Mutating", webhook::MUTATING, &[mutate]),
        configuration(
            "Validating",
            webhook::VALIDATING,
            &[
                about_pods(webhook_of(validate_pod), scheduler_matches_and(has_share_annotation)),
                webhook_of(validate_topology),
            ],
        ),
        configuration(
            "Validating",
            webhook::QUEUES,
            &[
                validate_queue("queue-validation.kai.scheduler", &CHANGES, "Ignore"),
                validate_queue("queue-deletion.kai.scheduler", &DELETE, "Fail"),
            ],
        ),
        configuration("Validating", webhook::POD_GROUPS, &[webhook_of(validate_group)]),
    ]
}

/// A match condition: the object has one of these annotations.
fn has_annotation(name: &str, keys: &[&str]) -> Value {
    let any = "exists(key, key in object.metadata.annotations)";
    let expression = format!("has(object.metadata.annotations) && {}.{any}", json!(keys));
    json!({"name": name, "expression": expression})
}

/// A match condition: the pod shares a GPU, or is a copy of one that ran, which loses what was noted on that one.
fn shares_or_has_state() -> Value {
    let shares = has_annotation("shares-gpu", &[annotation::GPU_FRACTION, annotation::GPU_MEMORY]);
    let has_state = [("labels", LABELS), ("annotations", ANNOTATIONS)].map(|(field, rows)| {
        let field = format!("object.metadata.{field}");
        format!("(has({field}) && {field}.exists(key, {}))", state_expression(rows, Carrier::Pods))
    });
    json!({
        "name": "shares-gpu-or-has-state",
        "expression": format!("({}) || {}", shares["expression"].as_str().unwrap_or_default(), has_state.join(" || ")),
    })
}

/// A CEL expression that says whether `key` is state on such objects.
pub(crate) fn state_expression(rows: &'static [KeyOrigin], carrier: Carrier) -> String {
    let (prefixes, keys): (Vec<&str>, Vec<&str>) = state_of(rows, carrier).partition(|key| key.ends_with('/'));
    let quoted: Vec<String> = keys.iter().map(|key| format!("'{key}'")).collect();
    let begins = prefixes.iter().map(|prefix| format!("key.startsWith('{prefix}')"));
    [format!("key in [{}]", quoted.join(", "))].into_iter().chain(begins).collect::<Vec<_>>().join(" || ")
}

fn configuration(what: &str, name: &str, hooks: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": format!("{what}WebhookConfiguration"),
        "metadata": {"name": name},
        "webhooks": hooks,
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use expect_test::{Expect, expect};

    use super::*;

    fn check(rules: &PodRules, want: &Expect) {
        let endpoint = WebhookEndpoint::Service { namespace: "kai".to_owned() };
        let mut text = String::new();
        for configuration in configurations(&endpoint, "kai", rules, b"pem") {
            writeln!(text, "{}", configuration["metadata"]["name"].as_str().unwrap()).unwrap();
            for webhook in configuration["webhooks"].as_array().unwrap() {
                assert!(webhook["timeoutSeconds"].as_u64().unwrap() <= 3);
                let rule = &webhook["rules"][0];
                let conditions = webhook["matchConditions"].as_array().into_iter().flatten();
                let conditions: Vec<&str> = conditions.map(|condition| condition["name"].as_str().unwrap()).collect();
                writeln!(
                    text,
                    "  {} {} {} {:?} {}",
                    webhook["name"].as_str().unwrap(),
                    rule["resources"],
                    rule["operations"],
                    conditions,
                    webhook["failurePolicy"].as_str().unwrap(),
                )
                .unwrap();
            }
        }
        want.assert_eq(&text);
    }

    #[test]
    fn only_what_nothing_else_protects_must_be_asked() {
        check(
            &PodRules::default(),
            &expect![[r#"
            mutating-kai-admission
              admission.kai.svc ["pods"] ["CREATE"] ["scheduler-name-match", "shares-gpu-or-has-state"] Fail
            validating-kai-admission
              admission.kai.svc ["pods"] ["CREATE","UPDATE"] ["scheduler-name-match", "speaks-of-gpu-shares"] Ignore
              topology.admission.kai.svc ["topologies"] ["CREATE","UPDATE"] [] Ignore
            kai-queue-validation-v2
              queue-validation.kai.scheduler ["queues"] ["CREATE","UPDATE"] [] Ignore
              queue-deletion.kai.scheduler ["queues"] ["DELETE"] [] Fail
            kai-podgroup-validation-v2alpha2
              podgroup-validation.kai.scheduler ["podgroups"] ["CREATE","UPDATE"] [] Ignore
        "#]],
        );
    }

    #[test]
    fn hidden_devices_concern_every_pod_of_ours() {
        check(
            &PodRules { block_visible_devices: true, ..PodRules::default() },
            &expect![[r#"
            mutating-kai-admission
              admission.kai.svc ["pods"] ["CREATE"] ["scheduler-name-match"] Fail
            validating-kai-admission
              admission.kai.svc ["pods"] ["CREATE","UPDATE"] ["scheduler-name-match"] Fail
              topology.admission.kai.svc ["topologies"] ["CREATE","UPDATE"] [] Ignore
            kai-queue-validation-v2
              queue-validation.kai.scheduler ["queues"] ["CREATE","UPDATE"] [] Ignore
              queue-deletion.kai.scheduler ["queues"] ["DELETE"] [] Fail
            kai-podgroup-validation-v2alpha2
              podgroup-validation.kai.scheduler ["podgroups"] ["CREATE","UPDATE"] [] Ignore
        "#]],
        );
    }

    #[test]
    fn the_api_server_asks_a_service_or_an_address() {
        let rules = PodRules::default();
        let client = |endpoint: &WebhookEndpoint| {
            configurations(endpoint, "kai", &rules, b"pem")[0]["webhooks"][0]["clientConfig"].clone()
        };
        let service = WebhookEndpoint::Service { namespace: "kai".to_owned() };
        assert_eq!(service.host(), "admission.kai.svc");
        assert_eq!(
            client(&service),
            json!({
                "service": {"namespace": "kai", "name": "admission", "path": "/mutate--v1-pod", "port": 443},
                "caBundle": "cGVt",
            })
        );
        let address = WebhookEndpoint::at("https://127.0.0.1:9443/").unwrap();
        assert_eq!(address.host(), "127.0.0.1");
        assert_eq!(client(&address), json!({"url": "https://127.0.0.1:9443/mutate--v1-pod", "caBundle": "cGVt"}));
        assert_eq!(WebhookEndpoint::at("https://[::1]:9443").unwrap().host(), "::1");
        for wrong in ["http://host", "https://", "host:9443", "https://host/path", "https://[::1", "https://a@b"] {
            assert!(WebhookEndpoint::at(wrong).is_err(), "{wrong}");
        }
    }
}
