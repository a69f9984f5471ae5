//! Who is told of next: what is done waits for what came before it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

use super::ticket::Ticket;
use super::{Outcome, WAITING_MAX, lock};

/// Takes outcomes as they come, and gives them on in the order of their numbers. `deliver` returns
/// whether it wants more.
pub(super) struct Turns<'a, T> {
    unordered: bool,
    /// Most bytes of tasks that are begun and not told of.
    bytes_max: usize,
    deliver: &'a (dyn Fn(Outcome<T>) -> bool + Sync),
    state: Mutex<State<T>>,
    moved: Condvar,
    /// How many were told of; in order, that is the number of the next. Changed by who has the state; who begins tasks
    /// only looks, and does not wait for those who tell of others.
    base: AtomicU64,
    /// What the tasks take that are begun and not told of yet, in bytes. Made less by who has the state.
    bytes: AtomicUsize,
    /// Nobody wants any more: the same as in the state, for who only looks.
    is_stopped: AtomicBool,
}

struct State<T> {
    /// What has become of the tasks from `base` on, in order.
    turns: VecDeque<Option<Done<T>>>,
    /// Nobody wants any more.
    is_stopped: bool,
    /// Somebody waits for room.
    is_full: bool,
}

/// A task that is done, and what it takes, in bytes.
type Done<T> = (Box<Outcome<T>>, usize);

impl<'a, T> Turns<'a, T> {
    pub(super) fn new(
        unordered: bool,
        bytes_max: usize,
        deliver: &'a (dyn Fn(Outcome<T>) -> bool + Sync),
    ) -> Turns<'a, T> {
        Turns {
            unordered,
            bytes_max,
            deliver,
            state: Mutex::new(State { turns: VecDeque::new(), is_stopped: false, is_full: false }),
            moved: Condvar::new(),
            base: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }

    /// Tasks are done.
    pub(super) fn finish(&self, tickets: impl IntoIterator<Item = Ticket<T>>) {
        let mut state = self.state();
        for Ticket { number, outcome, bytes, .. } in tickets {
            if state.is_stopped {
                return;
            }
            if self.unordered {
                state.is_stopped = !(self.deliver)(*outcome);
                self.told(bytes);
                self.make_room(&mut state);
                continue;
            }
            let place = (number - self.base.load(Ordering::Relaxed)) as usize;
            if state.turns.len() <= place {
                state.turns.resize_with(place + 1, || None);
            }
            state.turns[place] = Some((outcome, bytes));
            if place == 0 {
                self.tell(&mut state);
            }
        }
    }

    /// Tells of all whose turn it is.
    fn tell(&self, state: &mut State<T>) {
        while let Some((outcome, bytes)) = state.turns.front_mut().and_then(Option::take) {
            state.turns.pop_front();
            if !state.is_stopped {
                state.is_stopped = !(self.deliver)(*outcome);
            }
            self.told(bytes);
        }
        self.make_room(state);
    }

    /// One more was told of, which has taken so many bytes. For who has the state.
    fn told(&self, bytes: usize) {
        self.base.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn make_room(&self, state: &mut State<T>) {
        // (Never back: who stops says so before it has the lock.)
        if state.is_stopped {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
        // A call of the kernel, which most of the time nobody needs.
        if std::mem::take(&mut state.is_full) {
            self.moved.notify_all();
        }
    }

    /// Whether task `number` may be begun without too many waiting for their turn; one always may.
    pub(super) fn has_room(&self, number: u64) -> bool {
        let waiting = number - self.base.load(Ordering::Relaxed);
        let is_in_bounds =
            || waiting < WAITING_MAX as u64 && self.bytes.load(Ordering::Relaxed) < self.bytes_max;
        waiting == 0 || is_in_bounds() || self.is_stopped()
    }

    /// Waits until task `number` may be begun, which takes so many bytes until it is told of. False: nobody
    /// wants it any more. For one thread, which begins all of them.
    pub(super) fn wait_for_room(&self, number: u64, bytes: usize) -> bool {
        if !self.has_room(number) {
            let mut state = self.state();
            // (Room is made, and a stop told of, by who has the state: neither is missed.)
            while !self.has_room(number) {
                state.is_full = true;
                state = self.moved.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        !self.is_stopped()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Of so many tasks, those that nobody was told of, though nobody stopped: there are none.
    pub(super) fn lost(&self, tasks: u64) -> u64 {
        let state = self.state();
        if state.is_stopped { 0 } else { tasks - self.base.load(Ordering::Relaxed) }
    }

    /// Tells of all files that are done, whether or not it is their turn, and of nothing more: what
    /// stands for all that came before it (the end of a tree) would not be true.
    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        let mut state = self.state();
        for (outcome, _) in std::mem::take(&mut state.turns).into_iter().flatten() {
            if !state.is_stopped && outcome.result.is_some() {
                state.is_stopped = !(self.deliver)(*outcome);
            }
        }
        state.is_stopped = true;
        self.moved.notify_all();
    }
}

/// Ends a run from another thread.
pub struct Stop<'a>(Box<dyn Fn() + Sync + Send + 'a>);

impl<'a> Stop<'a> {
    pub(super) fn of<T: Send>(turns: &'a Turns<'_, T>) -> Stop<'a> {
        Stop(Box::new(|| turns.stop()))
    }

    /// Tells of what is done already, in its order, and of nothing more.
    pub fn now(&self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::many::{Failure, Task};

    /// A task that is done, which was begun with so many bytes.
    fn done(number: u64, bytes: usize) -> [Ticket<u64>; 1] {
        let mut ticket = Ticket::new(number, Task { tag: number, file: None }, bytes);
        ticket.outcome.result = Some(Err(Failure::Alone(String::new())));
        [ticket]
    }

    fn told(unordered: bool, run: impl FnOnce(&Turns<'_, u64>)) -> Vec<u64> {
        let told = Mutex::new(Vec::new());
        let deliver = |outcome: Outcome<u64>| {
            told.lock().unwrap().push(outcome.task.tag);
            true
        };
        run(&Turns::new(unordered, 1 << 20, &deliver));
        told.into_inner().unwrap()
    }

    #[test]
    fn each_is_told_of_in_its_turn() {
        let numbers = [3, 1, 0, 2, 5, 4];
        let finish = |order: &Turns<'_, u64>| {
            for number in numbers {
                order.finish(done(number, 0));
            }
        };
        assert_eq!(told(false, finish), [0, 1, 2, 3, 4, 5]);
        assert_eq!(told(true, finish), numbers);
    }

    #[test]
    fn a_stop_tells_of_what_is_done_and_of_nothing_more() {
        let told = told(false, |order| {
            for number in [0, 4, 2] {
                order.finish(done(number, 0));
            }
            // It says something about those before it, too.
            let [mut last] = done(3, 0);
            last.outcome.result = None;
            order.finish([last]);
            Stop::of(order).now();
            order.finish(done(1, 0));
            assert!(order.is_stopped() && !order.wait_for_room(1 << 40, 1));
        });
        assert_eq!(told, [0, 2, 4]);
    }

    #[test]
    fn no_more_than_the_bound_are_begun() {
        told(false, |order| {
            let bound = WAITING_MAX as u64;
            assert!(order.has_room(bound - 1) && !order.has_room(bound));
            order.finish(done(0, 0));
            assert!(order.has_room(bound) && order.wait_for_room(bound, 0));
        });
        // Whichever it is, if nothing waits for its turn.
        told(true, |order| {
            let bound = WAITING_MAX as u64;
            order.finish(done(bound - 1, 0));
            assert!(order.has_room(bound) && !order.has_room(bound + 1));
        });
    }

    #[test]
    fn no_more_bytes_than_the_bound_wait_but_for_one_task() {
        for unordered in [false, true] {
            let told = told(unordered, |order| {
                let bound = order.bytes_max;
                // Whatever it takes, the first has room.
                assert!(order.wait_for_room(0, 2 * bound) && !order.has_room(1));
                order.finish(done(0, 2 * bound));
                assert!(order.wait_for_room(1, bound - 1) && order.wait_for_room(2, 1));
                assert!(!order.has_room(3));
                order.finish(done(1, bound - 1));
                assert!(order.has_room(3));
            });
            assert_eq!(told, [0, 1]);
        }
    }
}
