//! Settings that were measured best on a device, for a plan to use.
//!
//! The caller keeps them and knows whether they still hold; `tuned.rs` decides whether one suits a
//! source.

use std::fmt;
use std::sync::Arc;

use super::profile::{BUILT_IN, Profile};
use crate::config::EngineKind;

/// The setting that was measured best for long direct reads of one device. Its values were measured
/// together, and are used together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    /// [`EngineKind::IoUring`], [`EngineKind::Libaio`] or [`EngineKind::Pool`].
    pub engine: EngineKind,
    /// Threads of the engine `pool`; `None` for the default.
    pub pool_threads: Option<u32>,
    /// Bytes of a block, a multiple of the alignment of direct reads.
    pub block_bytes: u32,
    /// Requests in flight on one thread.
    pub depth: u32,
    /// The reason that the plan gives, such as "measured best on this device on 2026-11-21".
    pub why: String,
}

/// The [`Tuning`] of each device, for [`RunOptions::tunings`](crate::RunOptions::tunings). Clones share
/// it.
#[derive(Clone)]
pub struct Tunings(Arc<dyn Fn(u64) -> Option<Result<Tuning, String>> + Send + Sync>);

impl Tunings {
    /// `find` gets the number of a device ([`Source::device`](crate::Source::device)), and is called
    /// only when a plan needs the answer, so it may read a file at its first call. An error is the
    /// reason why the device's setting does not count; the plan reports it and does without.
    pub fn new(
        find: impl Fn(u64) -> Option<Result<Tuning, String>> + Send + Sync + 'static,
    ) -> Tunings {
        Tunings(Arc::new(find))
    }

    /// The setting of a device, by its number.
    pub fn find(&self, device: u64) -> Option<Result<Tuning, String>> {
        (self.0)(device)
    }
}

impl Tuning {
    /// The setting of a plan without measurements.
    pub fn built_in() -> Tuning {
        let Profile { block_bytes, in_flight_bytes, .. } = BUILT_IN;
        Tuning {
            engine: EngineKind::IoUring,
            pool_threads: None,
            block_bytes,
            depth: in_flight_bytes / block_bytes,
            why: "built in".to_owned(),
        }
    }
}

impl fmt::Debug for Tunings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunings").finish_non_exhaustive()
    }
}
