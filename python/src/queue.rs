//! Entries on their way from a run to the Python iterator: a bounded queue.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most entries that wait to be taken. The run waits for the program beyond that.
const ENTRIES_MAX: usize = 4096;

/// The waiting program is woken once there are this many, or after a tick: a wake-up for each of
/// 30,000 short files would take longer than hashing them.
const WAKE_ENTRIES: usize = 256;

/// A queue from threads that produce to one that consumes.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    /// Something was added, or nothing more will be.
    added: Condvar,
    /// Something was taken, or nothing more will be.
    taken: Condvar,
}

struct State<T> {
    entries: VecDeque<T>,
    /// Nothing more is added.
    is_ended: bool,
    /// It ended before everything was added.
    is_broken: bool,
    /// Nothing more is taken.
    is_closed: bool,
}

/// What [`Queue::take`] found.
pub(crate) enum Taken {
    /// At least one entry.
    Entries,
    /// There will be no more.
    End,
    /// There should be more, but there will be none.
    Broken,
    /// Nothing yet.
    Nothing,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Queue<T> {
        let state =
            State { entries: VecDeque::new(), is_ended: false, is_broken: false, is_closed: false };
        Queue { state: Mutex::new(state), added: Condvar::new(), taken: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry, and waits while there are too many. Returns false if it is closed.
    pub(crate) fn add(&self, entry: T) -> bool {
        let mut state = self.state();
        while state.entries.len() >= ENTRIES_MAX && !state.is_closed {
            state = self.taken.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_closed {
            return false;
        }
        state.entries.push_back(entry);
        if state.entries.len() == WAKE_ENTRIES {
            self.added.notify_one();
        }
        true
    }

    /// Says that nothing more will be added. `is_broken`: although something is missing.
    pub(crate) fn end(&self, is_broken: bool) {
        let mut state = self.state();
        (state.is_ended, state.is_broken) = (true, is_broken);
        drop(state);
        // (One thread may wait for entries, another one in `wait_for_end`.)
        self.added.notify_all();
    }

    /// Says that nothing more will be taken.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.entries.clear();
        self.taken.notify_all();
    }

    /// Moves all entries to `entries`, which is empty. If there are none, waits for some, but not
    /// longer than `patience`.
    pub(crate) fn take(&self, entries: &mut VecDeque<T>, patience: Duration) -> Taken {
        let mut state = self.state();
        if state.entries.is_empty() && !state.is_ended {
            let waited = self.added.wait_timeout(state, patience);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.entries.is_empty() {
            return match state.is_ended {
                true if state.is_broken => Taken::Broken,
                true => Taken::End,
                false => Taken::Nothing,
            };
        }
        std::mem::swap(entries, &mut state.entries);
        self.taken.notify_all();
        Taken::Entries
    }

    /// Waits until nothing more is added, but not longer than `patience`.
    pub(crate) fn wait_for_end(&self, patience: Duration) {
        let state = self.state();
        let _ = self.added.wait_timeout_while(state, patience, |state| !state.is_ended);
    }
}
