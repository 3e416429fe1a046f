//! What the operating system knows about this process: CPU time and memory.
//!
//! For shells and benches; nothing that decides may ask.

use std::time::Duration;
use std::{fs, process, thread};

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// CPU time of all threads so far. Unlike elapsed time it does not grow while others use the machine.
pub fn cpu_time() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// CPU time of this thread so far.
pub fn thread_cpu_time() -> Duration {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs().try_into().expect("less than a second"))
}

/// CPU time since an earlier reading.
pub fn cpu_since(earlier: Duration) -> Duration {
    cpu_time().saturating_sub(earlier)
}

/// CPU time of another process so far, in steps of the system's clock; `None` where the system does not say.
pub fn cpu_time_of(process: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // What follows the name, which may hold anything: the state is the third field of all.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let (user, system) = (ticks()?, ticks()?);
    Some(Duration::from_secs_f64((user + system) as f64 / clock_ticks_per_second() as f64))
}

/// Ends this process with `code` once it has used so much CPU time.
///
/// A limit of the operating system would do the same, but while one is set the CPU clock moves in steps of
/// milliseconds.
#[expect(clippy::exit, reason = "a cycle that runs away cannot be asked to stop")]
pub fn limit_cpu(limit: Duration, code: i32) {
    thread::spawn(move || {
        while cpu_time() < limit {
            thread::sleep(Duration::from_millis(100));
        }
        process::exit(code);
    });
}

/// Memory in use, in bytes; `None` where the system does not say.
pub fn rss_bytes() -> Option<u64> {
    status_field("self", "VmRSS:")
}

/// The same of another process.
pub fn rss_bytes_of(process: u32) -> Option<u64> {
    status_field(&process.to_string(), "VmRSS:")
}

/// Most memory that was in use at once, in bytes, since the start or the last [`reset_peak_rss`].
pub fn peak_rss_bytes() -> Option<u64> {
    status_field("self", "VmHWM:")
}

/// Makes [`peak_rss_bytes`] begin anew. Where the system refuses, the peak is that of the whole process: never too low.
pub fn reset_peak_rss() {
    let _refused = fs::write("/proc/self/clear_refs", "5");
}

fn status_field(process: &str, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_grows_with_work() {
        let before = cpu_time();
        let sum: u64 = std::hint::black_box(0..1_000_000).sum();
        assert!(std::hint::black_box(sum) > 0 && cpu_time() > before);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn others_see_the_same_cpu_time() {
        let seen = cpu_time_of(process::id()).unwrap();
        assert!(cpu_time() + Duration::from_millis(50) >= seen, "{seen:?}");
        assert_eq!(cpu_time_of(u32::MAX), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_peak_is_no_lower_than_what_is_in_use() {
        assert!(peak_rss_bytes().unwrap() >= rss_bytes().unwrap() / 2);
    }
}
