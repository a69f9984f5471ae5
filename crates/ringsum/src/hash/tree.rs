//! BLAKE3's tree: from blocks to chaining values to the root.
//!
//! BLAKE3's tree gives the left child the largest power of two of chunks that leaves at least one
//! for the right child (section 2.1 of its paper). This equals the tree of all aligned ranges of
//! 2^k chunks in which a node without a right neighbor also stands for its parent. So a value can
//! be merged as soon as its sibling is known, whatever was added in between, and the number of
//! pending values is bounded by how far out of order they arrive.

use std::collections::BTreeMap;
use std::ops::Range;

use blake3::hazmat::{self, ChainingValue, HasherExt};

use super::Mode;
use super::digest::Digest;

const CHUNK_BYTES: u64 = blake3::CHUNK_LEN as u64;

/// The chaining value of an aligned range of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subtree {
    /// Start of the range in bytes.
    pub offset: u64,
    /// Length of the range in bytes.
    pub len: u64,
    /// Its chaining value.
    pub cv: [u8; 32],
}

impl Subtree {
    /// Hashes `bytes` at `offset` of an input. [`Tree::add`] checks that they are a subtree of it.
    ///
    /// # Panics
    ///
    /// If `bytes` are empty, `offset` is not a multiple of 1024, or `bytes` reach past the largest
    /// subtree that can start there.
    pub fn hash(mode: &Mode, offset: u64, bytes: &[u8]) -> Subtree {
        let mut hasher = subtree_hasher(mode, offset);
        hasher.update(bytes);
        Subtree::finalize(offset, bytes.len() as u64, &hasher)
    }

    pub(crate) fn finalize(offset: u64, len: u64, hasher: &blake3::Hasher) -> Subtree {
        Subtree { offset, len, cv: hasher.finalize_non_root() }
    }
}

/// Creates a hasher for a subtree that starts at `offset`.
pub(crate) fn subtree_hasher(mode: &Mode, offset: u64) -> blake3::Hasher {
    let mut hasher = mode.hasher();
    hasher.set_input_offset(offset);
    hasher
}

/// Whether blocks of `bytes`, at multiples of that size, are subtrees.
pub(crate) fn is_subtree_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && bytes >= CHUNK_BYTES
}

/// Returns the length of the left child in the tree of an input, or of a subtree, of `len` bytes: the
/// largest 2^k KiB that leaves at least one byte for the right child. `None` for up to 1024 bytes,
/// which are one chunk and have no children.
///
/// Splitting by it gives ranges for [`hash_range`](crate::hash_range) that [`Tree`] can merge:
///
/// ```
/// # fn main() -> Result<(), ringsum::Error> {
/// use ringsum::{Mode, Options, Tree, blockring::Source, hash_file, hash_range, left_subtree_len};
///
/// let source = Source::open("/proc/self/exe")?;
/// let len = source.len().unwrap();
/// let middle = left_subtree_len(len).unwrap();
/// let mut tree = Tree::new(len, &Mode::Hash);
/// for range in [middle..len, 0..middle] {
///     tree.add(hash_range(&source, range, &Options::default())?)?;
/// }
/// assert_eq!(tree.finalize()?.hash(), Some(hash_file("/proc/self/exe")?));
/// # Ok(())
/// # }
/// ```
pub fn left_subtree_len(len: u64) -> Option<u64> {
    // (`blake3::hazmat` has it too, and overflows for the last KiB of 64 bits.)
    (len > CHUNK_BYTES).then(|| 1 << (len - 1).ilog2())
}

/// Why parts do not form a complete tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The range is not a node of the tree.
    #[error(
        "bytes {offset} to {end} of {total} are not a subtree: a range starts at a multiple of its \
         length, which is 2^k KiB, or is the aligned rest of the input"
    )]
    NotASubtree {
        /// Start of the range.
        offset: u64,
        /// End of the range, exclusive.
        end: u64,
        /// Length of the input.
        total: u64,
    },
    /// The range is the whole input; its chaining value is not the hash, and the hash cannot be
    /// derived from it.
    #[error("the range is the whole input: hash it, do not take its chaining value")]
    Whole,
    /// A range was added twice, or overlaps another.
    #[error("byte {offset} is in more than one of the parts")]
    Overlap {
        /// Start of the second part.
        offset: u64,
    },
    /// A range is missing, or two overlap.
    #[error("the parts do not cover the input exactly")]
    Incomplete,
}

/// Checks that `offset..offset + len` is a node below the root of the tree of `total` bytes.
/// Returns its level: log2 of the number of chunks that it covers when full.
pub(crate) fn check(offset: u64, len: u64, total: u64) -> Result<u32, TreeError> {
    let no = TreeError::NotASubtree { offset, end: offset.saturating_add(len), total };
    let end = offset.checked_add(len).filter(|&end| len > 0 && end <= total).ok_or(no)?;
    if len == total {
        return Err(TreeError::Whole);
    }
    let full = len.checked_next_power_of_two().ok_or(no)?.max(CHUNK_BYTES);
    if !offset.is_multiple_of(full) || (end != total && len != full) {
        return Err(no);
    }
    Ok((full / CHUNK_BYTES).ilog2())
}

/// Merges the chaining values of ranges into the hash of the whole input.
///
/// Ranges may be added in any order. Memory is one value per gap and level: a few dozen values for
/// any length if ranges arrive nearly in order.
#[derive(Clone)]
pub struct Tree<'m> {
    mode: &'m Mode,
    offset: u64,
    total: u64,
    /// Number of chunks that the tree covers.
    chunks: u64,
    /// Number of nodes left unmerged: the 1 node of a range, or the 2 below a root.
    tops: u64,
    pending: BTreeMap<(u32, u64), ChainingValue>,
    /// Two parts overlap, and it is unknown which one is right.
    overlaps: bool,
    /// `total` is not known yet: it is the end of the furthest part.
    is_open: bool,
    /// For an open tree, the end of the only part that is not full, which must be the last.
    last_end: Option<u64>,
    /// The level whose full nodes are collected as they become complete, if any.
    collected: Option<(u32, Vec<Subtree>)>,
}

impl<'m> Tree<'m> {
    /// Creates a tree over an input of `len` bytes.
    pub fn new(len: u64, mode: &'m Mode) -> Tree<'m> {
        Tree::over(0..len, 2, mode)
    }

    /// Creates a tree over an input of unknown length, which consists of the parts added until it
    /// is finalized. Parts are subtrees of 2^k KiB; the last one may be shorter.
    ///
    /// An input of one part has no tree, only a hash: [`finalize`](Tree::finalize) returns
    /// [`TreeError::Incomplete`] for it.
    pub(crate) fn of_unknown_length(mode: &'m Mode) -> Tree<'m> {
        Tree { is_open: true, ..Tree::over(0..0, 2, mode) }
    }

    fn over(range: Range<u64>, tops: u64, mode: &'m Mode) -> Tree<'m> {
        let total = range.end - range.start;
        Tree {
            mode,
            offset: range.start,
            total,
            chunks: total.div_ceil(CHUNK_BYTES),
            tops,
            pending: BTreeMap::new(),
            overlaps: false,
            is_open: false,
            last_end: None,
            collected: None,
        }
    }

    /// Creates a tree over a range that passed [`check`].
    pub(crate) fn of_range(offset: u64, len: u64, mode: &'m Mode) -> Tree<'m> {
        Tree::over(offset..offset + len, 1, mode)
    }

    /// Adds a part, and merges all nodes that have become complete.
    ///
    /// # Errors
    ///
    /// [`TreeError::NotASubtree`], [`TreeError::Whole`], or [`TreeError::Overlap`] if the part was
    /// already added; the tree can then no longer be finalized.
    pub fn add(&mut self, part: Subtree) -> Result<(), TreeError> {
        let start = part.offset.checked_sub(self.offset).ok_or(TreeError::NotASubtree {
            offset: part.offset,
            end: part.offset.saturating_add(part.len),
            total: self.total,
        })?;
        let level = match self.is_open {
            true => self.grow_for(start, part.len)?,
            false => check(start, part.len, self.total)?,
        };
        if self.insert(level, (start / CHUNK_BYTES) >> level, part.cv) {
            return Ok(());
        }
        self.overlaps = true;
        Err(TreeError::Overlap { offset: part.offset })
    }

    /// Extends an open tree to include a part. Returns the level of the part.
    fn grow_for(&mut self, start: u64, len: u64) -> Result<u32, TreeError> {
        let end = start.saturating_add(len);
        let no = TreeError::NotASubtree { offset: start, end, total: self.total.max(end) };
        let full = len.checked_next_power_of_two().filter(|_| len > 0).ok_or(no)?.max(CHUNK_BYTES);
        let is_last = self.last_end.is_some_and(|last_end| end > last_end);
        if !start.is_multiple_of(full) || end == u64::MAX || is_last {
            return Err(no);
        }
        if len != full {
            if self.last_end.is_some() || end < self.total {
                return Err(no);
            }
            self.last_end = Some(end);
        }
        self.total = self.total.max(end);
        self.chunks = self.total.div_ceil(CHUNK_BYTES);
        Ok((full / CHUNK_BYTES).ilog2())
    }

    /// Inserts a node, and merges complete nodes. Returns false if it was present.
    fn insert(&mut self, mut level: u32, mut index: u64, mut cv: ChainingValue) -> bool {
        loop {
            self.collect(level, index, &cv);
            let nodes = self.nodes(level);
            if nodes > self.tops {
                let sibling = index ^ 1;
                if sibling >= nodes && !self.is_open {
                    // Without a right neighbor, it stands for its parent.
                    (level, index) = (level + 1, index / 2);
                    continue;
                }
                if let Some(other) = self.pending.remove(&(level, sibling)) {
                    let (left, right) = if index < sibling { (cv, other) } else { (other, cv) };
                    cv = hazmat::merge_subtrees_non_root(&left, &right, self.mode.hazmat());
                    (level, index) = (level + 1, index / 2);
                    continue;
                }
            }
            return self.pending.insert((level, index), cv).is_none();
        }
    }

    /// Creates a tree like [`new`](Tree::new), which collects the subtrees of `subtree_bytes`, 2^k
    /// KiB. The input has more than two of them.
    pub(crate) fn collecting(len: u64, mode: &'m Mode, subtree_bytes: u64) -> Tree<'m> {
        let level = (subtree_bytes / CHUNK_BYTES).ilog2();
        Tree { collected: Some((level, Vec::new())), ..Tree::new(len, mode) }
    }

    /// Returns the subtrees that have become complete since the last call.
    pub(crate) fn take_collected(&mut self) -> Vec<Subtree> {
        self.collected.as_mut().map(|(_, collected)| std::mem::take(collected)).unwrap_or_default()
    }

    fn collect(&mut self, level: u32, index: u64, cv: &ChainingValue) {
        if let Some((wanted, collected)) = &mut self.collected
            && *wanted == level
        {
            let len = CHUNK_BYTES << level;
            // (The last node may stand for a range that is not full.)
            if (index + 1).saturating_mul(len) <= self.total {
                collected.push(Subtree { offset: index * len, len, cv: *cv });
            }
        }
    }

    /// Fixes the end, which determines the nodes without a right neighbor.
    fn close(&mut self) {
        if std::mem::take(&mut self.is_open) {
            for ((level, index), cv) in std::mem::take(&mut self.pending) {
                self.overlaps |= !self.insert(level, index, cv);
            }
        }
    }

    /// Returns the digest, if every byte is covered.
    ///
    /// # Errors
    ///
    /// [`TreeError::Incomplete`] if a part is missing, or two overlap.
    pub fn finalize(mut self) -> Result<Digest, TreeError> {
        self.close();
        let mut nodes = self.pending.into_iter();
        match (nodes.next(), nodes.next(), nodes.next()) {
            (Some(((l, 0), left)), Some(((r, 1), right)), None)
                if !self.overlaps && l == r && self.chunks.div_ceil(1 << l) == 2 =>
            {
                let mode = self.mode.hazmat();
                Ok(Digest::of_output(hazmat::merge_subtrees_root_xof(&left, &right, mode)))
            }
            _ => Err(TreeError::Incomplete),
        }
    }

    /// Returns the chaining value of a tree over a range.
    pub(crate) fn finalize_range(self) -> Result<Subtree, TreeError> {
        let mut nodes = self.pending.into_iter();
        match (nodes.next(), nodes.next()) {
            (Some(((level, 0), cv)), None) if self.chunks.div_ceil(1 << level) == 1 => {
                Ok(Subtree { offset: self.offset, len: self.total, cv })
            }
            _ => Err(TreeError::Incomplete),
        }
    }

    /// Returns the end of the input as far as it is known, in bytes.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.total
    }

    /// Returns the number of nodes at `level`.
    fn nodes(&self, level: u32) -> u64 {
        self.chunks.div_ceil(1 << level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Content that changes when blocks are swapped: the period is prime to every block size.
    fn content(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i % 251) as u8).collect()
    }

    fn modes() -> [Mode; 3] {
        [Mode::Hash, Mode::Keyed(*b"whats the Elvish word for friend"), Mode::derive_key("tests")]
    }

    /// Ranges of `block` bytes, in the order that `seed` shuffles them to.
    fn parts(len: usize, block: usize, seed: u64) -> Vec<std::ops::Range<usize>> {
        let mut parts: Vec<_> = (0..len).step_by(block).map(|at| at..len.min(at + block)).collect();
        let mut state = seed;
        for i in (1..parts.len()).rev() {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            parts.swap(i, (state >> 33) as usize % (i + 1));
        }
        parts
    }

    #[test]
    fn any_order_of_any_blocks_gives_the_hash() {
        let data = content(70_000);
        let lens = [1025, 2047, 2048, 2049, 3072, 4097, 5000, 8192, 16_385, 31_744, 65_537, 70_000];
        for mode in &modes() {
            for len in lens {
                let expected = mode.hasher().update(&data[..len]).finalize();
                for block in [1024, 2048, 4096, 16_384] {
                    if block >= len {
                        continue;
                    }
                    for seed in 0..6 {
                        for mut tree in [Tree::new(len as u64, mode), Tree::of_unknown_length(mode)]
                        {
                            for part in parts(len, block, seed) {
                                let (at, bytes) = (part.start as u64, &data[part]);
                                tree.add(Subtree::hash(mode, at, bytes)).unwrap();
                            }
                            assert_eq!(
                                tree.finalize().unwrap().hash(),
                                Some(expected),
                                "{len} by {block}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn parts_of_different_sizes_fit_together() {
        let data = content(11_000);
        let mode = Mode::Hash;
        let mut tree = Tree::new(11_000, &mode);
        for (at, len) in
            [(10_240, 760), (0, 4096), (8192, 2048), (6144, 2048), (4096, 1024), (5120, 1024)]
        {
            tree.add(Subtree::hash(&mode, at as u64, &data[at..at + len])).unwrap();
        }
        assert_eq!(tree.finalize().unwrap().hash(), Some(blake3::hash(&data)));
    }

    #[test]
    fn any_splits_give_the_hash() {
        fn add(tree: &mut Tree<'_>, data: &[u8], offset: usize, len: usize, depth: u32) {
            let whole = offset == 0 && len == data.len();
            match left_subtree_len(len as u64).filter(|_| whole || depth > 0) {
                Some(left) => {
                    let left = left as usize;
                    add(tree, data, offset + left, len - left, depth - 1);
                    // (Uneven, so that nodes of different heights meet.)
                    add(tree, data, offset, left, depth / 2);
                }
                None => {
                    let bytes = &data[offset..offset + len];
                    tree.add(Subtree::hash(tree.mode, offset as u64, bytes)).unwrap();
                }
            }
        }
        for len in [1025, 2047, 2048, 2049, 3072, 3073, 5000, 65_536, 65_537, 70_000] {
            let data = content(len);
            for depth in 1..6 {
                let mut tree = Tree::new(len as u64, &Mode::Hash);
                add(&mut tree, &data, 0, len, depth);
                assert_eq!(tree.finalize().unwrap().hash(), Some(blake3::hash(&data)), "{len}");
            }
        }
        for len in [0, 1, 1024] {
            assert_eq!(left_subtree_len(len), None);
        }
        for edge in (11..64).map(|shift| 1 << shift) {
            for len in [edge - 1025, edge - 1, edge, edge + 1].into_iter().filter(|len| *len > 1024)
            {
                assert_eq!(left_subtree_len(len), Some(hazmat::left_subtree_len(len)), "{len}");
            }
        }
        assert_eq!(left_subtree_len(u64::MAX), Some(1 << 63));
    }

    #[test]
    fn what_waits_stays_small() {
        let data = content(4096);
        let mode = Mode::Hash;
        for mut tree in [Tree::new(1 << 40, &mode), Tree::of_unknown_length(&mode)] {
            for i in 0..10_000 {
                tree.add(Subtree::hash(&mode, i * 4096, &data)).unwrap();
                assert!(tree.pending.len() <= 40);
            }
        }
    }

    #[test]
    fn what_comes_after_the_end_of_an_unknown_length_is_refused() {
        let data = content(5000);
        let mode = Mode::Hash;
        let part = |at: usize, len: usize| Subtree::hash(&mode, at as u64, &data[at..at + len]);
        let mut tree = Tree::of_unknown_length(&mode);
        tree.add(part(0, 1024)).unwrap();
        // One part has a hash, and no tree.
        assert_eq!(tree.clone().finalize().unwrap_err(), TreeError::Incomplete);
        tree.add(part(4096, 904)).unwrap();
        for (at, len) in [(2048, 1000), (4096, 1024), (1024, 2048)] {
            let refused = tree.add(Subtree { offset: at, len, cv: [0; 32] });
            assert!(matches!(refused, Err(TreeError::NotASubtree { .. })), "{at} {len}");
        }
        assert_eq!(tree.clone().finalize().unwrap_err(), TreeError::Incomplete);
        for at in [1024, 2048, 3072] {
            tree.add(part(at, 1024)).unwrap();
        }
        assert_eq!(tree.finalize().unwrap().hash(), Some(blake3::hash(&data)));
    }

    #[test]
    fn parts_that_make_no_whole_are_refused() {
        let data = content(5000);
        let mode = Mode::Hash;
        let part = |at: usize, len: usize| Subtree::hash(&mode, at as u64, &data[at..at + len]);
        let mut tree = Tree::new(5000, &mode);
        assert_eq!(tree.add(Subtree::hash(&mode, 0, &data)), Err(TreeError::Whole));
        assert!(matches!(
            tree.add(part(1024, 2048 - 1024 - 1)),
            Err(TreeError::NotASubtree { .. })
        ));
        let late = Subtree { offset: 4096, len: 4096, cv: [0; 32] };
        assert!(matches!(tree.add(late), Err(TreeError::NotASubtree { .. })));
        tree.add(part(0, 4096)).unwrap();
        assert_eq!(tree.add(part(0, 4096)), Err(TreeError::Overlap { offset: 0 }));
        assert_eq!(tree.clone().finalize().unwrap_err(), TreeError::Incomplete);
        let mut doubtful = tree.clone();
        doubtful.add(part(4096, 904)).unwrap();
        assert_eq!(doubtful.finalize().unwrap_err(), TreeError::Incomplete);
        // A part of what is there already waits for a sibling that never comes.
        let mut tree = Tree::new(5000, &mode);
        tree.add(part(0, 4096)).unwrap();
        tree.add(part(1024, 1024)).unwrap();
        tree.add(part(4096, 904)).unwrap();
        assert_eq!(tree.finalize().unwrap_err(), TreeError::Incomplete);
    }

    #[test]
    fn the_output_can_be_long_and_sought_in() {
        let data = content(5000);
        for mode in &modes() {
            let mut tree = Tree::new(5000, mode);
            tree.add(Subtree::hash(mode, 0, &data[..4096])).unwrap();
            tree.add(Subtree::hash(mode, 4096, &data[4096..])).unwrap();
            let digest = tree.finalize().unwrap();
            let mut expected = mode.hasher().update(&data).finalize_xof();
            expected.set_position(77);
            let mut bytes = [0; 200];
            expected.fill(&mut bytes);
            assert_eq!(digest.output(77, 200).unwrap(), bytes);
        }
    }
}
