//! Past usage of queues within a window of time: samples in, one number per queue and resource out.
//!
//! Over the samples of a window, `usage = Σ allocated · decay / Σ capacity · decay`, where `decay` halves with every
//! half-life. A queue that held the entire cluster for the entire window has used 1. Samples that are missing count for
//! neither sum. The simulator takes samples from its virtual past, the live scheduler from a database.

use std::collections::{BTreeMap, VecDeque};

use kai_engine::units::{ONE, ResourceQuantities, Span, Timestamp};

pub mod prometheus;

use prometheus::{Connection, Source};

/// Past usage of queues, as a share of the cluster in millionths: CPU, memory, GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub queues: BTreeMap<String, [i64; 3]>,
}

/// Which part of the past counts, and where it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRule {
    pub window: Window,
    /// After so long a sample counts half; `None` lets all count the same.
    pub half_life: Option<Span>,
    /// Time between two samples.
    pub resolution: Span,
    /// Time between two queries of the database.
    pub fetch_interval: Span,
    /// Data older than this is not used.
    pub staleness: Span,
    /// The database, on a cluster.
    pub source: Source,
}

impl UsageRule {
    /// KAI's defaults, with samples so far apart.
    pub fn every(resolution: Span) -> Self {
        let minute = Span::seconds(60);
        let capacity = |resource: &str| format!("sum(kube_node_status_capacity{{resource=\"{resource}\"}})");
        Self {
            window: Window::Sliding { size: Span::seconds(7 * 24 * 3600) },
            half_life: None,
            resolution,
            fetch_interval: minute,
            staleness: Span(5 * minute.0),
            source: Source {
                connection: Connection::Unsaid,
                timeout: Span::seconds(10),
                wait: minute,
                allocation: ["cpu_cores", "memory_bytes", "gpus"].map(|what| format!("kai_queue_allocated_{what}")),
                capacity: ["cpu", "memory", "nvidia_com_gpu"].map(capacity),
            },
        }
    }
}

/// Which part of the past counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Always the last so much.
    Sliding { size: Span },
    /// One window after the other from a given time on; each begins at zero.
    Tumbling { size: Span, first: Timestamp },
}

impl Window {
    /// When the window that `now` lies in has begun. Samples count that are later than this and not later than `now`.
    pub fn start(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Sliding { size } => Timestamp(now.0.saturating_sub(size.0)),
            // Strictly before now: at the very end of a window its whole content still counts.
            Self::Tumbling { size, first } if now > first => {
                let windows = (now.since(first).0 - 1) / size.0.max(1);
                first.plus(Span(windows * size.0))
            }
            // It has not begun: nothing counts.
            Self::Tumbling { .. } => now,
        }
    }
}

/// The cluster at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    pub at: Timestamp,
    pub capacity: ResourceQuantities,
    /// What each queue holds, those below it included.
    pub allocated: BTreeMap<String, ResourceQuantities>,
}

/// Samples in order of time.
#[derive(Clone, Debug, Default)]
pub struct History {
    samples: VecDeque<Sample>,
}

impl History {
    /// Adds a sample that is later than all others.
    pub fn add(&mut self, sample: Sample) {
        debug_assert!(self.samples.back().is_none_or(|last| last.at < sample.at), "samples come in order");
        self.samples.push_back(sample);
    }

    /// Drops samples that no window includes any more.
    pub fn forget(&mut self, rule: &UsageRule, now: Timestamp) {
        let start = rule.window.start(now);
        while self.samples.front().is_some_and(|sample| sample.at <= start) {
            self.samples.pop_front();
        }
    }

    /// What the queues have used, as of `now`.
    pub fn usage(&self, rule: &UsageRule, now: Timestamp) -> Usage {
        let start = rule.window.start(now);
        let mut capacity = [0_i128; 3];
        let mut allocated: BTreeMap<&str, [i128; 3]> = BTreeMap::new();
        for sample in self.samples.iter().filter(|sample| sample.at > start && sample.at <= now) {
            let weight = rule.half_life.map_or(WEIGHT_ONE, |half_life| decay(now.since(sample.at), half_life));
            add_weighted(&mut capacity, sample.capacity, weight);
            for (queue, amount) in &sample.allocated {
                add_weighted(allocated.entry(queue).or_default(), *amount, weight);
            }
        }
        let queues = allocated.into_iter().map(|(queue, sums)| (queue.to_owned(), shares(sums, capacity)));
        Usage { queues: queues.collect() }
    }
}

/// Sums as shares of the capacity, in millionths; nothing is used of what does not exist.
pub fn shares(allocated: [i128; 3], capacity: [i128; 3]) -> [i64; 3] {
    std::array::from_fn(|index| {
        let (part, whole) = (allocated[index], capacity[index]);
        if whole <= 0 { 0 } else { i64::try_from(part * i128::from(ONE) / whole).unwrap_or(i64::MAX) }
    })
}

fn add_weighted(sums: &mut [i128; 3], amounts: ResourceQuantities, weight: i64) {
    for (sum, amount) in sums.iter_mut().zip(amounts.0) {
        *sum += i128::from(amount) * i128::from(weight);
    }
}

/// Weights are fractions of this. With 30 bits, a year of samples of a zettabyte still fits into the sums.
const WEIGHT_BITS: u32 = 30;
const WEIGHT_ONE: i64 = 1 << WEIGHT_BITS;

/// `0.5 ^ (age / half_life)`, in whole numbers, so that every machine sees the same.
fn decay(age: Span, half_life: Span) -> i64 {
    let (age, half_life) = (i128::from(age.0.max(0)), i128::from(half_life.0.max(1)));
    let halvings = age / half_life;
    if halvings > i128::from(WEIGHT_BITS) {
        return 0;
    }
    let mut weight = i128::from(WEIGHT_ONE) >> halvings;
    let mut rest = age % half_life;
    // The rest in binary: half of a half-life weighs √0.5, a quarter the root of that, and so on.
    let mut root = 1_i128 << (WEIGHT_BITS - 1);
    for _ in 0..WEIGHT_BITS {
        if rest == 0 {
            break;
        }
        root = (root << WEIGHT_BITS).isqrt();
        rest *= 2;
        if rest >= half_life {
            rest -= half_life;
            weight = (weight * root) >> WEIGHT_BITS;
        }
    }
    i64::try_from(weight).unwrap_or(WEIGHT_ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Span = Span::seconds(3600);

    fn hours(count: i64) -> Timestamp {
        Timestamp(0).plus(Span(count * HOUR.0))
    }

    fn rule(window: Window) -> UsageRule {
        UsageRule { window, ..UsageRule::every(HOUR) }
    }

    /// Ten GPUs; each entry is what queue `q` holds in that hour.
    fn history(held: &[i64]) -> History {
        let mut history = History::default();
        for (hour, gpus) in (1..).zip(held) {
            let capacity = ResourceQuantities::new(0, 0, 10 * ONE);
            let allocated = BTreeMap::from([("q".to_owned(), ResourceQuantities::new(5, 0, gpus * ONE))]);
            history.add(Sample { at: hours(hour), capacity, allocated });
        }
        history
    }

    fn gpu_usage(history: &History, rule: &UsageRule, now: Timestamp) -> i64 {
        history.usage(rule, now).queues.get("q").map_or(0, |usage| usage[2])
    }

    #[test]
    fn twenty_four_gpu_hours_of_a_hundred() {
        let rule = rule(Window::Sliding { size: Span(10 * HOUR.0) });
        let history = history(&[8, 8, 8, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(gpu_usage(&history, &rule, hours(10)), 240_000);
        // The window slides past the first two hours.
        assert_eq!(gpu_usage(&history, &rule, hours(12)), 100_000);
    }

    #[test]
    fn the_whole_cluster_all_the_time_is_one() {
        let mut rule = rule(Window::Sliding { size: Span(4 * HOUR.0) });
        let history = history(&[10, 10, 10, 10]);
        assert_eq!(gpu_usage(&history, &rule, hours(4)), ONE);
        rule.half_life = Some(HOUR);
        assert_eq!(gpu_usage(&history, &rule, hours(4)), ONE);
    }

    #[test]
    fn resources_that_do_not_exist_are_not_used() {
        let usage = history(&[10]).usage(&rule(Window::Sliding { size: HOUR }), hours(1));
        assert_eq!(usage.queues["q"], [0, 0, ONE]);
    }

    #[test]
    fn older_samples_count_less() {
        let mut rule = rule(Window::Sliding { size: Span(2 * HOUR.0) });
        rule.half_life = Some(HOUR);
        // Weights ½ and 1: the used hour is a third of what counts, or two thirds.
        assert_eq!(gpu_usage(&history(&[10, 0]), &rule, hours(2)), 333_333);
        assert_eq!(gpu_usage(&history(&[0, 10]), &rule, hours(2)), 666_666);
    }

    #[test]
    fn a_tumbling_window_begins_anew() {
        let window = Window::Tumbling { size: Span(4 * HOUR.0), first: hours(2) };
        let start = |hour| window.start(hours(hour));
        assert_eq!((start(1), start(2), start(3)), (hours(1), hours(2), hours(2)));
        assert_eq!((start(6), start(7), start(10), start(11)), (hours(2), hours(6), hours(6), hours(10)));
        let history = history(&[10, 10, 10, 10, 10, 10, 0]);
        assert_eq!(gpu_usage(&history, &rule(window), hours(2)), 0, "it has not begun");
        assert_eq!(gpu_usage(&history, &rule(window), hours(6)), ONE);
        assert_eq!(gpu_usage(&history, &rule(window), hours(7)), 0);
    }

    #[test]
    fn decay_follows_the_power_of_one_half() {
        for (seconds, expected) in
            [(0, 1.0), (1800, 0.5_f64.sqrt()), (3600, 0.5), (5400, 0.353_553), (36_000, 0.000_976_6)]
        {
            let weight = decay(Span::seconds(seconds), HOUR) as f64 / WEIGHT_ONE as f64;
            assert!((weight - expected).abs() < 1e-6, "{seconds} s weigh {weight}");
        }
        assert_eq!(decay(Span::seconds(1_000_000), HOUR), 0);
    }

    #[test]
    fn what_no_window_shows_is_forgotten() {
        let rule = rule(Window::Sliding { size: Span(2 * HOUR.0) });
        let mut history = history(&[1, 2, 3, 4]);
        let before = gpu_usage(&history, &rule, hours(4));
        history.forget(&rule, hours(4));
        assert_eq!(history.samples.len(), 2);
        assert_eq!(gpu_usage(&history, &rule, hours(4)), before);
    }
}
