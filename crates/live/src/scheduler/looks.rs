//! When to look at the cluster: soon after news, but not all the time.

use std::time::Duration;

use kai_meter::thread_cpu_time;
use tokio::time::Instant;

/// News come in bursts, and a gang that is there as a whole is decided about once.
const GAP_MIN: Duration = Duration::from_millis(100);
/// While so many calls are under way, whatever a cycle decides would wait behind them: better it sees more.
const BUSY: usize = 64;
const GAP_BUSY: Duration = Duration::from_secs(1);
/// Cycles use one in so many parts of the time, at most.
const SHARE: u32 = 20;

#[derive(Debug)]
pub(super) struct Looks {
    period: Duration,
    begun: Instant,
    /// CPU time of the last one: others who use the machine at the same time are no reason to look less often.
    took: Duration,
}

impl Looks {
    pub(super) fn new(period: Duration) -> Self {
        Self { period, begun: Instant::now(), took: Duration::ZERO }
    }

    /// Looks once.
    pub(super) fn look(&mut self, look: impl FnOnce()) {
        self.begun = Instant::now();
        let before = thread_cpu_time();
        look();
        self.took = thread_cpu_time().saturating_sub(before);
    }

    /// When the next one should begin.
    pub(super) fn next(&self, news: bool, calls: usize) -> Instant {
        let gap = if calls < BUSY { GAP_MIN } else { GAP_BUSY };
        let gap = (self.took * SHARE).max(gap).min(self.period);
        self.begun + if news { gap } else { self.period }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_looked_at_soon_unless_cycles_are_long_or_there_is_enough_to_do() {
        let waits = |took: u64, news: bool, calls: usize| {
            let mut looks = Looks::new(Duration::from_secs(2));
            looks.took = Duration::from_millis(took);
            looks.next(news, calls).duration_since(looks.begun).as_millis()
        };
        assert_eq!((waits(5, true, 0), waits(30, true, 0), waits(400, true, 0)), (100, 600, 2000));
        assert_eq!((waits(5, true, BUSY), waits(80, true, BUSY)), (1000, 1600));
        assert_eq!(waits(5, false, 0), 2000);
    }

    #[test]
    fn a_short_period_is_kept() {
        let looks = Looks::new(Duration::from_millis(20));
        assert_eq!(looks.next(true, BUSY), looks.next(false, 0));
    }
}
