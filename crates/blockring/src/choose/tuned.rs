//! Whether what was measured on the device is followed, in place of what is built in.

use super::{Chooser, size};
use crate::config::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, CacheMode, DEPTH_MAX, EngineKind, POOL_THREADS_MAX,
};
use crate::facts::Storage;
use crate::tuning::Tuning;

/// A setting with more in flight than the built-in one has is for files that hold so many times as much: of
/// shorter ones, filling the ring and hashing what came last is what takes the time, and not what was
/// measured. 32 MiB, not in the page cache, in 1 block took 26.4 ms, in 2 25.5, in 4 25.0, in 64 22.2.
const IN_FLIGHT_TIMES: u64 = 4;

impl Chooser<'_> {
    /// Takes the measured setting where what was measured is what will be done: long direct reads of a local
    /// device, with nothing asked for by name. One that cannot be followed is noted, with the reason.
    pub(super) fn find_tuning(&mut self, cache: CacheMode) {
        let is_measured = self.facts.storage == Storage::Local && cache == CacheMode::Direct;
        if !is_measured || !self.config.takes_tuning() {
            return;
        }
        let found = (self.system.tuning)();
        match found.map(|found| found.and_then(|tuning| self.suits(&tuning).map(|()| tuning))) {
            Some(Ok(tuning)) => self.tuning = Some(tuning),
            Some(Err(why)) => self.note("tuned", "not used", why),
            None => {}
        }
    }

    /// Whether a setting can be followed for this source, or why not.
    fn suits(&self, tuning: &Tuning) -> Result<(), String> {
        let Tuning { engine, pool_threads, block_bytes, depth, .. } = *tuning;
        let align = self.facts.direct.as_ref().copied().unwrap_or(1);
        let threads = pool_threads.unwrap_or(1);
        let in_flight_bytes = u64::from(block_bytes) * u64::from(depth);
        let is_more = in_flight_bytes > self.system.profile.in_flight_bytes.into()
            || block_bytes > self.system.profile.block_bytes;
        let len_min = in_flight_bytes.saturating_mul(IN_FLIGHT_TIMES);
        let rules = [
            (
                !matches!(engine, EngineKind::IoUring | EngineKind::Libaio | EngineKind::Pool),
                format!("the engine {engine} has one read in flight, and none is measured so"),
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
                !(1..=DEPTH_MAX).contains(&depth),
                format!("{depth} in flight are out of their range"),
            ),
            (
                in_flight_bytes > self.config.slab_bytes_max(),
                format!("{depth} in flight take more than the memory that is allowed"),
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

    /// The engine that was measured best, or today's choice where that cannot be had.
    pub(super) fn tuned_engine(&self, tuning: &Tuning, cache: CacheMode) -> (EngineKind, String) {
        match self.usable(tuning.engine) {
            Ok(()) => (tuning.engine, tuning.why.clone()),
            Err(no) => {
                let (engine, why) = self.asynchronous(cache);
                let best = tuning.engine;
                // Where io_uring was the best, that it cannot be had is what follows says already.
                let why = match best {
                    EngineKind::IoUring => why,
                    _ => format!("no {best}, which was measured best: {no}; {why}"),
                };
                (engine, why)
            }
        }
    }
}
