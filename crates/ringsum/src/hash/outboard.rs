//! The nodes of a BLAKE3 tree, kept beside the data ("outboard"): written while blocks are hashed in
//! any order, and used to find damaged bytes.
//!
//! The layout is that of the crate `bao`: the length of the data as 8 bytes, little-endian, then the
//! parent nodes in pre-order, each as the chaining values of its two children. Groups of chunks have
//! no nodes inside them: with groups of 1 KiB the bytes are `bao`'s, and with 16 KiB, from the ninth
//! byte on, those of `bao-tree` with blocks of 2^4 chunks.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Mutex;

use blake3::hazmat::{self, ChainingValue};

use super::digest::Digest;
use super::tree::{Subtree, TreeError, check, is_subtree_size, left_subtree_len};
use super::{Error, Mode};
use crate::lock;

/// Bytes of a parent node.
const NODE_BYTES: u64 = 64;
/// Bytes of the length before the nodes.
const LEN_BYTES: u64 = 8;
const CHUNK_BYTES: u64 = blake3::CHUNK_LEN as u64;

/// The nodes of a tree, to be read. Nothing in them is believed until it is verified from the root
/// down.
#[derive(Clone, Copy)]
pub struct Outboard<'a> {
    /// Length of the data in bytes.
    pub len: u64,
    /// Bytes of a group: 2^k KiB. The nodes locate damage to a group.
    pub group_bytes: u64,
    /// Reads as many bytes as the buffer has, at an offset from the start of the outboard.
    pub read: &'a (dyn Fn(u64, &mut [u8]) -> io::Result<()> + Sync),
}

impl Outboard<'_> {
    /// Reads the parent of `start..end`, and returns the values of its children if they are those
    /// of a node with the value `expected`.
    pub(super) fn children(
        &self,
        mode: &Mode,
        range: &std::ops::Range<u64>,
        expected: &[u8; 32],
    ) -> Option<(ChainingValue, ChainingValue)> {
        let mut node = [0; NODE_BYTES as usize];
        (self.read)(node_offset(self.len, self.group_bytes, range.start, range.end), &mut node)
            .ok()?;
        let (left, right) = split(&node);
        let is_root = *range == (0..self.len);
        (node_value(mode, &left, &right, is_root) == *expected).then_some((left, right))
    }
}

fn split(node: &[u8; NODE_BYTES as usize]) -> (ChainingValue, ChainingValue) {
    let (halves, _) = node.as_chunks();
    (halves[0], halves[1])
}

fn node_value(mode: &Mode, left: &[u8; 32], right: &[u8; 32], is_root: bool) -> [u8; 32] {
    match is_root {
        true => *hazmat::merge_subtrees_root(left, right, mode.hazmat()).as_bytes(),
        false => hazmat::merge_subtrees_non_root(left, right, mode.hazmat()),
    }
}

/// Returns the offset in an outboard of the parent that covers `start..end`.
fn node_offset(total: u64, group_bytes: u64, start: u64, end: u64) -> u64 {
    // Before a node come its ancestors, and the complete subtrees to its left: one node fewer than
    // groups for each of them. So the index is the number of groups before it, plus one for each
    // ancestor of which it is in the left part.
    let mut index = start / group_bytes;
    let mut node = 0..total;
    while node != (start..end)
        && let Some(left) = left_subtree_len(node.end - node.start)
    {
        let middle = node.start + left;
        if start < middle {
            index += 1;
            node.end = middle;
        } else {
            node.start = middle;
        }
    }
    LEN_BYTES + index * NODE_BYTES
}

type WriteAt<'a> = dyn Fn(u64, &[u8]) -> io::Result<()> + Send + Sync + 'a;

/// Computes the nodes of an input whose blocks arrive in any order, on any number of threads, and
/// writes them.
///
/// ```
/// # fn main() -> Result<(), ringsum::Error> {
/// use std::sync::Mutex;
/// use ringsum::{Mode, OutboardWriter};
///
/// let data = [7; 5000];
/// let outboard = Mutex::new(vec![0; 8 + 4 * 64]);
/// let writer = OutboardWriter::new(&Mode::Hash, 5000, 1024, |offset, bytes| {
///     outboard.lock().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
///     Ok(())
/// });
/// let last = writer.hash(4096, &data[4096..])?;
/// let first = writer.hash(0, &data[..4096])?;
/// assert!(writer.add(last)?.is_none());
/// assert_eq!(writer.add(first)?.unwrap().hash(), Some(blake3::hash(&data)));
/// # Ok(())
/// # }
/// ```
pub struct OutboardWriter<'a> {
    mode: Mode,
    total: u64,
    group_bytes: u64,
    write: Box<WriteAt<'a>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Nodes without their sibling, by level and index: see [`Tree`](super::tree::Tree).
    pending: BTreeMap<(u32, u64), ChainingValue>,
    /// The digest of an input that was hashed as a whole.
    whole: Option<Digest>,
}

impl<'a> OutboardWriter<'a> {
    /// Creates a writer for an input of `len` bytes, with nodes above groups of `group_bytes`.
    /// `write` writes bytes at an offset from the start of the outboard, which has `8 + 64 * (groups
    /// - 1)` bytes; each of them is written once.
    ///
    /// # Panics
    ///
    /// If `group_bytes` is not 2^k KiB.
    pub fn new(
        mode: &Mode,
        len: u64,
        group_bytes: u64,
        write: impl Fn(u64, &[u8]) -> io::Result<()> + Send + Sync + 'a,
    ) -> OutboardWriter<'a> {
        assert!(is_subtree_size(group_bytes), "groups of {group_bytes} bytes");
        let (mode, write) = (mode.clone(), Box::new(write));
        OutboardWriter { mode, total: len, group_bytes, write, state: Mutex::default() }
    }

    /// Hashes a part of the input, and writes the nodes inside it. The part is a subtree: see
    /// [`Subtree::hash`]. It belongs to the tree once it is [added](OutboardWriter::add).
    ///
    /// # Errors
    ///
    /// [`Error::Tree`] for bytes that are not a subtree; [`Error::Outboard`] for an error of `write`.
    pub fn hash(&self, offset: u64, bytes: &[u8]) -> Result<Subtree, Error> {
        let len = bytes.len() as u64;
        let is_whole = offset == 0 && len == self.total;
        if !is_whole {
            check(offset, len, self.total)?;
        }
        let mut nodes = Vec::new();
        let cv = match bytes {
            // No bytes have no chaining value.
            [] => [0; 32],
            _ => self.hash_into(offset, bytes, &mut nodes),
        };
        if is_whole {
            let digest = match nodes.as_chunks().0.first() {
                Some(root) => {
                    let (left, right) = split(root);
                    hazmat::merge_subtrees_root_xof(&left, &right, self.mode.hazmat())
                }
                None => self.mode.hasher().update(bytes).finalize_xof(),
            };
            lock(&self.state).whole = Some(Digest::of_output(digest));
        }
        if !nodes.is_empty() {
            self.write(node_offset(self.total, self.group_bytes, offset, offset + len), &nodes)?;
        }
        Ok(Subtree { offset, len, cv })
    }

    /// Appends the nodes of a subtree, in pre-order, and returns its chaining value.
    fn hash_into(&self, offset: u64, bytes: &[u8], nodes: &mut Vec<u8>) -> ChainingValue {
        let len = bytes.len() as u64;
        let Some(left) = left_subtree_len(len).filter(|_| len > self.group_bytes) else {
            return Subtree::hash(&self.mode, offset, bytes).cv;
        };
        let place = nodes.len();
        nodes.resize(place + NODE_BYTES as usize, 0);
        let (left, right) = bytes.split_at(left as usize);
        let left_value = self.hash_into(offset, left, nodes);
        let right_value = self.hash_into(offset + left.len() as u64, right, nodes);
        nodes[place..place + 32].copy_from_slice(&left_value);
        nodes[place + 32..place + 64].copy_from_slice(&right_value);
        node_value(&self.mode, &left_value, &right_value, false)
    }

    /// Adds a part to the tree, and writes the nodes above it that have become complete. Returns the
    /// digest with the last part.
    ///
    /// # Errors
    ///
    /// [`Error::Tree`] for a part that is not a subtree, or was added before; [`Error::Outboard`]
    /// for an error of `write`.
    pub fn add(&self, part: Subtree) -> Result<Option<Digest>, Error> {
        if part.offset == 0 && part.len == self.total {
            self.write(0, &self.total.to_le_bytes())?;
            let whole = lock(&self.state).whole.take();
            return Ok(Some(whole.ok_or(TreeError::Whole)?));
        }
        let level = check(part.offset, part.len, self.total)?;
        let mut nodes = Vec::new();
        let index = (part.offset / CHUNK_BYTES) >> level;
        let digest = self
            .merge(level, index, part.cv, &mut nodes)
            .ok_or(TreeError::Overlap { offset: part.offset })?;
        for (offset, node) in nodes {
            self.write(offset, &node)?;
        }
        if digest.is_some() {
            self.write(0, &self.total.to_le_bytes())?;
        }
        Ok(digest)
    }

    /// Inserts a node, merges complete nodes, and appends those that are to be written. `None`: the
    /// node was there already.
    fn merge(
        &self,
        mut level: u32,
        mut index: u64,
        mut cv: ChainingValue,
        nodes: &mut Vec<(u64, [u8; NODE_BYTES as usize])>,
    ) -> Option<Option<Digest>> {
        let chunks = self.total.div_ceil(CHUNK_BYTES);
        let mut state = lock(&self.state);
        loop {
            let sibling = index ^ 1;
            let level_bytes = CHUNK_BYTES << level;
            if sibling >= chunks.div_ceil(1 << level) {
                // Without a right neighbor, it stands for its parent.
                (level, index) = (level + 1, index / 2);
                continue;
            }
            let Some(other) = state.pending.remove(&(level, sibling)) else {
                return state.pending.insert((level, index), cv).is_none().then_some(None);
            };
            let (left, right) = if index < sibling { (cv, other) } else { (other, cv) };
            let start = (index & !1) * level_bytes;
            let end = ((index | 1) + 1).saturating_mul(level_bytes).min(self.total);
            if level_bytes >= self.group_bytes {
                let mut node = [0; NODE_BYTES as usize];
                node[..32].copy_from_slice(&left);
                node[32..].copy_from_slice(&right);
                nodes.push((node_offset(self.total, self.group_bytes, start, end), node));
            }
            if (start, end) == (0, self.total) {
                let root = hazmat::merge_subtrees_root_xof(&left, &right, self.mode.hazmat());
                return Some(Some(Digest::of_output(root)));
            }
            cv = hazmat::merge_subtrees_non_root(&left, &right, self.mode.hazmat());
            (level, index) = (level + 1, index / 2);
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        (self.write)(offset, bytes).map_err(Error::Outboard)
    }
}

impl fmt::Debug for OutboardWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutboardWriter { total, group_bytes, .. } = self;
        let mut f = f.debug_struct("OutboardWriter");
        f.field("total", total).field("group_bytes", group_bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "outboard_tests.rs"]
mod tests;
