//! A dispatched job: opening its file, finishing it, or queuing it for a retry.

use blockring::{CacheMode, Source};

use super::cached::cached_hash;
use super::dispatch::Run;
use super::{Failure, Hashed, Job, Outcome, Progress};

/// Most attempts to open a file when descriptors are exhausted, 10 ms apart.
const ATTEMPTS_MAX: u32 = 500;

/// A job that has been dispatched. (Boxed: it passes through many queues.)
pub(super) struct ActiveJob<T> {
    pub(super) number: u64,
    pub(super) outcome: Box<Outcome<T>>,
    /// Memory until it is reported, in bytes.
    pub(super) bytes: usize,
    pub(super) retries: u32,
}

impl<T> ActiveJob<T> {
    pub(super) fn new(number: u64, job: Job<T>, bytes: usize) -> ActiveJob<T> {
        ActiveJob { number, outcome: Box::new(Outcome { job, result: None }), bytes, retries: 0 }
    }

    pub(super) fn job(&self) -> &Job<T> {
        &self.outcome.job
    }

    pub(super) fn inode(&self) -> u64 {
        self.job().file.as_ref().map_or(0, |file| file.inode)
    }
}

/// Hashes a file on its own, unless its hash is cached or the run is stopped.
pub(super) fn hash_separately<T: Send>(run: &Run<'_, T>, job: ActiveJob<T>) {
    if run.is_stopped() {
        return;
    }
    let cached = cached_hash(run, &job);
    let result = cached.map_or_else(|| (run.options.hash_one)(job.job()), Ok);
    finish(run, job, result);
}

/// Finishes a job, or queues it for a retry.
pub(super) fn finish<T: Send>(
    run: &Run<'_, T>,
    mut job: ActiveJob<T>,
    result: Result<Hashed, Failure>,
) {
    if result.as_ref().is_err_and(|failure| failure.change().is_some()) {
        match run.retries.push(run, job) {
            Some(back) => job = back,
            None => return,
        }
    }
    run.buffer.finish([with_result(run, job, result)]);
}

fn with_result<T: Send>(
    run: &Run<'_, T>,
    mut job: ActiveJob<T>,
    result: Result<Hashed, Failure>,
) -> ActiveJob<T> {
    if let Some(file) = &mut job.outcome.job.file {
        file.release();
    }
    let cached = result.as_ref().ok().filter(|hashed| hashed.is_cached);
    let cached_bytes = cached.and_then(|hashed| Some(hashed.fingerprint?.len)).unwrap_or(0);
    (run.options.progress)(Progress::File { cached_bytes });
    job.outcome.result = Some(result);
    job
}

/// Finishes jobs that have been hashed.
pub(super) fn finish_all<T: Send>(
    run: &Run<'_, T>,
    hashed: impl IntoIterator<Item = (ActiveJob<T>, Hashed)>,
) {
    // (Collected first, because the reorder buffer consumes the iterator under its lock.)
    let jobs: Vec<_> =
        hashed.into_iter().map(|(job, hashed)| with_result(run, job, Ok(hashed))).collect();
    run.buffer.finish(jobs);
}

/// Opens the file of a job, or finishes the job if that fails.
pub(super) fn open<T: Send>(
    run: &Run<'_, T>,
    job: ActiveJob<T>,
    mode: CacheMode,
) -> Option<(ActiveJob<T>, Source)> {
    let Some(file) = &job.job().file else { return None };
    let open = || match mode {
        CacheMode::Direct => file.open_direct(),
        _ => file.open(),
    };
    // (Not cut short by a stop, which would report it as a failure.)
    let is_stopped = || false;
    let is_exhausted = Failure::is_out_of_descriptors;
    let opened = run.shortage.wait(ATTEMPTS_MAX, is_stopped, is_exhausted, open);
    match opened {
        Ok(source) => Some((job, source)),
        Err(failure) => {
            finish(run, job, Err(failure));
            None
        }
    }
}

/// Finishes a job whose file was opened.
pub(super) fn finish_opened<T: Send>(
    run: &Run<'_, T>,
    job: ActiveJob<T>,
    source: &Source,
    result: Result<Hashed, Failure>,
) {
    let result = result.map_err(|failure| match &job.job().file {
        Some(file) => file.explain(source, failure),
        None => failure,
    });
    finish(run, job, result);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use blockring::Config;

    use super::super::{FilesOptions, InputFile, hash_files};
    use super::*;
    use crate::{Algorithm, Algorithms, Digest, Options, digest_bytes};

    #[test]
    fn files_are_not_read_after_a_stop() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "content").unwrap();
        let jobs =
            (0..100).map(|tag| Some(Job { tag, file: InputFile::from_path(&path).unwrap() }));
        // No device can be read in such blocks: each file is hashed separately.
        let config = Config::default().with(|config| config.io.block_bytes = Some(1));
        let read = AtomicU32::new(0);
        let hash_one = |_: &Job<u32>| {
            read.fetch_add(1, Ordering::Relaxed);
            Err(Failure::Other(String::new()))
        };
        let hash = Options { config, ..Options::default() };
        let options = FilesOptions::new(&hash, &hash_one);
        assert_eq!(hash_files(jobs, &options, |_| Err("enough"), None), Err("enough"));
        assert_eq!(read.into_inner(), 1);
    }

    #[test]
    fn digests_in_the_reorder_buffer_are_counted() {
        let mut all = Algorithms::default();
        for algorithm in Algorithm::ALL {
            all.add(algorithm);
        }
        let digests = digest_bytes(b"", &Options { algorithms: all, ..Options::default() });
        let others = digests.iter().filter(|digest| digest.algorithm() != Algorithm::Blake3);
        let others: usize = others.map(|digest| digest.to_vec().len()).sum();
        let bytes = digests.len() * size_of::<Digest>() + others;
        let job = Job { tag: (), file: InputFile::from_path("/dev/null".as_ref()).unwrap() };
        assert!(job.bytes(&all) >= job.bytes(&Algorithms::default()) + bytes);
    }
}
