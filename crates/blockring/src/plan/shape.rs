//! Block size, queue depth, slots and threads, within the available memory.

use super::choose::{
    Chooser, EXPLICIT, QUEUE_SLOTS, Start, consumer_threads, limited_block_bytes, size, uses_queue,
};
use super::profile::{
    BLOCK_BYTES, CACHED_BLOCK_BYTES, DEPTH_MAX, IN_FLIGHT_BYTES, LONG_BLOCK_BYTES,
};
use super::tuning::Tuning;
use crate::config::validate::ConfigError;
use crate::config::{CacheMode, Config, Consume, EngineKind, HugePages, Order, SLOTS_MAX};
use crate::error::ErrorKind;

/// Most threads that fill the page cache: they wait for the device.
const FILLING_THREADS_MAX: u32 = 8;

/// Least work that justifies a thread, in bytes: starting one takes 50-100 us here, in which one
/// core hashes about 512 KiB.
const WORKER_BYTES_MIN: u64 = 1 << 20;

/// Least number of blocks in flight with limited memory: 2 MiB in 4 blocks gave 0.87 of the speed
/// of 8 MiB, and shortening blocks costs less than reducing their number.
const BOUNDED_DEPTH_MIN: u32 = 4;

pub(super) const NO_ROOM: &str = "the memory limit leaves no room for more";

/// Least bytes to read for which a better queue depth is searched: a comparison of two takes 0.3 GiB.
const SEARCHED_BYTES_MIN: u64 = 512 << 20;

/// The greatest depth tried, as a multiple of the first.
const SEARCHED_TIMES: u32 = 2;

impl Chooser<'_> {
    pub(super) fn block(&mut self, engine: EngineKind, cache: CacheMode) -> Result<u32, ErrorKind> {
        let facts = self.facts;
        let tuning = self.tuning.clone();
        let (mut block_bytes, mut why) = match (self.config.io.block_bytes, &tuning) {
            (Some(block_bytes), _) => (block_bytes, EXPLICIT),
            (None, Some(tuning)) => (tuning.block_bytes, &*tuning.why),
            _ if self.seeks_are_slow() => {
                (LONG_BLOCK_BYTES, "rotational device: long reads, one after another")
            }
            _ if engine == EngineKind::Mmap => {
                (LONG_BLOCK_BYTES, "mapping a block has a fixed cost, so long blocks are faster")
            }
            _ if cache == CacheMode::Direct => (BLOCK_BYTES, "measured best for direct reads"),
            _ if cache == CacheMode::Dontcache => {
                (LONG_BLOCK_BYTES, "long reads suit the kernel's read-ahead")
            }
            _ if self.fills(cache) => (BLOCK_BYTES, "measured best for filling the page cache"),
            _ => (CACHED_BLOCK_BYTES, "small enough to stay in the CPU cache until it is consumed"),
        };
        if let (Some(limit), None) = (&self.config.io.rate_limit, self.config.io.block_bytes)
            && block_bytes > limited_block_bytes(limit)
        {
            block_bytes = limited_block_bytes(limit);
            why = "what the rate limit allows in an eighth of a second";
        }
        if self.config.io.block_bytes.is_none() {
            let (most, reason) = self.block_bytes_fitting(engine);
            if u64::from(block_bytes) > most {
                block_bytes = 1 << most.ilog2();
                why = reason;
            }
        }
        let whole = facts.len.next_power_of_two().max(4096);
        if u64::from(block_bytes) > whole {
            block_bytes = whole as u32;
            why = "the whole source fits in one block";
        }
        if cache == CacheMode::Direct
            && let Ok(align) = facts.direct
            && !block_bytes.is_multiple_of(align)
        {
            let why = format!("the block size, {block_bytes}, is not a multiple of {align}");
            return Err(ErrorKind::Cache { cache, why });
        }
        self.note("block-size", size(block_bytes.into()), why);
        Ok(block_bytes)
    }

    /// Returns the longest block that leaves room for the blocks needed, in bytes, and why.
    fn block_bytes_fitting(&self, engine: EngineKind) -> (u64, &'static str) {
        let config = self.config;
        let most = config.slab_bytes_max() / u64::from(config.explicit_threads());
        match (config.explicit_slots(), config.memory.limit_bytes) {
            (Some(slots), _) => (
                most / u64::from(slots),
                "the longest for which the explicit number of slots fits in memory",
            ),
            (None, Some(_)) if engine.is_synchronous() => (most, NO_ROOM),
            (None, Some(_)) => (most / u64::from(BOUNDED_DEPTH_MIN), NO_ROOM),
            (None, None) => (most, NO_ROOM),
        }
    }

    /// Returns the most slots of the first thread, such that there is room for other threads.
    fn first_slots_max(&self, block_bytes: u32) -> u32 {
        let config = self.config;
        let all = config.slots_max(block_bytes);
        let is_alone = self.order == Order::InOrder
            || config.explicit_slots().is_some()
            || config.io.threads_max.unwrap_or(self.system.cores) <= 1;
        match (config.memory.limit_bytes, config.io.workers) {
            (None, _) | (_, Some(0)) => all,
            (Some(_), Some(_)) if self.order == Order::AnyOrder => all / config.explicit_threads(),
            (Some(_), _) if is_alone => all,
            // All others together double the amount in flight.
            (Some(_), _) => all.div_ceil(2),
        }
    }

    pub(super) fn depth_and_slots(
        &mut self,
        engine: EngineKind,
        block_bytes: u32,
    ) -> Result<(u32, u32), ErrorKind> {
        let config = self.config;
        // More slots than blocks would be useless.
        let blocks = self.facts.len.div_ceil(block_bytes.into()).min(SLOTS_MAX.into()) as u32;
        let bytes_max = config.slab_bytes_max();
        let slots_max = self.first_slots_max(block_bytes);
        let uses_queue =
            self.order == Order::InOrder && uses_queue(config, self.consumers, self.system.cores);
        let in_flight =
            |depth: u32| format!("{} in flight", size(u64::from(depth) * u64::from(block_bytes)));
        let (depth_wanted, depth_why) = match (config.io.queue_depth, &self.tuning) {
            (Some(depth), _) => (depth, EXPLICIT.to_owned()),
            _ if engine.is_synchronous() => {
                (1, format!("the engine {engine} makes one read at a time"))
            }
            (None, Some(Tuning { depth, why, .. })) => {
                (*depth, format!("{}: {why}", in_flight(*depth)))
            }
            _ if self.seeks_are_slow() => (2, "rotational device: one stream".to_owned()),
            _ => {
                let depth = (IN_FLIGHT_BYTES / block_bytes).clamp(2, DEPTH_MAX);
                (depth, in_flight(depth))
            }
        };
        let (slots, slots_why) = match config.io.slots {
            Some(slots) if slots > slots_max => {
                let threads = config.explicit_threads();
                return Err(ConfigError::Slab { slots, block_bytes, threads, bytes_max }.into());
            }
            Some(slots) => (slots, EXPLICIT.to_owned()),
            None if engine.is_synchronous() && uses_queue => {
                let slots = QUEUE_SLOTS.min(slots_max);
                (slots, "some are read while others are consumed".to_owned())
            }
            None if engine.is_synchronous() => {
                (1, "a block is consumed before the next one is read".to_owned())
            }
            None if depth_wanted > slots_max && config.memory.limit_bytes.is_some() => {
                (slots_max, format!("{NO_ROOM} ({})", size(bytes_max)))
            }
            None => (depth_wanted.min(slots_max), "one for each request in flight".to_owned()),
        };
        let (slots, slots_why) = match slots > blocks {
            true => {
                (blocks, format!("the source has no more blocks (otherwise {slots}: {slots_why})"))
            }
            false => (slots, slots_why),
        };
        let depth = depth_wanted.min(slots);
        let depth_why = match depth < depth_wanted {
            true => format!("as many as there are slots (otherwise {depth_wanted}: {depth_why})"),
            false => depth_why,
        };
        self.note("queue-depth", depth.to_string(), depth_why);
        self.note("slots", slots.to_string(), slots_why);
        Ok((depth, slots))
    }

    /// Returns the greatest depth that a run may try, and at least `depth`: it searches for a better
    /// one if there is enough to read, and nothing limits or fixes the memory of the slots.
    pub(super) fn depth_max(
        &mut self,
        engine: EngineKind,
        cache: CacheMode,
        block_bytes: u32,
        depth: u32,
    ) -> u32 {
        let Config { io, memory, uring, .. } = self.config;
        let is_free = self.system.searches_depth
            && io.queue_depth.is_none()
            && io.slots.is_none()
            && io.rate_limit.is_none()
            && io.consume == Consume::Each
            && memory.limit_bytes.is_none()
            && memory.huge_pages != HugePages::Hugetlb
            && !uring.fixed_buffers;
        let is_searched = is_free
            && matches!(engine, EngineKind::IoUring | EngineKind::Libaio)
            && self.order == Order::AnyOrder
            && self.facts.len >= SEARCHED_BYTES_MIN
            && self.waits_for_device(cache)
            && !self.seeks_are_slow();
        let most = (depth * SEARCHED_TIMES).min(self.config.slots_max(block_bytes) / 2);
        if !is_searched || most <= depth {
            return depth;
        }
        for choice in &mut self.choices {
            match choice.what {
                "queue-depth" => choice.why += "; others are tried, and the fastest is kept",
                "slots" => {
                    choice.value = most.to_string();
                    choice.why = "one for each request in flight, at most".to_owned();
                }
                _ => {}
            }
        }
        most
    }

    /// Returns the slots of each thread besides the first, in any order.
    pub(super) fn worker_slots(
        &self,
        engine: EngineKind,
        block_bytes: u32,
        slots: u32,
        workers: u32,
    ) -> Result<u32, ErrorKind> {
        if workers == 0 || self.order == Order::InOrder {
            return Ok(slots);
        }
        let wanted = match self.config.io.workers {
            // All of them together double the amount in flight.
            None if !engine.is_synchronous() => (slots / workers).clamp(2.min(slots), slots),
            _ => slots,
        };
        let most = self.config.slots_max(block_bytes);
        let most = most.saturating_sub(slots) / workers;
        let is_explicit = self.config.io.slots.is_some() && self.config.io.workers.is_some();
        match most < wanted && (is_explicit || most == 0) {
            true => {
                let (threads, bytes_max) = (workers + 1, self.config.slab_bytes_max());
                Err(ConfigError::Slab { slots, block_bytes, threads, bytes_max }.into())
            }
            false => Ok(wanted.min(most)),
        }
    }

    pub(super) fn workers(
        &mut self,
        engine: EngineKind,
        cache: CacheMode,
        block_bytes: u32,
        slots: u32,
    ) -> (u32, Start) {
        let threads_max = self.config.io.threads_max.unwrap_or(self.system.cores).max(1);
        let threads_max = match self.fills(cache) {
            true => threads_max.min(FILLING_THREADS_MAX),
            false => threads_max,
        };
        let blocks = self.facts.len.div_ceil(block_bytes.into());
        let useful = (self.facts.len / WORKER_BYTES_MIN).min(blocks - 1).min(1024) as u32;
        // Each needs at least one slot, within the limit for all of them.
        let room = self.config.slots_max(block_bytes).saturating_sub(slots);
        let useful = (threads_max - 1).min(useful);
        let spare = useful.min(room);
        let uses_queue = || uses_queue(self.config, self.consumers, self.system.cores);
        let (workers, start, why) = match (self.config.io.workers, self.order) {
            (Some(n @ 0..=1), _) => (n, Start::Explicit, EXPLICIT.to_owned()),
            (Some(n), Order::AnyOrder) => (n, Start::Explicit, EXPLICIT.to_owned()),
            (Some(n), Order::InOrder) => (
                1,
                Start::Explicit,
                format!("{n} requested, but blocks in order have one consumer"),
            ),
            (None, Order::InOrder) if blocks > 1 && uses_queue() => {
                let (workers, why) = consumer_threads(self.config, self.consumers);
                (workers, Start::AtOnce, why)
            }
            (None, Order::InOrder) => {
                (0, Start::AtOnce, "blocks are consumed in order, by the reading thread".to_owned())
            }
            (None, _) if self.seeks_are_slow() => {
                (0, Start::AtOnce, "rotational device: one stream".to_owned())
            }
            (None, _) if spare == 0 && useful > 0 => (0, Start::AtOnce, NO_ROOM.to_owned()),
            (None, _) if spare == 0 && threads_max > 1 => {
                (0, Start::AtOnce, "too little data for a second thread to help".to_owned())
            }
            (None, _) if spare == 0 => (0, Start::AtOnce, "limited to one thread".to_owned()),
            (None, _) if engine.is_synchronous() && spare < useful => {
                (spare, Start::AtOnce, NO_ROOM.to_owned())
            }
            (None, _) if engine.is_synchronous() => (
                spare,
                Start::AtOnce,
                "with the first thread, one per processor that can help".to_owned(),
            ),
            (None, _) => {
                let why = "more threads start only if the first cannot keep up with the device"
                    .to_owned();
                (spare, Start::WhenBehind, why)
            }
        };
        let value = match start {
            Start::WhenBehind => format!("0 to {workers}"),
            _ => workers.to_string(),
        };
        self.note("workers", value, why);
        (workers, start)
    }
}
