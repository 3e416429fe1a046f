//! Amounts of resources, from lists of quantities.

use std::collections::BTreeMap;

use kai_api::keys::resource;
use serde_json::Value;

use super::field_reader::FieldReader;
use super::{Faults, Malformed};
use crate::quantity::Quantity;

/// Amounts of resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resources {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    /// Whole GPUs, of whatever vendor.
    pub gpus: i64,
    pub pods: i64,
    /// Everything else by name: MIG profiles and bytes counted plainly, other resources in thousandths.
    pub scalars: BTreeMap<String, i64>,
}

impl Resources {
    /// Reads a list of amounts that is no part of an object.
    pub(crate) fn parse(list: &Value) -> Result<Self, Malformed> {
        Self::read(&FieldReader::root(list))
    }

    /// Reads a resource list such as `status.allocatable` or `resources.requests`.
    pub(crate) fn read(list: &FieldReader<'_>) -> Result<Self, Malformed> {
        Self::read_with(list, &mut Faults::Refuse)
    }

    /// What cannot be read, or is too much, counts as the most that there may be.
    pub(super) fn read_with(list: &FieldReader<'_>, faults: &mut Faults) -> Result<Self, Malformed> {
        let mut all = Self::default();
        for (name, place) in faults.value_or(list.entries(), Vec::new())? {
            let quantity = faults.value_or(read_quantity(&place).map(Some), None)?;
            let (amount, read) = all.amount_mut(name, quantity.unwrap_or(Quantity::ZERO));
            let Some(amount) = amount else { continue };
            let most = amount_max(name);
            *amount = amount.saturating_add(if quantity.is_some() { read } else { most });
            if *amount > most {
                *amount = most;
                if quantity.is_some() {
                    let hint = "check the suffix: m, k, M, G, Ki, Mi, Gi";
                    faults.note(place.invalid("is more than any machine has", hint))?;
                }
            }
        }
        Ok(all)
    }

    /// Where an amount of `name` is kept, and the amount in the unit kept there.
    fn amount_mut(&mut self, name: &str, quantity: Quantity) -> (Option<&mut i64>, i64) {
        match name {
            "cpu" => (Some(&mut self.cpu_milli), quantity.milli()),
            "memory" => (Some(&mut self.memory_bytes), quantity.units()),
            "pods" => (Some(&mut self.pods), quantity.units()),
            // GPUs of other vendors stay ordinary resources: nothing is known of how they are shared.
            resource::NVIDIA_GPU | resource::AMD_GPU => (Some(&mut self.gpus), quantity.units()),
            _ => match scalar_unit(name) {
                Some(ScalarUnit::Plain) => (Some(self.scalars.entry(name.to_owned()).or_default()), quantity.units()),
                Some(ScalarUnit::Milli) => (Some(self.scalars.entry(name.to_owned()).or_default()), quantity.milli()),
                None => (None, 0),
            },
        }
    }

    /// MIG profiles asked for or offered, with their counts.
    pub fn migs(&self) -> impl Iterator<Item = (&str, i64)> {
        self.scalars
            .iter()
            .filter(|(name, count)| name.starts_with(resource::MIG_PREFIX) && **count > 0)
            .map(|(name, count)| (name.as_str(), *count))
    }

    /// Devices asked for by name, in order of names.
    pub(crate) fn devices(&self) -> Vec<(&str, i64)> {
        let scalars = self.scalars.iter().filter(|(name, amount)| name.contains('/') && **amount > 0);
        let mut devices: Vec<(&str, i64)> = scalars.map(|(name, amount)| (name.as_str(), amount / 1000)).collect();
        if self.gpus > 0 {
            devices.push((resource::NVIDIA_GPU, self.gpus));
        }
        devices.sort_unstable();
        devices
    }

    /// Cut to what an `i64` holds: however many containers a pod has, their sum does not wrap around.
    pub fn add(&mut self, other: &Self) {
        self.cpu_milli = self.cpu_milli.saturating_add(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        self.gpus = self.gpus.saturating_add(other.gpus);
        self.pods = self.pods.saturating_add(other.pods);
        for (name, amount) in &other.scalars {
            let own = self.scalars.entry(name.clone()).or_default();
            *own = own.saturating_add(*amount);
        }
    }

    /// Cuts amounts to what a machine may have, and returns the name of one that was larger.
    pub(super) fn cap(&mut self) -> Option<String> {
        let fixed = [
            ("cpu", &mut self.cpu_milli),
            ("memory", &mut self.memory_bytes),
            (resource::NVIDIA_GPU, &mut self.gpus),
            ("pods", &mut self.pods),
        ];
        let scalars = self.scalars.iter_mut().map(|(name, amount)| (name.as_str(), amount));
        let mut larger = None;
        for (name, amount) in fixed.into_iter().chain(scalars) {
            let most = amount_max(name);
            if *amount > most {
                *amount = most;
                larger.get_or_insert_with(|| name.to_owned());
            }
        }
        larger
    }

    /// Cuts each amount but that of pods to the one of `other`.
    pub(crate) fn lower_to(&mut self, other: &Self) {
        self.cpu_milli = self.cpu_milli.min(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.min(other.memory_bytes);
        self.gpus = self.gpus.min(other.gpus);
        for (name, amount) in &mut self.scalars {
            *amount = (*amount).min(other.scalars.get(name).copied().unwrap_or(0));
        }
    }

    /// Raises each amount to that of `other`.
    pub(crate) fn raise_to(&mut self, other: &Self) {
        self.cpu_milli = self.cpu_milli.max(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.max(other.memory_bytes);
        self.gpus = self.gpus.max(other.gpus);
        self.pods = self.pods.max(other.pods);
        for (name, amount) in &other.scalars {
            let own = self.scalars.entry(name.clone()).or_default();
            *own = (*own).max(*amount);
        }
    }
}

/// Amounts above this are refused, so that sums over 180,000 pods and nodes stay within an `i64`: a billion cores, fifty
/// terabytes of memory, a million GPUs (counted in millionths later). A petabyte of storage and as much of anything else,
/// which are summed up for one node only.
pub(super) fn amount_max(name: &str) -> i64 {
    match name {
        "cpu" => 1_000_000_000_000,
        "memory" => 50_000_000_000_000,
        resource::NVIDIA_GPU | resource::AMD_GPU | "pods" => 1_000_000,
        _ if name.starts_with(resource::MIG_PREFIX) => MIG_COUNT_MAX,
        _ => 1_000_000_000_000_000,
    }
}

/// No node has more instances of a MIG profile.
const MIG_COUNT_MAX: i64 = 10_000;

/// No GPU is split into more slices, nor has more memory in a profile: a product with [`MIG_COUNT_MAX`] is small.
const MIG_SLICES_MAX: u32 = 64;
const MIG_MEMORY_MAX: u32 = 4096;

/// How a resource other than the four fixed ones is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarUnit {
    Plain,
    Milli,
}

/// `None` for names that Kubernetes knows no resource by.
pub(crate) fn scalar_unit(name: &str) -> Option<ScalarUnit> {
    // Bytes have no thousandths worth counting.
    let bytes = matches!(name, "ephemeral-storage" | "storage") || name.starts_with("hugepages-");
    if bytes || name.starts_with(resource::MIG_PREFIX) {
        Some(ScalarUnit::Plain)
    } else if name.contains('/') || name.starts_with("attachable-volumes-") {
        Some(ScalarUnit::Milli)
    } else {
        None
    }
}

/// Slices and memory units of a MIG profile, from a name such as `nvidia.com/mig-3g.20gb`; zeros for other names, and for
/// those of profiles that no GPU has.
pub(crate) fn mig_profile(name: &str) -> (u32, u32) {
    let parse = || {
        let (slices, memory) = name.strip_prefix(resource::MIG_PREFIX)?.split_once("g.")?;
        let number = |text: &str| {
            let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| text.parse().ok()).flatten()
        };
        Some((number(slices)?, number(memory.strip_suffix("gb")?)?))
    };
    parse().filter(|(slices, memory)| *slices <= MIG_SLICES_MAX && *memory <= MIG_MEMORY_MAX).unwrap_or((0, 0))
}

pub(crate) fn read_quantity(place: &FieldReader<'_>) -> Result<Quantity, Malformed> {
    let text = match place.value() {
        None => return Ok(Quantity::ZERO),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(_) => return Err(place.invalid("is not a quantity", "write an amount such as 2, 500m or 8Gi")),
    };
    let quantity = Quantity::parse(&text).map_err(|_| {
        place.invalid(format!("`{text}` is not a quantity"), "write an amount such as 2, 500m or 8Gi, without spaces")
    })?;
    if quantity.is_negative() {
        return Err(place.invalid(format!("`{text}` is negative"), "write an amount from 0 up"));
    }
    Ok(quantity)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn check(list: &Value, want: &Expect) {
        let text = match Resources::read(&FieldReader::root(list)) {
            Ok(resources) => format!("{resources:?}"),
            Err(malformed) => format!("{malformed} ({})", malformed.hint),
        };
        want.assert_eq(&text);
    }

    #[test]
    fn each_name_has_its_unit() {
        check(
            &json!({"cpu": "1500m", "memory": "2Gi", "pods": 110, "nvidia.com/gpu": "2", "amd.com/gpu": 1,
                    "nvidia.com/mig-1g.5gb": 3, "example.com/gpu": 4, "ephemeral-storage": "1k", "unheard": 7}),
            &expect![[
                r#"Resources { cpu_milli: 1500, memory_bytes: 2147483648, gpus: 3, pods: 110, scalars: {"ephemeral-storage": 1000, "example.com/gpu": 4000, "nvidia.com/mig-1g.5gb": 3} }"#
            ]],
        );
    }

    #[test]
    fn errors_name_the_resource() {
        check(
            &json!({"cpu": "2 cores"}),
            &expect!["cpu: `2 cores` is not a quantity (write an amount such as 2, 500m or 8Gi, without spaces)"],
        );
        check(
            &json!({"nvidia.com/gpu": -1}),
            &expect!["[nvidia.com/gpu]: `-1` is negative (write an amount from 0 up)"],
        );
        check(
            &json!({"memory": "9Ei"}),
            &expect!["memory: is more than any machine has (check the suffix: m, k, M, G, Ki, Mi, Gi)"],
        );
        check(&json!(["cpu"]), &expect![": expected an object, found a list (write an object here)"]);
    }

    #[test]
    fn sums_do_not_wrap_around() {
        let list = json!({"cpu": "1G", "memory": "50T", "nvidia.com/gpu": 1_000_000, "example.com/nic": "1T"});
        let most = Resources::read(&FieldReader::root(&list)).unwrap();
        let mut sum = Resources::default();
        for _ in 0..4 {
            let before = sum.clone();
            (0..1_000_000).for_each(|_| sum.add(&most));
            assert!(sum.memory_bytes >= before.memory_bytes && sum.scalars["example.com/nic"] > 0);
        }
        assert_eq!(sum.cap().as_deref(), Some("cpu"));
        assert_eq!(sum, most);
        assert_eq!(sum.cap(), None);
    }

    #[test]
    fn what_cannot_be_read_may_be_as_much_as_there_is() {
        let mut faults = Faults::collect();
        let list = json!({"memory": "200Ti", "nvidia.com/gpu": "lots", "cpu": 2});
        let read = Resources::read_with(&FieldReader::root(&list), &mut faults).unwrap();
        assert_eq!((read.cpu_milli, read.memory_bytes, read.gpus), (2_000, 50_000_000_000_000, 1_000_000));
        assert_eq!(faults.count(), 2);
    }

    #[test]
    fn mig_profiles_are_worth_their_slices() {
        assert_eq!(mig_profile("nvidia.com/mig-3g.20gb"), (3, 20));
        assert_eq!(mig_profile("nvidia.com/mig-1g.5gb.me"), (0, 0));
        assert_eq!(mig_profile("nvidia.com/mig-+1g.5gb"), (0, 0));
        assert_eq!(mig_profile("nvidia.com/mig-4294967295g.5gb"), (0, 0), "no GPU has so many slices");
    }
}
