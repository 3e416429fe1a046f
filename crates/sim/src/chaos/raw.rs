//! Objects as a kubelet reads them: JSON and quantities, by code of its own. It shares nothing with `kai_control::objects`,
//! so that a mistake there cannot hide from what is checked with these numbers.

use std::collections::BTreeMap;

use serde_json::Value;

/// Amounts in thousandths, by resource.
pub(super) type Amounts = BTreeMap<String, i128>;

/// A quantity in thousandths, rounded up; more than any sum of real amounts where it cannot be counted.
pub(super) fn thousandths(quantity: &Value) -> i128 {
    /// Far above all that is real, and thousands of them can be added.
    const MAX: i128 = 1 << 110;
    let text = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
    let unsigned = text.trim_start_matches(['+', '-']);
    let end = unsigned.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let Some((up, down)) = factor(suffix) else { return MAX };
    let digits = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    let parsed = if digits.is_empty() { Ok(0) } else { digits.parse::<i128>() };
    let (Ok(parsed), Some(places)) = (parsed, 10_i128.checked_pow(fraction.len() as u32)) else { return MAX };
    let (Some(counter), Some(divisor)) =
        (parsed.checked_mul(1_000).and_then(|milli| milli.checked_mul(up)), places.checked_mul(down))
    else {
        return MAX;
    };
    let amount = (counter / divisor + i128::from(counter % divisor != 0)).min(MAX);
    if text.starts_with('-') { -amount } else { amount }
}

/// What a suffix multiplies by and divides by.
fn factor(suffix: &str) -> Option<(i128, i128)> {
    const DECIMAL: [(&str, u32); 7] = [("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const SMALL: [(&str, u32); 3] = [("m", 3), ("u", 6), ("n", 9)];
    if let Some((_, tens)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((10_i128.pow(*tens), 1));
    }
    if let Some((_, tens)) = SMALL.iter().find(|(name, _)| *name == suffix) {
        return Some((1, 10_i128.pow(*tens)));
    }
    if let Some(place) = BINARY.iter().position(|name| *name == suffix) {
        return Some((1_i128 << (10 * (place + 1)), 1));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    Some(if exponent < 0 { (1, power) } else { (power, 1) })
}

pub(super) fn text<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
}

pub(super) fn items<'v>(value: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn amounts(list: &Value) -> Amounts {
    list.as_object().into_iter().flatten().map(|(name, quantity)| (name.clone(), thousandths(quantity))).collect()
}

/// What a node offers to pods.
pub(super) fn offered(node: &Value) -> Amounts {
    amounts(&node["status"]["allocatable"])
}

/// What a kubelet admits a pod for and hands out to its containers.
pub(super) fn requested(pod: &Value) -> Amounts {
    let container = |container: &Value| {
        let mut asked = amounts(&container["resources"]["limits"]);
        asked.extend(amounts(&container["resources"]["requests"]));
        asked
    };
    let (mut steady, mut peak) = (Amounts::new(), Amounts::new());
    for init in items(pod, "/spec/initContainers") {
        let asked = container(init);
        if init["restartPolicy"] == "Always" {
            add(&mut steady, &asked);
        } else {
            let mut beside = steady.clone();
            add(&mut beside, &asked);
            raise(&mut peak, &beside);
        }
    }
    for asked in items(pod, "/spec/containers").map(container) {
        add(&mut steady, &asked);
    }
    raise(&mut steady, &peak);
    add(&mut steady, &amounts(&pod["spec"]["overhead"]));
    steady.insert("pods".to_owned(), 1_000);
    steady
}

pub(super) fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *sum.entry(name.clone()).or_default() += amount;
    }
}

fn raise(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let own = to.entry(name.clone()).or_default();
        *own = (*own).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        let read = |text: &str| thousandths(&json!(text));
        assert_eq!(["2", "500m", "1.5", "0.0001", "2e3"].map(read), [2_000, 500, 1_500, 1, 2_000_000]);
        assert_eq!(["1k", "1Ki", "1E", "1n"].map(read), [1_000_000, 1_024_000, 1_000_000_000_000_000_000_000, 1]);
        assert_eq!((thousandths(&json!(3)), read("-2")), (3_000, -2_000));
        assert!(read("9223372036854775808") > i128::from(i64::MAX));
        assert!(read("1e400") > read("9Ei"));
    }

    #[test]
    fn init_containers_need_room_beside_sidecars_only() {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
        let pod = json!({"spec": {
            "containers": [{"resources": cpu("1")}, {"resources": {"limits": {"nvidia.com/gpu": 2}}}],
            "initContainers": [{"restartPolicy": "Always", "resources": cpu("1")}, {"resources": cpu("3")}],
        }});
        let requested = requested(&pod);
        assert_eq!((requested["cpu"], requested["nvidia.com/gpu"]), (4_000, 2_000));
    }
}
