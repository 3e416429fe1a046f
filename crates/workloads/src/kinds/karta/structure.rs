//! The components of a workload as a Karta describes them: how they nest, how large they are, whose a pod is.

use serde_json::Value;

use crate::error::GroupError;
use crate::jq::Program;
use crate::object::{FieldRef, Object};

pub(super) struct Structure<'a> {
    /// Group, version and kind the Karta describes.
    pub(super) root_kind: (&'a str, &'a str, &'a str),
    /// The root first; every other one has a parent among them.
    components: Vec<Component<'a>>,
}

/// Sizes are added up by recursion; no kind has nearly as many components.
const COMPONENTS_MAX: usize = 256;

pub(super) struct Component<'a> {
    pub(super) name: &'a str,
    parent: Option<&'a str>,
    /// Its pods are described by the workload, not only those of its children.
    has_pods: bool,
    replicas: Option<FieldRef<'a>>,
    replicas_min: Option<FieldRef<'a>>,
    instance_ids: Option<FieldRef<'a>>,
    selector: Option<Selector<'a>>,
    pod_instance: Option<FieldRef<'a>>,
}

struct Selector<'a> {
    path: FieldRef<'a>,
    /// `None` is content with anything but null.
    value: Option<&'a str>,
}

impl Component<'_> {
    pub(super) fn has_instances(&self) -> bool {
        self.instance_ids.is_some()
    }

    fn has_scale(&self) -> bool {
        self.replicas.is_some() || self.replicas_min.is_some()
    }
}

impl<'a> Structure<'a> {
    /// Reads and checks: names are unique, parents exist, expressions can be parsed.
    pub(super) fn read(karta: Object<'a>) -> Result<Self, GroupError> {
        let definition = karta.root().field_required("spec.structureDefinition")?;
        let root = definition.field_required("rootComponent")?;
        let text = |field: &str| Ok::<_, GroupError>(root.text(&format!("kind.{field}"))?.unwrap_or_default());
        let root_kind = (text("group")?, text("version")?, text("kind")?);
        let mut components = vec![Component { parent: None, ..component(&root)? }];
        let children = definition.list("childComponents")?;
        if children.len() > COMPONENTS_MAX {
            return Err(definition.malformed(format!("made of at most {COMPONENTS_MAX} components")));
        }
        for child in &children {
            let mut read = component(child)?;
            if components.iter().any(|known| known.name == read.name) {
                return Err(child.malformed(format!("named other than {}, which is taken", read.name)));
            }
            read.parent = Some(read.parent.unwrap_or(components[0].name));
            components.push(read);
        }
        let structure = Self { root_kind, components };
        for (component, part) in structure.components.iter().skip(1).zip(&children) {
            let reaches_root = structure.upwards(component).last().is_some_and(|top| top.parent.is_none());
            if !reaches_root {
                return Err(part.malformed("below the root component"));
            }
        }
        Ok(structure)
    }

    pub(super) fn root(&self) -> &Component<'a> {
        &self.components[0]
    }

    pub(super) fn component(&self, name: &str) -> Option<&Component<'a>> {
        self.components.iter().find(|component| component.name == name)
    }

    /// The component, its parent, and so on. Ends even where owners go round in a circle.
    pub(super) fn upwards<'s>(&'s self, from: &'s Component<'a>) -> impl Iterator<Item = &'s Component<'a>> {
        let parent = |component: &&'s Component<'a>| component.parent.and_then(|name| self.component(name));
        std::iter::successors(Some(from), parent).take(self.components.len())
    }

    fn children<'s>(&'s self, of: &'s Component<'a>) -> impl Iterator<Item = &'s Component<'a>> {
        self.components.iter().filter(|component| component.parent == Some(of.name))
    }

    /// How many pods the component needs, with everything below it.
    pub(super) fn scale(&self, of: &Component<'a>, object: Object<'_>) -> Result<i32, GroupError> {
        if !self.components.iter().any(Component::has_scale) {
            return self.pod_components(of, object);
        }
        let own = sizes(of, object)?.into_iter().fold(0, i32::saturating_add);
        Ok(combined(own, self.scale_below(of, object)?))
    }

    /// The same for the one instance the pod belongs to.
    pub(super) fn scale_of_instance(
        &self,
        of: &Component<'a>,
        pod: Object<'_>,
        object: Object<'_>,
    ) -> Result<i32, GroupError> {
        let (Some(ids), Some(path)) = (&of.instance_ids, &of.pod_instance) else { return self.scale(of, object) };
        let mine = run(path, pod)?;
        let ids = run(ids, object)?;
        let at = ids.iter().position(|id| mine.first() == Some(id));
        let at = at.ok_or_else(|| path.malformed("a path to the instance of the pod"))?;
        let own = sizes(of, object)?.get(at).copied().unwrap_or(0);
        Ok(combined(own, self.scale_below(of, object)?))
    }

    fn scale_below(&self, of: &Component<'a>, object: Object<'_>) -> Result<i32, GroupError> {
        self.children(of).try_fold(0_i32, |sum, child| Ok(sum.saturating_add(self.scale(child, object)?)))
    }

    /// Without any sizes, every component with pods counts once, or once per instance.
    fn pod_components(&self, of: &Component<'a>, object: Object<'_>) -> Result<i32, GroupError> {
        let own = match (&of.instance_ids, of.has_pods) {
            (_, false) => 0,
            (None, true) => 1,
            (Some(ids), true) => i32::try_from(run(ids, object)?.len()).unwrap_or(i32::MAX),
        };
        self.children(of).try_fold(own, |sum, child| Ok(sum.saturating_add(self.pod_components(child, object)?)))
    }

    /// Does the pod belong to the component or to one below it?
    pub(super) fn holds(&self, of: &Component<'a>, pod: Object<'_>, object: Object<'_>) -> Result<bool, GroupError> {
        for component in &self.components {
            let below = self.upwards(component).any(|above| above.name == of.name);
            if below && selects(component, pod, object)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The only component with pods, or the first that selects the pod.
    pub(super) fn component_of(&self, pod: Object<'_>, object: Object<'_>) -> Result<&Component<'a>, GroupError> {
        let with_pods: Vec<_> = self.components.iter().filter(|component| component.has_pods).collect();
        if let [only] = with_pods[..] {
            return Ok(only);
        }
        for component in with_pods {
            if selects(component, pod, object)? {
                return Ok(component);
            }
        }
        Err(pod.malformed("metadata", "that of a component of its workload", pod.name()))
    }
}

fn component<'a>(part: &FieldRef<'a>) -> Result<Component<'a>, GroupError> {
    let path = |field: &str| expression(part, field);
    let selector = path("podSelector.componentTypeSelector.keyPath")?;
    let value = part.text("podSelector.componentTypeSelector.value")?.filter(|value| !value.is_empty());
    let pods = ["podTemplateSpecPath", "podSpecPath", "fragmentedPodSpecDefinition"];
    let definition = part.field("specDefinition")?;
    Ok(Component {
        name: part.text_required("name")?,
        parent: part.text("ownerRef")?.filter(|name| !name.is_empty()),
        has_pods: definition.is_some_and(|definition| pods.iter().any(|field| !definition.value[field].is_null())),
        replicas: path("scaleDefinition.replicasPath")?,
        replicas_min: path("scaleDefinition.minReplicasPath")?,
        instance_ids: path("instanceIdPath")?,
        selector: selector.map(|path| Selector { path, value }),
        pod_instance: path("podSelector.componentInstanceSelector.idPath")?,
    })
}

/// An expression that can be parsed; empty counts as absent.
fn expression<'a>(part: &FieldRef<'a>, field: &str) -> Result<Option<FieldRef<'a>>, GroupError> {
    let Some(found) = part.field(field)? else { return Ok(None) };
    let text = found.as_text()?;
    if text.is_empty() {
        return Ok(None);
    }
    Program::parse(text).map_err(|error| found.jq_fault(&error))?;
    Ok(Some(found))
}

/// The size of each instance: its minimum if it has one, else its replicas.
fn sizes(component: &Component<'_>, object: Object<'_>) -> Result<Vec<i32>, GroupError> {
    let counts =
        |path: &Option<FieldRef<'_>>| path.as_ref().map_or_else(|| Ok(Vec::new()), |path| integers(path, object));
    let (replicas, minimums) = (counts(&component.replicas)?, counts(&component.replicas_min)?);
    let at = |list: &[i32], i: usize| list.get(i).copied().filter(|count| *count > 0);
    let size = |i| at(&minimums, i).or_else(|| at(&replicas, i)).unwrap_or(0);
    Ok((0..replicas.len().max(minimums.len())).map(size).collect())
}

/// What is not there counts as 0, that is as not defined.
fn integers(path: &FieldRef<'_>, object: Object<'_>) -> Result<Vec<i32>, GroupError> {
    let count = |value: &Value| match value {
        Value::Null => Some(0),
        other => other.as_i64().and_then(|count| i32::try_from(count).ok()),
    };
    let counts: Option<Vec<i32>> = run(path, object)?.iter().map(count).collect();
    counts.ok_or_else(|| path.malformed("a path to integers"))
}

/// Own pods for each child, where both are defined.
fn combined(own: i32, below: i32) -> i32 {
    match (own, below) {
        (0, only) | (only, 0) => only,
        (own, below) => own.saturating_mul(below),
    }
}

fn selects(component: &Component<'_>, pod: Object<'_>, object: Object<'_>) -> Result<bool, GroupError> {
    if let Some(selector) = &component.selector {
        return yields(&selector.path, pod, |found| match selector.value {
            None => !found.is_null(),
            Some(wanted) => found == wanted,
        });
    }
    // Without a type the instance has to tell.
    match (&component.instance_ids, &component.pod_instance) {
        (Some(ids), Some(path)) => {
            let ids = run(ids, object)?;
            yields(path, pod, |found| ids.contains(found))
        }
        _ => Ok(false),
    }
}

/// At least one result, and all of them as wanted.
pub(super) fn yields(path: &FieldRef<'_>, of: Object<'_>, wanted: impl Fn(&Value) -> bool) -> Result<bool, GroupError> {
    let results = run(path, of)?;
    Ok(!results.is_empty() && results.iter().all(wanted))
}

/// Runs the expression that stands at `path` on an object.
pub(super) fn run(path: &FieldRef<'_>, on: Object<'_>) -> Result<Vec<Value>, GroupError> {
    let program = Program::parse(path.as_text()?).map_err(|error| path.jq_fault(&error))?;
    program.run(on.value).map_err(|error| path.jq_fault(&error))
}
