//! The native module of the Python package `ringsum`: a thin layer over the library of that name.
//! What each function does is documented where Python users look: in `__init__.pyi`.

mod digest;
mod errors;
mod file;
mod options;
mod part;
mod range;
mod run;
mod source;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::digest::Digest;
    #[pymodule_export]
    use crate::file::hash_file;
    #[pymodule_export]
    use crate::part::{Part, merge};
    #[pymodule_export]
    use crate::range::hash_range;
}
