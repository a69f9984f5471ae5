//! The native module of the Python package `ringsum`: a thin layer over the library of that name.
//! Its documentation is for Python users: it becomes the docstrings.

mod check;
mod digest;
mod errors;
mod file;
mod many;
mod options;
mod part;
mod queue;
mod range;
mod run;
mod selection;
mod source;
mod tree;

use pyo3::prelude::*;

/// The parts of the command that read lists: compiled from its sources, so that a list means the same
/// to both.
#[path = "../../crates/ringsum/src/cli"]
#[allow(dead_code, reason = "a list of names is only for the command")]
mod cli {
    pub(crate) mod inputs {
        pub(crate) mod lines;
        pub(crate) mod stat_ahead;
    }

    /// Locks a mutex, even if a thread panicked while holding it.
    pub(crate) fn lock<X>(mutex: &std::sync::Mutex<X>) -> std::sync::MutexGuard<'_, X> {
        mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "its name in Python")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    use crate::check::{CheckFailure, CheckReport, check};
    #[pymodule_export]
    use crate::digest::Digest;
    #[pymodule_export]
    use crate::file::hash_file;
    #[pymodule_export]
    use crate::part::{Part, merge};
    #[pymodule_export]
    use crate::range::hash_range;
    #[pymodule_export]
    use crate::tree::{TreeEntry, TreeIterator, hash_tree};
}
