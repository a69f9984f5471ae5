//! From the blocks of one file, in whatever order they come, to its digests.

use std::collections::BTreeMap;
use std::sync::Mutex;

use blockring::{Block, BoxError, Source};

use super::sequence::Run;
use super::short::{Kept, ShortFiles};
use super::ticket::Ticket;
use super::{Failure, Found, found_in, lock};
use crate::sums::Running;
use crate::{Algorithms, Mode, Subtree, Tree};

/// A file on its way through a ring.
pub(super) struct Reading<'m, T> {
    pub(super) ticket: Mutex<Option<Ticket<T>>>,
    len: u64,
    algorithms: Algorithms,
    hashing: Mutex<Hashing<'m>>,
}

/// What is known of its digests.
enum Hashing<'m> {
    Nothing,
    /// It came in one block.
    Whole(Found),
    /// The same, and it is hashed later: where it was put.
    Kept(Kept),
    Parts(Tree<'m>),
    InOrder(InOrder),
}

/// Digests that need bytes in order. Blocks come nearly so: what came too early is kept, of a file that one thread
/// reads and that is no longer than its ring.
struct InOrder {
    running: Running,
    next: u64,
    early: BTreeMap<u64, Vec<u8>>,
}

impl InOrder {
    fn add(&mut self, block: &Block<'_>) {
        if block.offset != self.next {
            self.early.insert(block.offset, block.bytes.to_vec());
            return;
        }
        self.take(block.bytes);
        while let Some(bytes) = self.early.remove(&self.next) {
            self.take(&bytes);
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.running.update(bytes);
        self.next += bytes.len() as u64;
    }
}

impl<'m, T: Send> Reading<'m, T> {
    pub(super) fn new(run: &Run<'_, T>, ticket: Ticket<T>, source: &Source) -> Reading<'m, T> {
        Reading {
            len: source.len().unwrap_or(0),
            algorithms: *run.algorithms_of(ticket.task()),
            ticket: Mutex::new(Some(ticket)),
            hashing: Mutex::new(Hashing::Nothing),
        }
    }

    /// Takes down that the one block of the file was put somewhere, to be hashed later.
    pub(super) fn keep(&self, kept: Kept) {
        *lock(&self.hashing) = Hashing::Kept(kept);
    }

    /// Where that is.
    pub(super) fn kept(&self) -> Option<Kept> {
        match *lock(&self.hashing) {
            Hashing::Kept(kept) => Some(kept),
            _ => None,
        }
    }

    /// Whether it is hashed side by side with others.
    pub(super) fn is_short(&self, run: &Run<'_, T>, short: &ShortFiles<T>) -> bool {
        lock(&self.ticket).as_ref().is_some_and(|ticket| short.takes(run, ticket.task(), self.len))
    }

    /// Whether a block is all of the file.
    pub(super) fn is_all(&self, block: &Block<'_>) -> bool {
        block.bytes.len() as u64 == self.len
    }

    /// Hashes one block; where order does not matter, only puts it into the tree under the lock.
    pub(super) fn add(&self, mode: &'m Mode, block: &Block<'_>) -> Result<(), BoxError> {
        if self.is_all(block) {
            *lock(&self.hashing) = Hashing::Whole(found_in(mode, &self.algorithms, block.bytes));
            return Ok(());
        }
        let subtree = self.algorithms.is_blake3();
        let subtree = subtree.then(|| Subtree::hash(mode, block.offset, block.bytes));
        let mut hashing = lock(&self.hashing);
        if matches!(*hashing, Hashing::Nothing) {
            *hashing = match subtree {
                Some(_) => Hashing::Parts(Tree::new(self.len, mode)),
                None => {
                    let running = Running::new(mode, &self.algorithms);
                    Hashing::InOrder(InOrder { running, next: 0, early: BTreeMap::new() })
                }
            };
        }
        match (&mut *hashing, subtree) {
            (Hashing::Parts(tree), Some(subtree)) => Ok(tree.add(subtree)?),
            (Hashing::InOrder(in_order), None) => {
                in_order.add(block);
                Ok(())
            }
            _ => Err("a block besides the whole".into()),
        }
    }

    pub(super) fn found(&self) -> Result<Found, Failure> {
        match std::mem::replace(&mut *lock(&self.hashing), Hashing::Nothing) {
            Hashing::Whole(found) => Ok(found),
            Hashing::Parts(tree) => Ok(Found::Read(tree.finish()?)),
            Hashing::InOrder(in_order) if in_order.next == self.len => {
                Ok(in_order.running.finish())
            }
            Hashing::InOrder(_) => Err(Failure::Alone("parts of it were not read".to_owned())),
            Hashing::Nothing | Hashing::Kept(_) => {
                Err(Failure::Alone("nothing of it was read".to_owned()))
            }
        }
    }
}
