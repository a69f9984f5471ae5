//! Files that changed while they were read, until it is time to read them again.
//!
//! One thread does that, one file after another, so that nothing waits for them but their turn to be told of.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::lock;
use super::sequence::Run;
use super::ticket::{Ticket, finish};

/// How often somebody looks whether the run was stopped meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// Those that wait, by when they are due.
pub(super) struct Later<T> {
    state: Mutex<State<T>>,
    moved: Condvar,
}

struct State<T> {
    waiting: BTreeMap<(Instant, u64), Ticket<T>>,
    /// Whether somebody reads them.
    is_there: bool,
    /// Nobody but that thread brings any more.
    is_closed: bool,
}

impl<T> Default for Later<T> {
    fn default() -> Self {
        let state = State { waiting: BTreeMap::new(), is_there: false, is_closed: false };
        Later { state: Mutex::new(state), moved: Condvar::new() }
    }
}

impl<T: Send> Later<T> {
    /// Says whether there is a thread for it.
    pub(super) fn is_there(&self, is_there: bool) {
        lock(&self.state).is_there = is_there;
    }

    /// All other threads have ended.
    pub(super) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.moved.notify_one();
    }

    /// Takes a file that changed. Gives it back if it is not to be read again.
    pub(super) fn take(&self, run: &Run<'_, T>, mut ticket: Ticket<T>) -> Option<Ticket<T>> {
        let after = run.options.again.and_then(|again| again(ticket.task(), ticket.again));
        let Some(after) = after else { return Some(ticket) };
        let mut state = lock(&self.state);
        if !state.is_there {
            return Some(ticket);
        }
        ticket.again += 1;
        state.waiting.insert((Instant::now() + after, ticket.number), ticket);
        self.moved.notify_one();
        None
    }

    /// Reads what is due, until there will be no more.
    pub(super) fn work(&self, run: &Run<'_, T>) {
        let mut state = lock(&self.state);
        while !run.is_stopped() {
            let now = Instant::now();
            let due = state.waiting.first_key_value().map(|((due, _), _)| *due);
            if due.is_some_and(|due| due <= now)
                && let Some((_, ticket)) = state.waiting.pop_first()
            {
                drop(state);
                let result = (run.options.alone)(ticket.task());
                finish(run, ticket, result);
                state = lock(&self.state);
                continue;
            }
            if due.is_none() && state.is_closed {
                break;
            }
            let wait = due.map_or(LOOK, |due| (due - now).min(LOOK));
            let waited = self.moved.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        // Nobody wants the others any more; and what changes from now on is not read again.
        state.is_there = false;
        let left = std::mem::take(&mut state.waiting);
        drop(state);
        drop(left);
    }
}
