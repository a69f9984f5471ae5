//! The contract of a supply, which decides what to read next, and the supply for one file.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use super::extents::{Extents, IndexedExtent};
use crate::error::ErrorKind;
use crate::observe::stats::Recorder;

/// Parameters for the reads of one file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    /// `RWF_*` flags of each read.
    pub(crate) flags: i32,
    /// Offsets and lengths of reads are multiples of this, in bytes; 1 unless direct.
    pub(crate) align: u32,
    /// Length of the file at its opening, in bytes.
    pub(crate) len: u64,
}

/// A claimed piece of work.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Claim<'a> {
    /// An extent for the pump to read.
    Read(IndexedExtent, Target<'a>),
    /// An extent that the supply has already read into the slot.
    Filled(IndexedExtent),
    /// An extent in a hole, whose zeros are here.
    Zeros(IndexedExtent, *const u8),
}

/// The slot that a claim is for.
pub(crate) struct FreeSlot<'s, 'r> {
    pub(crate) number: u32,
    /// Its memory; null if the engine has its own memory.
    pub(crate) memory: *mut u8,
    /// Whether the claiming thread also consumes, so that it waits for the read.
    pub(crate) consumes_inline: bool,
    pub(crate) recorder: &'s mut Recorder<'r>,
}

/// Assigns work to the pumps of a run, on any number of threads.
pub(crate) trait Supply: Sync {
    /// Claims the next piece of work; `None` if there is none, or none for now. Fails if a supply
    /// that reads while it claims fails to read.
    fn claim(&self, slot: &mut FreeSlot<'_, '_>) -> Result<Option<Claim<'_>>, ErrorKind>;

    /// Assigns no more work.
    fn stop(&self);

    /// Returns the number of extents not assigned yet, as far as is known.
    fn left(&self) -> u64;

    /// Whether no work has been assigned yet, so that another engine can still start over.
    fn is_untouched(&self) -> bool {
        false
    }

    /// Whether another thread would help. Called after each block; true once for all threads.
    fn needs_help(&self) -> bool {
        false
    }

    /// The file that all reads are of, if it is a single file, which an engine may register.
    fn sole_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The extents of one file.
pub(crate) struct FileSupply<'a> {
    pub(crate) target: Target<'a>,
    pub(crate) extents: Extents,
    pub(crate) zeros: Zeros<'a>,
}

/// The holes of a file, and what they hold.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Zeros<'a> {
    /// Sorted.
    pub(crate) holes: &'a [Range<u64>],
    /// As many zeros as a block has, unless holes are to be read.
    pub(crate) bytes: &'a [u8],
}

impl Zeros<'_> {
    /// Returns the zeros of an extent that lies in a hole.
    fn of(&self, extent: IndexedExtent) -> Option<*const u8> {
        let end = extent.offset + u64::from(extent.len);
        let place = self.holes.partition_point(|hole| hole.end < end);
        let is_hole = self.holes.get(place)?.start <= extent.offset;
        (is_hole && self.bytes.len() >= extent.len as usize).then_some(self.bytes.as_ptr())
    }
}

impl Supply for FileSupply<'_> {
    fn claim(&self, _: &mut FreeSlot<'_, '_>) -> Result<Option<Claim<'_>>, ErrorKind> {
        Ok(self.extents.claim().map(|extent| match self.zeros.of(extent) {
            Some(zeros) => Claim::Zeros(extent, zeros),
            None => Claim::Read(extent, self.target),
        }))
    }

    fn stop(&self) {
        self.extents.stop();
    }

    fn left(&self) -> u64 {
        self.extents.left()
    }

    fn is_untouched(&self) -> bool {
        self.extents.is_untouched()
    }

    fn sole_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.target.fd)
    }
}
