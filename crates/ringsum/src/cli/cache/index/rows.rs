//! Rows as they are read, some thousand at a time, and what each is checked by.

use std::cmp::Ordering;
use std::iter;
use std::ops::Range;

use ringsum::{Mode, MultiBuffer};

use super::Record;

/// Rows that are hashed side by side to be checked: they fill the lanes of a processor some times over, in 10 KiB. (One
/// after another was 9 % of the time of the thread that looks up, this is 1 %: 130,244 paths in order.)
const CHECKED_TOGETHER: usize = 64;

/// Rows in the order of their paths, which lie behind each other: none needs memory of its own.
#[derive(Debug, Default)]
pub(super) struct Rows {
    paths: Vec<u8>,
    rows: Vec<Stored>,
}

/// A row.
#[derive(Debug)]
struct Stored {
    /// Where its path is.
    path: Range<usize>,
    record: Record,
    check: i64,
}

impl Rows {
    pub(super) fn push(&mut self, path: &[u8], record: Record, check: i64) {
        let start = self.paths.len();
        self.paths.extend_from_slice(path);
        self.rows.push(Stored { path: start..self.paths.len(), record, check });
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn path(&self, at: usize) -> Option<&[u8]> {
        self.rows.get(at).map(|row| self.path_of(row))
    }

    pub(super) fn last_path(&self) -> Option<&[u8]> {
        self.rows.last().map(|row| self.path_of(row))
    }

    pub(super) fn record(&self, at: usize) -> Option<&Record> {
        self.rows.get(at).map(|row| &row.record)
    }

    /// The place of the row of `path`.
    pub(super) fn search(&self, path: &[u8]) -> Option<usize> {
        self.rows.binary_search_by(|row| self.path_of(row).cmp(path)).ok()
    }

    /// The place of the first row after `path`.
    pub(super) fn after(&self, path: &[u8]) -> usize {
        self.rows.partition_point(|row| self.path_of(row).cmp(path) != Ordering::Greater)
    }

    /// Whether each path comes after the one before it.
    pub(super) fn are_in_order(&self) -> bool {
        self.rows.is_sorted_by(|a, b| self.path_of(a) < self.path_of(b))
    }

    /// The path of the first row that is not what was written.
    pub(super) fn first_damaged(&self) -> Option<&[u8]> {
        let hasher = MultiBuffer::new(&Mode::Hash);
        let mut bytes = Vec::new();
        let damaged = self.rows.chunks(CHECKED_TOGETHER).find_map(|rows| {
            bytes.clear();
            let mut end_of = |row: &Stored| {
                push_checked(self.path_of(row), &row.record, &mut bytes);
                bytes.len()
            };
            let ends: Vec<_> = rows.iter().map(&mut end_of).collect();
            let starts = iter::once(0).chain(ends.iter().copied());
            let inputs: Vec<_> =
                starts.zip(&ends).map(|(start, &end)| &bytes[start..end]).collect();
            let hashes = hasher.hash(&inputs);
            rows.iter()
                .zip(&hashes)
                .find(|(row, hash)| row.check != check_of(hash))
                .map(|(row, _)| row)
        });
        damaged.map(|row| self.path_of(row))
    }

    fn path_of(&self, row: &Stored) -> &[u8] {
        &self.paths[row.path.clone()]
    }
}

/// What a row is checked by: 8 bytes of the BLAKE3 of all that is in it.
pub(super) fn check(path: &[u8], record: &Record) -> i64 {
    let mut bytes = Vec::with_capacity(256);
    push_checked(path, record, &mut bytes);
    check_of(&blake3::hash(&bytes))
}

fn check_of(hash: &blake3::Hash) -> i64 {
    hash.as_bytes().first_chunk().map_or(0, |first| i64::from_le_bytes(*first))
}

/// Puts all that is in a row at the end of `bytes`.
fn push_checked(path: &[u8], record: &Record, bytes: &mut Vec<u8>) {
    let Record { stamp, hash } = record;
    bytes.extend_from_slice(b"ringsum index row 1\0");
    for field in [stamp.file_system, stamp.inode, stamp.size] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    for field in [stamp.mtime_ns, stamp.ctime_ns] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.extend_from_slice(hash);
    // Last, as the only one of no fixed length.
    bytes.extend_from_slice(path);
}
