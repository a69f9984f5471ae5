//! Files that need not be read: empty ones, and those whose hashes are cached. A plan is chosen
//! from files with content, so until one is found, the thread of the device looks up cached hashes;
//! afterwards the workers do.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use blockring::{CacheMode, Source};

use super::device::{Batch, DeviceQueue, descriptors, descriptors_are_few};
use super::dispatch::Run;
use super::job::{ActiveJob, finish_all, finish_opened, open};
use super::{Hashed, threads};
use crate::hash::digest_source;

/// Files that a device's plan is chosen from. Two are read if it is not rotational and idle.
const SAMPLES: usize = 12;

/// Threads per core that look up cached hashes. An unchanged tree of 130,000 files in the page
/// cache took 0.82 s with one thread, 0.67 s with one for each of two cores, 0.64 s with two, 0.63
/// s with four; not in the page cache 1.91, 1.49, 1.58 and 1.59 s.
const THREADS_PER_CORE: usize = 2;

/// Memory of such a thread, in bytes.
const THREAD_BYTES: u64 = 64 << 10;

/// Returns the cached hash of a job's file.
pub(super) fn cached_hash<T: Send>(run: &Run<'_, T>, job: &ActiveJob<T>) -> Option<Hashed> {
    let cached = run.options.cached?;
    let (device, fingerprint) = job.job().file.as_ref()?.fingerprint()?;
    let hash = cached(&job.job().tag, device, &fingerprint)?;
    let digests = crate::Digest::from(blake3::Hash::from(hash)).into();
    Some(Hashed { digests, is_cached: true, fingerprint: Some(fingerprint), device })
}

/// Finishes the jobs of a batch whose hashes are cached, and returns the others.
pub(super) fn without_cached<T: Send>(run: &Run<'_, T>, batch: Batch<T>) -> Batch<T> {
    if run.options.cached.is_none() {
        return batch;
    }
    let mut cached = Vec::with_capacity(batch.len());
    let mut others = Vec::new();
    for job in batch {
        if run.is_stopped() {
            break;
        }
        match cached_hash(run, &job) {
            Some(hashed) => cached.push((job, hashed)),
            None => others.push(job),
        }
    }
    if !cached.is_empty() {
        finish_all(run, cached);
    }
    others
}

/// Finishes all jobs before the first file with content that is not cached. Returns the batch of
/// that file, and some files to choose a plan from; `None` if the whole queue has none.
pub(super) fn first_to_read<T: Send>(
    run: &Run<'_, T>,
    queue: &DeviceQueue<T>,
) -> Option<(Batch<T>, Vec<Source>)> {
    loop {
        let Some(batch) = search(run, queue) else {
            // A helper thread may have put a batch back after the queue was closed.
            match queue.batches.len() {
                0 => return None,
                _ => continue,
            }
        };
        // Opened after the search: its threads may wait for a descriptor.
        let samples = samples(&batch, SAMPLES);
        if !samples.is_empty() {
            return Some((batch, samples));
        }
        hash_all_empty(run, batch);
    }
}

/// Finds the first batch with files to read. If there is a cache, threads help while there is more
/// work than one can do.
fn search<T: Send>(run: &Run<'_, T>, queue: &DeviceQueue<T>) -> Option<Batch<T>> {
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    let most = run.options.hash.config.io.threads_max.map_or(usize::MAX, |most| most as usize);
    let most = match run.options.cached {
        Some(_) if !descriptors_are_few() => {
            // Each has a file open, and sometimes a directory.
            let most = most.min(descriptors() as usize / 2);
            most.min(queue.share.small_threads).min(THREADS_PER_CORE * cores)
        }
        _ => 1,
    };
    let running = AtomicUsize::new(1);
    let is_over = AtomicBool::new(false);
    let help = || {
        while !is_over.load(Ordering::Relaxed)
            && let Some(batch) = queue.batches.try_pop()
        {
            if let Some(batch) = to_read(run, batch) {
                is_over.store(true, Ordering::Relaxed);
                queue.batches.push_front(batch);
            }
        }
        running.fetch_sub(1, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        while let Some(batch) = queue.batches.pop(&mut || ()) {
            if running.load(Ordering::Relaxed) < most
                && !is_over.load(Ordering::Relaxed)
                && queue.batches.is_behind()
            {
                running.fetch_add(1, Ordering::Relaxed);
                if !threads::spawn(run, scope, THREAD_BYTES, help) {
                    running.fetch_sub(1, Ordering::Relaxed);
                }
            }
            if let found @ Some(_) = to_read(run, batch) {
                is_over.store(true, Ordering::Relaxed);
                return found;
            }
        }
        None
    })
}

/// Returns the jobs of a batch to read, if any of their files has content. Finishes all others.
fn to_read<T: Send>(run: &Run<'_, T>, batch: Batch<T>) -> Option<Batch<T>> {
    let batch = without_cached(run, batch);
    if !samples(&batch, 1).is_empty() {
        return Some(batch);
    }
    hash_all_empty(run, batch);
    None
}

/// Hashes files of length 0. Those of pseudo file systems may have content nevertheless.
fn hash_all_empty<T: Send>(run: &Run<'_, T>, batch: Batch<T>) {
    for job in batch {
        if run.is_stopped() {
            return;
        }
        let Some((job, source)) = open(run, job, CacheMode::Buffered) else { continue };
        let result = match source.is_pseudo() {
            true => (run.options.hash_one)(job.job()),
            false => {
                let options = run.options_of(job.job());
                let digests = digest_source(&source, &options);
                digests.map(|digests| Hashed::of_file(digests, &source)).map_err(Into::into)
            }
        };
        finish_opened(run, job, &source, result);
    }
}

/// Opens up to `most` files with content, spread over the batch.
fn samples<T>(batch: &Batch<T>, most: usize) -> Vec<Source> {
    let stride = (batch.len() / SAMPLES).max(1);
    let places = (0..stride).flat_map(|first| (first..batch.len()).step_by(stride));
    let files = places.filter_map(|place| batch.get(place)?.job().file.as_ref());
    let sources = files.filter_map(|file| file.open().ok());
    sources.filter(|source| source.len() > Some(0)).take(most).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs;
    use std::sync::Mutex;
    use std::time::Duration;

    use blockring::{Config, Fingerprint};

    use super::super::{Failure, FilesOptions, InputFile, Job, hash_files, lock};
    use super::*;
    use crate::{Digest, Options};

    /// Enough for some dozen batches.
    const FILES: usize = 2000;

    fn content(i: usize) -> Vec<u8> {
        // Empty ones are never read through a ring.
        if i.is_multiple_of(3) { Vec::new() } else { i.to_string().into_bytes() }
    }

    /// Each file is reported once and in order, as cached or as read, wherever the files to read
    /// are and whichever thread finds them.
    #[test]
    fn cached_and_read_files_are_reported_in_order() {
        let directory = tempfile::tempdir().unwrap();
        for i in 0..FILES {
            fs::write(directory.path().join(i.to_string()), content(i)).unwrap();
        }
        type IsRead = fn(usize) -> bool;
        let cases: [(&str, IsRead); 8] = [
            ("none", |_| false),
            ("the first", |i| i == 1),
            ("the last", |i| i == FILES - 1),
            ("in the middle", |i| i == 1024),
            ("some, far from each other", |i| i % 500 == 499),
            ("one of each batch", |i| i % 64 == 40),
            ("the second batch", |i| (64..128).contains(&i)),
            ("the second half", |i| i >= FILES / 2),
        ];
        for (name, is_read) in cases {
            for threads_max in [None, Some(1), Some(8)] {
                check(directory.path(), is_read, threads_max, &format!("{name}, {threads_max:?}"));
            }
        }
    }

    fn check(
        directory: &std::path::Path,
        is_read: fn(usize) -> bool,
        threads_max: Option<u32>,
        name: &str,
    ) {
        let searchers = Mutex::new(HashSet::new());
        let (open_most, has_plan) = (AtomicUsize::new(0), AtomicBool::new(false));
        let cached = |&i: &usize, _: u64, _: &Fingerprint| {
            // As if it waited for a disk: other threads get ahead.
            if i.is_multiple_of(64) && !is_read(i) {
                std::thread::sleep(Duration::from_millis(1));
                if !has_plan.load(Ordering::Relaxed) {
                    open_most.fetch_max(open_below(directory), Ordering::Relaxed);
                }
            }
            lock(&searchers).insert(std::thread::current().id());
            (!is_read(i)).then_some([7; 32])
        };
        let config = Config::default().with(|config| config.io.threads_max = threads_max);
        let hash = Options { config, ..Options::default() };
        let hash_one = |job: &Job<usize>| {
            let file = job.file.as_ref().expect("each is a file");
            let bytes = fs::read(directory.join(job.tag.to_string())).map_err(Failure::Open)?;
            Ok(Hashed::new(Digest::from(blake3::hash(&bytes)).into(), &file.open()?))
        };
        let options = FilesOptions {
            cached: Some(&cached),
            on_plan: &|_| has_plan.store(true, Ordering::Relaxed),
            ..FilesOptions::new(&hash, &hash_one)
        };
        let jobs = (0..FILES).map(|tag| {
            let file = InputFile::from_path(&directory.join(tag.to_string())).unwrap();
            Some(Job { tag, file })
        });
        let mut next = 0;
        let reported = hash_files(
            jobs,
            &options,
            |outcome| {
                let i = outcome.job.tag;
                assert_eq!(i, next, "{name}");
                next += 1;
                let hashed = outcome.result.expect("each is a file").expect("each can be read");
                let expected = match is_read(i) {
                    true => blake3::hash(&content(i)),
                    false => [7; 32].into(),
                };
                assert_eq!(hashed.digests.hash(), Some(expected), "{name}: {i}");
                assert_eq!(hashed.is_cached, !is_read(i), "{name}: {i}");
                Ok::<(), ()>(())
            },
            None,
        );
        reported.unwrap();
        assert_eq!(next, FILES, "{name}");
        let searchers = searchers.into_inner().unwrap().len();
        assert!(threads_max != Some(1) || searchers == 1, "{name}: {searchers} threads searched");
        let cores = thread::available_parallelism().map_or(1, |n| n.get());
        let open_most = open_most.into_inner();
        assert!(open_most <= THREADS_PER_CORE * cores, "{name}: {open_most} files were open");
    }

    /// How many files of a directory are open.
    fn open_below(directory: &std::path::Path) -> usize {
        let links = fs::read_dir("/proc/self/fd").unwrap();
        let paths = links.filter_map(|link| fs::read_link(link.ok()?.path()).ok());
        paths.filter(|path| path.starts_with(directory)).count()
    }
}
