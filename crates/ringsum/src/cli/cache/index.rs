//! The index file: the hash of each file and its metadata at that time, kept from run to run in one
//! SQLite file. This module owns the format of that file and its safety; the caller decides whether
//! a record is still valid.
//!
//! **Why SQLite.** For 130,244 paths an ordered scan took 14 ms and the file 24 MB, against 42 ms
//! and 67 MB for redb 3. Single look-ups were slower (700 ms against 75 ms), so [`Index::get`]
//! reads ahead: one range query returns the next rows. Of 200 single bits flipped in a redb file, 8
//! made it panic, which ends a program that aborts on panics; SQLite returns errors.
//!
//! **Why a rollback journal and not a WAL.** Between transactions the index is one complete file:
//! it can be copied, and read from a directory that is not writable. A WAL needs memory shared with
//! a second file, which no network file system provides, writes even to be read, and leaves two
//! more files after a kill. The advantages of a WAL, fewer syncs and readers beside a writer, are
//! worth little here: a transaction has thousands of rows and ends within milliseconds, and none
//! stays open while files are read. SQLite rolls back an interrupted transaction at the next open.
//!
//! **Checks.** SQLite has no checksums, so each row has one: a record that does not match it is
//! [`IndexError::Damaged`]. A damaged page can still hide rows; their files are then read again.
//!
//! **Locks.** A read waits 100 ms for another process, and a write does not wait: changes stay in
//! memory, up to [`PENDING_ROWS_LIMIT`], and those beyond it are counted.

mod error;
mod page;
mod resume;
mod rows;
mod safety;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, Row, Transaction, TransactionBehavior, params};

pub(crate) use error::IndexError;
pub(crate) use resume::{ResumeChange, StoredSubtree};
pub(crate) use safety::{COMPANIONS, weakness};

use crate::cli::lock;
use error::{damaged, explain};
use page::{PAGE_ROWS_MIN, Page};
use rows::{Rows, check};

/// "rsum": marks a SQLite database as an index, in its header.
const APPLICATION_ID: i32 = 0x7273_756d;

/// The format version that is read and written; in the header as the user version.
const VERSION: i32 = 1;

/// Changes written in one transaction. Filling in 130,244 rows took 500 ms at 512 and 260 ms at
/// 8192 and at 65,536; one transaction, during which other processes wait, took 3, 15 and 100 ms.
const PENDING_ROWS_MAX: usize = 8192;

/// Most changes held in memory while another process has locked the index.
const PENDING_ROWS_LIMIT: usize = 4 * PENDING_ROWS_MAX;

/// How long a change is held to be written with others: the most that a killed run loses.
const PENDING_TIME_MAX: Duration = Duration::from_secs(5);

/// Most files of a tree that one run finds gone. Records of further files stay until a later run.
const GONE_MAX: usize = 1 << 16;

/// How long a read waits for another process.
const READ_WAIT: Duration = Duration::from_millis(100);

/// Pause of reads and writes after a read has timed out or a write has found a lock.
const LOCKED_TIME: Duration = Duration::from_secs(1);

/// Time in which a second write to a file may leave its ctime unchanged: the clock of a file system
/// ticks every 1 to 10 ms, that of FAT every 2 s.
const SETTLE_NS: i64 = 2_000_000_000;

/// Held while this process writes: the values of long files are written by another thread, through a
/// connection of its own, and must not look like another process that has locked the index.
static WRITING: Mutex<()> = Mutex::new(());

const CREATE: &str = "CREATE TABLE file (path BLOB PRIMARY KEY, file_system INTEGER NOT NULL, \
     inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, \
     ctime_ns INTEGER NOT NULL, hash BLOB NOT NULL, row_check INTEGER NOT NULL) \
     WITHOUT ROWID, STRICT";
const PAGE: &str = "SELECT path, file_system, inode, size, mtime_ns, ctime_ns, hash, row_check \
     FROM file WHERE path >= ?1 ORDER BY path LIMIT ?2";
const PUT: &str = "REPLACE INTO file (path, file_system, inode, size, mtime_ns, ctime_ns, hash, \
     row_check) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const REMOVE: &str = "DELETE FROM file WHERE path = ?1";

/// The metadata of a file that must be the same for its hash to be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Metadata {
    /// An id of the file system that survives a reboot.
    pub(crate) file_system: u64,
    pub(crate) inode: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// Nanoseconds since 1970, saturating (1677 to 2262).
    pub(crate) mtime_ns: i64,
    /// Nanoseconds since 1970, saturating.
    pub(crate) ctime_ns: i64,
}

impl Metadata {
    /// The values of its columns, in their order.
    fn columns(&self) -> [i64; 5] {
        let Metadata { file_system, inode, size, mtime_ns, ctime_ns } = *self;
        let [file_system, inode, size] = [file_system, inode, size].map(u64::cast_signed);
        [file_system, inode, size, mtime_ns, ctime_ns]
    }
}

/// The record of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// The file's metadata when it was read.
    pub(crate) metadata: Metadata,
    /// The hash of its contents.
    pub(crate) hash: [u8; 32],
}

/// The records of files by their paths, in a file.
///
/// Changes are written together, and those that are pending when the index is dropped are lost:
/// call [`Index::flush`] at the end.
#[derive(Debug)]
pub(crate) struct Index {
    /// As given on the command line.
    path: PathBuf,
    database: Connection,
    /// Whether the file was checked: it is not while another process has locked it.
    is_ready: bool,
    page: Option<Page>,
    tree: Option<TreeScan>,
    /// Changes not yet written; `None` removes.
    pending: BTreeMap<Vec<u8>, Option<Record>>,
    pending_since: Option<Instant>,
    /// Changes dropped for lack of room.
    unstored: u64,
    /// When to try again after the index was locked.
    locked_until: Option<Instant>,
}

/// A merge join of the files of a tree with the rows below its root, both in ascending order.
#[derive(Debug)]
struct TreeScan {
    /// `root/`: the prefix of all paths.
    prefix: Vec<u8>,
    page: Option<Page>,
    /// The file that was looked up last.
    last: Vec<u8>,
    /// Rows without a file.
    gone: Vec<Vec<u8>>,
}

impl Index {
    /// Opens the index at `path`, or creates it if there is no such file or an empty one. An index
    /// that cannot be written can be opened and read.
    ///
    /// # Errors
    ///
    /// All but [`IndexError::Busy`]. A file that is not an index, or a damaged one, is left as it
    /// is.
    pub(crate) fn open(path: &Path) -> Result<Index, IndexError> {
        let fail = |error| explain(path, "open", error);
        // (SQLite does not treat `:memory:` and `file:...` as file names.)
        let absolute = std::path::absolute(path);
        let absolute = absolute.map_err(|error| IndexError::Open(path.into(), error))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        safety::refuse_planted(path)?;
        match is_something(path)? {
            true => probe(path, &absolute)?,
            false => safety::make(path)?,
        }
        let database = Connection::open_with_flags(&absolute, flags).map_err(fail)?;
        database.busy_timeout(READ_WAIT).map_err(fail)?;
        // Finds some damage to a page before it is used.
        database.pragma_update(None, "cell_size_check", true).map_err(fail)?;
        database.pragma_update(None, "trusted_schema", false).map_err(fail)?;
        let mut index = Index {
            path: path.into(),
            database,
            is_ready: false,
            page: None,
            tree: None,
            pending: BTreeMap::new(),
            pending_since: None,
            unstored: 0,
            locked_until: None,
        };
        match index.prepare() {
            Ok(()) | Err(IndexError::Busy { .. }) => Ok(index),
            Err(error) => Err(error),
        }
    }

    /// Checks the file, once.
    fn prepare(&mut self) -> Result<(), IndexError> {
        if self.is_ready {
            return Ok(());
        }
        let (path, database) = (&*self.path, &self.database);
        let fail = |error| explain(path, "open", error);
        // (False also for an index whose creation was killed, which SQLite rolls back to nothing.
        // In one transaction, because another process may be creating it now.)
        let reading = database.unchecked_transaction().map_err(fail)?;
        let is_index = identify(path, &reading)?;
        if is_index && !is_whole(path, &reading).map_err(fail)? {
            return Err(damaged(path, "it is not as long as its header says".to_owned()));
        }
        reading.finish().map_err(fail)?;
        if !is_index {
            create(path, database)?;
        }
        for statement in [PAGE, PUT, REMOVE] {
            database.prepare_cached(statement).map_err(fail)?;
        }
        self.is_ready = true;
        Ok(())
    }

    /// Returns the record of the file at `path`: bytes, absolute.
    ///
    /// Correct in any order of calls, fast in ascending order. May miss changes by other processes.
    ///
    /// # Errors
    ///
    /// [`IndexError::Damaged`] also for damage to one of the next rows; [`IndexError::Busy`] after
    /// 100 ms, and immediately for the second after that.
    pub(crate) fn get(&mut self, path: &[u8]) -> Result<Option<Record>, IndexError> {
        if self.locked_until.is_some_and(|until| Instant::now() < until) {
            return Err(IndexError::Busy(self.path.clone(), "read"));
        }
        let found = self.prepare().and_then(|()| self.find(path));
        if let Err(IndexError::Busy(..)) = found {
            self.locked_until = Some(Instant::now() + LOCKED_TIME);
            // (Rows may be missed.)
            self.tree = None;
        }
        let found = found?;
        match self.pending.get(path) {
            Some(change) => Ok(change.clone()),
            None => Ok(found),
        }
    }

    fn find(&mut self, path: &[u8]) -> Result<Option<Record>, IndexError> {
        if let Some(mut tree) = self.tree.take()
            && path.starts_with(&tree.prefix)
            && path > &*tree.last
        {
            self.pass_up_to(&mut tree, path)?;
            let found = tree.page.as_mut().and_then(|page| page.find(path).cloned());
            tree.last = path.to_vec();
            self.tree = Some(tree);
            return Ok(found);
        }
        if !self.page.as_ref().is_some_and(|page| page.covers(path)) {
            let rows = match &self.page {
                Some(page) if path > page.from.as_slice() => page.next_rows(),
                _ => PAGE_ROWS_MIN,
            };
            self.page = None;
            self.page = Some(self.load(path.to_vec(), rows)?);
        }
        Ok(self.page.as_mut().and_then(|page| page.find(path).cloned()))
    }

    /// Starts a walk of the directory `root`, which looks up all files below it in ascending order.
    pub(crate) fn start_tree(&mut self, root: &[u8]) {
        let prefix = [root.strip_suffix(b"/").unwrap_or(root), b"/"].concat();
        let last = prefix.clone();
        self.tree = Some(TreeScan { prefix, page: None, last, gone: Vec::new() });
    }

    /// Ends the walk, by which time all files below its root were looked up, and removes the
    /// records of all others. Returns their number. Records that another process adds meanwhile may
    /// be removed too; their files are then read again.
    pub(crate) fn finish_tree(&mut self) -> Result<u64, IndexError> {
        let Some(mut tree) = self.tree.take() else { return Ok(0) };
        // The byte after the slash sorts after every path that starts with `root/`.
        let mut end = tree.prefix.clone();
        end.pop();
        end.push(b'0');
        self.pass_up_to(&mut tree, &end)?;
        let gone = tree.gone.len() as u64;
        tree.gone.into_iter().try_for_each(|path| self.change(path, None))?;
        Ok(gone)
    }

    /// Reads up to the row of `path`, or the next one, and notes all rows before it as gone.
    fn pass_up_to(&mut self, tree: &mut TreeScan, path: &[u8]) -> Result<(), IndexError> {
        loop {
            if let Some(page) = &mut tree.page {
                while let Some(passed) = page.pass(path) {
                    if tree.gone.len() < GONE_MAX {
                        tree.gone.push(passed.to_vec());
                    }
                }
                if page.is_last || page.covers(path) {
                    return Ok(());
                }
            }
            let (last, rows) = match &tree.page {
                Some(page) => (page.rows.last_path().unwrap_or(&tree.last), page.rows.len() * 2),
                None => (&*tree.last, PAGE_ROWS_MIN),
            };
            // The smallest path after `last`.
            let from = [last, b"\0"].concat();
            tree.page = Some(self.load(from, rows.min(page::PAGE_ROWS_MAX))?);
        }
    }

    /// Records the file at `path`, in place of its old record. Never fails with
    /// [`IndexError::Busy`].
    pub(crate) fn put(&mut self, path: &[u8], record: Record) -> Result<(), IndexError> {
        self.change(path.to_vec(), Some(record))
    }

    /// Removes the record of the file at `path`, if there is one.
    pub(crate) fn remove(&mut self, path: &[u8]) -> Result<(), IndexError> {
        self.change(path.to_vec(), None)
    }

    fn change(&mut self, path: Vec<u8>, change: Option<Record>) -> Result<(), IndexError> {
        let is_old = self.pending_since.is_some_and(|since| since.elapsed() >= PENDING_TIME_MAX);
        let is_due = self.pending.len() >= PENDING_ROWS_MAX || is_old;
        if is_due && self.locked_until.is_none_or(|until| Instant::now() >= until) {
            match self.flush(Duration::ZERO) {
                Err(IndexError::Busy(..)) => {
                    self.locked_until = Some(Instant::now() + LOCKED_TIME);
                }
                flushed => flushed?,
            }
        }
        if self.pending.len() >= PENDING_ROWS_LIMIT && !self.pending.contains_key(&path) {
            self.unstored += 1;
            return Ok(());
        }
        self.pending.insert(path, change);
        self.pending_since.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// The number of changes not in the file: pending ones, and those dropped for lack of room.
    pub(crate) fn unstored(&self) -> u64 {
        self.unstored + self.pending.len() as u64
    }

    /// Writes all pending changes, in one transaction. Waits up to `wait` for another process.
    ///
    /// # Errors
    ///
    /// [`IndexError::ReadOnly`], [`IndexError::Busy`] and others; the changes are then still
    /// pending, and the index is unchanged.
    pub(crate) fn flush(&mut self, wait: Duration) -> Result<(), IndexError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let _writing = lock(&WRITING);
        let fail = |error| explain(&self.path, "write", error);
        self.database.busy_timeout(wait).map_err(fail)?;
        let written = self.prepare().and_then(|()| {
            write(&self.database, &self.pending)
                .map_err(|error| explain(&self.path, "write", error))
        });
        let fail = |error| explain(&self.path, "write", error);
        self.database.busy_timeout(READ_WAIT).map_err(fail)?;
        written?;
        self.pending.clear();
        self.pending_since = None;
        self.page = None;
        if let Some(tree) = &mut self.tree {
            tree.page = None;
        }
        Ok(())
    }

    /// Reads up to `rows_max` rows, starting at `from`.
    fn load(&self, from: Vec<u8>, rows_max: usize) -> Result<Page, IndexError> {
        let rows = page(&self.database, &from, rows_max)
            .map_err(|error| explain(&self.path, "read", error))?;
        if !rows.are_in_order() || rows.path(0).is_some_and(|first| first < &*from) {
            return Err(damaged(&self.path, "its rows are not in order".into()));
        }
        if let Some(path) = rows.first_damaged() {
            let path = String::from_utf8_lossy(path);
            return Err(damaged(&self.path, format!("the record of {path:?} fails its check")));
        }
        let is_last = rows.len() < rows_max;
        Ok(Page { from, rows, is_last, hits: 0, next: 0 })
    }
}

/// Whether a file with this ctime may be recorded if reading it began at `began_ns`, both in
/// nanoseconds since 1970 by the same clock.
///
/// False within 2 s, because a write in the same tick of the clock would leave the times unchanged,
/// and for a ctime in the future.
pub(crate) fn is_settled(ctime_ns: i64, began_ns: i64) -> bool {
    began_ns.saturating_sub(ctime_ns) >= SETTLE_NS
}

/// Whether the file exists and is not empty.
fn is_something(path: &Path) -> Result<bool, IndexError> {
    let index = path.to_path_buf();
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() => Err(IndexError::NotAFile(index)),
        // (SQLite treats a file of one byte as empty; its header has 100.)
        Ok(metadata) if (1..100).contains(&metadata.len()) => Err(IndexError::NotADatabase(index)),
        Ok(metadata) => Ok(metadata.len() > 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match directory(path) {
            missing if !missing.exists() => Err(IndexError::NoDirectory(index, missing)),
            _ => Ok(false),
        },
        Err(error) => Err(IndexError::Open(index, error)),
    }
}

fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => ".".into(),
    }
}

/// Verifies that the file is an index before SQLite opens it as one, which could roll back a
/// transaction of another program's database or merge a WAL into it.
///
/// SQLite reads the header as that of an immutable file: without locks, without looking for a
/// journal, and so without a write. (We do not read it ourselves because closing a file releases
/// the locks that this process has on it: <https://sqlite.org/howtocorrupt.html>, 2.2.)
fn probe(path: &Path, absolute: &Path) -> Result<(), IndexError> {
    let mut name = String::from("file://");
    for &byte in absolute.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                name.push(char::from(byte));
            }
            other => name.push_str(&format!("%{other:02x}")),
        }
    }
    name.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let fail = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => IndexError::NotADatabase(path.into()),
        _ => explain(path, "open", error),
    };
    let database = Connection::open_with_flags(name, flags).map_err(fail)?;
    // While another process extends a database, it may be shorter than its header says; this lets
    // SQLite read such a header. Nothing is written.
    database.pragma_update(None, "writable_schema", true).map_err(fail)?;
    // (First, so that a file that is not a database is not called a damaged index.)
    header(&database).map_err(fail)?;
    match identify(path, &database)? {
        true => Ok(()),
        false => Err(IndexError::Foreign(path.into(), 0)),
    }
}

/// Returns the application id and the format version.
fn header(database: &Connection) -> rusqlite::Result<(i32, i32)> {
    let value = |name| database.pragma_query_value(None, name, |row| row.get(0));
    Ok((value("application_id")?, value("user_version")?))
}

/// Returns true for an index, false for an empty database. It must not change meanwhile.
fn identify(path: &Path, database: &Connection) -> Result<bool, IndexError> {
    let fail = |error| explain(path, "open", error);
    let is_blank = || Ok(!database.prepare("SELECT 1 FROM sqlite_schema")?.exists([])?);
    match header(database).map_err(fail)? {
        (APPLICATION_ID, VERSION) => Ok(true),
        (APPLICATION_ID, version) if version > VERSION => {
            Err(IndexError::Newer(path.into(), version))
        }
        (APPLICATION_ID, version) => Err(damaged(path, format!("it has format {version}"))),
        (0, 0) if is_blank().map_err(fail)? => Ok(false),
        (application_id, _) => Err(IndexError::Foreign(path.into(), application_id)),
    }
}

/// Whether the file has all of its pages: SQLite would read the missing part of one as zeros. Call
/// it in a transaction, so that no other process extends the file.
fn is_whole(path: &Path, database: &Connection) -> rusqlite::Result<bool> {
    let value = |name| database.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let bytes = value("page_size")? * value("page_count")?;
    Ok(path.metadata().is_ok_and(|metadata| i64::try_from(metadata.len()) == Ok(bytes)))
}

/// Creates the table, unless another process has just done so.
fn create(path: &Path, database: &Connection) -> Result<(), IndexError> {
    let fail = |error| explain(path, "create", error);
    let transaction = begin(database).map_err(fail)?;
    if !identify(path, &transaction)? {
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(fail)?;
        transaction.pragma_update(None, "user_version", VERSION).map_err(fail)?;
        transaction.execute_batch(CREATE).map_err(fail)?;
    }
    transaction.commit().map_err(fail)
}

/// Begins a write transaction. Immediate: one that began by reading could not wait for a writer.
fn begin(database: &Connection) -> rusqlite::Result<Transaction<'_>> {
    Transaction::new_unchecked(database, TransactionBehavior::Immediate)
}

fn page(database: &Connection, from: &[u8], rows_max: usize) -> rusqlite::Result<Rows> {
    let mut statement = database.prepare_cached(PAGE)?;
    let mut found = statement.query(params![from, rows_max as i64])?;
    let mut rows = Rows::default();
    while let Some(row) = found.next()? {
        rows.push(row.get_ref(0)?.as_blob()?, record(row)?, row.get(7)?);
    }
    Ok(rows)
}

fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let unsigned = |at| row.get(at).map(i64::cast_unsigned);
    let metadata = Metadata {
        file_system: unsigned(1)?,
        inode: unsigned(2)?,
        size: unsigned(3)?,
        mtime_ns: row.get(4)?,
        ctime_ns: row.get(5)?,
    };
    Ok(Record { metadata, hash: row.get(6)? })
}

fn write(
    database: &Connection,
    changes: &BTreeMap<Vec<u8>, Option<Record>>,
) -> rusqlite::Result<()> {
    let transaction = begin(database)?;
    {
        let mut put = transaction.prepare_cached(PUT)?;
        let mut remove = transaction.prepare_cached(REMOVE)?;
        for (path, change) in changes {
            match change {
                None => remove.execute([path])?,
                Some(record) => {
                    let [file_system, inode, size, mtime, ctime] = record.metadata.columns();
                    let (hash, check) = (record.hash, check(path, record));
                    put.execute(params![path, file_system, inode, size, mtime, ctime, hash, check])?
                }
            };
        }
    }
    transaction.commit()
}

#[cfg(test)]
mod tests;
