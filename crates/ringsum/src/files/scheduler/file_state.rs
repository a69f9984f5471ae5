//! The state of one file between its first block and its digests.

use std::sync::Mutex;

use blockring::{Block, BoxError, Source};

use super::dispatch::Run;
use super::job::ActiveJob;
use super::short_files::{Buffered, ShortFiles};
use super::{Failure, lock};
use crate::hash::{OrderedHasher, TreeHasher, digest_whole};
use crate::{Algorithms, Digests, Mode};

/// The hash state of a file that is being read.
pub(super) struct FileState<'m, T> {
    job: Mutex<Option<ActiveJob<T>>>,
    len: u64,
    mode: &'m Mode,
    algorithms: Algorithms,
    /// The file's result, if it came in one block.
    whole: Mutex<Option<Whole>>,
    parts: BlockHasher<'m>,
}

/// A file that came in one block.
enum Whole {
    Hashed(Digests),
    /// To be hashed later, together with others.
    Buffered(Buffered),
}

/// A file that comes in several blocks.
enum BlockHasher<'m> {
    AnyOrder(TreeHasher<'m>),
    /// (A single thread reads such a file.)
    Ordered(Mutex<OrderedHasher>),
}

impl<'m, T: Send> FileState<'m, T> {
    pub(super) fn new<'r: 'm>(run: &Run<'r, T>, job: ActiveJob<T>, source: &Source) -> Self {
        let algorithms = *run.algorithms_of(job.job());
        let mode = &run.options.hash.mode;
        FileState {
            job: Mutex::new(Some(job)),
            len: source.len().unwrap_or(0),
            mode,
            algorithms,
            whole: Mutex::new(None),
            parts: match algorithms.is_blake3() {
                true => BlockHasher::AnyOrder(TreeHasher::new(mode)),
                false => BlockHasher::Ordered(Mutex::new(OrderedHasher::new(mode, &algorithms))),
            },
        }
    }

    /// Returns the job; `None` if it was already taken.
    pub(super) fn take_job(&self) -> Option<ActiveJob<T>> {
        lock(&self.job).take()
    }

    /// Hashes one block, or copies it to `short` if the file is short.
    pub(super) fn update(
        &self,
        run: &Run<'_, T>,
        short: &mut ShortFiles<T>,
        block: &Block<'_>,
    ) -> Result<(), BoxError> {
        if block.bytes.len() as u64 != self.len {
            match &self.parts {
                BlockHasher::AnyOrder(tree) => {
                    tree.update(block.offset, block.bytes)?;
                }
                BlockHasher::Ordered(ordered) => lock(ordered).update_at(block.offset, block.bytes),
            }
            return Ok(());
        }
        let is_short =
            lock(&self.job).as_ref().is_some_and(|job| short.accepts(run, job.job(), self.len));
        *lock(&self.whole) = Some(match is_short {
            true => Whole::Buffered(short.copy(run, block.bytes)),
            false => Whole::Hashed(digest_whole(self.mode, &self.algorithms, block.bytes)),
        });
        Ok(())
    }

    /// Returns the buffered content, if it is hashed later.
    pub(super) fn buffered(&self) -> Option<Buffered> {
        match *lock(&self.whole) {
            Some(Whole::Buffered(buffered)) => Some(buffered),
            _ => None,
        }
    }

    /// Returns the digests of all blocks.
    pub(super) fn finish(&self) -> Result<Digests, Failure> {
        match (lock(&self.whole).take(), &self.parts) {
            (Some(Whole::Hashed(digests)), _) => Ok(digests),
            (None, _) if self.len == 0 => Ok(digest_whole(self.mode, &self.algorithms, b"")),
            (None, BlockHasher::AnyOrder(tree)) => Ok(tree.finalize(Some(self.len))?.into()),
            (None, BlockHasher::Ordered(ordered)) => {
                let next = OrderedHasher::new(self.mode, &self.algorithms);
                let ordered = std::mem::replace(&mut *lock(ordered), next);
                match ordered.hashed_bytes() == self.len {
                    true => Ok(ordered.finalize()),
                    false => Err(Failure::Other("parts of it were not read".to_owned())),
                }
            }
            (Some(Whole::Buffered(_)), _) => {
                Err(Failure::Other("it is hashed with others".to_owned()))
            }
        }
    }
}
