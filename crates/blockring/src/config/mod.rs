//! Configuration: every option, typed, with its valid range.
//!
//! `None` means "detect automatically": [`Plan`](crate::Plan) decides from the facts of the source.
//! Explicit options are never silently overridden. An explicit engine, cache mode or block size is
//! used as is or rejected with an error; a number beyond use is clamped, and the plan says so.

pub(crate) mod knobs;
pub(crate) mod validate;

use std::fmt;

use crate::rate_limit::RateLimit;
use crate::stop::Stop;
pub(crate) use crate::sys::priority::IoPriority;

/// Smallest block, in bytes: one sector.
pub(crate) const BLOCK_BYTES_MIN: u32 = 512;
/// Largest block, in bytes.
pub(crate) const BLOCK_BYTES_MAX: u32 = 64 << 20;
/// Most requests in flight: the largest io_uring that the kernel sets up (`IORING_MAX_ENTRIES`).
pub(crate) const QUEUE_DEPTH_MAX: u32 = 32768;
/// Most slots on one thread: as many as the deepest queue can use.
pub(crate) const SLOTS_MAX: u32 = 32768;
/// Most memory for the blocks of one run (slots x block size, over all threads), in bytes: 1 GiB.
pub(crate) const SLAB_BYTES_MAX: u64 = 1 << 30;
/// Smallest [`Memory::limit_bytes`]: one block that stays in a core's cache, or a few short ones.
pub(crate) const MEMORY_BYTES_MIN: u64 = 256 << 10;
/// Most worker threads.
pub(crate) const WORKERS_MAX: u32 = 1024;
/// Most threads of the engine `pool` for each consuming thread.
pub(crate) const POOL_THREADS_MAX: u32 = 1024;
/// Longest time the kernel's polling thread may idle before it sleeps, in milliseconds.
pub(crate) const SQPOLL_IDLE_MS_MAX: u32 = 60_000;

/// Slots start at multiples of this, in bytes. 4 KiB is the largest memory alignment that direct
/// I/O needs on the devices in use.
pub(crate) const SLOT_ALIGN_BYTES: u32 = 4096;

/// Returns the memory of one slot for blocks of this size, in bytes.
pub(crate) fn stride_bytes(block_bytes: u32) -> u64 {
    block_bytes.max(1).next_multiple_of(SLOT_ALIGN_BYTES).into()
}

/// How requests reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineKind {
    /// io_uring: many requests in flight through a ring shared with the kernel. Needs Linux 5.6.
    IoUring,
    /// `io_submit` and `io_getevents`: many requests in flight, asynchronous for direct reads only.
    /// Through the page cache, `io_submit` reads before it returns.
    Libaio,
    /// Many requests in flight, each a `preadv2` on one of several threads.
    Pool,
    /// One `preadv2` at a time, on the thread that consumes the block.
    Pread,
    /// One `read` after another at the file position, with a large buffer, as stdio does. The only
    /// way to read a pipe, a terminal or a socket.
    Stream,
    /// Blocks of a mapping of the page cache, without a copy. Needs Linux 5.14
    /// (`MADV_POPULATE_READ`) and [`Config::allow_mmap`].
    Mmap,
    /// No I/O: every read succeeds immediately, and a block contains whatever its slot contained.
    /// Measures the cost of this library and of the consumer.
    Null,
}

/// Implements the list of all values of an enum, and their names in options and messages.
macro_rules! named {
    ($kind:ident { $($value:ident = $name:literal),* $(,)? }) => {
        impl $kind {
            /// Every value.
            pub const ALL: [$kind; [$($name),*].len()] = [$($kind::$value),*];

            /// Returns the name in options and messages.
            pub const fn name(self) -> &'static str {
                match self {
                    $($kind::$value => $name,)*
                }
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

named!(EngineKind {
    IoUring = "io_uring",
    Libaio = "libaio",
    Pool = "pool",
    Pread = "pread",
    Stream = "stream",
    Mmap = "mmap",
    Null = "null",
});

named!(CacheMode { Direct = "direct", Buffered = "buffered", Dontcache = "dontcache" });

impl EngineKind {
    /// Whether a request is complete once it is submitted, so that a second slot gains nothing.
    pub(crate) const fn is_synchronous(self) -> bool {
        match self {
            EngineKind::IoUring | EngineKind::Libaio | EngineKind::Pool => false,
            EngineKind::Pread | EngineKind::Stream | EngineKind::Mmap | EngineKind::Null => true,
        }
    }

    /// Whether blocks are in the engine's own memory, so that no slab is needed.
    pub(crate) const fn owns_memory(self) -> bool {
        match self {
            EngineKind::Mmap => true,
            EngineKind::IoUring | EngineKind::Libaio | EngineKind::Pool => false,
            EngineKind::Pread | EngineKind::Stream | EngineKind::Null => false,
        }
    }

    /// Whether only one thread can read, because there is one file position.
    pub(crate) const fn is_sequential(self) -> bool {
        match self {
            EngineKind::Stream => true,
            EngineKind::IoUring | EngineKind::Libaio | EngineKind::Pool => false,
            EngineKind::Pread | EngineKind::Mmap | EngineKind::Null => false,
        }
    }
}

/// How reads use the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CacheMode {
    /// `O_DIRECT`: the device writes into the slots; the page cache is neither used nor filled.
    Direct,
    /// Through the page cache, which keeps what was read.
    Buffered,
    /// `RWF_DONTCACHE`: through the page cache, which drops what it had to read. Needs Linux 6.14 and
    /// a file system that supports it.
    Dontcache,
}

/// The order in which blocks reach the consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// One after another from the first byte to the last, never two at the same time.
    InOrder,
    /// As they arrive, on several threads at the same time.
    #[default]
    AnyOrder,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Order::InOrder => "in order",
            Order::AnyOrder => "any order",
        })
    }
}

/// When blocks are consumed if several have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Consume {
    /// After each block, its slot is requested again before the next block is consumed, so that the
    /// device always has work.
    #[default]
    Each,
    /// All arrived blocks are consumed before their slots are requested again: fewer system calls,
    /// but the device may become idle.
    Batch,
}

/// What a thread does while it waits for a read, for another thread, or for space in a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Wait {
    /// Sleeps.
    #[default]
    Sleep,
    /// Polls in a busy loop. Takes a whole processor per waiting thread.
    Spin,
}

/// Which pages hold the slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HugePages {
    /// Pages of the base size (`MADV_NOHUGEPAGE`).
    Off,
    /// Transparent huge pages if the kernel has them (`MADV_HUGEPAGE`), otherwise base pages.
    #[default]
    Advise,
    /// Huge pages of 2 MiB from the reserved pool (`MAP_HUGETLB`). Refused if the pool is too
    /// small: see the sysctl `vm.nr_hugepages`.
    Hugetlb,
}

/// How to read.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Io {
    /// How requests reach the kernel. [`EngineKind::Mmap`] needs
    /// [`Config::allow_mmap`].
    pub engine: Option<EngineKind>,
    /// How reads use the page cache.
    pub cache: Option<CacheMode>,
    /// Read from the device, never from a copy in a page cache: direct I/O if it is known to reach
    /// the device, otherwise an error.
    pub bypass_cache: bool,
    /// Bytes of a block, 512 bytes to 64 MiB. Direct I/O needs a multiple of
    /// the device's alignment, usually 512 or 4096.
    pub block_bytes: Option<u32>,
    /// Most requests in flight per thread, `1..=32_768`; at most `slots`. A synchronous engine
    /// always has one at a time.
    pub queue_depth: Option<u32>,
    /// Blocks of memory per thread, `1..=32_768`; for all threads together at most 1 GiB, or
    /// [`Memory::limit_bytes`].
    pub slots: Option<u32>,
    /// Threads besides the first, `0..=1024`. In any order, each of them reads and consumes. In
    /// order, one of them consumes what the calling thread reads, and any others are unused.
    pub workers: Option<u32>,
    /// Most threads in total, including the calling one, if `workers` is not set. Default: the
    /// number of processors that this process may use. 0 counts as 1.
    pub threads_max: Option<u32>,
    /// Threads of the engine `pool` for each consuming thread, `1..=1024`.
    pub pool_threads: Option<u32>,
    /// Deliver blocks in order even if the consumer accepts any order.
    pub in_order: bool,
    /// What threads do while they wait.
    pub wait: Wait,
    /// When blocks are consumed if several have arrived.
    pub consume: Consume,
    /// Most bytes per second, over all runs that share the limit.
    pub rate_limit: Option<RateLimit>,
    /// The priority of reads in the device's queue.
    pub priority: Option<IoPriority>,
    /// Ends every run that shares it, once it is requested.
    pub stop: Option<Stop>,
    /// Whether a measured setting ([`RunOptions::tuning`](crate::RunOptions::tuning)) may apply.
    /// Default: true.
    pub tuned: bool,
}

impl Default for Io {
    fn default() -> Io {
        Io {
            engine: None,
            cache: None,
            bypass_cache: false,
            block_bytes: None,
            queue_depth: None,
            slots: None,
            workers: None,
            threads_max: None,
            pool_threads: None,
            in_order: false,
            wait: Wait::default(),
            consume: Consume::default(),
            rate_limit: None,
            priority: None,
            stop: None,
            tuned: true,
        }
    }
}

/// How much memory to use, and which pages.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Memory {
    /// Most memory for the blocks of a run, over all of its threads, in bytes: 256 KiB or more.
    /// Automatic numbers shrink to fit; explicit numbers that do not fit are an error. Default: 1
    /// GiB; an automatic plan uses 16 MiB.
    pub limit_bytes: Option<u64>,
    /// Which pages hold the slots.
    pub huge_pages: HugePages,
}

/// Options of io_uring. Any of them selects that engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Uring {
    /// `IOSQE_IO_DRAIN`: a request starts after all earlier ones ended: one is in flight.
    pub drain: bool,
    /// `IOSQE_IO_LINK`: the requests of one submission run one after another.
    pub link: bool,
    /// `IORING_SETUP_SQPOLL`: a kernel thread polls for requests, so that submitting needs no
    /// system call. It needs its own core, and Linux 5.11 without privileges. The value is the idle
    /// time in milliseconds after which it sleeps, `0..=60_000`; 0 is the kernel's default, 1 s.
    pub sqpoll: Option<u32>,
    /// The processor that the polling thread is bound to. Default: any.
    pub sqpoll_cpu: Option<u32>,
    /// `IORING_SETUP_IOPOLL`: completions are polled from the device. Only for direct reads of
    /// devices with poll queues.
    pub iopoll: bool,
    /// `IORING_REGISTER_BUFFERS`: the slots are mapped into the kernel and pinned once instead of
    /// for each read. They count against `RLIMIT_MEMLOCK`.
    pub fixed_buffers: bool,
    /// `IORING_REGISTER_FILES`: the file is looked up once instead of for each read.
    pub fixed_file: bool,
}

impl Uring {
    /// Whether any option is set.
    pub(crate) fn is_set(&self) -> bool {
        *self != Uring::default()
    }
}

/// What to record about a run.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Observe {
    /// Collect statistics for [`Plan::stats`](crate::Plan::stats).
    pub stats: bool,
}

/// How to read, in groups of options. The default detects everything, and is almost always right.
///
/// A source that is read as a stream (a pipe, a terminal, a socket) supports only the engine
/// `stream` and the cache mode `buffered`; others are an error.
///
/// ```
/// use blockring::{CacheMode, Config};
/// let config = Config::default().with(|config| {
///     config.io.cache = Some(CacheMode::Direct);
///     config.io.queue_depth = Some(4);
///     config.memory.limit_bytes = Some(16 << 20);
/// });
/// assert!(config.validate().is_ok());
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Config {
    /// How to read.
    pub io: Io,
    /// How much memory to use.
    pub memory: Memory,
    /// Options of io_uring.
    pub uring: Uring,
    /// What to record.
    pub observe: Observe,
    mmap: Option<AllowMmap>,
}

/// Permission to map files, required by [`Config::allow_mmap`].
#[derive(Debug, Clone, Copy)]
pub struct AllowMmap(());

impl AllowMmap {
    /// Returns the permission. The first run that maps a file installs a `SIGBUS` handler, once per
    /// process, that turns the truncation of a mapped file into an error of the run. It affects
    /// only this library's own mappings and passes every other fault on to the handler that was
    /// installed before it.
    ///
    /// # Safety
    ///
    /// The blocks of a mapping are the page cache itself: they change when any process writes to
    /// the file, even while a consumer holds them as `&[u8]`. The run then ends with an error, but
    /// only after its consumers have processed the bytes. Consumers must do nothing that is unsound
    /// if reading a byte twice gives different values.
    #[expect(unsafe_code)]
    pub const unsafe fn new() -> AllowMmap {
        AllowMmap(())
    }
}

/// Formats a size in the largest unit that divides it.
pub(crate) fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes != 0 && bytes.is_multiple_of(1 << shift)) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

impl Config {
    /// Changes options in an expression, because the structs cannot be constructed literally
    /// outside this crate.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Config)) -> Config {
        change(&mut self);
        self
    }

    /// Permits mappings: [`EngineKind::Mmap`], and an automatic plan that maps blocks in the page
    /// cache instead of copying them where that turns out to be faster.
    #[must_use]
    pub fn allow_mmap(mut self, allowed: AllowMmap) -> Config {
        self.mmap = Some(allowed);
        self
    }

    /// Whether blocks may be mapped although the engine is not explicit.
    pub(crate) fn may_map(&self) -> bool {
        self.mmap.is_some() && self.explicit_engine().is_none()
    }

    /// Returns the most bytes of blocks, over all threads of a run.
    pub(crate) fn slab_bytes_max(&self) -> u64 {
        self.memory.limit_bytes.map_or(SLAB_BYTES_MAX, |bytes| bytes.min(SLAB_BYTES_MAX))
    }

    /// Returns the most slots for blocks of this size, over all threads of a run.
    pub(crate) fn slots_max(&self, block_bytes: u32) -> u32 {
        (self.slab_bytes_max() / stride_bytes(block_bytes)) as u32
    }

    /// The explicit number of slots. With a memory limit, an explicit queue depth implies as many.
    pub(crate) fn explicit_slots(&self) -> Option<u32> {
        let is_one = self.io.engine.is_some_and(EngineKind::is_synchronous);
        let is_limited = self.memory.limit_bytes.is_some();
        self.io.slots.or(self.io.queue_depth.filter(|_| is_limited && !is_one))
    }

    /// The explicit number of threads with their own slots if memory is limited, otherwise 1.
    pub(crate) fn explicit_threads(&self) -> u32 {
        let is_limited = self.memory.limit_bytes.is_some();
        1 + self.io.workers.filter(|_| is_limited && !self.io.in_order).unwrap_or(0)
    }

    /// Returns the explicit engine: set by name, or implied by an option that only it supports.
    pub(crate) fn explicit_engine(&self) -> Option<EngineKind> {
        match self.io.engine {
            None if self.uring.is_set() => Some(EngineKind::IoUring),
            None if self.io.pool_threads.is_some() => Some(EngineKind::Pool),
            engine => engine,
        }
    }

    /// Returns the explicit cache mode: set by name, or implied by an option that requires it.
    pub(crate) fn explicit_cache(&self) -> Option<CacheMode> {
        match self.io.bypass_cache || self.uring.iopoll {
            true => Some(CacheMode::Direct),
            false => self.io.cache,
        }
    }

    /// Whether block size, queue depth or slots are explicit.
    pub(crate) fn has_explicit_shape(&self) -> bool {
        self.io.block_bytes.or(self.io.queue_depth).or(self.io.slots).is_some()
    }

    /// Whether a measured setting may be used. Its values were measured together, so none of them
    /// applies if another one is explicit.
    pub(crate) fn accepts_tuning(&self) -> bool {
        let is_shaped = self.has_explicit_shape();
        let is_automatic = self.explicit_engine().is_none() && self.io.cache.is_none();
        self.io.tuned && is_automatic && !is_shaped
    }

    /// Whether no option about how to read is explicit.
    pub(crate) fn is_automatic(&self) -> bool {
        self.explicit_engine().is_none()
            && self.explicit_cache().is_none()
            && !self.has_explicit_shape()
            && self.io.workers.is_none()
            && self.memory.huge_pages == HugePages::default()
    }
}
