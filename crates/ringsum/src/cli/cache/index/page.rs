//! Rows read ahead, and look-ups in them.

use super::Record;
use super::rows::Rows;

/// All rows from one path on, up to the last one or to the end of the table.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) from: Vec<u8>,
    pub(super) rows: Rows,
    /// Whether no row comes after these.
    pub(super) is_last: bool,
    /// Number of look-ups it has answered.
    pub(super) hits: usize,
    /// The row after the one found last, which is usually looked up next.
    pub(super) next: usize,
}

impl Page {
    pub(super) fn covers(&self, path: &[u8]) -> bool {
        let is_within = || self.rows.last_path().is_some_and(|last| path <= last);
        self.is_next(path) || self.from.as_slice() <= path && (self.is_last || is_within())
    }

    pub(super) fn find(&mut self, path: &[u8]) -> Option<&Record> {
        self.hits += 1;
        let at = match self.is_next(path) {
            true => self.next,
            false => self.rows.search(path)?,
        };
        self.next = at + 1;
        self.rows.record(at)
    }

    /// The next row before `path`, if there is one.
    pub(super) fn pass(&mut self, path: &[u8]) -> Option<&[u8]> {
        let passed = self.rows.path(self.next).filter(|row| *row < path)?;
        self.next += 1;
        Some(passed)
    }

    /// The number of rows to read next: twice as many if at least half of this page was looked up.
    pub(super) fn next_rows(&self) -> usize {
        let rows = self.rows.len();
        match self.hits * 2 >= rows {
            true => (rows * 2).clamp(PAGE_ROWS_MIN, PAGE_ROWS_MAX),
            false => PAGE_ROWS_MIN,
        }
    }

    /// Whether the row after the one found last is that of `path`. (A search for each path was 9 %
    /// of the time of the thread that looks up, this is 3 %: 130,244 paths in order.)
    fn is_next(&self, path: &[u8]) -> bool {
        self.rows.path(self.next) == Some(path)
    }
}

/// Rows of the largest page. 130,244 ordered gets took 132 ms at 128 rows, 125 ms at 512, 117 ms at
/// 1024 and no less beyond.
pub(super) const PAGE_ROWS_MAX: usize = 1024;

/// Rows of the first page, and of one that follows a page with few look-ups. Gets in random order
/// took 22 us each at 1 row, 27 us at 8, 43 us at 32; with 1, every page would count as used.
pub(super) const PAGE_ROWS_MIN: usize = 8;
