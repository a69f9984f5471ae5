//! A bound on bytes per second that runs share.

use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A bound on bytes per second. Its clones share it, and so do all runs whose
/// [`Config`](crate::Config) has one of them.
///
/// Reads are spread evenly: each may begin when what was read before it has taken its time. Nothing is
/// saved up while nothing is read.
#[derive(Debug, Clone)]
pub struct RateLimit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes_per_s: NonZero<u64>,
    /// When the next read may begin.
    next: Mutex<Instant>,
}

/// A wait is cut into pieces of this length, so that a run that was given up ends.
const NAP: Duration = Duration::from_millis(50);

impl RateLimit {
    /// At most so many bytes per second.
    pub fn new(bytes_per_s: NonZero<u64>) -> RateLimit {
        RateLimit(Arc::new(Shared { bytes_per_s, next: Mutex::new(Instant::now()) }))
    }

    /// The bound, in bytes per second.
    pub fn bytes_per_s(&self) -> NonZero<u64> {
        self.0.bytes_per_s
    }

    /// Waits until a read of `bytes` may begin, or until `is_over`.
    pub(crate) fn wait(&self, bytes: u64, is_over: impl Fn() -> bool) {
        let begin = self.reserve(bytes, Instant::now());
        loop {
            let left = begin.saturating_duration_since(Instant::now());
            if left.is_zero() || is_over() {
                return;
            }
            thread::sleep(left.min(NAP));
        }
    }

    /// When a read of `bytes`, asked for at `now`, may begin; the next one must wait for its end.
    fn reserve(&self, bytes: u64, now: Instant) -> Instant {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.0.bytes_per_s.get());
        let time = Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX));
        let mut next = self.0.next.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = (*next).max(now);
        *next = begin.checked_add(time).unwrap_or(begin);
        begin
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
        assert_eq!(limit.reserve(500, start), start);
        assert_eq!(shared.reserve(500, start + ms(100)), start + ms(500));
        // A pause is lost.
        assert_eq!(limit.reserve(1, start + ms(5000)), start + ms(5000));
        assert_eq!(limit.reserve(1, start + ms(5000)), start + ms(5001));
    }

    #[test]
    fn a_run_that_is_over_does_not_wait() {
        let limit = RateLimit::new(NonZero::new(1).unwrap());
        limit.wait(1 << 40, || false);
        limit.wait(1, || true);
        limit.wait(u64::MAX, || true);
    }
}
