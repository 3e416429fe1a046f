//! Resource claims of a case: its objects with the status of the current round, lowered by the product's own code.

use std::collections::BTreeMap;

use kai_control::devices::{ClaimRef, ClaimSource, ClaimTranslator, Consumed, Consumer, Inventory, NodeView};
use kai_control::key::Key;
use kai_control::objects::{DeviceClass, ResourceClaim, ResourceSlice};
use kai_engine::ids::NodeId;
use kai_engine::snapshot::{Claims, Grant};
use serde_json::{Value, json};

use super::case::{Case, Node, Status};
use super::state::State;
use crate::verdict::Fault;

/// Status of every claim, by name.
pub(super) type Statuses = BTreeMap<String, Value>;

/// Objects of a case, with claims as they stand.
pub(super) struct Objects {
    classes: Vec<DeviceClass>,
    slices: Vec<ResourceSlice>,
    claims: BTreeMap<Key, ResourceClaim>,
}

/// Claims as the engine has them.
pub(super) struct Lowered {
    pub(super) columns: Claims,
    /// By task.
    consumed: BTreeMap<String, Consumed>,
    /// GPUs of each node that slices bring.
    pub(super) gpus: Vec<u32>,
    /// By number.
    claims: Vec<Key>,
}

fn list<'a>(case: &'a Case, kind: &str) -> impl Iterator<Item = &'a Value> {
    let list = case.cluster.dra.as_ref().and_then(|dra| dra.get(kind)?.as_array());
    list.into_iter().flatten()
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Claims as the case begins.
pub(super) fn statuses(case: &Case) -> Statuses {
    list(case, "resource_claims").map(|claim| (name(claim), claim["status"].clone())).collect()
}

impl Objects {
    pub(super) fn of(case: &Case, statuses: &Statuses) -> Result<Self, Fault> {
        let wrong = |malformed: kai_control::Malformed| Fault(malformed.to_string());
        let mut claims = BTreeMap::new();
        for claim in list(case, "resource_claims") {
            let mut claim = claim.clone();
            claim["status"] = statuses.get(&name(&claim)).cloned().unwrap_or_default();
            let claim = ResourceClaim::parse(&claim).map_err(wrong)?;
            claims.insert(claim.key.clone(), claim);
        }
        let classes = list(case, "device_classes").map(DeviceClass::parse).collect::<Result<_, _>>().map_err(wrong)?;
        let slices =
            list(case, "resource_slices").map(ResourceSlice::parse).collect::<Result<_, _>>().map_err(wrong)?;
        Ok(Self { classes, slices, claims })
    }

    fn inventory<'a>(&'a self, nodes: &[&'a Node]) -> Inventory<'a> {
        let views = nodes.iter().map(|node| NodeView { name: &node.name, labels: &node.labels }).collect();
        Inventory::new(&self.classes, &self.slices, views)
    }

    pub(super) fn lower(&self, case: &Case, state: &State, nodes: &[&Node]) -> Lowered {
        let mut inventory = self.inventory(nodes);
        let mut consumers = Vec::new();
        let mut uids = Vec::new();
        for (job, task) in case.tasks().filter(|(_, task)| !task.resource_claims.is_empty()) {
            let placement = state.get(&task.uid);
            let refs = task.resource_claims.iter().map(|claim| ClaimRef {
                name: &claim.name,
                claim: Some(&claim.claim_name),
                own: claim.template.is_some(),
            });
            uids.push(task.uid.clone());
            consumers.push(Consumer {
                namespace: &job.namespace,
                uid: &task.uid,
                queue: &job.queue,
                refs: refs.collect(),
                placed: placement.status.is_used() && placement.node.is_some(),
                decided: &[],
                extended: None,
            });
        }
        let mut book = ClaimTranslator::new(&mut inventory, &self.claims, &case.config.queue_label_key);
        let consumed = book.add(consumers);
        let key = |written: &ClaimSource<'_>| match written {
            ClaimSource::Claim(claim) => claim.key.clone(),
            ClaimSource::Extended(_) => unreachable!("cases do not ask for extended resources"),
        };
        let claims = book.sources.iter().map(key).collect();
        Lowered {
            columns: inventory.columns(),
            consumed: uids.into_iter().zip(consumed).collect(),
            gpus: (0..nodes.len()).map(|node| inventory.gpus(NodeId::at(node))).collect(),
            claims,
        }
    }
}

impl Lowered {
    /// What claims mean for a task, if it has any.
    pub(super) fn of(&self, uid: &str) -> Option<&Consumed> {
        self.consumed.get(uid)
    }
}

/// What the scheduler made of claims in a round: devices for those who were placed, none for those whom all left.
pub(super) fn after(
    case: &Case,
    objects: &Objects,
    lowered: &Lowered,
    nodes: &[&Node],
    placed: &[(NodeId, &[Grant])],
    after: &mut State,
) {
    let inventory = objects.inventory(nodes);
    for (node, grants) in placed {
        for grant in *grants {
            let key = &lowered.claims[grant.claim.index()];
            let allocation = inventory.allocation(&objects.claims[key].spec, grant, *node);
            let status = after.claims.entry(key.name.clone()).or_default();
            if devices(&status["allocation"]) != devices(&allocation) {
                *status = json!({"allocation": allocation, "reservedFor": status["reservedFor"]});
            }
        }
    }
    for (claim, status) in &mut after.claims {
        let mut reserved = status["reservedFor"].as_array().cloned().unwrap_or_default();
        for (_, task) in
            case.tasks().filter(|(_, task)| task.resource_claims.iter().any(|own| own.claim_name == *claim))
        {
            let placement = &after.placements[&task.uid];
            reserved.retain(|entry| entry["uid"] != json!(task.uid));
            if placement.status.is_allocated() || placement.status == Status::Pipelined {
                reserved.push(json!({"resource": "pods", "name": task.uid, "uid": task.uid}));
            }
        }
        *status = if reserved.is_empty() {
            json!({})
        } else {
            json!({"allocation": status["allocation"], "reservedFor": reserved})
        };
    }
}

/// Names of the devices of an allocation.
fn devices(allocation: &Value) -> Vec<String> {
    let results = allocation["devices"]["results"].as_array().into_iter().flatten();
    let mut names: Vec<String> =
        results.map(|result| format!("{}/{}/{}", result["driver"], result["pool"], result["device"])).collect();
    names.sort();
    names
}
