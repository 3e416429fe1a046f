//! Takes out of texts what is different in every run: identifiers, generated names, times.

use std::collections::BTreeMap;

use serde_json::Value;

/// What stands for each such word.
#[derive(Debug, Default)]
pub(crate) struct Redaction {
    /// Longest first, so that no word is replaced in the middle of another.
    known: Vec<(String, String)>,
    /// Identifiers that belong to no object, in order of appearance.
    others: BTreeMap<String, String>,
}

const UUID: &str = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
const TIME: &str = "dddd-dd-ddTdd:dd:ddZ";
/// Minutes since 1970, in names of what a CronJob starts.
const MINUTE: &str = "-dddddddd";

impl Redaction {
    /// Learns what to redact of these objects.
    pub(crate) fn of<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut redaction = Self::default();
        let mut sharers: BTreeMap<String, usize> = BTreeMap::new();
        for object in objects {
            let metadata = &object["metadata"];
            let kind = object["kind"].as_str().unwrap_or_default();
            redaction.learn(&metadata["uid"], &format!("({kind} uid)"));
            if let Some(prefix) = metadata["generateName"].as_str() {
                redaction.learn(&metadata["name"], &format!("{prefix}*"));
            }
            for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
                redaction.learn(&owner["uid"], &format!("({} uid)", owner["kind"].as_str().unwrap_or_default()));
            }
            if kind == "Pod" {
                // Its middle is drawn at random.
                let maps = &metadata["annotations"]["runai/shared-gpu-configmap"];
                let name = metadata["generateName"].as_str().or(metadata["name"].as_str()).unwrap_or_default();
                redaction.learn(maps, &format!("{name}*-shared-gpu"));
            }
            for group in object["spec"]["selectedGPUGroups"].as_array().into_iter().flatten() {
                *sharers.entry(group.to_string()).or_default() += 1;
            }
        }
        for (group, pods) in sharers {
            redaction.learn(&group.trim_matches('"').into(), &format!("(GPU group of {pods})"));
        }
        redaction.known.sort_by(|(one, _), (other, _)| other.len().cmp(&one.len()).then(one.cmp(other)));
        redaction.known.dedup();
        redaction
    }

    fn learn(&mut self, word: &Value, stand_in: &str) {
        if let Some(word) = word.as_str().filter(|word| !word.is_empty()) {
            self.known.push((word.to_owned(), stand_in.to_owned()));
        }
    }

    pub(crate) fn plain(&mut self, text: &str) -> String {
        let mut text = self.known.iter().fold(text.to_owned(), |text, (word, stand_in)| text.replace(word, stand_in));
        while let Some(at) = find(&text, UUID) {
            let next = format!("(id {})", self.others.len() + 1);
            let stand_in = self.others.entry(text[at..at + UUID.len()].to_owned()).or_insert(next);
            text.replace_range(at..at + UUID.len(), stand_in);
        }
        for (shape, stand_in) in [(TIME, "(time)"), (MINUTE, "-(minute)")] {
            while let Some(at) = find(&text, shape) {
                text.replace_range(at..at + shape.len(), stand_in);
            }
        }
        text
    }
}

/// Where something of this shape begins: `x` is a hexadecimal digit, `d` a decimal one.
fn find(text: &str, shape: &str) -> Option<usize> {
    text.as_bytes().windows(shape.len()).position(|window| {
        window.iter().zip(shape.bytes()).all(|(byte, wanted)| match wanted {
            b'x' => byte.is_ascii_hexdigit(),
            b'd' => byte.is_ascii_digit(),
            exact => *byte == exact,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_every_run_makes_anew_is_replaced() {
        let uid = "0b7c1f9e-2d3a-4b5c-8d6e-7f8091a2b3c4";
        let pod = json!({"kind": "Pod", "metadata": {
            "name": "batch-x7k2p", "generateName": "batch-", "uid": uid,
            "annotations": {"runai/shared-gpu-configmap": "batch-x7k2p-ab12cd3-shared-gpu"},
            "ownerReferences": [{"kind": "Job", "uid": "1b7c1f9e-2d3a-4b5c-8d6e-7f8091a2b3c4"}],
        }});
        let request = json!({"kind": "BindRequest", "spec": {"selectedGPUGroups": ["node-0-be00"]}});
        let mut redaction = Redaction::of([&pod, &request]);
        for (text, plain) in [
            ("pg-batch-1b7c1f9e-2d3a-4b5c-8d6e-7f8091a2b3c4", "pg-batch-(Job uid)"),
            ("batch-x7k2p-ab12cd3-shared-gpu-0", "batch-*-shared-gpu-0"),
            ("batch-x7k2p", "batch-*"),
            ("node-0-be00", "(GPU group of 1)"),
            ("at 2026-01-02T03:04:05Z", "at (time)"),
            ("pg-nightly-29914207-a", "pg-nightly-(minute)-a"),
            ("ffffffff-2d3a-4b5c-8d6e-7f8091a2b3c4", "(id 1)"),
            ("eeeeeeee-2d3a-4b5c-8d6e-7f8091a2b3c4", "(id 2)"),
            ("ffffffff-2d3a-4b5c-8d6e-7f8091a2b3c4", "(id 1)"),
        ] {
            assert_eq!(redaction.plain(text), plain);
        }
    }
}
