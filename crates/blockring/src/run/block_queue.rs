//! The queues that carry finished blocks from the pump to consumer threads, and slots back.
//!
//! Every block is added to each queue, and its slot is returned when all queues are done with it. A
//! queue has one consumer, which gets blocks in order, or several, which share them.
//!
//! Two guarantees, both checked with loom: no block that was pushed before the close is lost, and a
//! pump that sleeps (here, or in its engine) is woken when a slot is returned or a consumer ends.

use std::collections::VecDeque;

use super::sync::{
    AtomicU32, Condvar, LOOKS_MAX, Mutex, MutexGuard, Ordering, spin_loop, yield_now,
};

/// Queues of blocks of type `T` for the consumers, and of slots for the pump.
pub(crate) struct BlockQueue<T> {
    state: Mutex<QueueState<T>>,
    /// A block was pushed, or the queue was closed.
    pushed: Condvar,
    /// A slot was returned, or a consumer ended.
    returned: Condvar,
    /// Counts notifications of the condition variables, for threads that spin.
    changes: AtomicU32,
    /// Whether waiting threads spin instead of sleeping.
    spin: bool,
}

struct QueueState<T> {
    queues: Vec<VecDeque<(u32, T)>>,
    consumers: Vec<Consumer>,
    /// For each slot, the number of queues that are not done with it.
    owed: Vec<usize>,
    returned: Vec<u32>,
    /// Number of slots pushed, and not done with in every queue.
    outstanding: usize,
    closed: bool,
    /// A consumer ended early: the run is over.
    ended: bool,
    /// The pump sleeps, or is about to sleep, in its engine, where `returned` does not wake it.
    pump_sleeps: bool,
}

struct Consumer {
    queue: usize,
    /// The slot of the block that it holds.
    holds: Option<u32>,
}

impl<T> QueueState<T> {
    /// Records that a queue is done with a slot.
    fn release(&mut self, slot: u32) {
        let owed = &mut self.owed[slot as usize];
        *owed -= 1;
        if *owed == 0 {
            self.returned.push(slot);
            self.outstanding -= 1;
        }
    }

    /// Drops the blocks that are waiting in the queues.
    fn discard(&mut self) {
        for queue in 0..self.queues.len() {
            for (slot, _) in std::mem::take(&mut self.queues[queue]) {
                self.release(slot);
            }
        }
    }
}

impl<T: Copy> BlockQueue<T> {
    /// `threads`: for each queue, the number of its consumers, which are numbered in that order.
    pub(crate) fn new(spin: bool, threads: &[u32]) -> BlockQueue<T> {
        let consumers = threads.iter().enumerate().flat_map(|(queue, &threads)| {
            (0..threads).map(move |_| Consumer { queue, holds: None })
        });
        BlockQueue {
            state: Mutex::new(QueueState {
                queues: threads.iter().map(|_| VecDeque::new()).collect(),
                consumers: consumers.collect(),
                owed: Vec::new(),
                returned: Vec::new(),
                outstanding: 0,
                closed: false,
                ended: false,
                pump_sleeps: false,
            }),
            pushed: Condvar::new(),
            returned: Condvar::new(),
            changes: AtomicU32::new(0),
            spin,
        }
    }

    /// Ignores poisoning by a panicking consumer: the state is consistent between any two calls.
    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits for a notification of `condition`; may return without one.
    fn wait<'a>(
        &'a self,
        condition: &Condvar,
        state: MutexGuard<'a, QueueState<T>>,
    ) -> MutexGuard<'a, QueueState<T>> {
        if !self.spin {
            return condition.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        // Read under the lock, so that no later change is missed.
        let seen = self.changes.load(Ordering::Relaxed);
        drop(state);
        let mut looks = 0_u32;
        while self.changes.load(Ordering::Relaxed) == seen {
            match looks < LOOKS_MAX {
                true => spin_loop(),
                false => yield_now(),
            }
            looks = looks.saturating_add(1);
        }
        self.lock()
    }

    /// Notifies waiting threads of a change that was made under this lock.
    fn notify(&self, condition: &Condvar, state: MutexGuard<'_, QueueState<T>>) {
        if self.spin {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        drop(state);
        condition.notify_all();
    }

    /// Pump: pushes a block. Returns false if a consumer has ended; the pump then keeps the block.
    #[must_use]
    pub(crate) fn push(&self, slot: u32, block: T) -> bool {
        let mut state = self.lock();
        if state.ended {
            return false;
        }
        if state.owed.len() <= slot as usize {
            state.owed.resize(slot as usize + 1, 0);
        }
        state.owed[slot as usize] = state.queues.len();
        state.outstanding += 1;
        for queue in &mut state.queues {
            queue.push_back((slot, block));
        }
        self.notify(&self.pushed, state);
        true
    }

    /// Pump: takes the returned slots, without waiting. Returns false if a consumer has ended.
    pub(crate) fn take_returned(&self, slots: &mut Vec<u32>) -> bool {
        let mut state = self.lock();
        slots.append(&mut state.returned);
        !state.ended
    }

    /// Pump: waits until a slot is returned or a consumer ends.
    pub(crate) fn wait_returned(&self) {
        let mut state = self.lock();
        while state.returned.is_empty() && !state.ended {
            state = self.wait(&self.returned, state);
        }
    }

    /// Pump: announces that it is about to sleep in its engine. Returns false if it must not,
    /// because a slot was returned or a consumer ended; if true, the next return wakes the engine.
    #[must_use]
    pub(crate) fn may_sleep(&self) -> bool {
        if self.spin {
            return false;
        }
        let mut state = self.lock();
        state.pump_sleeps = state.returned.is_empty() && !state.ended;
        state.pump_sleeps
    }

    /// Pump: closes the queues. With `discard`, waiting blocks are dropped without being consumed.
    pub(crate) fn close(&self, discard: bool) {
        let mut state = self.lock();
        state.closed = true;
        if discard {
            state.discard();
        }
        self.notify(&self.pushed, state);
    }

    /// Pump: waits until no consumer holds a block.
    pub(crate) fn wait_idle(&self) {
        let mut state = self.lock();
        while state.outstanding > 0 {
            state = self.wait(&self.returned, state);
        }
    }

    /// Consumer: the next block; `None` after the close, or if another consumer ended early.
    pub(crate) fn next(&self, consumer: usize) -> Option<T> {
        let mut state = self.lock();
        let queue = state.consumers[consumer].queue;
        loop {
            if state.ended {
                return None;
            }
            if let Some((slot, block)) = state.queues[queue].pop_front() {
                state.consumers[consumer].holds = Some(slot);
                return Some(block);
            }
            if state.closed {
                return None;
            }
            state = self.wait(&self.pushed, state);
        }
    }

    /// Consumer: returns its block. The result is true if the pump's engine must be woken.
    #[must_use]
    pub(crate) fn give_back(&self, consumer: usize) -> bool {
        let mut state = self.lock();
        let before = state.outstanding;
        if let Some(slot) = state.consumers[consumer].holds.take() {
            state.release(slot);
        }
        if state.outstanding == before {
            // Other queues still need it: the pump is not notified.
            return false;
        }
        let wake = std::mem::take(&mut state.pump_sleeps);
        self.notify(&self.returned, state);
        wake
    }

    /// Consumer: ends. If it `failed`, or ends before the close, the run is over; its block and all
    /// waiting ones are returned. The result is true if the pump's engine must be woken.
    #[must_use]
    pub(crate) fn end(&self, consumer: usize, failed: bool) -> bool {
        let mut state = self.lock();
        if let Some(slot) = state.consumers[consumer].holds.take() {
            state.release(slot);
        }
        if failed || !state.closed {
            state.ended = true;
            state.discard();
        }
        let wake = std::mem::take(&mut state.pump_sleeps);
        // (Two conditions, one change: spinning threads see it all the same.)
        self.pushed.notify_all();
        self.notify(&self.returned, state);
        wake
    }
}
