//! Sums of resource lists, written the way Kubernetes writes them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use serde_json::Value;

use crate::quantity::Quantity;

/// Billionths in one.
const NANO: i128 = 1_000_000_000;

/// Amounts of resources by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceSum(BTreeMap<String, Amount>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    nano: i128,
    binary: bool,
}

impl ResourceSum {
    /// Adds a list such as `resources.requests`; a text that is no quantity is an error that names the resource.
    pub fn add_list(&mut self, list: &Value) -> Result<(), String> {
        for (name, amount) in list.as_object().into_iter().flatten() {
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            let quantity =
                Quantity::parse(&text).ok().and_then(|quantity| Some((quantity.nano()?, quantity.is_binary())));
            let (nano, binary) = quantity.ok_or_else(|| format!("{name}: `{text}` is not a quantity"))?;
            self.add_nano(name, nano, binary);
        }
        Ok(())
    }

    /// The same, of what is in use all the same: a text that is no quantity counts for nothing.
    pub(crate) fn add_readable(&mut self, list: &Value) {
        for (name, amount) in list.as_object().into_iter().flatten() {
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            if let Ok(quantity) = Quantity::parse(&text) {
                self.add_nano(name, quantity.nanos().max(0), quantity.is_binary());
            }
        }
    }

    pub fn add_milli(&mut self, name: &str, milli: i64) {
        self.add_nano(name, i128::from(milli) * (NANO / 1000), false);
    }

    pub(crate) fn add_nano(&mut self, name: &str, nano: i128, binary: bool) {
        // The first one decides how the sum is written, as in Kubernetes.
        let amount = self.0.entry(name.to_owned()).or_insert(Amount { nano: 0, binary });
        amount.nano = amount.nano.saturating_add(nano);
    }

    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            self.add_nano(name, amount.nano, amount.binary);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As a status field holds it.
    pub fn to_list(&self) -> BTreeMap<String, Written> {
        self.0.iter().map(|(name, amount)| (name.clone(), Written(amount.text()))).collect()
    }

    /// Reads what [`ResourceSum::to_list`] wrote, or another writer; what is no quantity counts as nothing.
    pub fn from_list(list: &BTreeMap<String, Written>) -> Self {
        let mut sum = Self::default();
        for (name, written) in list {
            if let Ok(quantity) = Quantity::parse(&written.0) {
                sum.add_nano(name, quantity.nano().unwrap_or(0), quantity.is_binary());
            }
        }
        sum
    }
}

impl Amount {
    /// The canonical form: whole digits with the largest suffix that leaves none over.
    fn text(self) -> String {
        if self.binary && self.nano % NANO == 0 && (self.nano / NANO).abs() >= 1024 {
            let mut units = self.nano / NANO;
            let mut suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].into_iter().peekable();
            while units % 1024 == 0 {
                let suffix = suffixes.next().expect("suffixes are looked at before they end");
                if suffixes.peek().is_none() {
                    return format!("{units}{suffix}");
                }
                units /= 1024;
            }
            return format!("{units}{}", suffixes.next().unwrap_or_default());
        }
        if self.nano == 0 {
            return "0".to_owned();
        }
        let mut digits = self.nano;
        let mut suffixes = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].into_iter();
        let mut suffix = suffixes.next().unwrap_or_default();
        while digits % 1000 == 0 {
            let Some(larger) = suffixes.next() else { break };
            (digits, suffix) = (digits / 1000, larger);
        }
        format!("{digits}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn sum(lists: &[Value]) -> String {
        let mut sum = ResourceSum::default();
        for list in lists {
            sum.add_list(list).unwrap();
        }
        let texts: Vec<String> =
            sum.to_list().into_iter().map(|(name, amount)| format!("{name}={}", amount.0)).collect();
        texts.join(" ")
    }

    #[test]
    fn sums_are_written_as_kubernetes_does() {
        assert_eq!(sum(&[json!({"cpu": "500m"}), json!({"cpu": "500m"})]), "cpu=1");
        assert_eq!(sum(&[json!({"cpu": "100m"}), json!({"cpu": 2})]), "cpu=2100m");
        assert_eq!(sum(&[json!({"memory": "1Gi"}), json!({"memory": "512Mi"})]), "memory=1536Mi");
        assert_eq!(sum(&[json!({"memory": "1Gi"}), json!({"memory": "1"})]), "memory=1073741825");
        assert_eq!(sum(&[json!({"memory": "4096Gi"})]), "memory=4Ti");
        assert_eq!(sum(&[json!({"nvidia.com/gpu": 12_000})]), "nvidia.com/gpu=12k");
        assert_eq!(sum(&[json!({"cpu": 0})]), "cpu=0");
        assert_eq!(sum(&[json!({"memory": "2048Ei"})]), "memory=2048Ei");
    }

    #[test]
    fn what_is_no_quantity_is_named() {
        let problem = ResourceSum::default().add_list(&json!({"cpu": "lots"})).unwrap_err();
        assert_eq!(problem, "cpu: `lots` is not a quantity");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(milli in 0_i64..1_000_000_000_000, binary in 0_u32..50, units in 0_i64..10_000) {
            let mut sum = ResourceSum::default();
            sum.add_milli("cpu", milli);
            sum.add_list(&json!({"memory": format!("{units}Ki")})).unwrap();
            sum.add_list(&json!({"memory": format!("{}", 1_u64 << binary)})).unwrap();
            let read = ResourceSum::from_list(&sum.to_list());
            let amounts = |sum: &ResourceSum| sum.0.values().map(|amount| amount.nano).collect::<Vec<_>>();
            prop_assert_eq!(amounts(&read), amounts(&sum));
        }
    }
}
