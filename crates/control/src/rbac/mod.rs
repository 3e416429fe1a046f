//! What each part may do in a cluster, and no more: namespaces, service accounts, roles.

pub mod declared;

use std::collections::{BTreeMap, BTreeSet};

use kai_api::keys::{name, webhook};
use kai_workloads::kinds;
use serde_json::{Value, json};

use crate::kinds::Kind;

/// A part that runs as its own service account.
struct ComponentRole {
    account: &'static str,
    role: &'static str,
    /// What it reads, everywhere.
    reads: &'static [Kind],
    /// What else it may do, everywhere.
    rules: &'static [Rule],
    /// In the namespace of the parts, beside its lease.
    namespaced_rules: &'static [Rule],
}

struct Rule {
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    /// Only these objects; all of them if empty.
    names: &'static [&'static str],
}

const fn rule(group: &'static str, resources: &'static [&'static str], verbs: &'static [&'static str]) -> Rule {
    Rule { group, resources, verbs, names: &[] }
}

const READ: &[&str] = &["get", "list", "watch"];
const READ_PATCH: &[&str] = &["get", "list", "watch", "patch", "update"];
const CHANGE: &[&str] = &["patch", "update"];
const EVENT_VERBS: &[&str] = &["create", "patch"];

const KAI: &str = "scheduling.run.ai";
const EVENTS: Rule = rule("", &["events"], EVENT_VERBS);
const WEBHOOKS: &[&str] = &[webhook::POD_GROUPS, webhook::QUEUES, webhook::MUTATING, webhook::VALIDATING];
const WEBHOOK_KINDS: &[&str] = &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
const ADMISSION: &str = "admissionregistration.k8s.io";

const COMPONENTS: [ComponentRole; 7] = [
    ComponentRole {
        account: "scheduler",
        role: "kai-scheduler",
        reads: Kind::CYCLE_INPUTS,
        rules: &[
            rule("", &["pods"], &["delete", "patch"]),
            rule("", &["pods/eviction"], &["create"]),
            rule("", &["pods/finalizers", "pods/status"], CHANGE),
            EVENTS,
            rule(KAI, &["bindrequests"], &["create", "delete", "patch", "update"]),
            rule(KAI, &["podgroups", "podgroups/status"], CHANGE),
        ],
        namespaced_rules: &[],
    },
    ComponentRole {
        account: "binder",
        role: "kai-binder",
        reads: &[
            Kind::BindRequest,
            Kind::Pod,
            Kind::Node,
            Kind::PersistentVolumeClaim,
            Kind::PersistentVolume,
            Kind::StorageClass,
            Kind::CsiDriver,
            Kind::CsiNode,
            Kind::CsiStorageCapacity,
            Kind::ConfigMap,
            Kind::DeviceClass,
            Kind::ResourceSlice,
            Kind::ResourceClaim,
        ],
        rules: &[
            rule("", &["configmaps", "pods"], &["create", "delete", "patch", "update"]),
            rule("", &["persistentvolumeclaims", "persistentvolumes"], CHANGE),
            rule("", &["pods/binding"], &["create"]),
            rule("", &["pods/finalizers", "pods/status"], CHANGE),
            EVENTS,
            rule("resource.k8s.io", &["resourceclaims"], CHANGE),
            rule("resource.k8s.io", &["resourceclaims/binding", "resourceclaims/status"], CHANGE),
            rule(KAI, &["bindrequests"], &["delete", "patch", "update"]),
            rule(KAI, &["bindrequests/finalizers", "bindrequests/status"], CHANGE),
        ],
        namespaced_rules: &[],
    },
    ComponentRole {
        account: "pod-grouper",
        role: "kai-podgrouper",
        reads: &[Kind::Pod, Kind::PodGroup, Kind::PriorityClass, Kind::ConfigMap, Kind::Namespace],
        rules: &[rule("", &["pods"], CHANGE), EVENTS, rule(KAI, &["podgroups"], &["create", "patch", "update"])],
        namespaced_rules: &[],
    },
    ComponentRole {
        account: "podgroup-controller",
        role: "kai-podgroup-controller",
        reads: &[Kind::Pod, Kind::PodGroup, Kind::Node, Kind::PriorityClass, Kind::ResourceClaim],
        rules: &[rule(KAI, &["podgroups/status"], CHANGE)],
        namespaced_rules: &[],
    },
    ComponentRole {
        account: "queue-controller",
        role: "queuecontroller",
        reads: &[Kind::Queue, Kind::PodGroup],
        rules: &[rule(KAI, &["queues/status"], CHANGE)],
        namespaced_rules: &[],
    },
    ComponentRole {
        account: "admission",
        role: "kai-admission",
        reads: &[Kind::Pod, Kind::PodGroup, Kind::Queue],
        rules: &[
            rule(ADMISSION, WEBHOOK_KINDS, &["create"]),
            Rule { group: ADMISSION, resources: WEBHOOK_KINDS, verbs: &["get", "patch", "update"], names: WEBHOOKS },
        ],
        // Certificates, shared by its replicas.
        namespaced_rules: &[rule("", &["secrets"], &["create", "get", "update"])],
    },
    ComponentRole {
        account: "node-scale-adjuster",
        role: "kai-node-scale-adjuster",
        reads: &[Kind::Pod],
        rules: &[rule("", &["pods"], &["create", "delete"]), rule("", &["pods/status"], &["patch"])],
        namespaced_rules: &[],
    },
];

/// Service accounts of all parts, by role.
pub fn accounts() -> BTreeMap<&'static str, &'static str> {
    COMPONENTS.iter().map(|component| (component.role, component.account)).collect()
}

/// Everything there must be before a part can run as itself.
pub fn manifests() -> Vec<Value> {
    let (home, reservations) = (name::NAMESPACE, name::RESOURCE_RESERVATION);
    let scaling_pods = name::SCALE_ADJUST;
    let mut all = vec![namespace(home), namespace(reservations), namespace(scaling_pods)];
    for component in &COMPONENTS {
        let mut rules = reads(component.reads);
        rules.extend(component.rules.iter().map(Rule::manifest));
        if component.role == "kai-podgrouper" {
            rules.extend(owners());
        }
        let lease = rule("coordination.k8s.io", &["leases"], &["create", "get", "update"]);
        let namespaced_rules = component.namespaced_rules.iter().chain([&lease]).map(Rule::manifest);
        all.push(account(home, component.account));
        all.push(json!({
            "apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": component.role}, "rules": rules,
        }));
        all.push(binding("ClusterRole", None, component.role, home, component.account));
        all.push(role(home, component.role, &namespaced_rules.collect::<Vec<_>>()));
        all.push(binding("Role", Some(home), component.role, home, component.account));
    }
    let own_pod = rule("", &["pods"], READ_PATCH);
    all.push(account(reservations, reservations));
    all.push(role(reservations, reservations, &[own_pod.manifest()]));
    all.push(binding("Role", Some(reservations), reservations, reservations, reservations));
    all.push(account(scaling_pods, scaling_pods));
    all
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Rules to read these kinds, one for each group.
fn reads(kinds: &[Kind]) -> Vec<Value> {
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for row in kinds.iter().map(|kind| kind.row()) {
        groups.entry(row.group()).or_default().insert(row.plural);
    }
    let rule = |(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": READ});
    groups.into_iter().map(rule).collect()
}

/// Objects that pods may belong to.
fn owners() -> Vec<Value> {
    let mut kinds: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    // Its own rule says what it may do with pod groups.
    let owners = kinds::readable().into_iter().filter(|(group, _)| *group != KAI);
    for (group, kind) in owners {
        kinds.entry(group).or_default().insert(format!("{}s", kind.to_lowercase()));
    }
    let rules = kinds.into_iter().flat_map(|(group, resources)| {
        // Whoever is named as an owner that must wait for us has to be one that we may hold up.
        let finalizers: Vec<String> = resources.iter().map(|resource| format!("{resource}/finalizers")).collect();
        [
            json!({"apiGroups": [group], "resources": resources, "verbs": READ}),
            json!({"apiGroups": [group], "resources": finalizers, "verbs": CHANGE}),
        ]
    });
    rules.collect()
}

impl Rule {
    fn manifest(&self) -> Value {
        let mut rule = json!({"apiGroups": [self.group], "resources": self.resources, "verbs": self.verbs});
        if !self.names.is_empty() {
            rule["resourceNames"] = json!(self.names);
        }
        rule
    }
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn account(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": name}})
}

fn role(namespace: &str, name: &str, rules: &[Value]) -> Value {
    let metadata = json!({"namespace": namespace, "name": name});
    json!({"apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": rules})
}

fn binding(kind: &str, within: Option<&str>, role: &str, namespace: &str, account: &str) -> Value {
    let mut metadata = json!({"name": role});
    if let Some(within) = within {
        metadata["namespace"] = json!(within);
    }
    json!({
        "apiVersion": RBAC,
        "kind": format!("{kind}Binding"),
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_may_do_everything() {
        for manifest in manifests() {
            let rules = manifest["rules"].as_array().into_iter().flatten();
            for text in rules.flat_map(|rule| ["apiGroups", "resources", "verbs"].map(|field| rule[field].to_string()))
            {
                assert!(!text.contains('*'), "{manifest}");
            }
        }
    }

    #[test]
    fn the_scheduler_may_watch_every_kind_that_cycles_depend_on() {
        let all = manifests();
        let role = all.iter().find(|one| one["kind"] == "ClusterRole" && one["metadata"]["name"] == "kai-scheduler");
        let rules = role.unwrap()["rules"].as_array().unwrap();
        for row in Kind::CYCLE_INPUTS.iter().map(|kind| kind.row()) {
            let rule = json!({"group": [row.group()], "verbs": READ});
            let allows = |one: &Value| {
                one["apiGroups"] == rule["group"]
                    && one["verbs"] == rule["verbs"]
                    && one["resources"].as_array().unwrap().contains(&json!(row.plural))
            };
            assert!(rules.iter().any(allows), "{row:?}");
        }
    }

    #[test]
    fn secrets_are_read_at_home_only() {
        for manifest in manifests().iter().filter(|manifest| manifest["kind"] == "ClusterRole") {
            assert!(!manifest["rules"].to_string().contains("secrets"), "{manifest}");
        }
    }

    #[test]
    fn every_role_is_bound_to_an_account_that_exists() {
        let all = manifests();
        let is = |object: &Value, kind: &str, namespace: &Value, name: &Value| {
            object["kind"] == kind
                && object["metadata"]["namespace"] == *namespace
                && object["metadata"]["name"] == *name
        };
        let bindings =
            all.iter().filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Binding")));
        for binding in bindings {
            let (role, subject) = (&binding["roleRef"], &binding["subjects"][0]);
            let kind = role["kind"].as_str().unwrap();
            assert!(all.iter().any(|object| is(object, kind, &binding["metadata"]["namespace"], &role["name"])));
            assert!(all.iter().any(|object| is(object, "ServiceAccount", &subject["namespace"], &subject["name"])));
        }
    }
}
