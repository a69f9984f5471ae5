//! `hash_range`: the part of an object in a file, a stream or a buffer.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use blake3::hazmat::HasherExt;
use blockring::{Change, Stop};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PySlice};
use ringsum::{Options, digest_source};

use crate::errors;
use crate::options::config_of;
use crate::part::{self, Part};
use crate::run::interruptible;
use crate::source::Input;

/// Bytes that are asked of a file object at a time: few enough to stay in the cache of a core while
/// they are hashed, and enough that a call costs little.
const READ_BYTES: u64 = 1 << 20;

/// Most blocks of a file object that wait to be hashed.
const QUEUED_MAX: usize = 2;

/// Bytes of a buffer that are hashed between two looks for a signal: 5 ms.
const BUFFER_BYTES: usize = 32 << 20;

/// Files of at most this length are read on the calling thread: starting another takes longer.
pub(crate) const INLINE_BYTES: u64 = 512 << 10;

/// Return the part of an object that a range of its bytes is, for `merge`.
///
/// Parameters
/// ----------
/// source : str, bytes, os.PathLike, int, file object or buffer
///     A path or a file descriptor, which is read at ``offset`` and keeps its position; an object with
///     ``read`` or ``readinto`` that is positioned at ``offset``, which is read in blocks of at most
///     1 MiB; or an object with the buffer protocol that holds the bytes of the range. ``bytes`` are a
///     path without ``total``, and the bytes of the range with it.
/// offset : int, default 0
///     Start of the range, in bytes: a multiple of 1024.
/// length : int, optional
///     Length of the range, in bytes: a multiple of 1024, unless the range ends where the object does.
///     Default: the rest of the object, or the length of the buffer.
/// total : int, optional
///     Length of the whole object, in bytes. Needed for a file object or a buffer; of a file, it must be
///     the length if it is given.
/// io : dict, optional
///     See `hash_file`; only for a path or a file descriptor.
/// memory : int or str, optional
///     See `hash_file`; only for a path or a file descriptor.
///
/// Returns
/// -------
/// Part
///     Some 32 bytes for each power of two that the range is made of, whatever its length: one value for
///     a range whose length is a power of two and whose offset is a multiple of it.
///
/// Raises
/// ------
/// ValueError
///     If the range is not aligned, is empty, or reaches past the end.
/// ChangedError
///     If the file changed while it was read or is not ``total`` bytes long, or if a file object ended
///     before the range did.
/// OSError
///     As for `hash_file`. What ``read`` raises is passed on.
///
/// Notes
/// -----
/// All parts must be of one version of the object, which nothing in them shows.
#[pyfunction]
#[pyo3(signature = (source, offset = 0, length = None, *, total = None, io = None, memory = None))]
pub(crate) fn hash_range(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    offset: u64,
    length: Option<u64>,
    total: Option<u64>,
    io: Option<&Bound<'_, PyDict>>,
    memory: Option<&Bound<'_, PyAny>>,
) -> PyResult<Part> {
    let stop = Stop::default();
    let config = config_of(io, memory, &stop)?;
    // With a total, bytes are those of the range; without one, they are a path.
    let is_bytes = total.is_some() && source.cast::<PyBytes>().is_ok();
    if !is_bytes && let Some(input) = Input::of(source)? {
        let options = Options { config, ..Options::default() };
        return of_file(py, input, offset, length, total, options, &stop);
    }
    if io.is_some_and(|io| !io.is_empty()) || memory.is_some() {
        let why = "io and memory are for files that are given by path or descriptor";
        return Err(PyValueError::new_err(why));
    }
    let need_total = || {
        let why = "total, the length of the whole object, is needed unless the source is a file";
        PyValueError::new_err(why)
    };
    if source.hasattr("read")? || source.hasattr("readinto")? {
        let total = total.ok_or_else(need_total)?;
        let range = range_of(offset, length, total)?;
        return of_stream(py, source, range, total);
    }
    let Ok(buffer) = PyBuffer::<u8>::get(source) else {
        let kind = source.get_type();
        let why =
            format!("a path, a file descriptor, a file object or bytes are needed, not {kind}");
        return Err(PyTypeError::new_err(why));
    };
    let total = total.ok_or_else(need_total)?;
    let bytes = buffer.len_bytes() as u64;
    if length.is_some_and(|length| length != bytes) {
        let why = format!("length is {}, but the buffer has {bytes} bytes", length.unwrap_or(0));
        return Err(PyValueError::new_err(why));
    }
    of_buffer(py, &buffer, range_of(offset, Some(bytes), total)?, total)
}

/// Returns the range of an object of `total` bytes, if it can be a part of it.
fn range_of(offset: u64, length: Option<u64>, total: u64) -> PyResult<Range<u64>> {
    let length = length.unwrap_or(total.saturating_sub(offset));
    let end = offset.checked_add(length);
    let range = offset..end.ok_or_else(|| PyValueError::new_err("the range is too long"))?;
    part::check(&range, total)?;
    Ok(range)
}

/// Why a range of a file has no part.
enum Failure {
    /// The library's error.
    Hash(ringsum::Error),
    /// It is no file that has ranges.
    NoRanges(PathBuf),
    /// The file is not as long as the caller said.
    OtherLength(PathBuf, Change),
    /// The range is refused.
    Range(PyErr),
}

fn of_file(
    py: Python<'_>,
    input: Input,
    offset: u64,
    length: Option<u64>,
    total: Option<u64>,
    options: Options,
    stop: &Stop,
) -> PyResult<Part> {
    let is_short = input.is_short(INLINE_BYTES);
    let work = move || -> Result<Part, Failure> {
        let source = input.open_for_ranges().map_err(|error| Failure::Hash(error.into()))?;
        let name = || source.path().to_owned();
        let len = source.len().filter(|_| !source.is_pseudo());
        let len = len.ok_or_else(|| Failure::NoRanges(name()))?;
        let total = total.unwrap_or(len);
        if total != len {
            let change = match len < total {
                true => Change::Shrank { from: total, to: len },
                false => Change::Grew { from: total, to: len },
            };
            return Err(Failure::OtherLength(name(), change));
        }
        let range = range_of(offset, length, total).map_err(Failure::Range)?;
        let mut values = Vec::new();
        if range == (0..total) {
            let digests = digest_source(&source, &options).map_err(Failure::Hash)?;
            values.extend(digests.hash().map(|hash| *hash.as_bytes()));
        } else {
            for subtree in part::subtrees(&range, total) {
                let subtree = ringsum::hash_range(&source, subtree, &options);
                values.push(subtree.map_err(Failure::Hash)?.cv);
            }
        }
        Ok(Part::new(range, total, values))
    };
    let result = match is_short {
        true => py.detach(work),
        false => interruptible(py, stop, work)?,
    };
    result.map_err(|failure| match failure {
        Failure::Hash(error) => errors::of_hash(py, error),
        Failure::OtherLength(path, change) => errors::of_change(py, &path, change),
        Failure::NoRanges(path) => {
            let what = "has no length, so it has no ranges: pass an object with `read` and `total`";
            PyValueError::new_err(format!("{} {what}", path.display()))
        }
        Failure::Range(error) => error,
    })
}

/// Hashes the bytes of a range as they come.
struct RangeHasher {
    /// The subtrees that are not complete yet, the first one last.
    left: Vec<Range<u64>>,
    hasher: blake3::Hasher,
    /// Bytes that the current subtree still needs.
    missing: u64,
    is_whole: bool,
    values: Vec<[u8; 32]>,
}

impl RangeHasher {
    fn new(range: &Range<u64>, total: u64) -> RangeHasher {
        let mut left = part::subtrees(range, total);
        left.reverse();
        let is_whole = *range == (0..total);
        let hasher = blake3::Hasher::new();
        let mut new = RangeHasher { left, hasher, missing: 0, is_whole, values: Vec::new() };
        new.start();
        new
    }

    /// Starts the next subtree, if there is one.
    fn start(&mut self) {
        let Some(subtree) = self.left.last() else { return };
        self.hasher = blake3::Hasher::new();
        self.hasher.set_input_offset(subtree.start);
        self.missing = subtree.end - subtree.start;
    }

    fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.left.is_empty() {
            let len = usize::try_from(self.missing).unwrap_or(usize::MAX).min(bytes.len());
            self.hasher.update(&bytes[..len]);
            bytes = &bytes[len..];
            self.missing -= len as u64;
            if self.missing == 0 && !self.is_whole {
                self.values.push(self.hasher.finalize_non_root());
                self.left.pop();
                self.start();
            }
        }
    }

    fn finalize(mut self) -> Vec<[u8; 32]> {
        if self.is_whole {
            self.values.push(*self.hasher.finalize().as_bytes());
        }
        self.values
    }
}

fn of_buffer(
    py: Python<'_>,
    buffer: &PyBuffer<u8>,
    range: Range<u64>,
    total: u64,
) -> PyResult<Part> {
    if !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("the buffer is not contiguous"));
    }
    let mut hasher = RangeHasher::new(&range, total);
    let len = buffer.len_bytes();
    let bytes: &[u8] = match len {
        0 => &[],
        #[expect(unsafe_code)]
        // SAFETY: the exporter keeps the memory in place while the buffer is held. As with
        // `hashlib`, a program that writes to it meanwhile gets the digest of some mixture.
        _ => unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), len) },
    };
    for block in bytes.chunks(BUFFER_BYTES) {
        py.detach(|| hasher.update(block));
        py.check_signals()?;
    }
    Ok(Part::new(range, total, hasher.finalize()))
}

/// A block of a stream.
enum Block {
    /// What `read` returned.
    Bytes(PyBackedBytes),
    /// A copy of what `readinto` wrote.
    Copy(Vec<u8>),
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        match self {
            Block::Bytes(bytes) => bytes,
            Block::Copy(bytes) => bytes,
        }
    }
}

/// The calling thread reads, and another hashes what has come.
fn of_stream(
    py: Python<'_>,
    object: &Bound<'_, PyAny>,
    range: Range<u64>,
    total: u64,
) -> PyResult<Part> {
    let mut reader = Reader::new(object)?;
    let mut hasher = RangeHasher::new(&range, total);
    let wanted = range.end - range.start;
    if wanted <= READ_BYTES {
        let mut left = wanted;
        while left > 0 {
            let block = reader.read(left, wanted - left, wanted)?;
            left -= block.as_ref().len() as u64;
            hasher.update(block.as_ref());
        }
        return Ok(Part::new(range, total, hasher.finalize()));
    }
    let values = thread::scope(|scope| {
        let (queue, queued) = mpsc::sync_channel::<Block>(QUEUED_MAX);
        // Blocks return to this thread, which may drop Python's objects at once.
        let (done, used) = mpsc::channel();
        let hash = move || {
            for block in queued {
                hasher.update(block.as_ref());
                let _ = done.send(block);
            }
            hasher.finalize()
        };
        let hashing =
            thread::Builder::new().name("ringsum".to_owned()).spawn_scoped(scope, hash)?;
        let mut left = wanted;
        let read = loop {
            if left == 0 {
                break Ok(());
            }
            let block = match reader.read(left, wanted - left, wanted) {
                Ok(block) => block,
                Err(error) => break Err(error),
            };
            left -= block.as_ref().len() as u64;
            // (It fails only after a panic of the thread, which `join` reports.)
            let _ = match queue.try_send(block) {
                Ok(()) => Ok(()),
                Err(mpsc::TrySendError::Full(block) | mpsc::TrySendError::Disconnected(block)) => {
                    py.detach(|| queue.send(block))
                }
            };
            used.try_iter().for_each(drop);
        };
        drop(queue);
        let values = py.detach(|| hashing.join());
        read?;
        values.map_err(|_| PyRuntimeError::new_err("a thread of ringsum panicked"))
    })?;
    Ok(Part::new(range, total, values))
}

/// Reads from an object with `read` or `readinto`.
struct Reader<'py> {
    object: Bound<'py, PyAny>,
    /// For `readinto`.
    memory: Option<Bound<'py, PyByteArray>>,
}

impl<'py> Reader<'py> {
    fn new(object: &Bound<'py, PyAny>) -> PyResult<Reader<'py>> {
        // (`read` returns memory that nothing else changes, so it need not be copied.)
        let memory = match object.hasattr("read")? {
            true => None,
            false => Some(PyByteArray::new_with(object.py(), READ_BYTES as usize, |_| Ok(()))?),
        };
        Ok(Reader { object: object.clone(), memory })
    }

    /// Reads some of `left` bytes: at least one, or it is an error. `done` of `wanted` have come.
    fn read(&mut self, left: u64, done: u64, wanted: u64) -> PyResult<Block> {
        let py = self.object.py();
        py.check_signals()?;
        let most = left.min(READ_BYTES) as usize;
        let block = match &self.memory {
            None => {
                let read = self.object.call_method1("read", (most,))?;
                if read.is_none() {
                    return Err(errors::not_ready());
                }
                let bytes: PyBackedBytes = read.extract()?;
                Block::Bytes(bytes)
            }
            Some(memory) => {
                let view = py.import("builtins")?.getattr("memoryview")?.call1((memory,))?;
                let view = view.get_item(PySlice::new(py, 0, most as isize, 1))?;
                let read = self.object.call_method1("readinto", (view,))?;
                if read.is_none() {
                    return Err(errors::not_ready());
                }
                let len: usize = read.extract()?;
                let mut bytes = memory.to_vec();
                bytes.truncate(len);
                Block::Copy(bytes)
            }
        };
        match block.as_ref().len() {
            0 => Err(errors::ended_early(py, done, wanted)),
            len if len > most => {
                Err(PyValueError::new_err(format!("the object returned {len} bytes of {most}")))
            }
            _ => Ok(block),
        }
    }
}
