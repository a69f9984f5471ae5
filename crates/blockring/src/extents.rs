//! The extents of one source, dealt out once each, in order, to any number of threads.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// `(offset, len)`: one read to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Place in the list, from 0.
    pub(crate) index: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

/// A range of a source cut into blocks, and how far it has been dealt out.
#[derive(Debug)]
pub(crate) struct Extents {
    range: Range<u64>,
    block_bytes: u32,
    next: AtomicU64,
}

impl Extents {
    pub(crate) fn new(range: Range<u64>, block_bytes: u32) -> Extents {
        Extents { range, block_bytes, next: AtomicU64::new(0) }
    }

    /// The next extent; `None` when all were dealt out, or after [`stop`](Extents::stop).
    pub(crate) fn claim(&self) -> Option<Extent> {
        // One counter, so that whoever asks, the device sees one ascending sequence.
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let start = index.checked_mul(self.block_bytes.into())?.checked_add(self.range.start)?;
        if start >= self.range.end {
            self.stop();
            return None;
        }
        let len = u64::from(self.block_bytes).min(self.range.end - start) as u32;
        Some(Extent { index, offset: start, len })
    }

    /// Deals out nothing more.
    pub(crate) fn stop(&self) {
        // Far past any end, and far from wrapping around.
        self.next.store(u64::MAX / 2, Ordering::Relaxed);
    }

    /// Whether nothing was dealt out yet, and nothing stopped.
    pub(crate) fn is_untouched(&self) -> bool {
        self.next.load(Ordering::Relaxed) == 0
    }

    /// Extents not dealt out yet.
    pub(crate) fn left(&self) -> u64 {
        let all = (self.range.end - self.range.start).div_ceil(self.block_bytes.into());
        all.saturating_sub(self.next.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_dealt_out_once() {
        let extents = Extents::new(1000..3500, 1000);
        assert_eq!(extents.left(), 3);
        assert!(extents.is_untouched());
        let all: Vec<_> = std::iter::from_fn(|| extents.claim()).collect();
        let expected = [(0, 1000, 1000), (1, 2000, 1000), (2, 3000, 500)];
        let expected = expected.map(|(index, offset, len)| Extent { index, offset, len });
        assert_eq!(all, expected);
        assert_eq!((extents.left(), extents.claim()), (0, None));
    }

    #[test]
    fn the_largest_offsets_do_not_wrap() {
        let extents = Extents::new(u64::MAX - 600..u64::MAX, 512);
        let lens: Vec<_> = std::iter::from_fn(|| extents.claim()).map(|e| e.len).collect();
        assert_eq!(lens, [512, 88]);
    }

    #[test]
    fn after_a_stop_nothing_is_dealt_out() {
        let extents = Extents::new(0..10_000, 1000);
        extents.claim();
        extents.stop();
        assert_eq!((extents.claim(), extents.left()), (None, 0));
        assert!(!extents.is_untouched());
    }
}
