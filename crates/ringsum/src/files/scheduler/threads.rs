//! The threads of a worker pool: how many there are, may be, and could be started.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Scope};

use super::dispatch::Run;
use crate::files::threads;

/// The number of threads of one kind.
pub(super) struct ThreadCount {
    most: AtomicU32,
    running: AtomicU32,
}

impl ThreadCount {
    pub(super) fn up_to(most: u32) -> ThreadCount {
        ThreadCount { most: AtomicU32::new(most), running: AtomicU32::new(0) }
    }

    /// Most threads that may run: fewer than planned after one could not be started.
    pub(super) fn most(&self) -> u32 {
        self.most.load(Ordering::Acquire)
    }

    pub(super) fn running(&self) -> u32 {
        self.running.load(Ordering::Acquire)
    }

    /// Reserves a place for one more thread. Returns false at the limit.
    pub(super) fn reserve(&self) -> bool {
        let more = |running: u32| (running < self.most()).then_some(running + 1);
        self.running.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// A thread has ended. Returns whether it was the last.
    pub(super) fn end(&self) -> bool {
        self.running.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// A thread could not be started: those that run have to do.
    fn refuse(&self) {
        let running = self.running.fetch_sub(1, Ordering::AcqRel) - 1;
        self.most.fetch_min(running, Ordering::AcqRel);
    }
}

/// Starts one more thread, unless that is one too many or the system refuses it. `bytes`: the memory that
/// it will allocate.
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
        && threads::may_start(bytes)
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
