//! The index: what each file's hash was, and how the file looked then, kept from run to run in one
//! SQLite file. It owns that file's format and its safety; whether a record is still true, and what
//! to do then, is the caller's to say.
//!
//! **Why SQLite.** For 130,244 paths an ordered scan took 14 ms and the file 24 MB, against 42 ms and
//! 67 MB for redb 3. One look-up at a time it was the slower (700 ms against 75 ms), so [`Index::get`]
//! looks ahead: one range query brings the next [`LOOK_AHEAD_ROWS_MAX`] records. Of 200 single bits
//! flipped in a redb file, 8 made it panic, which ends a program that aborts on panics; SQLite gives
//! errors.
//!
//! **Why a rollback journal and no WAL.** The index is one whole file between any two transactions: it
//! can be copied, and read from a directory that cannot be written. A WAL needs memory shared with a
//! second file, which no network file system gives, writes even to be read, and leaves two more files
//! after a kill. What a WAL is for, fewer syncs and readers beside a writer, is worth little here: a
//! transaction has thousands of rows and ends within milliseconds, and nobody stays in one while
//! files are read. SQLite undoes a transaction that was cut short when it next opens the file.
//!
//! **What is checked.** SQLite has no checksums, so each row has one: a record that does not match
//! it is [`IndexError::Damaged`]. A damaged page can still hide rows; their files are then read again.

mod chunk;
mod error;
mod rows;
mod safety;
mod spans;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, Row, Transaction, TransactionBehavior, params};

pub(crate) use error::IndexError;
pub(crate) use safety::weakness;

use chunk::Chunk;
use error::{damaged, explain};
use rows::{Rows, check};
use spans::Spans;

/// "rsum": what marks a SQLite database as an index, in its header.
const APPLICATION_ID: i32 = 0x7273_756d;

/// The format that is read and written, in the header as the user version.
const VERSION: i32 = 1;

/// Rows that one range query brings at most. 130,244 ordered gets took 132 ms at 128 rows, 125 ms at
/// 512, 117 ms at 1024 and no less beyond.
pub(crate) const LOOK_AHEAD_ROWS_MAX: usize = 1024;

/// Rows that the first query brings, and any after one whose rows were mostly not asked for.
/// Of gets in random order each took 22 us at 1 row, 27 us at 8, 43 us at 32; with 1 row, the ratio by
/// which it grows would always be met.
const LOOK_AHEAD_ROWS_MIN: usize = 8;

/// Changes that are held back at most, and rows that one transaction changes at most.
/// Filling in 130,244 rows took 500 ms at 512 and 260 ms at 8192 and at 65,536; one transaction took
/// 3, 15 and 100 ms, in which others wait.
pub(crate) const PENDING_ROWS_MAX: usize = 8192;

/// How long a change is held back at most while others come: what a killed run loses.
pub(crate) const PENDING_TIME_MAX: Duration = Duration::from_secs(5);

/// How long another process may hold the index before an operation gives up.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Time in which a second write to a file may leave its ctime as it is: the clock of a file system
/// ticks every 1 to 10 ms, that of FAT every 2 s.
const SETTLE_NS: i64 = 2_000_000_000;

const CREATE: &str = "CREATE TABLE file (path BLOB PRIMARY KEY, file_system INTEGER NOT NULL, \
     inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, \
     ctime_ns INTEGER NOT NULL, hash BLOB NOT NULL, row_check INTEGER NOT NULL) \
     WITHOUT ROWID, STRICT";
const AHEAD: &str = "SELECT path, file_system, inode, size, mtime_ns, ctime_ns, hash, row_check \
     FROM file WHERE path >= ?1 ORDER BY path LIMIT ?2";
const BETWEEN: &str = "SELECT 1 FROM file WHERE path > ?1 AND path < ?2 LIMIT 1";
const PUT: &str = "REPLACE INTO file (path, file_system, inode, size, mtime_ns, ctime_ns, hash, \
     row_check) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const REMOVE: &str = "DELETE FROM file WHERE path = ?1";
const FORGET: &str = "DELETE FROM file WHERE path IN (SELECT path FROM file \
     WHERE path > ?1 AND path < ?2 ORDER BY path LIMIT ?3)";

/// What must be the same for a hash to be still true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Which file system, by an id that stays over a reboot.
    pub(crate) file_system: u64,
    /// The inode in it.
    pub(crate) inode: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// Nanoseconds since 1970, saturating (1677 to 2262).
    pub(crate) mtime_ns: i64,
    /// Nanoseconds since 1970, saturating.
    pub(crate) ctime_ns: i64,
}

/// What is known of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// How the file looked when it was read.
    pub(crate) stamp: Stamp,
    /// The hash of what it had in it.
    pub(crate) hash: [u8; 32],
}

/// The records of files by their paths, in a file of their own.
///
/// Changes are held back for at most [`PENDING_ROWS_MAX`] rows or [`PENDING_TIME_MAX`], and what is
/// held back when the index is dropped is lost: [`Index::flush`] at the end.
#[derive(Debug)]
pub(crate) struct Index {
    /// As the caller named it.
    path: PathBuf,
    database: Connection,
    chunk: Option<Chunk>,
    look_ahead_rows: usize,
    /// Not yet written; `None` removes.
    pending: BTreeMap<Vec<u8>, Option<Record>>,
    pending_since: Option<Instant>,
    seen: Spans,
}

impl Index {
    /// Opens the index at `path`, or creates it where there is no such file or an empty one.
    ///
    /// An index that cannot be written can be opened and read.
    ///
    /// # Errors
    ///
    /// Any; a file that is no index, or a damaged one, is left as it is.
    pub(crate) fn open(path: &Path) -> Result<Index, IndexError> {
        let fail = |error| explain(path, "open", error);
        // SQLite would take `:memory:` and `file:...` for something else than files.
        let absolute = std::path::absolute(path);
        let absolute = absolute.map_err(|error| IndexError::Open(path.into(), error))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        safety::refuse_planted(path)?;
        match is_something(path)? {
            true => probe(path, &absolute)?,
            false => safety::make(path)?,
        }
        let database = Connection::open_with_flags(&absolute, flags).map_err(fail)?;
        database.busy_timeout(BUSY_TIMEOUT).map_err(fail)?;
        // Finds some damage to a page before it is used.
        database.pragma_update(None, "cell_size_check", true).map_err(fail)?;
        database.pragma_update(None, "trusted_schema", false).map_err(fail)?;
        // Also where there was something: an index whose making was killed, of which nothing is left
        // once SQLite has undone it.
        // In one transaction: it may be being made now.
        let reading = database.unchecked_transaction().map_err(fail)?;
        let is_index = identify(path, &reading)?;
        if is_index && !is_whole(path, &reading).map_err(fail)? {
            return Err(damaged(path, "it is not as long as it says".to_owned()));
        }
        reading.finish().map_err(fail)?;
        if !is_index {
            create(path, &database)?;
        }
        for statement in [AHEAD, BETWEEN, PUT, REMOVE, FORGET] {
            database.prepare_cached(statement).map_err(fail)?;
        }
        Ok(Index {
            path: path.into(),
            database,
            chunk: None,
            look_ahead_rows: LOOK_AHEAD_ROWS_MIN,
            pending: BTreeMap::new(),
            pending_since: None,
            seen: Spans::default(),
        })
    }

    /// The record of the file at `path`: bytes, absolute.
    ///
    /// Any order of calls is right; ascending byte order is fast. What another process writes
    /// meanwhile may be seen or not.
    ///
    /// # Errors
    ///
    /// [`IndexError::Damaged`] also for damage to one of the next records.
    pub(crate) fn get(&mut self, path: &[u8]) -> Result<Option<Record>, IndexError> {
        if !self.chunk.as_ref().is_some_and(|chunk| chunk.covers(path)) {
            self.look_ahead(path)?;
        }
        self.see(path)?;
        if let Some(change) = self.pending.get(path) {
            return Ok(change.clone());
        }
        let Some(chunk) = &mut self.chunk else { return Ok(None) };
        chunk.asked += 1;
        Ok(chunk.find(path).cloned())
    }

    /// Takes down what is known of the file at `path`, in place of what was.
    ///
    /// Written by the call that finds [`PENDING_ROWS_MAX`] changes, or one older than
    /// [`PENDING_TIME_MAX`], or by [`Index::flush`].
    ///
    /// # Errors
    ///
    /// Those of [`Index::flush`]; where it was too full to take this record, it did not.
    pub(crate) fn put(&mut self, path: &[u8], record: Record) -> Result<(), IndexError> {
        self.see(path)?;
        self.change(path, Some(record))
    }

    /// Removes the record of the file at `path`, if there is one; held back as by [`Index::put`].
    ///
    /// # Errors
    ///
    /// Those of [`Index::put`].
    pub(crate) fn remove(&mut self, path: &[u8]) -> Result<(), IndexError> {
        self.change(path, None)
    }

    /// Removes the records under the directory `root` whose paths were neither asked for nor put
    /// since the index was opened, and says how many: after a walk that saw all of `root`, the files
    /// are gone. Also writes what is held back.
    ///
    /// Nothing is kept for each path, and nothing written where nothing is gone. What is kept is
    /// spans: two paths between which no record was passed over. A walk that finds all files makes
    /// one span; each run of files that are gone, however many, one more. Any order of calls is
    /// right, but one that is far from ascending makes many spans. At 65,536 they grow together,
    /// and then some records stay until a later run. What another process adds between two spans
    /// meanwhile goes too, and its file is then read again.
    ///
    /// # Errors
    ///
    /// Those of [`Index::flush`].
    pub(crate) fn forget_unseen(&mut self, root: &[u8]) -> Result<u64, IndexError> {
        self.flush()?;
        let root = root.strip_suffix(b"/").unwrap_or(root);
        let low = [root, b"/"].concat();
        // The byte after the slash: above all that starts with `root/`.
        let high = [root, b"0"].concat();
        let fail = |error| explain(&self.path, "write", error);
        let mut gaps = Vec::new();
        for (low, high) in self.seen.gaps(&low, &high) {
            if has_between(&self.database, low, high).map_err(fail)? {
                gaps.push((low, high));
            }
        }
        let mut forgotten = 0;
        while !gaps.is_empty() {
            forgotten += forget_some(&self.database, &mut gaps).map_err(fail)?;
            self.chunk = None;
        }
        Ok(forgotten as u64)
    }

    /// Writes what is held back, in one transaction.
    ///
    /// # Errors
    ///
    /// [`IndexError::ReadOnly`], [`IndexError::Busy`] and others; the changes are then still held
    /// back, and the index as it was.
    pub(crate) fn flush(&mut self) -> Result<(), IndexError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        // Counted from here if it fails, so that not every `put` waits for another process.
        self.pending_since = Some(Instant::now());
        write(&self.database, &self.pending)
            .map_err(|error| explain(&self.path, "write", error))?;
        self.pending.clear();
        self.pending_since = None;
        self.chunk = None;
        Ok(())
    }

    fn change(&mut self, path: &[u8], change: Option<Record>) -> Result<(), IndexError> {
        if self.pending.len() >= PENDING_ROWS_MAX {
            self.flush()?;
        }
        self.pending.insert(path.to_vec(), change);
        let since = *self.pending_since.get_or_insert_with(Instant::now);
        match since.elapsed() >= PENDING_TIME_MAX {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Brings the records from `path` on.
    fn look_ahead(&mut self, path: &[u8]) -> Result<(), IndexError> {
        let rows_max = match self.chunk.take() {
            None => self.look_ahead_rows,
            Some(chunk) if path > chunk.from.as_slice() && chunk.asked * 2 >= chunk.rows.len() => {
                (self.look_ahead_rows * 2).min(LOOK_AHEAD_ROWS_MAX)
            }
            Some(_) => LOOK_AHEAD_ROWS_MIN,
        };
        // Until it succeeds: a damaged row is in the way of few others.
        self.look_ahead_rows = LOOK_AHEAD_ROWS_MIN;
        let rows = ahead(&self.database, path, rows_max)
            .map_err(|error| explain(&self.path, "read", error))?;
        if !rows.are_in_order() || rows.path(0).is_some_and(|first| first < path) {
            return Err(damaged(&self.path, "its rows are not in order".into()));
        }
        if let Some(path) = rows.first_damaged() {
            let of = String::from_utf8_lossy(path);
            return Err(damaged(&self.path, format!("the record of {of:?} fails its check")));
        }
        let is_last = rows.len() < rows_max;
        self.look_ahead_rows = rows_max;
        self.chunk = Some(Chunk { from: path.to_vec(), rows, is_last, asked: 0, next: 0 });
        Ok(())
    }

    /// Notes that the file at `path` is there.
    fn see(&mut self, path: &[u8]) -> Result<(), IndexError> {
        let is_joined = match self.seen.end_before(path) {
            None => false,
            Some(end) if end >= path => return Ok(()),
            Some(end) => {
                let known = self.chunk.as_ref().and_then(|chunk| chunk.has_between(end, path));
                !match known {
                    Some(known) => known,
                    None => has_between(&self.database, end, path)
                        .map_err(|error| explain(&self.path, "read", error))?,
                }
            }
        };
        self.seen.add(path, is_joined);
        Ok(())
    }
}

/// Whether a file whose ctime is `ctime_ns` may be taken down when its reading began at `began_ns`,
/// both in nanoseconds since 1970 by the same clock.
///
/// Not within 2 s: a write in the same tick of the clock would leave the times as they are. Nor
/// with a ctime that is still to come.
pub(crate) fn is_settled(ctime_ns: i64, began_ns: i64) -> bool {
    began_ns.saturating_sub(ctime_ns) >= SETTLE_NS
}

/// Whether there is a file with something in it.
fn is_something(path: &Path) -> Result<bool, IndexError> {
    let index = path.to_path_buf();
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() => Err(IndexError::NotAFile(index)),
        // SQLite takes one byte for an empty file; its header has 100.
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

/// Makes sure that the file is an index before SQLite opens it as one, which for another program's
/// database could undo a transaction or take a WAL into it.
///
/// The header is read by SQLite as that of a file that never changes: without locks, without a look
/// at its journal, and so without a write. We do not read it ourselves because closing a file takes
/// the locks off that this process has on it (<https://sqlite.org/howtocorrupt.html>, 2.2).
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
    // A database may be shorter than its header says while another process makes it longer; this
    // is what lets SQLite read such a header. Nothing is written.
    database.pragma_update(None, "writable_schema", true).map_err(fail)?;
    // First, so that what is no database is not called a damaged index.
    header(&database).map_err(fail)?;
    match identify(path, &database)? {
        true => Ok(()),
        false => Err(IndexError::Foreign(path.into(), 0)),
    }
}

/// The application id and the version of the format.
fn header(database: &Connection) -> rusqlite::Result<(i32, i32)> {
    let value = |name| database.pragma_query_value(None, name, |row| row.get(0));
    Ok((value("application_id")?, value("user_version")?))
}

/// Whether it is an index; if not, nothing was ever put into it. For a database that nobody changes
/// meanwhile.
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

/// Whether the file has all of its pages: what is missing of one, SQLite would take for zeros. For a
/// transaction, in which nobody else makes it longer.
fn is_whole(path: &Path, database: &Connection) -> rusqlite::Result<bool> {
    let value = |name| database.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let bytes = value("page_size")? * value("page_count")?;
    Ok(path.metadata().is_ok_and(|metadata| i64::try_from(metadata.len()) == Ok(bytes)))
}

/// Makes the table, unless another process did meanwhile.
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

/// Begins to write. Immediate: one that began by reading could not wait for another writer.
fn begin(database: &Connection) -> rusqlite::Result<Transaction<'_>> {
    Transaction::new_unchecked(database, TransactionBehavior::Immediate)
}

fn ahead(database: &Connection, from: &[u8], rows_max: usize) -> rusqlite::Result<Rows> {
    let mut statement = database.prepare_cached(AHEAD)?;
    let mut found = statement.query(params![from, rows_max as i64])?;
    let mut rows = Rows::default();
    while let Some(row) = found.next()? {
        rows.push(row.get_ref(0)?.as_blob()?, record(row)?, row.get(7)?);
    }
    Ok(rows)
}

fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let unsigned = |at| row.get(at).map(i64::cast_unsigned);
    let stamp = Stamp {
        file_system: unsigned(1)?,
        inode: unsigned(2)?,
        size: unsigned(3)?,
        mtime_ns: row.get(4)?,
        ctime_ns: row.get(5)?,
    };
    Ok(Record { stamp, hash: row.get(6)? })
}

fn has_between(database: &Connection, low: &[u8], high: &[u8]) -> rusqlite::Result<bool> {
    database.prepare_cached(BETWEEN)?.exists([low, high])
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
                Some(record @ Record { stamp, hash }) => put.execute(params![
                    path,
                    stamp.file_system.cast_signed(),
                    stamp.inode.cast_signed(),
                    stamp.size.cast_signed(),
                    stamp.mtime_ns,
                    stamp.ctime_ns,
                    hash,
                    check(path, record),
                ])?,
            };
        }
    }
    transaction.commit()
}

/// Removes rows from the last of the gaps on, in one transaction, and the gaps that are empty then.
fn forget_some(database: &Connection, gaps: &mut Vec<(&[u8], &[u8])>) -> rusqlite::Result<usize> {
    let transaction = begin(database)?;
    let mut forgotten = 0;
    {
        let mut forget = transaction.prepare_cached(FORGET)?;
        while let Some((low, high)) = gaps.last()
            && forgotten < PENDING_ROWS_MAX
        {
            let rows_max = PENDING_ROWS_MAX - forgotten;
            let rows = forget.execute(params![low, high, rows_max as i64])?;
            forgotten += rows;
            if rows < rows_max {
                gaps.pop();
            }
        }
    }
    transaction.commit()?;
    Ok(forgotten)
}

#[cfg(test)]
mod tests;
