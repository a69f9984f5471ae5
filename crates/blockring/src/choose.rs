//! The table: which way of reading for which facts, each choice with its reason.
//!
//! Pure, so that every row can be tested, also those whose device is not in this machine.

mod engine;
mod shape;
mod stream;
mod tuned;

use engine::next_best;
pub(crate) use stream::{StreamFacts, decide_stream};

pub(crate) use crate::config::size;
use crate::config::{
    BLOCK_BYTES_MAX, CacheMode, Config, Consume, EngineKind, HugePages, IoPriority, Order, Sqpoll,
    Uring, stride_bytes,
};
use crate::error::ErrorKind;
use crate::facts::{Facts, Storage};
use crate::profile::Profile;
use crate::rate::RateLimit;
use crate::source::SourceKind;
use crate::sys;
use crate::tuning::Tuning;

/// One choice of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What was chosen: `engine`, `cache`, `block`, `depth`, `slots`, `workers`, `order`, and `knobs` if
    /// any were set; `source` is the facts, `memory` is there where it is bounded, and `tuned` is there where a measured setting is not used.
    pub what: &'static str,
    /// The choice.
    pub value: String,
    /// Why.
    pub why: String,
}

/// The ring's part of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RingPlan {
    pub(crate) engine: EngineKind,
    pub(crate) cache: CacheMode,
    pub(crate) block_bytes: u32,
    pub(crate) depth: u32,
    pub(crate) slots: u32,
    /// Threads besides the calling one.
    pub(crate) workers: u32,
    /// Slots of each of them, in any order.
    pub(crate) worker_slots: u32,
    pub(crate) spread: Spread,
    /// Alignment of reads in bytes; 1 unless direct.
    pub(crate) align: u32,
    pub(crate) order: Order,
    /// Whether the kernel is told that the file is read from its start to its end, and once.
    pub(crate) advise: bool,
    pub(crate) pool_threads: u32,
    pub(crate) consume: Consume,
    pub(crate) spin: bool,
    pub(crate) huge_pages: HugePages,
    pub(crate) uring: Uring,
    /// The memory is bounded, so that none is to be taken besides the slots.
    pub(crate) is_bounded: bool,
}

/// Bytes of a huge page.
const HUGE_PAGE_BYTES: u64 = 2 << 20;

impl RingPlan {
    /// Pages for so many slots. Of huge ones, the last is whole even if slots fill only a part of it: where
    /// the memory is bounded, they are taken only if they are filled.
    pub(crate) fn pages(&self, slots: u32) -> HugePages {
        let bytes = u64::from(slots) * stride_bytes(self.block_bytes);
        let is_lost = self.is_bounded && !bytes.is_multiple_of(HUGE_PAGE_BYTES);
        match self.huge_pages {
            HugePages::Advise if is_lost => HugePages::Off,
            pages => pages,
        }
    }

    /// `RWF_*` of each read.
    pub(crate) fn flags(&self) -> i32 {
        if self.cache == CacheMode::Dontcache { sys::RWF_DONTCACHE } else { 0 }
    }
}

/// Makes something with the engine of `ring`, or with the next best while that cannot be had: it worked
/// a moment ago, but not for a ring of this size, or not any more. `may_fall_back` is asked after a
/// failure: nothing may have been dealt out that another engine would not see.
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

/// When workers start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    /// At once: the caller said how many.
    Asked,
    /// At once.
    AtOnce,
    /// When the device has been faster than one consumer for a while.
    WhenBehind,
}

/// What the system offers, apart from the source.
pub(crate) struct System<'a> {
    /// Finds out whether io_uring can be had with these knobs, or why not; asked only where it matters.
    pub(crate) io_uring: &'a dyn Fn(&Uring) -> Result<(), String>,
    /// The same of libaio.
    pub(crate) libaio: &'a dyn Fn() -> Result<(), String>,
    /// The setting that was measured best on the device, or why one that there is does not count.
    pub(crate) tuning: &'a dyn Fn() -> Option<Result<Tuning, String>>,
    pub(crate) profile: &'a Profile,
    /// Processors for this process.
    pub(crate) cores: u32,
}

/// Collects choices while they are made.
struct Chooser<'a> {
    facts: &'a Facts,
    config: &'a Config,
    order: Order,
    system: &'a System<'a>,
    /// What was measured best here, if it is followed.
    tuning: Option<Tuning>,
    choices: Vec<Choice>,
}

const ASKED: &str = "asked for";

/// The table: which way for which facts.
pub(crate) fn decide(
    facts: &Facts,
    config: &Config,
    order: Order,
    system: &System<'_>,
) -> Result<(RingPlan, Vec<Choice>), ErrorKind> {
    let order = if config.in_order { Order::InOrder } else { order };
    let mut chooser = Chooser { facts, config, order, system, tuning: None, choices: Vec::new() };
    chooser.describe();
    if let Some(bytes) = config.memory_bytes {
        chooser.note("memory", size(bytes), "the most that blocks may take, over all threads");
    }
    let cache = chooser.cache()?;
    chooser.find_tuning(cache);
    let engine = chooser.engine(cache)?;
    let block_bytes = chooser.block(engine, cache)?;
    if engine.is_sequential() {
        chooser.order = Order::InOrder;
    }
    let (depth, slots) = chooser.depth_and_slots(engine, block_bytes)?;
    let (workers, spread) = chooser.workers(engine, cache, block_bytes, slots);
    let worker_slots = chooser.worker_slots(engine, block_bytes, slots, workers)?;
    chooser.note_order(engine);
    chooser.note_knobs(engine, depth);
    let align = match cache {
        CacheMode::Direct => facts.direct.as_ref().copied().unwrap_or(1),
        _ => 1,
    };
    let ring = RingPlan {
        engine,
        cache,
        block_bytes,
        depth,
        slots,
        workers,
        worker_slots,
        spread,
        align,
        order: chooser.order,
        // A mapping reads ahead by itself; to tell it more gained nothing.
        advise: cache == CacheMode::Buffered
            && chooser.fills(cache)
            && !matches!(engine, EngineKind::Mmap | EngineKind::Null),
        pool_threads: chooser.pool_threads(),
        consume: config.consume,
        spin: config.spin,
        huge_pages: config.huge_pages,
        uring: chooser.uring(),
        is_bounded: config.memory_bytes.is_some(),
    };
    Ok((ring, chooser.choices))
}

/// The longest block, in bytes, where only so much may be read in a second: an eighth of that.
fn limited_block_bytes(limit: &RateLimit) -> u32 {
    let most = limit.bytes_per_s().get() / 8;
    1 << most.clamp(4096, BLOCK_BYTES_MAX.into()).ilog2()
}

impl Chooser<'_> {
    fn cost(&self) -> &crate::profile::Cost {
        &self.system.profile.cost
    }

    fn note(&mut self, what: &'static str, value: impl Into<String>, why: impl Into<String>) {
        self.choices.push(Choice { what, value: value.into(), why: why.into() });
    }

    /// Whether moving from one place to another will be dear: the device turns, and is read.
    fn turns(&self) -> bool {
        self.facts.is_rotational() && self.buffered_cost() >= self.cost().direct
    }

    /// Whether reads bring into the page cache what is not in it.
    fn fills(&self, cache: CacheMode) -> bool {
        cache != CacheMode::Direct
            && self.facts.storage != Storage::Memory
            && self.buffered_cost() >= self.cost().direct
    }

    /// Whether reads go to a device of this machine. (A network's client has requests of its own in
    /// flight, and io_uring would only add threads to them.)
    fn waits_for_device(&self, cache: CacheMode) -> bool {
        self.facts.storage == Storage::Local && (cache == CacheMode::Direct || self.fills(cache))
    }

    /// Seconds per GiB through the page cache, for as much of the file as is in it.
    fn buffered_cost(&self) -> f64 {
        let resident = self.facts.resident.unwrap_or(0.0);
        resident * self.cost().cached + (1.0 - resident) * self.cost().fill
    }

    fn describe(&mut self) {
        let facts = self.facts;
        let resident = match facts.resident {
            Some(part) => format!("{:.0} % in the page cache", part * 100.0),
            None => "not known how much of it is in the page cache".to_owned(),
        };
        let direct = match &facts.direct {
            Ok(align) => format!("direct I/O at multiples of {align}"),
            Err(why) => format!("no direct I/O: {why}"),
        };
        let device = match (facts.rotational, facts.seek) {
            (Some(true), Some(seek)) => format!(
                "; the device says that it turns, and answers in {:.2} ms{}",
                seek.as_secs_f64() * 1e3,
                if facts.is_rotational() { "" } else { ", so it does not" }
            ),
            (Some(true), None) => "; the device turns".to_owned(),
            _ => String::new(),
        };
        let on = if facts.kind == SourceKind::BlockDevice { "" } else { "on " };
        let why = format!("{on}{}; {resident}; {direct}{device}", facts.file_system);
        self.note("source", size(facts.len), why);
    }

    fn cache(&mut self) -> Result<CacheMode, ErrorKind> {
        let facts = self.facts;
        if self.config.medium {
            facts.medium.clone().map_err(ErrorKind::Medium)?;
        }
        if let Some(cache) = self.config.cache_asked() {
            let refused = match cache {
                CacheMode::Direct => facts.direct.as_ref().err(),
                CacheMode::Dontcache => facts.dontcache.as_ref().err(),
                CacheMode::Buffered => None,
            };
            if let Some(why) = refused {
                return Err(ErrorKind::Cache { cache, why: why.clone() });
            }
            self.note("cache", cache.name(), ASKED);
            return Ok(cache);
        }
        let resident = facts.resident.unwrap_or(0.0);
        let percent = resident * 100.0;
        let (buffered, direct_cost) = (self.buffered_cost(), self.cost().direct);
        let misfit = self.config.block_bytes.filter(|block_bytes| {
            facts.direct.as_ref().is_ok_and(|align| !block_bytes.is_multiple_of(*align))
        });
        let (cache, why) = match (&facts.direct, facts.storage) {
            _ if self.config.engine == Some(EngineKind::Mmap) => {
                (CacheMode::Buffered, "a mapping is of the page cache".to_owned())
            }
            _ if self.config.engine == Some(EngineKind::Null) => {
                (CacheMode::Buffered, "nothing is read".to_owned())
            }
            (_, Storage::Memory) => {
                (CacheMode::Buffered, format!("{} is memory already", facts.file_system))
            }
            (_, Storage::Network | Storage::Fuse) => {
                (CacheMode::Buffered, format!("{}: its client reads ahead", facts.file_system))
            }
            (_, Storage::Unknown) => {
                (CacheMode::Buffered, format!("{}: what it is on is not known", facts.file_system))
            }
            (Ok(_), _) if buffered >= direct_cost => match misfit {
                Some(block_bytes) => (
                    CacheMode::Buffered,
                    format!("blocks of {block_bytes} bytes do not fit direct I/O"),
                ),
                None => (
                    CacheMode::Direct,
                    format!(
                        "{percent:.0} % is in the page cache: reading past it costs less (about \
                         {direct_cost:.2} against {buffered:.2} s/GiB) and {}",
                        match facts.file_system {
                            "btrfs" => "fills it only where btrfs reads through it all the same",
                            _ => "leaves it alone",
                        }
                    ),
                ),
            },
            (Ok(_), _) => (
                CacheMode::Buffered,
                format!(
                    "{percent:.0} % is in the page cache: reading through it costs less \
                     (about {buffered:.2} against {direct_cost:.2} s/GiB)",
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
        self.note("cache", cache.name(), why);
        Ok(cache)
    }

    fn pool_threads(&self) -> u32 {
        let tuned = self.tuning.as_ref().and_then(|tuning| tuning.pool_threads);
        self.config.pool_threads.or(tuned).unwrap_or(self.system.profile.pool_threads)
    }

    fn note_order(&mut self, engine: EngineKind) {
        let why = match self.order {
            Order::InOrder if self.config.in_order => ASKED,
            Order::InOrder if engine.is_sequential() => "the engine reads one block after another",
            Order::InOrder => "the consumer needs one block after another",
            Order::AnyOrder => "the consumer takes blocks as they come",
        };
        self.note("order", self.order.name(), why);
    }

    /// What was asked for besides.
    fn note_knobs(&mut self, engine: EngineKind, depth: u32) {
        let Config { huge_pages, consume, spin, rate_limit, .. } = self.config;
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
            (self.config.medium, "the medium"),
            (*spin, "spin"),
            (*consume == Consume::Batch, "consume batch"),
            (*huge_pages == HugePages::Off, "no huge pages"),
            (*huge_pages == HugePages::Hugetlb, "reserved huge pages"),
        ];
        if let Some(Sqpoll { idle_ms, cpu }) = uring.sqpoll {
            let idle_ms = if idle_ms == 0 { 1000 } else { idle_ms };
            let cpu = cpu.map_or(String::new(), |cpu| format!(" on processor {cpu}"));
            knobs.push(format!("SQPOLL{cpu}, asleep after {idle_ms} ms"));
        }
        let on = switches.into_iter().filter(|(is_on, _)| *is_on);
        knobs.extend(on.map(|(_, name)| name.to_owned()));
        match self.config.io_priority {
            Some(IoPriority::Idle) => knobs.push("I/O priority idle".to_owned()),
            Some(IoPriority::BestEffort(n)) => knobs.push(format!("I/O priority best-effort:{n}")),
            None => {}
        }
        if let Some(limit) = rate_limit {
            knobs.push(format!("at most {}/s", size(limit.bytes_per_s().get())));
        }
        if !knobs.is_empty() {
            let by_default = self.config.pool_threads.is_none() && knobs.len() == 1;
            let why = match (engine == EngineKind::Pool && by_default, &self.tuning) {
                (true, Some(tuning)) if tuning.pool_threads.is_some() => tuning.why.clone(),
                (true, _) => "the default of the engine".to_owned(),
                (false, _) => ASKED.to_owned(),
            };
            self.note("knobs", knobs.join(", "), why);
        }
    }
}

/// Blocks that go around where a thread reads them and others consume them, of engines that make one read at a
/// time.
const HANDED_OVER_SLOTS: u32 = 4;

/// Whether blocks in order are handed to other threads.
fn hands_over(config: &Config, cores: u32) -> bool {
    let threads_max = config.threads_max.unwrap_or(cores);
    config.workers.map_or(config.consumers > 0 && threads_max > 1, |workers| workers > 0)
}

/// Threads for consumers of blocks in order, of those that there may be, and why so many.
fn consumers(config: &Config) -> (u32, String) {
    let most = config.threads_max.map_or(u32::MAX, |threads| threads.max(2) - 1);
    match config.consumers > most {
        true => (most, format!("in order: {} consumers share them", config.consumers)),
        false => (config.consumers, "in order, a thread for each consumer".to_owned()),
    }
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
