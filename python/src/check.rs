//! `check`: compares the files that a checksum file names with their digests.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;

use blockring::Stop;
use pyo3::exceptions::{PyOSError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use ringsum::checkfile::{Expected, LineEnd, Reader};
use ringsum::files::{Failure, Hashed, InputFile, Job, Outcome};
use ringsum::{Algorithm, Algorithms};
use rustix::io::Errno;

use crate::cli::inputs::lines::{CheckLine, CheckLines, ListedFile, digest_of};
use crate::cli::inputs::stat_ahead::StatAhead;
use crate::digest::{Digest, algorithms_of};
use crate::errors;
use crate::many::ManyOptions;
use crate::run::interruptible;
use crate::source::{Input, path_of};
use crate::tree::path_to_python;

/// Threads that look up names ahead.
const STAT_THREADS: usize = 8;

/// A file that is not as its list says.
///
/// Attributes
/// ----------
/// path : str or bytes
///     The name in the list.
/// expected : Digest
///     The digest in the list.
/// actual : Digest or None
///     The digest of the file. It equals ``expected`` if only the length in the list is wrong.
/// error : Exception or None
///     Why the file has no digest.
#[pyclass(frozen, get_all, module = "ringsum")]
pub(crate) struct CheckFailure {
    path: Py<PyAny>,
    expected: Py<Digest>,
    actual: Option<Py<Digest>>,
    error: Option<Py<PyAny>>,
}

#[pymethods]
impl CheckFailure {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let path = self.path.bind(py).repr()?;
        Ok(match (&self.error, &self.actual) {
            (Some(error), _) => {
                format!("CheckFailure(path={path}, error={})", error.bind(py).repr()?)
            }
            (None, actual) => {
                let actual = actual.as_ref().map_or_else(String::new, |a| a.get().hexdigest());
                let expected = self.expected.get().hexdigest();
                format!("CheckFailure(path={path}, expected={expected}, actual={actual})")
            }
        })
    }
}

/// The result of `check`. It is true if at least one file was checked, and nothing is wrong.
///
/// Attributes
/// ----------
/// ok : int
///     The number of files with the right digest.
/// failed : list of CheckFailure
///     The files with another digest, or that cannot be read.
/// missing : list of str or bytes
///     The names of files that do not exist.
/// malformed : list of (int, str)
///     Number and error of each line that is no checksum.
#[pyclass(frozen, get_all, module = "ringsum")]
pub(crate) struct CheckReport {
    ok: u64,
    failed: Py<PyAny>,
    missing: Py<PyAny>,
    malformed: Py<PyAny>,
}

#[pymethods]
impl CheckReport {
    /// Whether at least one file was checked, and nothing is wrong.
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        let mut is_ok = self.ok > 0;
        for list in [&self.failed, &self.missing, &self.malformed] {
            is_ok &= list.bind(py).len()? == 0;
        }
        Ok(is_ok)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let [failed, missing, malformed] =
            [&self.failed, &self.missing, &self.malformed].map(|list| list.bind(py).len());
        let (failed, missing, malformed) = (failed?, missing?, malformed?);
        let ok = self.ok;
        Ok(format!(
            "<CheckReport: {ok} ok, {failed} failed, {missing} missing, {malformed} malformed>"
        ))
    }
}

/// A line; if it names a file, with the reason why it cannot be hashed, as far as `stat` shows.
struct Tag(CheckLine, Option<Failure>);

/// A file that is not as its list says.
struct Failed {
    name: Vec<u8>,
    expected: Expected,
    result: Result<Option<Vec<u8>>, Failure>,
}

/// What a check found.
#[derive(Default)]
struct Found {
    ok: u64,
    failed: Vec<Failed>,
    missing: Vec<Vec<u8>>,
    malformed: Vec<(u64, String)>,
    /// Why the list could not be read to its end.
    bad_list: Option<String>,
}

/// Check the files that a checksum file names, in parallel.
///
/// Parameters
/// ----------
/// list : str, bytes, os.PathLike or int
///     The checksum file, in any format that ``ringsum --check`` reads.
/// root : str, bytes or os.PathLike, optional
///     The directory that relative names start from. Default: the current directory.
/// algorithms : sequence of str, optional
///     The algorithms that digests without a tag may have. Default: inferred from the name of the list
///     and from their lengths.
/// zero : bool, default False
///     Lines end with NUL instead of newline.
/// io : dict, optional
///     See `hash_file`.
/// memory : int or str, optional
///     See `hash_tree`. The report grows with the number of files that are not as the list says.
///
/// Returns
/// -------
/// CheckReport
///     It is true if at least one file was checked, and nothing is wrong.
///
/// Raises
/// ------
/// OSError
///     If the list cannot be read. A file that cannot be read is a `CheckFailure`.
/// ValueError
///     If an algorithm, an option or a size is invalid.
#[pyfunction]
#[pyo3(signature = (list, *, root = None, algorithms = None, zero = false, io = None, memory = None))]
pub(crate) fn check(
    py: Python<'_>,
    list: &Bound<'_, PyAny>,
    root: Option<&Bound<'_, PyAny>>,
    algorithms: Option<Vec<String>>,
    zero: bool,
    io: Option<&Bound<'_, PyDict>>,
    memory: Option<&Bound<'_, PyAny>>,
) -> PyResult<CheckReport> {
    let stop = Stop::default();
    let input = Input::require(list)?;
    let is_bytes = list.cast::<PyBytes>().is_ok();
    let root = match root {
        Some(root) => path_of(root)?.ok_or_else(|| {
            PyTypeError::new_err(format!("root is a path, not {}", root.get_type()))
        })?,
        None => PathBuf::new(),
    };
    let requested = algorithms.as_deref().map(algorithms_of).transpose()?;
    let many = ManyOptions::of(io, memory, Algorithms::default(), &stop)?;
    let name = match &input {
        Input::Path(path) => path.clone(),
        Input::Descriptor(_, number) => PathBuf::from(format!("<file descriptor {number}>")),
    };
    let reader = Reader::new(
        requested.as_ref().map_or(&[], |requested| requested),
        &[],
        Some(name.as_os_str().as_bytes()),
        if zero { LineEnd::Nul } else { LineEnd::Newline },
    );
    let work = {
        let (stop, name) = (stop.clone(), name.clone());
        move || -> io::Result<Found> {
            let file = match input {
                Input::Path(path) => File::open(path)?,
                Input::Descriptor(fd, _) => File::from(fd),
            };
            if file.metadata()?.is_dir() {
                return Err(Errno::ISDIR.into());
            }
            let lines = CheckLines::new(0, &name, BufReader::new(file), reader);
            Ok(check_lines(lines.take_while(|_| !stop.is_stopped()), &many, &root, &stop))
        }
    };
    let found = interruptible(py, &stop, work)?;
    let found = found.map_err(|error| errors::of_io(&name, &error, ""))?;
    if let Some(why) = found.bad_list {
        return Err(PyOSError::new_err((errors::EIO, why, name.into_os_string())));
    }
    report_of(py, found, is_bytes)
}

/// Checks the files of all lines.
fn check_lines(
    lines: impl Iterator<Item = CheckLine> + Send,
    many: &ManyOptions,
    root: &Path,
    stop: &Stop,
) -> Found {
    let is_separate = !many.supports_sharing();
    let ahead = StatAhead::new(lines, false, many.names_bytes(), CheckLine::bytes);
    let mut found = Found::default();
    thread::scope(|scope| {
        let look_up = |line: CheckLine| job_of(line, root, is_separate);
        let jobs = ahead.start(scope, STAT_THREADS, look_up);
        let tag_bytes = |Tag(line, _): &Tag| line.bytes();
        many.hash(jobs, tag_bytes, |outcome| {
            found.add(outcome);
            !stop.is_stopped()
        });
    });
    found
}

/// Returns the job for a line. The list may be untrusted: a special file, which could block or start
/// a device when it is opened, is not opened.
fn job_of(line: CheckLine, root: &Path, is_separate: bool) -> Job<Tag> {
    let CheckLine::File(listed) = &line else { return Job { tag: Tag(line, None), file: None } };
    let path = root.join(OsStr::from_bytes(&listed.line.name));
    let refuse = |failure| (None, Some(failure));
    let (file, failure) = match InputFile::from_path(&path) {
        Ok(Some(file)) if file.is_regular => {
            let algorithms = Some(listed.algorithms());
            let extended = listed.needs_extended_output(0);
            (Some(InputFile { is_separate, extended, algorithms, ..file }), None)
        }
        Ok(Some(_)) => refuse(Failure::Other("it is not a regular file".to_owned())),
        Ok(None) => refuse(Failure::Open(Errno::ISDIR.into())),
        Err(error) => refuse(Failure::Open(error)),
    };
    Job { tag: Tag(line, failure), file }
}

impl Found {
    fn add(&mut self, outcome: Outcome<Tag>) {
        let Outcome { job, result } = outcome;
        let Tag(line, failure) = job.tag;
        let listed = match line {
            CheckLine::File(listed) => listed,
            CheckLine::Malformed { number, why, .. } => {
                self.malformed.push((number, why));
                return;
            }
            CheckLine::BadList { why, .. } => {
                self.bad_list = Some(why);
                return;
            }
            CheckLine::ListEnd { .. } => return,
        };
        match (result, failure) {
            (Some(Ok(hashed)), _) => self.compare(listed, &hashed),
            (Some(Err(failure)), _) | (None, Some(failure)) => self.fail(listed, failure),
            (None, None) => self.fail(listed, Failure::Other("it was not read".to_owned())),
        }
    }

    fn compare(&mut self, listed: ListedFile, hashed: &Hashed) {
        if listed.matches(hashed, 0) {
            self.ok += 1;
            return;
        }
        let differs = |expected: &&Expected| {
            let digest = digest_of(hashed, expected.algorithm);
            !digest.is_some_and(|digest| digest.matches(0, &expected.digest))
        };
        // (If all digests are right, the length is wrong.)
        let expected = listed.expected().find(differs).unwrap_or(&listed.line.first).clone();
        let actual =
            digest_of(hashed, expected.algorithm).and_then(|digest| match expected.algorithm {
                Algorithm::Blake3 => digest.output(0, expected.digest.len()),
                _ => Some(digest.to_vec()),
            });
        self.failed.push(Failed { name: listed.line.name, expected, result: Ok(actual) });
    }

    fn fail(&mut self, listed: ListedFile, failure: Failure) {
        let name = listed.line.name;
        match failure {
            Failure::Open(error) if error.kind() == io::ErrorKind::NotFound => {
                self.missing.push(name);
            }
            failure => {
                let expected = listed.line.first;
                self.failed.push(Failed { name, expected, result: Err(failure) });
            }
        }
    }
}

fn report_of(py: Python<'_>, found: Found, is_bytes: bool) -> PyResult<CheckReport> {
    let digest = |algorithm, bytes| Py::new(py, Digest::new(algorithm, bytes));
    let mut failed = Vec::with_capacity(found.failed.len());
    for Failed { name, expected, result } in found.failed {
        let Expected { algorithm, digest: bytes } = expected;
        let (mut actual, mut error) = (None, None);
        match result {
            Ok(bytes) => actual = bytes.map(|bytes| digest(algorithm, bytes)).transpose()?,
            Err(failure) => {
                let path = Path::new(OsStr::from_bytes(&name));
                let failure = errors::of_failure(py, path, failure);
                error = Some(failure.into_value(py).into_any());
            }
        }
        let path = path_to_python(py, name, is_bytes)?.unbind();
        let expected = digest(algorithm, bytes)?;
        failed.push(Py::new(py, CheckFailure { path, expected, actual, error })?);
    }
    let missing = found.missing.into_iter().map(|name| path_to_python(py, name, is_bytes));
    let missing = missing.collect::<PyResult<Vec<_>>>()?;
    Ok(CheckReport {
        ok: found.ok,
        failed: failed.into_pyobject(py)?.unbind(),
        missing: missing.into_pyobject(py)?.unbind(),
        malformed: found.malformed.into_pyobject(py)?.unbind(),
    })
}
