//! The table: which way of reading for which facts, each choice with its reason.
//!
//! Pure, so that every row can be tested, also those whose device is not in this machine.

use crate::config::{CacheMode, Config, ConfigError, EngineKind, Order, SLAB_BYTES_MAX, SLOTS_MAX};
use crate::error::ErrorKind;
use crate::facts::{Facts, Storage};
use crate::source::SourceKind;

/// Bytes of a block of direct reads: 256 KiB, 512 KiB and 1 MiB were within 5 % of each other on a
/// virtio disk, 128 KiB took 10 % longer; 512 KiB is also what the article on io_uring and BLAKE3 found
/// best on NVMe.
pub(crate) const BLOCK_BYTES: u32 = 512 << 10;

/// Bytes of a block out of the page cache: a copy that is still in the core's own cache when it is
/// consumed. 128 KiB to 1 MiB were within 4 % for 1 GiB; for 16 MiB, which two threads share, 256 KiB
/// took 4.7 ms and 512 KiB 5.4.
const CACHED_BLOCK_BYTES: u32 = 256 << 10;

/// What is in flight on one thread, in bytes. Medians for 1 GiB in blocks of 512 KiB: 2 MiB in flight
/// 0.337 s, 4 MiB 0.307, 8 MiB 0.292, 16 MiB 0.309, 32 MiB 0.316: beyond what keeps the device busy,
/// memory only costs its first touch.
const IN_FLIGHT_BYTES: u32 = 8 << 20;

/// Bytes of a block where each costs something besides its bytes: the way of a disk's arm, a mapping,
/// or a read through the page cache of what is not in it. There `dontcache` drops a whole folio of the
/// read-ahead after the first read that touches it, and the rest is read again: 128 KiB took 1.16 s
/// per GiB and read it 1.5 times, 512 KiB 0.90 s, 4 MiB 0.42 s.
const LONG_BLOCK_BYTES: u32 = 4 << 20;

/// Most threads that read through the page cache what is not in it: the device is what they wait for.
const FILLING_THREADS_MAX: u32 = 8;

/// A thread pays when it has at least this much to do, in bytes: starting one takes 50-100 us here,
/// in which one core hashes some 512 KiB.
const WORKER_BYTES_MIN: u64 = 1 << 20;

/// Seconds per GiB on the machine that this was written on, for files that are partly resident: only
/// the ratios matter.
mod cost {
    /// Reading out of the page cache, two cores, hash included.
    pub(super) const CACHED: f64 = 0.09;
    /// Direct from the device.
    pub(super) const DIRECT: f64 = 0.29;
    /// From the device through the page cache.
    pub(super) const FILL: f64 = 0.60;
}

/// One choice of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What was chosen: `engine`, `cache`, `block`, `depth`, `slots`, `workers`, `order`; `source` is
    /// the facts.
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
    /// Finds out whether io_uring can be had, or why not; asked only where it matters.
    pub(crate) io_uring: &'a dyn Fn() -> Result<(), String>,
    /// Processors for this process.
    pub(crate) cores: u32,
}

/// A size in the largest unit that divides it.
fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes != 0 && bytes.is_multiple_of(1 << shift)) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

/// Collects choices while they are made.
struct Chooser<'a> {
    facts: &'a Facts,
    config: &'a Config,
    order: Order,
    system: &'a System<'a>,
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
    let mut chooser = Chooser { facts, config, order, system, choices: Vec::new() };
    chooser.describe();
    let cache = chooser.cache()?;
    let engine = chooser.engine(cache)?;
    let block_bytes = chooser.block(engine, cache)?;
    let (depth, slots) = chooser.depth_and_slots(engine, block_bytes)?;
    let (workers, spread) = chooser.workers(engine, cache, block_bytes, slots);
    chooser.note(
        "order",
        order.name(),
        match order {
            Order::InOrder => "the consumer needs one block after another",
            Order::AnyOrder => "the consumer takes blocks as they come",
        },
    );
    let worker_slots = chooser.worker_slots(engine, block_bytes, slots, workers)?;
    let align = match cache {
        CacheMode::Direct => facts.direct.as_ref().copied().unwrap_or(1),
        _ => 1,
    };
    let ring =
        RingPlan { engine, cache, block_bytes, depth, slots, workers, worker_slots, spread, align };
    Ok((ring, chooser.choices))
}

impl Chooser<'_> {
    fn note(&mut self, what: &'static str, value: impl Into<String>, why: impl Into<String>) {
        self.choices.push(Choice { what, value: value.into(), why: why.into() });
    }

    /// Whether moving from one place to another will be dear: the device turns, and is read.
    fn turns(&self) -> bool {
        self.facts.is_rotational() && self.buffered_cost() >= cost::DIRECT
    }

    /// Whether reads bring into the page cache what is not in it.
    fn fills(&self, cache: CacheMode) -> bool {
        cache != CacheMode::Direct
            && self.facts.storage != Storage::Memory
            && self.buffered_cost() >= cost::DIRECT
    }

    /// Whether reads go to a device of this machine. (A network's client has requests of its own in
    /// flight, and io_uring would only add threads to them.)
    fn waits_for_device(&self, cache: CacheMode) -> bool {
        self.facts.storage == Storage::Local && (cache == CacheMode::Direct || self.fills(cache))
    }

    /// Seconds per GiB through the page cache, for as much of the file as is in it.
    fn buffered_cost(&self) -> f64 {
        let resident = self.facts.resident.unwrap_or(0.0);
        resident * cost::CACHED + (1.0 - resident) * cost::FILL
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
        if let Some(cache) = self.config.cache {
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
        let buffered = self.buffered_cost();
        let misfit = self.config.block_bytes.filter(|block_bytes| {
            facts.direct.as_ref().is_ok_and(|align| !block_bytes.is_multiple_of(*align))
        });
        let (cache, why) = match (&facts.direct, facts.storage) {
            _ if matches!(self.config.engine, Some(EngineKind::Mmap)) => {
                (CacheMode::Buffered, "a mapping is of the page cache".to_owned())
            }
            _ if matches!(self.config.engine, Some(EngineKind::Null)) => {
                (CacheMode::Buffered, "nothing is read".to_owned())
            }
            (_, Storage::Memory) => {
                (CacheMode::Buffered, format!("{} is memory already", facts.file_system))
            }
            (_, Storage::Network | Storage::Fuse) => {
                (CacheMode::Buffered, format!("{}: its client reads ahead", facts.file_system))
            }
            (Ok(_), _) if buffered >= cost::DIRECT => match misfit {
                Some(block_bytes) => (
                    CacheMode::Buffered,
                    format!("blocks of {block_bytes} bytes do not fit direct I/O"),
                ),
                None => (
                    CacheMode::Direct,
                    format!(
                        "{percent:.0} % is in the page cache: reading past it costs less (about {:.2} \
                         against {buffered:.2} s/GiB) and {}",
                        cost::DIRECT,
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
                     (about {buffered:.2} against {:.2} s/GiB)",
                    cost::DIRECT
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

    fn engine(&mut self, cache: CacheMode) -> Result<EngineKind, ErrorKind> {
        let (engine, why) = match (self.config.engine, cache) {
            (Some(engine), _) => {
                if engine == EngineKind::IoUring {
                    (self.system.io_uring)().map_err(|why| ErrorKind::Engine { engine, why })?;
                }
                (engine, ASKED.to_owned())
            }
            (None, _) if self.waits_for_device(cache) => match (self.system.io_uring)() {
                Ok(()) => {
                    let why = "many reads in flight keep the device busy";
                    (EngineKind::IoUring, why.to_owned())
                }
                Err(why) => (EngineKind::Pread, why),
            },
            (None, _) => (
                EngineKind::Pread,
                "each thread copies a block into its own cache and consumes it there".to_owned(),
            ),
        };
        self.note("engine", engine.name(), why);
        Ok(engine)
    }

    fn block(&mut self, engine: EngineKind, cache: CacheMode) -> Result<u32, ErrorKind> {
        let facts = self.facts;
        let (mut block_bytes, mut why) = match self.config.block_bytes {
            Some(block_bytes) => (block_bytes, ASKED),
            None if self.turns() => {
                (LONG_BLOCK_BYTES, "the device turns: long reads, one after another")
            }
            None if engine == EngineKind::Mmap => (LONG_BLOCK_BYTES, "each block costs a mapping"),
            None if cache == CacheMode::Direct => (BLOCK_BYTES, "measured best for direct reads"),
            None if cache == CacheMode::Dontcache => {
                (LONG_BLOCK_BYTES, "long reads fit the read-ahead")
            }
            None if self.fills(cache) => (BLOCK_BYTES, "measured best for filling the page cache"),
            None => (CACHED_BLOCK_BYTES, "stays in the core's cache between read and consumer"),
        };
        if let (Some(slots), None) = (self.config.slots, self.config.block_bytes) {
            let most = (SLAB_BYTES_MAX / u64::from(slots)) as u32;
            if block_bytes > most {
                block_bytes = 1 << most.ilog2();
                why = "the most that the slots asked for allow";
            }
        }
        if cache == CacheMode::Direct
            && let Ok(align) = facts.direct
            && !block_bytes.is_multiple_of(align)
        {
            let why = format!("the block size, {block_bytes}, is no multiple of {align}");
            return Err(ErrorKind::Cache { cache, why });
        }
        self.note("block", size(block_bytes.into()), why);
        Ok(block_bytes)
    }

    fn depth_and_slots(
        &mut self,
        engine: EngineKind,
        block_bytes: u32,
    ) -> Result<(u32, u32), ErrorKind> {
        let config = self.config;
        // A slab of more blocks than there are is only in the way.
        let blocks = self.facts.len.div_ceil(block_bytes.into()).min(SLOTS_MAX.into()) as u32;
        let slots_max = (SLAB_BYTES_MAX / u64::from(block_bytes)) as u32;
        let hands_over = self.order == Order::InOrder && config.workers.is_some_and(|n| n > 0);
        let (depth_wanted, depth_why) = match config.depth {
            Some(depth) => (depth, ASKED.to_owned()),
            None if engine.is_synchronous() => (1, format!("{engine} makes one read at a time")),
            None if self.turns() => (2, "the device turns: one stream".to_owned()),
            None => {
                let depth = (IN_FLIGHT_BYTES / block_bytes).clamp(2, 128);
                (depth, format!("{} in flight", size(u64::from(depth) * u64::from(block_bytes))))
            }
        };
        let (slots, slots_why) = match config.slots {
            Some(slots) if slots > slots_max => {
                return Err(ConfigError::Slab { slots, block_bytes, threads: 1 }.into());
            }
            Some(slots) => (slots, ASKED.to_owned()),
            // One is read while the other is consumed.
            None if engine.is_synchronous() && hands_over => {
                (2, "one to read into, one to consume".to_owned())
            }
            None if engine.is_synchronous() => (1, "each is consumed before the next".to_owned()),
            None => (depth_wanted.min(slots_max), "one for each request in flight".to_owned()),
        };
        let (slots, slots_why) = match slots > blocks {
            true => (blocks, format!("there are no more blocks ({slots_why}: {slots})")),
            false => (slots, slots_why),
        };
        let depth = depth_wanted.min(slots);
        let depth_why = match depth < depth_wanted {
            true => format!("clamped to the slots ({depth_why}: {depth_wanted})"),
            false => depth_why,
        };
        self.note("depth", depth.to_string(), depth_why);
        self.note("slots", slots.to_string(), slots_why);
        Ok((depth, slots))
    }

    /// Slots of each thread besides the first, in any order.
    fn worker_slots(
        &self,
        engine: EngineKind,
        block_bytes: u32,
        slots: u32,
        workers: u32,
    ) -> Result<u32, ErrorKind> {
        if workers == 0 || self.order == Order::InOrder {
            return Ok(slots);
        }
        let wanted = match self.config.workers {
            // All of them together double what is in flight.
            None if !engine.is_synchronous() => (slots / workers).clamp(2.min(slots), slots),
            _ => slots,
        };
        let most = (SLAB_BYTES_MAX / u64::from(block_bytes)) as u32;
        let most = most.saturating_sub(slots) / workers;
        match most < wanted && (self.config.slots.is_some() || most == 0) {
            true => Err(ConfigError::Slab { slots, block_bytes, threads: workers + 1 }.into()),
            false => Ok(wanted.min(most)),
        }
    }

    fn workers(
        &mut self,
        engine: EngineKind,
        cache: CacheMode,
        block_bytes: u32,
        slots: u32,
    ) -> (u32, Spread) {
        let threads_max = self.config.threads_max.unwrap_or(self.system.cores).max(1);
        let threads_max = match self.fills(cache) {
            true => threads_max.min(FILLING_THREADS_MAX),
            false => threads_max,
        };
        let blocks = self.facts.len.div_ceil(block_bytes.into());
        let useful = (self.facts.len / WORKER_BYTES_MIN).min(blocks - 1).min(1024) as u32;
        // Each needs a slot at least, within the bound on all of them.
        let room = (SLAB_BYTES_MAX / u64::from(block_bytes)) as u32 - slots;
        let spare = (threads_max - 1).min(useful).min(room);
        let (workers, spread, why) = match (self.config.workers, self.order) {
            (Some(n @ 0..=1), _) => (n, Spread::Asked, ASKED.to_owned()),
            (Some(n), Order::AnyOrder) => (n, Spread::Asked, ASKED.to_owned()),
            (Some(n), Order::InOrder) => {
                (1, Spread::Asked, format!("asked for {n}; in order, one consumes"))
            }
            (None, Order::InOrder) => {
                (0, Spread::AtOnce, "in order, this thread consumes".to_owned())
            }
            (None, _) if self.turns() => {
                (0, Spread::AtOnce, "the device turns: one stream".to_owned())
            }
            (None, _) if spare == 0 && threads_max > 1 => {
                (0, Spread::AtOnce, "a thread would cost more than it brings".to_owned())
            }
            (None, _) if spare == 0 => (0, Spread::AtOnce, "one thread is allowed".to_owned()),
            (None, _) if engine.is_synchronous() => {
                (spare, Spread::AtOnce, "with this one, as many threads as help".to_owned())
            }
            (None, _) => {
                let why = "0 while this thread keeps up with the device".to_owned();
                (spare, Spread::WhenBehind, why)
            }
        };
        let value = match spread {
            Spread::WhenBehind => format!("0 to {workers}"),
            _ => workers.to_string(),
        };
        self.note("workers", value, why);
        (workers, spread)
    }
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
