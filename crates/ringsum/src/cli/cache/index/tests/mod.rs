//! Tests of the index: what it stores, and the faults that it survives.

mod faults;
mod memory;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;

/// Longer than other processes lock an index in these tests.
pub(super) const WAIT: std::time::Duration = std::time::Duration::from_secs(30);

/// Looks up a row, however long another process or thread locks the index.
pub(super) fn get_patiently(index: &mut Index, path: &[u8]) -> Option<Record> {
    loop {
        match index.get(path) {
            Err(IndexError::Busy(..)) => index.locked_until = None,
            found => return found.unwrap(),
        }
    }
}

/// A number that looks random and depends on `seed` alone.
pub(super) fn number(seed: u64) -> u64 {
    let hash = blake3::hash(&seed.to_le_bytes());
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().unwrap())
}

pub(super) fn record(seed: u64) -> Record {
    let metadata = Metadata {
        file_system: number(seed ^ 1 << 60),
        inode: seed,
        size: seed * 1000,
        mtime_ns: 1_700_000_000_000_000_000 + seed as i64,
        ctime_ns: -(seed as i64),
    };
    Record { metadata, hash: *blake3::hash(&seed.to_le_bytes()).as_bytes() }
}

/// The path of row `i`, in ascending order.
pub(super) fn path_of(i: u64) -> Vec<u8> {
    format!("/home/somebody/directory {:03}/file number {i:08}", i / 100).into_bytes()
}

/// An index of rows 0 to `rows`.
pub(super) fn filled(path: &Path, rows: u64) -> Index {
    let mut index = Index::open(path).unwrap();
    for i in 0..rows {
        index.put(&path_of(i), record(i)).unwrap();
    }
    index.flush(WAIT).unwrap();
    index
}

pub(super) fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("index");
    (directory, path)
}

/// All files of a directory with their contents.
pub(super) fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

pub(super) fn integrity(path: &Path) -> String {
    let database = Connection::open(path).unwrap();
    database.pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap()
}
