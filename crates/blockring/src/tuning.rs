//! Settings that were measured best on a device: what whoever measured hands to a plan.
//!
//! Where they are kept, and whether they still hold, is the caller's business; whether one suits a source
//! is that of `choose/tuned.rs`.

use std::fmt;
use std::sync::Arc;

use crate::config::EngineKind;
use crate::profile::{self, Profile};

/// The setting that was measured best for long direct reads of one device. Its parts were measured
/// together, and are followed together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    /// [`EngineKind::IoUring`], [`EngineKind::Libaio`] or [`EngineKind::Pool`].
    pub engine: EngineKind,
    /// Threads of the engine `pool`; `None`: as many as there are by default.
    pub pool_threads: Option<u32>,
    /// Bytes of a block: a multiple of what direct reads of the device are aligned to.
    pub block_bytes: u32,
    /// Requests in flight on one thread.
    pub depth: u32,
    /// What the plan says for a reason, such as "measured best on this device on 2026-11-21".
    pub why: String,
}

/// The [`Tuning`] of each device, for [`Config::tuned`](crate::Config::tuned). A clone is the same.
#[derive(Clone)]
pub struct Tunings(Arc<dyn Fn(u64) -> Option<Result<Tuning, String>> + Send + Sync>);

impl Tunings {
    /// `find` is given the number of a device ([`Source::device`](crate::Source::device)), each time a
    /// plan comes to where its answer counts, and not before: it may read a file when it is first asked.
    /// An error is why a setting of that device does not count; the plan says so, and goes on without.
    pub fn new(
        find: impl Fn(u64) -> Option<Result<Tuning, String>> + Send + Sync + 'static,
    ) -> Tunings {
        Tunings(Arc::new(find))
    }

    /// What there is for the device with this number.
    pub fn find(&self, device: u64) -> Option<Result<Tuning, String>> {
        (self.0)(device)
    }
}

impl Tuning {
    /// What a plan takes where nothing was measured.
    pub fn built_in() -> Tuning {
        let Profile { block_bytes, in_flight_bytes, .. } = profile::BUILT_IN;
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
