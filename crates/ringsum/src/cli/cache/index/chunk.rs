//! The rows that were read ahead, and what they say of a path.

use super::Record;
use super::rows::Rows;

/// All rows from one path on, to the last of them or to the end.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) from: Vec<u8>,
    pub(super) rows: Rows,
    /// No row comes after these.
    pub(super) is_last: bool,
    /// How often it had the answer.
    pub(super) asked: usize,
    /// The row after the one that was found last: the one that is asked for next, as a rule.
    pub(super) next: usize,
}

impl Chunk {
    pub(super) fn covers(&self, path: &[u8]) -> bool {
        let is_within = || self.rows.last_path().is_some_and(|last| path <= last);
        self.is_next(path) || self.from.as_slice() <= path && (self.is_last || is_within())
    }

    pub(super) fn find(&mut self, path: &[u8]) -> Option<&Record> {
        let at = match self.is_next(path) {
            true => self.next,
            false => self.rows.search(path)?,
        };
        self.next = at + 1;
        self.rows.record(at)
    }

    /// Whether there is a row between two paths, if that is known.
    pub(super) fn has_between(&self, low: &[u8], high: &[u8]) -> Option<bool> {
        let before = self.next.checked_sub(1).and_then(|before| self.rows.path(before));
        if before == Some(low) && self.is_next(high) {
            return Some(false);
        }
        if !self.covers(low) || !self.covers(high) {
            return None;
        }
        Some(self.rows.path(self.rows.after(low)).is_some_and(|next| next < high))
    }

    /// Whether the row after the one that was found last is that of `path`. (Searching for each was 9 % of the time of
    /// the thread that looks up, this is 3 %: 130,244 paths in order.)
    fn is_next(&self, path: &[u8]) -> bool {
        self.rows.path(self.next) == Some(path)
    }
}
