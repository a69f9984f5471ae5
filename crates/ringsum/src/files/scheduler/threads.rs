//! Thread counts of a worker pool: running, at most, and reduced if threads cannot be started.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Scope};

use super::dispatch::Run;
use crate::files::address_space;

/// The number of threads of one kind.
pub(super) struct ThreadCount {
    most: AtomicU32,
    running: AtomicU32,
}

impl ThreadCount {
    pub(super) fn up_to(most: u32) -> ThreadCount {
        ThreadCount { most: AtomicU32::new(most), running: AtomicU32::new(0) }
    }

    /// Returns the limit of running threads, which drops when one cannot be started.
    pub(super) fn most(&self) -> u32 {
        self.most.load(Ordering::Acquire)
    }

    pub(super) fn running(&self) -> u32 {
        self.running.load(Ordering::Acquire)
    }

    /// Reserves a slot for one more thread. Returns false at the limit.
    pub(super) fn reserve(&self) -> bool {
        let more = |running: u32| (running < self.most()).then_some(running + 1);
        self.running.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Records that a thread has ended. Returns whether it was the last.
    pub(super) fn end(&self) -> bool {
        self.running.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Records that a thread could not be started: the limit drops to the running ones.
    fn refuse(&self) {
        let running = self.running.fetch_sub(1, Ordering::AcqRel) - 1;
        self.most.fetch_min(running, Ordering::AcqRel);
    }
}

/// Starts one more thread, unless the limit is reached or the system refuses it. `bytes`: memory
/// that it will allocate.
pub(super) fn start<'s, T: Send>(
    run: &Run<'_, T>,
    scope: &'s Scope<'s, '_>,
    count: &ThreadCount,
    bytes: u64,
    work: impl FnOnce() + Send + 's,
) {
    if count.reserve() && !spawn(run, scope, bytes, work) {
        count.refuse();
    }
}

/// Starts a thread. Returns false if the system refuses it.
pub(super) fn spawn<'s, T: Send>(
    run: &Run<'_, T>,
    scope: &'s Scope<'s, '_>,
    bytes: u64,
    work: impl FnOnce() + Send + 's,
) -> bool {
    !run.refuses_thread()
        && address_space::may_start(bytes)
        && thread::Builder::new().spawn_scoped(scope, work).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_threads_run_than_could_be_started() {
        let count = ThreadCount::up_to(3);
        assert!(count.reserve() && count.reserve());
        count.refuse();
        assert_eq!((count.running(), count.most()), (1, 1));
        assert!(!count.reserve());
        assert!(count.end());
        // The last is never refused while another runs.
        assert_eq!(count.running(), 0);
    }
}
