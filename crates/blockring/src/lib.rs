//! Reads files, block devices and pipes through a fixed ring of blocks, with many requests in
//! flight, and lends each finished block to a function of yours.
//!
//! **Extents in, blocks out:**
//!
//! ```text
//!  path ─▶ Source ─▶ Plan ─▶            ring             ─▶ your function,
//!          facts    choice   slots: Free→Requested→Ready    on this thread
//!          of an    + why        ▲           │              or on several
//!          input                 └── engine ─┘ kernel
//! ```
//!
//! A [`Source`] is an opened input. A [`Plan`] says how to read it (which engine, through the page
//! cache or past it, how large the blocks, how many in flight, on how many threads) and why; a
//! default [`Config`] leaves all of it to the facts. Memory is bounded, whatever the length of the
//! source. A run that returns `Ok` has read every byte of one source that did not change meanwhile,
//! as far as size, mtime and ctime show. (Only the engine `null`, for measuring, reads nothing.)
//!
//! # Something else with each block
//!
//! In order, on one thread at a time: SHA-256 through the ring.
//!
//! ```
#![doc = include_str!("../examples/sha256.rs")]
//! ```
//!
//! In any order, on several threads at once, as a [`Config`] asks for it: count the bytes.
//!
//! ```
#![doc = include_str!("../examples/drain.rs")]
//! ```
//!
//! # Scattered reads
//!
//! [`read_batch`] reads many small extents at once, as a database does for a list of keys; a
//! [`BatchReader`] keeps its ring from one batch to the next.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use blockring::{Extent, Source, read_batch};
//! let source = Source::open("/proc/self/exe")?;
//! let magic = Extent { offset: 0, len: 4 };
//! let batch = read_batch(&source, &[magic, Extent { offset: u64::MAX, len: 1 }])?;
//! assert_eq!(batch.get(0).unwrap(), b"\x7fELF");
//! assert!(batch.get(1).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! # A look inside
//!
//! With [`Config::stats`] a [`Plan`] says after a run what it took and who waited for whom; a [`Trace`]
//! writes down what happened when.
//!
//! # Platform
//!
//! Linux. io_uring is used from 5.6 on; without it (old kernels, containers that refuse it) the same
//! program reads with libaio, or with threads that `pread`.

mod advised;
mod batch;
mod buffer;
mod choose;
mod config;
mod engine;
mod error;
mod extents;
mod facts;
mod fan_out;
mod handover;
mod medium;
mod onward;
pub mod pipe;
mod plan;
mod profile;
mod pump;
mod rate;
mod request;
mod ring;
mod sequential;
mod shared;
mod slab;
mod source;
mod stats;
mod stream;
mod sync;
mod sys;
mod trace;
mod tuning;
mod unreadable;
mod workers;

pub use batch::{Batch, BatchReader, Extent, read_batch};
pub use buffer::Buffer;
pub use choose::Choice;
pub use config::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, CacheMode, Config, ConfigError, Consume, DEPTH_MAX,
    EngineKind, HugePages, IoPriority, MEMORY_BYTES_MIN, Order, POOL_THREADS_MAX, SLAB_BYTES_MAX,
    SLOTS_MAX, SQPOLL_IDLE_MS_MAX, Sqpoll, Uring, WORKERS_MAX,
};
pub use error::{BoxError, Change, Error, ErrorKind, Narrowed};
pub use fan_out::Taker;
pub use onward::{Incomplete, Onward, Passing};
pub use plan::Plan;
pub use rate::RateLimit;
pub use shared::{Feed, Member, Shared, SharedReader};
pub use source::{Source, SourceKind, Stamp};
pub use stats::{Bottleneck, Latency, Stats};
pub use trace::Trace;
pub use tuning::{Tuning, Tunings};
pub use unreadable::{BadRange, Mapped};
pub use workers::{Block, ConsumeAnyOrder, ConsumeInOrder};

/// For `fuzz/`: a schedule of the fake engine.
#[cfg(fuzzing)]
pub fn fuzz_schedule(data: &[u8]) {
    pump::cases::schedule(data);
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

/// Reads `source` as the facts say and gives each block to `consume`, from the first to the last.
///
/// For a choice of engine, cache mode or threads, and for the reasons, make the [`Plan`] yourself.
///
/// # Errors
///
/// See [`Plan::in_order`].
pub fn in_order(
    source: &Source,
    consume: impl FnMut(Block<'_>) -> Result<(), BoxError> + Send,
) -> Result<(), Error> {
    Plan::choose(source, &Config::default(), Order::InOrder)?.in_order(consume)
}

/// Reads `source` as the facts say and gives each block to `consume` as it comes, on several threads
/// at once where that helps.
///
/// # Errors
///
/// See [`Plan::any_order`].
pub fn any_order(
    source: &Source,
    consume: impl Fn(Block<'_>) -> Result<(), BoxError> + Sync,
) -> Result<(), Error> {
    Plan::choose(source, &Config::default(), Order::AnyOrder)?.any_order(consume)
}

/// Allows [`EngineKind::Mmap`], once for the process: installs a `SIGBUS` handler for its mappings.
///
/// A file that is truncated while it is mapped then gives an error instead of ending the process. The
/// handler touches nothing but this library's own mappings, and passes every other fault on to the
/// handler that was installed before it.
///
/// # Errors
///
/// What `sigaction` says.
///
/// # Safety
///
/// The blocks of that engine are the page cache itself, and change when anybody writes to the file,
/// even while they are lent as `&[u8]`. The run then ends with an error, but only after its consumers
/// have seen the bytes: they must do nothing that is unsound when two looks at one byte differ.
#[expect(unsafe_code)]
pub unsafe fn allow_mmap() -> std::io::Result<()> {
    sys::sigbus::install()
}
