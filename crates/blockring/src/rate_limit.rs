//! A limit on bytes per second, shared by runs.

use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::lock;

/// A limit on bytes per second. It is shared by its clones, and by all runs whose
/// [`Config`](crate::Config) holds one of them.
///
/// Reads are spaced evenly: each may begin once the reads before it have used up their time. A read
/// that is up to 50 ms late does not delay the next one; idle time is not accumulated.
#[derive(Debug, Clone)]
pub struct RateLimit(Arc<Schedule>);

#[derive(Debug)]
struct Schedule {
    bytes_per_s: NonZero<u64>,
    /// Earliest time for the next read.
    next: Mutex<Instant>,
}

/// Longest single sleep, so that a stopped run ends soon.
const NAP: Duration = Duration::from_millis(50);

/// How late a read may be without delaying the next one. Without this allowance, 1 GiB at 1 GiB/s
/// took 1.2 s, because a thread that sleeps until its read may begin wakes a little later.
const CATCH_UP: Duration = Duration::from_millis(50);

impl RateLimit {
    /// Creates a limit of this many bytes per second.
    pub fn new(bytes_per_s: NonZero<u64>) -> RateLimit {
        RateLimit(Arc::new(Schedule { bytes_per_s, next: Mutex::new(Instant::now()) }))
    }

    /// Returns the limit in bytes per second.
    pub(crate) fn bytes_per_s(&self) -> NonZero<u64> {
        self.0.bytes_per_s
    }

    /// Returns the time until the next read may begin.
    pub(crate) fn due_in(&self) -> Duration {
        self.next().saturating_duration_since(Instant::now())
    }

    /// Sleeps until the next read may begin, but at most 50 ms.
    pub(crate) fn nap(&self) {
        thread::sleep(self.due_in().min(NAP));
    }

    /// Charges a read of `bytes` that begins now.
    pub(crate) fn charge(&self, bytes: u64) {
        self.charge_at(bytes, Instant::now());
    }

    fn charge_at(&self, bytes: u64, now: Instant) {
        let mut next = self.next();
        let begin = (*next).max(now.checked_sub(CATCH_UP).unwrap_or(now));
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.0.bytes_per_s.get());
        let time = Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX));
        *next = begin.checked_add(time).unwrap_or(begin);
    }

    fn next(&self) -> MutexGuard<'_, Instant> {
        lock(&self.0.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_spread_evenly_and_nothing_is_saved_up() {
        let limit = RateLimit::new(NonZero::new(1000).unwrap());
        let shared = limit.clone();
        let start = Instant::now();
        let ms = |n| Duration::from_millis(n);
        *limit.next() = start;
        limit.charge_at(500, start);
        assert_eq!(*limit.next(), start + ms(500));
        shared.charge_at(500, start + ms(100));
        assert_eq!(*limit.next(), start + ms(1000));
        // A short delay is caught up, a pause is lost.
        limit.charge_at(500, start + ms(1030));
        assert_eq!(*limit.next(), start + ms(1500));
        limit.charge_at(1, start + ms(5050));
        assert_eq!(*limit.next(), start + ms(5001));
        limit.charge_at(100, start);
        assert_eq!(*limit.next(), start + ms(5101));
    }

    #[test]
    fn no_number_overflows() {
        let limit = RateLimit::new(NonZero::new(1).unwrap());
        limit.charge(u64::MAX);
        limit.charge(u64::MAX);
        assert!(limit.due_in() > Duration::ZERO);
    }
}
