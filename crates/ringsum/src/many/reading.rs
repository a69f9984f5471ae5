//! From the blocks of one file, in whatever order they come, to its hash.

use std::sync::Mutex;

use blockring::{Block, BoxError, Source};

use super::ticket::Ticket;
use super::{Failure, digest_of, lock};
use crate::{Digest, Mode, Subtree, Tree};

/// A file on its way through a ring.
pub(super) struct Reading<'m, T> {
    pub(super) ticket: Mutex<Option<Ticket<T>>>,
    len: u64,
    hashing: Mutex<Hashing<'m>>,
}

/// What is known of its hash.
enum Hashing<'m> {
    Nothing,
    /// It came in one block.
    Whole(Digest),
    Parts(Tree<'m>),
}

impl<'m, T> Reading<'m, T> {
    pub(super) fn new(ticket: Ticket<T>, source: &Source) -> Reading<'m, T> {
        Reading {
            ticket: Mutex::new(Some(ticket)),
            len: source.len().unwrap_or(0),
            hashing: Mutex::new(Hashing::Nothing),
        }
    }

    /// Hashes one block, and only puts it into the tree under the lock.
    pub(super) fn add(&self, mode: &'m Mode, block: &Block<'_>) -> Result<(), BoxError> {
        if block.bytes.len() as u64 == self.len {
            *lock(&self.hashing) = Hashing::Whole(digest_of(mode, block.bytes));
            return Ok(());
        }
        let subtree = Subtree::hash(mode, block.offset, block.bytes);
        let mut hashing = lock(&self.hashing);
        if matches!(*hashing, Hashing::Nothing) {
            *hashing = Hashing::Parts(Tree::new(self.len, mode));
        }
        match &mut *hashing {
            Hashing::Parts(tree) => Ok(tree.add(subtree)?),
            _ => Err("a block besides the whole".into()),
        }
    }

    pub(super) fn digest(&self) -> Result<Digest, Failure> {
        match std::mem::replace(&mut *lock(&self.hashing), Hashing::Nothing) {
            Hashing::Whole(digest) => Ok(digest),
            Hashing::Parts(tree) => Ok(tree.finish()?),
            Hashing::Nothing => Err(Failure::Alone("nothing of it was read".to_owned())),
        }
    }
}
