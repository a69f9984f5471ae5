//! The extents of one source, assigned once each, in order, to any number of threads: blocks of a
//! range, or a list.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// One read to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexedExtent {
    /// Position in the sequence, from 0.
    pub(crate) index: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

/// The extents to read, and how many have been assigned.
#[derive(Debug)]
pub(crate) struct Extents {
    layout: Layout,
    next: AtomicU64,
}

/// Value of `next` after a stop: far past any end, and far from wrapping around.
const STOPPED: u64 = u64::MAX / 2;

#[derive(Debug)]
enum Layout {
    /// A range, in blocks of this many bytes.
    Range(Range<u64>, u32),
    /// The blocks of several ranges of one range, which starts here; each with the number of blocks
    /// before it.
    Ranges { parts: Vec<(u64, Range<u64>)>, origin: u64, block_bytes: u32 },
    /// One by one.
    List(Vec<IndexedExtent>),
}

impl Extents {
    pub(crate) fn new(range: Range<u64>, block_bytes: u32) -> Extents {
        Extents { layout: Layout::Range(range, block_bytes), next: AtomicU64::new(0) }
    }

    /// Creates extents in the order of `list`, with the caller's indexes.
    pub(crate) fn of_list(list: Vec<IndexedExtent>) -> Extents {
        Extents { layout: Layout::List(list), next: AtomicU64::new(0) }
    }

    /// Creates extents that are the blocks in `ranges`, of all the blocks from `origin` on. The
    /// ranges are sorted, and start at blocks.
    pub(crate) fn of_ranges(
        ranges: impl IntoIterator<Item = Range<u64>>,
        origin: u64,
        block_bytes: u32,
    ) -> Extents {
        let mut before = 0;
        let parts = ranges.into_iter().map(|range| {
            let blocks = (range.end - range.start).div_ceil(block_bytes.into());
            let part = (before, range);
            before += blocks;
            part
        });
        let layout = Layout::Ranges { parts: parts.collect(), origin, block_bytes };
        Extents { layout, next: AtomicU64::new(0) }
    }

    /// Assigns the next extent; `None` if there is none left, or after [`stop`](Extents::stop).
    pub(crate) fn claim(&self) -> Option<IndexedExtent> {
        // One counter for all threads, so that the device sees one ascending sequence.
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        match &self.layout {
            Layout::Range(range, block_bytes) => block(range, *block_bytes, index),
            Layout::Ranges { parts, origin, block_bytes } => {
                let place = parts.partition_point(|(before, _)| *before <= index);
                let (before, range) = parts.get(place.checked_sub(1)?)?;
                let found = block(range, *block_bytes, index - before)?;
                let index = (found.offset - origin) / u64::from(*block_bytes);
                Some(IndexedExtent { index, ..found })
            }
            Layout::List(list) => list.get(usize::try_from(index).unwrap_or(usize::MAX)).copied(),
        }
    }

    /// Assigns no more extents.
    pub(crate) fn stop(&self) {
        self.next.store(STOPPED, Ordering::Relaxed);
    }

    /// Whether no extent has been assigned, and `stop` was not called.
    pub(crate) fn is_untouched(&self) -> bool {
        self.next.load(Ordering::Relaxed) == 0
    }

    /// Returns the number of extents not assigned yet.
    pub(crate) fn left(&self) -> u64 {
        let all = match &self.layout {
            Layout::Range(range, block_bytes) => {
                (range.end - range.start).div_ceil((*block_bytes).into())
            }
            Layout::Ranges { parts, block_bytes, .. } => {
                parts.last().map_or(0, |(before, range)| {
                    before + (range.end - range.start).div_ceil((*block_bytes).into())
                })
            }
            Layout::List(list) => list.len() as u64,
        };
        all.saturating_sub(self.next.load(Ordering::Relaxed))
    }
}

/// Returns the block at `index` of a range.
fn block(range: &Range<u64>, block_bytes: u32, index: u64) -> Option<IndexedExtent> {
    let offset = index.checked_mul(block_bytes.into())?.checked_add(range.start)?;
    let left = range.end.checked_sub(offset).filter(|left| *left > 0)?;
    Some(IndexedExtent { index, offset, len: left.min(block_bytes.into()) as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_handed_out_once() {
        let extents = Extents::new(1000..3500, 1000);
        assert_eq!(extents.left(), 3);
        assert!(extents.is_untouched());
        let all: Vec<_> = std::iter::from_fn(|| extents.claim()).collect();
        let expected = [(0, 1000, 1000), (1, 2000, 1000), (2, 3000, 500)];
        let expected = expected.map(|(index, offset, len)| IndexedExtent { index, offset, len });
        assert_eq!(all, expected);
        assert_eq!((extents.left(), extents.claim()), (0, None));
    }

    #[test]
    fn ranges_have_the_indexes_of_their_blocks() {
        let extents = Extents::of_ranges([100..130, 150..155, 170..175], 100, 10);
        assert_eq!(extents.left(), 5);
        let all: Vec<_> = std::iter::from_fn(|| extents.claim()).collect();
        let expected = [(0, 100, 10), (1, 110, 10), (2, 120, 10), (5, 150, 5), (7, 170, 5)];
        let expected = expected.map(|(index, offset, len)| IndexedExtent { index, offset, len });
        assert_eq!(all, expected);
        assert_eq!((extents.left(), extents.claim()), (0, None));
        let none = Extents::of_ranges([], 0, 10);
        assert_eq!((none.left(), none.claim()), (0, None));
    }

    #[test]
    fn the_largest_offsets_do_not_wrap() {
        let extents = Extents::new(u64::MAX - 600..u64::MAX, 512);
        let lens: Vec<_> = std::iter::from_fn(|| extents.claim()).map(|e| e.len).collect();
        assert_eq!(lens, [512, 88]);
    }

    #[test]
    fn a_list_is_handed_out_in_its_order() {
        let list = [(7, 4096, 10), (3, 0, 5)];
        let list = list.map(|(index, offset, len)| IndexedExtent { index, offset, len });
        let extents = Extents::of_list(list.to_vec());
        assert_eq!(extents.left(), 2);
        assert!(std::iter::from_fn(|| extents.claim()).eq(list));
        assert_eq!((extents.left(), extents.claim()), (0, None));
    }

    #[test]
    fn after_a_stop_nothing_is_handed_out() {
        let extents = Extents::new(0..10_000, 1000);
        extents.claim();
        extents.stop();
        assert_eq!((extents.claim(), extents.left()), (None, 0));
        assert!(!extents.is_untouched());
    }
}
