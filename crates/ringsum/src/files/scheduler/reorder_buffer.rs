//! Reorder buffer: holds finished jobs until all earlier ones have been reported.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use super::job::ActiveJob;
use super::{Outcome, UNREPORTED_MAX, lock};

/// Accepts finished jobs in any order, and reports them in the order of their numbers. `report`
/// returns whether to continue.
pub(super) struct ReorderBuffer<'a, T> {
    unordered: bool,
    /// Most bytes of jobs that are dispatched but not reported.
    bytes_max: usize,
    report: &'a (dyn Fn(Outcome<T>) -> bool + Sync),
    state: Mutex<BufferState<T>>,
    changed: Condvar,
    /// Number of reported jobs; in ordered mode, also the number of the next one. Written only
    /// under the lock; the dispatcher reads it without.
    reported: AtomicU64,
    /// Bytes of jobs that are dispatched but not reported. Reduced only under the lock.
    bytes: AtomicUsize,
    /// Mirrors `BufferState::is_stopped` for readers without the lock.
    is_stopped: AtomicBool,
}

struct BufferState<T> {
    /// Finished jobs from number `reported` on.
    finished: VecDeque<Option<Finished<T>>>,
    is_stopped: bool,
    /// Whether the dispatcher is waiting for room.
    is_full: bool,
}

/// A finished job and its memory in bytes.
type Finished<T> = (Box<Outcome<T>>, usize);

impl<'a, T> ReorderBuffer<'a, T> {
    pub(super) fn new(
        unordered: bool,
        bytes_max: usize,
        report: &'a (dyn Fn(Outcome<T>) -> bool + Sync),
    ) -> ReorderBuffer<'a, T> {
        let state = BufferState { finished: VecDeque::new(), is_stopped: false, is_full: false };
        ReorderBuffer {
            unordered,
            bytes_max,
            report,
            state: Mutex::new(state),
            changed: Condvar::new(),
            reported: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Accepts finished jobs, and reports those that are next.
    pub(super) fn finish(&self, jobs: impl IntoIterator<Item = ActiveJob<T>>) {
        let mut state = lock(&self.state);
        for ActiveJob { number, outcome, bytes, .. } in jobs {
            if state.is_stopped {
                return;
            }
            if self.unordered {
                state.is_stopped = !(self.report)(*outcome);
                self.count_reported(bytes);
                self.make_room(&mut state);
                continue;
            }
            let place = (number - self.reported.load(Ordering::Relaxed)) as usize;
            if state.finished.len() <= place {
                state.finished.resize_with(place + 1, || None);
            }
            state.finished[place] = Some((outcome, bytes));
            if place == 0 {
                self.report_next(&mut state);
            }
        }
    }

    /// Reports all jobs up to the first unfinished one.
    fn report_next(&self, state: &mut BufferState<T>) {
        while let Some((outcome, bytes)) = state.finished.front_mut().and_then(Option::take) {
            state.finished.pop_front();
            if !state.is_stopped {
                state.is_stopped = !(self.report)(*outcome);
            }
            self.count_reported(bytes);
        }
        self.make_room(state);
    }

    /// Counts a reported job. Called under the lock.
    fn count_reported(&self, bytes: usize) {
        self.reported.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn make_room(&self, state: &mut BufferState<T>) {
        // (Never reset to false: `stop` sets it before it takes the lock.)
        if state.is_stopped {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
        // (Notifying is a system call.)
        if std::mem::take(&mut state.is_full) {
            self.changed.notify_all();
        }
    }

    /// Whether job `number` may be dispatched. The first unreported one always may.
    pub(super) fn has_room(&self, number: u64) -> bool {
        let unreported = number - self.reported.load(Ordering::Relaxed);
        let is_in_bounds = || {
            unreported < UNREPORTED_MAX as u64
                && self.bytes.load(Ordering::Relaxed) < self.bytes_max
        };
        unreported == 0 || is_in_bounds() || self.is_stopped()
    }

    /// Waits until job `number` may be dispatched. The job takes `bytes` of memory until it is
    /// reported. Returns false if the run is stopped. Only for the dispatcher.
    pub(super) fn wait_for_room(&self, number: u64, bytes: usize) -> bool {
        if !self.has_room(number) {
            let mut state = lock(&self.state);
            // (Room is made and stops are set under the lock, so no wake-up is missed.)
            while !self.has_room(number) {
                state.is_full = true;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        !self.is_stopped()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Returns the number of `dispatched` jobs that were not reported although the run was not
    /// stopped; 0 unless there is a bug.
    pub(super) fn lost(&self, dispatched: u64) -> u64 {
        let state = lock(&self.state);
        if state.is_stopped { 0 } else { dispatched - self.reported.load(Ordering::Relaxed) }
    }

    /// Reports all finished files, even if earlier ones are not finished, but no job without a
    /// result (such as the end of a tree): it would say something about all jobs before it.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        let mut state = lock(&self.state);
        for (outcome, _) in std::mem::take(&mut state.finished).into_iter().flatten() {
            if !state.is_stopped && outcome.result.is_some() {
                state.is_stopped = !(self.report)(*outcome);
            }
        }
        state.is_stopped = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Failure, Job};
    use super::*;

    /// A finished job.
    fn finished(number: u64, bytes: usize) -> [ActiveJob<u64>; 1] {
        let mut job = ActiveJob::new(number, Job { tag: number, file: None }, bytes);
        job.outcome.result = Some(Err(Failure::Other(String::new())));
        [job]
    }

    fn reported(unordered: bool, run: impl FnOnce(&ReorderBuffer<'_, u64>)) -> Vec<u64> {
        let reported = Mutex::new(Vec::new());
        let report = |outcome: Outcome<u64>| {
            reported.lock().unwrap().push(outcome.job.tag);
            true
        };
        run(&ReorderBuffer::new(unordered, 1 << 20, &report));
        reported.into_inner().unwrap()
    }

    #[test]
    fn jobs_are_reported_in_order() {
        let numbers = [3, 1, 0, 2, 5, 4];
        let finish = |buffer: &ReorderBuffer<'_, u64>| {
            for number in numbers {
                buffer.finish(finished(number, 0));
            }
        };
        assert_eq!(reported(false, finish), [0, 1, 2, 3, 4, 5]);
        assert_eq!(reported(true, finish), numbers);
    }

    #[test]
    fn a_stop_reports_what_is_finished_and_nothing_more() {
        let reported = reported(false, |buffer| {
            for number in [0, 4, 2] {
                buffer.finish(finished(number, 0));
            }
            // It says something about the jobs before it, too.
            let [mut last] = finished(3, 0);
            last.outcome.result = None;
            buffer.finish([last]);
            buffer.stop();
            buffer.finish(finished(1, 0));
            assert!(buffer.is_stopped() && !buffer.wait_for_room(1 << 40, 1));
        });
        assert_eq!(reported, [0, 2, 4]);
    }

    #[test]
    fn no_more_than_the_bound_are_dispatched() {
        reported(false, |buffer| {
            let bound = UNREPORTED_MAX as u64;
            assert!(buffer.has_room(bound - 1) && !buffer.has_room(bound));
            buffer.finish(finished(0, 0));
            assert!(buffer.has_room(bound) && buffer.wait_for_room(bound, 0));
        });
        // Without an order, any of them makes room.
        reported(true, |buffer| {
            let bound = UNREPORTED_MAX as u64;
            buffer.finish(finished(bound - 1, 0));
            assert!(buffer.has_room(bound) && !buffer.has_room(bound + 1));
        });
    }

    #[test]
    fn no_more_bytes_than_the_bound_are_dispatched_but_for_one_job() {
        for unordered in [false, true] {
            let reported = reported(unordered, |buffer| {
                let bound = buffer.bytes_max;
                // The first has room, however large it is.
                assert!(buffer.wait_for_room(0, 2 * bound) && !buffer.has_room(1));
                buffer.finish(finished(0, 2 * bound));
                assert!(buffer.wait_for_room(1, bound - 1) && buffer.wait_for_room(2, 1));
                assert!(!buffer.has_room(3));
                buffer.finish(finished(1, bound - 1));
                assert!(buffer.has_room(3));
            });
            assert_eq!(reported, [0, 1]);
        }
    }
}
