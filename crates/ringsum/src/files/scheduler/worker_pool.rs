//! The threads that hash the files of one device.
//!
//! Threads for small files take batches from the queue of the device. They pass large files to
//! other threads, which share each file block by block, so that a huge file neither waits for the
//! rest nor holds it up. On a rotational device one thread does all of it.
//!
//! **No deadlock.** A queued large file is read by a thread for large files or, if none could be
//! started, by the thread that queued it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};

use blockring::{CacheMode, FileQueue, Plan, ReaderKind, Source};

use super::device::{Batch, DeviceQueue, descriptors, descriptors_are_few};
use super::dispatch::Run;
use super::file_state::FileState;
use super::job::{hash_separately, open};
use super::threads::{ThreadCount, start};
use super::worker::Worker;

/// Most threads that read large files, given as many cores. Each has 8 MiB in flight; one keeps a
/// device busy as long as it hashes faster than the device delivers.
const LARGE_THREADS_MAX: u32 = 4;

/// Threads per core for small files, as long as all files are in the page cache.
const WARM_THREADS_PER_CORE: u32 = 2;

/// Least buffer size of a thread, in bytes.
const BUFFER_BYTES_MIN: u64 = 64 << 10;

/// Least length of a file for which all threads for large files are woken.
const HUGE_BYTES_MIN: u64 = 32 << 20;

/// Longest file for a [small](ReaderKind::Small) reader, in bytes.
pub(super) const SMALL_BYTES_MAX: u64 = 512 << 10;

/// Most files sorted by their physical offset on a rotational device.
const ROTATIONAL_BATCH: usize = 512;

/// The threads of a device, and their shared state.
pub(super) struct WorkerPool<'p, 'r, T> {
    pub(super) run: &'p Run<'r, T>,
    pub(super) queue: &'p DeviceQueue<T>,
    pub(super) plan: &'p Plan,
    /// Large files that are being read.
    large_files: FileQueue<'p, FileState<'p, T>>,
    pub(super) small: ThreadCount,
    pub(super) large: ThreadCount,
    /// A file was not in the page cache: threads now wait for the device, so more of them help.
    pub(super) met_cold: AtomicBool,
    /// Most threads for small files until then.
    warm_most: u32,
    /// Most files that one thread has open.
    pub(super) open_max: usize,
    /// Buffer size of a thread for small files, in bytes.
    pub(super) buffer_bytes: usize,
    /// Whether the memory is limited.
    pub(super) is_limited: bool,
}

impl<'p, 'r: 'p, T: Send> WorkerPool<'p, 'r, T> {
    /// Processes the queue until it is empty and closed. `first`: its first batch.
    pub(super) fn work(
        run: &'p Run<'r, T>,
        queue: &'p DeviceQueue<T>,
        plan: &'p Plan,
        first: Batch<T>,
    ) {
        let cores = thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let most = run.options.hash.config.io.threads_max.unwrap_or(u32::MAX).max(1);
        let share = &queue.share;
        // Each has a ring, and at least one file.
        let small = (share.small_threads as u64).min(descriptors() / 2).max(1) as u32;
        // One stream if the disk is rotational and the number of threads is not explicit.
        let is_single = most == 1
            || small == 1
            || descriptors_are_few()
            || (plan.is_rotational() && run.options.small_threads.is_none());
        let fitting = |kind| (share.large_bytes / plan.reader_bytes(kind).max(1)).max(1) as u32;
        let (small_most, large_most) = match is_single {
            true => (1, 0),
            false => (
                small.min(most).min(fitting(ReaderKind::Small)),
                cores.min(LARGE_THREADS_MAX).min(most).min(fitting(ReaderKind::Large)),
            ),
        };
        let buffer_bytes = share
            .small_bytes
            .map_or(SMALL_BYTES_MAX, |bytes| (bytes / 4).clamp(BUFFER_BYTES_MIN, SMALL_BYTES_MAX));
        let mut pool = WorkerPool {
            run,
            queue,
            plan,
            large_files: plan.queue(ReaderKind::Large, move || next_large(run, queue, large_most)),
            small: ThreadCount::up_to(small_most),
            large: ThreadCount::up_to(large_most),
            met_cold: AtomicBool::new(false),
            warm_most: WARM_THREADS_PER_CORE * cores,
            open_max: open_max(small),
            buffer_bytes: buffer_bytes as usize,
            is_limited: share.small_bytes.is_some(),
        };
        thread::scope(|scope| {
            pool.small.reserve();
            pool.work_small(scope, Some(first));
        });
        // Files are left only if the rings of all threads failed.
        let mut left = Vec::new();
        pool.large_files.take_unfinished(|state, _| left.extend(state.take_job()));
        left.into_iter().for_each(|job| hash_separately(run, job));
        pool.hash_large_separately();
    }

    fn hash_large_separately(&self) {
        let jobs = std::iter::from_fn(|| self.queue.next_large());
        jobs.for_each(|job| hash_separately(self.run, job));
    }

    /// Starts another thread if more items are queued than threads are waiting.
    fn grow<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        let is_cold = self.met_cold.load(Ordering::Relaxed);
        let is_explicit = self.run.options.small_threads.is_some();
        let most = if is_cold || is_explicit { u32::MAX } else { self.warm_most };
        if self.queue.batches.is_behind() && self.small.running() < most {
            let bytes = self.plan.reader_bytes(ReaderKind::Small) + self.buffer_bytes as u64;
            start(self.run, scope, &self.small, bytes, || self.work_small(scope, None));
        }
        if self.queue.large.is_behind() {
            let bytes = self.plan.reader_bytes(ReaderKind::Large);
            start(self.run, scope, &self.large, bytes, || self.work_large());
            if self.large.running() == 0 {
                self.hash_large_separately();
            }
        }
    }

    fn work_small<'s>(&'s self, scope: &'s Scope<'s, '_>, first: Option<Batch<T>>) {
        // Without threads for large files, this one reads files of any length.
        let kind = if self.large.most() > 0 { ReaderKind::Small } else { ReaderKind::Large };
        let mut worker = Worker::new(self, kind);
        let mut next = first.or_else(|| self.queue.batches.pop(&mut || ()));
        while let Some(mut batch) = next {
            if self.run.is_stopped() {
                break;
            }
            self.grow(scope);
            if self.plan.is_rotational() {
                while batch.len() < ROTATIONAL_BATCH
                    && let Some(more) = self.queue.batches.try_pop()
                {
                    batch.extend(more);
                }
            }
            worker.work(batch);
            self.grow(scope);
            next = self.queue.batches.pop(&mut || worker.release());
        }
        if self.small.end() {
            self.queue.large.close();
        }
    }

    fn work_large(&self) {
        let mut worker = Worker::new(self, ReaderKind::Large);
        while self.queue.large.wait(&mut || worker.release()) {
            if self.run.is_stopped() {
                break;
            }
            if !worker.read_large(&self.large_files) {
                // Other threads may have a ring; otherwise each file reports the error.
                self.hash_large_separately();
            }
        }
        self.large.end();
    }
}

/// Returns the next large file, opened. Wakes all `threads` for a huge one.
fn next_large<'p, 'r: 'p, T: Send>(
    run: &'p Run<'r, T>,
    queue: &DeviceQueue<T>,
    threads: u32,
) -> Option<(Source, Option<Range<u64>>, FileState<'p, T>)> {
    while !run.is_stopped()
        && let Some(job) = queue.next_large()
    {
        let Some((job, source)) = open(run, job, CacheMode::Buffered) else { continue };
        if source.len() >= Some(HUGE_BYTES_MIN) {
            (1..threads).for_each(|_| queue.large.push(None));
        }
        let state = FileState::new(run, job, &source);
        return Some((source, None, state));
    }
    None
}

/// Returns how many files each of `threads` may have open at once.
fn open_max(threads: u32) -> usize {
    (descriptors() / u64::from(threads.max(1))).clamp(1, ROTATIONAL_BATCH as u64) as usize
}
