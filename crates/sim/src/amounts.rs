//! What pods ask for and hold, in numbers and in words.

use kai_control::objects::{GpuSharing, Node, Phase, Pod, Request};
use kai_control::{Key, World};
use kai_engine::units::{GPU, ResourceQuantities, compat};

/// Whether the pod holds resources of its node: it has one and is not over.
pub(crate) fn holds_node(pod: &Pod) -> bool {
    pod.node.is_some() && matches!(pod.phase, Phase::Pending | Phase::Running)
}

/// Whether the pod counts for its queue and its gang: it holds resources and is not being deleted.
pub(crate) fn is_allocated(pod: &Pod) -> bool {
    holds_node(pod) && pod.deletion.is_none()
}

/// MiB of each GPU of a node.
pub(crate) fn device_memory(node: &Node) -> i64 {
    node.device_memory().unwrap_or(compat::DEVICE_MEMORY_DEFAULT)
}

/// Millionths of a GPU that the pod holds on the node, as its queue is charged.
pub(crate) fn gpu_on(request: &Request, node: Option<&Node>) -> i64 {
    let migs: i64 = request.resources.migs().map(|(name, count)| mig_slices(name) * count * GPU).sum();
    match request.sharing {
        Some(GpuSharing::Fraction { devices, portion }) => compat::share_of_gpu(portion, devices),
        Some(GpuSharing::Memory { devices, mib }) => {
            node.map_or(0, |node| compat::memory_to_share(mib, device_memory(node)) * i64::from(devices))
        }
        None => request.resources.gpus * GPU + migs,
    }
}

/// Slices of a MIG profile such as `nvidia.com/mig-3g.20gb`. No GPU has more than a few.
fn mig_slices(name: &str) -> i64 {
    let digits = name.trim_start_matches("nvidia.com/mig-").split('g').next().unwrap_or_default();
    digits.parse().ok().filter(|slices| (0..=64).contains(slices)).unwrap_or(0)
}

/// CPU, memory and GPUs that the pod costs its queue on its node.
pub(crate) fn charged(pod: &Pod, world: &World) -> ResourceQuantities {
    let node = pod.node.as_ref().and_then(|name| world.nodes.get(name));
    charged_on(&pod.request, node) + ResourceQuantities::new(0, 0, claimed_gpus(pod, world))
}

/// Millionths of GPUs of the resource claims that the pod pays for: those of which it is the first to hold them.
pub(crate) fn claimed_gpus(pod: &Pod, world: &World) -> i64 {
    let names = |other: &Pod, name: &str| other.claims.iter().any(|claim| claim.claim.as_deref() == Some(name));
    let mut sum = 0;
    for name in pod.claims.iter().filter_map(|claim| claim.claim.as_deref()) {
        let mut holders = world
            .pods
            .values()
            .filter(|other| other.key.namespace == pod.key.namespace && is_allocated(other) && names(other, name));
        if holders.next().is_none_or(|first| first.key == pod.key) {
            let claim = world.resource_claims.get(&Key::new(&*pod.key.namespace, name));
            sum += claim.map_or(0, |claim| i64::from(claim.spec.gpus().1)) * GPU;
        }
    }
    sum
}

/// CPU, memory and GPUs that a request costs its queue on a node.
pub(crate) fn charged_on(request: &Request, node: Option<&Node>) -> ResourceQuantities {
    ResourceQuantities::new(request.resources.cpu_milli, request.resources.memory_bytes, gpu_on(request, node))
}

/// `4 GPUs`, `half a GPU`'s plain cousin `0.5 GPU`, `8192 MiB of GPU memory`, `2 CPUs`.
pub(crate) fn describe_request(request: &Request) -> String {
    let each = |devices: u32| if devices == 1 { String::new() } else { format!("{devices} × ") };
    match request.sharing {
        Some(GpuSharing::Fraction { devices, portion }) => format!("{}{} GPU", each(devices), number(portion)),
        Some(GpuSharing::Memory { devices, mib }) => format!("{}{mib} MiB of GPU memory", each(devices)),
        None if request.resources.gpus > 0 => gpu_words(request.resources.gpus * GPU),
        None => match request.resources.migs().next() {
            Some((name, count)) => format!("{count} × {}", name.trim_start_matches("nvidia.com/")),
            None if request.resources.cpu_milli > 0 => {
                let cpu = request.resources.cpu_milli * (GPU / 1000);
                format!("{} CPU{}", number(cpu), if cpu == GPU { "" } else { "s" })
            }
            None => "no GPU".to_owned(),
        },
    }
}

/// `1 GPU`, `4 GPUs`, `0.5 GPU`.
pub(crate) fn gpu_words(micro: i64) -> String {
    format!("{} GPU{}", number(micro), if micro <= GPU { "" } else { "s" })
}

/// Millionths as a short decimal number.
pub(crate) fn number(micro: i64) -> String {
    let (sign, micro) = if micro < 0 { ("-", -micro) } else { ("", micro) };
    let (whole, rest) = (micro / GPU, micro % GPU);
    if rest == 0 {
        return format!("{sign}{whole}");
    }
    format!("{sign}{whole}.{}", format!("{rest:06}").trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(4 * GPU), "4");
        assert_eq!(number(500_000), "0.5");
        assert_eq!(number(-1_250_000), "-1.25");
    }

    #[test]
    fn mig_profiles_are_worth_their_slices() {
        assert_eq!(mig_slices("nvidia.com/mig-3g.20gb"), 3);
        assert_eq!(mig_slices("nvidia.com/mig-1g.5gb"), 1);
    }
}
