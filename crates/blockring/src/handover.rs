//! The hand-over of finished blocks from the pump to consumer threads, and of slots back.
//!
//! Every block goes into each of the queues, and its slot comes back when all of them are done with it. A queue
//! has one consumer, to which blocks come in order, or several, which share them.
//!
//! Two promises, both checked under loom: nothing that was pushed before the close is lost, and a
//! pump that sleeps (here, or in its engine) is woken when a slot comes back or a consumer ends.

use std::collections::VecDeque;

use crate::sync::{
    AtomicU32, Condvar, LOOKS_MAX, Mutex, MutexGuard, Ordering, spin_loop, yield_now,
};

/// Blocks of type `T` on their way to the consumers, slots on their way back.
pub(crate) struct Handover<T> {
    state: Mutex<State<T>>,
    /// There is a block, or there will be no more.
    pushed: Condvar,
    /// A slot came back, or a consumer ended.
    returned: Condvar,
    /// Counts what the condition variables tell, for those who do not sleep.
    changes: AtomicU32,
    /// Nobody sleeps: whoever waits looks again and again.
    spin: bool,
}

struct State<T> {
    queues: Vec<VecDeque<(u32, T)>>,
    consumers: Vec<Consumer>,
    /// By slot: how many of the queues it has not come back from.
    owed: Vec<usize>,
    returned: Vec<u32>,
    /// Slots pushed and not yet back from everywhere.
    lent: usize,
    closed: bool,
    /// One of the consumers takes no more: the run is over.
    ended: bool,
    /// The pump sleeps, or is about to, in its engine, where `returned` does not reach it.
    pump_sleeps: bool,
}

struct Consumer {
    queue: usize,
    /// The slot of the block that it was given.
    holds: Option<u32>,
}

impl<T> State<T> {
    /// A queue is done with a slot.
    fn release(&mut self, slot: u32) {
        let owed = &mut self.owed[slot as usize];
        *owed -= 1;
        if *owed == 0 {
            self.returned.push(slot);
            self.lent -= 1;
        }
    }

    /// What waits in the queues was for nothing.
    fn discard(&mut self) {
        for queue in 0..self.queues.len() {
            for (slot, _) in std::mem::take(&mut self.queues[queue]) {
                self.release(slot);
            }
        }
    }
}

impl<T: Copy> Handover<T> {
    /// `threads`: for each queue, how many consumers share it. Consumers are numbered in that order.
    pub(crate) fn new(spin: bool, threads: &[u32]) -> Handover<T> {
        let consumers = threads.iter().enumerate().flat_map(|(queue, &threads)| {
            (0..threads).map(move |_| Consumer { queue, holds: None })
        });
        Handover {
            state: Mutex::new(State {
                queues: threads.iter().map(|_| VecDeque::new()).collect(),
                consumers: consumers.collect(),
                owed: Vec::new(),
                returned: Vec::new(),
                lent: 0,
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

    /// A consumer that panicked poisons nothing: the state is whole between any two calls.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits for a change that `sign` tells of; may return without one.
    fn wait<'a>(
        &'a self,
        sign: &Condvar,
        state: MutexGuard<'a, State<T>>,
    ) -> MutexGuard<'a, State<T>> {
        if !self.spin {
            return sign.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        // Read under the lock, so that no change after this look is missed.
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

    /// Tells of a change, which must have been made under this lock.
    fn tell(&self, sign: &Condvar, state: MutexGuard<'_, State<T>>) {
        if self.spin {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        drop(state);
        sign.notify_all();
    }

    /// Pump: passes a block on. False when somebody consumes no more; the block is then still ours.
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
        state.lent += 1;
        for queue in &mut state.queues {
            queue.push_back((slot, block));
        }
        self.tell(&self.pushed, state);
        true
    }

    /// Pump: takes the slots that came back, without waiting. False when a consumer has ended.
    pub(crate) fn take_returned(&self, slots: &mut Vec<u32>) -> bool {
        let mut state = self.lock();
        slots.append(&mut state.returned);
        !state.ended
    }

    /// Pump: waits until a slot comes back or a consumer ends.
    pub(crate) fn wait_returned(&self) {
        let mut state = self.lock();
        while state.returned.is_empty() && !state.ended {
            state = self.wait(&self.returned, state);
        }
    }

    /// Pump: says that it is about to sleep in its engine. False when it must not, since something
    /// came back meanwhile; when true, the next return wakes the engine.
    #[must_use]
    pub(crate) fn may_sleep(&self) -> bool {
        if self.spin {
            return false;
        }
        let mut state = self.lock();
        state.pump_sleeps = state.returned.is_empty() && !state.ended;
        state.pump_sleeps
    }

    /// Pump: no more blocks. With `discard`, those that wait are taken back, unconsumed.
    pub(crate) fn close(&self, discard: bool) {
        let mut state = self.lock();
        state.closed = true;
        if discard {
            state.discard();
        }
        self.tell(&self.pushed, state);
    }

    /// Pump: waits until no consumer holds anything any more.
    pub(crate) fn wait_idle(&self) {
        let mut state = self.lock();
        while state.lent > 0 {
            state = self.wait(&self.returned, state);
        }
    }

    /// Consumer: the next block; `None` after the close, or when another has ended early.
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

    /// Consumer: is done with its block. True when the pump's engine must be woken.
    #[must_use]
    pub(crate) fn give_back(&self, consumer: usize) -> bool {
        let mut state = self.lock();
        let before = state.lent;
        if let Some(slot) = state.consumers[consumer].holds.take() {
            state.release(slot);
        }
        if state.lent == before {
            // Others have it still: the pump need not know.
            return false;
        }
        let wake = std::mem::take(&mut state.pump_sleeps);
        self.tell(&self.returned, state);
        wake
    }

    /// Consumer: has come to its end, or, if it was before the close or `failed`, to one that is the end of the
    /// run. What it holds, and what waits, goes back. True when the pump's engine must be woken.
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
        // (Two signs, one change: nobody who spins misses it.)
        self.pushed.notify_all();
        self.tell(&self.returned, state);
        wake
    }
}
