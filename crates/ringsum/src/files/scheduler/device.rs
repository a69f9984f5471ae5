//! The files of one device, from the dispatcher to the worker pool.

use blockring::{Plan, RunOptions};

use super::cached;
use super::dispatch::Run;
use super::job::{ActiveJob, hash_separately};
use super::memory_shares::DeviceShare;
use super::queue::Queue;
use super::worker_pool::WorkerPool;

/// With fewer descriptors, one thread does all work. (With 16 descriptors, 16 threads with a ring
/// each ran out of attempts to open a file in one of four runs.)
const DESCRIPTORS_MIN: u64 = 6;

pub(super) type Batch<T> = Vec<ActiveJob<T>>;

/// The jobs of one device.
pub(super) struct DeviceQueue<T> {
    pub(super) share: DeviceShare,
    pub(super) batches: Queue<Batch<T>>,
    /// Large files that are not in the page cache. A `None` calls another thread to help with those
    /// that are being read.
    pub(super) large: Queue<Option<ActiveJob<T>>>,
}

impl<T> DeviceQueue<T> {
    pub(super) fn new(share: DeviceShare) -> DeviceQueue<T> {
        DeviceQueue { share, batches: Queue::default(), large: Queue::default() }
    }

    /// Whether its threads will soon run out of work.
    pub(super) fn is_hungry(&self) -> bool {
        self.batches.len() < 4
    }

    /// Returns the next large file that no thread is reading.
    pub(super) fn next_large(&self) -> Option<ActiveJob<T>> {
        loop {
            if let job @ Some(_) = self.large.try_pop()? {
                return job;
            }
        }
    }
}

/// Hashes the files of a queue one after another, each on its own.
pub(super) fn work_separately<T: Send>(run: &Run<'_, T>, queue: &DeviceQueue<T>) {
    while let Some(batch) = queue.batches.pop(&mut || ()) {
        if run.is_stopped() {
            return;
        }
        batch.into_iter().for_each(|job| hash_separately(run, job));
    }
}

/// Processes a queue until it is empty and closed.
pub(super) fn work<T: Send>(run: &Run<'_, T>, queue: &DeviceQueue<T>) {
    let Some((batch, samples)) = cached::first_to_read(run, queue) else { return };
    let small_bytes = queue.share.small_bytes.map(|bytes| bytes / 2);
    let options = RunOptions { small_bytes, ..RunOptions::default() };
    let plan = Plan::choose_for_files(&samples, &queue.share.config, &options);
    drop(samples);
    match plan {
        Ok(plan) => {
            (run.options.on_plan)(&plan);
            WorkerPool::work(run, queue, &plan, batch);
            (run.options.on_finished)(&plan);
        }
        // Explicit options are not available for these files: each reports so, or is an exception.
        Err(_) => {
            batch.into_iter().for_each(|job| hash_separately(run, job));
            work_separately(run, queue);
        }
    }
}

/// Whether descriptors are so few that one thread has to do all work: other threads would hold
/// those that it waits for.
pub(super) fn descriptors_are_few() -> bool {
    descriptors() < DESCRIPTORS_MIN
}

/// Descriptors for files and rings: a quarter of the process's limit. Half of it is for walks.
pub(super) fn descriptors() -> u64 {
    crate::files::descriptors::limit() / 4
}
