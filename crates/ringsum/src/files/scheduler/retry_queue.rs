//! Retry queue: holds files that changed while they were read until it is time to read them again.
//!
//! One thread reads them, one after another, so they delay no other file but in the reorder buffer.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::dispatch::Run;
use super::job::{ActiveJob, finish};
use super::lock;

/// How often the thread checks whether the run was stopped.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Jobs by due time.
pub(super) struct RetryQueue<T> {
    state: Mutex<RetryState<T>>,
    changed: Condvar,
}

struct RetryState<T> {
    jobs: BTreeMap<(Instant, u64), ActiveJob<T>>,
    /// Whether a thread reads them.
    is_open: bool,
    /// Whether all other threads have ended.
    is_closed: bool,
}

impl<T> Default for RetryQueue<T> {
    fn default() -> Self {
        let state = RetryState { jobs: BTreeMap::new(), is_open: false, is_closed: false };
        RetryQueue { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<T: Send> RetryQueue<T> {
    /// Accepts jobs from now on: a thread is about to call [`work`](RetryQueue::work).
    pub(super) fn open(&self) {
        lock(&self.state).is_open = true;
    }

    /// From now on, only the thread of [`work`](RetryQueue::work) adds jobs: all others have ended.
    pub(super) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.changed.notify_one();
    }

    /// Queues a file that changed. Returns the job if it must not be retried.
    pub(super) fn push(&self, run: &Run<'_, T>, mut job: ActiveJob<T>) -> Option<ActiveJob<T>> {
        let retry_after = run.options.retry_after;
        let after = retry_after.and_then(|retry_after| retry_after(job.job(), job.retries));
        let Some(after) = after else { return Some(job) };
        let mut state = lock(&self.state);
        if !state.is_open {
            return Some(job);
        }
        job.retries += 1;
        state.jobs.insert((Instant::now() + after, job.number), job);
        self.changed.notify_one();
        None
    }

    /// Reads files as they become due, until no more can be added.
    pub(super) fn work(&self, run: &Run<'_, T>) {
        let mut state = lock(&self.state);
        while !run.is_stopped() {
            let now = Instant::now();
            let due = state.jobs.first_key_value().map(|((due, _), _)| *due);
            if due.is_some_and(|due| due <= now)
                && let Some((_, job)) = state.jobs.pop_first()
            {
                drop(state);
                let result = (run.options.hash_one)(job.job());
                finish(run, job, result);
                state = lock(&self.state);
                continue;
            }
            if due.is_none() && state.is_closed {
                break;
            }
            let wait = due.map_or(STOP_CHECK, |due| (due - now).min(STOP_CHECK));
            let waited = self.changed.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_open = false;
        let unread = std::mem::take(&mut state.jobs);
        drop(state);
        drop(unread);
    }
}
