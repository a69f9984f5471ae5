//! Errors of the index, and how SQLite's errors map to them.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rustix::fs::Access;
use rustix::io::Errno;

use super::{VERSION, directory};

/// Why the index cannot be used. The first field is the path of the index as given. A file that is
/// not an index is not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum IndexError {
    /// Its directory (second field) does not exist.
    #[error("cannot create index {index}: there is no directory {directory}; make it, or name another file",
            index = .0.display(), directory = .1.display())]
    NoDirectory(PathBuf, PathBuf),
    /// A directory, a device, a pipe.
    #[error("{index} is not a regular file, so it cannot be an index; name another file", index = .0.display())]
    NotAFile(PathBuf),
    /// It could not be opened or created.
    #[error("cannot open index {index}: {1}; name another file, or check its permissions",
            index = .0.display())]
    Open(PathBuf, #[source] io::Error),
    /// A file of that name (second field) in a world-writable directory belongs to another user
    /// (third field: the uid).
    #[error("{file} belongs to another user ({2}) and is in a world-writable directory: it may have been planted there; \
             name an index in your own directory", file = .1.display())]
    Planted(PathBuf, PathBuf, u32),
    /// Not a database, or an index whose header is damaged.
    #[error("{index} is not empty and not an index (it is not a SQLite database); move it away, or \
             name another file", index = .0.display())]
    NotADatabase(PathBuf),
    /// A SQLite database of another program; the second field is its application id.
    #[error("{index} is a SQLite database, but not an index of this program (its application id is {1:#x}); \
             move it away, or name another file", index = .0.display())]
    Foreign(PathBuf, i32),
    /// Written in this newer format by a later release of this program.
    #[error("index {index} has format {1}, and this program knows {VERSION}; use the newer program, move \
             it away, or name another file", index = .0.display())]
    Newer(PathBuf, i32),
    /// Damaged; the second field says how.
    #[error("index {index} is damaged: {1}; move it away (the files are then read again), or name \
             another file", index = .0.display())]
    Damaged(PathBuf, String),
    /// Readable, but not writable.
    #[error("cannot write index {index}: the file, its directory or its file system is read-only ({1}); \
             make them writable, or name another file", index = .0.display())]
    ReadOnly(PathBuf, #[source] rusqlite::Error),
    /// Another process has locked it; the second field is the operation.
    #[error("cannot {1} index {index}: another process has locked it; try again, or name another file",
            index = .0.display())]
    Busy(PathBuf, &'static str),
    /// Anything else, such as no space or an I/O error; the second field is the operation.
    #[error("cannot {1} index {index}: {2}", index = .0.display())]
    Sqlite(PathBuf, &'static str, #[source] rusqlite::Error),
}

pub(super) fn damaged(index: &Path, what: String) -> IndexError {
    IndexError::Damaged(index.into(), what)
}

/// Maps an error of SQLite to one of the index.
pub(super) fn explain(index: &Path, doing: &'static str, error: rusqlite::Error) -> IndexError {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType};
    let path = index.to_path_buf();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => IndexError::Busy(path, doing),
        Some(ErrorCode::ReadOnly) => IndexError::ReadOnly(path, error),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::TooBig)
        // SQL that SQLite rejects, ours or that in the file: the tables are not ours.
        | Some(ErrorCode::Unknown) => damaged(index, error.to_string()),
        // SQLite does not say why.
        Some(ErrorCode::CannotOpen) => match why_closed(index) {
            Some(errno) => IndexError::Open(path, errno.into()),
            None => IndexError::Sqlite(path, doing, error),
        },
        _ => match error {
            FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) => {
                damaged(index, error.to_string())
            }
            _ => IndexError::Sqlite(path, doing, error),
        },
    }
}

fn why_closed(index: &Path) -> Option<Errno> {
    match rustix::fs::access(index, Access::READ_OK) {
        Err(Errno::NOENT) => {
            rustix::fs::access(directory(index), Access::WRITE_OK | Access::EXEC_OK).err()
        }
        other => other.err(),
    }
}
