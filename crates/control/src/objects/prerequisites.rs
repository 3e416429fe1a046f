//! What a pod needs to be there before it can run: volume claims and config maps.

use std::collections::BTreeSet;

use super::Malformed;
use super::field_reader::FieldReader;

/// Claims and config maps of a pod, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prerequisites {
    /// Claims that exist by themselves.
    pub claims: BTreeSet<String>,
    /// Claims that are made for the pod alone, and go with it.
    pub ephemeral_claims: BTreeSet<String>,
    /// Config maps without which it cannot start.
    pub config_maps: BTreeSet<String>,
}

/// Kubernetes itself keeps this one in every namespace, and nearly every pod mounts it.
const ROOT_CERTIFICATE: &str = "kube-root-ca.crt";

impl Prerequisites {
    /// Reads a pod's `spec`; `None` if it needs nothing. Config maps that begin with `created_at_bind` are made for the pod
    /// when it is bound.
    pub(crate) fn read(
        spec: &FieldReader<'_>,
        pod: &str,
        created_at_bind: Option<&str>,
    ) -> Result<Option<Box<Self>>, Malformed> {
        let mut prerequisites = Self::default();
        let containers = containers(spec)?;
        let mounted = mounted(&containers)?;
        for volume in spec.field("volumes").items()? {
            let name = volume.field("name").text_or_empty()?;
            prerequisites.claims.extend(volume.field("persistentVolumeClaim").field("claimName").non_empty_text()?);
            if volume.field("ephemeral").exists() {
                prerequisites.ephemeral_claims.insert(format!("{pod}-{name}"));
            }
            if mounted.contains(&name) {
                prerequisites.need(&volume.field("configMap"))?;
                for source in volume.field("projected").field("sources").items()? {
                    prerequisites.need(&source.field("configMap"))?;
                }
            }
        }
        for container in containers {
            for variable in container.field("env").items()? {
                prerequisites.need(&variable.field("valueFrom").field("configMapKeyRef"))?;
            }
            for source in container.field("envFrom").items()? {
                prerequisites.need(&source.field("configMapRef"))?;
            }
        }
        prerequisites.config_maps.remove(ROOT_CERTIFICATE);
        if let Some(prefix) = created_at_bind.filter(|prefix| !prefix.is_empty()) {
            prerequisites.config_maps.retain(|name| !name.starts_with(prefix));
        }
        Ok((prerequisites != Self::default()).then(|| Box::new(prerequisites)))
    }

    fn need(&mut self, place: &FieldReader<'_>) -> Result<(), Malformed> {
        if !place.field("optional").flag()?.unwrap_or(false) {
            self.config_maps.extend(place.field("name").non_empty_text()?);
        }
        Ok(())
    }

    /// All claims, by name.
    pub fn all_claims(&self) -> impl Iterator<Item = &str> {
        self.claims.union(&self.ephemeral_claims).map(String::as_str)
    }
}

fn containers<'a>(spec: &FieldReader<'a>) -> Result<Vec<FieldReader<'a>>, Malformed> {
    let mut all = Vec::new();
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        all.extend(spec.field(list).items()?);
    }
    Ok(all)
}

/// Names of volumes that some container mounts.
fn mounted(containers: &[FieldReader<'_>]) -> Result<BTreeSet<String>, Malformed> {
    let mut names = BTreeSet::new();
    for container in containers {
        for mount in container.field("volumeMounts").items()? {
            names.extend(mount.field("name").non_empty_text()?);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: &Value, created_at_bind: Option<&str>) -> Prerequisites {
        Prerequisites::read(&FieldReader::root(spec), "pod", created_at_bind)
            .unwrap()
            .map_or_else(Prerequisites::default, |prerequisites| *prerequisites)
    }

    #[test]
    fn claims_are_named_or_made_for_the_pod() {
        let volumes = json!([{"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "scratch", "ephemeral": {}}, {"name": "s", "emptyDir": {}}]);
        let prerequisites = read(&json!({ "volumes": volumes }), None);
        assert_eq!(prerequisites.all_claims().collect::<Vec<_>>(), ["data", "pod-scratch"]);
        assert_eq!(prerequisites.ephemeral_claims.into_iter().collect::<Vec<_>>(), ["pod-scratch"]);
    }

    #[test]
    fn config_maps_count_if_they_are_used_and_not_optional() {
        let volumes = json!([{"name": "a", "configMap": {"name": "mounted"}}, {"name": "b", "configMap": {"name": "idle"}},
            {"name": "c", "projected": {"sources": [{"configMap": {"name": "part"}}, {"secret": {"name": "s"}},
                {"configMap": {"name": "kube-root-ca.crt"}}]}}]);
        let container = json!({"volumeMounts": [{"name": "a"}, {"name": "c"}],
            "env": [{"valueFrom": {"configMapKeyRef": {"name": "key"}}}]});
        let init = json!({"envFrom": [{"configMapRef": {"name": "gpu-1"}}, {"configMapRef": {"name": "x", "optional": true}}]});
        let spec = json!({"volumes": volumes, "containers": [container], "initContainers": [init]});
        let names = |later| read(&spec, later).config_maps.into_iter().collect::<Vec<_>>();
        assert_eq!(names(None), ["gpu-1", "key", "mounted", "part"]);
        assert_eq!(names(Some("gpu")), ["key", "mounted", "part"]);
    }
}
