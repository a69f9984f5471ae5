//! `hash_file`: the digests of one file.

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

/// See `__init__.pyi`.
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
    Unreadable(std::path::PathBuf, BadRanges),
}

impl From<ringsum::Error> for Failure {
    fn from(error: ringsum::Error) -> Failure {
        Failure::Hash(error)
    }
}

fn hash(input: Input, options: &Options, list_bad_ranges: bool) -> Result<Digests, Failure> {
    let source = input.open().map_err(ringsum::Error::from)?;
    let plan = ringsum::plan(&source, options, &RunOptions::default())?;
    if list_bad_ranges {
        let scanned = ringsum::digest_scan(&plan, &source, options, &|_| (), |_| ())?;
        return scanned.map_err(|bad| Failure::Unreadable(source.path().to_owned(), bad));
    }
    Ok(ringsum::digest_planned(&plan, &source, options, &|_| ())?)
}
