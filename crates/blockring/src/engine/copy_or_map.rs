//! Blocks of the page cache, copied into the slot or mapped, whichever is faster here.
//!
//! Copying took 0.91 of the time of mapping on an AMD EPYC, and 1.25 times as long on an Intel Xeon;
//! on one and the same machine the ratio changes within hours, with the host's memory. So the first
//! blocks of a run are read in both ways, in turn, and from time to time some later ones. Every block
//! is consumed, so that a trial costs only the difference.
#![allow(unsafe_code)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::mmap::{MmapEngine, Windows};
use super::pread::PreadEngine;
use super::{Completion, Engine, Read, Setup};

/// Shortest file that is mapped, in bytes. For shorter ones, mapping and unmapping dominate.
const MAPPED_FILE_BYTES_MIN: u64 = 1 << 20;

/// Shortest block that is mapped, in bytes.
const MAPPED_BLOCK_BYTES_MIN: u32 = 64 << 10;

/// Blocks read in each way in one trial: 2 MiB of 256 KiB each. The fastest of them counts, because
/// any of them can be interrupted.
const TRIAL_BLOCKS: u32 = 8;

/// Blocks mapped in a trial before the window is closed, which is timed, too: the fastest counts.
const CLOSED_AFTER: u32 = 4;

/// Bytes between trials, of all threads together. A trial maps 2 MiB of them.
const TRIAL_EVERY_BYTES: u64 = 512 << 20;

/// How much faster the other way must be, so that a tie does not change anything.
const ADVANTAGE: f64 = 0.98;

/// What the threads of a run, or of several, know about copying and mapping.
#[derive(Debug, Default)]
pub(crate) struct CopyOrMap {
    maps: AtomicBool,
    /// Whether a mapping has failed: then there are no more.
    is_refused: AtomicBool,
    /// Bytes of blocks that could be mapped, and the number from which the next trial starts.
    read: AtomicU64,
    next_trial: AtomicU64,
    /// Bytes that were mapped.
    mapped: AtomicU64,
}

impl CopyOrMap {
    /// Returns the number of bytes mapped so far.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.mapped.load(Ordering::Relaxed)
    }

    /// Counts a block, and returns whether its thread should start a trial.
    fn is_trial_due(&self, len: u32) -> bool {
        let read = self.read.fetch_add(len.into(), Ordering::Relaxed);
        let due = self.next_trial.load(Ordering::Relaxed);
        let next = read + TRIAL_EVERY_BYTES;
        read >= due
            && !self.is_refused.load(Ordering::Relaxed)
            && self
                .next_trial
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    fn decide(&self, costs: &Costs) {
        let maps = self.maps.load(Ordering::Relaxed);
        self.maps.store(costs.maps(maps), Ordering::Relaxed);
    }

    fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
        self.maps.store(false, Ordering::Relaxed);
    }
}

/// What the blocks of a trial cost.
#[derive(Debug, Clone, Copy)]
struct Costs {
    /// Nanoseconds per byte of the fastest block: read, consumed and released.
    copied: f64,
    mapped: f64,
    /// Nanoseconds per byte of the fastest unmapping.
    unmapped: f64,
}

impl Costs {
    const UNKNOWN: Costs =
        Costs { copied: f64::INFINITY, mapped: f64::INFINITY, unmapped: f64::INFINITY };

    /// Whether to map from now on, if it is mapped now or not.
    fn maps(&self, now: bool) -> bool {
        let mapped = self.mapped + self.unmapped;
        match now {
            true => self.copied >= mapped * ADVANTAGE,
            false => mapped < self.copied * ADVANTAGE,
        }
    }
}

fn ns_per_byte(time: Duration, bytes: u64) -> f64 {
    time.as_nanos() as f64 / bytes as f64
}

/// A trial in progress on this thread: blocks are copied and mapped in turn.
struct Trial {
    costs: Costs,
    blocks: u32,
    /// Bytes mapped since the window was closed.
    mapped_bytes: u64,
}

/// The block in the slot.
struct Current {
    is_mapped: bool,
    len: u32,
    /// Its start, in a trial.
    since: Option<Instant>,
}

/// The engine that copies or maps, with one slot.
pub(super) struct CopyOrMapEngine {
    copy: PreadEngine,
    map: MmapEngine,
    shared: Arc<CopyOrMap>,
    trial: Option<Trial>,
    current: Option<Current>,
}

impl CopyOrMapEngine {
    /// Creates the engine; `None` if nothing is to be mapped.
    pub(super) fn new(setup: &Setup<'_>) -> Option<CopyOrMapEngine> {
        let shared = setup.copy_or_map.filter(|_| setup.slots == 1)?;
        // Without it, everything is copied.
        let map = MmapEngine::new(setup, Windows::Long).ok()?;
        let shared = Arc::clone(shared);
        Some(CopyOrMapEngine { copy: PreadEngine, map, shared, trial: None, current: None })
    }

    /// Decides how to read a block.
    fn next(&mut self, read: &Read<'_>) -> Current {
        let len = read.len;
        let can_map = read.file_bytes >= MAPPED_FILE_BYTES_MIN && len >= MAPPED_BLOCK_BYTES_MIN;
        if !can_map {
            return Current { is_mapped: false, len, since: None };
        }
        if self.shared.is_trial_due(len) {
            self.trial = Some(Trial { costs: Costs::UNKNOWN, blocks: 0, mapped_bytes: 0 });
        }
        match &self.trial {
            Some(trial) => Current {
                is_mapped: !trial.blocks.is_multiple_of(2),
                len,
                since: Some(Instant::now()),
            },
            None => {
                Current { is_mapped: self.shared.maps.load(Ordering::Relaxed), len, since: None }
            }
        }
    }

    /// Adds a block that took until now to a trial.
    fn measured(&mut self, block: &Current, since: Instant) {
        let Some(trial) = &mut self.trial else { return };
        let costs = &mut trial.costs;
        let cost = ns_per_byte(since.elapsed(), block.len.into());
        trial.blocks += 1;
        match block.is_mapped {
            false => costs.copied = costs.copied.min(cost),
            true => {
                costs.mapped = costs.mapped.min(cost);
                trial.mapped_bytes += u64::from(block.len);
                if trial.blocks.is_multiple_of(2 * CLOSED_AFTER) {
                    let start = Instant::now();
                    self.map.close_window();
                    let bytes = std::mem::take(&mut trial.mapped_bytes);
                    costs.unmapped = costs.unmapped.min(ns_per_byte(start.elapsed(), bytes));
                }
            }
        }
        if trial.blocks >= 2 * TRIAL_BLOCKS {
            self.shared.decide(costs);
            self.trial = None;
        }
    }
}

impl Engine for CopyOrMapEngine {
    unsafe fn submit(&mut self, read: Read<'_>) -> io::Result<Option<Completion>> {
        // The rest of a short read goes where its beginning is.
        let block = match self.current.take() {
            Some(block) => block,
            None => self.next(&read),
        };
        if block.is_mapped {
            // SAFETY: the mapping does not use the buffer.
            match unsafe { self.map.submit(read) }? {
                Some(Completion { result: Ok(_), .. }) => {
                    self.shared.mapped.fetch_add(read.len.into(), Ordering::Relaxed);
                    self.current = Some(block);
                    return Ok(Some(Completion { slot: read.slot, result: Ok(read.len) }));
                }
                _ => self.shared.refuse(),
            }
        }
        self.trial = self.trial.take().filter(|_| !block.is_mapped);
        self.current = Some(Current { is_mapped: false, ..block });
        // SAFETY: as required of the caller.
        unsafe { self.copy.submit(read) }
    }

    fn block(&self, slot: u32) -> Option<*const u8> {
        self.current.as_ref().filter(|block| block.is_mapped).and(self.map.block(slot))
    }

    fn damage(&self, slot: u32) -> Option<&'static AtomicBool> {
        self.current.as_ref().filter(|block| block.is_mapped).and(self.map.damage(slot))
    }

    fn release(&mut self, slot: u32) {
        self.map.release(slot);
        if let Some(block) = self.current.take()
            && let Some(since) = block.since
        {
            self.measured(&block, since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(copied: f64, mapped: f64, unmapped: f64) -> Costs {
        Costs { copied, mapped, unmapped }
    }

    #[test]
    fn the_faster_way_is_kept_and_a_tie_changes_nothing() {
        for (given, now, expected) in [
            (costs(1.0, 0.8, 0.1), false, true),
            (costs(1.0, 0.8, 0.1), true, true),
            (costs(1.0, 0.95, 0.1), true, false),
            (costs(1.0, 0.95, 0.1), false, false),
            (costs(1.0, 0.95, 0.05), false, false),
            (costs(1.0, 0.95, 0.05), true, true),
            (costs(1.0, 1.0, 0.01), true, true),
            // Nothing was mapped, or nothing copied.
            (costs(1.0, f64::INFINITY, f64::INFINITY), true, false),
            (costs(f64::INFINITY, 1.0, 0.1), false, true),
        ] {
            assert_eq!(given.maps(now), expected, "{given:?}, {now}");
        }
    }

    #[test]
    fn one_thread_makes_a_trial_at_the_start_and_after_every_so_many_bytes() {
        let shared = CopyOrMap::default();
        let block = 1 << 20;
        let due = (0..1300).filter(|_| shared.is_trial_due(block)).count();
        // At 0, 512 MiB and 1024 MiB.
        assert_eq!(due, 3);
        shared.refuse();
        assert_eq!((0..1300).filter(|_| shared.is_trial_due(block)).count(), 0);
    }
}
