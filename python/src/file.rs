//! `hash_file`: the digests of one file.

use std::path::PathBuf;

use blockring::{RunOptions, Stop};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringsum::{Algorithms, BadRanges, Digests, Mode, Options};

use crate::digest::{algorithms_of, digests_to_python};
use crate::errors;
use crate::options::config_of;
use crate::range::INLINE_BYTES;
use crate::run::interruptible;
use crate::source::Input;

/// Return the digest of a file, a block device or a pipe.
///
/// Parameters
/// ----------
/// path_or_fd : str, bytes, os.PathLike or int
///     The file. A file descriptor is read from its file position, which a regular file keeps.
/// algorithms : sequence of str, optional
///     Names as in ``ringsum --algorithm``, such as ``"blake3"``, ``"sha256"``, ``"md5"``, ``"xxh3"``.
///     All are computed in one pass. Default: BLAKE3.
/// io : dict, optional
///     How to read: the keys and values of ``ringsum --io``, such as ``{"engine": "pread"}``. Default:
///     detected automatically. Files are never mapped unless the engine is ``"mmap"``, which installs
///     a handler of SIGBUS for the whole process.
/// memory : int or str, optional
///     Most memory for the bytes of the file, in bytes or with a unit: ``"64M"``. At least 256 KiB.
///     Default: 1 GiB for an explicit ``io``, otherwise some 16 MiB.
/// list_bad_ranges : bool, default False
///     Read on after errors, so that ``ReadError.ranges`` has all ranges that cannot be read.
///
/// Returns
/// -------
/// Digest or dict of str to Digest
///     A dictionary by algorithm, in the order of ``algorithms``, if that is given.
///
/// Raises
/// ------
/// FileNotFoundError, PermissionError, IsADirectoryError, ...
///     If it cannot be opened.
/// ReadError
///     If it cannot be read completely.
/// ChangedError
///     If it changed while it was read.
/// UnsupportedError
///     If an explicit option of ``io`` is not available for this file or on this system.
/// ValueError
///     If an algorithm, an option or a size is invalid.
#[pyfunction]
#[pyo3(signature = (path_or_fd, *, algorithms = None, io = None, memory = None, list_bad_ranges = false))]
pub(crate) fn hash_file<'py>(
    py: Python<'py>,
    path_or_fd: &Bound<'py, PyAny>,
    algorithms: Option<Vec<String>>,
    io: Option<&Bound<'py, PyDict>>,
    memory: Option<&Bound<'py, PyAny>>,
    list_bad_ranges: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let stop = Stop::default();
    let input = Input::require(path_or_fd)?;
    let config = config_of(io, memory, &stop)?;
    let names = algorithms.as_deref().map(algorithms_of).transpose()?;
    let options =
        Options { mode: Mode::Hash, algorithms: names.unwrap_or_else(Algorithms::default), config };
    let is_short = input.is_short(INLINE_BYTES);
    let work = move || hash(input, &options, list_bad_ranges);
    let result = match is_short {
        true => py.detach(work),
        false => interruptible(py, &stop, work)?,
    };
    match result {
        Ok(digests) => digests_to_python(py, &digests, names.is_some()),
        Err(Failure::Hash(error)) => Err(errors::of_hash(py, error)),
        Err(Failure::Unreadable(path, bad)) => Err(errors::of_bad_ranges(py, &path, &bad)),
    }
}

/// Why a file has no digest.
enum Failure {
    Hash(ringsum::Error),
    /// All of its unreadable ranges were located.
    Unreadable(PathBuf, BadRanges),
}

impl From<ringsum::Error> for Failure {
    fn from(error: ringsum::Error) -> Failure {
        Failure::Hash(error)
    }
}

fn hash(input: Input, options: &Options, list_bad_ranges: bool) -> Result<Digests, Failure> {
    let source = input.open().map_err(ringsum::Error::from)?;
    let run = RunOptions { skip_holes: !list_bad_ranges, ..RunOptions::default() };
    let plan = ringsum::plan(&source, options, &run)?;
    // (A stream has no ranges that could be read again, and a pseudo file no device that could fail.)
    if list_bad_ranges && source.len().is_some() && !source.is_pseudo() {
        let scanned = ringsum::digest_scan(&plan, &source, options, &|_| (), |_| ())?;
        return scanned.map_err(|bad| Failure::Unreadable(source.path().to_owned(), bad));
    }
    Ok(ringsum::digest_planned(&plan, &source, options, None, &|_| ())?)
}
