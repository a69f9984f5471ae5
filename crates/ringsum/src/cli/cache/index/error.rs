//! The errors of the index: what each says, and which of them an error of SQLite is.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rustix::fs::Access;
use rustix::io::Errno;

use super::{BUSY_TIMEOUT, VERSION, directory};

/// Why the index cannot be used. Each has the path of the index as it was named; a file that is no
/// index was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum IndexError {
    /// The directory that it is to be in, which comes second, is not there.
    #[error("cannot create index {index}: there is no directory {directory}; make it, or name another file",
            index = .0.display(), directory = .1.display())]
    NoDirectory(PathBuf, PathBuf),
    /// A directory, a device, a pipe.
    #[error("{index} is no regular file, so it cannot be an index; name another file", index = .0.display())]
    NotAFile(PathBuf),
    /// The kernel does not let us open or create it.
    #[error("cannot open index {index}: {1}; name another file, or see to its permissions",
            index = .0.display())]
    Open(PathBuf, #[source] io::Error),
    /// Something that is called so belongs to another user, whose id comes third, in a directory in which
    /// everybody may make files.
    #[error("{file} belongs to another user ({2}), and everybody may make files in its directory: somebody else may have \
             put it there for you to find; name an index in a directory of your own", file = .1.display())]
    Planted(PathBuf, PathBuf, u32),
    /// A file of something else, or an index whose header is damaged.
    #[error("{index} has something in it and is no index (it is no SQLite database); move it away, or \
             name another file", index = .0.display())]
    NotADatabase(PathBuf),
    /// A SQLite database of another program, and its application id.
    #[error("{index} is a SQLite database, but no index of this program (its application id is {1:#x}); \
             move it away, or name another file", index = .0.display())]
    Foreign(PathBuf, i32),
    /// Written by a later release of this program, in this format.
    #[error("index {index} has format {1}, and this program knows {VERSION}; use the newer program, move \
             it away, or name another file", index = .0.display())]
    Newer(PathBuf, i32),
    /// Something in it is not as it was written: what.
    #[error("index {index} is damaged: {1}; move it away (the files are then read again), or name \
             another file", index = .0.display())]
    Damaged(PathBuf, String),
    /// It can be read, but not changed.
    #[error("cannot write index {index}: the file, its directory or its file system is read-only ({1}); \
             make them writable, or name another file", index = .0.display())]
    ReadOnly(PathBuf, #[source] rusqlite::Error),
    /// Other processes held it all the time; the operation comes second.
    #[error("cannot {1} index {index}: other processes have held it for {seconds} s; try again, or name another \
             file", index = .0.display(), seconds = BUSY_TIMEOUT.as_secs())]
    Busy(PathBuf, &'static str),
    /// Anything else, such as no space or an I/O error; the operation comes second.
    #[error("cannot {1} index {index}: {2}", index = .0.display())]
    Sqlite(PathBuf, &'static str, #[source] rusqlite::Error),
}

pub(super) fn damaged(index: &Path, what: String) -> IndexError {
    IndexError::Damaged(index.into(), what)
}

/// What an error of SQLite means for the one who named `index`.
pub(super) fn explain(index: &Path, doing: &'static str, error: rusqlite::Error) -> IndexError {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType};
    let path = index.to_path_buf();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => IndexError::Busy(path, doing),
        Some(ErrorCode::ReadOnly) => IndexError::ReadOnly(path, error),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::TooBig)
        // SQL that it does not understand, of ours or in the file: the tables are not ours.
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
