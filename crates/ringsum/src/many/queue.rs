//! A queue between threads, which can be closed.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::lock;

/// How long a thread keeps its memory when there is nothing to do.
const PATIENCE: Duration = Duration::from_millis(100);

/// A queue that can be closed.
pub(super) struct Queue<X> {
    state: Mutex<Waiting<X>>,
    some: Condvar,
}

struct Waiting<X> {
    queue: VecDeque<X>,
    is_closed: bool,
    /// Threads that wait for more.
    idle: u32,
}

impl<X> Default for Queue<X> {
    fn default() -> Self {
        let state = Waiting { queue: VecDeque::new(), is_closed: false, idle: 0 };
        Queue { state: Mutex::new(state), some: Condvar::new() }
    }
}

impl<X> Queue<X> {
    fn state(&self) -> MutexGuard<'_, Waiting<X>> {
        lock(&self.state)
    }

    pub(super) fn push(&self, item: X) {
        self.put(|queue| queue.push_back(item));
    }

    /// Puts it before all others.
    pub(super) fn push_first(&self, item: X) {
        self.put(|queue| queue.push_front(item));
    }

    fn put(&self, put: impl FnOnce(&mut VecDeque<X>)) {
        let mut state = self.state();
        put(&mut state.queue);
        // A call of the kernel, which most of the time nobody needs.
        if state.idle > 0 {
            self.some.notify_one();
        }
    }

    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.some.notify_all();
    }

    pub(super) fn try_pop(&self) -> Option<X> {
        self.state().queue.pop_front()
    }

    /// Waits until there is something; false when there will not be. `rest` is called when that takes long.
    pub(super) fn wait(&self, rest: &mut dyn FnMut()) -> bool {
        let mut state = self.state();
        state.idle += 1;
        let mut is_rested = false;
        while state.queue.is_empty() && !state.is_closed {
            let wait =
                self.some.wait_timeout(state, if is_rested { Duration::MAX } else { PATIENCE });
            let (waited, time) = wait.unwrap_or_else(PoisonError::into_inner);
            state = waited;
            if time.timed_out() && !is_rested {
                drop(state);
                rest();
                is_rested = true;
                state = self.state();
            }
        }
        state.idle -= 1;
        !state.queue.is_empty()
    }

    /// The next; `None` when there will be none.
    pub(super) fn pop(&self, rest: &mut dyn FnMut()) -> Option<X> {
        loop {
            match (self.wait(rest), self.try_pop()) {
                (_, Some(item)) => return Some(item),
                (true, None) => {}
                (false, None) => return None,
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.state().queue.len()
    }

    /// Whether there is more than somebody waits for.
    pub(super) fn is_behind(&self) -> bool {
        let state = self.state();
        state.queue.len() > state.idle as usize
    }
}
