//! From JSON to objects, one at a time: a large cluster is never held as a whole in any other form.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp as Instant;
use kai_control::scheduler::{Configured, Usage};
use kai_control::{Kind, Malformed, Object, World};
use kai_engine::units::Timestamp;
use kai_workloads::brief;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};

use crate::FORMAT_VERSION;
use crate::lists::{kind_of, v0_17_marker_list};
use crate::parameters;
use crate::unpack::{ReadError, unpack};

/// A cluster at one moment, as a file has it.
#[derive(Debug, Default)]
pub struct Recording {
    pub objects: Vec<Object>,
    /// Past usage of queues.
    pub usage: Usage,
    /// Objects that were left out or count in part, and why.
    pub errors: Vec<String>,
    /// When the cycle ran, if the file says so.
    pub now: Option<Timestamp>,
    config: Value,
    parameters: Value,
    /// Written by KAI before v0.17.
    before_v0_17: bool,
}

/// The scheduler's own search, which versions before v0.17 do not list.
const GENERATORS: [&str; 2] = ["sg-nodelocalgreedy", "sg-multinodegang"];

impl Recording {
    /// Reads a file.
    pub fn read(bytes: &[u8]) -> Result<Self, ReadError> {
        let json = unpack(bytes)?;
        let mut reader = serde_json::Deserializer::from_slice(&json);
        let file = File::deserialize(&mut reader)?;
        reader.end()?;
        let Some(lists) = file.lists else {
            return Err(ReadError::NotASnapshot("it has no rawObjects".to_owned()));
        };
        let cycle = file.cycle.unwrap_or_default();
        if let Some(version) = cycle.format_version.filter(|version| *version > FORMAT_VERSION) {
            return Err(ReadError::Version(version));
        }
        let now = cycle.now.map(|text| text.parse::<Instant>().map_err(|error| (text, error))).transpose();
        let now = now.map_err(|(text, error)| {
            ReadError::NotASnapshot(format!("cycle.now: `{}`: {}", brief(&text, 100), brief(&error.to_string(), 200)))
        })?;
        let usage = cycle.usage.into_iter().map(|(queue, used)| (queue, [used.cpu, used.memory, used.gpu]));
        Ok(Self {
            objects: lists.objects,
            usage: Usage { queues: usage.collect() },
            errors: lists.errors,
            now: now.map(|instant| Timestamp(instant.as_microsecond())),
            config: file.config,
            parameters: file.parameters,
            before_v0_17: cycle.format_version.is_none() && !lists.names.iter().any(|name| name == v0_17_marker_list()),
        })
    }

    /// How the scheduler was set up, or is if another configuration file is given. Flags are those of the file in
    /// either case, unless the other one says otherwise under `args`.
    pub fn configured(&self, other: Option<&Value>) -> Result<Configured, Malformed> {
        let mut config = other.unwrap_or(&self.config).clone();
        if config.is_null() {
            config = json!({});
        }
        if let Value::Object(config) = &mut config {
            if self.before_v0_17 && other.is_none() {
                add_default_generators(config);
            }
            let mut flags = parameters::flags(&self.parameters);
            if let Some(Value::Object(args)) = config.get("args") {
                flags.extend(args.clone());
            }
            if !flags.is_empty() && config.get("args").is_none_or(Value::is_object) {
                config.insert("args".to_owned(), Value::Object(flags));
            }
        }
        Configured::read(&config)
    }

    /// The time of the cycle: as the file says, or else the latest that its pods and pod groups know of, so that
    /// running it again tomorrow decides the same.
    pub fn time(&self) -> Timestamp {
        let known = self.objects.iter().flat_map(|object| match object {
            Object::Pod(pod) => [Some(pod.created), None, None, None],
            Object::PodGroup(group) => [Some(group.created), group.last_start, group.stale_since, group.last_eviction],
            _ => [None; 4],
        });
        self.now.or_else(|| known.flatten().max()).unwrap_or(Timestamp(0))
    }

    /// Takes the objects and sorts them into tables.
    pub fn take_world(&mut self) -> World {
        let mut world = World::default();
        for object in std::mem::take(&mut self.objects) {
            world.apply(object);
        }
        world
    }
}

/// Adds the plugins without which three actions would do nothing. Versions that do not know them search all the same.
fn add_default_generators(config: &mut Map<String, Value>) {
    let Some(Value::Array(tiers)) = config.get_mut("tiers") else { return };
    let named = |tier: &Value| tier["plugins"].as_array().is_some_and(|plugins| !plugins.is_empty());
    if tiers.iter().any(named) {
        tiers.push(json!({"plugins": GENERATORS.map(|name| json!({ "name": name }))}));
    }
}

/// The whole file.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    config: Value,
    #[serde(default, rename = "schedulerParams")]
    parameters: Value,
    #[serde(rename = "rawObjects")]
    lists: Option<Lists>,
    cycle: Option<Cycle>,
}

#[derive(Default, Deserialize)]
struct Cycle {
    #[serde(rename = "formatVersion")]
    format_version: Option<u64>,
    now: Option<String>,
    #[serde(default)]
    usage: BTreeMap<String, Used>,
}

#[derive(Deserialize)]
struct Used {
    cpu: i64,
    memory: i64,
    gpu: i64,
}

/// What `rawObjects` holds.
#[derive(Default)]
struct Lists {
    /// Those that are there, empty or not.
    names: Vec<String>,
    objects: Vec<Object>,
    errors: Vec<String>,
}

impl<'de> Deserialize<'de> for Lists {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ListsVisitor)
    }
}

struct ListsVisitor;

impl<'de> Visitor<'de> for ListsVisitor {
    type Value = Lists;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("lists of objects in rawObjects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Lists, A::Error> {
        let mut lists = Lists::default();
        while let Some(name) = map.next_key::<String>()? {
            if let Some(kind) = kind_of(&name) {
                map.next_value_seed(Items { kind, lists: &mut lists })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
            lists.names.push(name);
        }
        Ok(lists)
    }
}

/// The items of one list, which may be `null`.
struct Items<'l> {
    kind: Kind,
    lists: &'l mut Lists,
}

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a list of objects of kind {}", self.kind.name())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        // They need not name their kind.
        while let Some(object) = items.next_element::<Map<String, Value>>()? {
            let json = Value::Object(object);
            match Object::parse_as(self.kind, &json) {
                Ok(object) => {
                    let name = || format!("{} {}", self.kind.name(), name_of(&json));
                    let problems = object.problems().iter();
                    self.lists.errors.extend(problems.map(|wrong| format!("{}: {wrong}", name())));
                    self.lists.objects.push(object);
                }
                // One object that cannot be used is no reason to leave out the others.
                Err(wrong) => self.lists.errors.push(format!("{} {}: {wrong}", self.kind.name(), name_of(&json))),
            }
        }
        Ok(())
    }
}

fn name_of(object: &Value) -> String {
    let metadata = &object["metadata"];
    match (metadata["namespace"].as_str(), metadata["name"].as_str()) {
        (Some(namespace), Some(name)) => format!("{}/{}", brief(namespace, 100), brief(name, 260)),
        (None, Some(name)) => brief(name, 260).into_owned(),
        (_, None) => "without a name".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use kai_engine::policy::{Action, Generator};

    use super::*;

    fn read(file: &Value) -> Recording {
        Recording::read(file.to_string().as_bytes()).unwrap()
    }

    fn refused(bytes: &[u8]) -> String {
        Recording::read(bytes).unwrap_err().to_string()
    }

    #[test]
    fn objects_need_not_name_their_kind() {
        let mut recording = read(&json!({"rawObjects": {
            "pods": [{"metadata": {"name": "a", "namespace": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}}],
            "nodes": null,
            "novelties": [{"name": "z"}],
        }}));
        assert_eq!(recording.time().0, 1_767_225_600_000_000);
        assert_eq!(recording.take_world().pods.len(), 1);
    }

    #[test]
    fn volumes_and_config_maps_are_kept() {
        let named = |name: &str| json!([{"metadata": {"name": name}}]);
        let mut recording = read(&json!({"rawObjects": {
            "configMaps": named("settings"), "persistentVolumes": named("pv"), "persistentVolumeClaims": named("data"),
            "csiStorageCapacities": named("space"), "storageClasses": named("fast"), "csiDrivers": named("disk"),
            "csiNodes": named("node-1"),
        }}));
        let world = recording.take_world();
        assert_eq!((world.config_maps.len(), world.volumes.len(), world.volume_claims.len()), (1, 1, 1));
        assert_eq!((world.storage_capacities.len(), world.storage_classes.len()), (1, 1));
        assert_eq!((world.csi_drivers.len(), world.csi_nodes.len()), (1, 1));
    }

    #[test]
    fn one_bad_object_does_not_spoil_the_others() {
        let recording = read(&json!({"rawObjects": {"pods": [
            {"metadata": {"name": "a"}, "spec": {"nodeName": 7}}, {"metadata": {"name": "b"}}, {},
        ]}}));
        assert_eq!(recording.objects.len(), 1);
        assert_eq!(
            recording.errors,
            [
                "Pod a: spec.nodeName: expected text, found the number 7",
                "Pod without a name: metadata.name: the object has no name",
            ]
        );
    }

    #[test]
    fn the_part_that_is_ours_makes_a_cycle_repeatable() {
        let cycle = json!({
            "formatVersion": 1, "now": "2026-01-15T12:00:00.25Z",
            "usage": {"a": {"cpu": 1, "memory": 2, "gpu": 500_000}},
        });
        let recording = read(&json!({"cycle": cycle, "rawObjects": {}}));
        assert_eq!(recording.time(), Timestamp(1_768_478_400_250_000));
        assert_eq!(recording.usage.queues["a"], [1, 2, 500_000]);
    }

    #[test]
    fn old_snapshots_search_for_victims_without_saying_so() {
        let config = json!({"tiers": [{"plugins": [{"name": "predicates"}, {"name": "proportion"}]}]});
        let generators = |file: &Value| read(file).configured(None).unwrap().settings.policy.generators;
        let old = json!({"config": config, "rawObjects": {}});
        assert_eq!(generators(&old), [Generator::NodeLocalGreedy, Generator::MultiNodeGang]);
        let new = json!({"config": config, "rawObjects": {"nodeResourceTopologies": null}});
        assert!(generators(&new).is_empty());
    }

    #[test]
    fn another_configuration_keeps_the_flags() {
        let recording = read(&json!({
            "config": {"actions": "allocate"}, "schedulerParams": {"schedulerName": "mine"}, "rawObjects": {},
        }));
        let settings = recording.configured(None).unwrap().settings;
        assert_eq!((settings.policy.actions, settings.scheduler_name.as_str()), (vec![Action::Allocate], "mine"));
        let settings = recording.configured(Some(&json!({"actions": "reclaim"}))).unwrap().settings;
        assert_eq!((settings.policy.actions, settings.scheduler_name.as_str()), (vec![Action::Reclaim], "mine"));
        let other = json!({"args": {"scheduler-name": "yours"}});
        assert_eq!(recording.configured(Some(&other)).unwrap().settings.scheduler_name, "yours");
    }

    #[test]
    fn what_is_no_snapshot_is_refused() {
        assert_eq!(refused(b" \n"), "the file is empty");
        assert_eq!(refused(b"kind: Pod"), "the file is neither a zip archive nor JSON");
        assert_eq!(refused(b"{}"), "the JSON is no snapshot: it has no rawObjects");
        assert_eq!(
            refused(br#"{"rawObjects": {"pods": [{"met"#),
            "the JSON ends in the middle: EOF while parsing a string at line 1 column 30"
        );
        assert_eq!(
            refused(br#"{"rawObjects": {"pods": 7}}"#),
            "the JSON is no snapshot: invalid type: integer `7`, expected a list of objects of kind Pod at line 1 column 25"
        );
        assert_eq!(refused(br#"{"rawObjects": {]}"#), "the JSON is damaged: key must be a string at line 1 column 17");
        assert_eq!(
            refused(br#"{"rawObjects": {}, "cycle": {"formatVersion": 9}}"#),
            "the record has format 9, this program reads 1"
        );
        assert!(refused(b"PK\x03\x04 and no more").starts_with("the archive is damaged or cut off"));
        assert!(refused(b"\x1f\x8b and no more").starts_with("the archive is damaged or cut off"));
    }
}
