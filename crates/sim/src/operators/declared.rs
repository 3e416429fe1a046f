//! Operators of users' own kinds, as far as a declaration tells: pods from a template, numbered.

use kai_control::objects::Malformed;
use kai_workloads::DeclaredKinds;
use serde_json::Value;

use super::Role;

pub(super) fn roles(object: &Value, declared: &DeclaredKinds) -> Result<Vec<Role>, Malformed> {
    let pods = declared.pods(object).map_err(|error| {
        Malformed::new(
            error.field.trim_start_matches('.'),
            error.fault.to_string(),
            "correct it, or the declaration of the kind",
        )
    })?;
    let role = |(index, (pods, template)): (usize, (u32, Value))| Role {
        name: if index == 0 { "pod".to_owned() } else { format!("pod-{index}") },
        pods,
        path: "the template".to_owned(),
        template,
    };
    Ok(pods.into_iter().enumerate().map(role).collect())
}

/// Name and draft of every pod.
pub(crate) fn pods(name: &str, roles: &[Role]) -> Vec<(String, Value)> {
    let alone = roles.len() == 1;
    let of = |(sort, role): (usize, &Role)| {
        let (pods, template, name) = (role.pods, role.template.clone(), name.to_owned());
        let pod_name =
            move |index: u32| if alone { format!("{name}-{index}") } else { format!("{name}-{sort}-{index}") };
        (0..pods).map(move |index| (pod_name(index), template.clone())).collect::<Vec<_>>()
    };
    roles.iter().enumerate().flat_map(of).collect()
}
