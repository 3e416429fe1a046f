//! Runs the pod-grouper cases: one rule, called on given objects, compared with the recorded pod group.

use kai_api::keys::annotation;
use kai_workloads::kinds::{
    self, Row, Rule, aml_job, cron_job, deployment, grove, jax_job, job, job_set, karta, knative, kubeflow,
    leader_worker_set, mpi_job, notebook, plain, pod, pytorch_job, ray, runai_job, spot_request, tf_job, wrapper,
    xgboost_job,
};
use kai_workloads::{
    ClusterReader, GroupError, GroupSpec, KindDefaults, Minimum, Object, ObjectRef, ObjectStore, Settings,
    TopologyConstraint, Workload,
};
use serde_json::{Value, json};

/// Names the first field that differs; `decisions` receives the whole group, or that there is none.
pub fn check_case(case: &Value, decisions: &mut String) -> Result<(), String> {
    let (input, expect) = (&case["input"], &case["expect"]);
    let expects_error = expect["error"] == true;
    let described = match group(input)? {
        Ok(spec) => Ok(described(&spec)?),
        Err(error) => Err(error),
    };
    decisions.push_str(&described.as_ref().map_or("refused".to_owned(), Value::to_string));
    match (described, expects_error) {
        (Err(_), true) => Ok(()),
        (Err(error), false) => Err(format!("refused: {error}")),
        (Ok(described), true) => Err(format!("accepted as {}, should be refused", described["name"])),
        (Ok(described), false) => compare(&described, expect),
    }
}

/// The outer error means that the case itself could not be understood.
fn group(input: &Value) -> Result<Result<GroupSpec, GroupError>, String> {
    let related = related(input)?;
    let settings = settings(input, &related)?;
    let owners: Vec<_> = input["owners"].as_array().into_iter().flatten().map(Object::new).collect();
    let (object, pod) = (Object::new(&input["top_owner"]), Object::new(&input["pod"]));
    let workload = Workload::new(object, owners, pod, &related, &settings);

    let grouper = input["grouper"].as_str().unwrap_or_default();
    let rule: Rule = match grouper {
        "aml" => aml_job::group,
        "batch_job" => job::group,
        "cronjob" => cron_job::group,
        "default" => plain::group,
        "deployment" => deployment::group,
        "grove" => grove::group,
        "jax" => jax_job::group,
        "jobset" => job_set::group,
        "knative" => knative::group,
        "leader_worker_set" => leader_worker_set::group,
        "mpi" => mpi_job::group,
        "notebook" => notebook::group,
        "pod_job" | "spark" => pod::group,
        "pytorch" => pytorch_job::group,
        "ray_cluster" | "ray_job" | "ray_service" => ray::group,
        "runai_job" => runai_job::group,
        "spot_request" => spot_request::group,
        "tensorflow" => tf_job::group,
        "xgboost" => xgboost_job::group,
        "karta" => {
            return Ok(match &input["karta"] {
                Value::Null => plain::group(&workload),
                karta => karta::group(&workload, karta),
            });
        }
        "kubeflow_distributed" => {
            let mandatory = input["mandatory_spec_names"].as_array().into_iter().flatten();
            let mandatory: Vec<&str> = mandatory.filter_map(Value::as_str).collect();
            let specs = input["replica_spec_name"].as_str().unwrap_or_default();
            return Ok(kubeflow::distributed(&workload, specs, &mandatory));
        }
        "skip_top_owner" => {
            // These cases were recorded with a table that knows pods and nothing else.
            let pods: Vec<Row> = kinds::find("", "Pod").copied().into_iter().collect();
            return Ok(wrapper::group_by(&workload, &pods));
        }
        other => return Err(format!("unknown grouper {other}")),
    };
    Ok(rule(&workload))
}

fn related(input: &Value) -> Result<ObjectStore, String> {
    let mut objects = ObjectStore::default();
    for entry in input["cluster_objects"].as_array().into_iter().flatten() {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        let (group, version) = (text("group"), text("version"));
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let kind = match entry["object"]["kind"].as_str() {
            Some(kind) => kind,
            None => kind_of(text("resource"))?,
        };
        objects.insert_as(&api_version, kind, entry["object"].clone());
    }
    Ok(objects)
}

/// Recorded typed objects do not carry their kind.
fn kind_of(resource: &str) -> Result<&'static str, String> {
    Ok(match resource {
        "configmaps" => "ConfigMap",
        "jobs" => "Job",
        "podgroups" => "PodGroup",
        "pods" => "Pod",
        "priorityclasses" => "PriorityClass",
        "revisions" => "Revision",
        "services" => "Service",
        other => return Err(format!("object without kind, of resource {other}")),
    })
}

fn settings(input: &Value, related: &ObjectStore) -> Result<Settings, String> {
    let given = &input["settings"];
    let text = |field: &str| given[field].as_str().unwrap_or_default().to_owned();
    let flag = |field: &str| given[field].as_bool().unwrap_or(true);
    let namespace = text("default_config_per_type_config_map_namespace");
    let config_map = ObjectRef::new("v1", "ConfigMap", &namespace, &text("default_config_per_type_config_map_name"));
    // A broken map counts as none, as in the cluster.
    let kind_defaults = related.object(&config_map).and_then(|map| KindDefaults::from_config_map(map).ok());
    for known in given.as_object().into_iter().flat_map(|map| map.keys()) {
        if !KNOWN_SETTINGS.contains(&known.as_str()) {
            return Err(format!("unknown setting {known}"));
        }
    }
    Ok(Settings {
        queue_label_key: text("queue_label_key"),
        node_pool_label_key: text("node_pool_label_key"),
        search_legacy_pod_groups: flag("search_for_legacy_pod_groups"),
        knative_gang_schedule: flag("gang_schedule"),
        kind_defaults: kind_defaults.unwrap_or_default(),
        ..Settings::default()
    })
}

const KNOWN_SETTINGS: [&str; 6] = [
    "default_config_per_type_config_map_name",
    "default_config_per_type_config_map_namespace",
    "gang_schedule",
    "node_pool_label_key",
    "queue_label_key",
    "search_for_legacy_pod_groups",
];

/// The group in the words of the recording.
fn described(spec: &GroupSpec) -> Result<Value, String> {
    let mut annotations = spec.annotations.clone();
    let record = annotations.remove(annotation::TOP_OWNER_METADATA).ok_or("no record of the top owner")?;
    let record: Value = yaml_serde::from_str(&record).map_err(|error| error.to_string())?;
    let sub_groups: Vec<Value> = spec
        .sub_groups
        .iter()
        .map(|sub_group| {
            let mut described = json!({
                "name": sub_group.name,
                "parent": sub_group.parent,
                "pods": sub_group.pods,
                "topology_constraint": topology(sub_group.topology.as_ref()),
            });
            describe_minimum(&mut described, sub_group.minimum);
            described
        })
        .collect();
    let mut described = json!({
        "error": false,
        "name": spec.name,
        "namespace": spec.namespace,
        "queue": spec.queue,
        "priority_class": spec.priority_class,
        "preemptibility": spec.preemptibility.map_or("", kai_workloads::Preemptibility::as_str),
        "owner": {
            "api_version": spec.owner.api_version,
            "kind": spec.owner.kind,
            "name": spec.owner.name,
            "uid": spec.owner.uid,
        },
        "labels": spec.labels,
        "annotations": annotations,
        "top_owner_metadata": record,
        "topology_constraint": topology(spec.topology.as_ref()),
        "sub_groups": sub_groups,
    });
    describe_minimum(&mut described, spec.minimum);
    Ok(described)
}

fn describe_minimum(described: &mut Value, minimum: Minimum) {
    match minimum {
        Minimum::Members(members) => described["min_available"] = json!(members),
        Minimum::SubGroups(children) => {
            described["min_available"] = json!(0);
            described["min_sub_groups"] = json!(children);
        }
    }
}

fn topology(constraint: Option<&TopologyConstraint>) -> Value {
    constraint.map_or(Value::Null, |constraint| {
        json!({
            "topology": constraint.topology.as_deref().unwrap_or_default(),
            "required_level": constraint.required_level.as_deref().unwrap_or_default(),
            "preferred_level": constraint.preferred_level.as_deref().unwrap_or_default(),
        })
    })
}

/// Both sides must have the same fields with the same values; an unknown field is a difference.
fn compare(ours: &Value, expected: &Value) -> Result<(), String> {
    let (Some(ours), Some(expected)) = (ours.as_object(), expected.as_object()) else {
        return Err("not an object".to_owned());
    };
    let fields = ours.keys().chain(expected.keys().filter(|key| !ours.contains_key(*key)));
    for field in fields {
        let (ours, expected) = (ours.get(field), expected.get(field));
        if ours != expected {
            let shown = |value: Option<&Value>| value.map_or("absent".to_owned(), Value::to_string);
            return Err(format!("{field}: ours {}, expected {}", shown(ours), shown(expected)));
        }
    }
    Ok(())
}
