//! Policies that the API server enforces: what components note for themselves, users may not write.
//!
//! The authorizer decides who may write state: clients with the verb `write` on `state` of `kai.scheduler`, which is no
//! resource, only a name for this right. Components get it by a role of its own, and cluster administrators have it
//! already, so that a backup can be restored.

use kai_api::keys::name;
use kai_api::keys::origins::{ANNOTATIONS, Carrier, LABELS, state_of};
use serde_json::{Value, json};

use super::{binding_to, cluster_role};
use crate::admission::state_expression;
use crate::component::KAI;
use crate::registry;

/// The role that lets its accounts write state.
const ROLE: &str = "kai-state";
const POLICIES: &str = "admissionregistration.k8s.io/v1";
/// Whether the client may write state.
const IS_TRUSTED: &str = "authorizer.group('kai.scheduler').resource('state').namespace(request.namespace)\
                          .check('write').allowed()";

/// The right to write state, and the policies that ask for it.
pub(super) fn manifests() -> Vec<Value> {
    let (home, reservations, scaling_pods) = (name::NAMESPACE, name::RESOURCE_RESERVATION, name::SCALE_ADJUST);
    let components = registry::components().into_iter().map(|(component, _)| component);
    let trusted = components.filter(|component| component.writes_state).map(|component| component.service_account);
    let trusted: Vec<(&str, &str)> = trusted.chain([name::ALL_IN_ONE]).map(|account| (home, account)).collect();
    let right = json!({"apiGroups": ["kai.scheduler"], "resources": ["state"], "verbs": ["write"]});
    let mut all = vec![
        cluster_role(ROLE, &[right]),
        binding_to("ClusterRole", None, ROLE, &trusted),
        binding_to("ClusterRole", Some(reservations), ROLE, &[(reservations, reservations)]),
        binding_to(
            "ClusterRole",
            Some(scaling_pods),
            ROLE,
            &[(home, registry::NODE_SCALE_ADJUSTER.component.service_account)],
        ),
    ];
    all.extend(policy("kai-state-of-pods", &pods(), &state_is_kept(Carrier::Pods)));
    all.extend(policy("kai-state-of-pod-groups", &pod_groups(), &state_is_kept(Carrier::PodGroups)));
    all.extend(policy("kai-bind-requests", &bind_requests(), &json!({"validations": [{
        "expression": IS_TRUSTED,
        "message": "bind requests are written by the scheduler and the binder; set spec.schedulerName of a pod to have it \
                    scheduled",
        "reason": "Forbidden",
    }]})));
    all
}

/// Pods, their bindings, which carry annotations for them, and their status, with which labels can be written as well.
fn pods() -> Value {
    let rule = |operations: &[&str], resources: &[&str]| json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": resources});
    json!({
        "matchConstraints": {"resourceRules": [
            rule(&["CREATE", "UPDATE"], &["pods"]),
            rule(&["UPDATE"], &["pods/status"]),
            rule(&["CREATE"], &["bindings", "pods/binding"]),
        ]},
        // The status of pods on its node must never wait for this.
        "matchConditions": [
            {"name": "no-kubelet", "expression": "!('system:nodes' in request.userInfo.groups)"},
        ],
    })
}

fn pod_groups() -> Value {
    json!({"matchConstraints": {"resourceRules": [
        {"apiGroups": [KAI], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["podgroups"]},
    ]}})
}

fn bind_requests() -> Value {
    json!({
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [KAI], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
            "resources": ["bindrequests", "bindrequests/status"],
        }]},
        // It takes owners away that no longer exist.
        "matchConditions": [{"name": "no-garbage-collector", "expression":
            "!(request.userInfo.username in ['system:serviceaccount:kube-system:generic-garbage-collector', \
             'system:kube-controller-manager'])"}],
    })
}

/// Keys that are state must be as they were, unless a component writes.
fn state_is_kept(carrier: Carrier) -> Value {
    let fields: Vec<(&str, String)> = [("labels", LABELS), ("annotations", ANNOTATIONS)]
        .into_iter()
        .filter(|(_, rows)| state_of(rows, carrier).next().is_some())
        .map(|(field, rows)| (field, state_expression(rows, carrier)))
        .collect();
    let mut variables = Vec::new();
    for (object, since) in [("object", ""), ("oldObject", "oldObject != null && ")] {
        for (field, _) in &fields {
            let expression = format!("{since}has({object}.metadata.{field}) ? {object}.metadata.{field} : {{}}");
            variables.push(json!({"name": variable(object, field), "expression": expression}));
        }
    }
    let changed = fields.iter().map(|(field, is_state)| {
        let [new, old] = ["object", "oldObject"].map(|object| format!("variables.{}", variable(object, field)));
        format!(
            "{new}.filter(key, ({is_state}) && !(key in {old} && {old}[key] == {new}[key])) + \
             {old}.filter(key, ({is_state}) && !(key in {new}))"
        )
    });
    let changed = changed.collect::<Vec<_>>().join(" + ");
    variables.push(json!({"name": "changed", "expression": changed}));
    json!({
        "variables": variables,
        "validations": [{
            "expression": format!("variables.changed.size() == 0 || {IS_TRUSTED}"),
            "message": "only components of kai write labels and annotations that are their state",
            "messageExpression": "variables.changed.join(', ') + ': only components of kai write this, it is their state; \
                                  leave it out of a copy, and leave it as it is in a change'",
            "reason": "Forbidden",
        }],
    })
}

/// Such as `oldObjectLabels`.
fn variable(object: &str, field: &str) -> String {
    let (first, rest) = field.split_at(1);
    format!("{object}{}{rest}", first.to_uppercase())
}

/// A policy of these parts, in force everywhere.
fn policy(name: &str, concerns: &Value, demands: &Value) -> [Value; 2] {
    let mut spec = json!({"failurePolicy": "Fail"});
    for part in [concerns, demands] {
        for (key, value) in part.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
    }
    let metadata = json!({"name": name});
    [
        json!({"apiVersion": POLICIES, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec}),
        json!({"apiVersion": POLICIES, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
            "spec": {"policyName": name, "validationActions": ["Deny"]}}),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cel::{Context, Env, Value as CelValue};

    use super::*;

    /// What a policy says about a change of an object, as the API server evaluates it, by a client that may not write state.
    fn evaluate(policy: &str, old: &Value, new: &Value) -> Result<(), String> {
        let all = manifests();
        let named = |one: &&Value| one["kind"] == "ValidatingAdmissionPolicy" && one["metadata"]["name"] == policy;
        let spec = &all.iter().find(named).expect("the policy")["spec"];
        let mut env = Env::stdlib();
        env.add_extension(cel::extensions::strings).unwrap();
        let env = Arc::new(env);
        // Each variable in the place of its name, the last ones first: they refer to those before.
        let inline = |expression: &str| {
            let variables = spec["variables"].as_array().into_iter().flatten().rev();
            variables.fold(expression.replace(IS_TRUSTED, "false"), |text, variable| {
                let [name, value] = ["name", "expression"].map(|field| variable[field].as_str().unwrap());
                text.replace(&format!("variables.{name}"), &format!("({value})"))
            })
        };
        let run = |expression: &Value| {
            let expression = inline(expression.as_str().unwrap());
            let program = env.compile(&expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
            let mut context = Context::with_env(Arc::clone(&env));
            for (name, value) in [("object", new), ("oldObject", old)] {
                context.add_variable(name, value.clone()).unwrap();
            }
            program.execute(&context).unwrap_or_else(|error| panic!("{expression}: {error}"))
        };
        for validation in spec["validations"].as_array().unwrap() {
            if run(&validation["expression"]) != CelValue::Bool(true) {
                let computed = &validation["messageExpression"];
                if computed.is_null() {
                    return Err(validation["message"].to_string());
                }
                let CelValue::String(message) = run(computed) else { panic!("a message is text") };
                return Err(message.to_string());
            }
        }
        Ok(())
    }

    fn object(labels: &Value, annotations: &Value) -> Value {
        json!({"metadata": {"name": "p", "labels": labels, "annotations": annotations}})
    }

    #[test]
    fn what_users_write_on_pods_is_theirs() {
        let empty = json!({"metadata": {"name": "p"}});
        let queue =
            object(&json!({"kai.scheduler/queue": "a"}), &json!({"gpu-fraction": "0.5", "pod-group-name": "g"}));
        let bound = object(&json!({"runai-gpu-group": "g"}), &json!({"received-resource-type": "Fraction"}));
        let mut labelled = bound.clone();
        labelled["metadata"]["labels"]["color"] = json!("red");
        for (old, new) in
            [(&Value::Null, &empty), (&Value::Null, &queue), (&empty, &queue), (&queue, &empty), (&bound, &labelled)]
        {
            assert_eq!(evaluate("kai-state-of-pods", old, new), Ok(()), "{old} → {new}");
        }
    }

    #[test]
    fn state_on_pods_is_neither_set_nor_changed_nor_removed() {
        let none = json!({});
        let empty = json!({"metadata": {"name": "p"}});
        let device = |group: &str| object(&json!({"runai-gpu-group/g": group}), &none);
        let named = "runai-gpu-group/g: only components of kai write this";
        for (old, new) in [
            (Value::Null, device("g")),
            (empty.clone(), device("g")),
            (device("g"), device("h")),
            (device("g"), empty.clone()),
        ] {
            let why = evaluate("kai-state-of-pods", &old, &new).unwrap_err();
            assert!(why.starts_with(named), "{old} → {new}: {why}");
        }
        let both = object(&json!({"runai-gpu-group": "g"}), &json!({"run.ai/reserve_for_gpu_index": "GPU-1"}));
        let why = evaluate("kai-state-of-pods", &Value::Null, &both).unwrap_err();
        assert!(why.starts_with("runai-gpu-group, run.ai/reserve_for_gpu_index: "), "{why}");
    }

    #[test]
    fn times_on_pod_groups_are_the_schedulers() {
        let group = |time: &str| object(&json!({}), &json!({"kai.scheduler/last-start-timestamp": time}));
        let policy = "kai-state-of-pod-groups";
        for (old, new) in [(Value::Null, group("2999")), (group("2026"), group("2999"))] {
            let why = evaluate(policy, &old, &new).unwrap_err();
            assert!(why.starts_with("kai.scheduler/last-start-timestamp: "), "{why}");
        }
        assert_eq!(evaluate(policy, &group("2026"), &group("2026")), Ok(()));
        assert_eq!(evaluate(policy, &Value::Null, &object(&json!({"runai-gpu-group": "g"}), &json!({}))), Ok(()));
    }

    #[test]
    fn bind_requests_are_the_components() {
        assert!(evaluate("kai-bind-requests", &Value::Null, &json!({"metadata": {"name": "b"}})).is_err());
    }
}
