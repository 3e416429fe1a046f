//! `JobSet` 0.8: Jobs in several sorts, some after others.

use kai_control::objects::Malformed;
use serde_json::{Value, json};

use super::{JsonCursor, Role, add_labels};
use crate::json::object_at;

const REPLICATED_JOB: &str = "jobset.sigs.k8s.io/replicatedjob-name";

pub(super) fn roles(set: &JsonCursor<'_>) -> Result<Vec<Role>, Malformed> {
    set.flag("spec.suspend")?;
    set.text("spec.startupPolicy.startupPolicyOrder")?;
    let jobs = set.list("spec.replicatedJobs")?;
    if jobs.is_empty() {
        return Err(set.missing("spec.replicatedJobs"));
    }
    let mut roles: Vec<Role> = Vec::new();
    for job in jobs {
        let name = job.text("name")?.filter(|name| !name.is_empty()).ok_or_else(|| job.missing("name"))?;
        if roles.iter().any(|role| role.name == name) {
            let problem = format!("`{name}` is there twice");
            return Err(Malformed::new(job.path_of("name"), problem, "give each replicated job a name of its own"));
        }
        for needed in job.list("dependsOn")? {
            let other = needed.text("name")?.unwrap_or_default();
            if !roles.iter().any(|role| role.name == other) {
                let problem = format!("`{other}` is none of the replicated jobs above");
                return Err(Malformed::new(needed.path_of("name"), problem, "name one that stands before this one"));
            }
        }
        let spec = job.required("template.spec")?;
        let parallel = spec.count("parallelism")?;
        let completions = spec.count("completions")?;
        let indexed = spec.text("completionMode")?.is_none_or(|mode| mode == "Indexed");
        if indexed && parallel.is_some() && completions.is_none() {
            return Err(Malformed::new(
                spec.path_of("completions"),
                "a Job with numbered pods must say how many",
                "write as many completions as parallelism, or completionMode: NonIndexed",
            ));
        }
        let pods = job.count("replicas")?.unwrap_or(1).saturating_mul(parallel.unwrap_or(1));
        roles.push(spec.role(name, pods, "template")?);
    }
    Ok(roles)
}

/// One replicated job of a set.
#[derive(Debug)]
pub(crate) struct Replicated<'a> {
    pub(crate) name: &'a str,
    pub(crate) replicas: u32,
    /// Another one that must be up, or done, before.
    pub(crate) after: Option<(&'a str, bool)>,
    template: &'a Value,
    /// How many Jobs stand before its first.
    before: u32,
}

/// In the order written. Only of a set that has been checked.
pub(crate) fn replicated(set: &Value) -> Vec<Replicated<'_>> {
    let mut before = 0;
    let jobs = set.pointer("/spec/replicatedJobs").and_then(Value::as_array).into_iter().flatten();
    let read = |job: &'_ Value| {
        let count = job.get("replicas").and_then(Value::as_u64).unwrap_or(1);
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    let mut all = Vec::new();
    for job in jobs {
        let after = job.pointer("/dependsOn/0").and_then(|needed| {
            Some((needed.get("name")?.as_str()?, needed.get("status").and_then(Value::as_str) == Some("Complete")))
        });
        let (Some(name), Some(template)) = (job.get("name").and_then(Value::as_str), job.get("template")) else {
            continue;
        };
        all.push(Replicated { name, replicas: read(job), after, template, before });
        before += read(job);
    }
    all
}

/// Whether a Job was made for the replicated job of that name.
pub(crate) fn is_of(job: &Value, name: &str) -> bool {
    job.pointer("/metadata/labels").and_then(|labels| labels.get(REPLICATED_JOB)?.as_str()) == Some(name)
}

/// Whether each replicated job waits for the one before.
pub(crate) fn in_order(set: &Value) -> bool {
    set.pointer("/spec/startupPolicy/startupPolicyOrder").and_then(Value::as_str) == Some("InOrder")
}

/// How many Jobs must end well, and of which sorts; none named means any.
pub(crate) fn success(set: &Value) -> (Option<u32>, Vec<&str>) {
    let targets = set.pointer("/spec/successPolicy/targetReplicatedJobs").and_then(Value::as_array);
    let targets = targets.into_iter().flatten().filter_map(Value::as_str).collect();
    let any = set.pointer("/spec/successPolicy/operator").and_then(Value::as_str) == Some("Any");
    (any.then_some(1), targets)
}

/// A Job of a set, without owner; and its name.
pub(crate) fn job(set: &Value, set_name: &str, of: &Replicated<'_>, index: u32, all: u32) -> (String, Value) {
    let name = format!("{set_name}-{}-{index}", of.name);
    let marks = [
        ("jobset.sigs.k8s.io/jobset-name", set_name.to_owned()),
        (REPLICATED_JOB, of.name.to_owned()),
        ("jobset.sigs.k8s.io/restart-attempt", "0".to_owned()),
        ("jobset.sigs.k8s.io/replicatedjob-replicas", of.replicas.to_string()),
        ("jobset.sigs.k8s.io/global-replicas", all.to_string()),
        ("jobset.sigs.k8s.io/job-index", index.to_string()),
        ("jobset.sigs.k8s.io/job-global-index", (of.before + index).to_string()),
    ];
    let mut job = json!({"metadata": of.template.get("metadata"), "spec": of.template.get("spec")});
    if let Some(spec) = object_at(&mut job, &["spec"]) {
        spec.entry("completionMode").or_insert_with(|| json!("Indexed"));
        spec.entry("parallelism").or_insert_with(|| json!(1));
        if spec.get("completionMode") == Some(&json!("Indexed")) {
            spec.entry("completions").or_insert_with(|| json!(1));
        }
        spec.insert("suspend".to_owned(), json!(suspended(set)));
    }
    for map in ["labels", "annotations"] {
        add_labels(&mut job, map, &marks);
        if let Some(template) = job.pointer_mut("/spec/template") {
            add_labels(template, map, &marks);
        }
    }
    (name, job)
}

pub(crate) fn suspended(set: &Value) -> bool {
    set.pointer("/spec/suspend") == Some(&json!(true))
}

#[cfg(test)]
mod tests {
    use super::super::{example, outline};
    use super::*;
    use crate::kinds::Kind;

    fn entry(name: &str, replicas: u32, job: &Value) -> Value {
        let mut entry = json!({"name": name, "replicas": replicas, "template": {"spec": job}});
        entry["template"]["spec"]["template"] = json!({"spec": {"containers": [{"name": "main"}]}});
        entry
    }

    #[test]
    fn jobs_have_their_position_in_the_set() {
        let spec = json!({"replicatedJobs": [
            entry("driver", 1, &json!({})), entry("worker", 2, &json!({"parallelism": 4, "completions": 4}))]});
        assert_eq!(outline(Kind::JobSet, &spec), "driver 1, worker 8");
        let set = example(Kind::JobSet, &spec);
        let (name, job) = job(&set, "x", &replicated(&set)[1], 1, 3);
        assert_eq!(name, "x-worker-1");
        let labels = &job["spec"]["template"]["metadata"]["labels"];
        assert_eq!(labels, &job["metadata"]["annotations"]);
        let label = |key: &str| labels[format!("jobset.sigs.k8s.io/{key}")].as_str().unwrap();
        assert_eq!((label("job-index"), label("job-global-index"), label("global-replicas")), ("1", "2", "3"));
        assert_eq!((&job["spec"]["completionMode"], &job["spec"]["suspend"]), (&json!("Indexed"), &json!(false)));
    }

    #[test]
    fn nonsense_is_refused_by_field() {
        for (jobs, error) in [
            (json!([]), "spec.replicatedJobs: it is missing"),
            (json!([{"template": {}}]), "spec.replicatedJobs[0].name: it is missing"),
            (json!([entry("a", 1, &json!({"parallelism": 2}))]), "spec.replicatedJobs[0].template.spec.completions: "),
            (
                json!([entry("a", 1, &json!({})), entry("a", 1, &json!({}))]),
                "spec.replicatedJobs[1].name: `a` is there twice",
            ),
        ] {
            let found = outline(Kind::JobSet, &json!({"replicatedJobs": jobs}));
            assert!(found.starts_with(error), "{found}");
        }
        let mut early = entry("a", 1, &json!({}));
        early["dependsOn"] = json!([{"name": "b", "status": "Ready"}]);
        let found = outline(Kind::JobSet, &json!({"replicatedJobs": [early, entry("b", 1, &json!({}))]}));
        assert!(found.starts_with("spec.replicatedJobs[0].dependsOn[0].name: `b` is none of"), "{found}");
    }
}
