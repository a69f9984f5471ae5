//! Hashing bytes in order, with any algorithms.

use std::collections::BTreeMap;

use digest::Update;

use super::Mode;
use super::algorithm::{AlgorithmHasher, Algorithms};
use super::digest::Digests;

/// The state of one or several algorithms that process the bytes of an input in order. Blocks may
/// arrive out of order: early ones wait in a reorder buffer.
pub(crate) struct OrderedHasher {
    /// At least one.
    hashers: Vec<AlgorithmHasher>,
    /// Offset of the next byte.
    next: u64,
    /// Early blocks by their offset.
    early: BTreeMap<u64, Box<[u8]>>,
}

impl OrderedHasher {
    pub(crate) fn new(mode: &Mode, algorithms: &Algorithms) -> OrderedHasher {
        let hashers = algorithms.iter();
        let hashers = hashers.map(|algorithm| AlgorithmHasher::new(*algorithm, mode));
        OrderedHasher { hashers: hashers.collect(), next: 0, early: BTreeMap::new() }
    }

    /// Hashes the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.hashers.iter_mut().for_each(|hasher| hasher.update(bytes));
        self.next += bytes.len() as u64;
    }

    /// Hashes the bytes at `offset` once all before them are hashed. Copies them if they are early.
    pub(crate) fn update_at(&mut self, offset: u64, bytes: &[u8]) {
        if offset != self.next {
            self.early.insert(offset, bytes.into());
            return;
        }
        self.update(bytes);
        while let Some(bytes) = self.early.remove(&self.next) {
            self.update(&bytes);
        }
    }

    /// Returns the number of bytes hashed.
    pub(crate) fn hashed_bytes(&self) -> u64 {
        self.next
    }

    /// The algorithms' hashers, for callers that feed each the same bytes on its own thread.
    pub(super) fn hashers_mut(&mut self) -> &mut Vec<AlgorithmHasher> {
        &mut self.hashers
    }

    pub(crate) fn finalize(self) -> Digests {
        debug_assert!(self.early.is_empty(), "a block is missing");
        self.hashers.into_iter().map(AlgorithmHasher::finalize).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::algorithm::Algorithm;
    use super::*;

    #[test]
    fn blocks_that_come_early_wait() {
        let content: Vec<_> = (0..1000).map(|i| (i % 251) as u8).collect();
        let mut algorithms = Algorithms::from(Algorithm::Sha256);
        algorithms.add(Algorithm::Blake3);
        let mut in_order = OrderedHasher::new(&Mode::Hash, &algorithms);
        in_order.update(&content);
        let expected: Vec<_> = in_order.finalize().iter().map(ToString::to_string).collect();
        for stride in [1, 3, 7, 9] {
            let mut hasher = OrderedHasher::new(&Mode::Hash, &algorithms);
            for i in 0..10 {
                let start = i * stride % 10 * 100;
                hasher.update_at(start as u64, &content[start..start + 100]);
            }
            assert_eq!((hasher.hashed_bytes(), hasher.early.len()), (1000, 0));
            let digests: Vec<_> = hasher.finalize().iter().map(ToString::to_string).collect();
            assert_eq!(digests, expected, "every {stride}th");
        }
    }
}
