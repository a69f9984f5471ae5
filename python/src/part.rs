//! The class `Part`: the chaining values of a range of an object.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ringsum::{Mode, Subtree, Tree};

use crate::digest::Digest;

/// Bytes of a chunk, the leaf of BLAKE3's tree.
pub(crate) const CHUNK_BYTES: u64 = blake3::CHUNK_LEN as u64;

/// The hash of a range of an object, from `hash_range`, for `merge`. It can be pickled.
///
/// Attributes
/// ----------
/// offset, length : int
///     The range, in bytes.
/// total : int
///     The length of the whole object, in bytes.
/// values : bytes
///     The chaining values of the largest subtrees of BLAKE3's tree in the range, 32 bytes each, in
///     order; of the whole object its digest. ``Part(offset, length, total, values)`` makes a part of
///     them.
#[pyclass(frozen, eq, hash, module = "ringsum", from_py_object)]
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Part {
    range: Range<u64>,
    total: u64,
    values: Vec<[u8; 32]>,
}

impl Hash for Part {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.range.start, self.range.end, self.total, &self.values).hash(state);
    }
}

/// Checks that a range of an object of `total` bytes can be a part of it.
pub(crate) fn check(range: &Range<u64>, total: u64) -> PyResult<()> {
    let Range { start, end } = range.clone();
    let refuse = |why: String| Err(PyValueError::new_err(why));
    if end > total {
        return refuse(format!("bytes {start} to {} reach past the end at {total}", end - 1));
    }
    if !start.is_multiple_of(CHUNK_BYTES) {
        return refuse(format!("offset {start} is not a multiple of {CHUNK_BYTES}"));
    }
    if end != total && !end.is_multiple_of(CHUNK_BYTES) {
        let length = end - start;
        let why = "a multiple of 1024, and the range does not end where the object does";
        return refuse(format!("length {length} is not {why}"));
    }
    if start >= end && total > 0 {
        return refuse(format!("the range at {start} is empty"));
    }
    Ok(())
}

/// Splits a range that [`check`] accepts into the largest subtrees of the tree of `total` bytes. The
/// whole object is one range, which is no subtree: its digest is computed differently.
pub(crate) fn subtrees(range: &Range<u64>, total: u64) -> Vec<Range<u64>> {
    let mut all = Vec::new();
    if *range == (0..total) {
        all.push(range.clone());
        return all;
    }
    let mut start = range.start;
    while start < range.end {
        let rest = range.end - start;
        // (A length of more than 2^63 has no next power of two, and starts at 0.)
        let full = rest.checked_next_power_of_two().unwrap_or(0).max(CHUNK_BYTES);
        let len = match range.end == total && full > 0 && start.is_multiple_of(full) {
            true => rest,
            false if start == 0 => 1 << rest.ilog2(),
            false => 1 << rest.ilog2().min(start.trailing_zeros()),
        };
        all.push(start..start + len);
        start += len;
    }
    all
}

impl Part {
    /// `values`: those of [`subtrees`], or the digest of the whole.
    pub(crate) fn new(range: Range<u64>, total: u64, values: Vec<[u8; 32]>) -> Part {
        Part { range, total, values }
    }

    fn is_whole(&self) -> bool {
        self.range == (0..self.total)
    }
}

#[pymethods]
impl Part {
    #[new]
    fn py_new(offset: u64, length: u64, total: u64, values: &[u8]) -> PyResult<Part> {
        let end = offset.checked_add(length);
        let range = offset..end.ok_or_else(|| PyValueError::new_err("the range is too long"))?;
        check(&range, total)?;
        let (count, bytes) = (subtrees(&range, total).len(), values.len());
        let (values, rest) = values.as_chunks();
        if values.len() != count || !rest.is_empty() {
            let why = format!("a part of {count} subtrees has {} bytes, not {bytes}", 32 * count);
            return Err(PyValueError::new_err(why));
        }
        Ok(Part { range, total, values: values.to_vec() })
    }

    #[getter]
    fn offset(&self) -> u64 {
        self.range.start
    }

    #[getter]
    fn length(&self) -> u64 {
        self.range.end - self.range.start
    }

    #[getter]
    fn total(&self) -> u64 {
        self.total
    }

    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.values.as_flattened())
    }

    fn __repr__(&self) -> String {
        let (offset, length, total) = (self.offset(), self.length(), self.total);
        format!("Part(offset={offset}, length={length}, total={total})")
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, impl IntoPyObject<'py>) {
        let part = slf.get();
        let arguments = (part.offset(), part.length(), part.total, part.values(slf.py()));
        (slf.get_type().into_any(), arguments)
    }
}

/// Return the BLAKE3 digest of the object that some parts make up.
///
/// Parameters
/// ----------
/// parts : iterable of Part
///     The parts, in any order. One that is the whole object will do, too.
///
/// Returns
/// -------
/// Digest
///     The digest that `hash_file` returns for the object, and ``b3sum`` prints.
///
/// Raises
/// ------
/// ValueError
///     If parts overlap, are missing, or belong to objects of different lengths: it names the bytes.
#[pyfunction]
pub(crate) fn merge(parts: &Bound<'_, PyAny>) -> PyResult<Digest> {
    let refuse = |why: String| Err(PyValueError::new_err(why));
    let mut all = Vec::new();
    for part in parts.try_iter()? {
        all.push(part?.cast::<Part>()?.clone());
    }
    all.sort_by_key(|part| (part.get().range.start, part.get().range.end));
    let Some(first) = all.first() else { return refuse("there are no parts".to_owned()) };
    let total = first.get().total;
    let mut end = 0;
    for part in &all {
        let Part { range, total: other, .. } = part.get();
        let Range { start, end: next } = range.clone();
        if *other != total {
            return refuse(format!(
                "the parts do not fit: they are of objects of {total} and of {other} bytes"
            ));
        }
        if start < end {
            return refuse(format!(
                "the parts overlap: bytes {start} to {} are in more than one",
                end.min(next).saturating_sub(1)
            ));
        }
        if start > end {
            return refuse(format!("bytes {end} to {} of {total} are missing", start - 1));
        }
        end = next;
    }
    if end < total {
        return refuse(format!("bytes {end} to {} of {total} are missing", total - 1));
    }
    if first.get().is_whole() {
        return Ok(Digest::new_blake3(&first.get().values[0]));
    }
    let mut tree = Tree::new(total, &Mode::Hash);
    for part in &all {
        let part = part.get();
        for (range, cv) in subtrees(&part.range, total).into_iter().zip(&part.values) {
            let subtree = Subtree { offset: range.start, len: range.end - range.start, cv: *cv };
            tree.add(subtree).map_err(|error| PyValueError::new_err(error.to_string()))?;
        }
    }
    let digest = tree.finalize().map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(Digest::from(&digest))
}
