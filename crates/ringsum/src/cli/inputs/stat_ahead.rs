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
pub(crate) struct Ahead<I: Iterator, X> {
    input: Mutex<Input<I>>,
    /// Most names of one piece of work.
    piece: usize,
    /// Most bytes of names in pieces that are ready or begun, and not taken yet; but for one piece.
    bytes_max: usize,
    /// What a name takes until it is taken, in bytes.
    weigh: fn(&I::Item) -> usize,
    done: Mutex<Done<X>>,
    changed: Condvar,
}

struct Input<I> {
    names: I,
    next: u64,
    has_ended: bool,
}

struct Done<X> {
    pieces: BTreeMap<u64, Piece<X>>,
    /// What they take, and those that are begun, in bytes.
    bytes: usize,
    /// The piece that is taken next.
    turn: u64,
    /// How many there are, once that is known.
    total: Option<u64>,
    is_closed: bool,
}

/// What was found, and what its names take, in bytes.
struct Piece<X> {
    found: Vec<X>,
    bytes: usize,
}

impl<I, X> Ahead<I, X>
where
    I: Iterator + Send,
    I::Item: Send,
    X: Send,
{
    /// `comes_slowly`: there may be long pauses between names, in which those before are not to wait.
    /// `bytes_max`: most bytes of names, which `weigh` tells of each, that are looked at ahead.
    pub(crate) fn new(
        names: I,
        comes_slowly: bool,
        bytes_max: usize,
        weigh: fn(&I::Item) -> usize,
    ) -> Ahead<I, X> {
        let done =
            Done { pieces: BTreeMap::new(), bytes: 0, turn: 0, total: None, is_closed: false };
        Ahead {
            input: Mutex::new(Input { names, next: 0, has_ended: false }),
            piece: if comes_slowly { 1 } else { 32 },
            bytes_max,
            weigh,
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
        let Some((number, Piece { found: names, bytes })) = self.begin() else { return false };
        let found = names.into_iter().map(look).collect();
        lock(&self.done).pieces.insert(number, Piece { found, bytes });
        self.changed.notify_all();
        true
    }

    /// The next piece of work; `None` when there is none.
    fn begin(&self) -> Option<(u64, Piece<I::Item>)> {
        // Held while waiting for room, so that pieces are begun in their order.
        let mut input = lock(&self.input);
        if input.has_ended {
            return None;
        }
        let number = input.next;
        let mut done = lock(&self.done);
        let is_full = |done: &Done<X>| {
            let pieces = number - done.turn;
            pieces >= (NAMES_MAX / self.piece) as u64
                || (pieces > 0 && done.bytes >= self.bytes_max)
        };
        while !done.is_closed && is_full(&done) {
            done = self.changed.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
        if done.is_closed {
            return None;
        }
        drop(done);
        let (mut names, mut bytes) = (Vec::new(), 0);
        // (The last piece may be empty.)
        while names.len() < self.piece && (names.is_empty() || bytes < self.bytes_max / self.piece)
        {
            let Some(name) = input.names.next() else {
                input.has_ended = true;
                break;
            };
            bytes += (self.weigh)(&name);
            names.push(name);
        }
        input.next += 1;
        let mut done = lock(&self.done);
        done.bytes += bytes;
        if input.has_ended {
            done.total = Some(input.next);
            self.changed.notify_all();
        }
        Some((number, Piece { found: names, bytes }))
    }
}

/// What was found, in the order of the names. Without it, the threads end.
pub(crate) struct Taken<'s, I: Iterator, X, F> {
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
            done.bytes -= piece.bytes;
            self.ahead.changed.notify_all();
            self.piece = piece.found.into_iter();
        }
    }
}

impl<I: Iterator, X, F> Drop for Taken<'_, I, X, F> {
    fn drop(&mut self) {
        lock(&self.ahead.done).is_closed = true;
        self.ahead.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn what_is_found_comes_in_the_order_of_the_names() {
        for total in [0, 1, 31, 32, 33, 64, 10_000] {
            for (threads, slowly) in [(0, false), (1, false), (8, false), (8, true)] {
                // As many names as there are, and one after another.
                let bytes_max = if total % 2 == 0 { 1 << 20 } else { 1 };
                let ahead = Ahead::new(0..total, slowly, bytes_max, |_| 100);
                let found: Vec<_> = std::thread::scope(|scope| {
                    ahead.look(scope, threads, |n| n * 2).flatten().collect()
                });
                assert_eq!(found, (0..total).map(|n| n * 2).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn it_may_be_left_midway() {
        let ahead = Ahead::new(0..1_000_000, false, 1000, |_| 1);
        let found =
            std::thread::scope(|scope| ahead.look(scope, 4, |n| n).flatten().take(100).count());
        assert_eq!(found, 100);
    }

    #[test]
    fn a_pause_is_told_of() {
        let (send, names) = std::sync::mpsc::channel();
        let ahead = Ahead::new(names.into_iter(), true, 1000, |_| 1);
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

    #[test]
    fn no_more_bytes_than_the_bound_are_looked_at_ahead() {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let ahead = Ahead::new(0..1000, false, 320, |_| 10);
        std::thread::scope(|scope| {
            let look = |n| {
                BEGUN.fetch_add(1, Ordering::SeqCst);
                n
            };
            let mut found = ahead.look(scope, 4, look).flatten();
            for taken in 0..1000 {
                assert_eq!(found.next(), Some(taken));
                // Those that are taken, those within the bound, and the piece that goes beyond it.
                let begun = BEGUN.load(Ordering::SeqCst);
                assert!(begun <= taken + 1 + 32 + 1, "{begun} after {taken}");
            }
        });
    }
}
