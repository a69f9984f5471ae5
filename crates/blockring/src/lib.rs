//! Reads files, block devices and pipes through a fixed ring of blocks, with many requests in
//! flight, and passes each block to your callback.
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
//! A [`Source`] is an opened input. A [`Plan`] decides how to read it (engine, cache mode, block
//! size, queue depth and threads) and reports why. With a default [`Config`] everything is detected
//! automatically; explicit options are never silently overridden. Memory is bounded, whatever the
//! length of the source. A run that returns `Ok` has read every byte of one source that did not
//! change meanwhile, as far as size, mtime and ctime show. (Only the engine `null`, for
//! measurements, reads nothing.)
//!
//! # Your own consumer
//!
//! In order, on one thread at a time: SHA-256 with the ring.
//!
//! ```
#![doc = include_str!("../examples/sha256.rs")]
//! ```
//!
//! In any order, on several threads at the same time: count the bytes.
//!
//! ```
#![doc = include_str!("../examples/drain.rs")]
//! ```
//!
//! # Scattered reads
//!
//! A [`BatchReader`] reads many small extents at once, as a database does for a list of keys, and
//! keeps its ring from one batch to the next.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use blockring::{BatchReader, Config, Extent, Source};
//! let source = Source::open(std::env::current_exe()?)?;
//! let magic = Extent { offset: 0, len: 4 };
//! let mut reader = BatchReader::new(&source, &Config::default())?;
//! let batch = reader.read_batch(&[magic, Extent { offset: u64::MAX, len: 1 }])?;
//! assert_eq!(batch.get(0).unwrap(), b"\x7fELF");
//! assert!(batch.get(1).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! # Diagnostics
//!
//! [`Plan::choices`] returns each choice with its reason. With [`Observe::stats`], [`Plan::stats`]
//! returns counters, latencies and wait times after a run; a [`Trace`] records every event.
//!
//! # Platform
//!
//! Linux. io_uring is used from Linux 5.6 on. Without it (old kernels, containers that block it)
//! the same program reads with libaio, or with threads that call `pread`.
//!
//! x86-64; arm64 was never run on a real machine. Pages of 4, 16 or 64 KiB. Targets with 32 bits and big-endian ones do not compile.

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "blockring needs a 64-bit target: offsets and lengths of files do not fit in 32 bits, and no test was run there"
);
#[cfg(not(target_endian = "little"))]
compile_error!(
    "blockring needs a little-endian target: no test was run on any other, and a wrong digest is worse than none"
);

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
mod stop;
mod sys;

pub use self::{
    config::{
        AllowMmap, CacheMode, Config, Consume, EngineKind, HugePages, Io, Memory, Observe, Order,
        Uring, Wait,
        knobs::{KNOBS, Knob, parse_size},
        validate::ConfigError,
    },
    core::buffer::Buffer,
    error::{BoxError, Change, Error, ErrorKind, Precision},
    observe::{
        stats::{Latency, Stats},
        trace::Trace,
    },
    pipe::tee::{Tee, TeeMode},
    plan::{Plan, RunOptions, choose::Choice, tuning::Tuning},
    rate_limit::RateLimit,
    run::{
        bad_ranges::BadRange,
        batch::{Batch, BatchReader, Extent},
        broadcast::Consumer,
        file_queue::{FileQueue, QueueReader, ReaderKind},
        threads::Block,
    },
    source::{Source, SourceKind, fingerprint::Fingerprint},
    stop::Stop,
    sys::priority::IoPriority,
};

/// Locks a mutex, even if a thread panicked while holding it.
fn lock<X>(mutex: &std::sync::Mutex<X>) -> std::sync::MutexGuard<'_, X> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// For `fuzz/`: a schedule of the fake engine.
#[cfg(fuzzing)]
pub fn fuzz_schedule(data: &[u8]) {
    crate::core::pump::cases::schedule(data);
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod replay;
