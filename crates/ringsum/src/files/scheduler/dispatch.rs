//! The dispatcher: numbers jobs as they arrive, sorts them by inode a few thousand at a time, and
//! adds them to the queues of their devices.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::{self, Scope};

use super::device::{self, DeviceQueue};
use super::job::{ActiveJob, hash_separately};
use super::memory_shares::{self, DeviceShare};
use super::reorder_buffer::ReorderBuffer;
use super::retry_queue::RetryQueue;
use super::threads::spawn;
use super::{FilesOptions, Job, Outcome, Watch};
use crate::files::descriptors::Shortage;
use crate::{Algorithms, Options};

/// Most files sorted together. A tree that was written in one go lies on the device in the order of
/// its names, and reads as fast in that order; sorting is for trees that were not.
const WINDOW: usize = 4096;

/// Most files in a batch, which one thread opens and reads together.
const BATCH: usize = 64;

/// One run over all jobs.
pub(super) struct Run<'a, T> {
    pub(super) options: &'a FilesOptions<'a, T>,
    pub(super) buffer: ReorderBuffer<'a, T>,
    pub(super) retries: RetryQueue<T>,
    pub(super) shortage: Shortage,
    /// The threads that a test refuses to start.
    #[cfg(test)]
    pub(super) refusals: Option<super::tests::Refusals>,
}

/// Jobs of a queue that are not yet sorted into batches.
struct Window<T> {
    queue: Arc<DeviceQueue<T>>,
    jobs: Vec<ActiveJob<T>>,
    /// Whether they are files of one device that share readers.
    is_sorted: bool,
    has_thread: bool,
}

impl<'a, T: Send> Run<'a, T> {
    pub(super) fn new(
        options: &'a FilesOptions<'a, T>,
        report: &'a (dyn Fn(Outcome<T>) -> bool + Sync),
    ) -> Run<'a, T> {
        let unreported_bytes = memory_shares::unreported_bytes(&options.hash.config);
        Run {
            options,
            buffer: ReorderBuffer::new(options.unordered, unreported_bytes, report),
            retries: RetryQueue::default(),
            shortage: Shortage::default(),
            #[cfg(test)]
            refusals: None,
        }
    }

    /// Runs until every job is reported.
    pub(super) fn run(
        &self,
        jobs: impl Iterator<Item = Option<Job<T>>>,
        watch: Option<&dyn Watch>,
    ) {
        let mut dispatched = 0;
        thread::scope(|scope| {
            let mut watched = None;
            if let Some(watch) = watch {
                // Without this thread, an interrupt ends the process as usual.
                watched =
                    spawn(self, scope, 0, || watch.watch(&|| self.buffer.stop())).then_some(watch);
            }
            // Without this thread, a file that changed fails.
            if self.options.retry_after.is_some()
                && spawn(self, scope, 0, || self.retries.work(self))
            {
                self.retries.open();
            }
            dispatched = thread::scope(|scope| self.dispatch(jobs, scope));
            self.retries.close();
            if let Some(watch) = watched {
                watch.end();
            }
        });
        assert_eq!(self.buffer.lost(dispatched), 0, "jobs of {dispatched} were lost");
    }

    /// Adds each job to the queue of its device. Returns the number of jobs.
    fn dispatch<'s>(
        &'s self,
        jobs: impl Iterator<Item = Option<Job<T>>>,
        scope: &'s Scope<'s, '_>,
    ) -> u64 {
        let mut windows: Vec<Window<T>> = Vec::new();
        let mut by_device = HashMap::new();
        let mut number = 0;
        for job in jobs {
            let Some(job) = job else {
                windows.iter_mut().for_each(|window| window.flush(self));
                continue;
            };
            if !self.buffer.has_room(number) {
                // The jobs that will make room may be in a window.
                windows.iter_mut().for_each(|window| window.flush(self));
            }
            let bytes = job.bytes(self.algorithms_of(&job)) + (self.options.tag_bytes)(&job.tag);
            if !self.buffer.wait_for_room(number, bytes) {
                break;
            }
            let job = ActiveJob::new(number, job, bytes);
            number += 1;
            let Some(file) = &job.job().file else {
                self.buffer.finish([job]);
                continue;
            };
            let device = (file.is_regular && !file.is_separate).then_some(file.device);
            let place = *by_device.entry(device).or_insert_with(|| {
                let devices = windows.iter().filter(|window| window.is_sorted).count() as u32;
                windows.push(self.open_queue(device, devices, scope));
                windows.len() - 1
            });
            windows[place].add(job, self);
        }
        for window in &mut windows {
            window.flush(self);
            window.queue.batches.close();
        }
        number
    }

    /// Starts the thread of a device; `None` for files hashed separately. `number`: its index.
    fn open_queue<'s>(
        &'s self,
        device: Option<u64>,
        number: u32,
        scope: &'s Scope<'s, '_>,
    ) -> Window<T> {
        let options = self.options;
        let share = DeviceShare::of(number, options.small_threads, &options.hash.config);
        let queue = Arc::new(DeviceQueue::new(share));
        let work = {
            let queue = Arc::clone(&queue);
            move || match device {
                Some(_) => device::work(self, &queue),
                None => device::work_separately(self, &queue),
            }
        };
        let has_thread = spawn(self, scope, 0, work);
        Window { queue, jobs: Vec::new(), is_sorted: device.is_some(), has_thread }
    }

    /// Returns the algorithms for the file of a job.
    pub(super) fn algorithms_of<'j>(&'j self, job: &'j Job<T>) -> &'j Algorithms {
        let own = job.file.as_ref().and_then(|file| file.algorithms.as_ref());
        own.unwrap_or(&self.options.hash.algorithms)
    }

    /// Returns options for hashing the file of a job on its own.
    pub(super) fn options_of(&self, job: &Job<T>) -> Options {
        Options { algorithms: *self.algorithms_of(job), ..self.options.hash.clone() }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.buffer.is_stopped()
    }

    /// Whether a test refuses to start the next thread.
    pub(super) fn refuses_thread(&self) -> bool {
        #[cfg(test)]
        return self.refusals.as_ref().is_some_and(super::tests::Refusals::next);
        #[cfg(not(test))]
        false
    }
}

impl<T: Send> Window<T> {
    fn add(&mut self, job: ActiveJob<T>, run: &Run<'_, T>) {
        self.jobs.push(job);
        let enough = match (self.queue.is_hungry(), self.is_sorted) {
            (true, false) => 1,
            (true, true) => BATCH,
            (false, _) => WINDOW,
        };
        if self.jobs.len() >= enough {
            self.flush(run);
        }
    }

    /// Sorts the jobs, and adds them to the queue in batches.
    fn flush(&mut self, run: &Run<'_, T>) {
        if self.is_sorted {
            // (Stable: if inodes carry no information, the order of names is kept.)
            self.jobs.sort_by_key(ActiveJob::inode);
        }
        let mut jobs = self.jobs.drain(..);
        loop {
            let batch: Vec<_> = jobs.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return;
            }
            match self.has_thread {
                true => self.queue.batches.push(batch),
                // No thread could be started: hash on this one.
                false => batch.into_iter().for_each(|job| hash_separately(run, job)),
            }
        }
    }
}
