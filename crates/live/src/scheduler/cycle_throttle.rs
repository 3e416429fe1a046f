//! When the next cycle may start: soon after a change, but with a limited share of the CPU.

use std::time::Duration;

use kai_process_stats::thread_cpu_time;
use tokio::time::Instant;

/// Changes come in bursts, and a gang whose pods are all there is decided once.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// With so many calls in flight, new decisions would queue behind them: a later cycle sees more.
const HIGH_LOAD: usize = 64;
const DEBOUNCE_UNDER_LOAD: Duration = Duration::from_secs(1);
/// Cycles use one in so many parts of the time, at most.
const CPU_SHARE_DIVISOR: u32 = 20;

#[derive(Debug)]
pub(super) struct CycleThrottle {
    period: Duration,
    started: Instant,
    /// CPU time, not wall-clock time: other programs on the machine are no reason for fewer cycles.
    last_cpu_time: Duration,
}

impl CycleThrottle {
    pub(super) fn new(period: Duration) -> Self {
        Self { period, started: Instant::now(), last_cpu_time: Duration::ZERO }
    }

    pub(super) fn run(&mut self, cycle: impl FnOnce()) {
        self.started = Instant::now();
        let before = thread_cpu_time();
        cycle();
        self.last_cpu_time = thread_cpu_time().saturating_sub(before);
    }

    /// When the next cycle should start.
    pub(super) fn next_start(&self, dirty: bool, in_flight: usize) -> Instant {
        let debounce = if in_flight < HIGH_LOAD { DEBOUNCE } else { DEBOUNCE_UNDER_LOAD };
        let gap = (self.last_cpu_time * CPU_SHARE_DIVISOR).max(debounce).min(self.period);
        self.started + if dirty { gap } else { self.period }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_starts_a_cycle_soon_unless_cycles_are_long_or_many_calls_are_in_flight() {
        let waits = |cpu: u64, dirty: bool, in_flight: usize| {
            let mut throttle = CycleThrottle::new(Duration::from_secs(2));
            throttle.last_cpu_time = Duration::from_millis(cpu);
            throttle.next_start(dirty, in_flight).duration_since(throttle.started).as_millis()
        };
        assert_eq!((waits(5, true, 0), waits(30, true, 0), waits(400, true, 0)), (100, 600, 2000));
        assert_eq!((waits(5, true, HIGH_LOAD), waits(80, true, HIGH_LOAD)), (1000, 1600));
        assert_eq!(waits(5, false, 0), 2000);
    }

    #[test]
    fn a_short_period_is_kept() {
        let throttle = CycleThrottle::new(Duration::from_millis(20));
        assert_eq!(throttle.next_start(true, HIGH_LOAD), throttle.next_start(false, 0));
    }
}
