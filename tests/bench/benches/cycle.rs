//! One cold cycle over each scenario, in CPU time. `-- --test` runs each once at a small size.

use std::hint::black_box;
use std::time::Duration;

use bench::snapshot::{self, NOW};
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BenchmarkId, Criterion, SamplingMode, criterion_group, criterion_main};
use kai_engine::Policy;
use kai_generate::SCENARIOS;

/// CPU time of this process, so that results do not depend on who else uses the machine.
struct CpuTime;

static FORMAT: WallTime = WallTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        kai_process_stats::cpu_time()
    }

    fn end(&self, start: Duration) -> Duration {
        kai_process_stats::cpu_since(start)
    }

    fn add(&self, left: &Duration, right: &Duration) -> Duration {
        *left + *right
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        FORMAT.formatter()
    }
}

fn sizes(scenario: &str) -> &'static [usize] {
    // Cargo says `--bench` when it measures; otherwise the question is only whether the benches still run.
    let measures = std::env::args().any(|argument| argument == "--bench");
    let tests = std::env::args().any(|argument| argument == "--test");
    match scenario {
        _ if tests || !measures => &[50],
        "mixed" => &[1000, 5000],
        _ => &[100, 1000],
    }
}

fn cycles(criterion: &mut Criterion<CpuTime>) {
    let policy = Policy::default();
    for scenario in &SCENARIOS {
        let mut group = criterion.benchmark_group(scenario.name);
        group.sample_size(10).sampling_mode(SamplingMode::Flat);
        group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(2));
        for nodes in sizes(scenario.name) {
            let snapshot = snapshot::of_scenario(scenario, scenario.size(*nodes));
            group.bench_with_input(BenchmarkId::from_parameter(nodes), &snapshot, |bencher, snapshot| {
                bencher.iter(|| kai_engine::cycle(black_box(snapshot), &policy, NOW));
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime);
    targets = cycles
}
criterion_main!(benches);
