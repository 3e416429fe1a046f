//! Annotations that ask for a part of a GPU, held to the rules of admission.

use super::field_reader::FieldReader;
use super::resources::amount_max;
use super::{Faults, Malformed};
use crate::quantity::Quantity;
use kai_api::keys::{annotation, resource};
use kai_engine::units::GPU;

/// A part of one or more GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GpuSharing {
    /// Millionths of each device.
    Fraction { devices: u32, portion: i64 },
    /// MiB of each device.
    Memory { devices: u32, mib: i64 },
}

/// No node has more GPUs.
pub(super) const DEVICES_MAX: u32 = 1024;

/// No GPU has more memory: one tebibyte, in MiB.
pub(super) const DEVICE_MIB_MAX: i64 = 1 << 20;

impl GpuSharing {
    /// `whole_gpus`: the containers ask for GPUs as well.
    pub(super) fn read(annotations: &FieldReader<'_>, whole_gpus: bool) -> Result<Option<Self>, Malformed> {
        let fraction = annotations.field(annotation::GPU_FRACTION);
        let memory = annotations.field(annotation::GPU_MEMORY);
        let devices = annotations.field(annotation::GPU_FRACTION_NUM_DEVICES);
        if !fraction.exists() && !memory.exists() {
            if annotations.field(annotation::MPS).text()? == Some("true") {
                let place = annotations.field(annotation::MPS);
                return Err(place.invalid("MPS needs a GPU fraction", "add the annotation gpu-fraction, or remove mps"));
            }
            if devices.exists() {
                return Err(devices.invalid(
                    "says how many GPUs to share, but not how much of each",
                    "add the annotation gpu-fraction or gpu-memory",
                ));
            }
            return Ok(None);
        }
        if fraction.exists() && memory.exists() {
            return Err(memory.invalid(
                "a pod asks for a GPU by fraction or by memory, not by both",
                "keep one of the annotations gpu-fraction and gpu-memory",
            ));
        }
        if whole_gpus {
            let place = if fraction.exists() { &fraction } else { &memory };
            return Err(place.invalid(
                "the containers ask for whole GPUs already",
                "remove nvidia.com/gpu from the containers, or this annotation",
            ));
        }
        let devices = read_devices(&devices)?;
        if fraction.exists() {
            return Ok(Some(Self::Fraction { devices, portion: read_fraction(&fraction)? }));
        }
        Ok(Some(Self::Memory { devices, mib: read_memory(&memory)? }))
    }

    /// The most that annotations can mean that cannot be read: whole devices, unless containers ask for GPUs already.
    pub(super) fn at_most(annotations: &FieldReader<'_>, whole_gpus: bool, faults: &mut Faults) -> Option<Self> {
        let asked =
            [annotation::GPU_FRACTION, annotation::GPU_MEMORY].iter().any(|key| annotations.field(key).exists());
        if whole_gpus || !asked {
            return None;
        }
        let devices = read_devices(&annotations.field(annotation::GPU_FRACTION_NUM_DEVICES));
        let devices = faults.value_or(devices, 1).unwrap_or(1);
        Some(Self::Fraction { devices, portion: GPU })
    }

    /// The same part of so many devices.
    pub(crate) fn on_devices(self, devices: u32) -> Self {
        match self {
            Self::Fraction { portion, .. } => Self::Fraction { devices, portion },
            Self::Memory { mib, .. } => Self::Memory { devices, mib },
        }
    }

    pub fn devices(self) -> u32 {
        match self {
            Self::Fraction { devices, .. } | Self::Memory { devices, .. } => devices,
        }
    }
}

fn read_fraction(place: &FieldReader<'_>) -> Result<i64, Malformed> {
    let text = place.text_or_empty()?;
    let hint = "write a number between 0 and 1, such as 0.5";
    // Both a float and a quantity, as admission has it: this keeps out `NaN`, `inf` and `500m`.
    let number = text.parse::<f64>().ok().filter(|_| Quantity::parse(&text).is_ok());
    let Some(number) = number else { return Err(place.invalid(format!("`{text}` is not a number"), hint)) };
    if number >= 1.0 {
        let hint = "for whole GPUs remove the annotation and request nvidia.com/gpu in a container";
        return Err(place.invalid(format!("`{text}` is not less than one GPU"), hint));
    }
    if number <= 0.0 {
        return Err(place.invalid(format!("`{text}` must be greater than 0"), hint));
    }
    // A portion too small to count still takes a device's smallest part.
    Ok(((number * GPU as f64).round() as i64).clamp(1, GPU))
}

fn read_memory(place: &FieldReader<'_>) -> Result<i64, Malformed> {
    let text = place.text_or_empty()?;
    plain_number(&text).filter(|mib| (1..=DEVICE_MIB_MAX).contains(mib)).ok_or_else(|| {
        place.invalid(
            format!("`{text}` is not a memory size in MiB"),
            "write a whole number of MiB from 1 up, such as 8000",
        )
    })
}

fn read_devices(place: &FieldReader<'_>) -> Result<u32, Malformed> {
    let Some(text) = place.text()? else { return Ok(1) };
    let devices = plain_number(text).and_then(|number| u32::try_from(number).ok());
    devices
        .filter(|devices| (1..=DEVICES_MAX).contains(devices))
        .ok_or_else(|| place.invalid(format!("`{text}` is not a number of GPUs"), "write a whole number from 1 up"))
}

fn plain_number(text: &str) -> Option<i64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Instances per MIG profile asked for by annotation, the retired way.
pub(super) fn legacy_mig(annotations: &FieldReader<'_>, faults: &mut Faults) -> Result<Vec<(String, i64)>, Malformed> {
    let mut found = Vec::new();
    for (key, place) in faults.value_or(annotations.entries(), Vec::new())? {
        if !key.starts_with(resource::MIG_PREFIX) {
            continue;
        }
        let text = faults.value_or(place.text_or_empty(), String::new())?;
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let most = amount_max(key);
        let mut count = plain_number(&text).unwrap_or(i64::MAX);
        if count > most {
            faults
                .note(place.invalid(format!("`{text}` is more than any node has"), "remove this retired annotation"))?;
            count = most;
        }
        found.push((key.to_owned(), count));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::{Value, json};

    use super::*;

    fn check(annotations: &Value, want: &Expect) {
        let text = match GpuSharing::read(&FieldReader::root(annotations), false) {
            Ok(sharing) => format!("{sharing:?}"),
            Err(wrong) => format!("{wrong}; {}", wrong.hint),
        };
        want.assert_eq(&text);
    }

    #[test]
    fn fractions_and_memory_are_read_exactly() {
        check(&json!({"gpu-fraction": "0.3333"}), &expect!["Some(Fraction { devices: 1, portion: 333300 })"]);
        check(
            &json!({"gpu-fraction": "5e-1", "gpu-fraction-num-devices": "2"}),
            &expect!["Some(Fraction { devices: 2, portion: 500000 })"],
        );
        check(&json!({"gpu-memory": "8000"}), &expect!["Some(Memory { devices: 1, mib: 8000 })"]);
        check(&json!({"other": "1"}), &expect!["None"]);
    }

    #[test]
    fn what_admission_refuses_is_refused_with_a_hint() {
        check(
            &json!({"gpu-fraction": "0.5", "gpu-memory": "100"}),
            &expect![
                "gpu-memory: a pod asks for a GPU by fraction or by memory, not by both; keep one of the annotations gpu-fraction and gpu-memory"
            ],
        );
        check(
            &json!({"gpu-fraction": "NaN"}),
            &expect!["gpu-fraction: `NaN` is not a number; write a number between 0 and 1, such as 0.5"],
        );
        check(
            &json!({"gpu-fraction": "-0.5"}),
            &expect!["gpu-fraction: `-0.5` must be greater than 0; write a number between 0 and 1, such as 0.5"],
        );
        check(
            &json!({"gpu-fraction": "1.5"}),
            &expect![
                "gpu-fraction: `1.5` is not less than one GPU; for whole GPUs remove the annotation and request nvidia.com/gpu in a container"
            ],
        );
        check(
            &json!({"gpu-memory": "0"}),
            &expect![
                "gpu-memory: `0` is not a memory size in MiB; write a whole number of MiB from 1 up, such as 8000"
            ],
        );
        check(
            &json!({"gpu-fraction-num-devices": "2"}),
            &expect![
                "gpu-fraction-num-devices: says how many GPUs to share, but not how much of each; add the annotation gpu-fraction or gpu-memory"
            ],
        );
        check(
            &json!({"mps": "true"}),
            &expect!["mps: MPS needs a GPU fraction; add the annotation gpu-fraction, or remove mps"],
        );
        assert!(GpuSharing::read(&FieldReader::root(&json!({"gpu-fraction": "0.5"})), true).is_err());
    }
}
