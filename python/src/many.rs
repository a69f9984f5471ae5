//! Hashing many files: what trees and checks share.

use blockring::{Config, RunOptions, Stop};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringsum::files::{Failure, FilesOptions, Hashed, Job, Outcome, hash_files, supports_sharing};
use ringsum::{Algorithms, Mode, Options};

use crate::options::config_of;

/// Least memory of a run, in bytes, as in the command.
const MEMORY_BYTES_MIN: u64 = 2 << 20;

/// Least memory of a file that is hashed alone, in bytes.
const ALONE_BYTES_MIN: u64 = 256 << 10;

/// Default share of names that are looked up ahead, of directories that are read ahead, and of one
/// directory, in bytes; each has at most 1/16 of a limited memory.
const NAMES_BYTES: u64 = 16 << 20;
const AHEAD_BYTES: u64 = 2 << 20;
const LISTING_BYTES: u64 = 128 << 20;

/// How to hash many files.
pub(crate) struct ManyOptions {
    pub(crate) options: Options,
    /// For files that are hashed one at a time.
    alone: Config,
}

impl ManyOptions {
    pub(crate) fn of(
        io: Option<&Bound<'_, PyDict>>,
        memory: Option<&Bound<'_, PyAny>>,
        algorithms: Algorithms,
        stop: &Stop,
    ) -> PyResult<ManyOptions> {
        let config = config_of(io, memory, stop)?;
        let mut alone = config.clone();
        if let Some(bytes) = config.memory.limit_bytes {
            if bytes < MEMORY_BYTES_MIN {
                return Err(PyValueError::new_err("memory for many files is at least 2 MiB"));
            }
            alone.memory.limit_bytes = Some((bytes / 8).max(ALONE_BYTES_MIN));
            alone.validate().map_err(|error| {
                let why = format!("with many files, each has a part of the memory: {error}");
                PyValueError::new_err(why)
            })?;
        }
        Ok(ManyOptions { options: Options { mode: Mode::Hash, algorithms, config }, alone })
    }

    pub(crate) fn supports_sharing(&self) -> bool {
        supports_sharing(&self.options.config)
    }

    fn share(&self, default: u64) -> usize {
        let limit = self.options.config.memory.limit_bytes;
        limit.map_or(default, |bytes| (bytes / 16).min(default)) as usize
    }

    pub(crate) fn names_bytes(&self) -> usize {
        self.share(NAMES_BYTES)
    }

    pub(crate) fn ahead_bytes(&self) -> usize {
        self.share(AHEAD_BYTES)
    }

    pub(crate) fn listing_bytes(&self) -> usize {
        self.share(LISTING_BYTES)
    }

    /// Hashes the files of `jobs`. `report` returns whether to continue.
    pub(crate) fn hash<T: Send>(
        &self,
        jobs: impl Iterator<Item = Option<Job<T>>>,
        tag_bytes: fn(&T) -> usize,
        mut report: impl FnMut(Outcome<T>) -> bool + Send,
    ) {
        let hash_one = |job: &Job<T>| self.hash_one(job);
        let files = FilesOptions { tag_bytes, ..FilesOptions::new(&self.options, &hash_one) };
        let report = |outcome| if report(outcome) { Ok(()) } else { Err(()) };
        // (The error says only that `report` ended the run.)
        let _ = hash_files(jobs, &files, report, None);
    }

    /// Hashes a file that does not share readers.
    fn hash_one<T>(&self, job: &Job<T>) -> Result<Hashed, Failure> {
        let Some(file) = &job.file else {
            return Err(Failure::Other("there is nothing to read".to_owned()));
        };
        let algorithms = file.algorithms.unwrap_or(self.options.algorithms);
        let options = Options { mode: Mode::Hash, algorithms, config: self.alone.clone() };
        let source = file.open()?;
        let hash = || {
            let run = RunOptions { skip_holes: true, ..RunOptions::default() };
            let plan = ringsum::plan(&source, &options, &run)?;
            ringsum::digest_planned(&plan, &source, &options, None, &|_| ())
        };
        let digests = hash().map_err(|error| file.explain(&source, error.into()))?;
        Ok(Hashed::new(digests, &source))
    }
}
