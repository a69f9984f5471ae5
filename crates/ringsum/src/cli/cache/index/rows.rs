//! Rows of the index, many at a time, and their checksums.

use std::iter;
use std::ops::Range;

use ringsum::{Mode, MultiBuffer};

use super::Record;

/// Rows whose checksums are computed together: enough to fill the SIMD lanes of a processor several
/// times, in 10 KiB. (One row at a time was 9 % of the time of the thread that looks up, this is 1
/// %: 130,244 paths in order.)
const CHECKED_TOGETHER: usize = 64;

/// Rows in the order of their paths, which are stored contiguously.
#[derive(Debug, Default)]
pub(super) struct Rows {
    paths: Vec<u8>,
    rows: Vec<Stored>,
}

/// A row.
#[derive(Debug)]
struct Stored {
    /// Range of its path in `Rows::paths`.
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

    /// Returns the position of the row of `path`.
    pub(super) fn search(&self, path: &[u8]) -> Option<usize> {
        self.rows.binary_search_by(|row| self.path_of(row).cmp(path)).ok()
    }

    /// Whether each path comes after the one before it.
    pub(super) fn are_in_order(&self) -> bool {
        self.rows.is_sorted_by(|a, b| self.path_of(a) < self.path_of(b))
    }

    /// The path of the first row that does not match its checksum.
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

/// The checksum of a row: 8 bytes of the BLAKE3 of its contents.
pub(super) fn check(path: &[u8], record: &Record) -> i64 {
    let mut bytes = Vec::with_capacity(256);
    push_checked(path, record, &mut bytes);
    check_of(&blake3::hash(&bytes))
}

pub(super) fn check_of(hash: &blake3::Hash) -> i64 {
    hash.as_bytes().first_chunk().map_or(0, |first| i64::from_le_bytes(*first))
}

/// Appends the contents of a row to `bytes`.
fn push_checked(path: &[u8], record: &Record, bytes: &mut Vec<u8>) {
    let Record { metadata, hash } = record;
    bytes.extend_from_slice(b"ringsum index row 1\0");
    for column in metadata.columns() {
        bytes.extend_from_slice(&column.to_le_bytes());
    }
    bytes.extend_from_slice(hash);
    // (Last, because its length varies.)
    bytes.extend_from_slice(path);
}
