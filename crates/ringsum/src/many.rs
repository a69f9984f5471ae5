//! Many files at once, told of in the order in which they were given.
//!
//! ```text
//!  tasks ─▶ sequence ─▶ a lane for each device ─▶ threads: open, look, read ──▶ order ─▶ sink
//!           (numbers)   sorted as they lie there   large files: rings they share   (waits for its turn)
//! ```
//!
//! Tasks are taken as they come and get a number each. Files of one device make a lane of their own, with
//! its own threads, so that a slow device holds up no other. In a lane files are sorted by their inode,
//! some thousand at a time: that is the order in which they lie on the device, as a rule. What is done
//! waits until all before it is done, and then goes to the sink.

mod again;
mod budget;
mod file;
mod known;
mod lane;
mod queue;
mod reading;
mod sequence;
mod short;
mod ticket;
mod turns;

use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use blockring::{BadRange, Change, Config, ErrorKind, Shared, Source, SourceKind, Stamp};
use rustix::io::Errno;

use crate::sums::Running;
use crate::{Algorithm, Algorithms, Digest, Error, Mode, Options, Sum, TreeError};

pub use budget::{Budget, PROCESS_BYTES, name_bytes};
pub use file::{Place, ToHash, look_at};
use sequence::Run;
pub use turns::Stop;

/// Most tasks that are begun and not told of yet: what a run keeps in memory is bounded by them (names,
/// hashes, and what `stat` said), by [`Config::memory_bytes`], and by the buffers of its threads.
pub const WAITING_MAX: usize = 16_384;

/// Threads of a device that open and read small files, unless it turns: 16 and 32 of them read a cold tree
/// in the same time, 8 took 10 % longer; each has up to 64 files in work.
pub const JOBS: usize = 16;

/// Most of them.
pub const JOBS_MAX: usize = 1024;

/// Descriptors of the process that are neither files that are hashed nor directories: its ends, those that wake, a list.
pub(crate) const OTHER_DESCRIPTORS: u64 = 8;

/// Something to be told of in its turn, with or without a file to be hashed.
pub struct Task<T> {
    /// The caller's.
    pub tag: T,
    /// What to hash.
    pub file: Option<ToHash>,
}

impl<T> Task<T> {
    /// What it takes until it is told of, without what belongs to its tag, in bytes. `algorithms`: what is made of
    /// its file.
    fn bytes(&self, algorithms: &Algorithms) -> usize {
        // (That of BLAKE3 alone is in the outcome.)
        let sums = match self.file.is_none() || algorithms.is_blake3() {
            true => 0,
            false => algorithms.as_slice().iter().map(|a| size_of::<Sum>() + a.bytes()).sum(),
        };
        let name = match self.file.as_ref().map(|file| &file.place) {
            None => 0,
            // Each may be the only one of its directory.
            Some(Place::Entry(entry)) => entry.name().len() + DIRECTORY_BYTES,
            Some(Place::Path(path)) => path.as_os_str().len(),
        };
        size_of::<Outcome<T>>() + name + sums
    }
}

/// Memory of a directory of a walk, besides its name, in bytes.
const DIRECTORY_BYTES: usize = 256;

/// What has become of a task.
pub struct Outcome<T> {
    /// The task.
    pub task: Task<T>,
    /// The hash; `None` where there was nothing to hash.
    pub result: Option<Result<Hashed, Failure>>,
}

/// A file's hash, and what the file was when it was opened.
#[derive(Debug)]
pub struct Hashed {
    /// The hash.
    pub found: Found,
    /// What `stat` said; `None` for what is no regular file, or was not read from its start, or has another content than its length says,
    /// as files of `/proc` and `/sys` do.
    pub stamp: Option<Stamp>,
    /// The device that it is on.
    pub device: u64,
}

/// Where a hash comes from.
#[derive(Debug)]
pub enum Found {
    /// The file was read, and BLAKE3 is all that was wanted.
    Read(Digest),
    /// It was read, and the usual 32 bytes of BLAKE3 are all that was wanted.
    Hash(blake3::Hash),
    /// It was read, for other digests, too: in the order in which they were asked for.
    Each(Vec<Sum>),
    /// It had not changed since it was hashed.
    Known(blake3::Hash),
}

impl Hashed {
    /// What was made of the content of `source`.
    pub fn read(found: Found, source: &Source) -> Hashed {
        Hashed { found, stamp: Hashed::stamp_of(source), device: source.device() }
    }

    fn stamp_of(source: &Source) -> Option<Stamp> {
        let is_whole = source.kind() == SourceKind::File && source.start() == 0;
        is_whole.then(|| source.stamp())
    }

    /// The usual 32 bytes of BLAKE3; `None` where others were asked for.
    pub fn hash(&self) -> Option<blake3::Hash> {
        match &self.found {
            Found::Known(hash) | Found::Hash(hash) => Some(*hash),
            _ => self.digest().map(Digest::hash),
        }
    }

    /// BLAKE3's extended output; `None` where the file was not read, or not for that: see [`ToHash::extended`].
    pub fn digest(&self) -> Option<&Digest> {
        match &self.found {
            Found::Read(digest) => Some(digest),
            Found::Each(sums) => sums.iter().find_map(|sum| match sum {
                Sum::Blake3(digest) => Some(digest),
                Sum::Other(..) => None,
            }),
            Found::Known(_) | Found::Hash(_) => None,
        }
    }

    /// What `algorithm` made of it, of BLAKE3 so many bytes from `seek` on; `None` if that was not wanted
    /// ([`ToHash::algorithms`], [`ToHash::extended`]).
    pub fn value(&self, algorithm: Algorithm, seek: u64, len: usize) -> Option<Vec<u8>> {
        if algorithm == Algorithm::Blake3 {
            if let Found::Hash(hash) = &self.found {
                let start = usize::try_from(seek).ok()?;
                let bytes = hash.as_bytes().get(start..start.checked_add(len)?);
                debug_assert!(bytes.is_some(), "more was asked for than was wanted");
                return bytes.map(<[u8]>::to_vec);
            }
            return self.digest().map(|digest| digest.bytes(seek, len));
        }
        let Found::Each(sums) = &self.found else { return None };
        let sum = sums.iter().find(|sum| sum.algorithm() == algorithm)?;
        Some(sum.bytes(seek, len))
    }

    /// Whether `algorithm` made of it what is expected: of BLAKE3, as many bytes as are, from `seek` on. Takes as
    /// long for any difference, as far as is possible for a length that is not known beforehand.
    pub fn is(&self, algorithm: Algorithm, seek: u64, expected: &[u8]) -> bool {
        self.value(algorithm, seek, expected.len()).is_some_and(|found| {
            let differences = found.iter().zip(expected).fold(0, |sum, (a, b)| sum | (a ^ b));
            found.len() == expected.len() && differences == 0
        })
    }

    /// What `stat` says of such a file does not tell whether its content has changed.
    fn without_stamp(self) -> Hashed {
        Hashed { stamp: None, ..self }
    }

    fn is_known(&self) -> bool {
        matches!(self.found, Found::Known(_))
    }
}

/// Why a file has no hash.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// It could not be opened.
    #[error("{0}")]
    Open(io::Error),
    /// It was a regular file a moment ago.
    #[error("replaced: {0}")]
    Replaced(Replacement),
    /// It could not be read whole and unchanged.
    #[error("{0}")]
    Read(#[from] ErrorKind),
    /// Its parts make no whole.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// It has places that cannot be read, and all of them were looked for.
    #[error("{0}")]
    Unreadable(BadRanges),
    /// What reads single files could not read it.
    #[error("{0}")]
    Alone(String),
}

/// What took the place of a regular file between the look at it and its opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Replacement {
    /// A device, a pipe, a socket.
    #[error("it is {} now, and was a regular file a moment ago", .0.name())]
    Source(SourceKind),
    /// A directory.
    #[error("it is a directory now, and was a regular file a moment ago")]
    Directory,
    /// A symbolic link, which was not followed.
    #[error("it is a symbolic link now, and was a regular file a moment ago")]
    Link,
    /// Something took the place of the directory that it was in.
    #[error("its directory was another one a moment ago")]
    Parent,
}

impl Failure {
    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        match self {
            Failure::Open(error) | Failure::Read(ErrorKind::Open(error)) => {
                error.kind() == io::ErrorKind::NotFound
            }
            _ => false,
        }
    }

    /// How the file changed while it was read, if that is what is wrong with it.
    pub fn change(&self) -> Option<Change> {
        match self {
            Failure::Read(kind) => kind.change(),
            Failure::Replaced(_) => Some(Change::Replaced),
            _ => None,
        }
    }

    /// Whether there were too many open files, so that there may soon be fewer.
    fn is_scarcity(&self) -> bool {
        let Failure::Open(error) = self else { return false };
        matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Read(error) => Failure::Read(error.into_parts().1),
            Error::Tree(error) => Failure::Tree(error),
            error @ Error::NothingRead => Failure::Alone(error.to_string()),
        }
    }
}

/// What of a file cannot be read.
#[derive(Debug, Default)]
pub struct BadRanges {
    /// Where, in their order: the first [`BAD_RANGES_MAX`].
    pub first: Vec<BadRange>,
    /// How many there are.
    pub count: u64,
    /// How many bytes that is.
    pub bytes: u64,
}

/// Most ranges that are kept of one file: 6 MB of memory, and more than are of use to anybody who does not
/// read them as they come.
pub const BAD_RANGES_MAX: usize = 100_000;

impl BadRanges {
    /// Takes one down.
    pub fn add(&mut self, range: BadRange) {
        self.count += 1;
        self.bytes += range.len;
        if self.first.len() < BAD_RANGES_MAX {
            self.first.push(range);
        }
    }
}

impl fmt::Display for BadRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadRanges { count, bytes, .. } = self;
        let ranges = if *count == 1 { "range" } else { "ranges" };
        write!(f, "{bytes} bytes in {count} {ranges} cannot be read, so it has no hash")
    }
}

/// How to go about it.
pub struct ManyOptions<'a, T> {
    /// How to hash and to read.
    pub hash: &'a Options,
    /// What to make of files.
    pub algorithms: Algorithms,
    /// Threads of each device that open and read small files, as far as [`Budget::jobs_max`] allows; default:
    /// [`JOBS`], or as many as the memory has room for, and 1 on a device that turns. Large files have as many more as there are processors, 4 at most.
    pub jobs: Option<usize>,
    /// Tell of each task when it is done, not in its turn.
    pub unordered: bool,
    /// Says how much memory a tag takes besides itself, in bytes.
    pub weigh: fn(&T) -> usize,
    /// Asked before a file is opened, where it is known: what it was the last time it was hashed. The
    /// answer is taken for its hash.
    pub known: Option<Known<'a, T>>,
    /// Hashes what is no regular file, and what has to be read by itself, on one thread.
    pub alone: Alone<'a, T>,
    /// Asked when a file changed while it was read, and how often it was read again already: after which
    /// time it is to be read again. `None`: it has failed. Without this, it always has.
    pub again: Option<Again<'a, T>>,
    /// Told once for each device how it is read, before and after.
    pub device: &'a (dyn Fn(&Shared, When) + Sync),
    /// Told of bytes that were hashed, and of files that are done.
    pub progress: &'a (dyn Fn(Step) + Sync),
}

impl<'a, T> ManyOptions<'a, T> {
    /// BLAKE3 alone, in order, with nothing known, and nobody told of anything on the way.
    pub fn new(hash: &'a Options, alone: Alone<'a, T>) -> ManyOptions<'a, T> {
        ManyOptions {
            hash,
            algorithms: Algorithms::default(),
            jobs: None,
            unordered: false,
            weigh: |_| 0,
            known: None,
            alone,
            again: None,
            device: &|_, _| (),
            progress: &|_| (),
        }
    }
}

/// Gives the hash of a file that did not change since it was hashed.
pub type Known<'a, T> = &'a (dyn Fn(&T, u64, &Stamp) -> Option<[u8; 32]> + Sync);

/// Says when to read a file that changed again.
pub type Again<'a, T> = &'a (dyn Fn(&Task<T>, u32) -> Option<Duration> + Sync);

/// Hashes one file by itself.
pub type Alone<'a, T> = &'a (dyn Fn(&Task<T>) -> Result<Hashed, Failure> + Sync);

/// Which time somebody is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The plan is made, and nothing was read yet.
    Before,
    /// All was read, and statistics are there.
    After,
}

/// Something was done.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// So many bytes were hashed.
    Bytes(u64),
    /// A file is done, of so many bytes that were not hashed since they were known.
    File {
        /// Bytes.
        known: u64,
    },
}

/// Somebody who may end a run early: on a thread of its own.
pub trait Watch: Sync {
    /// Waits for a reason to stop, or for [`end`](Watch::end).
    fn watch(&self, stop: &Stop<'_>);

    /// The run is over.
    fn end(&self);
}

/// Hashes what `tasks` give, and tells `sink` of each, in their order: one call after another, but from
/// any thread. `sink` may stop the run. A `None` among the tasks says that the next may take a while, so
/// that those before it are not to wait for it.
///
/// A file that fails has a [`Failure`] of its own, and the others go on.
///
/// # Errors
///
/// What `sink` stopped the run with.
///
/// # Panics
///
/// When a task was lost, which would be a mistake in here: a list without it is worse.
pub fn hash_many<T: Send, E: Send>(
    tasks: impl Iterator<Item = Option<Task<T>>>,
    options: &ManyOptions<'_, T>,
    sink: impl FnMut(Outcome<T>) -> Result<(), E> + Send,
    watch: Option<&dyn Watch>,
) -> Result<(), E> {
    let sink = Mutex::new((sink, None));
    let deliver = |outcome| {
        let (sink, failed) = &mut *lock(&sink);
        match sink(outcome) {
            Ok(()) => true,
            Err(error) => {
                failed.get_or_insert(error);
                false
            }
        }
    };
    Run::new(options, &deliver).run(tasks, watch);
    match sink.into_inner().unwrap_or_else(PoisonError::into_inner).1 {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Whether many files can be read together with these options. Some are for one file: then each is read
/// alone.
pub fn can_share(config: &Config) -> bool {
    use blockring::EngineKind::{Mmap, Null, Stream};
    let is_subtree = |bytes: u32| crate::is_subtree_size(bytes.into());
    !config.in_order
        && config.block_bytes.is_none_or(is_subtree)
        && !matches!(config.engine, Some(Mmap | Null | Stream))
        && !config.uring.fixed_file
        && config.workers.is_none()
        && config.trace.is_none()
}

fn lock<X>(mutex: &Mutex<X>) -> MutexGuard<'_, X> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is made of bytes that are all there.
fn found_in(mode: &Mode, algorithms: &Algorithms, bytes: &[u8]) -> Found {
    if algorithms.is_blake3() {
        return Found::Read(Digest::new(mode.hasher().update(bytes).finalize_xof()));
    }
    let mut running = Running::new(mode, algorithms);
    running.update(bytes);
    running.finish()
}
