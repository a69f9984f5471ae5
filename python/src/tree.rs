//! `hash_tree`: an iterator over the files of a tree, which are hashed in parallel meanwhile.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use blockring::Stop;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyType};
use ringsum::files::walk::{Entry, Kind, Walk, WalkOptions};
use ringsum::files::{Failure, InputFile, Job, Location, Outcome};
use ringsum::{Algorithms, Digests};

use crate::digest::{algorithms_of, digests_to_python};
use crate::errors;
use crate::many::ManyOptions;
use crate::queue::{Queue, Taken};
use crate::run::{PATIENCE, TICK};
use crate::selection::Selection;
use crate::source::path_of;

/// A finished entry.
struct Item {
    path: Vec<u8>,
    result: ItemResult,
}

enum ItemResult {
    Digests(Digests, Option<u64>),
    Failed(Failure),
    /// It has no content to hash; its type.
    Skipped(&'static str),
}

/// Data of a job without a file.
enum Tag {
    File,
    Other(Box<Item>),
}

impl Tag {
    fn bytes(&self) -> usize {
        match self {
            Tag::File => 0,
            Tag::Other(item) => size_of::<Item>() + item.path.len(),
        }
    }
}

/// A path in the type of the path that the caller gave.
pub(crate) fn path_to_python<'py>(
    py: Python<'py>,
    path: Vec<u8>,
    is_bytes: bool,
) -> PyResult<Bound<'py, PyAny>> {
    match is_bytes {
        true => Ok(PyBytes::new(py, &path).into_any()),
        false => Ok(OsString::from_vec(path).into_pyobject(py)?.into_any()),
    }
}

/// An entry of a tree. Exactly one of ``digest``, ``error`` and ``skipped`` is not None.
///
/// Attributes
/// ----------
/// path : str or bytes
///     The path: that given to `hash_tree`, a slash, and the rest. ``bytes`` if that is ``bytes``.
/// digest : Digest, dict of str to Digest, or None
///     See `hash_file`.
/// size : int or None
///     The length of the hashed file, in bytes. None on file systems such as ``/proc``.
/// error : Exception or None
///     Why there is no digest: an `OSError` such as `ReadError`, `ChangedError` or `PermissionError`.
/// skipped : str or None
///     What it is, if it has no content to hash: ``"a FIFO"``, ``"a socket"``, ...
#[pyclass(frozen, get_all, module = "ringsum")]
pub(crate) struct TreeEntry {
    path: Py<PyAny>,
    digest: Option<Py<PyAny>>,
    size: Option<u64>,
    error: Option<Py<PyAny>>,
    skipped: Option<&'static str>,
}

#[pymethods]
impl TreeEntry {
    /// Return the class for type hints.
    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        class.py().import("types")?.getattr("GenericAlias")?.call1((class, item))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let path = self.path.bind(py).repr()?;
        let what = match (&self.digest, &self.error, self.skipped) {
            (Some(digest), ..) => format!("digest={}", digest.bind(py).repr()?),
            (_, Some(error), _) => format!("error={}", error.bind(py).repr()?),
            (.., skipped) => format!("skipped={:?}", skipped.unwrap_or_default()),
        };
        Ok(format!("TreeEntry(path={path}, {what})"))
    }
}

/// The iterator of `hash_tree`, and a context manager that closes it.
#[pyclass(frozen, module = "ringsum")]
pub(crate) struct TreeIterator {
    queue: Arc<Queue<Item>>,
    stop: Stop,
    /// Entries that were taken from the queue. The thread that waits for more holds the lock: of two
    /// that wait, the second would replace the entries of the first. Hence a thread that is attached
    /// to the interpreter never waits for this lock.
    taken: Mutex<VecDeque<Item>>,
    is_bytes: bool,
    is_dict: bool,
}

impl TreeIterator {
    /// Returns the next entry; without one, waits for some, but not longer than a tick.
    fn take(&self) -> (Option<Item>, Taken) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match taken.is_empty() {
            true => self.queue.take(&mut taken, TICK),
            false => Taken::Entries,
        };
        (taken.pop_front(), found)
    }

    fn stop(&self) {
        self.stop.stop();
        self.queue.close();
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn entry(&self, py: Python<'_>, item: Item) -> PyResult<TreeEntry> {
        let Item { path, result } = item;
        let (mut digest, mut size, mut error, mut skipped) = (None, None, None, None);
        match result {
            ItemResult::Digests(digests, len) => {
                digest = Some(digests_to_python(py, &digests, self.is_dict)?.unbind());
                size = len;
            }
            ItemResult::Failed(failure) => {
                let path = PathBuf::from(OsString::from_vec(path.clone()));
                let failure = errors::of_failure(py, &path, failure);
                error = Some(failure.into_value(py).into_any());
            }
            ItemResult::Skipped(what) => skipped = Some(what),
        }
        let path = path_to_python(py, path, self.is_bytes)?.unbind();
        Ok(TreeEntry { path, digest, size, error, skipped })
    }
}

#[pymethods]
impl TreeIterator {
    /// Return the class for type hints.
    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        class.py().import("types")?.getattr("GenericAlias")?.call1((class, item))
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<TreeEntry>> {
        loop {
            // Most entries are there: detaching for each would cost more than the rest of the call.
            let at_once = self.taken.try_lock().ok().and_then(|mut taken| taken.pop_front());
            if let Some(item) = at_once {
                return self.entry(py, item).map(Some);
            }
            match py.detach(|| self.take()) {
                (Some(item), _) => return self.entry(py, item).map(Some),
                (None, Taken::End) => return Ok(None),
                (None, Taken::Broken) => {
                    return Err(PyRuntimeError::new_err("a thread of ringsum panicked"));
                }
                (None, Taken::Entries | Taken::Nothing) => {}
            }
            if let Err(raised) = py.check_signals() {
                self.close(py);
                return Err(raised);
            }
        }
    }

    /// Stop the run. Files that are being read are abandoned.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            self.stop();
            self.queue.wait_for_end(PATIENCE);
        });
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
        self.close(py);
    }
}

impl Drop for TreeIterator {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Hash all regular files below a directory in parallel.
///
/// Parameters
/// ----------
/// path : str, bytes or os.PathLike
///     The directory.
/// include, exclude : sequence of str, optional
///     Globs, as in ``ringsum --include`` and ``--exclude``: one without a slash matches names, another
///     matches paths relative to ``path``; ``**`` matches any directories. Only included files are
///     hashed; excluded files are not, and excluded directories are not entered.
/// max_depth : int, optional
///     Most components of a path below ``path``: 1 for the files of the directory itself.
/// follow_symlinks : bool, default False
///     Follow symbolic links. Otherwise they are left out.
/// one_file_system : bool, default False
///     Do not enter directories on other file systems.
/// algorithms : sequence of str, optional
///     See `hash_file`. If given, the digest of an entry is a dictionary.
/// io : dict, optional
///     See `hash_file`.
/// memory : int or str, optional
///     Most memory of the run, in bytes or with a unit: at least 2 MiB. Default: a few dozen MiB.
///
/// Returns
/// -------
/// TreeIterator
///     An iterator over `TreeEntry`, in the order of the bytes of their paths. At most 4096 finished
///     entries wait to be taken; then the run waits. Closing or dropping the iterator ends the run.
///
/// Raises
/// ------
/// NotADirectoryError, FileNotFoundError, PermissionError, ...
///     If the directory cannot be opened. Later errors are those of entries: see `TreeEntry.error`.
/// ValueError
///     If a glob, an algorithm, an option or a size is invalid.
#[pyfunction]
#[pyo3(signature = (
    path, *, include = None, exclude = None, max_depth = None, follow_symlinks = false,
    one_file_system = false, algorithms = None, io = None, memory = None
))]
#[expect(clippy::too_many_arguments, reason = "they are keywords")]
pub(crate) fn hash_tree(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    include: Option<Vec<String>>,
    exclude: Option<Vec<String>>,
    max_depth: Option<u32>,
    follow_symlinks: bool,
    one_file_system: bool,
    algorithms: Option<Vec<String>>,
    io: Option<&Bound<'_, PyDict>>,
    memory: Option<&Bound<'_, PyAny>>,
) -> PyResult<TreeIterator> {
    let root = path_of(path)?.ok_or_else(|| {
        PyTypeError::new_err(format!("a path is needed, not {}", path.get_type()))
    })?;
    let stop = Stop::default();
    let names = algorithms.as_deref().map(algorithms_of).transpose()?;
    let many = ManyOptions::of(io, memory, names.unwrap_or_else(Algorithms::default), &stop)?;
    let walk = WalkOptions {
        follow: follow_symlinks,
        one_file_system,
        select: Selection::of(include.as_deref(), exclude.as_deref(), max_depth)?,
        ahead_bytes: many.ahead_bytes(),
        listing_bytes: many.listing_bytes(),
        ..WalkOptions::default()
    };
    let walk = py.detach(|| Walk::new(&root, &walk));
    let walk = walk.map_err(|error| errors::of_io(&root, &error, ""))?;
    let queue = Arc::new(Queue::new());
    let iterator = TreeIterator {
        queue: queue.clone(),
        stop: stop.clone(),
        taken: Mutex::default(),
        is_bytes: path.cast::<PyBytes>().is_ok(),
        is_dict: names.is_some(),
    };
    let run = move || {
        // Ends the iterator, also after a panic.
        let queue = EndGuard(queue);
        let is_separate = !many.supports_sharing();
        let jobs = walk.take_while(|_| !stop.is_stopped());
        let jobs = jobs.filter_map(|entry| job_of(entry, is_separate).map(Some));
        many.hash(jobs, Tag::bytes, |outcome| !stop.is_stopped() && queue.0.add(item_of(outcome)));
    };
    thread::Builder::new().name("ringsum".to_owned()).spawn(run)?;
    Ok(iterator)
}

struct EndGuard(Arc<Queue<Item>>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        // A tree of which some files are missing must not look complete.
        self.0.end(thread::panicking());
    }
}

/// Returns the job for an entry, if there is one.
fn job_of(entry: Entry, is_separate: bool) -> Option<Job<Tag>> {
    let item = |entry: &Entry, result| {
        let item = Box::new(Item { path: entry.path(), result });
        Some(Job { tag: Tag::Other(item), file: None })
    };
    let skipped = match entry.kind() {
        Kind::File => {
            let mut file = InputFile::from(entry);
            file.is_separate = is_separate;
            return Some(Job { tag: Tag::File, file: Some(file) });
        }
        Kind::Failed(error) => {
            // (Errors cannot be cloned.)
            let copy = error.raw_os_error().map_or_else(
                || io::Error::new(error.kind(), error.to_string()),
                io::Error::from_raw_os_error,
            );
            return item(&entry, ItemResult::Failed(Failure::Open(copy)));
        }
        Kind::Directory | Kind::Symlink => return None,
        Kind::Fifo => "a FIFO",
        Kind::Socket => "a socket",
        Kind::BlockDevice => "a block device",
        Kind::CharDevice => "a character device",
    };
    item(&entry, ItemResult::Skipped(skipped))
}

fn item_of(outcome: Outcome<Tag>) -> Item {
    let Outcome { job, result } = outcome;
    let path = match job.file.map(|file| file.location) {
        Some(Location::Entry(entry)) => entry.path(),
        Some(Location::Path(path)) => path.into_os_string().into_vec(),
        None => Vec::new(),
    };
    let failed = |why: &str| ItemResult::Failed(Failure::Other(why.to_owned()));
    let result = match (result, job.tag) {
        (None, Tag::Other(item)) => return *item,
        (None, Tag::File) => failed("it was not read"),
        (Some(Ok(hashed)), _) => {
            let len = hashed.fingerprint.map(|fingerprint| fingerprint.len);
            ItemResult::Digests(hashed.digests, len)
        }
        (Some(Err(failure)), _) => ItemResult::Failed(failure),
    };
    Item { path, result }
}
