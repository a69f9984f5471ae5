//! The class `Digest`.

use std::hash::{Hash, Hasher};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyType};
use ringsum::{Algorithm, Algorithms, Digests};

/// Longest digest of BLAKE2b, in bytes.
const BLAKE2B_BYTES_MAX: usize = 64;

/// A digest. Digests are equal if their algorithms and bytes are; they can be hashed and pickled.
///
/// Parameters
/// ----------
/// digest : bytes
///     The bytes.
/// algorithm : str, default "blake3"
///     The name of the algorithm.
///
/// Attributes
/// ----------
/// algorithm : str
///     The name of the algorithm, such as ``"sha256"``.
///
/// Raises
/// ------
/// ValueError
///     If the algorithm is unknown, or has digests of another length.
#[pyclass(frozen, eq, hash, module = "ringsum", from_py_object)]
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Digest {
    algorithm: Algorithm,
    bytes: Box<[u8]>,
}

impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

impl Digest {
    pub(crate) fn new_blake3(bytes: &[u8; 32]) -> Digest {
        Digest { algorithm: Algorithm::Blake3, bytes: bytes[..].into() }
    }

    pub(crate) fn new(algorithm: Algorithm, bytes: Vec<u8>) -> Digest {
        Digest { algorithm, bytes: bytes.into() }
    }
}

impl From<&ringsum::Digest> for Digest {
    fn from(digest: &ringsum::Digest) -> Digest {
        Digest { algorithm: digest.algorithm(), bytes: digest.to_vec().into() }
    }
}

/// Returns the algorithm with a name.
pub(crate) fn algorithm_of(name: &str) -> PyResult<Algorithm> {
    Algorithm::from_name(name).ok_or_else(|| {
        let names = Algorithm::ALL.map(Algorithm::name).join(", ");
        PyValueError::new_err(format!("unknown algorithm {name:?}; the algorithms are {names}"))
    })
}

/// Returns the algorithms with some names, each once.
pub(crate) fn algorithms_of(names: &[String]) -> PyResult<Algorithms> {
    let mut all = names.iter().map(|name| algorithm_of(name));
    let first = all.next().ok_or_else(|| PyValueError::new_err("no algorithm is given"))??;
    let mut algorithms = Algorithms::from(first);
    for algorithm in all {
        algorithms.extend([algorithm?]);
    }
    Ok(algorithms)
}

/// Returns one digest; or, if algorithms were given by name, a dictionary by name.
pub(crate) fn digests_to_python<'py>(
    py: Python<'py>,
    digests: &Digests,
    is_dict: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if !is_dict {
        return Ok(Bound::new(py, Digest::from(&digests[0]))?.into_any());
    }
    let dict = PyDict::new(py);
    for digest in digests.iter() {
        dict.set_item(digest.algorithm().name(), Digest::from(digest))?;
    }
    Ok(dict.into_any())
}

#[pymethods]
impl Digest {
    #[new]
    #[pyo3(signature = (digest, algorithm = "blake3"))]
    fn py_new(digest: &[u8], algorithm: &str) -> PyResult<Digest> {
        let found = algorithm_of(algorithm)?;
        let fits = match found {
            Algorithm::Blake2b(_) => (1..=BLAKE2B_BYTES_MAX).contains(&digest.len()),
            other => digest.len() == other.bytes(),
        };
        if !fits {
            let (bytes, wanted) = (digest.len(), found.bytes());
            let why = format!("a digest of {} has {wanted} bytes, not {bytes}", found.name());
            return Err(PyValueError::new_err(why));
        }
        let found = match found {
            Algorithm::Blake2b(_) => Algorithm::Blake2b(digest.len() as u8),
            other => other,
        };
        Ok(Digest { algorithm: found, bytes: digest.into() })
    }

    #[getter]
    fn algorithm(&self) -> &'static str {
        self.algorithm.name()
    }

    /// Return the bytes.
    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }

    /// Return the bytes as lowercase hexadecimal digits, as ``str`` does.
    pub(crate) fn hexdigest(&self) -> String {
        hex::encode(&self.bytes)
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.digest(py)
    }

    fn __str__(&self) -> String {
        self.hexdigest()
    }

    fn __repr__(&self) -> String {
        format!("Digest({}:{})", self.algorithm.name(), self.hexdigest())
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> (Bound<'py, PyType>, (Bound<'py, PyBytes>, &'static str)) {
        let digest = slf.get();
        (slf.get_type(), (digest.digest(slf.py()), digest.algorithm()))
    }
}
