//! How many requests to keep in flight, found while reading: the built-in depth was best on one
//! machine (AMD EPYC), twice as many by 9 % on another (Intel Xeon). Pure, except for the clock that
//! the caller passes in.
//!
//! Two depths take turns, the current one and another, for three spans each. The other becomes the
//! current one if it took clearly less time for the same bytes. First deeper ones are tried, then,
//! if none was better, a shallower one.

use std::time::{Duration, Instant};

/// Bytes that are timed with one depth before the turn of the other.
const SPAN_BYTES: u64 = 32 << 20;

/// Spans with each depth.
const ROUNDS: u32 = 3;

/// How much less time the other depth must take: less may be noise.
const ADVANTAGE: f64 = 0.96;

/// Bytes after which the search starts again.
const AGAIN_AFTER_BYTES: u64 = 8 << 30;

/// A search for the best depth.
#[derive(Debug)]
pub(crate) struct DepthSearch {
    current: u32,
    /// The depth that is compared with it; `None` until the search starts again.
    other: Option<u32>,
    max: u32,
    is_others_turn: bool,
    /// Blocks to pass before timing: those requested with the depth of the last turn.
    skip: u32,
    bytes: u64,
    since: Option<Instant>,
    /// Spans timed so far, and their time with the current and with the other depth.
    spans: u32,
    times: [Duration; 2],
    has_risen: bool,
}

impl DepthSearch {
    /// Starts at `depth`, and never goes above `max`; `None` if there is nothing to search.
    pub(crate) fn new(depth: u32, max: u32) -> Option<DepthSearch> {
        (depth < max).then(|| DepthSearch {
            current: depth,
            other: deeper(depth, max),
            max,
            is_others_turn: false,
            skip: depth,
            bytes: 0,
            since: None,
            spans: 0,
            times: [Duration::ZERO; 2],
            has_risen: false,
        })
    }

    /// Counts a consumed block. Returns the depth from now on, if it changes.
    pub(crate) fn consumed(&mut self, bytes: u32, now: impl FnOnce() -> Instant) -> Option<u32> {
        let Some(other) = self.other else {
            self.bytes += u64::from(bytes);
            if self.bytes >= AGAIN_AFTER_BYTES {
                (self.bytes, self.has_risen) = (0, false);
                self.other = deeper(self.current, self.max).or_else(|| shallower(self.current));
            }
            return None;
        };
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.bytes += u64::from(bytes);
        let since = match self.since {
            Some(_) if self.bytes < SPAN_BYTES => return None,
            Some(since) => since,
            None => {
                (self.since, self.bytes) = (Some(now()), 0);
                return None;
            }
        };
        self.times[usize::from(self.is_others_turn)] += now().duration_since(since);
        (self.since, self.bytes) = (None, 0);
        self.spans += 1;
        let before = if self.is_others_turn { other } else { self.current };
        self.is_others_turn = !self.is_others_turn;
        if self.spans == 2 * ROUNDS {
            self.decide(other);
        }
        let after = match self.other {
            Some(other) if self.is_others_turn => other,
            _ => self.current,
        };
        self.skip = before.max(after);
        (after != before).then_some(after)
    }

    fn decide(&mut self, other: u32) {
        let [current_time, other_time] = self.times;
        let is_better = other_time.as_secs_f64() < current_time.as_secs_f64() * ADVANTAGE;
        let is_deeper = other > self.current;
        self.other = match is_better {
            true => {
                self.current = other;
                self.has_risen |= is_deeper;
                if is_deeper { deeper(other, self.max) } else { shallower(other) }
            }
            false if is_deeper && !self.has_risen => shallower(self.current),
            false => None,
        };
        (self.spans, self.times, self.is_others_turn) = (0, [Duration::ZERO; 2], false);
    }
}

fn deeper(depth: u32, max: u32) -> Option<u32> {
    (depth * 2 <= max).then_some(depth * 2)
}

fn shallower(depth: u32) -> Option<u32> {
    // With fewer, the device waits for every block that is consumed.
    (depth >= 8).then_some(depth / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `gib` GiB from a device with a rate at each depth; returns the last depth.
    fn search(gib: u64, rate: impl Fn(u32) -> f64) -> u32 {
        let mut search = DepthSearch::new(16, 64).unwrap();
        let (mut now, mut depth, block) = (Instant::now(), 16, 512_u32 << 10);
        for _ in 0..(gib << 30) / u64::from(block) {
            now += Duration::from_secs_f64(f64::from(block) / rate(depth));
            if let Some(next) = search.consumed(block, || now) {
                assert!((4..=64).contains(&next));
                depth = next;
            }
        }
        depth
    }

    #[test]
    fn the_depth_with_the_highest_rate_is_found_within_a_few_gib() {
        for best in [8_u32, 16, 32, 64] {
            let rate =
                |depth: u32| 3e9 / (1.0 + 0.1 * (f64::from(depth) / f64::from(best)).log2().abs());
            assert_eq!(search(4, rate), best);
        }
    }

    #[test]
    fn a_device_that_does_not_care_stays_at_the_depth_it_started_with() {
        assert_eq!(search(4, |_| 3e9), 16);
        assert_eq!(search(4, |depth| 3e9 + f64::from(depth) * 1e6), 16);
    }

    #[test]
    fn a_device_that_changes_is_searched_again() {
        let count = std::cell::Cell::new(0_u64);
        let depth = search(20, |depth| {
            count.set(count.get() + 1);
            let prefers_deep = count.get() * (512 << 10) > 4 << 30;
            if prefers_deep == (depth >= 32) { 3e9 } else { 2e9 }
        });
        assert!(depth >= 32, "{depth}");
    }

    #[test]
    fn nothing_is_searched_without_room() {
        assert!(DepthSearch::new(16, 16).is_none());
    }
}
