//! Arguments that name a file: a path, or a file descriptor.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use blockring::{CacheMode, Source};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyString};
use rustix::fs::{FileType, Mode, OFlags};

use crate::errors;

/// A file to read.
pub(crate) enum Input {
    /// A path of any kind that `os.fspath` accepts.
    Path(PathBuf),
    /// A copy of a file descriptor, and its number.
    Descriptor(OwnedFd, i32),
}

/// Returns a path; `None` for an object that is none.
pub(crate) fn path_of(object: &Bound<'_, PyAny>) -> PyResult<Option<PathBuf>> {
    let py = object.py();
    let path = match object.cast::<PyString>().is_ok() || object.cast::<PyBytes>().is_ok() {
        true => object.clone(),
        false if object.hasattr("__fspath__")? => {
            py.import("os")?.call_method1("fspath", (object,))?
        }
        false => return Ok(None),
    };
    let path = match path.cast::<PyBytes>() {
        Ok(bytes) => OsString::from_vec(bytes.as_bytes().to_vec()),
        Err(_) => path.extract::<OsString>()?,
    };
    if path.as_encoded_bytes().contains(&0) {
        return Err(PyValueError::new_err("the path contains a NUL"));
    }
    Ok(Some(path.into()))
}

impl Input {
    /// Returns the input of an argument; `None` for an object that is neither path nor descriptor.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<Input>> {
        if object.cast::<PyInt>().is_ok() && object.cast::<PyBool>().is_err() {
            let number: i32 = object.extract()?;
            if number < 0 {
                return Err(PyValueError::new_err(format!("{number} is no file descriptor")));
            }
            #[expect(unsafe_code)]
            // SAFETY: a number that is not open gives `EBADF`, and the descriptor is only borrowed
            // for the copy.
            let copy = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned();
            let copy = copy.map_err(|error| errors::of_io(name_of(number).as_ref(), &error, ""))?;
            return Ok(Some(Input::Descriptor(copy, number)));
        }
        Ok(path_of(object)?.map(Input::Path))
    }

    /// The same, or `TypeError`.
    pub(crate) fn require(object: &Bound<'_, PyAny>) -> PyResult<Input> {
        Input::of(object)?.ok_or_else(|| {
            let kind = object.get_type();
            let why = format!("a path or a file descriptor is needed, not {kind}");
            PyTypeError::new_err(why)
        })
    }

    /// Whether it is a regular file of at most `bytes`, which is read in an instant.
    pub(crate) fn is_short(&self, bytes: u64) -> bool {
        let stat = match self {
            Input::Path(path) => rustix::fs::stat(path),
            Input::Descriptor(fd, _) => rustix::fs::fstat(fd),
        };
        stat.is_ok_and(|stat| {
            FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_size as u64 <= bytes
        })
    }

    /// Opens it, to be read from the file position of a descriptor, or from the start of a path.
    pub(crate) fn open(self) -> Result<Source, blockring::Error> {
        match self {
            Input::Path(path) => Source::open(path),
            Input::Descriptor(fd, number) => Source::from_file(File::from(fd), name_of(number)),
        }
    }

    /// Opens it to read any ranges of it.
    pub(crate) fn open_for_ranges(self) -> Result<Source, blockring::Error> {
        let (fd, number) = match self {
            Input::Path(path) => return Source::open(path),
            Input::Descriptor(fd, number) => (fd, number),
        };
        // Its own open file description has its own position and flags.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let reopened = format!("/proc/self/fd/{}", fd.as_raw_fd());
        match rustix::fs::open(reopened, flags, Mode::empty()) {
            Ok(own) => Source::from_exclusive(own.into(), name_of(number), CacheMode::Buffered),
            Err(_) => Source::from_file(File::from(fd), name_of(number)),
        }
    }
}

/// The name of a file descriptor in messages.
fn name_of(number: i32) -> impl AsRef<Path> {
    format!("<file descriptor {number}>")
}
