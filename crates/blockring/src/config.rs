//! Every knob, typed, with its legal range; no flags, no environment, no facts of a source.
//!
//! `None` means *choose by the facts*: [`Plan`](crate::Plan) does. An engine, a cache mode or a block
//! size that is set here is used as it is or refused, never replaced; numbers that exceed what is of
//! use are clamped, and the plan says so.

use std::fmt;

use crate::rate::RateLimit;
use crate::trace::Trace;
use crate::tuning::Tunings;

/// Smallest block, in bytes: one sector.
pub const BLOCK_BYTES_MIN: u32 = 512;
/// Largest block, in bytes.
pub const BLOCK_BYTES_MAX: u32 = 64 << 20;
/// Most requests in flight: the most entries that the kernel gives one io_uring
/// (`IORING_MAX_ENTRIES`).
pub const DEPTH_MAX: u32 = 32768;
/// Most slots: as many as requests in flight can ever use.
pub const SLOTS_MAX: u32 = 32768;
/// Most memory for blocks in one run (slots x block, over all threads), in bytes: 1 GiB.
pub const SLAB_BYTES_MAX: u64 = 1 << 30;
/// Most worker threads.
pub const WORKERS_MAX: u32 = 1024;
/// Most threads of the engine `pool` for one thread that consumes.
pub const POOL_THREADS_MAX: u32 = 1024;
/// Longest time that a polling thread of the kernel may be idle before it sleeps, in milliseconds.
pub const SQPOLL_IDLE_MS_MAX: u32 = 60_000;

/// Slots are placed at multiples of this, in bytes: the largest direct-I/O memory alignment that
/// devices ask for is a page of 4 KiB.
pub(crate) const SLOT_ALIGN_BYTES: u32 = 4096;

/// Most slots for blocks of this size, within [`SLAB_BYTES_MAX`].
pub(crate) fn slots_max(block_bytes: u32) -> u32 {
    let stride_bytes = block_bytes.max(1).next_multiple_of(SLOT_ALIGN_BYTES);
    (SLAB_BYTES_MAX / u64::from(stride_bytes)) as u32
}

/// How a request reaches the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineKind {
    /// Many requests in flight through one ring shared with the kernel. Needs Linux 5.6.
    IoUring,
    /// Many requests in flight through `io_submit` and `io_getevents`. Asynchronous for direct reads
    /// only: through the page cache each `io_submit` reads before it returns.
    Libaio,
    /// Many requests in flight, each a `preadv2` on one of several threads.
    Pool,
    /// One `preadv2` at a time on the thread that consumes the block.
    Pread,
    /// One `read` after another from the file position on, with a large buffer: what stdio does, and
    /// the only way to read a pipe, a terminal or a socket. One thread reads.
    Stream,
    /// Blocks lent straight out of a mapping of the page cache. Needs Linux 5.14
    /// (`MADV_POPULATE_READ`) and [`allow_mmap`](crate::allow_mmap).
    Mmap,
    /// No I/O at all: every read "succeeds" at once and the block holds whatever the slab held.
    /// It measures the cost of this library and of the consumer.
    Null,
}

impl EngineKind {
    /// Every engine.
    pub const ALL: [EngineKind; 7] = [
        EngineKind::IoUring,
        EngineKind::Libaio,
        EngineKind::Pool,
        EngineKind::Pread,
        EngineKind::Stream,
        EngineKind::Mmap,
        EngineKind::Null,
    ];

    /// The name used in options and messages.
    pub const fn name(self) -> &'static str {
        match self {
            EngineKind::IoUring => "io_uring",
            EngineKind::Libaio => "libaio",
            EngineKind::Pool => "pool",
            EngineKind::Pread => "pread",
            EngineKind::Stream => "stream",
            EngineKind::Mmap => "mmap",
            EngineKind::Null => "null",
        }
    }

    /// Whether a request is finished when it is submitted, so that a second slot gains nothing.
    pub(crate) const fn is_synchronous(self) -> bool {
        !matches!(self, EngineKind::IoUring | EngineKind::Libaio | EngineKind::Pool)
    }

    /// Whether blocks lie in the engine's own memory and no slab is needed.
    pub(crate) const fn lends(self) -> bool {
        matches!(self, EngineKind::Mmap)
    }

    /// Whether one thread alone can read, since the file position is one.
    pub(crate) const fn is_sequential(self) -> bool {
        matches!(self, EngineKind::Stream)
    }
}

/// What a read does to the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CacheMode {
    /// `O_DIRECT`: the device writes into our slots; the page cache is neither used nor filled.
    Direct,
    /// Through the page cache, which keeps what was read.
    Buffered,
    /// `RWF_DONTCACHE`: through the page cache, which drops what it had to read for us. Needs Linux
    /// 6.14 and a file system that supports it.
    Dontcache,
}

impl CacheMode {
    /// Every mode.
    pub const ALL: [CacheMode; 3] = [CacheMode::Direct, CacheMode::Buffered, CacheMode::Dontcache];

    /// The name used in options and messages.
    pub const fn name(self) -> &'static str {
        match self {
            CacheMode::Direct => "direct",
            CacheMode::Buffered => "buffered",
            CacheMode::Dontcache => "dontcache",
        }
    }
}

/// How blocks reach the consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// One after another from the first to the last byte, never two at once.
    InOrder,
    /// As they arrive, on several threads at once.
    AnyOrder,
}

impl Order {
    /// The name used in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Order::InOrder => "in order",
            Order::AnyOrder => "any order",
        }
    }
}

/// When blocks are consumed, if several have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Consume {
    /// After each block its slot is requested again, before the next block: the device always has
    /// something to do.
    #[default]
    Each,
    /// First all that has come is consumed, then as much is requested again: fewer system calls, and a
    /// device that may run dry.
    Batch,
}

/// Which pages hold the slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HugePages {
    /// Pages of the usual size (`MADV_NOHUGEPAGE`).
    Off,
    /// Transparent huge pages where the kernel has them (`MADV_HUGEPAGE`), other pages elsewhere.
    #[default]
    Advise,
    /// Huge pages of 2 MiB from the reserved pool (`MAP_HUGETLB`); refused where that has too few: see
    /// the sysctl `vm.nr_hugepages`.
    Hugetlb,
}

/// What [`EngineKind::IoUring`] may be told besides. The default is none of it; any of it asks for
/// that engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Uring {
    /// `IOSQE_IO_DRAIN`: a request starts when all before it have ended. In effect one is in flight.
    pub drain: bool,
    /// `IOSQE_IO_LINK`: the requests of one submission run one after another.
    pub link: bool,
    /// `IORING_SETUP_SQPOLL`: a thread of the kernel takes requests, so that submitting needs no
    /// system call. It wants a core to itself. Needs Linux 5.11 without privileges.
    pub sqpoll: Option<Sqpoll>,
    /// `IORING_SETUP_IOPOLL`: completions are polled for at the device. Only for direct reads of
    /// devices with poll queues.
    pub iopoll: bool,
    /// `IORING_REGISTER_BUFFERS`: the slots are mapped into the kernel and pinned once, not for each
    /// read. They count against `RLIMIT_MEMLOCK`.
    pub fixed_buffers: bool,
    /// `IORING_REGISTER_FILES`: the file is looked up once, not for each read.
    pub fixed_file: bool,
}

impl Uring {
    /// Whether anything is asked for.
    pub(crate) fn is_set(&self) -> bool {
        *self != Uring::default()
    }
}

/// The polling thread of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sqpoll {
    /// Milliseconds without work after which it sleeps, `0..=`[`SQPOLL_IDLE_MS_MAX`]; 0 is the
    /// kernel's default of one second.
    pub idle_ms: u32,
    /// The processor that it is bound to; `None`: any.
    pub cpu: Option<u32>,
}

/// The place of reads in the queue of the device (`ioprio_set(2)`), where its scheduler has one: BFQ
/// and mq-deadline do, `none` does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IoPriority {
    /// Only when nobody else has used the device for a while.
    Idle,
    /// From 0, the first, to 7, the last; 4 is what a process has as a rule.
    BestEffort(u8),
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for CacheMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the caller wants of a run. The default wants nothing in particular and is almost always
/// right: every `None` is chosen from the facts of the source.
///
/// A source that is read as a stream (a pipe, a file without a length) has one engine, `stream`, and
/// refuses another, and every cache mode but `buffered`.
///
/// What each knob costs, and when it helps, is in `docs/tuning.md`, with measurements.
///
/// ```
/// use blockring::{CacheMode, Config};
/// let config = Config { cache: Some(CacheMode::Direct), depth: Some(4), ..Config::default() };
/// assert!(config.validate().is_ok());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// How requests reach the kernel.
    pub engine: Option<EngineKind>,
    /// What reads do to the page cache.
    pub cache: Option<CacheMode>,
    /// Bytes of a block, [`BLOCK_BYTES_MIN`]`..=`[`BLOCK_BYTES_MAX`]. For direct I/O it must be a
    /// multiple of the device's alignment (512 or 4096 as a rule).
    pub block_bytes: Option<u32>,
    /// Most requests in flight on one thread, `1..=`[`DEPTH_MAX`]. More than `slots` is the same as
    /// `slots`. A synchronous engine has one at a time whatever is said here.
    pub depth: Option<u32>,
    /// Blocks of memory on one thread, `1..=`[`SLOTS_MAX`]; on all threads together at most
    /// [`SLAB_BYTES_MAX`].
    pub slots: Option<u32>,
    /// Threads besides the first, `0..=`[`WORKERS_MAX`]. In [`Order::AnyOrder`] each of them reads and
    /// consumes (and the first need not be the calling thread); in [`Order::InOrder`] one of them
    /// consumes what the calling thread reads, and more than one is the same as one.
    pub workers: Option<u32>,
    /// In [`Order::InOrder`], when `workers` is not set: how many consumers there are that are worth threads of
    /// their own, as [`Plan::to_each`](crate::Plan::to_each) gives blocks to. Default: 0, the calling thread
    /// consumes.
    pub consumers: u32,
    /// Most threads to use in all, the calling one included, when `workers` is not set. Default: as
    /// many as there are processors for this process. 0 counts as 1.
    pub threads_max: Option<u32>,
    /// Threads of the engine `pool`, `1..=`[`POOL_THREADS_MAX`], for each thread that consumes.
    pub pool_threads: Option<u32>,
    /// [`Order::InOrder`] where the consumer would take any order. (It cannot be the other way round.)
    pub in_order: bool,
    /// Threads that wait for a read or for each other do so in a busy loop instead of sleeping.
    pub spin: bool,
    /// When blocks are consumed, if several have come.
    pub consume: Consume,
    /// Which pages hold the slots.
    pub huge_pages: HugePages,
    /// What io_uring is told besides.
    pub uring: Uring,
    /// Read what the medium holds, never what a page cache has of it: direct I/O where that is known
    /// to go to a device, refused elsewhere with the reason.
    pub medium: bool,
    /// Most bytes per second, over all runs that share it.
    pub rate_limit: Option<RateLimit>,
    /// The place of reads in the queue of the device.
    pub io_priority: Option<IoPriority>,
    /// Settings that were measured best on devices of this machine. They stand in for the built-in ones
    /// where a single source is read past the page cache and none of `engine`, `cache`, `block_bytes`,
    /// `depth`, `slots`, `pool_threads` and `uring` is set. Default: none are known.
    pub tuned: Option<Tunings>,
    /// Take statistics, for [`Plan::stats`](crate::Plan::stats).
    pub stats: bool,
    /// Write down what happens when.
    pub trace: Option<Trace>,
}

/// A value of a [`Config`] outside its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// One number is out of its range.
    #[error("{name} is {value}, and must be from {min} to {max}")]
    Range {
        /// The field.
        name: &'static str,
        /// What it was.
        value: u64,
        /// The least legal value.
        min: u64,
        /// The greatest legal value.
        max: u64,
    },
    /// The slots of all threads would take more than [`SLAB_BYTES_MAX`].
    #[error(
        "{slots} slots of {block_bytes} bytes on {threads} thread{} are more than 1 GiB: take at \
         most {} slots of this size in all",
        if *.threads == 1 { "" } else { "s" },
        slots_max(*.block_bytes)
    )]
    Slab {
        /// Slots asked for.
        slots: u32,
        /// Bytes of a block.
        block_bytes: u32,
        /// Threads that read.
        threads: u32,
    },
    /// Two choices that exclude each other.
    #[error("{0}")]
    Contradiction(&'static str),
}

impl Config {
    /// Checks every field against its range, and the fields against each other.
    ///
    /// # Errors
    ///
    /// The first field that is out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let range = |name, value: Option<u32>, min: u32, max: u32| match value {
            Some(v) if v < min || v > max => {
                Err(ConfigError::Range { name, value: v.into(), min: min.into(), max: max.into() })
            }
            _ => Ok(()),
        };
        range("block size", self.block_bytes, BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)?;
        range("depth", self.depth, 1, DEPTH_MAX)?;
        range("slots", self.slots, 1, SLOTS_MAX)?;
        range("workers", self.workers, 0, WORKERS_MAX)?;
        range("pool threads", self.pool_threads, 1, POOL_THREADS_MAX)?;
        range("SQPOLL idle time", self.uring.sqpoll.map(|s| s.idle_ms), 0, SQPOLL_IDLE_MS_MAX)?;
        if let Some(IoPriority::BestEffort(level @ 8..)) = self.io_priority {
            let (value, min, max) = (level.into(), 0, 7);
            return Err(ConfigError::Range { name: "I/O priority", value, min, max });
        }
        if let (Some(slots), Some(block_bytes)) = (self.slots, self.block_bytes)
            && slots > slots_max(block_bytes)
        {
            return Err(ConfigError::Slab { slots, block_bytes, threads: 1 });
        }
        match self.contradiction() {
            Some(what) => Err(ConfigError::Contradiction(what)),
            None => Ok(()),
        }
    }

    /// Two choices that exclude each other.
    fn contradiction(&self) -> Option<&'static str> {
        let too_long = |limit: &RateLimit| {
            self.block_bytes
                .is_some_and(|bytes| u64::from(bytes) > limit.bytes_per_s().get().max(4096))
        };
        let not_direct = matches!(self.cache, Some(CacheMode::Buffered | CacheMode::Dontcache));
        let other_engine = |wanted| self.engine.is_some_and(|engine| engine != wanted);
        let rules = [
            (
                self.engine == Some(EngineKind::Mmap)
                    && (self.medium
                        || self.cache.is_some_and(|cache| cache != CacheMode::Buffered)),
                "engine mmap reads the page cache itself: it goes with cache mode buffered only",
            ),
            (
                self.engine == Some(EngineKind::Mmap) && self.huge_pages != HugePages::default(),
                "engine mmap has no slots, so no huge pages for them",
            ),
            (
                self.uring.is_set() && other_engine(EngineKind::IoUring),
                "drain, link, SQPOLL, IOPOLL, fixed buffers and a fixed file are of the engine \
                 io_uring, and another was asked for",
            ),
            (
                self.pool_threads.is_some() && other_engine(EngineKind::Pool),
                "pool threads are of the engine pool, and another was asked for",
            ),
            (
                self.medium && not_direct,
                "the medium is read past the page cache: it goes with cache mode direct only",
            ),
            (
                self.uring.iopoll && not_direct,
                "IOPOLL polls the device: it goes with cache mode direct only",
            ),
            (
                self.rate_limit.as_ref().is_some_and(too_long),
                "a block is more than may be read in a second: take smaller blocks, or none by name",
            ),
            (
                self.uring.drain && self.uring.link,
                "drain and link are two ways to force an order: take one",
            ),
        ];
        rules.into_iter().find_map(|(is_wrong, what)| is_wrong.then_some(what))
    }

    /// The engine that was asked for, by name or by what only it has.
    pub(crate) fn engine_asked(&self) -> Option<EngineKind> {
        match self.engine {
            None if self.uring.is_set() => Some(EngineKind::IoUring),
            None if self.pool_threads.is_some() => Some(EngineKind::Pool),
            engine => engine,
        }
    }

    /// The cache mode that was asked for, by name or by what only it has.
    pub(crate) fn cache_asked(&self) -> Option<CacheMode> {
        match self.medium || self.uring.iopoll {
            true => Some(CacheMode::Direct),
            false => self.cache,
        }
    }

    /// Whether nothing was asked for of what is measured together: one part of it says nothing about
    /// the others.
    pub(crate) fn takes_tuning(&self) -> bool {
        let unshaped = self.block_bytes.or(self.depth).or(self.slots).is_none();
        self.engine_asked().is_none() && self.cache.is_none() && unshaped
    }

    /// Whether nothing about how to read was asked for, so that a small file may be read in one go.
    pub(crate) fn is_auto(&self) -> bool {
        self.engine_asked().is_none()
            && self.cache_asked().is_none()
            && self.block_bytes.is_none()
            && self.depth.is_none()
            && self.slots.is_none()
            && self.workers.is_none()
            && self.huge_pages == HugePages::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_named_in_the_error() {
        let iopoll = Uring { iopoll: true, ..Uring::default() };
        let cases: [(Config, &str); 9] = [
            (Config { block_bytes: Some(511), ..Config::default() }, "from 512 to 67108864"),
            (Config { block_bytes: Some(u32::MAX), ..Config::default() }, "from 512 to 67108864"),
            (Config { depth: Some(0), ..Config::default() }, "from 1 to 32768"),
            (Config { slots: Some(32769), ..Config::default() }, "from 1 to 32768"),
            (Config { workers: Some(1025), ..Config::default() }, "from 0 to 1024"),
            (
                Config { slots: Some(17), block_bytes: Some(64 << 20), ..Config::default() },
                "at most 16 slots",
            ),
            (
                Config { io_priority: Some(IoPriority::BestEffort(8)), ..Config::default() },
                "from 0 to 7",
            ),
            (
                Config { uring: iopoll, engine: Some(EngineKind::Libaio), ..Config::default() },
                "of the engine io_uring",
            ),
            (
                Config { medium: true, cache: Some(CacheMode::Buffered), ..Config::default() },
                "direct only",
            ),
        ];
        for (config, part) in cases {
            let message = config.validate().expect_err(part).to_string();
            assert!(message.contains(part), "{message}");
        }
        Config::default().validate().expect("the default is legal");
    }
}
