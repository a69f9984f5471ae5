//! Hashing that goes on where an earlier run was interrupted.

use std::ops::Range;

use blockring::{Plan, Source};

use super::Options;
use super::tree::{Subtree, is_subtree_size};

/// What is known of an input that was hashed in part, and what to do with each further part.
#[derive(Clone, Copy)]
pub struct Resume<'a> {
    /// Bytes of a part: 2^k KiB.
    pub subtree_bytes: u64,
    /// The parts that have been hashed: sorted, of the same bytes and the same [mode](Options::mode).
    pub known: &'a [Subtree],
    /// Called with each part that has been hashed, in any order, on any thread.
    pub finished: &'a (dyn Fn(Subtree) + Sync),
}

impl Resume<'_> {
    /// Returns the ranges that are known, for [`RunOptions::skip`](blockring::RunOptions::skip).
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for Subtree { offset, len, .. } in self.known {
            match ranges.last_mut() {
                Some(last) if last.end == *offset => last.end += len,
                _ => ranges.push(*offset..offset + len),
            }
        }
        ranges
    }

    /// Whether parts can be left out: BLAKE3 alone of a long input with a length, whose blocks are
    /// hashed in any order, and are parts of the parts.
    pub fn applies(&self, plan: &Plan, source: &Source, options: &Options) -> bool {
        let (bytes, block_bytes) = (self.subtree_bytes, plan.block_bytes());
        let Some(len) = source.len().filter(|_| source.start() == 0) else { return false };
        let is_part = |part: &Subtree| {
            let end = part.offset.saturating_add(bytes);
            part.len == bytes && part.offset.is_multiple_of(bytes) && end <= len
        };
        options.algorithms.is_blake3()
            && !options.config.io.in_order
            && plan.consumers() == 0
            && !plan.is_sequential()
            && is_subtree_size(bytes)
            && is_subtree_size(block_bytes)
            && bytes.is_multiple_of(block_bytes)
            && len / 2 > bytes
            && self.known.iter().all(is_part)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use blockring::{Config, RunOptions};

    use super::*;
    use crate::hash::{digest_planned, plan};
    use crate::{Mode, lock};

    const KIB: u64 = 1024;

    /// Whatever is known, only the rest is read, and the digest is the same.
    #[test]
    fn what_is_known_is_not_read() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..3_000_000).map(|i| (i % 251) as u8).collect();
        std::io::Write::write_all(&mut file, &content).unwrap();
        let bytes = 256 * KIB;
        let config = Config::default().with(|config| {
            config.observe.stats = true;
            config.io.block_bytes = Some(64 << 10);
        });
        for mode in [Mode::Hash, Mode::Keyed([7; 32])] {
            let options = Options { mode, config: config.clone(), ..Options::default() };
            let expected = options.mode.hasher().update(&content).finalize();
            let run = |known: &[Subtree]| {
                let finished = Mutex::new(Vec::new());
                let add = |subtree| lock(&finished).push(subtree);
                let resume = Resume { subtree_bytes: bytes, known, finished: &add };
                let source = Source::open(file.path()).unwrap();
                let skip = resume.ranges();
                let plan =
                    plan(&source, &options, &RunOptions { skip: &skip, ..Default::default() });
                let plan = plan.unwrap();
                let digests = digest_planned(&plan, &source, &options, Some(&resume), &|_| ());
                assert_eq!(digests.unwrap().hash(), Some(expected));
                let mut finished = finished.into_inner().unwrap();
                finished.sort_by_key(|subtree| subtree.offset);
                (finished, plan.stats().unwrap().bytes)
            };
            let (all, read) = run(&[]);
            assert_eq!((all.len() as u64, read), (3_000_000 / bytes, 3_000_000));
            let starts: BTreeSet<_> = all.iter().map(|subtree| subtree.offset).collect();
            assert_eq!(starts.len(), all.len());
            for chosen in [0b1, 0b111, 0b10_1100_1010, 0b111_1111_1111, 0b100_0000_0000] {
                let is_chosen = |i: usize| chosen >> i & 1 == 1;
                let pick = |wanted| {
                    let all = all.iter().enumerate();
                    all.filter(|(i, _)| is_chosen(*i) == wanted)
                        .map(|(_, s)| *s)
                        .collect::<Vec<_>>()
                };
                let (known, others) = (pick(true), pick(false));
                let (finished, read) = run(&known);
                assert_eq!(finished, others);
                assert_eq!(read, 3_000_000 - known.len() as u64 * bytes);
            }
            // A value that is not of this input shows.
            let mut wrong = all.clone();
            wrong.truncate(1);
            wrong[0].cv[0] ^= 1;
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&wrong)));
            assert!(result.is_err(), "what is known is used");
        }
    }
}
