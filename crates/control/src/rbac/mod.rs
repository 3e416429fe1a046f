//! What each component may do in a cluster, and no more: namespaces, service accounts, roles.

pub mod declared;
mod policies;

use std::collections::{BTreeMap, BTreeSet};

use kai_api::keys::name;
use kai_workloads::kinds;
use serde_json::{Value, json};

use crate::admission;
use crate::component::{CHANGE, Component, KAI, Place, Rule, rule};
use crate::kinds::Kind;
use crate::registry;

const READ: &[&str] = &["get", "list", "watch"];
const READ_PATCH: &[&str] = &["get", "list", "watch", "patch", "update"];

/// Service accounts of all components, by role.
pub fn accounts() -> BTreeMap<&'static str, &'static str> {
    registry::components().iter().map(|(component, _)| (component.role, component.service_account)).collect()
}

/// Components of `kai all-in-one`, whose account may do what each of them may.
fn runs_in_all_in_one(component: &Component) -> bool {
    component.role != registry::NODE_SCALE_ADJUSTER.component.role
}

/// Everything there must be before a component can run as itself.
pub fn manifests() -> Vec<Value> {
    let (home, reservations, scaling_pods) = (name::NAMESPACE, name::RESOURCE_RESERVATION, name::SCALE_ADJUST);
    let mut all: Vec<Value> = Place::ALL.iter().map(|place| namespace(place.namespace())).collect();
    all.push(account(home, name::ALL_IN_ONE));
    for (component, kinds) in registry::components() {
        let mut rules = reads(&kinds);
        rules.extend(component.rules.iter().map(Rule::manifest));
        if component.reads_owners {
            rules.extend(owners());
        }
        let all_in_one = runs_in_all_in_one(component).then_some((home, name::ALL_IN_ONE));
        let accounts: Vec<(&str, &str)> = [(home, component.service_account)].into_iter().chain(all_in_one).collect();
        all.push(account(home, component.service_account));
        all.push(cluster_role(component.role, &rules));
        all.push(binding_to("ClusterRole", None, component.role, &accounts));
        for place in Place::ALL {
            let lease = (Place::Components, rule("coordination.k8s.io", &["leases"], &["create", "get", "update"]));
            let here = component.namespaced_rules.iter().chain([&lease]).filter(|(at, _)| *at == place);
            let rules: Vec<Value> = here.map(|(_, rule)| rule.manifest()).collect();
            if !rules.is_empty() {
                all.push(role(place.namespace(), component.role, &rules));
                all.push(binding_to("Role", Some(place.namespace()), component.role, &accounts));
            }
        }
    }
    let own_pod = rule("", &["pods"], READ_PATCH);
    all.push(account(reservations, reservations));
    all.push(role(reservations, reservations, &[own_pod.manifest()]));
    all.push(binding_to("Role", Some(reservations), reservations, &[(reservations, reservations)]));
    all.push(account(scaling_pods, scaling_pods));
    all.extend(admission::stubs(home));
    all.extend(policies::manifests());
    all
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Rules to read these kinds, one for each group.
fn reads(kinds: &BTreeSet<Kind>) -> Vec<Value> {
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
        // `blockOwnerDeletion` requires update on the finalizers of the owner.
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

/// Its pods need no rights on their nodes; those that reserve GPUs get theirs from the device plugin.
fn namespace(name: &str) -> Value {
    let labels = json!({"pod-security.kubernetes.io/enforce": "baseline"});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

fn account(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": name}})
}

fn role(namespace: &str, name: &str, rules: &[Value]) -> Value {
    let metadata = json!({"namespace": namespace, "name": name});
    json!({"apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": rules})
}

fn cluster_role(name: &str, rules: &[Value]) -> Value {
    json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
}

/// Gives the role to service accounts, by namespace and name.
fn binding_to(kind: &str, within: Option<&str>, role: &str, accounts: &[(&str, &str)]) -> Value {
    let mut metadata = json!({"name": role});
    if let Some(within) = within {
        metadata["namespace"] = json!(within);
    }
    let subject =
        |(namespace, name): &(&str, &str)| json!({"kind": "ServiceAccount", "namespace": namespace, "name": name});
    json!({
        "apiVersion": RBAC,
        "kind": if within.is_some() { "RoleBinding" } else { "ClusterRoleBinding" },
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": accounts.iter().map(subject).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{COMPONENTS, Registered, Settings};

    /// `kai rbac` prints this; what an installed component may do must not change by accident.
    #[test]
    fn the_permissions_of_all_components_are_these() {
        let lines: Vec<String> = manifests().iter().map(Value::to_string).collect();
        expect_test::expect_file!["manifests.jsonl"].assert_eq(&format!("{}\n", lines.join("\n")));
    }

    #[test]
    fn no_component_may_do_everything() {
        for manifest in manifests() {
            let rules = manifest["rules"].as_array().into_iter().flatten();
            for text in rules.flat_map(|rule| ["apiGroups", "resources", "verbs"].map(|field| rule[field].to_string()))
            {
                assert!(!text.contains('*'), "{manifest}");
            }
        }
    }

    /// Kinds of the table that a rule of the role lets it read, whatever they are for.
    fn readable(role: &str) -> BTreeSet<Kind> {
        let all = manifests();
        let of = |one: &&Value| one["kind"] == "ClusterRole" && one["metadata"]["name"] == role;
        let rules = all.iter().find(of).unwrap()["rules"].as_array().unwrap();
        let allows = |rule: &Value, kind: Kind| {
            let row = kind.row();
            rule["apiGroups"] == json!([row.group()])
                && rule["verbs"] == json!(READ)
                && rule["resources"].as_array().unwrap().contains(&json!(row.plural))
        };
        Kind::ALL.iter().copied().filter(|kind| rules.iter().any(|rule| allows(rule, *kind))).collect()
    }

    #[test]
    fn each_component_may_read_what_it_watches_and_no_more() {
        for Registered { component, start } in COMPONENTS {
            let watched = start(&Settings::default()).watches();
            let needed = watched.iter().map(|spec| spec.kind).chain(component.reads.iter().copied());
            // Pods may belong to kinds of the table as well.
            let owners = if component.reads_owners { kinds::readable() } else { BTreeSet::new() };
            let is_owner = |kind: &Kind| owners.contains(&(kind.row().group(), kind.name()));
            let needed: BTreeSet<Kind> = needed.filter(|kind| !is_owner(kind)).collect();
            let readable: BTreeSet<Kind> =
                readable(component.role).into_iter().filter(|kind| !is_owner(kind)).collect();
            assert_eq!(readable, needed, "{}", component.name);
            let twice = component.reads.iter().find(|kind| watched.iter().any(|spec| spec.kind == **kind));
            assert_eq!(twice, None, "{} watches what it says to read only", component.name);
        }
    }

    #[test]
    fn names_of_components_differ() {
        let distinct =
            |of: fn(&Registered) -> &'static str| COMPONENTS.iter().map(|one| of(one)).collect::<BTreeSet<_>>().len();
        assert_eq!(distinct(|one| one.component.name), COMPONENTS.len());
        assert_eq!(distinct(|one| one.component.role), COMPONENTS.len());
        assert_eq!(distinct(|one| one.component.service_account), COMPONENTS.len());
        let leases: Vec<&str> = COMPONENTS.iter().filter_map(|one| one.component.lease).collect();
        assert_eq!(leases.iter().collect::<BTreeSet<_>>().len(), leases.len());
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

    /// Rules of all roles of these, with the namespace in which they hold.
    fn rules_about<'m>(all: &'m [Value], resource: &str, verb: &str) -> Vec<(&'m Value, &'m Value, &'m Value)> {
        let mut found = Vec::new();
        for role in all.iter().filter(|one| one["kind"].as_str().is_some_and(|kind| kind.ends_with("Role"))) {
            for rule in role["rules"].as_array().unwrap() {
                let has = |field: &str, word: &str| rule[field].as_array().unwrap().contains(&json!(word));
                if has("resources", resource) && has("verbs", verb) {
                    found.push((&role["metadata"]["name"], &role["metadata"]["namespace"], &rule["resourceNames"]));
                }
            }
        }
        found
    }

    #[test]
    fn pods_are_created_only_where_components_keep_theirs() {
        let all = manifests();
        let expected = [("kai-binder", "kai-resource-reservation"), ("kai-node-scale-adjuster", "kai-scale-adjust")];
        let found = rules_about(&all, "pods", "create");
        let found: Vec<(&str, &str)> =
            found.iter().map(|(role, within, _)| (role.as_str().unwrap(), within.as_str().unwrap_or("*"))).collect();
        assert_eq!(found, expected);
        let deletes: Vec<&str> = rules_about(&all, "pods", "delete")
            .iter()
            .map(|(role, within, _)| within.as_str().unwrap_or(role.as_str().unwrap()))
            .collect();
        assert_eq!(deletes, ["kai-scheduler", "kai-binder", "kai-scale-adjust"]);
    }

    #[test]
    fn admission_writes_only_its_own_secret_and_webhooks() {
        let all = manifests();
        for resource in ["secrets", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
            assert!(rules_about(&all, resource, "create").is_empty(), "{resource}");
            for verb in ["get", "list", "watch", "update", "patch"] {
                for (role, _, names) in rules_about(&all, resource, verb) {
                    assert_eq!(role, "kai-admission");
                    for name in names.as_array().expect("named objects only") {
                        assert!(all.iter().any(|one| one["metadata"]["name"] == *name), "{name} is printed");
                    }
                }
            }
        }
    }

    #[test]
    fn one_process_may_do_what_its_components_may() {
        let all = manifests();
        let has = |one: &Value, account: &str| {
            one["subjects"].as_array().is_some_and(|subjects| subjects.iter().any(|one| one["name"] == account))
        };
        for (component, _) in registry::components().into_iter().filter(|(one, _)| runs_in_all_in_one(one)) {
            for binding in all.iter().filter(|one| has(one, component.service_account)) {
                assert!(has(binding, name::ALL_IN_ONE), "{binding}");
            }
        }
        assert!(!all.iter().any(|one| has(one, name::ALL_IN_ONE) && has(one, "node-scale-adjuster")));
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
            all.iter().filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("RoleBinding")));
        for binding in bindings {
            let role = &binding["roleRef"];
            let kind = role["kind"].as_str().unwrap();
            let within = if kind == "ClusterRole" { &Value::Null } else { &binding["metadata"]["namespace"] };
            assert!(all.iter().any(|object| is(object, kind, within, &role["name"])));
            let subjects = binding["subjects"].as_array().unwrap();
            assert!(!subjects.is_empty());
            for subject in subjects {
                assert!(all.iter().any(|object| is(object, "ServiceAccount", &subject["namespace"], &subject["name"])));
            }
        }
    }
}
