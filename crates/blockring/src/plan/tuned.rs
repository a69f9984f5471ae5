//! Whether a measured setting of the device replaces the built-in one.

use super::choose::{Chooser, size};
use super::profile;
use super::tuning::Tuning;
use crate::config::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, CacheMode, EngineKind, POOL_THREADS_MAX, QUEUE_DEPTH_MAX,
};
use crate::source::file_system::Storage;

/// A setting with more in flight than the built-in one applies to files this many times as long.
/// For shorter ones, filling the ring and hashing the last blocks dominates, which was not
/// measured: 32 MiB, uncached, took 26.4 ms in 1 block, 25.5 in 2, 25.0 in 4, 22.2 in 64.
const IN_FLIGHT_TIMES: u64 = 4;

impl Chooser<'_> {
    /// Uses the measured setting if it was measured for the same kind of read: long direct reads of
    /// a local device, without explicit options. If it does not suit this source, notes the reason.
    pub(super) fn find_tuning(&mut self, cache: CacheMode) {
        let is_measured = self.facts.storage == Storage::Local && cache == CacheMode::Direct;
        if !is_measured || !self.config.accepts_tuning() {
            return;
        }
        let found = (self.system.tuning)();
        match found.map(|found| found.and_then(|tuning| self.suits(&tuning).map(|()| tuning))) {
            Some(Ok(tuning)) => self.tuning = Some(tuning),
            Some(Err(why)) => self.note("tuned", "not used", why),
            None => {}
        }
    }

    /// Checks that a setting suits this source.
    fn suits(&self, tuning: &Tuning) -> Result<(), String> {
        let Tuning { engine, pool_threads, block_bytes, depth, .. } = *tuning;
        let align = self.facts.direct.as_ref().copied().unwrap_or(1);
        let threads = pool_threads.unwrap_or(1);
        let in_flight_bytes = u64::from(block_bytes) * u64::from(depth);
        let is_more =
            in_flight_bytes > profile::IN_FLIGHT_BYTES.into() || block_bytes > profile::BLOCK_BYTES;
        let len_min = in_flight_bytes.saturating_mul(IN_FLIGHT_TIMES);
        let rules = [
            (
                engine.is_synchronous(),
                format!("the engine {engine} has one read in flight, and is never measured"),
            ),
            (
                !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes),
                format!("blocks of {block_bytes} bytes are out of their range"),
            ),
            (
                !block_bytes.is_multiple_of(align),
                format!("blocks of {block_bytes} bytes are no multiple of {align}"),
            ),
            (
                !(1..=QUEUE_DEPTH_MAX).contains(&depth),
                format!("{depth} in flight are out of their range"),
            ),
            (
                in_flight_bytes > self.config.slab_bytes_max(),
                format!("{depth} in flight exceed the memory limit"),
            ),
            (
                !(1..=POOL_THREADS_MAX).contains(&threads),
                format!("{threads} threads of the pool are out of their range"),
            ),
            (
                is_more && self.facts.len < len_min,
                format!("it is for files of {} and more", size(len_min)),
            ),
        ];
        match rules.into_iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, why)) => Err(format!("the setting measured on this device: {why}")),
            None => Ok(()),
        }
    }

    /// Returns the engine that was measured best, or the automatic choice if that is not available.
    pub(super) fn tuned_engine(&self, tuning: &Tuning, cache: CacheMode) -> (EngineKind, String) {
        match self.usable(tuning.engine) {
            Ok(()) => (tuning.engine, tuning.why.clone()),
            Err(no) => {
                let (engine, why) = self.asynchronous(cache);
                let best = tuning.engine;
                // For io_uring, the automatic choice already says why it is not available.
                let why = match best {
                    EngineKind::IoUring => why,
                    _ => format!("no {best}, which was measured best: {no}; {why}"),
                };
                (engine, why)
            }
        }
    }
}
