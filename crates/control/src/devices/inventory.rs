//! What devices there are, from where they can be used, and which of them selectors match.

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;
use kai_engine::ids::NodeId;
use kai_engine::snapshot::{
    AllocationMode, ClaimAsk, ClaimDevice, ClaimRequest, Claims, Grant, MatchAttribute, SelectorMatches, SubRequest,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::allocation::ExtendedDevices;
use super::cel::{Selector, Selectors, Subject};
use super::faults::{ClaimFault, Origin};
use crate::objects::{
    Attribute, ClaimSpec, Device, DeviceAlternative, DeviceClass, DeviceRequest, NodeTerm, Pod, ResourceSlice,
    SliceNodes, names_gpus,
};

/// A node as slices and allocations select it.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'w> {
    pub name: &'w str,
    pub labels: &'w BTreeMap<String, String>,
}

/// A selector that fails on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SelectorError {
    pub origin: Origin,
    pub expression: String,
    /// `driver/pool/device`.
    pub device: String,
    pub problem: String,
}

/// A device with its names.
struct DeviceRow<'w> {
    driver: &'w str,
    pool: &'w str,
    device: &'w Device,
    nodes: &'w SliceNodes,
}

/// The result of an expression for each device.
type Verdicts = Vec<Result<bool, String>>;

/// Devices and what is known of them.
pub struct Inventory<'w> {
    nodes: Vec<NodeView<'w>>,
    classes: BTreeMap<&'w str, &'w DeviceClass>,
    rows: Vec<DeviceRow<'w>>,
    by_name: BTreeMap<(&'w str, &'w str, &'w str), u32>,
    /// GPUs of each node that slices bring.
    gpus: Vec<u32>,
    cel: Option<(Selectors, Vec<Subject<'static>>)>,
    verdicts: BTreeMap<String, Result<Verdicts, String>>,
    selections: BTreeMap<Vec<String>, u32>,
    node_sets: BTreeMap<FixedBitSet, u32>,
    attributes: BTreeMap<String, u32>,
    errors: BTreeMap<u32, SelectorError>,
    pub(super) claims: Claims,
}

impl<'w> Inventory<'w> {
    /// Nodes come in the order of their ids.
    pub fn new(
        classes: impl IntoIterator<Item = &'w DeviceClass>,
        slices: impl IntoIterator<Item = &'w ResourceSlice>,
        nodes: Vec<NodeView<'w>>,
    ) -> Self {
        let mut inventory = Self {
            classes: classes.into_iter().map(|class| (class.name.as_str(), class)).collect(),
            rows: Vec::new(),
            by_name: BTreeMap::new(),
            gpus: vec![0; nodes.len()],
            nodes,
            cel: None,
            verdicts: BTreeMap::new(),
            selections: BTreeMap::new(),
            node_sets: BTreeMap::new(),
            attributes: BTreeMap::new(),
            errors: BTreeMap::new(),
            claims: Claims::default(),
        };
        inventory.claims.incomplete_pools = FixedBitSet::with_capacity(inventory.nodes.len());
        for pool in pools(slices) {
            inventory.add_pool(&pool);
        }
        inventory
    }

    fn add_pool(&mut self, slices: &[&'w ResourceSlice]) {
        let mut seen = BTreeSet::new();
        let ambiguous = slices.iter().flat_map(|slice| &slice.devices).any(|device| !seen.insert(device.name.as_str()));
        // A pool is complete from where all of its slices can be seen.
        let mut visible = vec![0_i64; self.nodes.len()];
        for slice in slices {
            let set = self.visible(&slice.nodes);
            let id = self.node_set(set.clone());
            set.ones().for_each(|node| visible[node] += 1);
            if ambiguous || slice.nodes == SliceNodes::PerDevice {
                continue;
            }
            let gpu_of = match &slice.nodes {
                SliceNodes::Node(_) if names_gpus(&slice.driver) => set.ones().next().map(NodeId::at),
                _ => None,
            };
            for device in &slice.devices {
                if let Some(node) = gpu_of {
                    self.gpus[node.index()] += 1;
                }
                if !device.usable || set.is_clear() {
                    continue;
                }
                let index = u32::try_from(self.rows.len()).expect("devices are few");
                self.by_name.insert((&slice.driver, &slice.pool, &device.name), index);
                self.rows.push(DeviceRow { driver: &slice.driver, pool: &slice.pool, device, nodes: &slice.nodes });
                self.claims.devices.push(ClaimDevice { nodes: id, gpu_of });
            }
        }
        for (node, count) in visible.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            if ambiguous || count != slices[0].slices {
                self.claims.incomplete_pools.insert(node);
            }
        }
    }

    fn visible(&self, nodes: &SliceNodes) -> FixedBitSet {
        let terms;
        let holds: &dyn Fn(&NodeView<'_>) -> bool = match nodes {
            SliceNodes::Node(name) => &move |node| node.name == name,
            SliceNodes::All => &|_| true,
            SliceNodes::Selected(selected, _) => {
                terms = selected;
                &|node| terms.iter().any(|term| term.holds(node.name, node.labels))
            }
            SliceNodes::PerDevice => &|_| false,
        };
        let mut set = FixedBitSet::with_capacity(self.nodes.len());
        set.extend(self.nodes.iter().enumerate().filter(|(_, node)| holds(node)).map(|(index, _)| index));
        set
    }

    /// Nodes on which one of the terms holds.
    pub(super) fn nodes_with(&mut self, terms: &[NodeTerm]) -> u32 {
        let mut set = FixedBitSet::with_capacity(self.nodes.len());
        let holds = |node: &NodeView<'_>| terms.iter().any(|term| term.holds(node.name, node.labels));
        set.extend(self.nodes.iter().enumerate().filter(|(_, node)| holds(node)).map(|(index, _)| index));
        self.node_set(set)
    }

    pub(super) fn node_set(&mut self, set: FixedBitSet) -> u32 {
        let next = u32::try_from(self.node_sets.len()).expect("sets are few");
        *self.node_sets.entry(set.clone()).or_insert_with(|| {
            self.claims.node_sets.push(set);
            next
        })
    }

    /// How many nodes there are.
    pub(super) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// GPUs that slices bring to a node.
    pub fn gpus(&self, node: NodeId) -> u32 {
        self.gpus[node.index()]
    }

    /// The class that stands for an extended resource.
    pub(super) fn class_for(&self, resource: &str) -> Option<&'w DeviceClass> {
        if let Some(name) = resource.strip_prefix(CLASS_PREFIX) {
            return self.classes.get(name).copied();
        }
        self.classes.values().copied().find(|class| class.extended_resource.as_deref() == Some(resource))
    }

    /// Whether any class stands for an extended resource, and so for those that pods name after a class.
    pub fn backs_anything(&self) -> bool {
        !self.rows.is_empty() && !self.classes.is_empty()
    }

    /// Whether devices can provide an extended resource.
    pub fn backs(&self, resource: &str) -> bool {
        self.backs_anything() && self.class_for(resource).is_some()
    }

    /// The number of a device.
    pub(super) fn device(&self, driver: &str, pool: &str, device: &str) -> Option<u32> {
        self.by_name.get(&(driver, pool, device)).copied()
    }

    /// The selector error behind a refusal.
    pub fn error(&self, selection: u32) -> Option<&SelectorError> {
        self.errors.get(&selection)
    }

    /// What a claim asks for, in numbers.
    pub(super) fn ask(&mut self, claim: &str, spec: &ClaimSpec) -> Result<ClaimAsk, ClaimFault> {
        let mut requests = Vec::new();
        for request in &spec.requests {
            let mut alternatives = Vec::new();
            for alternative in &request.alternatives {
                alternatives.push(self.alternative(claim, &request.name, alternative)?);
            }
            requests.push(ClaimRequest { alternatives, nodes: None });
        }
        let mut match_attributes = Vec::new();
        for constraint in &spec.constraints {
            let unknown =
                |request: &str| ClaimFault::UnknownConstraint { claim: claim.to_owned(), request: request.to_owned() };
            let Some(attribute) = &constraint.attribute else { return Err(unknown("")) };
            let named = |name: &String| position(spec, name).ok_or_else(|| unknown(name));
            let requests = constraint.requests.iter().map(named).collect::<Result<_, _>>()?;
            match_attributes.push(MatchAttribute { attribute: self.attribute(attribute), requests });
        }
        Ok(ClaimAsk { requests, match_attributes })
    }

    fn alternative(
        &mut self,
        claim: &str,
        request: &str,
        alternative: &DeviceAlternative,
    ) -> Result<SubRequest, ClaimFault> {
        let Some(class) = self.classes.get(alternative.class.as_str()).copied() else {
            return Err(ClaimFault::NoClass {
                claim: claim.to_owned(),
                request: request.to_owned(),
                class: alternative.class.clone(),
            });
        };
        let mode = alternative.count.map_or(AllocationMode::All, AllocationMode::ExactCount);
        let selection = self.selection(claim, request, class, &alternative.selectors)?;
        Ok(SubRequest { selection, mode, admin: alternative.admin })
    }

    /// Devices that all selectors of a class and of a request match.
    fn selection(
        &mut self,
        claim: &str,
        request: &str,
        class: &DeviceClass,
        selectors: &[String],
    ) -> Result<u32, ClaimFault> {
        let expressions: Vec<String> = class.selectors.iter().chain(selectors).cloned().collect();
        if let Some(known) = self.selections.get(&expressions) {
            return Ok(*known);
        }
        let id = u32::try_from(self.claims.selector_matches.len()).expect("distinct selectors are few");
        let origin = |index: usize| {
            if index < class.selectors.len() {
                Origin::Class(class.name.clone())
            } else {
                Origin::Request(request.to_owned())
            }
        };
        let count = self.rows.len();
        let mut matching = FixedBitSet::with_capacity(count);
        matching.insert_range(..);
        let mut failing = FixedBitSet::with_capacity(count);
        let mut error = None;
        for (index, expression) in expressions.iter().enumerate() {
            let bad = |problem: &String| ClaimFault::BadSelector {
                claim: claim.to_owned(),
                origin: origin(index),
                expression: expression.clone(),
                problem: problem.clone(),
            };
            self.validate_selector(expression);
            let verdicts = self.verdicts[expression].as_ref().map_err(bad)?;
            for (device, verdict) in
                verdicts.iter().enumerate().filter(|(device, _)| matching.contains(*device)).collect::<Vec<_>>()
            {
                match verdict {
                    Ok(true) => {}
                    Ok(false) => matching.set(device, false),
                    Err(problem) => {
                        matching.set(device, false);
                        failing.insert(device);
                        let row = &self.rows[device];
                        error.get_or_insert_with(|| SelectorError {
                            origin: origin(index),
                            expression: expression.clone(),
                            device: format!("{}/{}/{}", row.driver, row.pool, row.device.name),
                            problem: problem.clone(),
                        });
                    }
                }
            }
        }
        self.claims.selector_matches.push(SelectorMatches { matching, failing });
        self.errors.extend(error.map(|error| (id, error)));
        self.selections.insert(expressions, id);
        Ok(id)
    }

    /// Evaluates an expression on every device, unless that was done before.
    fn validate_selector(&mut self, expression: &str) {
        if self.verdicts.contains_key(expression) {
            return;
        }
        let (selectors, subjects) = self.cel.get_or_insert_with(|| {
            let selectors = Selectors::new();
            let subjects = self.rows.iter().map(|row| selectors.subject(row.driver, row.device)).collect();
            (selectors, subjects)
        });
        let run = |selector: Selector| subjects.iter().map(|subject| selector.matches(subject)).collect();
        let verdicts = selectors.compile(expression).map(run);
        self.verdicts.insert(expression.to_owned(), verdicts);
    }

    /// The column of an attribute's values; equal values have equal numbers.
    fn attribute(&mut self, name: &str) -> u32 {
        if let Some(known) = self.attributes.get(name) {
            return *known;
        }
        let mut numbers: BTreeMap<&Attribute, u32> = BTreeMap::new();
        let column = self
            .rows
            .iter()
            .map(|row| {
                let value = lookup(row, name)?;
                let next = u32::try_from(numbers.len()).expect("values are fewer than devices");
                Some(*numbers.entry(value).or_insert(next))
            })
            .collect();
        let id = u32::try_from(self.claims.attributes.len()).expect("attributes are few");
        self.claims.attributes.push(column);
        self.attributes.insert(name.to_owned(), id);
        id
    }

    /// Devices that a claim was given, as the API writes them.
    pub fn allocation(&self, spec: &ClaimSpec, grant: &Grant, node: NodeId) -> Value {
        let results: Vec<Value> = grant
            .picks
            .iter()
            .map(|pick| {
                let row = &self.rows[pick.device as usize];
                let request = &spec.requests[pick.request as usize];
                let alternative = &request.alternatives[pick.alternative as usize];
                let name = match &alternative.name {
                    Some(alternative) => format!("{}/{alternative}", request.name),
                    None => request.name.clone(),
                };
                let mut result =
                    json!({"request": name, "driver": row.driver, "pool": row.pool, "device": row.device.name});
                if pick.admin {
                    result["adminAccess"] = json!(true);
                }
                result
            })
            .collect();
        let mut allocation = json!({"devices": {"results": results}});
        let config = self.config(spec, grant);
        if !config.is_empty() {
            allocation["devices"]["config"] = Value::Array(config);
        }
        if let Some(selector) = self.node_selector(grant, node) {
            allocation["nodeSelector"] = selector;
        }
        allocation
    }

    /// Devices for a pod's extended resources, with the claim that is to be made of them.
    pub fn extended(&self, spec: &ClaimSpec, grant: &Grant, node: NodeId, pod: &Pod) -> ExtendedDevices {
        let used: BTreeSet<u32> = grant.picks.iter().map(|pick| pick.request).collect();
        let rows = || spec.requests.iter().enumerate().filter(|(index, _)| used.contains(&(*index as u32)));
        let requests = rows().map(|(_, row)| {
            let alternative = &row.alternatives[0];
            let exactly = json!({
                "deviceClassName": alternative.class,
                "allocationMode": "ExactCount",
                "count": alternative.count,
            });
            json!({"name": row.name, "exactly": exactly})
        });
        let mapping = |row: &DeviceRequest| {
            // `container-<i>-request-<j>`: see `Extended::of`.
            let mut numbers = row.name.split('-').filter_map(|word| word.parse::<usize>().ok());
            let (container, position) = (numbers.next()?, numbers.next()?);
            let alone = &pod.request.resources;
            let asked = pod.request.containers.get(container).map_or(alone, |(resources, _)| resources);
            let resource = asked.devices().into_iter().nth(position)?.0.to_owned();
            Some((pod.containers.get(container).cloned().unwrap_or_default(), resource, row.name.clone()))
        };
        ExtendedDevices {
            allocation: self.allocation(spec, grant, node),
            requests: requests.collect(),
            mappings: rows().filter_map(|(_, row)| mapping(row)).collect(),
        }
    }

    /// Configuration of the classes in use, then of the claim, each with whom it concerns.
    fn config(&self, spec: &ClaimSpec, grant: &Grant) -> Vec<Value> {
        let mut config = Vec::new();
        let mut add = |source: &str, requests: Value, entry: &Value| {
            let mut entry = entry.clone();
            entry["source"] = json!(source);
            entry["requests"] = requests;
            config.push(entry);
        };
        let mut done = BTreeSet::new();
        for pick in grant.picks.iter().filter(|pick| done.insert((pick.request, pick.alternative))) {
            let request = &spec.requests[pick.request as usize];
            let alternative = &request.alternatives[pick.alternative as usize];
            let name = alternative
                .name
                .as_ref()
                .map_or_else(|| request.name.clone(), |name| format!("{}/{name}", request.name));
            for entry in self.classes.get(alternative.class.as_str()).into_iter().flat_map(|class| &class.config) {
                add("FromClass", json!([name]), entry);
            }
        }
        for entry in &spec.config {
            add("FromClaim", entry.get("requests").cloned().unwrap_or_else(|| json!([])), entry);
        }
        config
    }

    /// Nodes from which all devices can be used: the one node of a local device, or what the pools select.
    fn node_selector(&self, grant: &Grant, node: NodeId) -> Option<Value> {
        let mut requirements: (Vec<Value>, Vec<Value>) = Default::default();
        for pick in &grant.picks {
            match self.rows[pick.device as usize].nodes {
                SliceNodes::Node(_) => {
                    let name = self.nodes[node.index()].name;
                    let field = json!({"key": "metadata.name", "operator": "In", "values": [name]});
                    return Some(json!({"nodeSelectorTerms": [{"matchFields": [field]}]}));
                }
                SliceNodes::Selected(_, raw) => {
                    // The API allows one term.
                    let term = raw.pointer("/nodeSelectorTerms/0");
                    let lists = [("matchExpressions", &mut requirements.0), ("matchFields", &mut requirements.1)];
                    for (key, list) in lists {
                        for item in term.and_then(|term| term.get(key)?.as_array()).into_iter().flatten() {
                            if !list.contains(item) {
                                list.push(item.clone());
                            }
                        }
                    }
                }
                SliceNodes::All | SliceNodes::PerDevice => {}
            }
        }
        let mut term = json!({});
        for (key, list) in [("matchExpressions", requirements.0), ("matchFields", requirements.1)] {
            if !list.is_empty() {
                term[key] = Value::Array(list);
            }
        }
        (term != json!({})).then(|| json!({"nodeSelectorTerms": [term]}))
    }

    /// The columns for the engine.
    pub fn columns(&self) -> Claims {
        self.claims.clone()
    }
}

/// Names an extended resource after the class that provides it.
pub(super) const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// Slices by pool, those of the newest generation only, in order of names.
fn pools<'w>(slices: impl IntoIterator<Item = &'w ResourceSlice>) -> Vec<Vec<&'w ResourceSlice>> {
    let mut pools: BTreeMap<(&str, &str), Vec<&ResourceSlice>> = BTreeMap::new();
    for slice in slices {
        let pool = pools.entry((&slice.driver, &slice.pool)).or_default();
        match pool.first().map(|first| first.generation.cmp(&slice.generation)) {
            Some(std::cmp::Ordering::Greater) => {}
            Some(std::cmp::Ordering::Less) => *pool = vec![slice],
            Some(std::cmp::Ordering::Equal) | None => pool.push(slice),
        }
    }
    pools.into_values().collect()
}

/// A fully qualified attribute of a device; the driver's own domain may be left out.
fn lookup<'w>(row: &DeviceRow<'w>, name: &str) -> Option<&'w Attribute> {
    row.device.attributes.get(name).or_else(|| {
        let (domain, id) = name.split_once('/')?;
        (domain == row.driver).then(|| row.device.attributes.get(id))?
    })
}

/// Where a request, or one alternative of it, stands in a claim.
pub(super) fn position(spec: &ClaimSpec, name: &str) -> Option<(u32, Option<u32>)> {
    let (request, alternative) = name.split_once('/').map_or((name, None), |(name, rest)| (name, Some(rest)));
    let index = spec.requests.iter().position(|known| known.name == request)?;
    let alternative = match alternative {
        None => None,
        Some(wanted) => {
            let known = spec.requests[index].alternatives.iter();
            Some(known.into_iter().position(|known| known.name.as_deref() == Some(wanted))? as u32)
        }
    };
    Some((index as u32, alternative))
}
