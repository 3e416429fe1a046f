//! Many binds of a cycle become few objects.

use std::collections::BTreeMap;

use kai_api::BindRequest;
use kai_engine::units::Timestamp;

use super::Write;
use crate::bind_batch;
use crate::key::Key;
use crate::scheduler::settings::Settings;
use crate::world::World;

/// Batches bind requests per namespace. Below the threshold, one object each as in KAI.
pub(super) fn batched(writes: Vec<Write>, world: &World, settings: &Settings, now: Timestamp) -> Vec<Write> {
    let namespace = |write: &Write| match write {
        Write::CreateBindRequest(request) if can_batch(request, world) => request.metadata.namespace.clone(),
        _ => None,
    };
    let mut batching: BTreeMap<String, usize> = BTreeMap::new();
    for namespace in writes.iter().filter_map(namespace) {
        *batching.entry(namespace).or_default() += 1;
    }
    batching.retain(|_, binds| settings.batch_binds > 0 && *binds >= settings.batch_binds);
    if batching.is_empty() {
        return writes;
    }
    let mut alone = Vec::new();
    let mut together: BTreeMap<String, Vec<BindRequest>> = BTreeMap::new();
    for write in writes {
        match (namespace(&write).filter(|namespace| batching.contains_key(namespace)), write) {
            (Some(namespace), Write::CreateBindRequest(request)) => {
                together.entry(namespace).or_default().push(*request);
            }
            (_, write) => alone.push(write),
        }
    }
    let mut all = Vec::new();
    for requests in together.values().flat_map(|requests| requests.chunks(bind_batch::SIZE_MAX)) {
        let owner = requests.iter().flat_map(|request| &request.metadata.owner_references).flatten().next();
        let name = format!("batch-{}-{}", owner.map_or("", |pod| &pod.uid), now.0);
        let pods = requests.iter().filter_map(request_key).collect();
        all.push(Write::CreateBindBatch { batch: Box::new(bind_batch::pack(&name, requests)), pods });
    }
    all.extend(alone);
    all
}

/// Whether a request is likely to be carried out at once. One that fails tells more if it stands alone.
fn can_batch(request: &BindRequest, world: &World) -> bool {
    let pod = request_key(request).and_then(|key| world.pods.get(&key));
    bind_batch::is_node_only(request) && pod.is_some_and(|pod| !pod.bind_failed)
}

pub(super) fn request_key(request: &BindRequest) -> Option<Key> {
    Some(Key::new(request.metadata.namespace.as_ref()?, request.metadata.name.as_ref()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::test_cluster::{NOW, world};
    use crate::scheduler::{Usage, WritePlanner, cycle};

    const CLUSTER: &str = "node a gpu=8 gpu-memory=16000
        queue team quota=8
        job one queue=team gpu=1
        job two queue=team gpu=1
        job half queue=team fraction=0.5
        job three queue=team gpu=1";

    /// What is asked for: alone, or with how many others.
    fn asked(text: &str, settings: &Settings) -> Vec<String> {
        let world = world(text);
        let done = cycle(&world, settings, &Usage::default(), NOW);
        let writes = WritePlanner::default().plan(&world, &done, settings, NOW);
        let asked = writes.iter().filter_map(|write| match write {
            Write::CreateBindRequest(request) => request_key(request).map(|key| key.name),
            Write::CreateBindBatch { batch, pods } => {
                let entries = bind_batch::unpack(&serde_json::to_value(batch).unwrap_or_default());
                assert_eq!(entries.len(), pods.len());
                Some(pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>().join("+"))
            }
            _ => None,
        });
        asked.collect()
    }

    #[test]
    fn a_burst_is_one_object_without_those_that_take_steps() {
        let from = |batch_binds: usize| asked(CLUSTER, &Settings { batch_binds, ..Settings::default() });
        assert_eq!(from(3), ["one-0+two-0+three-0", "half-0"]);
        assert_eq!(from(4).len(), 4, "too few for a batch");
        assert_eq!(from(0).len(), 4, "switched off");
    }
}
