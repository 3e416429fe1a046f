//! What a pod was bound with of shared GPUs. Annotations of a pod can be changed while it runs; what it holds stays the same
//! until it ends.

use std::collections::BTreeMap;

use kai_api::keys::{annotation, received};
use kai_engine::units::GPU;
use serde::{Deserialize, Serialize};

use super::gpu_sharing::{DEVICE_MIB_MAX, DEVICES_MAX};
use super::{GpuSharing, Request};

/// The part of each of these shared GPUs that a pod was bound with, as the binder notes it on the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundShare {
    groups: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    millionths: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mib: Option<i64>,
}

impl BoundShare {
    pub fn new(sharing: GpuSharing, groups: &[String]) -> Self {
        let (millionths, mib) = match sharing {
            GpuSharing::Fraction { portion, .. } => (Some(portion), None),
            GpuSharing::Memory { mib, .. } => (None, Some(mib)),
        };
        Self { groups: groups.to_vec(), millionths, mib }
    }

    /// As the annotation has it.
    pub fn to_text(&self) -> String {
        // Text and numbers always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// `None` for what the binder cannot have written.
    fn parse(text: &str) -> Option<(GpuSharing, Vec<String>)> {
        let Self { groups, millionths, mib } = serde_json::from_str(text).ok()?;
        let devices = u32::try_from(groups.len()).ok().filter(|devices| (1..=DEVICES_MAX).contains(devices))?;
        let sharing = match (millionths, mib) {
            (Some(portion), None) if (1..=GPU).contains(&portion) => GpuSharing::Fraction { devices, portion },
            (None, Some(mib)) if (1..=DEVICE_MIB_MAX).contains(&mib) => GpuSharing::Memory { devices, mib },
            _ => return None,
        };
        Some((sharing, groups))
    }
}

/// What a pod with a node holds of which shared GPUs: as it was bound, if that was noted, else as it says by now, with
/// these groups from its labels.
pub(crate) fn held_share(
    request: &Request,
    labelled: Vec<String>,
    annotations: &BTreeMap<String, String>,
) -> (Option<GpuSharing>, Vec<String>) {
    if request.resources.gpus > 0 {
        // Containers never change: it was bound with whole GPUs.
        return (None, labelled);
    }
    if let Some((sharing, groups)) =
        annotations.get(annotation::BOUND_GPU_SHARE).and_then(|text| BoundShare::parse(text))
    {
        return (Some(sharing), groups);
    }
    let received = annotations.get(annotation::RECEIVED_RESOURCE_TYPE).map(String::as_str);
    let devices = u32::try_from(labelled.len()).unwrap_or(DEVICES_MAX);
    let sharing = match request.sharing {
        // It was bound without a shared GPU; the annotation was added later.
        Some(_) if labelled.is_empty() && matches!(received, Some(received::REGULAR | received::MIG_INSTANCE)) => None,
        Some(sharing) => Some(sharing.on_devices(sharing.devices().max(devices))),
        // The annotation was removed since, so that the part is unknown.
        None if received == Some(received::FRACTION) && devices > 0 => {
            Some(GpuSharing::Fraction { devices, portion: GPU })
        }
        None => None,
    };
    (sharing, labelled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(
        sharing: Option<GpuSharing>,
        groups: &[&str],
        annotations: &[(&str, &str)],
    ) -> (Option<GpuSharing>, Vec<String>) {
        let request = Request { sharing, ..Request::default() };
        let annotations = annotations.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
        held_share(&request, groups.iter().map(|group| (*group).to_owned()).collect(), &annotations)
    }

    #[test]
    fn what_was_noted_at_the_bind_counts_whatever_was_changed_since() {
        let bound = GpuSharing::Memory { devices: 2, mib: 8000 };
        let groups = ["a".to_owned(), "b".to_owned()];
        let text = BoundShare::new(bound, &groups).to_text();
        assert_eq!(text, r#"{"groups":["a","b"],"mib":8000}"#);
        let noted = ("kai.scheduler/bound-gpu-share", text.as_str());
        for now in [None, Some(GpuSharing::Fraction { devices: 1, portion: 1 })] {
            assert_eq!(held(now, &["x"], &[noted]), (Some(bound), groups.to_vec()));
            assert_eq!(held(now, &[], &[noted, ("received-resource-type", "Regular")]), (Some(bound), groups.to_vec()));
        }
    }

    #[test]
    fn what_the_binder_cannot_have_noted_does_not_count() {
        let now = Some(GpuSharing::Fraction { devices: 1, portion: 900_000 });
        for text in [
            "",
            "0.1",
            r#"{"groups":[],"millionths":1}"#,
            r#"{"groups":["g"]}"#,
            r#"{"groups":["g"],"millionths":0}"#,
            r#"{"groups":["g"],"millionths":-5}"#,
            r#"{"groups":["g"],"mib":9223372036854775807}"#,
            r#"{"groups":["g"],"millionths":1,"mib":1}"#,
        ] {
            assert_eq!(held(now, &["g"], &[("kai.scheduler/bound-gpu-share", text)]).0, now, "{text}");
        }
    }

    #[test]
    fn without_a_note_other_traces_of_the_bind_count() {
        let asked = GpuSharing::Fraction { devices: 1, portion: 500_000 };
        let received = |what| [("received-resource-type", what)];
        assert_eq!(held(Some(asked), &[], &received("Regular")).0, None, "added later");
        assert_eq!(held(Some(asked), &["g"], &received("Regular")).0, Some(asked), "its label says otherwise");
        assert_eq!(held(Some(asked), &["a", "b"], &[]).0, Some(asked.on_devices(2)));
        let whole = GpuSharing::Fraction { devices: 1, portion: GPU };
        assert_eq!(held(None, &["g"], &received("Fraction")).0, Some(whole), "removed later");
        assert_eq!(held(None, &["g"], &[]).0, None, "a reservation pod");
        let mut request = Request { sharing: Some(asked), ..Request::default() };
        request.resources.gpus = 8;
        assert_eq!(held_share(&request, Vec::new(), &BTreeMap::new()).0, None);
    }
}
