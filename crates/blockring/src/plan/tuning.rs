//! A setting that was measured best on a device, for a plan to use.
//!
//! The caller stores it and knows whether it still applies; `tuned.rs` decides whether it suits a source.

use super::profile::{BUILT_IN, Profile};
use crate::config::EngineKind;

/// The setting measured best for long direct reads of one device. Its values were measured together, and
/// are used together or not at all. The default is the built-in setting.
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

impl Default for Tuning {
    fn default() -> Tuning {
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
