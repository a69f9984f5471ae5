//! Looks at names ahead of their turn, several at once: each costs a read of the device where nobody has
//! looked at it for long.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;

/// Names of one piece of work.
const PIECE: usize = 32;

/// Most pieces that are ready or begun, and not taken yet.
const PIECES_MAX: u64 = 128;

/// What the threads share.
pub(crate) struct Ahead<I, X> {
    input: Mutex<Input<I>>,
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

fn lock<X>(mutex: &Mutex<X>) -> MutexGuard<'_, X> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<I, X> Ahead<I, X>
where
    I: Iterator + Send,
    I::Item: Send,
    X: Send,
{
    pub(crate) fn new(names: I) -> Ahead<I, X> {
        Ahead {
            input: Mutex::new(Input { names, next: 0, has_ended: false }),
            done: Mutex::new(Done {
                pieces: BTreeMap::new(),
                turn: 0,
                total: None,
                is_closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Looks at each name, on so many threads, and gives what was found in the order of the names.
    pub(crate) fn look<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        threads: usize,
        look: impl Fn(I::Item) -> X + Copy + Send + 's,
    ) -> Taken<'s, I, X> {
        for _ in 0..threads {
            scope.spawn(move || self.work(look));
        }
        Taken { ahead: self, piece: Vec::new().into_iter() }
    }

    fn work(&self, look: impl Fn(I::Item) -> X) {
        while let Some((number, names)) = self.begin() {
            let piece = names.into_iter().map(&look).collect();
            lock(&self.done).pieces.insert(number, piece);
            self.changed.notify_all();
        }
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
        while !done.is_closed && number - done.turn >= PIECES_MAX {
            done = self.changed.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
        if done.is_closed {
            return None;
        }
        drop(done);
        let names: Vec<_> = input.names.by_ref().take(PIECE).collect();
        input.next += 1;
        if names.len() < PIECE {
            input.has_ended = true;
            lock(&self.done).total = Some(input.next);
            self.changed.notify_all();
        }
        Some((number, names))
    }
}

/// What was found, in the order of the names. Without it, the threads end.
pub(crate) struct Taken<'s, I, X> {
    ahead: &'s Ahead<I, X>,
    piece: std::vec::IntoIter<X>,
}

impl<I, X> Iterator for Taken<'_, I, X> {
    type Item = X;

    fn next(&mut self) -> Option<X> {
        loop {
            if let Some(found) = self.piece.next() {
                return Some(found);
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
                done = self.ahead.changed.wait(done).unwrap_or_else(PoisonError::into_inner);
            };
            done.turn += 1;
            self.ahead.changed.notify_all();
            self.piece = piece.into_iter();
        }
    }
}

impl<I, X> Drop for Taken<'_, I, X> {
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
            for threads in [1, 8] {
                let ahead = Ahead::new(0..total);
                let found: Vec<_> =
                    std::thread::scope(|scope| ahead.look(scope, threads, |n| n * 2).collect());
                assert_eq!(found, (0..total).map(|n| n * 2).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn it_may_be_left_midway() {
        let ahead = Ahead::new(0..1_000_000);
        let found = std::thread::scope(|scope| ahead.look(scope, 4, |n| n).take(100).count());
        assert_eq!(found, 100);
    }
}
