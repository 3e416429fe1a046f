//! What a log line names of a call.

use kai_api::BindRequest;
use kai_control::Key;
use kai_control::binder::BindEffect;
use kai_control::controller::ApiCall;
use kai_control::grouper::GroupEffect;
use kai_control::scheduler::Write;

use super::schedule::key_of;

/// The step that a call makes, the object that it writes, and the node that it is about, if any.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CallFields<'c> {
    pub(crate) step: &'static str,
    /// `namespace/name`
    pub(crate) object: String,
    pub(crate) node: Option<&'c str>,
}

impl<'c> CallFields<'c> {
    pub(crate) fn of(call: &'c ApiCall) -> Self {
        let fields = |step, object: String| Self { step, object, node: None };
        match call {
            ApiCall::Get(object) => fields("get", object.to_string()),
            ApiCall::Schedule(write) => Self::of_write(write),
            ApiCall::Bind(effect) => Self::of_bind(effect),
            ApiCall::Group(GroupEffect::CreatePodGroup(group)) => fields("create pod group", name(&group.metadata)),
            ApiCall::Group(GroupEffect::ReplacePodGroup(group)) => fields("replace pod group", name(&group.metadata)),
            ApiCall::Group(GroupEffect::LinkPod { pod, .. }) => fields("link pod", pod.to_string()),
            ApiCall::PatchStatus { key, .. } => fields("patch status", key.to_string()),
            ApiCall::CreateScalingPod(pod) => fields("create scaling pod", Key::of(pod).to_string()),
            ApiCall::DeleteScalingPod(pod) => fields("delete scaling pod", pod.to_string()),
        }
    }

    fn of_write(write: &'c Write) -> Self {
        let about = |step, object: &Key| Self { step, object: object.to_string(), node: None };
        let request = |step, request: &'c BindRequest| Self {
            node: Some(request.spec.selected_node.as_str()).filter(|node| !node.is_empty()),
            ..about(step, &key_of(request))
        };
        match write {
            Write::CreateBindRequest(bind) => request("create bind request", bind),
            Write::CreateBindBatch { batch, .. } => about("create bind requests", &key_of(batch)),
            Write::DeleteBindRequest(key) => about("delete bind request", key),
            Write::LabelPod { pod, .. } => about("label pod", pod),
            Write::Evict { pod, .. } => about("evict", pod),
            Write::Nominate { pod, node } => Self { node: node.as_deref(), ..about("nominate", pod) },
            Write::PatchGroupTimestamps { group, .. } => about("patch timestamps", group),
            Write::SetGroupConditions { group, .. } => about("set conditions", group),
            Write::SetUnschedulable { pod, .. } => about("set unschedulable", pod),
            Write::Emit(_) => Self { step: "emit event", object: String::new(), node: None },
        }
    }

    fn of_bind(effect: &'c BindEffect) -> Self {
        let about = |step, object: &Key| Self { step, object: object.to_string(), node: None };
        match effect {
            BindEffect::CreatePod(pod) => about("create reservation pod", &Key::of(pod)),
            BindEffect::DeletePod { pod, .. } => about("delete reservation pod", pod),
            BindEffect::LabelPod { pod, node, .. } => Self { node: Some(node), ..about("label GPU groups", pod) },
            BindEffect::WriteConfigMap(map) => about("write config map", &Key::of(map)),
            BindEffect::SetSelectedNode { claim, node } => {
                Self { node: Some(node), ..about("select node of volume", claim) }
            }
            BindEffect::PrebindVolume { claim, .. } => about("prebind volume", claim),
            BindEffect::AllocateClaim { claim, .. } => about("allocate claim", claim),
            BindEffect::Bind { pod, node, .. } => Self { node: Some(node), ..about("bind", pod) },
            BindEffect::SetPhase { request, .. } => about("set phase", request),
            BindEffect::DeleteRequest(request) => about("delete bind request", request),
            BindEffect::ReportResult { pod, .. } => about("report result", pod),
        }
    }
}

fn name(metadata: &kube::api::ObjectMeta) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Key::new(text(&metadata.namespace), text(&metadata.name)).to_string()
}
