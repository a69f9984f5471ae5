//! The scheduler: hashes many files in parallel, and reports them in the order they were given.
//!
//! ```text
//!  jobs ─▶ dispatch ─▶ a queue for each device ─▶ worker pool: open, stat, read ──▶ reorder ─▶ report
//!          (numbers)   sorted by inode            large files: rings shared         buffer
//!                                                 by several threads
//! ```
//!
//! Jobs are numbered as they arrive. Each device has its own queue and worker pool, so that a slow
//! device does not hold up another. Within a queue, files are sorted by inode, a few thousand at a
//! time: usually that is their order on the device. Finished jobs wait in the reorder buffer until
//! all earlier ones have been reported.

mod cached;
mod device;
mod dispatch;
mod file_state;
pub(crate) mod input;
mod job;
pub(crate) mod memory_shares;
mod queue;
mod reorder_buffer;
mod retry_queue;
mod short_files;
#[cfg(test)]
mod tests;
mod threads;
mod worker;
mod worker_pool;

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use blockring::{Change, Config, ErrorKind, Fingerprint, Plan, Source, SourceKind};

use self::dispatch::Run;
use self::input::{InputFile, Location};
use crate::files::descriptors;
use crate::hash::tree::is_subtree_size;
use crate::{Algorithms, BadRanges, Digest, Digests, Error, Options, TreeError, lock};

/// Most jobs that are dispatched but not reported. Together with
/// [`Memory::limit_bytes`](blockring::Memory::limit_bytes) and the buffers of the threads, this
/// bounds the memory of a run: names, digests, and results of `stat`.
const UNREPORTED_MAX: usize = if cfg!(test) { 512 } else { 16_384 };

/// Threads of a device that open and read small files, unless it is rotational. 16 and 32 of them
/// read a cold tree in the same time, 8 took 10 % longer; each has up to 64 files in flight.
const SMALL_THREADS: usize = 16;

/// Upper limit of [`FilesOptions::small_threads`].
pub(crate) const SMALL_THREADS_MAX: usize = 1024;

/// A job: something to report in order, with or without a file to hash.
pub struct Job<T> {
    /// The caller's data.
    pub tag: T,
    /// The file to hash.
    pub file: Option<InputFile>,
}

impl<T> Job<T> {
    /// Returns its memory until it is reported, in bytes, without memory owned by its tag.
    /// `algorithms`: those of its file.
    fn bytes(&self, algorithms: &Algorithms) -> usize {
        // (One digest is stored in the outcome itself.)
        let digests = match (&self.file, &**algorithms) {
            (None, _) | (_, [_]) => 0,
            (_, all) => all.iter().map(|a| size_of::<Digest>() + a.bytes()).sum(),
        };
        let name = match self.file.as_ref().map(|file| &file.location) {
            None => 0,
            // Each may be the only one left of its directory.
            Some(Location::Entry(entry)) => entry.name().len() + DIRECTORY_BYTES,
            Some(Location::Path(path)) => path.as_os_str().len(),
        };
        size_of::<Outcome<T>>() + name + digests
    }
}

/// Memory of a directory of a walk, besides its name, in bytes.
const DIRECTORY_BYTES: usize = 256;

/// A finished job.
pub struct Outcome<T> {
    /// The job.
    pub job: Job<T>,
    /// Its result; `None` if there was no file to hash.
    pub result: Option<Result<Hashed, Failure>>,
}

/// The digests of a file, and the file's state when it was opened.
#[derive(Debug)]
pub struct Hashed {
    /// The digests.
    pub digests: Digests,
    /// Whether they were not computed but supplied by [`FilesOptions::cached`].
    pub is_cached: bool,
    /// The file's fingerprint; `None` if a change of content may leave it unchanged: for anything
    /// but a regular file, for files of pseudo file systems such as `/proc` and `/sys`, and for
    /// input that was not read from its start.
    pub fingerprint: Option<Fingerprint>,
    /// The device number of its file system.
    pub device: u64,
}

impl Hashed {
    /// The digests of `source`.
    pub fn new(digests: Digests, source: &Source) -> Hashed {
        let hashed = Hashed::of_file(digests, source);
        match source.is_pseudo() {
            true => Hashed { fingerprint: None, ..hashed },
            false => hashed,
        }
    }

    /// The same for a source known not to be on a pseudo file system.
    fn of_file(digests: Digests, source: &Source) -> Hashed {
        let (fingerprint, device) = (Hashed::fingerprint_of(source), source.device());
        Hashed { digests, is_cached: false, fingerprint, device }
    }

    fn fingerprint_of(source: &Source) -> Option<Fingerprint> {
        let is_whole = source.kind() == SourceKind::File && source.start() == 0;
        is_whole.then(|| source.fingerprint())
    }
}

/// Why a file has no digest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// It could not be opened.
    #[error("{0}")]
    Open(io::Error),
    /// Something else has replaced the regular file that was listed.
    #[error("replaced: {0}")]
    Replaced(String),
    /// It could not be read completely, or it changed.
    #[error("{0}")]
    Read(#[from] ErrorKind),
    /// Its parts do not form a complete tree.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// It has unreadable ranges, all of which were located.
    #[error("{0}")]
    Unreadable(BadRanges),
    /// Another reason, usually from [`FilesOptions::hash_one`].
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// Returns how the file changed while it was read, if that is the reason.
    pub fn change(&self) -> Option<Change> {
        match self {
            Failure::Read(ErrorKind::Changed(change)) => Some(*change),
            Failure::Replaced(_) => Some(Change::Replaced),
            _ => None,
        }
    }

    /// Whether descriptors were exhausted, so that waiting may help.
    fn is_out_of_descriptors(&self) -> bool {
        matches!(self, Failure::Open(error) if descriptors::is_exhausted(error))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Read(error) => Failure::Read(error.kind),
            Error::Tree(error) => Failure::Tree(error),
            error @ (Error::NothingRead | Error::Outboard(_)) => Failure::Other(error.to_string()),
        }
    }
}

/// How to hash many files.
pub struct FilesOptions<'a, T> {
    /// How to hash and to read.
    pub hash: &'a Options,
    /// Threads per device that open and read small files, 1 to
    /// [`small_threads_max`](super::small_threads_max). Default: 16, or as many as the memory
    /// limit allows; 1 on a rotational device. Large files have others: 1 per core, at most 4.
    pub small_threads: Option<usize>,
    /// Report each job as soon as it is finished instead of in order.
    pub unordered: bool,
    /// Returns the memory owned by a tag, in bytes.
    pub tag_bytes: fn(&T) -> usize,
    /// Returns the BLAKE3 hash of a file that is unchanged since it was computed, so that it need
    /// not be read. The arguments are the tag, the device number, and the fingerprint. Called
    /// before the file is opened.
    pub cached: Option<Cached<'a, T>>,
    /// Hashes a file that cannot share readers: anything but a regular file, and files that must be
    /// read differently from the rest of their device. Usually called on one thread at a time.
    pub hash_one: HashOne<'a, T>,
    /// Shortest regular file that is hashed by [`hash_one`](FilesOptions::hash_one) in any case, in
    /// bytes. Default: none is.
    pub separate_bytes_min: u64,
    /// Returns the delay before a file that changed while it was read is read again. The arguments
    /// are the job and the number of retries so far. `None`: the file fails.
    pub retry_after: Option<RetryAfter<'a, T>>,
    /// Called with the plan of each device before its files are read.
    pub on_plan: &'a (dyn Fn(&Plan) + Sync),
    /// Called with the plan of each device after its last file. Default: does nothing.
    pub on_finished: &'a (dyn Fn(&Plan) + Sync),
    /// Called with the number of bytes hashed, and for each finished file.
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

impl<'a, T> FilesOptions<'a, T> {
    /// Reports in order; no file is cached or read again.
    pub fn new(hash: &'a Options, hash_one: HashOne<'a, T>) -> FilesOptions<'a, T> {
        FilesOptions {
            hash,
            small_threads: None,
            unordered: false,
            tag_bytes: |_| 0,
            cached: None,
            hash_one,
            separate_bytes_min: u64::MAX,
            retry_after: None,
            on_plan: &|_| (),
            on_finished: &|_| (),
            progress: &|_| (),
        }
    }
}

/// See [`FilesOptions::cached`].
type Cached<'a, T> = &'a (dyn Fn(&T, u64, &Fingerprint) -> Option<[u8; 32]> + Sync);

/// See [`FilesOptions::retry_after`].
type RetryAfter<'a, T> = &'a (dyn Fn(&Job<T>, u32) -> Option<Duration> + Sync);

/// See [`FilesOptions::hash_one`].
type HashOne<'a, T> = &'a (dyn Fn(&Job<T>) -> Result<Hashed, Failure> + Sync);

/// Progress of a run.
#[derive(Debug, Clone, Copy)]
pub enum Progress {
    /// This many bytes were hashed.
    Bytes(u64),
    /// A file is finished.
    File {
        /// Its length, if its hash was cached; otherwise 0.
        cached_bytes: u64,
    },
}

/// Runs on its own thread and may end a run early.
pub trait Watch: Sync {
    /// Waits for a reason to stop, or for [`end`](Watch::end). `stop` ends the run: finished jobs
    /// are reported, in order, and no others.
    fn watch(&self, stop: &(dyn Fn() + Sync));

    /// Called when the run is over.
    fn end(&self);
}

/// Hashes the files of `jobs`, and calls `report` with each job in order: one call at a time, but
/// on any thread. `report` may stop the run. A `None` among the jobs means that the next one may
/// take a while, so earlier ones should not wait for it.
///
/// A file that cannot be hashed has a [`Failure`], and the run continues.
///
/// # Errors
///
/// The error with which `report` stopped the run.
///
/// # Panics
///
/// If a job was lost, which is a bug: silently omitting it would be worse.
pub fn hash_files<T: Send, E: Send>(
    jobs: impl Iterator<Item = Option<Job<T>>>,
    options: &FilesOptions<'_, T>,
    report: impl FnMut(Outcome<T>) -> Result<(), E> + Send,
    watch: Option<&dyn Watch>,
) -> Result<(), E> {
    let report = Mutex::new((report, None));
    let deliver = |outcome| {
        let (report, failed) = &mut *lock(&report);
        match report(outcome) {
            Ok(()) => true,
            Err(error) => {
                failed.get_or_insert(error);
                false
            }
        }
    };
    Run::new(options, &deliver).run(jobs, watch);
    match report.into_inner().unwrap_or_else(PoisonError::into_inner).1 {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Whether files can share readers with this configuration. Some options only fit a single file;
/// with those, each file is hashed by [`FilesOptions::hash_one`].
pub fn supports_sharing(config: &Config) -> bool {
    use blockring::EngineKind::{Mmap, Null, Stream};
    let io = &config.io;
    !io.in_order
        && io.block_bytes.is_none_or(|bytes| is_subtree_size(bytes.into()))
        && !matches!(io.engine, Some(Mmap | Null | Stream))
        && !config.uring.fixed_file
        && io.workers.is_none()
}
