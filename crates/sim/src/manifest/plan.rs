//! All sources together: what exists at time zero, what happens later, and whether the whole of it makes sense.

use std::collections::{BTreeMap, BTreeSet};

use kai_api::bounds::QUEUE_LEVELS_MAX;
use kai_api::keys::name;
use kai_control::ancestors::{Ancestry, ancestries};
use kai_engine::units::Span;
use kai_workloads::DeclaredKinds;
use serde_json::Value;

use super::classify::{Content, Item, classify};
use super::document::{self, Source};
use super::scenario::{Action, Scenario, normalize_path};
use super::validate::{admit, cycle};
use crate::input_error::{InputError, SourceLocation};
use crate::kinds::{Id, Kind};

/// A checked simulation, ready to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What exists when it begins, in the order of application.
    pub(crate) initial: Vec<Item>,
    /// What happens later, by time.
    pub(crate) steps: Vec<PlannedStep>,
    /// Everything else that the scenario says.
    pub(crate) scenario: Scenario,
    /// Kinds that users have declared.
    pub(crate) declared: DeclaredKinds,
}

/// Something that happens at a moment, with all it needs.
#[derive(Clone, Debug)]
pub(crate) struct PlannedStep {
    pub(crate) at: Span,
    pub(crate) action: ResolvedAction,
}

/// What happens.
#[derive(Clone, Debug)]
pub(crate) enum ResolvedAction {
    Apply(Vec<Item>),
    Delete(Id),
    Scale(Id, u32),
    NodeDown(String),
    NodeUp(String),
}

/// A file that a step applies, with the location that asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingFile {
    /// Path, relative to where the sources' paths are relative to.
    pub path: String,
    /// The step.
    pub location: SourceLocation,
}

/// Files that steps apply and that are not among the sources: the caller reads them and asks again.
pub fn missing_files(sources: &[Source]) -> Result<Vec<MissingFile>, InputError> {
    let present: BTreeSet<String> = sources.iter().map(|source| normalize_path(&source.name)).collect();
    let mut seen = BTreeSet::new();
    let mut wanted = Vec::new();
    for (path, location) in gather(sources)?.scenario.applied_files() {
        if !present.contains(path) && seen.insert(path.to_owned()) {
            wanted.push(MissingFile { path: path.to_owned(), location: location.clone() });
        }
    }
    Ok(wanted)
}

/// Reads and checks everything.
pub fn read(sources: &[Source]) -> Result<Plan, InputError> {
    let Gathered { scenario, mut files, declared } = gather(sources)?;
    for items in files.values_mut() {
        for item in items {
            admit(item, &declared)?;
        }
    }
    let later: BTreeSet<&str> = scenario.applied_files().map(|(path, _)| path).collect();
    let mut initial: Vec<Item> = Vec::new();
    for source in sources {
        // A source given twice counts once, like a file that two glob patterns match.
        if let Some(items) =
            files.get(&normalize_path(&source.name)).filter(|_| !later.contains(normalize_path(&source.name).as_str()))
        {
            initial.extend(items.iter().cloned());
        }
    }
    let mut seen = BTreeSet::new();
    let mut steps = Vec::new();
    for step in &scenario.steps {
        let action = match &step.action {
            Action::Apply(paths) => {
                let mut items = Vec::new();
                for path in paths {
                    let found = files.get(path).ok_or_else(|| {
                        InputError::new(
                            step.location.clone(),
                            format!("{path} was not read"),
                            "check the name of the file",
                        )
                    })?;
                    seen.insert(path.clone());
                    items.extend(found.iter().cloned());
                }
                ResolvedAction::Apply(items)
            }
            Action::Delete(id) => ResolvedAction::Delete(id.clone()),
            Action::Scale(id, replicas) => ResolvedAction::Scale(id.clone(), *replicas),
            Action::NodeDown(node) => ResolvedAction::NodeDown(node.clone()),
            Action::NodeUp(node) => ResolvedAction::NodeUp(node.clone()),
        };
        steps.push((PlannedStep { at: step.at, action }, step.location.clone()));
    }
    // Steps of one moment keep the order in which they are written.
    steps.sort_by_key(|(step, _)| step.at);
    sort_by_kind(&mut initial);
    for (step, _) in &mut steps {
        if let ResolvedAction::Apply(items) = &mut step.action {
            sort_by_kind(items);
        }
    }
    validate_steps(&initial, &steps, &scenario)?;
    Ok(Plan { initial, steps: steps.into_iter().map(|(step, _)| step).collect(), scenario, declared })
}

/// What others refer to comes first; otherwise the order of the documents stays.
fn sort_by_kind(items: &mut [Item]) {
    items.sort_by_key(|item| item.id.kind);
}

struct Gathered {
    scenario: Scenario,
    /// Objects by tidy file name.
    files: BTreeMap<String, Vec<Item>>,
    declared: DeclaredKinds,
}

fn gather(sources: &[Source]) -> Result<Gathered, InputError> {
    let mut scenario: Option<Scenario> = None;
    let mut files: BTreeMap<String, Vec<Item>> = BTreeMap::new();
    let mut unknown: Vec<(String, Item, InputError)> = Vec::new();
    for source in sources {
        let name = normalize_path(&source.name);
        if files.contains_key(&name) {
            continue;
        }
        let mut contents = Vec::new();
        for document in document::read(source)? {
            classify(document, &mut contents)?;
        }
        let mut items = Vec::new();
        for content in contents {
            match content {
                Content::Object(item) => items.push(item),
                Content::Unknown(item, fault) => unknown.push((name.clone(), item, fault)),
                Content::Scenario(document) => {
                    let found = Scenario::read(&document)?;
                    if let Some(first) = &scenario {
                        return Err(InputError::new(
                            found.location,
                            format!("there is a second Scenario; the first is in {}", first.location),
                            "keep one, or simulate them one at a time",
                        ));
                    }
                    scenario = Some(found);
                }
            }
        }
        files.insert(name, items);
    }
    let declarations = Id::namespaced(Kind::ConfigMap, name::NAMESPACE, name::WORKLOAD_KINDS);
    let map = files.values().flatten().find(|item| item.id == declarations);
    let declared = map.map(declared).transpose()?.unwrap_or_default();
    for (file, item, fault) in unknown {
        if !declared.knows(&item.value) {
            return Err(fault);
        }
        files.entry(file).or_default().push(item);
    }
    Ok(Gathered { scenario: scenario.unwrap_or_default(), files, declared })
}

/// Kinds that a config map declares. A cluster leaves invalid declarations out; here the author can correct them.
fn declared(map: &Item) -> Result<DeclaredKinds, InputError> {
    let (declared, errors) = DeclaredKinds::from_config_map(&map.value);
    match errors.into_iter().next() {
        None => Ok(declared),
        Some(error) => {
            let problem = error.fault.to_string();
            Err(InputError::new(
                map.location.field(error.field),
                problem,
                "correct this declaration, or remove its key",
            ))
        }
    }
}

/// Plays the story through on names alone, so that nothing has to be refused half-way.
fn validate_steps(
    initial: &[Item],
    steps: &[(PlannedStep, SourceLocation)],
    scenario: &Scenario,
) -> Result<(), InputError> {
    let mut present: BTreeMap<&Id, &Item> = BTreeMap::new();
    check_unique(initial)?;
    present.extend(initial.iter().map(|item| (&item.id, item)));
    check_queue_tree(&present)?;
    check_running(scenario, &present)?;
    for (step, location) in steps {
        match &step.action {
            ResolvedAction::Apply(items) => {
                check_unique(items)?;
                for item in items {
                    if let Some(before) = present.insert(&item.id, item) {
                        check_update(before, item)?;
                    }
                }
                check_queue_tree(&present)?;
            }
            ResolvedAction::Delete(id) => {
                // Pods made by controllers have no manifest; whether they exist, and whether a queue may go, is known
                // only when it happens.
                let there =
                    if id.kind == Kind::Queue { present.contains_key(id) } else { present.remove(id).is_some() };
                if !there && id.kind != Kind::Pod {
                    return Err(absent(id, &present, location));
                }
            }
            ResolvedAction::Scale(id, _) => {
                if !present.contains_key(id) {
                    return Err(absent(id, &present, location));
                }
            }
            ResolvedAction::NodeDown(node) | ResolvedAction::NodeUp(node) => {
                let id = Id::cluster(Kind::Node, node);
                if !present.contains_key(&id) {
                    return Err(absent(&id, &present, location));
                }
            }
        }
    }
    let all: BTreeSet<&Id> =
        initial.iter().chain(steps.iter().flat_map(|(step, _)| step.items())).map(|item| &item.id).collect();
    for rule in &scenario.durations {
        if rule.target.kind != Kind::Pod && !all.contains(&rule.target) {
            return Err(absent_among(&rule.target, all.iter().copied(), &rule.location));
        }
    }
    Ok(())
}

impl Plan {
    /// Every object that is there at some time.
    pub(crate) fn all_items(&self) -> impl Iterator<Item = &Item> {
        self.initial.iter().chain(self.steps.iter().flat_map(PlannedStep::items))
    }
}

impl PlannedStep {
    fn items(&self) -> &[Item] {
        if let ResolvedAction::Apply(items) = &self.action { items } else { &[] }
    }
}

fn absent(id: &Id, present: &BTreeMap<&Id, &Item>, location: &SourceLocation) -> InputError {
    absent_among(id, present.keys().copied(), location)
}

/// An object that is not there, with the name that was probably meant.
fn absent_among<'a>(id: &Id, present: impl Iterator<Item = &'a Id>, location: &SourceLocation) -> InputError {
    let names: Vec<String> = present.filter(|other| other.kind == id.kind).map(Id::path).collect();
    let help = match kai_control::did_you_mean::closest_match(&id.path(), names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None if names.is_empty() => format!("there is no {} at that time", id.kind.name()),
        None => format!("at that time there are {}", listed(&names)),
    };
    InputError::new(location.clone(), format!("{id} does not exist"), help)
}

fn listed(names: &[String]) -> String {
    // Enough to recognise one's own naming scheme, not a screen full.
    const SHOWN: usize = 8;
    if names.len() <= SHOWN {
        return names.join(", ");
    }
    format!("{} and {} more", names[..SHOWN].join(", "), names.len() - SHOWN)
}

fn check_unique(items: &[Item]) -> Result<(), InputError> {
    let mut seen: BTreeMap<&Id, &SourceLocation> = BTreeMap::new();
    for item in items {
        if let Some(first) = seen.insert(&item.id, &item.location) {
            let first = SourceLocation { object: None, field: None, ..first.clone() };
            return Err(InputError::new(
                item.location.field("metadata.name"),
                format!("{} is there twice, first in {first}", item.id),
                "rename or remove one of them; later changes belong into a file that a Scenario step applies",
            ));
        }
    }
    Ok(())
}

fn check_queue_tree(present: &BTreeMap<&Id, &Item>) -> Result<(), InputError> {
    let queues: Vec<&&Item> = present.values().filter(|item| item.id.kind == Kind::Queue).collect();
    let parent = |item: &'_ Item| -> Option<String> {
        let parent = item.value.pointer("/spec/parentQueue").and_then(Value::as_str)?;
        (!parent.is_empty()).then(|| parent.to_owned())
    };
    let owned: Vec<(&str, Option<String>)> = queues.iter().map(|item| (item.id.name.as_str(), parent(item))).collect();
    let parents: BTreeMap<&str, Option<&str>> = owned.iter().map(|(name, parent)| (*name, parent.as_deref())).collect();
    let ancestries = ancestries(&parents);
    for item in queues {
        let (problem, help) = match ancestries[item.id.name.as_str()] {
            Ancestry::Cycle => (
                format!("queues are each other's parents: {}", cycle(&item.id.name, &parents)),
                "remove spec.parentQueue from the one that should be at the top",
            ),
            Ancestry::Levels(levels) if levels > QUEUE_LEVELS_MAX => (
                format!("the queue is on level {levels} of its tree, and at most {QUEUE_LEVELS_MAX} are taken"),
                "name a parent that is nearer to the top",
            ),
            _ => continue,
        };
        return Err(InputError::new(item.location.field("spec.parentQueue"), problem, help));
    }
    Ok(())
}

/// What an API server refuses to change in place.
fn check_update(before: &Item, after: &Item) -> Result<(), InputError> {
    let fixed = match after.id.kind {
        Kind::Pod => "/spec",
        Kind::Job => "/spec/template",
        Kind::JobSet => "/spec/replicatedJobs",
        _ => return Ok(()),
    };
    if before.value.pointer(fixed) == after.value.pointer(fixed) {
        return Ok(());
    }
    let field = fixed.trim_start_matches('/').replace('/', ".");
    let problem = format!("{field} of a {} cannot be changed once it exists", after.id.kind.name());
    Err(InputError::new(
        after.location.field(field),
        problem,
        "delete it in a step before, or give the new one another name",
    ))
}

fn check_running(scenario: &Scenario, present: &BTreeMap<&Id, &Item>) -> Result<(), InputError> {
    for running in &scenario.running {
        let node = Id::cluster(Kind::Node, &running.node);
        if !present.contains_key(&node) {
            return Err(absent(&node, present, &running.location));
        }
    }
    Ok(())
}
