//! What something took: calls as the API server counts them, CPU time as the system does.

use std::collections::BTreeMap;
use std::time::Duration;

use kai_process_stats::cpu_time_of;
use test_cluster::{Error, Kubectl};

#[derive(Debug)]
pub(crate) struct Cost {
    /// By verb and resource.
    pub(crate) calls: BTreeMap<String, u64>,
    /// By process.
    pub(crate) cpu: Vec<(String, Duration)>,
}

impl Cost {
    /// Everything so far.
    pub(crate) fn read(kubectl: &Kubectl, processes: &[(&str, u32)]) -> Result<Self, Error> {
        let text = kubectl.run("get --raw /metrics")?;
        let cpu = processes.iter().map(|(name, id)| ((*name).to_owned(), cpu_time_of(*id).unwrap_or_default()));
        Ok(Self { calls: calls(&text), cpu: cpu.collect() })
    }

    /// What has come since then.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        for (call, count) in &mut self.calls {
            *count -= before.calls.get(call).copied().unwrap_or(0);
        }
        self.calls.retain(|_, count| *count > 0);
        for ((_, time), (_, earlier)) in self.cpu.iter_mut().zip(&before.cpu) {
            *time = time.saturating_sub(*earlier);
        }
        self
    }

    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.cpu.iter().map(|(_, time)| time.as_secs_f64()).sum()
    }
}

/// Sums over everything but verb, resource and success.
fn calls(metrics: &str) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    for line in metrics.lines() {
        let Some((labels, count)) =
            line.strip_prefix("apiserver_request_total{").and_then(|rest| rest.rsplit_once("} "))
        else {
            continue;
        };
        let label = |name: &str| {
            let pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.trim_matches('"')).next().unwrap_or_default()
        };
        let mut call = format!("{} {}", label("verb"), label("resource"));
        for subresource in [label("subresource")].into_iter().filter(|subresource| !subresource.is_empty()) {
            call = format!("{call}/{subresource}");
        }
        if !label("code").starts_with('2') {
            call = format!("{call}, answered {}", label("code"));
        }
        *calls.entry(call).or_default() += count.parse::<f64>().unwrap_or_default() as u64;
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_summed_by_verb_resource_and_failure() {
        let text = r#"# HELP apiserver_request_total Counter
apiserver_request_total{code="200",component="apiserver",resource="pods",subresource="status",verb="PATCH"} 3
apiserver_request_total{code="201",component="apiserver",resource="pods",subresource="status",verb="PATCH"} 4
apiserver_request_total{code="409",component="apiserver",resource="pods",subresource="",verb="PATCH"} 1
"#;
        let want = [("PATCH pods, answered 409".to_owned(), 1), ("PATCH pods/status".to_owned(), 7)];
        assert_eq!(calls(text), want.into());
    }
}
