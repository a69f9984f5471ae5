//! From the libraries' errors to Python's exceptions.

use std::io;
use std::path::Path;

use blockring::{BadRange, Change, ErrorKind};
use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyBlockingIOError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use ringsum::files::Failure;

/// Errors that have no number of their own get the one that is nearest.
const ESTALE: i32 = 116;
const EAGAIN: i32 = 11;
pub(crate) const EIO: i32 = 5;
const EOPNOTSUPP: i32 = 95;

/// Creates an exception of a class of the package, which takes the arguments of `OSError` and more.
fn new<'py>(py: Python<'py>, class: &str, arguments: impl PyCallArgs<'py>) -> PyErr {
    let class = py.import("ringsum._errors").and_then(|module| module.getattr(class));
    match class.and_then(|class| class.call1(arguments)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The exception of a system call: of the subclass of `OSError` that its number has.
pub(crate) fn of_io(path: &Path, error: &io::Error, what: &str) -> PyErr {
    let Some(number) = error.raw_os_error() else {
        return PyOSError::new_err(format!("{what}{error}: {}", path.display()));
    };
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    PyOSError::new_err((number, format!("{what}{text}"), path.as_os_str().to_owned()))
}

/// The exception of a change.
pub(crate) fn of_change(py: Python<'_>, path: &Path, change: Change) -> PyErr {
    let (how, before, after) = match change {
        Change::Shrank { from, to } => ("shrank", Some(from), Some(to)),
        Change::Grew { from, to } => ("grew", Some(from), Some(to)),
        Change::Rewritten => ("rewritten", None, None),
        Change::StatusChanged => ("status", None, None),
        Change::Replaced => ("replaced", None, None),
        Change::Removed => ("removed", None, None),
        _ => ("changed", None, None),
    };
    let text = format!("changed while it was read: {change}");
    new(py, "ChangedError", (ESTALE, text, path.as_os_str().to_owned(), how, before, after))
}

fn of_read(
    py: Python<'_>,
    path: &Path,
    number: i32,
    text: String,
    ranges: Vec<(u64, u64)>,
) -> PyErr {
    new(py, "ReadError", (number, text, path.as_os_str().to_owned(), ranges))
}

/// The exception of an error of a source.
pub(crate) fn of_kind(py: Python<'_>, path: &Path, kind: ErrorKind) -> PyErr {
    let text = kind.to_string();
    match kind {
        ErrorKind::Open(error) => of_io(path, &error, ""),
        ErrorKind::Inspect { operation, error } => of_io(path, &error, &format!("{operation}: ")),
        ErrorKind::Resource { what, error } => of_io(path, &error, &format!("{what}: ")),
        ErrorKind::Wait(error) => of_io(path, &error, "waiting for reads to complete: "),
        ErrorKind::Read { offset, len, error, .. } => {
            let ranges = if len > 0 { vec![(offset, len)] } else { Vec::new() };
            of_read(py, path, error.raw_os_error().unwrap_or(EIO), text, ranges)
        }
        ErrorKind::Changed(change) => of_change(py, path, change),
        ErrorKind::Length { .. } => of_read(py, path, EIO, text, Vec::new()),
        ErrorKind::Engine { .. } | ErrorKind::Cache { .. } | ErrorKind::BypassCache(_) => {
            new(py, "UnsupportedError", (EOPNOTSUPP, text, path.as_os_str().to_owned()))
        }
        ErrorKind::Config(_) => PyValueError::new_err(text),
        _ => PyRuntimeError::new_err(format!("{}: {text}", path.display())),
    }
}

/// The exception of a file that was hashed alone.
pub(crate) fn of_hash(py: Python<'_>, error: ringsum::Error) -> PyErr {
    match error {
        ringsum::Error::Read(error) => of_kind(py, &error.path, error.kind),
        ringsum::Error::NothingRead => PyValueError::new_err(error.to_string()),
        error => PyRuntimeError::new_err(error.to_string()),
    }
}

/// The exception of a file among many.
pub(crate) fn of_failure(py: Python<'_>, path: &Path, failure: Failure) -> PyErr {
    match failure {
        Failure::Open(error) => of_io(path, &error, ""),
        Failure::Read(kind) => of_kind(py, path, kind),
        Failure::Replaced(text) => {
            let name = path.as_os_str().to_owned();
            let none = None::<u64>;
            new(py, "ChangedError", (ESTALE, text, name, "replaced", none, none))
        }
        Failure::Unreadable(bad) => of_bad_ranges(py, path, &bad),
        failure => of_read(py, path, EIO, failure.to_string(), Vec::new()),
    }
}

/// The exception of a file with ranges that cannot be read.
pub(crate) fn of_bad_ranges(py: Python<'_>, path: &Path, bad: &ringsum::BadRanges) -> PyErr {
    let ranges = bad.first.iter().map(|BadRange { offset, len, .. }| (*offset, *len)).collect();
    let number = bad.first.first().and_then(|range| range.error.raw_os_error());
    of_read(py, path, number.unwrap_or(EIO), bad.to_string(), ranges)
}

/// The exception of a stream that ended before its range did.
pub(crate) fn ended_early(py: Python<'_>, done: u64, wanted: u64) -> PyErr {
    let text = format!("the object ended after {done} of {wanted} bytes");
    let name = None::<String>;
    new(py, "ChangedError", (ESTALE, text, name, "shrank", Some(wanted), Some(done)))
}

/// The exception of a file object that does not wait for data.
pub(crate) fn not_ready() -> PyErr {
    let text = "the object has no data for now: a file object that waits for data is needed";
    PyBlockingIOError::new_err((EAGAIN, text))
}
