//! A queue between threads that can be closed.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::lock;

/// How long an idle thread keeps its buffers.
const IDLE_TIME: Duration = Duration::from_millis(100);

/// A queue that can be closed.
pub(super) struct Queue<X> {
    state: Mutex<QueueState<X>>,
    changed: Condvar,
}

struct QueueState<X> {
    items: VecDeque<X>,
    is_closed: bool,
    /// Threads waiting for an item.
    waiting: u32,
}

impl<X> Default for Queue<X> {
    fn default() -> Self {
        let state = QueueState { items: VecDeque::new(), is_closed: false, waiting: 0 };
        Queue { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<X> Queue<X> {
    pub(super) fn push(&self, item: X) {
        self.insert(|items| items.push_back(item));
    }

    /// Inserts an item at the front.
    pub(super) fn push_front(&self, item: X) {
        self.insert(|items| items.push_front(item));
    }

    fn insert(&self, insert: impl FnOnce(&mut VecDeque<X>)) {
        let mut state = lock(&self.state);
        insert(&mut state.items);
        // (Notifying is a system call.)
        if state.waiting > 0 {
            self.changed.notify_one();
        }
    }

    pub(super) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.changed.notify_all();
    }

    pub(super) fn try_pop(&self) -> Option<X> {
        lock(&self.state).items.pop_front()
    }

    /// Waits for an item. Returns false if the queue is empty and closed. Calls `idle` once if the
    /// wait takes longer than 100 ms.
    pub(super) fn wait(&self, idle: &mut dyn FnMut()) -> bool {
        let mut state = lock(&self.state);
        state.waiting += 1;
        let mut is_idle = false;
        while state.items.is_empty() && !state.is_closed {
            let time = if is_idle { Duration::MAX } else { IDLE_TIME };
            let waited = self.changed.wait_timeout(state, time);
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = now;
            if timeout.timed_out() && !is_idle {
                drop(state);
                idle();
                is_idle = true;
                state = lock(&self.state);
            }
        }
        state.waiting -= 1;
        !state.items.is_empty()
    }

    /// Waits for and removes the next item; `None` if the queue is empty and closed. Calls `idle`
    /// once if the wait takes longer than 100 ms.
    pub(super) fn pop(&self, idle: &mut dyn FnMut()) -> Option<X> {
        loop {
            match (self.wait(idle), self.try_pop()) {
                (_, Some(item)) => return Some(item),
                (true, None) => {}
                (false, None) => return None,
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.state).items.len()
    }

    /// Whether there are more items than threads waiting for one.
    pub(super) fn is_behind(&self) -> bool {
        let state = lock(&self.state);
        state.items.len() > state.waiting as usize
    }
}
