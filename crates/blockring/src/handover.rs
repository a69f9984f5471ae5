//! The hand-over of finished blocks from the pump to a consumer thread, and of slots back.
//!
//! Two promises, both checked under loom: nothing that was pushed before the close is lost, and a
//! pump that sleeps (here, or in its engine) is woken when a slot comes back or the consumer ends.

use std::collections::VecDeque;

use crate::sync::{
    AtomicU32, Condvar, LOOKS_MAX, Mutex, MutexGuard, Ordering, spin_loop, yield_now,
};

/// Blocks of type `T` on their way to the consumer, slots on their way back.
pub(crate) struct Handover<T> {
    state: Mutex<State<T>>,
    /// There is a block, or there will be no more.
    pushed: Condvar,
    /// A slot came back, or the consumer ended.
    returned: Condvar,
    /// Counts what the condition variables tell, for those who do not sleep.
    changes: AtomicU32,
    /// Nobody sleeps: whoever waits looks again and again.
    spin: bool,
}

struct State<T> {
    blocks: VecDeque<T>,
    returned: Vec<u32>,
    /// Blocks pushed and not yet given back.
    lent: usize,
    closed: bool,
    consumer_ended: bool,
    /// The pump sleeps, or is about to, in its engine, where `returned` does not reach it.
    pump_sleeps: bool,
}

impl<T> Handover<T> {
    pub(crate) fn new(spin: bool) -> Handover<T> {
        Handover {
            state: Mutex::new(State {
                blocks: VecDeque::new(),
                returned: Vec::new(),
                lent: 0,
                closed: false,
                consumer_ended: false,
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
        sign.notify_one();
    }

    /// Pump: passes a block on. False when nobody consumes any more; the block is then still ours.
    #[must_use]
    pub(crate) fn push(&self, block: T) -> bool {
        let mut state = self.lock();
        if state.consumer_ended {
            return false;
        }
        state.blocks.push_back(block);
        state.lent += 1;
        self.tell(&self.pushed, state);
        true
    }

    /// Pump: takes the slots that came back, without waiting. False when the consumer has ended.
    pub(crate) fn take_returned(&self, slots: &mut Vec<u32>) -> bool {
        let mut state = self.lock();
        slots.append(&mut state.returned);
        !state.consumer_ended
    }

    /// Pump: waits until a slot comes back or the consumer ends.
    pub(crate) fn wait_returned(&self) {
        let mut state = self.lock();
        while state.returned.is_empty() && !state.consumer_ended {
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
        state.pump_sleeps = state.returned.is_empty() && !state.consumer_ended;
        state.pump_sleeps
    }

    /// Pump: no more blocks. With `discard`, those that wait are taken back, unconsumed.
    pub(crate) fn close(&self, discard: bool) {
        let mut state = self.lock();
        state.closed = true;
        if discard {
            state.lent -= state.blocks.len();
            state.blocks.clear();
        }
        self.tell(&self.pushed, state);
    }

    /// Pump: waits until the consumer holds nothing any more.
    pub(crate) fn wait_idle(&self) {
        let mut state = self.lock();
        while state.lent > 0 && !state.consumer_ended {
            state = self.wait(&self.returned, state);
        }
    }

    /// Consumer: the next block; `None` after the close.
    pub(crate) fn next(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(block) = state.blocks.pop_front() {
                return Some(block);
            }
            if state.closed {
                return None;
            }
            state = self.wait(&self.pushed, state);
        }
    }

    /// Consumer: gives a slot back. True when the pump's engine must be woken.
    #[must_use]
    pub(crate) fn give_back(&self, slot: u32) -> bool {
        let mut state = self.lock();
        state.returned.push(slot);
        state.lent -= 1;
        let wake = std::mem::take(&mut state.pump_sleeps);
        self.tell(&self.returned, state);
        wake
    }

    /// Consumer: takes no more, for whatever reason. True when the pump's engine must be woken.
    #[must_use]
    pub(crate) fn end(&self) -> bool {
        let mut state = self.lock();
        state.consumer_ended = true;
        let wake = std::mem::take(&mut state.pump_sleeps);
        self.tell(&self.returned, state);
        wake
    }
}
