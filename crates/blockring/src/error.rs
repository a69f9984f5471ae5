//! What can go wrong, in words a user can act on.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::{CacheMode, EngineKind};
use crate::unreadable;

/// The error a consumer may stop a run with; `?` turns any error into it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a source could not be read, and which one.
///
/// [`Display`](fmt::Display) prints `PATH: what happened`; [`kind`](Error::kind) prints alone for
/// callers that put the path elsewhere.
pub struct Error(Box<(PathBuf, ErrorKind)>);

/// What happened. The messages do not repeat the path: [`Error`] has it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The source could not be opened, or is of a kind that cannot be read (a directory).
    #[error("{0}")]
    Open(io::Error),
    /// The kernel refused to say something about an open source that is needed to read it.
    #[error("{operation}: {error}")]
    Inspect {
        /// The system call or file that was refused.
        operation: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// A read failed.
    #[error("{}: {error}{}", read_failed(*.offset, *.len, *.narrowed, .error), read_advice(.error))]
    Read {
        /// Where what could not be read starts, in bytes from the start of the source.
        offset: u64,
        /// How long it is, in bytes; 0 where a place says nothing of why.
        len: u64,
        /// Whether it is that, or lies somewhere in that.
        narrowed: Narrowed,
        /// What the kernel said.
        error: io::Error,
    },
    /// The source changed between its opening and the end of the last read.
    #[error("changed while it was read ({0}); try again when it is left alone")]
    Changed(Change),
    /// An engine cannot be had here: one that was asked for by name, as a rule.
    #[error("engine {engine} cannot be used: {why}")]
    Engine {
        /// The engine that was asked for.
        engine: EngineKind,
        /// What is missing and what to do about it.
        why: String,
    },
    /// A cache mode that was asked for by name cannot be had here.
    #[error("cache mode {cache} cannot be used: {why}")]
    Cache {
        /// The mode that was asked for.
        cache: CacheMode,
        /// What is missing and what to do about it.
        why: String,
    },
    /// A [`Config`](crate::Config) that cannot be meant.
    #[error("{0}")]
    Config(#[from] crate::config::ConfigError),
    /// The kernel would not say what had become of requests.
    #[error("waiting for reads to complete: {0}")]
    Wait(io::Error),
    /// The system refused memory or a thread, before anything was read.
    #[error("{what}: {error}")]
    Resource {
        /// What was asked for.
        what: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// What the medium itself holds cannot be read here, and that was asked for.
    #[error("what the medium holds cannot be verified here: {0}")]
    Medium(String),
    /// Where the bytes went on to takes no more of them.
    #[error("{to}: {}; {bytes} bytes were consumed until then, and the rest was not", went_away(.error), to = .to.display())]
    Onward {
        /// What it is called.
        to: PathBuf,
        /// Bytes that consumers were given before.
        bytes: u64,
        /// What the kernel said.
        error: io::Error,
    },
    /// The consumer stopped the run.
    #[error("{0}")]
    Consumer(BoxError),
}

/// How exactly a place is known that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Narrowed {
    /// It is what one request asked for, or what was left of it. What of it is bad is not known.
    Request,
    /// Its first unit and its last one fail by themselves. A unit is what the run could read at least: the
    /// alignment of direct reads (512 or 4096 bytes), or a page of the page cache.
    Units,
    /// To look more closely would have taken too long.
    OutOfTime,
    /// All of it could be read when it was tried again.
    Passing,
}

/// How a source differed at the end from what it was at its opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It is shorter now, or its bytes ended early.
    Shrank {
        /// Length at the opening, in bytes.
        from: u64,
        /// Length found, in bytes.
        to: u64,
    },
    /// It is longer now.
    Grew {
        /// Length at the opening, in bytes.
        from: u64,
        /// Length found, in bytes.
        to: u64,
    },
    /// Same length, another modification time.
    Rewritten,
    /// Same length and modification time, another change time: its data or its attributes changed.
    StatusChanged,
    /// It changed, and its path leads to another file by now.
    Replaced,
    /// It changed, and its path leads to nothing any more.
    Removed,
}

impl Change {
    /// One word for it, for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Change::Shrank { .. } => "shrank",
            Change::Grew { .. } => "grew",
            Change::Rewritten => "rewritten",
            Change::StatusChanged => "status",
            Change::Replaced => "replaced",
            Change::Removed => "removed",
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Shrank { from, to } => write!(f, "it shrank from {from} to {to} bytes"),
            Change::Grew { from, to } => write!(f, "it grew from {from} to {to} bytes"),
            Change::Rewritten => f.write_str("its modification time is another"),
            Change::StatusChanged => f.write_str(
                "its ctime is another: its data, a name, a link or its permissions changed",
            ),
            Change::Replaced => f.write_str("it was replaced: its path is another file now"),
            Change::Removed => f.write_str("it was removed: its path is nothing any more"),
        }
    }
}

fn went_away(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::BrokenPipe => "whoever read it has left".to_owned(),
        _ => error.to_string(),
    }
}

fn read_failed(offset: u64, len: u64, narrowed: Narrowed, error: &io::Error) -> String {
    let is_place = unreadable::is_of_place(error);
    let last = offset.saturating_add(len.saturating_sub(1));
    let (how, why) = match narrowed {
        _ if len == 0 || (narrowed == Narrowed::Request && !is_place) => {
            return format!("read failed at byte {offset}");
        }
        Narrowed::Units => ("at", ""),
        Narrowed::Request | Narrowed::OutOfTime => ("within", ""),
        Narrowed::Passing => ("within", ", and did not when it was tried again"),
    };
    format!("read failed {how} bytes {offset} to {last}{why}")
}

fn read_advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EIO) => "; the kernel log may say more",
        Some(libc::EFAULT) => "; a page of its mapping cannot be had: read it without engine mmap",
        _ => "",
    }
}

impl ErrorKind {
    /// A request failed, and nobody has looked more closely.
    pub(crate) fn read(offset: u64, len: u64, error: io::Error) -> ErrorKind {
        ErrorKind::Read { offset, len, narrowed: Narrowed::Request, error }
    }

    /// How the source changed, if it is that.
    pub fn change(&self) -> Option<Change> {
        match self {
            ErrorKind::Changed(change) => Some(*change),
            _ => None,
        }
    }
}

impl Error {
    pub(crate) fn new(path: &Path, kind: impl Into<ErrorKind>) -> Self {
        Error(Box::new((path.to_owned(), kind.into())))
    }

    /// The source, by the name it was opened with.
    pub fn path(&self) -> &Path {
        &self.0.0
    }

    /// What happened, without the path.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.1
    }

    /// Takes the error apart, for a caller that wants to own what the consumer returned.
    pub fn into_parts(self) -> (PathBuf, ErrorKind) {
        *self.0
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path().display(), self.kind())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind().source()
    }
}
