//! Chaining values of zeros: those of holes, which are not read.
//!
//! A chaining value depends on the position of its range, because the number of each chunk is part
//! of its compression. So zeros are hashed, but from a block that stays in the L1 cache; or, for the
//! plain hash and whole GiB of the first TiB, the values are looked up in a table.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use blockring::Stop;

use super::Mode;
use super::tree::TreeError;
use super::tree_hasher::TreeHasher;
use crate::lock;

/// The bytes of each range in the table.
const TABLE_RANGE: u64 = 1 << 30;

/// The chaining values of 1024 aligned GiB of zeros: 32 KiB.
static TABLE: &[u8; 1024 * 32] = include_bytes!("zeros.bin");

/// Zeros to hash. They are never written to, so all of their pages are the kernel's one page of
/// zeros, which stays in the L1 cache. One core of an EPYC with AVX-512 hashed 4.3, 7.5, 8.2, 8.5, 8.8
/// and 7.8 GB/s from 8, 16, 32, 64, 128 and 256 KiB.
static ZEROS: [u8; 128 << 10] = [0; 128 << 10];

/// Most zeros that one thread hashes at a time: 3 ms, so that all threads end at about the same
/// time.
const PART_BYTES_MAX: u64 = 16 << 20;

/// Least zeros that justify a thread, in bytes: see `WORKER_BYTES_MIN` of `blockring`.
const THREAD_BYTES_MIN: u64 = 2 << 20;

/// Returns the chaining value of `len` zeros at `offset` in the plain hash, if it is in the table.
pub(super) fn from_table(mode: &Mode, offset: u64, len: u64) -> Option<[u8; 32]> {
    if !matches!(mode, Mode::Hash) || len != TABLE_RANGE || !offset.is_multiple_of(TABLE_RANGE) {
        return None;
    }
    let (values, _) = TABLE.as_chunks();
    values.get(usize::try_from(offset / TABLE_RANGE).ok()?).copied()
}

/// Updates a hasher with zeros.
pub(super) fn update_zeros(hasher: &mut blake3::Hasher, mut len: u64) {
    while len > 0 {
        let part = len.min(ZEROS.len() as u64);
        hasher.update(&ZEROS[..part as usize]);
        len -= part;
    }
}

/// The holes of an input, hashed by any number of threads.
pub(super) struct HoleHasher<'a> {
    mode: &'a Mode,
    parts: Mutex<Parts<'a>>,
    is_stopped: AtomicBool,
    stop: Option<&'a Stop>,
}

impl<'a> HoleHasher<'a> {
    /// Creates a hasher for sorted holes of an input of `total` bytes. They start at multiples of
    /// 2^k KiB, and end at such or at the end of the input.
    pub(super) fn new(
        mode: &'a Mode,
        holes: &'a [Range<u64>],
        total: u64,
        stop: Option<&'a Stop>,
    ) -> HoleHasher<'a> {
        let parts = Mutex::new(Parts::new(mode, holes, total));
        HoleHasher { mode, parts, is_stopped: AtomicBool::new(false), stop }
    }

    /// Returns how many threads are worth starting, up to `most`.
    pub(super) fn threads(&self, most: usize) -> usize {
        let enough = most as u64 * THREAD_BYTES_MIN;
        let mut bytes = 0;
        for (offset, len) in lock(&self.parts).clone() {
            bytes += if from_table(self.mode, offset, len).is_some() { 0 } else { len };
            if bytes >= enough {
                return most;
            }
        }
        (bytes / THREAD_BYTES_MIN) as usize
    }

    /// Adds parts to `tree` until there are none left, or the run is stopped.
    pub(super) fn run(
        &self,
        tree: &TreeHasher<'_>,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), TreeError> {
        while !self.is_stopped.load(Ordering::Relaxed) && !self.stop.is_some_and(Stop::is_stopped) {
            let Some((offset, len)) = lock(&self.parts).next() else { break };
            tree.update_zeros(offset, len)?;
            progress(len);
        }
        Ok(())
    }

    /// Ends the run on all threads after the current part.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

/// The subtrees that holes consist of, in order.
#[derive(Clone)]
struct Parts<'a> {
    mode: &'a Mode,
    holes: std::slice::Iter<'a, Range<u64>>,
    current: Range<u64>,
    total: u64,
}

impl<'a> Parts<'a> {
    fn new(mode: &'a Mode, holes: &'a [Range<u64>], total: u64) -> Parts<'a> {
        Parts { mode, holes: holes.iter(), current: 0..0, total }
    }
}

impl Iterator for Parts<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        while self.current.is_empty() {
            self.current = self.holes.next()?.clone();
        }
        let Range { start, end } = self.current;
        let left = end - start;
        // Of an input of one GiB, the value in the table is not that of the root.
        let is_known = self.total > TABLE_RANGE
            && left >= TABLE_RANGE
            && from_table(self.mode, start, TABLE_RANGE).is_some();
        let aligned = if start == 0 { u64::MAX } else { 1 << start.trailing_zeros() };
        let most = aligned.min(PART_BYTES_MAX);
        let len = match () {
            () if is_known => TABLE_RANGE,
            () if left >= most => most,
            () if end == self.total => left,
            () => 1 << left.ilog2(),
        };
        self.current.start += len;
        Some((start, len))
    }
}

#[cfg(test)]
#[path = "zeros_tests.rs"]
mod tests;
