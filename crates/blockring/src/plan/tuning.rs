//! The setting that was measured best on a device, for use in a plan.
//!
//! The caller stores it and checks that it still applies; `tuned.rs`, that it suits a source.

use super::profile::{BLOCK_BYTES, IN_FLIGHT_BYTES};
use crate::config::EngineKind;

/// The setting measured best for long direct reads of one device. Its values were measured
/// together, and are used together or not at all. The default is the built-in setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    /// [`EngineKind::IoUring`], [`EngineKind::Libaio`] or [`EngineKind::Pool`].
    pub engine: EngineKind,
    /// Threads of the engine `pool`; `None` for the default.
    pub pool_threads: Option<u32>,
    /// Bytes of a block, a multiple of the alignment of direct reads.
    pub block_bytes: u32,
    /// Requests in flight per thread.
    pub depth: u32,
    /// The reason given in the plan, such as "measured best on this device on 2026-11-21".
    pub why: String,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            engine: EngineKind::IoUring,
            pool_threads: None,
            block_bytes: BLOCK_BYTES,
            depth: IN_FLIGHT_BYTES / BLOCK_BYTES,
            why: "built in".to_owned(),
        }
    }
}
