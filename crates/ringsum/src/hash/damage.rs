//! Finding damaged bytes with the nodes of a tree.

use std::ops::Range;
use std::sync::Mutex;

use blockring::{Block, ErrorKind, RunOptions, Source};

use super::digest::Digest;
use super::outboard::Outboard;
use super::tree::{Subtree, is_subtree_size, left_subtree_len};
use super::{Algorithms, Error, Options, TreeHasher, plan, refuse_null};
use crate::lock;

/// Compares the bytes of `source` with the nodes of the tree whose root is `root`. Returns the
/// digest of the first [`Outboard::len`] bytes, if all of them could be read, and the ranges that
/// are not proven by the nodes: sorted, not adjacent, and empty if the digest is `root`. They are
/// groups that differ, that could not be read or are missing, or whose nodes do not lead to the root.
///
/// The bytes are read once, as [`digest_planned`](crate::digest_planned) does, and damaged blocks
/// once more. Memory is 32 bytes a block besides the blocks themselves. Bytes past the length are
/// ignored. `options.algorithms` is, too. `progress` is called with the number of bytes after each
/// block.
///
/// # Errors
///
/// [`Error::Read`] as for [`digest_file`](crate::digest_file), except for errors that concern a
/// range of the source, such as a bad sector.
///
/// # Panics
///
/// If the outboard's groups are not of 2^k KiB.
pub fn bad_ranges(
    source: &Source,
    outboard: &Outboard<'_>,
    root: &[u8; 32],
    options: &Options,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(Option<Digest>, Vec<Range<u64>>), Error> {
    refuse_null(&options.config)?;
    assert!(is_subtree_size(outboard.group_bytes), "groups of {} bytes", outboard.group_bytes);
    let found = source.len().unwrap_or(0).min(outboard.len);
    let options = Options { algorithms: Algorithms::default(), ..options.clone() };
    let search = Search { source, outboard, root, options: &options, found };
    if source.len().is_none() {
        // The scan's error: it is not seekable.
        search.good_groups(&(0..0))?;
    }
    let (digest, suspects) = match search.first_pass(progress) {
        Ok((digest, _)) if digest.hash().is_some_and(|hash| hash == *root) => {
            return Ok((Some(digest), Vec::new()));
        }
        Ok((digest, values)) => (Some(digest), search.differing(&values)),
        // Some byte cannot be read: find out which.
        Err(Error::Read(error)) if matches!(error.kind, ErrorKind::Read { .. }) => {
            (None, std::iter::once(0..found).collect())
        }
        Err(error) => return Err(error),
    };
    let mut bad = Vec::new();
    for suspect in suspects {
        search.examine(suspect, &mut bad)?;
    }
    source.check_unchanged()?;
    if found < outboard.len {
        bad.push(found / outboard.group_bytes * outboard.group_bytes..outboard.len);
    }
    // What is missing is no digest of the whole.
    Ok((digest.filter(|_| found == outboard.len), joined(bad)))
}

/// Sorts ranges, and joins those that overlap or adjoin.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

/// Gets a range, and its expected value if that is known.
type Visit<'a> = dyn FnMut(Range<u64>, Option<&[u8; 32]>) + 'a;

struct Search<'a> {
    source: &'a Source,
    outboard: &'a Outboard<'a>,
    root: &'a [u8; 32],
    options: &'a Options,
    /// Bytes of the data that the source has.
    found: u64,
}

impl Search<'_> {
    /// Reads everything. Returns the digest and the value of each block.
    fn first_pass(&self, progress: &(dyn Fn(u64) + Sync)) -> Result<(Digest, Vec<Subtree>), Error> {
        let run = RunOptions { range: Some(0..self.found), ..RunOptions::default() };
        let plan = plan(self.source, self.options, &run)?;
        let mode = &self.options.mode;
        let values = Mutex::new(Vec::new());
        if !is_subtree_size(plan.block_bytes()) || self.options.config.io.in_order {
            let mut hasher = mode.hasher();
            plan.in_order(self.source, |block| {
                hasher.update(block.bytes);
                progress(block.bytes.len() as u64);
                Ok(())
            })?;
            return Ok((Digest::of_output(hasher.finalize_xof()), Vec::new()));
        }
        let tree = TreeHasher::new(mode);
        plan.any_order(self.source, |block| {
            let part = tree.update(block.offset, block.bytes)?;
            lock(&values).push(part);
            progress(block.bytes.len() as u64);
            Ok(())
        })?;
        let values = values.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok((tree.finalize(Some(self.found))?, values))
    }

    /// Returns the blocks whose value is not that of the nodes. Without values, everything.
    fn differing(&self, values: &[Subtree]) -> Vec<Range<u64>> {
        let mut blocks: Vec<_> = values.iter().collect();
        blocks.sort_by_key(|block| block.offset);
        let Some(first) = blocks.first() else { return std::iter::once(0..self.found).collect() };
        let block_bytes = first.len.max(self.outboard.group_bytes);
        let mut differ = Vec::new();
        let all = 0..self.outboard.len;
        self.descend(&all, all.clone(), *self.root, block_bytes, &mut |range, expected| {
            let at = blocks.binary_search_by_key(&range.start, |block| block.offset);
            let is_same = at.is_ok_and(|at| {
                let block = blocks[at];
                block.len == range.end - range.start && expected == Some(&block.cv)
            });
            let range = range.start.min(self.found)..range.end.min(self.found);
            if !is_same && !range.is_empty() {
                differ.push(range);
            }
        });
        joined(differ)
    }

    /// Visits what overlaps `wanted` of the tree at `node`: the subtrees of at most `least` bytes
    /// with their expected values; or the wanted part of larger ones without, whose nodes do not
    /// lead to the root. The whole tree, if it is not larger, has its root as value.
    fn descend(
        &self,
        wanted: &Range<u64>,
        node: Range<u64>,
        expected: [u8; 32],
        least: u64,
        visit: &mut Visit<'_>,
    ) {
        if node.end <= wanted.start || wanted.end <= node.start {
            return;
        }
        let len = node.end - node.start;
        let Some(left_len) = left_subtree_len(len).filter(|_| len > least) else {
            return visit(node, Some(&expected));
        };
        let Some((left, right)) = self.outboard.children(&self.options.mode, &node, &expected)
        else {
            return visit(node.start.max(wanted.start)..node.end.min(wanted.end), None);
        };
        let middle = node.start + left_len;
        self.descend(wanted, node.start..middle, left, least, visit);
        self.descend(wanted, middle..node.end, right, least, visit);
    }

    /// Returns the groups in `range` with their expected values.
    fn groups(&self, range: &Range<u64>) -> Vec<(Range<u64>, Option<[u8; 32]>)> {
        let (all, least) = (0..self.outboard.len, self.outboard.group_bytes);
        let mut groups = Vec::new();
        self.descend(range, all, *self.root, least, &mut |range, expected| {
            groups.push((range, expected.copied()));
        });
        groups
    }

    /// Reads a suspect range again, past read errors, and appends its bad groups.
    fn examine(&self, suspect: Range<u64>, bad: &mut Vec<Range<u64>>) -> Result<(), Error> {
        let group_bytes = self.outboard.group_bytes;
        // In parts, so that the values of the groups of a huge range need little memory.
        let part_bytes = (64_u64 << 20).next_multiple_of(group_bytes);
        let mut start = suspect.start / group_bytes * group_bytes;
        while start < suspect.end {
            let end = suspect.end.next_multiple_of(group_bytes).min(start + part_bytes);
            let range = start..end.min(self.found);
            let good = self.good_groups(&range)?;
            for (group, _) in self.groups(&range) {
                if good.binary_search(&group.start).is_err() {
                    bad.push(group);
                }
            }
            start = end;
        }
        Ok(())
    }

    /// Returns the starts of the groups in `range` that have their expected value, sorted.
    fn good_groups(&self, range: &Range<u64>) -> Result<Vec<u64>, Error> {
        let groups = self.groups(range);
        let run = RunOptions { range: Some(range.clone()), ..RunOptions::default() };
        let plan = plan(self.source, self.options, &run)?;
        let mut good = Vec::new();
        let mut bytes: Vec<u8> = Vec::new();
        let mut next = 0;
        plan.scan_bad_ranges(self.source, |scanned| {
            // Bytes that cannot be read leave a gap, which fits no group.
            let Ok(Block { offset, bytes: mut block, .. }) = scanned else {
                bytes.clear();
                return Ok(());
            };
            let mut offset = offset;
            while !block.is_empty() {
                while next < groups.len() && groups[next].0.end <= offset {
                    (next, _) = (next + 1, bytes.clear());
                }
                let Some((group, expected)) = groups.get(next) else { return Ok(()) };
                let take = block.len().min((group.end - offset.min(group.end)) as usize);
                if offset >= group.start && expected.is_some() {
                    if offset == group.start + bytes.len() as u64 {
                        bytes.extend_from_slice(&block[..take]);
                    }
                    if bytes.len() as u64 == group.end - group.start
                        && Some(self.value(group.start, &bytes)) == *expected
                    {
                        good.push(group.start);
                    }
                }
                (offset, block) = (offset + take as u64, &block[take..]);
            }
            Ok(())
        })?;
        Ok(good)
    }

    /// Returns the value of a group; the root if there is only one.
    fn value(&self, offset: u64, bytes: &[u8]) -> [u8; 32] {
        let mode = &self.options.mode;
        if bytes.len() as u64 == self.outboard.len {
            return *mode.hasher().update(bytes).finalize().as_bytes();
        }
        Subtree::hash(mode, offset, bytes).cv
    }
}
