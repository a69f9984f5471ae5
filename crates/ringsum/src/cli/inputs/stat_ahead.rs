//! Stat-ahead: looks up names on several threads before they are needed. A look-up reads from the
//! device if the inode is not in memory.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

use crate::cli::lock;

/// Most names in chunks that are started or ready, but not taken yet.
const NAMES_MAX: usize = 4096;

/// How long earlier jobs may wait for the next name.
const PATIENCE: Duration = Duration::from_millis(5);

/// The state shared by the threads.
pub(crate) struct StatAhead<I: Iterator, X> {
    names: Mutex<I>,
    /// Most names of one chunk.
    chunk: usize,
    /// Most bytes of names in chunks that are started or ready, but not taken; at least one chunk.
    bytes_max: usize,
    /// Returns the memory of a name in bytes.
    name_bytes: fn(&I::Item) -> usize,
    done: Mutex<Done<X>>,
    changed: Condvar,
}

struct Done<X> {
    chunks: BTreeMap<u64, Chunk<X>>,
    /// Bytes of these chunks, and of those that are started.
    bytes: usize,
    /// Number of chunks that are started, and of those that are taken.
    begun: u64,
    taken: u64,
    has_ended: bool,
    is_closed: bool,
}

/// Items, and the memory of their names in bytes.
struct Chunk<X> {
    items: Vec<X>,
    bytes: usize,
}

impl<I, X> StatAhead<I, X>
where
    I: Iterator + Send,
    I::Item: Send,
    X: Send,
{
    /// `comes_slowly`: there may be long pauses between names, during which earlier ones should not
    /// wait. `bytes_max`: most bytes of names (see `name_bytes`) looked up ahead.
    pub(crate) fn new(
        names: I,
        comes_slowly: bool,
        bytes_max: usize,
        name_bytes: fn(&I::Item) -> usize,
    ) -> StatAhead<I, X> {
        let (chunks, has_ended, is_closed) = (BTreeMap::new(), false, false);
        let done = Done { chunks, bytes: 0, begun: 0, taken: 0, has_ended, is_closed };
        StatAhead {
            names: Mutex::new(names),
            chunk: if comes_slowly { 1 } else { 32 },
            bytes_max,
            name_bytes,
            done: Mutex::new(done),
            changed: Condvar::new(),
        }
    }

    /// Looks up each name with `stat`, on up to `threads` threads, and returns the results in the
    /// order of the names. A `None` means that the next one may take a while.
    pub(crate) fn start<'s, F>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        threads: usize,
        stat: F,
    ) -> Results<'s, I, X, F>
    where
        F: Fn(I::Item) -> X + Copy + Send + 's,
    {
        let work = move || while self.work(stat) {};
        let start = |_: &usize| thread::Builder::new().spawn_scoped(scope, work).is_ok();
        let threads = (0..threads).filter(start).count();
        Results { ahead: self, stat, threads, is_slow: false, chunk: Vec::new().into_iter() }
    }

    /// Looks up one chunk. Returns false if there is none left.
    fn work(&self, stat: impl Fn(I::Item) -> X) -> bool {
        let Some((number, Chunk { items: names, bytes })) = self.begin() else { return false };
        let items = names.into_iter().map(stat).collect();
        lock(&self.done).chunks.insert(number, Chunk { items, bytes });
        self.changed.notify_all();
        true
    }

    /// Takes the next chunk of names; `None` if there is none left.
    fn begin(&self) -> Option<(u64, Chunk<I::Item>)> {
        // Held while waiting for room, so that chunks are started in order.
        let mut input = lock(&self.names);
        let mut done = lock(&self.done);
        let number = done.begun;
        let is_full = |done: &Done<X>| {
            let chunks = number - done.taken;
            chunks >= (NAMES_MAX / self.chunk) as u64
                || (chunks > 0 && done.bytes >= self.bytes_max)
        };
        while !done.is_closed && !done.has_ended && is_full(&done) {
            done = self.changed.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
        if done.is_closed || done.has_ended {
            return None;
        }
        drop(done);
        let (mut names, mut bytes, mut has_ended) = (Vec::new(), 0, false);
        // (The last chunk may be empty.)
        while names.len() < self.chunk && (names.is_empty() || bytes < self.bytes_max / self.chunk)
        {
            let Some(name) = input.next() else {
                has_ended = true;
                break;
            };
            bytes += (self.name_bytes)(&name);
            names.push(name);
        }
        let mut done = lock(&self.done);
        done.begun += 1;
        done.bytes += bytes;
        if has_ended {
            done.has_ended = true;
            self.changed.notify_all();
        }
        Some((number, Chunk { items: names, bytes }))
    }
}

/// An iterator over the results, in the order of the names. The threads end when it is dropped.
pub(crate) struct Results<'s, I: Iterator, X, F> {
    ahead: &'s StatAhead<I, X>,
    stat: F,
    threads: usize,
    /// Whether a `None` was returned since the last name.
    is_slow: bool,
    chunk: std::vec::IntoIter<X>,
}

impl<I, X, F> Iterator for Results<'_, I, X, F>
where
    I: Iterator + Send,
    I::Item: Send,
    X: Send,
    F: Fn(I::Item) -> X + Copy,
{
    type Item = Option<X>;

    fn next(&mut self) -> Option<Option<X>> {
        loop {
            if let Some(item) = self.chunk.next() {
                self.is_slow = false;
                return Some(Some(item));
            }
            if self.threads == 0 {
                // No thread could be started: look up on this one.
                self.ahead.work(self.stat);
            }
            let mut done = lock(&self.ahead.done);
            let chunk = loop {
                let next = done.taken;
                if done.has_ended && next == done.begun {
                    return None;
                }
                if let Some(chunk) = done.chunks.remove(&next) {
                    break chunk;
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
            done.taken += 1;
            done.bytes -= chunk.bytes;
            self.ahead.changed.notify_all();
            self.chunk = chunk.items.into_iter();
        }
    }
}

impl<I: Iterator, X, F> Drop for Results<'_, I, X, F> {
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
    fn results_come_in_the_order_of_the_names() {
        for total in [0, 1, 31, 32, 33, 64, 10_000] {
            for (threads, slowly) in [(0, false), (1, false), (8, false), (8, true)] {
                // (Many at once, and one after another.)
                let bytes_max = if total % 2 == 0 { 1 << 20 } else { 1 };
                let ahead = StatAhead::new(0..total, slowly, bytes_max, |_| 100);
                let found: Vec<_> = std::thread::scope(|scope| {
                    ahead.start(scope, threads, |n| n * 2).flatten().collect()
                });
                assert_eq!(found, (0..total).map(|n| n * 2).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn it_may_be_dropped_midway() {
        let ahead = StatAhead::new(0..1_000_000, false, 1000, |_| 1);
        let found =
            std::thread::scope(|scope| ahead.start(scope, 4, |n| n).flatten().take(100).count());
        assert_eq!(found, 100);
    }

    #[test]
    fn a_pause_is_reported() {
        let (send, names) = std::sync::mpsc::channel();
        let ahead = StatAhead::new(names.into_iter(), true, 1000, |_| 1);
        std::thread::scope(|scope| {
            let mut found = ahead.start(scope, 2, |n: u32| n);
            send.send(1).unwrap();
            // (There may have been a pause before it.)
            assert_eq!(found.by_ref().flatten().next(), Some(1));
            assert_eq!(found.next(), Some(None));
            send.send(2).unwrap();
            assert_eq!(found.by_ref().flatten().next(), Some(2));
            drop(send);
            assert_eq!(found.flatten().next(), None);
        });
    }

    #[test]
    fn no_more_bytes_than_the_bound_are_looked_up_ahead() {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let ahead = StatAhead::new(0..1000, false, 320, |_| 10);
        std::thread::scope(|scope| {
            let look = |n| {
                BEGUN.fetch_add(1, Ordering::SeqCst);
                n
            };
            let mut found = ahead.start(scope, 4, look).flatten();
            for taken in 0..1000 {
                assert_eq!(found.next(), Some(taken));
                // Those that are taken, those within the bound, and the chunk that exceeds it.
                let begun = BEGUN.load(Ordering::SeqCst);
                assert!(begun <= taken + 1 + 32 + 1, "{begun} after {taken}");
            }
        });
    }
}
