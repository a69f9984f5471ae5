//! The table of decisions: how to read given certain facts, each choice with its reason.
//!
//! Pure, so that every row can be tested, even for devices that this machine does not have.

use super::engine::next_best;
use super::profile::{self, direct_is_faster};
use super::tuning::Tuning;
pub(super) use crate::config::size;
use crate::config::{
    BLOCK_BYTES_MAX, CacheMode, Config, Consume, EngineKind, HugePages, IoPriority, Order, Uring,
    Wait, stride_bytes,
};
use crate::error::ErrorKind;
use crate::rate_limit::RateLimit;
use crate::source::SourceKind;
use crate::source::facts::Facts;
use crate::source::file_system::Storage;
use crate::sys;

/// One choice of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// The name of the choice: `engine`, `page-cache`, `block-size`, `queue-depth`, `slots`, `workers`, `order`,
    /// and `knobs` if any are set. `source` describes the facts, `memory` is present if it is
    /// limited, and `tuned` if a measured setting is not used.
    pub what: &'static str,
    /// The value chosen.
    pub value: String,
    /// The reason.
    pub why: String,
}

/// The decisions about the ring and its threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RingPlan {
    pub(crate) engine: EngineKind,
    pub(crate) cache: CacheMode,
    pub(crate) block_bytes: u32,
    /// Requests in flight, at first.
    pub(crate) depth: u32,
    /// The most in flight, if more turn out to be faster; at least `depth`.
    pub(crate) depth_max: u32,
    pub(crate) slots: u32,
    /// Threads besides the calling one.
    pub(crate) workers: u32,
    /// Slots of each worker thread, in any order.
    pub(crate) worker_slots: u32,
    pub(crate) start: Start,
    /// Alignment of reads in bytes; 1 unless direct.
    pub(crate) align: u32,
    pub(crate) order: Order,
    pub(crate) read_ahead: ReadAhead,
    pub(crate) pool_threads: u32,
    pub(crate) consume: Consume,
    pub(crate) wait: Wait,
    pub(crate) huge_pages: HugePages,
    pub(crate) uring: Uring,
    /// Whether memory is limited, so that none must be wasted besides the slots.
    pub(crate) is_bounded: bool,
    /// Whether blocks may be mapped instead of copied, where that is faster.
    pub(crate) may_map: bool,
}

/// What the kernel is advised about reading ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadAhead {
    /// Nothing.
    Default,
    /// The file is read sequentially, and once.
    Sequential,
    /// Only the bytes of each read.
    Off,
}

/// With a limit on memory below this, in bytes, the kernel is advised not to read ahead: what it
/// reads counts against a control group, and the process is killed if a window (8 MiB on some
/// disks) is in flight when the group is full.
const READ_AHEAD_BYTES_MIN: u64 = 16 << 20;

/// Shortest file for which it is tried whether mapping is faster than copying, in bytes: the trial
/// maps 2 MiB, which takes up to 1.3 times as long as copying them.
const MAPPED_BYTES_MIN: u64 = 32 << 20;

/// Bytes of a huge page.
const HUGE_PAGE_BYTES: u64 = 2 << 20;

impl RingPlan {
    /// Returns a plan for one read of `bytes` on the calling thread.
    pub(super) fn one_read(bytes: u32, order: Order, config: &Config) -> RingPlan {
        RingPlan {
            engine: EngineKind::Pread,
            cache: CacheMode::Buffered,
            block_bytes: bytes.max(1),
            depth: 1,
            depth_max: 1,
            slots: 1,
            workers: 0,
            worker_slots: 1,
            start: Start::AtOnce,
            align: 1,
            order,
            read_ahead: ReadAhead::Default,
            pool_threads: 1,
            consume: Consume::default(),
            wait: config.io.wait,
            // The longest would get a huge page, which takes longer to zero than the file to read.
            huge_pages: HugePages::Off,
            uring: Uring::default(),
            is_bounded: false,
            may_map: false,
        }
    }

    /// Returns the kind of pages for this many slots. The last huge page is allocated completely
    /// even if slots fill only part of it, so with limited memory they are used only if filled.
    pub(crate) fn pages(&self, slots: u32) -> HugePages {
        let bytes = u64::from(slots) * stride_bytes(self.block_bytes);
        let is_lost = self.is_bounded && !bytes.is_multiple_of(HUGE_PAGE_BYTES);
        match self.huge_pages {
            HugePages::Advise if is_lost => HugePages::Off,
            pages => pages,
        }
    }

    /// Returns the `RWF_*` flags of each read.
    pub(crate) fn flags(&self) -> i32 {
        if self.cache == CacheMode::Dontcache { sys::RWF_DONTCACHE } else { 0 }
    }
}

/// Calls `make` with the engine of `ring`, or with the next best one if that is not available: it
/// worked a moment ago, but not for a ring of this size, or not any more. `may_fall_back` is
/// checked after a failure: no extent may have been assigned, as another engine would not get it.
pub(crate) fn with_fallback<R>(
    ring: &mut RingPlan,
    may_fall_back: impl Fn() -> bool,
    mut make: impl FnMut(&RingPlan) -> Result<R, ErrorKind>,
) -> Result<R, ErrorKind> {
    loop {
        match make(ring) {
            Err(ErrorKind::Engine { engine, why }) if may_fall_back() => {
                match next_best(engine, ring.cache) {
                    Some(engine) => ring.engine = engine,
                    None => return Err(ErrorKind::Engine { engine, why }),
                }
            }
            result => return result,
        }
    }
}

/// When worker threads start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// Immediately, and their number is explicit: it is an error if one cannot be started.
    Explicit,
    /// Immediately.
    AtOnce,
    /// When the device has been faster than one consumer for a while.
    WhenBehind,
}

/// What the system offers, apart from the source.
pub(super) struct System<'a> {
    /// Checks that io_uring is available with these options; called only if it matters.
    pub(super) io_uring: &'a dyn Fn(&Uring) -> Result<(), String>,
    /// The same for libaio.
    pub(super) libaio: &'a dyn Fn() -> Result<(), String>,
    /// Returns the setting measured best on the device, or why an existing one does not apply.
    pub(super) tuning: &'a dyn Fn() -> Option<Result<Tuning, String>>,
    /// Whether a run may search for a better queue depth.
    pub(super) searches_depth: bool,
    /// Processors that this process may use.
    pub(super) cores: u32,
}

/// Collects choices while they are made.
pub(super) struct Chooser<'a> {
    pub(super) facts: &'a Facts,
    pub(super) config: &'a Config,
    pub(super) order: Order,
    /// Number of consumers in order that should have their own threads.
    pub(super) consumers: u32,
    pub(super) system: &'a System<'a>,
    /// The setting measured best here, if it is used.
    pub(super) tuning: Option<Tuning>,
    pub(super) choices: Vec<Choice>,
}

pub(super) const EXPLICIT: &str = "explicit";

/// Decides how to read. `order`: the order needed, and how many consumers should have threads.
pub(super) fn decide(
    facts: &Facts,
    config: &Config,
    (order, consumers): (Order, u32),
    system: &System<'_>,
) -> Result<(RingPlan, Vec<Choice>), ErrorKind> {
    let order = if config.io.in_order { Order::InOrder } else { order };
    let (tuning, choices) = (None, Vec::new());
    let mut chooser = Chooser { facts, config, order, consumers, system, tuning, choices };
    chooser.describe();
    if let Some(bytes) = config.memory.limit_bytes {
        chooser.note("memory", size(bytes), "limit for all blocks, over all threads");
    }
    let cache = chooser.cache()?;
    chooser.find_tuning(cache);
    let engine = chooser.engine(cache)?;
    let block_bytes = chooser.block(engine, cache)?;
    if engine.is_sequential() {
        chooser.order = Order::InOrder;
    }
    let (depth, slots) = chooser.depth_and_slots(engine, block_bytes)?;
    let depth_max = chooser.depth_max(engine, cache, block_bytes, depth);
    let (workers, start) = chooser.workers(engine, cache, block_bytes, slots);
    let worker_slots = chooser.worker_slots(engine, block_bytes, slots, workers)?;
    chooser.note_order(engine);
    chooser.note_knobs(engine, depth);
    let is_copied = (engine, cache, slots) == (EngineKind::Pread, CacheMode::Buffered, 1);
    let may_map = is_copied && chooser.may_map();
    let align = match cache {
        CacheMode::Direct => facts.direct.as_ref().copied().unwrap_or(1),
        _ => 1,
    };
    let ring = RingPlan {
        engine,
        cache,
        block_bytes,
        depth,
        depth_max,
        slots: slots.max(depth_max),
        workers,
        worker_slots,
        start,
        align,
        order: chooser.order,
        read_ahead: match (cache, engine) {
            // A mapping reads ahead on its own; advice gained nothing.
            (_, EngineKind::Mmap | EngineKind::Null) => ReadAhead::Default,
            (CacheMode::Buffered, _) if is_tight(config) => ReadAhead::Off,
            (CacheMode::Buffered, _) if chooser.fills(cache) => ReadAhead::Sequential,
            _ => ReadAhead::Default,
        },
        pool_threads: chooser.pool_threads(),
        consume: config.io.consume,
        wait: config.io.wait,
        huge_pages: config.memory.huge_pages,
        uring: chooser.uring(),
        is_bounded: config.memory.limit_bytes.is_some(),
        may_map,
    };
    Ok((ring, chooser.choices))
}

/// Whether memory is limited so much that reading ahead does not fit.
pub(super) fn is_tight(config: &Config) -> bool {
    config.memory.limit_bytes.is_some_and(|bytes| bytes < READ_AHEAD_BYTES_MIN)
}

/// Returns the longest block under a rate limit, in bytes: an eighth of a second.
pub(super) fn limited_block_bytes(limit: &RateLimit) -> u32 {
    let most = limit.bytes_per_s().get() / 8;
    1 << most.clamp(4096, BLOCK_BYTES_MAX.into()).ilog2()
}

impl Chooser<'_> {
    pub(super) fn note(
        &mut self,
        what: &'static str,
        value: impl Into<String>,
        why: impl Into<String>,
    ) {
        self.choices.push(Choice { what, value: value.into(), why: why.into() });
    }

    /// Whether seeks will be expensive: the device is rotational, and it will be read.
    pub(super) fn seeks_are_slow(&self) -> bool {
        self.facts.is_rotational() && self.prefers_direct()
    }

    /// Whether reads fill the page cache.
    pub(super) fn fills(&self, cache: CacheMode) -> bool {
        cache != CacheMode::Direct
            && !matches!(self.facts.storage, Storage::Memory | Storage::Pseudo)
            && self.prefers_direct()
    }

    /// Whether reads wait for a device of this machine. (A network client has its own requests in
    /// flight; io_uring would only add threads.)
    pub(super) fn waits_for_device(&self, cache: CacheMode) -> bool {
        self.facts.storage == Storage::Local && (cache == CacheMode::Direct || self.fills(cache))
    }

    /// Whether so little of the file is in the page cache that direct reads are faster.
    fn prefers_direct(&self) -> bool {
        direct_is_faster(self.facts.resident.unwrap_or(0.0))
    }

    fn describe(&mut self) {
        let facts = self.facts;
        let resident = match facts.resident {
            Some(part) => format!("{:.0} % in the page cache", part * 100.0),
            None => "how much of it is in the page cache is unknown".to_owned(),
        };
        let direct = match &facts.direct {
            Ok(align) => format!("direct I/O at multiples of {align}"),
            Err(why) => format!("no direct I/O: {why}"),
        };
        let device = match (facts.rotational, facts.seek) {
            (Some(true), Some(seek)) => format!(
                "; reported as rotational, {} in {:.2} ms{}",
                if facts.is_rotational() { "and responds" } else { "but responds" },
                seek.as_secs_f64() * 1e3,
                if facts.is_rotational() { "" } else { ", so treated as an SSD" }
            ),
            (Some(true), None) => "; the device is rotational".to_owned(),
            _ => String::new(),
        };
        let on = if facts.kind == SourceKind::BlockDevice { "" } else { "on " };
        let why = format!("{on}{}; {resident}; {direct}{device}", facts.file_system);
        self.note("source", size(facts.len), why);
    }

    fn cache(&mut self) -> Result<CacheMode, ErrorKind> {
        let facts = self.facts;
        if self.config.io.bypass_cache {
            facts.bypass.clone().map_err(ErrorKind::BypassCache)?;
        }
        if let Some(cache) = self.config.explicit_cache() {
            let refused = match cache {
                CacheMode::Direct => facts.direct.as_ref().err(),
                CacheMode::Dontcache => facts.dontcache.as_ref().err(),
                CacheMode::Buffered => None,
            };
            if let Some(why) = refused {
                return Err(ErrorKind::Cache { cache, why: why.clone() });
            }
            self.note("page-cache", cache.name(), EXPLICIT);
            return Ok(cache);
        }
        let percent = facts.resident.unwrap_or(0.0) * 100.0;
        let misfit = self.config.io.block_bytes.filter(|block_bytes| {
            facts.direct.as_ref().is_ok_and(|align| !block_bytes.is_multiple_of(*align))
        });
        let (cache, why) = match (&facts.direct, facts.storage) {
            _ if self.config.io.engine == Some(EngineKind::Mmap) => {
                (CacheMode::Buffered, "a mapping always goes through the page cache".to_owned())
            }
            _ if self.config.io.engine == Some(EngineKind::Null) => {
                (CacheMode::Buffered, "nothing is read".to_owned())
            }
            (_, Storage::Memory | Storage::Pseudo) => {
                (CacheMode::Buffered, format!("{} is in memory", facts.file_system))
            }
            (_, Storage::Network | Storage::Fuse) => (
                CacheMode::Buffered,
                format!("{}: its client has its own read-ahead", facts.file_system),
            ),
            (_, Storage::Unknown) => (
                CacheMode::Buffered,
                format!("{}: the file system below it is unknown", facts.file_system),
            ),
            (Ok(_), _) if self.prefers_direct() => match misfit {
                Some(block_bytes) => (
                    CacheMode::Buffered,
                    format!("blocks of {block_bytes} bytes do not fit direct I/O"),
                ),
                None => (
                    CacheMode::Direct,
                    format!(
                        "{percent:.0} % is in the page cache: direct I/O is expected to be faster, and {}",
                        match facts.file_system {
                            "btrfs" => "fills the cache only where btrfs falls back to it",
                            _ => "leaves the cache as it is",
                        }
                    ),
                ),
            },
            (Ok(_), _) => (
                CacheMode::Buffered,
                format!(
                    "{percent:.0} % is in the page cache: reading through it is expected to be faster",
                ),
            ),
            (Err(_), _) if percent >= 99.5 => {
                (CacheMode::Buffered, "all of it is in the page cache".to_owned())
            }
            (Err(why), _) => match &facts.dontcache {
                Ok(()) => (CacheMode::Dontcache, why.clone()),
                Err(no_dontcache) => (CacheMode::Buffered, format!("{why}; {no_dontcache}")),
            },
        };
        self.note("page-cache", cache.name(), why);
        Ok(cache)
    }

    /// Whether blocks in the page cache may be mapped: not for files so short that a trial would
    /// cost more than it gains, nor where the consumer does not take them from the reading thread.
    pub(super) fn may_map(&self) -> bool {
        self.config.may_map()
            && self.config.explicit_slots().is_none_or(|slots| slots == 1)
            && self.order == Order::AnyOrder
            && self.facts.len >= MAPPED_BYTES_MIN
            && self.facts.kind == SourceKind::File
            && super::can_be_mapped(self.facts.storage)
    }

    fn pool_threads(&self) -> u32 {
        let tuned = self.tuning.as_ref().and_then(|tuning| tuning.pool_threads);
        self.config.io.pool_threads.or(tuned).unwrap_or(profile::POOL_THREADS)
    }

    fn note_order(&mut self, engine: EngineKind) {
        let why = match self.order {
            Order::InOrder if self.config.io.in_order => EXPLICIT,
            Order::InOrder if engine.is_sequential() => "the engine reads one block after another",
            Order::InOrder => "the consumer needs one block after another",
            Order::AnyOrder => "the consumer takes blocks as they arrive",
        };
        self.note("order", self.order.to_string(), why);
    }

    /// Lists the remaining explicit options.
    fn note_knobs(&mut self, engine: EngineKind, depth: u32) {
        let Config { io, memory, .. } = self.config;
        let uring = self.uring();
        let mut knobs = Vec::new();
        if engine == EngineKind::Pool {
            knobs.push(format!("{} threads", self.pool_threads().min(depth)));
        }
        let switches = [
            (uring.drain, "drain"),
            (uring.link, "link"),
            (uring.iopoll, "IOPOLL"),
            (uring.fixed_buffers, "fixed buffers"),
            (uring.fixed_file, "fixed file"),
            (io.bypass_cache, "page cache bypassed"),
            (io.wait == Wait::Spin, "spin"),
            (io.consume == Consume::Batch, "consume batch"),
            (memory.huge_pages == HugePages::Off, "no huge pages"),
            (memory.huge_pages == HugePages::Hugetlb, "reserved huge pages"),
        ];
        if let Some(idle_ms) = uring.sqpoll {
            let idle_ms = if idle_ms == 0 { 1000 } else { idle_ms };
            let cpu = uring.sqpoll_cpu.map_or(String::new(), |cpu| format!(" on processor {cpu}"));
            knobs.push(format!("SQPOLL{cpu}, asleep after {idle_ms} ms"));
        }
        let on = switches.into_iter().filter(|(is_on, _)| *is_on);
        knobs.extend(on.map(|(_, name)| name.to_owned()));
        match io.priority {
            Some(IoPriority::Idle) => knobs.push("I/O priority idle".to_owned()),
            Some(IoPriority::BestEffort(n)) => knobs.push(format!("I/O priority best-effort:{n}")),
            None => {}
        }
        if let Some(limit) = &io.rate_limit {
            knobs.push(format!("at most {}/s", size(limit.bytes_per_s().get())));
        }
        if !knobs.is_empty() {
            let by_default = io.pool_threads.is_none() && knobs.len() == 1;
            let why = match (engine == EngineKind::Pool && by_default, &self.tuning) {
                (true, Some(tuning)) if tuning.pool_threads.is_some() => tuning.why.clone(),
                (true, _) => "the default of the engine".to_owned(),
                (false, _) => EXPLICIT.to_owned(),
            };
            self.note("knobs", knobs.join(", "), why);
        }
    }
}

/// Slots of a synchronous engine if other threads consume the blocks.
pub(super) const QUEUE_SLOTS: u32 = 4;

/// Whether blocks in order are passed to consumers on other threads.
pub(super) fn uses_queue(config: &Config, consumers: u32, cores: u32) -> bool {
    let threads_max = config.io.threads_max.unwrap_or(cores);
    config.io.workers.map_or(consumers > 0 && threads_max > 1, |workers| workers > 0)
}

/// Returns the number of threads for consumers of blocks in order, and why.
pub(super) fn consumer_threads(config: &Config, consumers: u32) -> (u32, String) {
    let most = config.io.threads_max.map_or(u32::MAX, |threads| threads.max(2) - 1);
    match consumers > most {
        true => (
            most,
            format!("blocks are consumed in order; {consumers} consumers share these threads"),
        ),
        false => {
            (consumers, "blocks are consumed in order, with a thread for each consumer".to_owned())
        }
    }
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
