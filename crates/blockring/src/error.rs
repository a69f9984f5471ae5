//! Errors, with messages that say what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::validate::ConfigError;
use crate::config::{CacheMode, EngineKind};
use crate::core::extents::IndexedExtent;

/// The error with which a consumer may stop a run; `?` converts any error to it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a source could not be read, and which one.
///
/// [`Display`](fmt::Display) prints `PATH: what happened`; that of `kind` prints only the second
/// part, for callers that print the path elsewhere.
#[derive(Debug)]
#[non_exhaustive]
pub struct Error {
    /// The source, by the name it was opened with.
    pub path: PathBuf,
    /// What happened.
    pub kind: ErrorKind,
}

/// What happened. Messages omit the path, which [`Error`] holds.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The source could not be opened, or is a directory.
    #[error("{0}")]
    Open(io::Error),
    /// A system call that describes the open source failed.
    #[error("{operation}: {error}")]
    Inspect {
        /// The system call.
        operation: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
    /// A read failed.
    #[error("{}: {error}{}", read_failed(*.offset, *.len, *.precision, .error), read_advice(.error))]
    Read {
        /// Start of the bytes that could not be read, from the start of the source.
        offset: u64,
        /// Their number; 0 if the error concerns no particular range.
        len: u64,
        /// Whether all of them are bad, or only some of them.
        precision: Precision,
        /// The kernel's error.
        error: io::Error,
    },
    /// The source changed between its opening and the end of the last read.
    #[error("changed while it was read ({0}); try again when no process writes to it")]
    Changed(Change),
    /// The file did not change, but its content is not as long as `stat` reports. Only files of
    /// pseudo file systems (proc, sysfs, ...), which invent file sizes, are read to their real end.
    #[error(
        "its size is reported as {stated} bytes, but reading {}: the file system misreports it, so \
         its content is not known to be complete",
        match found > stated {
            true => format!("found at least {found}"),
            false => "ended earlier".to_owned(),
        }
    )]
    Length {
        /// Length according to `stat`, in bytes.
        stated: u64,
        /// How many bytes there are at least, if that is more. Otherwise a place where a read found no
        /// byte any more, which may lie beyond the real end.
        found: u64,
    },
    /// An engine is not available here.
    #[error("engine {engine} cannot be used: {why}")]
    Engine {
        /// The engine.
        engine: EngineKind,
        /// What is missing and what to do about it.
        why: String,
    },
    /// An explicit cache mode is not available here.
    #[error("cache mode {cache} cannot be used: {why}")]
    Cache {
        /// The mode.
        cache: CacheMode,
        /// What is missing and what to do about it.
        why: String,
    },
    /// The [`Config`](crate::Config) is invalid.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The kernel failed to report completions.
    #[error("waiting for reads to complete: {0}")]
    Wait(io::Error),
    /// The system refused memory or a thread before anything was read.
    #[error("{what}: {error}")]
    Resource {
        /// What was requested.
        what: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// [`Io::bypass_cache`](crate::Io::bypass_cache) is set, and reads might not reach the device.
    #[error("the page cache cannot be bypassed here: {0}")]
    BypassCache(String),
    /// The output of a [`Tee`](crate::Tee) cannot be written to.
    #[error("{to}: {}; {bytes} bytes were consumed before, the rest was not",
        output_closed(.error), to = .to.display())]
    Tee {
        /// The name of the output.
        to: PathBuf,
        /// Bytes that consumers got before.
        bytes: u64,
        /// The kernel's error.
        error: io::Error,
    },
    /// Not all bytes could be written to a file of a [`Tee`](crate::Tee).
    #[error("{error}; it holds the first {bytes} bytes")]
    TeeFile {
        /// Bytes that were written, from the start of the stream.
        bytes: u64,
        /// The kernel's error.
        error: io::Error,
    },
    /// All bytes were written to a file of a [`Tee`](crate::Tee), but it could not be synced.
    #[error("{error}; all {bytes} bytes were written, but fsync failed")]
    TeeSync {
        /// Bytes that were written.
        bytes: u64,
        /// The kernel's error.
        error: io::Error,
    },
    /// [`Io::stop`](crate::Io::stop) was requested.
    #[error("stopped before it was read completely")]
    Stopped,
    /// The consumer stopped the run.
    #[error("{0}")]
    Consumer(BoxError),
}

/// How precisely the range of a failed read is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Precision {
    /// The range is one request, or the rest of one. It is unknown which of its bytes are bad.
    Request,
    /// Its first unit and its last one fail by themselves. A unit is the least that the run can
    /// read: the alignment of direct reads (512 or 4096 bytes), or a page of the page cache.
    Units,
    /// Locating the bad units would have taken too long.
    OutOfTime,
    /// All of it could be read at a second attempt.
    Transient,
}

/// How a source at the end of a run differs from the source at its opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It is shorter, or its bytes ended early.
    Shrank {
        /// Length at the opening, in bytes.
        from: u64,
        /// Length found, in bytes.
        to: u64,
    },
    /// It is longer.
    Grew {
        /// Length at the opening, in bytes.
        from: u64,
        /// Length found, in bytes.
        to: u64,
    },
    /// Same length, different modification time.
    Rewritten,
    /// Same length and modification time, different change time: data or attributes changed.
    StatusChanged,
    /// It changed, and its path now leads to another file.
    Replaced,
    /// It changed, and its path now leads to nothing.
    Removed,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Shrank { from, to } => write!(f, "it shrank from {from} to {to} bytes"),
            Change::Grew { from, to } => write!(f, "it grew from {from} to {to} bytes"),
            Change::Rewritten => f.write_str("its modification time changed"),
            Change::StatusChanged => f.write_str(
                "its ctime changed: its data, a name, a link or its permissions are different",
            ),
            Change::Replaced => f.write_str("it was replaced: its path leads to another file now"),
            Change::Removed => f.write_str("it was removed: its path leads to nothing now"),
        }
    }
}

/// Whether an error concerns the range that was read, so that reading elsewhere may succeed: the
/// medium, the link to it for one request, or a checksum. Not if the device is gone (`ENODEV`,
/// `ENXIO`, `ENOLINK`), the server is gone (`ESTALE`, `ENOTCONN`), or the request was invalid.
pub(crate) fn is_of_place(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            // Most of them: whatever the block layer does not report more precisely, btrfs
            // checksums, fs-verity.
            libc::EIO
            // The block layer: "critical medium", "critical target", "protection", "timeout" error.
            | libc::ENODATA | libc::EREMOTEIO | libc::EILSEQ | libc::ETIMEDOUT
            // File systems: a bad checksum, or inconsistent metadata of the file.
            | libc::EBADMSG | libc::EUCLEAN
        )
    )
}

fn output_closed(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::BrokenPipe => "its reader has closed it".to_owned(),
        _ => error.to_string(),
    }
}

fn read_failed(offset: u64, len: u64, precision: Precision, error: &io::Error) -> String {
    let last = offset.saturating_add(len.saturating_sub(1));
    let (how, outcome) = match precision {
        _ if len == 0 || (precision == Precision::Request && !is_of_place(error)) => {
            return format!("read failed at byte {offset}");
        }
        Precision::Units => ("at", ""),
        Precision::Request | Precision::OutOfTime => ("within", ""),
        Precision::Transient => ("within", ", and succeeded when tried again"),
    };
    format!("read failed {how} bytes {offset} to {last}{outcome}")
}

fn read_advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EIO) => "; the kernel log may say more",
        Some(libc::EFAULT) => "; a page of its mapping is not available: use another engine",
        _ => "",
    }
}

impl ErrorKind {
    /// Creates the error of a failed request whose bad bytes are not located more precisely.
    pub(crate) fn read(offset: u64, len: u64, error: io::Error) -> ErrorKind {
        ErrorKind::Read { offset, len, precision: Precision::Request, error }
    }

    /// Creates the error of a block whose pages were missing while it was consumed: the file was
    /// truncated, or cannot be read there. Reading the extent again tells.
    pub(crate) fn damaged(extent: IndexedExtent) -> ErrorKind {
        let error = io::Error::from_raw_os_error(libc::EFAULT);
        ErrorKind::read(extent.offset, extent.len.into(), error)
    }

    /// Whether this one file cannot be read like other files of its device, but perhaps with a
    /// [`Plan`](crate::Plan) of its own.
    pub fn is_refusal(&self) -> bool {
        match self {
            // Another file system is mounted there, or the file system does not support direct or
            // uncached reads of this file.
            ErrorKind::Read { error, .. } => {
                matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
            }
            ErrorKind::Engine { .. } | ErrorKind::Length { .. } => true,
            _ => false,
        }
    }
}

impl Error {
    pub(crate) fn new(path: &Path, kind: impl Into<ErrorKind>) -> Self {
        Error { path: path.to_owned(), kind: kind.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind.source()
    }
}
