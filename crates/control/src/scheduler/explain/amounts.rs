//! Amounts as people read them: CPU in cores, memory in GB, GPUs plain, three decimals at most.

use kai_api::keys::resource;
use kai_engine::snapshot::{CPU, GPUS, MEMORY, PODS};
use kai_engine::units::{Ceiling, GPU, QueueResource};

use crate::objects::resources::{ScalarUnit, scalar_unit};
use crate::quantity::decimal;
use crate::scheduler::reasons::{Amount, Unit};

/// Bytes of a gigabyte, as vendors count.
const GB: i64 = 1_000_000_000;

/// `2 GPUs`, `1.5 CPU cores`, `16 GB of memory`.
pub(in crate::scheduler) fn amount(resource: QueueResource, value: i64) -> String {
    match resource {
        QueueResource::Cpu => counted(value, 1000, "CPU core", "CPU cores"),
        QueueResource::Memory => format!("{} GB of memory", decimal(value, GB)),
        QueueResource::Gpu => counted(value, GPU, "GPU", "GPUs"),
    }
}

/// The number alone, for sentences that name the resource already.
pub(in crate::scheduler) fn number(resource: QueueResource, value: i64) -> String {
    match resource {
        QueueResource::Cpu => decimal(value, 1000),
        QueueResource::Memory => format!("{} GB", decimal(value, GB)),
        QueueResource::Gpu => decimal(value, GPU),
    }
}

/// A bound, or the word for none.
pub(in crate::scheduler) fn bound(resource: QueueResource, ceiling: Ceiling) -> String {
    match ceiling {
        Ceiling::Unlimited => "Unlimited".to_owned(),
        Ceiling::At(value) => number(resource, value),
    }
}

/// What a queue resource is called.
pub(in crate::scheduler) fn called(resource: QueueResource) -> &'static str {
    match resource {
        QueueResource::Cpu => "CPU cores",
        QueueResource::Memory => "memory",
        QueueResource::Gpu => "GPUs",
    }
}

/// An amount of a resource of nodes: `value` instead of the amount's own.
pub(super) fn node_amount(amount: &Amount, value: i64) -> String {
    let name = &amount.resource;
    match amount.unit {
        Unit::MilliCores => self::amount(QueueResource::Cpu, value),
        Unit::MicroGpus => self::amount(QueueResource::Gpu, value),
        Unit::Bytes if name == "memory" => self::amount(QueueResource::Memory, value),
        Unit::Bytes => format!("{} GB of {name}", decimal(value, GB)),
        Unit::Milli => format!("{} {name}", decimal(value, 1000)),
        Unit::One if name == "pods" => counted(value, 1, "pod slot", "pod slots"),
        Unit::One => format!("{value} {name}"),
    }
}

/// What a resource of nodes is called.
pub(super) fn resource_name(amount: &Amount) -> &str {
    match amount.unit {
        Unit::MilliCores => "CPU",
        Unit::MicroGpus => "GPUs",
        _ => &amount.resource,
    }
}

/// An amount of a snapshot column as Kubernetes writes it: the resource and the quantity.
pub(in crate::scheduler) fn as_quantity(column: usize, names: &[&str], value: i64) -> (String, String) {
    let milli = |value: i64| if value % 1000 == 0 { (value / 1000).to_string() } else { format!("{value}m") };
    let (name, quantity) = match column {
        CPU => ("cpu", milli(value)),
        MEMORY => ("memory", value.to_string()),
        GPUS => (resource::NVIDIA_GPU, (value / GPU).to_string()),
        PODS => ("pods", value.to_string()),
        _ => match scalar_unit(names[column]) {
            Some(ScalarUnit::Milli) => (names[column], milli(value)),
            _ => (names[column], value.to_string()),
        },
    };
    (name.to_owned(), quantity)
}

fn counted(value: i64, parts: i64, one: &str, many: &str) -> String {
    let number = decimal(value, parts);
    let noun = if number == "1" { one } else { many };
    format!("{number} {noun}")
}

/// `1 node`, `3 nodes`.
pub(in crate::scheduler) fn count(number: u32, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_like_speech() {
        assert_eq!(amount(QueueResource::Gpu, GPU), "1 GPU");
        assert_eq!(amount(QueueResource::Gpu, GPU / 2), "0.5 GPUs");
        assert_eq!(amount(QueueResource::Cpu, 1_500), "1.5 CPU cores");
        assert_eq!(amount(QueueResource::Memory, 16 * GB), "16 GB of memory");
        assert_eq!(bound(QueueResource::Gpu, Ceiling::Unlimited), "Unlimited");
        let shown = |resource: &str, value: i64, unit: Unit| {
            node_amount(&Amount { resource: resource.to_owned(), value, unit }, value)
        };
        assert_eq!(shown("nvidia.com/mig-1g.5gb", 2, Unit::One), "2 nvidia.com/mig-1g.5gb");
        assert_eq!(shown("example.com/nic", 1_500, Unit::Milli), "1.5 example.com/nic");
        assert_eq!(shown("ephemeral-storage", 5 * GB, Unit::Bytes), "5 GB of ephemeral-storage");
    }
}
