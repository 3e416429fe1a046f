//! The cycle of `kai` beside that of NVIDIA KAI, on the same snapshot files: `cargo xtask bench-upstream`.
//!
//! `kai generate` makes the files, `kai replay` and the Go program of `bench/upstream` run them in turn, each in a process
//! of its own. Results are kept in `docs/benchmarks-upstream.json`, so that scenarios and sizes can be measured one by
//! one; the table in `docs/benchmarks.md` and the plot beside it are drawn from all of them.

mod plot;
mod programs;
mod side_by_side;
mod table;

use crate::workspace::Workspace;
use programs::Programs;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fs, path::Path};

const RESULTS: &str = "docs/benchmarks-upstream.json";
const PLOT: &str = "docs/benchmarks-upstream.svg";
const PAGE: &str = "docs/benchmarks.md";

/// Scenarios that NVIDIA KAI publishes measurements of, and the others that stress one action each.
const SCENARIOS: [&str; 10] = [
    "allocate",
    "saturated",
    "reclaim",
    "reclaim_g1",
    "preempt",
    "preempt_even",
    "consolidation",
    "consolidation_hard",
    "topology",
    "topology_rack",
];

struct Options {
    nodes: Vec<usize>,
    scenarios: Vec<String>,
    /// Processes of each, at most.
    runs: u32,
    /// CPU seconds after which NVIDIA KAI is stopped.
    cpu_timeout: u32,
}

/// One scheduler on one file: the best of its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Cost {
    open_ms: f64,
    /// Opening and all actions, CPU time.
    cycle_ms: f64,
    bound: u64,
    pipelined: u64,
    evicted: u64,
    rss_mb: f64,
    /// Stopped before it was done: it costs at least this, and what it would have decided is not known.
    #[serde(default)]
    stopped: bool,
}

/// Both on one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Pair {
    pods: u64,
    kai: Cost,
    upstream: Cost,
}

/// By scenario and nodes.
type Results = BTreeMap<String, BTreeMap<usize, Pair>>;

pub(crate) fn run(workspace: &Workspace, arguments: &[&str]) -> Result<(), String> {
    let options = parse(arguments)?;
    let root = &workspace.root;
    let mut results = load(&root.join(RESULTS))?;
    if !options.nodes.is_empty() {
        let programs = Programs::build(root)?;
        for scenario in &options.scenarios {
            for nodes in &options.nodes {
                let pair = side_by_side::run(&programs, scenario, *nodes, &options)?;
                println!("{scenario} {nodes}: {}", table::in_short(&pair));
                results.entry(scenario.clone()).or_default().insert(*nodes, pair);
                // Hours may have gone into it: keep what there is.
                save(root, &results)?;
            }
        }
    }
    save(root, &results)
}

fn parse(arguments: &[&str]) -> Result<Options, String> {
    let mut options = Options {
        nodes: vec![100, 500, 1000],
        scenarios: SCENARIOS.map(str::to_owned).to_vec(),
        runs: 3,
        cpu_timeout: 300,
    };
    let mut words = arguments.iter();
    while let Some(flag) = words.next() {
        let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| format!("{flag}: `{text}` is not a number"));
        match *flag {
            // Without a size nothing is measured; table and plot are drawn from the results that are kept.
            "--nodes" => {
                let sizes = value.split(',').filter(|size| !size.is_empty());
                options.nodes = sizes.map(|size| number(size).map(|size| size as usize)).collect::<Result<_, _>>()?;
            }
            "--scenario" => options.scenarios = value.split(',').map(str::to_owned).collect(),
            "--runs" => options.runs = number(value)?.max(1),
            "--cpu-timeout" | "--patience" => options.cpu_timeout = number(value)?,
            _ => return Err(format!("{flag} is not an option; there are --nodes, --scenario, --runs, --cpu-timeout")),
        }
    }
    Ok(options)
}

fn load(path: &Path) -> Result<Results, String> {
    match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display())),
        Err(_) => Ok(Results::new()),
    }
}

fn save(root: &Path, results: &Results) -> Result<(), String> {
    let write = |name: &str, text: &str| {
        fs::write(root.join(name), text).map_err(|error| format!("cannot write {name}: {error}"))
    };
    let json = serde_json::to_string_pretty(results).map_err(|error| error.to_string())?;
    write(RESULTS, &(json + "\n"))?;
    write(PLOT, &plot::svg(results))?;
    let page = fs::read_to_string(root.join(PAGE)).map_err(|error| format!("{PAGE}: {error}"))?;
    write(PAGE, &table::replace(&page, results)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_defaults_and_are_checked() {
        let options = parse(&["--nodes", "10,20", "--scenario", "reclaim", "--runs", "0"]).ok().unwrap();
        assert_eq!((options.nodes, options.scenarios, options.runs), (vec![10, 20], vec!["reclaim".to_owned()], 1));
        assert_eq!(parse(&[]).ok().unwrap().scenarios.len(), 10);
        assert!(parse(&["--nodes", ""]).ok().unwrap().nodes.is_empty());
        assert_eq!(parse(&["--nodes", "many"]).err().unwrap(), "--nodes: `many` is not a number");
        assert!(parse(&["--fast", "1"]).err().unwrap().starts_with("--fast is not an option"));
    }

    #[test]
    fn results_in_the_repository_can_be_read() {
        let results = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(RESULTS)).unwrap();
        assert!(!results.is_empty());
    }
}
