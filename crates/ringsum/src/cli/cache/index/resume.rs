//! Chaining values of files whose hashing was interrupted: a table of its own in the index.
//!
//! Each row stands alone: it has the metadata of its file, and a checksum. A row that does not match
//! them is not used; its bytes are then read again. Releases that do not know this table ignore it.

use std::time::Duration;

use rusqlite::{OptionalExtension, params};

use super::error::explain;
use super::rows::check_of;
use super::{Index, IndexError, Metadata, WRITING, begin};
use crate::cli::lock;

const CREATE: &str = "CREATE TABLE IF NOT EXISTS resume (path BLOB NOT NULL, \
     start INTEGER NOT NULL, len INTEGER NOT NULL, file_system INTEGER NOT NULL, \
     inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, \
     ctime_ns INTEGER NOT NULL, value BLOB NOT NULL, row_check INTEGER NOT NULL, \
     PRIMARY KEY (path, start)) WITHOUT ROWID, STRICT";
const EXISTS: &str = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'resume'";
const GET: &str = "SELECT start, value, row_check FROM resume WHERE path = ?1 AND len = ?2 AND \
     file_system = ?3 AND inode = ?4 AND size = ?5 AND mtime_ns = ?6 AND ctime_ns = ?7 \
     ORDER BY start";
const PUT: &str = "REPLACE INTO resume (path, start, len, file_system, inode, size, mtime_ns, \
     ctime_ns, value, row_check) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
const REMOVE: &str = "DELETE FROM resume WHERE path = ?1";

/// The chaining value of a subtree of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredSubtree {
    /// The file's metadata when it was read.
    pub(crate) metadata: Metadata,
    /// In bytes.
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) value: [u8; 32],
}

impl StoredSubtree {
    fn check(&self, path: &[u8]) -> i64 {
        let StoredSubtree { metadata, start, len, value } = self;
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"ringsum index resume 1\0");
        hasher.update(&start.to_le_bytes()).update(&len.to_le_bytes());
        for column in metadata.columns() {
            hasher.update(&column.to_le_bytes());
        }
        check_of(&hasher.update(value).update(path).finalize())
    }
}

/// A change of the table.
#[derive(Debug)]
pub(crate) enum ResumeChange {
    Put(StoredSubtree),
    /// Removes all values of the file.
    Remove,
}

impl Index {
    /// Returns the values of the file at `path` that were stored with this metadata, for subtrees
    /// of `len` bytes, in order.
    pub(crate) fn subtrees(
        &mut self,
        path: &[u8],
        metadata: Metadata,
        len: u64,
    ) -> Result<Vec<StoredSubtree>, IndexError> {
        self.prepare()?;
        let fail = |error| explain(&self.path, "read", error);
        if self.database.query_row(EXISTS, [], |_| Ok(())).optional().map_err(fail)?.is_none() {
            return Ok(Vec::new());
        }
        let mut statement = self.database.prepare_cached(GET).map_err(fail)?;
        let [file_system, inode, size, mtime, ctime] = metadata.columns();
        let key = params![path, len.cast_signed(), file_system, inode, size, mtime, ctime];
        let rows = statement.query_map(key, |row| {
            let start = row.get::<_, i64>(0)?.cast_unsigned();
            let stored = StoredSubtree { metadata, start, len, value: row.get(1)? };
            Ok((row.get::<_, i64>(2)? == stored.check(path)).then_some(stored))
        });
        let rows: Result<Vec<_>, _> = rows.and_then(Iterator::collect);
        Ok(rows.map_err(fail)?.into_iter().flatten().collect())
    }

    /// Changes the table, in one transaction. Waits up to `wait` for another process.
    pub(crate) fn change_subtrees(
        &mut self,
        changes: &[(Vec<u8>, ResumeChange)],
        wait: Duration,
    ) -> Result<(), IndexError> {
        let _writing = lock(&WRITING);
        self.prepare()?;
        let write = || {
            self.database.busy_timeout(wait)?;
            let transaction = begin(&self.database)?;
            transaction.execute_batch(CREATE)?;
            for (path, change) in changes {
                match change {
                    ResumeChange::Remove => transaction.execute(REMOVE, [path])?,
                    ResumeChange::Put(stored) => {
                        let [file_system, inode, size, mtime, ctime] = stored.metadata.columns();
                        transaction.prepare_cached(PUT)?.execute(params![
                            path,
                            stored.start.cast_signed(),
                            stored.len.cast_signed(),
                            file_system,
                            inode,
                            size,
                            mtime,
                            ctime,
                            stored.value,
                            stored.check(path),
                        ])?
                    }
                };
            }
            transaction.commit()
        };
        write().map_err(|error| explain(&self.path, "write", error))
    }
}
