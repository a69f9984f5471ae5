//! Looks at names ahead of their turn, several at once: each costs a read of the device where nobody has
//! looked at it for long.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

use crate::session::lock;

/// Most names in pieces that are ready or begun, and not taken yet.
const NAMES_MAX: usize = 4096;

/// How long what comes before may wait for the next name.
const PATIENCE: Duration = Duration::from_millis(5);

/// What the threads share.
pub(crate) struct Ahead<I, X> {
    input: Mutex<Input<I>>,
    /// Names of one piece of work.
    piece: usize,
    done: Mutex<Done<X>>,
    changed: Condvar,
}

struct Input<I> {
    names: I,
    next: u64,
    has_ended: bool,
}

struct Done<X> {
    pieces: BTreeMap<u64, Vec<X>>,
    /// The piece that is taken next.
    turn: u64,
    /// How many there are, once that is known.
    total: Option<u64>,
    is_closed: bool,
}

impl<I, X> Ahead<I, X>
where
    I: Iterator + Send,
    I::Item: Send,
    X: Send,
{
    /// `comes_slowly`: there may be long pauses between names, in which those before are not to wait.
    pub(crate) fn new(names: I, comes_slowly: bool) -> Ahead<I, X> {
        let done = Done { pieces: BTreeMap::new(), turn: 0, total: None, is_closed: false };
        Ahead {
            input: Mutex::new(Input { names, next: 0, has_ended: false }),
            piece: if comes_slowly { 1 } else { 32 },
            done: Mutex::new(done),
            changed: Condvar::new(),
        }
    }

    /// Looks at each name, on so many threads, and gives what was found in the order of the names. `None`
    /// says that the next may take a while.
    pub(crate) fn look<'s, F>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        threads: usize,
        look: F,
    ) -> Taken<'s, I, X, F>
    where
        F: Fn(I::Item) -> X + Copy + Send + 's,
    {
        let start = |_| {
            let work = move || while self.work(look) {};
            thread::Builder::new().spawn_scoped(scope, work).is_ok()
        };
        let threads = (0..threads).filter(|n| start(*n)).count();
        Taken { ahead: self, look, threads, is_slow: false, piece: Vec::new().into_iter() }
    }

    /// One piece of work; false when there is none.
    fn work(&self, look: impl Fn(I::Item) -> X) -> bool {
        let Some((number, names)) = self.begin() else { return false };
        let piece = names.into_iter().map(look).collect();
        lock(&self.done).pieces.insert(number, piece);
        self.changed.notify_all();
        true
    }

    /// The next piece of work; `None` when there is none.
    fn begin(&self) -> Option<(u64, Vec<I::Item>)> {
        // Held while waiting for room, so that pieces are begun in their order.
        let mut input = lock(&self.input);
        if input.has_ended {
            return None;
        }
        let number = input.next;
        let mut done = lock(&self.done);
        while !done.is_closed && number - done.turn >= (NAMES_MAX / self.piece) as u64 {
            done = self.changed.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
        if done.is_closed {
            return None;
        }
        drop(done);
        let names: Vec<_> = input.names.by_ref().take(self.piece).collect();
        input.next += 1;
        if names.len() < self.piece {
            input.has_ended = true;
            lock(&self.done).total = Some(input.next);
            self.changed.notify_all();
        }
        Some((number, names))
    }
}

/// What was found, in the order of the names. Without it, the threads end.
pub(crate) struct Taken<'s, I, X, F> {
    ahead: &'s Ahead<I, X>,
    look: F,
    threads: usize,
    /// It was said that the next may take a while.
    is_slow: bool,
    piece: std::vec::IntoIter<X>,
}

impl<I, X, F> Iterator for Taken<'_, I, X, F>
where
    I: Iterator + Send,
    I::Item: Send,
    X: Send,
    F: Fn(I::Item) -> X + Copy,
{
    type Item = Option<X>;

    fn next(&mut self) -> Option<Option<X>> {
        loop {
            if let Some(found) = self.piece.next() {
                self.is_slow = false;
                return Some(Some(found));
            }
            if self.threads == 0 {
                // No thread could be had: then this one.
                self.ahead.work(self.look);
            }
            let mut done = lock(&self.ahead.done);
            let piece = loop {
                let turn = done.turn;
                if done.total == Some(turn) {
                    return None;
                }
                if let Some(piece) = done.pieces.remove(&turn) {
                    break piece;
                }
                let patience = if self.is_slow { Duration::MAX } else { PATIENCE };
                let waited = self.ahead.changed.wait_timeout(done, patience);
                let (state, time) = waited.unwrap_or_else(PoisonError::into_inner);
                done = state;
                if time.timed_out() && !self.is_slow {
                    self.is_slow = true;
                    return Some(None);
                }
            };
            done.turn += 1;
            self.ahead.changed.notify_all();
            self.piece = piece.into_iter();
        }
    }
}

impl<I, X, F> Drop for Taken<'_, I, X, F> {
    fn drop(&mut self) {
        lock(&self.ahead.done).is_closed = true;
        self.ahead.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_comes_in_the_order_of_the_names() {
        for total in [0, 1, 31, 32, 33, 64, 10_000] {
            for (threads, slowly) in [(0, false), (1, false), (8, false), (8, true)] {
                let ahead = Ahead::new(0..total, slowly);
                let found: Vec<_> = std::thread::scope(|scope| {
                    ahead.look(scope, threads, |n| n * 2).flatten().collect()
                });
                assert_eq!(found, (0..total).map(|n| n * 2).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn it_may_be_left_midway() {
        let ahead = Ahead::new(0..1_000_000, false);
        let found =
            std::thread::scope(|scope| ahead.look(scope, 4, |n| n).flatten().take(100).count());
        assert_eq!(found, 100);
    }

    #[test]
    fn a_pause_is_told_of() {
        let (send, names) = std::sync::mpsc::channel();
        let ahead = Ahead::new(names.into_iter(), true);
        std::thread::scope(|scope| {
            let mut found = ahead.look(scope, 2, |n: u32| n);
            send.send(1).unwrap();
            // Until then there may have been a pause, too.
            assert_eq!(found.by_ref().flatten().next(), Some(1));
            assert_eq!(found.next(), Some(None));
            send.send(2).unwrap();
            assert_eq!(found.by_ref().flatten().next(), Some(2));
            drop(send);
            assert_eq!(found.flatten().next(), None);
        });
    }
}
