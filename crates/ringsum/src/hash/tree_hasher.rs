//! Hashing blocks in any order, on any number of threads: BLAKE3 only.

use std::mem;
use std::sync::{Mutex, PoisonError};

use super::Mode;
use super::digest::Digest;
use super::tree::{Subtree, Tree, TreeError, subtree_hasher};
use super::zeros::{from_table, update_zeros};
use crate::lock;

/// The BLAKE3 state of an input whose blocks may arrive in any order. Each block is hashed on the
/// thread that passes it in; only its chaining value is merged under a lock.
pub(crate) struct TreeHasher<'m> {
    mode: &'m Mode,
    state: Mutex<TreeState<'m>>,
}

struct TreeState<'m> {
    tree: Tree<'m>,
    /// Length of the block at offset 0, and its digest in case it is the only one: an input of one
    /// block is its own root. (The first block does not show whether there are more.)
    first: Option<(u64, Digest)>,
}

impl<'m> TreeHasher<'m> {
    /// Creates a hasher for an input of any length.
    pub(crate) fn new(mode: &'m Mode) -> TreeHasher<'m> {
        TreeHasher::over(mode, Tree::of_unknown_length(mode))
    }

    /// Creates a hasher for the input of a tree.
    pub(super) fn over(mode: &'m Mode, tree: Tree<'m>) -> TreeHasher<'m> {
        TreeHasher { mode, state: Mutex::new(TreeState { tree, first: None }) }
    }

    /// Returns the subtrees that have become complete since the last call.
    pub(super) fn take_collected(&self) -> Vec<Subtree> {
        lock(&self.state).tree.take_collected()
    }

    /// Hashes a block. All blocks of an input except the last have the same size, 2^k KiB.
    /// Returns its chaining value.
    pub(crate) fn update(&self, offset: u64, bytes: &[u8]) -> Result<Subtree, TreeError> {
        self.update_with(offset, bytes.len() as u64, |hasher| {
            hasher.update(bytes);
        })
    }

    /// Hashes zeros as [`update`](TreeHasher::update) hashes a block.
    pub(super) fn update_zeros(&self, offset: u64, len: u64) -> Result<(), TreeError> {
        match from_table(self.mode, offset, len) {
            Some(cv) => self.add(Subtree { offset, len, cv }),
            None => self.update_with(offset, len, |hasher| update_zeros(hasher, len)).map(|_| ()),
        }
    }

    /// Adds a subtree that has been hashed, and is not the whole input.
    pub(super) fn add(&self, subtree: Subtree) -> Result<(), TreeError> {
        let mut state = lock(&self.state);
        let added = state.tree.add(subtree);
        // (What is known need not be stored.)
        state.tree.take_collected();
        added
    }

    fn update_with(
        &self,
        offset: u64,
        len: u64,
        update: impl FnOnce(&mut blake3::Hasher),
    ) -> Result<Subtree, TreeError> {
        let mut hasher = subtree_hasher(self.mode, offset);
        update(&mut hasher);
        let subtree = Subtree::finalize(offset, len, &hasher);
        let digest = (offset == 0).then(|| Digest::of_output(hasher.finalize_xof()));
        let mut state = lock(&self.state);
        if let Some(digest) = digest {
            state.first = Some((len, digest));
        }
        state.tree.add(subtree)?;
        Ok(subtree)
    }

    /// Returns the digest of all blocks, and resets the hasher. Fails if they are not `len` bytes
    /// in total, if that is known.
    pub(crate) fn finalize(&self, len: Option<u64>) -> Result<Digest, TreeError> {
        let next = TreeState { tree: Tree::of_unknown_length(self.mode), first: None };
        let TreeState { tree, first } = mem::replace(&mut *lock(&self.state), next);
        match first {
            _ if len.is_some_and(|len| len != tree.end()) => Err(TreeError::Incomplete),
            None if tree.end() == 0 => Ok(Digest::of_output(self.mode.hasher().finalize_xof())),
            Some((len, digest)) if len == tree.end() => Ok(digest),
            _ => tree.finalize(),
        }
    }

    /// Returns the chaining value of the range.
    pub(super) fn finalize_range(self) -> Result<Subtree, TreeError> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).tree.finalize_range()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_in_any_order_give_the_hash() {
        let content: Vec<_> = (0..70_000).map(|i| (i % 251) as u8).collect();
        for mode in [Mode::Hash, Mode::Keyed([7; 32]), Mode::derive_key("tests")] {
            let hasher = TreeHasher::new(&mode);
            for len in [0, 1, 1023, 1024, 1025, 4095, 4096, 4097, 8192, 8193, 70_000] {
                let expected = mode.hasher().update(&content[..len]).finalize();
                for block in [1024, 4096, 1 << 20] {
                    for is_backwards in [false, true] {
                        let mut offsets: Vec<_> = (0..len).step_by(block).collect();
                        if is_backwards {
                            offsets.reverse();
                        }
                        for offset in offsets {
                            let end = len.min(offset + block);
                            hasher.update(offset as u64, &content[offset..end]).unwrap();
                        }
                        let digest = hasher.finalize(Some(len as u64)).unwrap();
                        assert_eq!(digest.hash(), Some(expected), "{len} by {block}");
                    }
                }
            }
        }
    }

    #[test]
    fn missing_bytes_give_no_hash() {
        let hasher = TreeHasher::new(&Mode::Hash);
        for blocks in [&[][..], &[0], &[0, 1], &[0, 2], &[1, 2]] {
            for block in blocks {
                hasher.update(block * 1024, &[1; 1024]).unwrap();
            }
            assert_eq!(hasher.finalize(Some(3 * 1024)).unwrap_err(), TreeError::Incomplete);
        }
        // Where no length is known, a gap shows all the same.
        hasher.update(0, &[1; 1024]).unwrap();
        hasher.update(2048, &[1; 1024]).unwrap();
        assert_eq!(hasher.finalize(None).unwrap_err(), TreeError::Incomplete);
    }
}
