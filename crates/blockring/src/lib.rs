//! Reads files, block devices and pipes through a fixed ring of blocks, with many requests in flight,
//! and passes each block to your callback.
//!
//! **Extents in, blocks out:**
//!
//! ```text
//!  path ─▶ Source ─▶ Plan ─▶            ring             ─▶ your callback,
//!          facts    choices  slots: Free→Requested→Ready    on this thread
//!          of an    and why      ▲           │              or on several
//!          input                 └── engine ─┘ kernel
//! ```
//!
//! A [`Source`] is an opened input. A [`Plan`] decides how to read it (which engine, which cache mode,
//! block size, queue depth and threads) and says why. With a default [`Config`] everything is detected
//! automatically; explicit options are never silently overridden. Memory is bounded, whatever the
//! length of the source. A run that returns `Ok` has read every byte of one source that did not change
//! in that time, as far as size, mtime and ctime show. (Only the engine `null`, for measurements, reads
//! nothing.)
//!
//! # Your own consumer
//!
//! In order, on one thread at a time: SHA-256 through the ring.
//!
//! ```
#![doc = include_str!("../examples/sha256.rs")]
//! ```
//!
//! In any order, on several threads at once: count the bytes.
//!
//! ```
#![doc = include_str!("../examples/drain.rs")]
//! ```
//!
//! # Scattered reads
//!
//! [`read_batch`] reads many small extents at once, as a database does for a list of keys. A
//! [`BatchReader`] keeps its ring from one batch to the next.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use blockring::{Extent, Source, read_batch};
//! let source = Source::open(std::env::current_exe()?)?;
//! let magic = Extent { offset: 0, len: 4 };
//! let batch = read_batch(&source, &[magic, Extent { offset: u64::MAX, len: 1 }])?;
//! assert_eq!(batch.get(0).unwrap(), b"\x7fELF");
//! assert!(batch.get(1).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! # Diagnostics
//!
//! [`Plan::choices`] has each choice with its reason. With [`Observe::stats`], [`Plan::stats`] has
//! counters, latencies and a breakdown of wait times after a run; a [`Trace`] records every event.
//!
//! # Platform
//!
//! Linux. io_uring is used from Linux 5.6 on. Without it (old kernels, containers that refuse it) the
//! same program reads with libaio, or with threads that `pread`.

mod config;
mod core;
mod engine;
mod error;
mod observe;
mod pipe;
mod plan;
mod rate_limit;
mod run;
mod source;
mod sys;

pub use crate::core::buffer::Buffer;
pub use config::{
    AllowMmap, BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, CacheMode, Config, ConfigError, Consume,
    EngineKind, HugePages, Io, IoPriority, MEMORY_BYTES_MIN, Memory, Observe, Order,
    POOL_THREADS_MAX, QUEUE_DEPTH_MAX, SLAB_BYTES_MAX, SLOTS_MAX, SQPOLL_IDLE_MS_MAX, Sqpoll,
    Uring, WORKERS_MAX, Wait,
};
pub use error::{BoxError, Change, Error, ErrorKind, Precision};
pub use observe::stats::{Bottleneck, Latency, Stats};
pub use observe::trace::Trace;
pub use pipe::{Incomplete, PIPE_BYTES_MAX, PipeSize, Tee, TeeMode, enlarge_pipe};
pub use plan::{Choice, Plan, RunOptions, Tuning, Tunings};
pub use rate_limit::RateLimit;
pub use run::{
    BadRange, Batch, BatchReader, Block, Consumer, Extent, FileQueue, QueueReader, QueuedFile,
    ReaderKind, Scanned, read_batch,
};
pub use source::{Fingerprint, Source, SourceKind};

/// For `fuzz/`: a schedule of the fake engine.
#[cfg(fuzzing)]
pub fn fuzz_schedule(data: &[u8]) {
    crate::core::pump::cases::schedule(data);
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

/// Reads `source` with an automatic plan and gives each block to `consume`, from the first to the last.
///
/// # Errors
///
/// See [`Plan::in_order`].
pub fn in_order(
    source: &Source,
    consume: impl FnMut(Block<'_>) -> Result<(), BoxError> + Send,
) -> Result<(), Error> {
    let run = RunOptions { order: Order::InOrder, ..RunOptions::default() };
    Plan::choose(source, &Config::default(), &run)?.in_order(source, consume)
}

/// Reads `source` with an automatic plan and gives each block to `consume` as it arrives, on several
/// threads at once if that helps.
///
/// # Errors
///
/// See [`Plan::any_order`].
pub fn any_order(
    source: &Source,
    consume: impl Fn(Block<'_>) -> Result<(), BoxError> + Sync,
) -> Result<(), Error> {
    Plan::choose(source, &Config::default(), &RunOptions::default())?.any_order(source, consume)
}
