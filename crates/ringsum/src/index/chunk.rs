//! The rows that were read ahead, and what they say of a path.

use super::Record;

/// A row as it was read.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) path: Vec<u8>,
    pub(super) record: Record,
    pub(super) check: i64,
}

/// All rows from one path on, to the last of them or to the end.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) from: Vec<u8>,
    pub(super) rows: Vec<Stored>,
    /// No row comes after these.
    pub(super) is_last: bool,
    /// How often it had the answer.
    pub(super) asked: usize,
}

impl Chunk {
    pub(super) fn covers(&self, path: &[u8]) -> bool {
        let is_within = self.rows.last().is_some_and(|row| path <= row.path.as_slice());
        self.from.as_slice() <= path && (self.is_last || is_within)
    }

    pub(super) fn find(&self, path: &[u8]) -> Option<&Record> {
        let at = self.rows.binary_search_by(|row| row.path.as_slice().cmp(path)).ok()?;
        self.rows.get(at).map(|row| &row.record)
    }

    /// Whether there is a row between two paths, if that is known.
    pub(super) fn has_between(&self, low: &[u8], high: &[u8]) -> Option<bool> {
        if !self.covers(low) || !self.covers(high) {
            return None;
        }
        let next = self.rows.partition_point(|row| row.path.as_slice() <= low);
        Some(self.rows.get(next).is_some_and(|row| row.path.as_slice() < high))
    }
}
