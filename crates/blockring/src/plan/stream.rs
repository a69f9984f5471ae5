//! How to read a stream: one read after another, by one thread at a time.

use super::choose::{
    Choice, EXPLICIT, QUEUE_SLOTS, ReadAhead, RingPlan, Start, consumer_threads, is_tight,
    limited_block_bytes, size, uses_queue,
};
use super::shape::NO_ROOM;
use crate::config::{BLOCK_BYTES_MAX, CacheMode, Config, EngineKind, Order, WORKERS_MAX};
use crate::error::ErrorKind;
use crate::pipe::{PIPE_BYTES_MAX, PipeSize};
use crate::source::{Source, SourceKind};

/// Block size of a stream, in bytes: a block stays in the core's own cache between the read and the
/// consumer. 128 KiB to 1 MiB took the same time for 1 GiB of `cat FILE |` (0.35 to 0.37 s), 64 KiB
/// took longer (0.43 s). Not in a huge page: zeroing 2 MiB takes longer than reading a small
/// stream, and 512 KiB in a huge page were no faster.
const STREAM_BLOCK_BYTES: u32 = 256 << 10;

/// Most threads that read and hash a stream, unless the number is explicit: one at a time reads, at
/// 8 GiB/s at best, and a core hashes 6 to 7, so more would only wait. (Two processors.)
const STREAM_THREADS_MAX: u32 = 3;

/// The facts of a stream.
pub(super) struct StreamFacts {
    /// Kind of the source, for messages.
    pub(super) what: &'static str,
    /// Why it is read as a stream.
    pub(super) why: &'static str,
    /// The capacity of a pipe.
    pub(super) pipe: Option<PipeSize>,
    /// Processors that this process may use.
    pub(super) cores: u32,
}

/// Rejects explicit options that a stream does not support.
pub(super) fn refuse_explicit(source: &Source, config: &Config) -> Result<(), ErrorKind> {
    let what = match source.kind() {
        SourceKind::File if source.is_pseudo() => {
            "a pseudo file, whose content the kernel makes up"
        }
        kind if kind.is_seekable() => "a file that is read from its file position to its end",
        kind => kind.name(),
    };
    if config.io.bypass_cache {
        return Err(ErrorKind::BypassCache(format!("this is {what}")));
    }
    if let Some(engine) = config.explicit_engine().filter(|engine| *engine != EngineKind::Stream) {
        let why = format!(
            "it reads regular files and block devices, and this is {what}; use the engine stream, or \
             leave the engine out"
        );
        return Err(ErrorKind::Engine { engine, why });
    }
    if let Some(cache @ (CacheMode::Direct | CacheMode::Dontcache)) = config.explicit_cache() {
        let why = format!("this is {what}; leave the cache mode out");
        return Err(ErrorKind::Cache { cache, why });
    }
    Ok(())
}

/// Decides how to read a stream. `order`: as for `decide`.
pub(super) fn decide_stream(
    facts: &StreamFacts,
    config: &Config,
    (order, consumers): (Order, u32),
) -> (RingPlan, Vec<Choice>) {
    let io = &config.io;
    let order = if io.in_order { Order::InOrder } else { order };
    let limited = io.rate_limit.as_ref().map_or(u32::MAX, limited_block_bytes);
    let explicit_slots = if order == Order::InOrder { io.slots.unwrap_or(1) } else { 1 };
    let room = config.slab_bytes_max() / u64::from(config.explicit_threads() * explicit_slots);
    let room = 1 << room.clamp(512, BLOCK_BYTES_MAX.into()).ilog2();
    let block_bytes = io.block_bytes.unwrap_or(STREAM_BLOCK_BYTES.min(limited).min(room));
    let (workers, start, workers_why) = workers(facts, config, (order, consumers), block_bytes);
    let (slots, slots_why) = match order {
        Order::AnyOrder if io.slots.is_some_and(|n| n > 1) => {
            (1, "one for each thread, fewer than requested: a thread either reads or consumes")
        }
        Order::AnyOrder => (1, "one for each thread, which consumes the block that it has read"),
        Order::InOrder => {
            let most = config.slots_max(block_bytes);
            match io.slots {
                Some(n) if n > most => {
                    (most, "fewer than requested: the memory limit leaves no room for more")
                }
                Some(n) => (n, EXPLICIT),
                None if workers > 0 => {
                    (QUEUE_SLOTS.min(most), "some are read while others are consumed")
                }
                None => (1, "a block is consumed before the next one is read"),
            }
        }
    };
    let ring = RingPlan {
        engine: EngineKind::Stream,
        slots,
        workers,
        worker_slots: slots,
        start,
        read_ahead: if is_tight(config) { ReadAhead::Off } else { ReadAhead::Default },
        consume: io.consume,
        huge_pages: config.memory.huge_pages,
        is_bounded: config.memory.limit_bytes.is_some(),
        ..RingPlan::one_read(block_bytes, order, config)
    };
    let block_why = match io.block_bytes {
        Some(_) => EXPLICIT,
        None => "small enough to stay in the CPU cache until it is consumed",
    };
    let choice = |what, value: String, why: &str| Choice { what, value, why: why.to_owned() };
    let mut choices: Vec<_> = facts.pipe.map(enlarged).into_iter().collect();
    choices.extend([
        choice("engine", ring.engine.name().to_owned(), &format!("{}: {}", facts.what, facts.why)),
        choice("block-size", size(block_bytes.into()), block_why),
        choice("queue-depth", "1".to_owned(), "a stream has one read at a time"),
        choice("slots", slots.to_string(), slots_why),
        choice("workers", workers.to_string(), &workers_why),
    ]);
    (ring, choices)
}

/// Returns the number of threads besides the calling one, when they start, and why.
fn workers(
    facts: &StreamFacts,
    config: &Config,
    (order, consumers): (Order, u32),
    block_bytes: u32,
) -> (u32, Start, String) {
    let (most, why) = match order {
        Order::AnyOrder => {
            let room = config.slots_max(block_bytes).saturating_sub(1);
            (WORKERS_MAX.min(room), NO_ROOM)
        }
        Order::InOrder => (1, "blocks in order have one consumer"),
    };
    match config.io.workers {
        Some(n) if n > most => (most, Start::Explicit, format!("{n} requested, but {why}")),
        Some(n) => (n, Start::Explicit, EXPLICIT.to_owned()),
        None if order == Order::InOrder && uses_queue(config, consumers, facts.cores) => {
            let (workers, why) = consumer_threads(config, consumers);
            (workers, Start::AtOnce, why)
        }
        None if order == Order::InOrder => {
            (0, Start::Explicit, "blocks are consumed in order, by the reading thread".to_owned())
        }
        None if config.io.threads_max == Some(1) => {
            (0, Start::Explicit, "limited to one thread".to_owned())
        }
        None if config.io.rate_limit.is_some() => {
            (0, Start::Explicit, "not needed under a rate limit".to_owned())
        }
        None => {
            let threads = facts.cores.min(STREAM_THREADS_MAX);
            let threads = threads.min(config.io.threads_max.unwrap_or(u32::MAX));
            let threads = threads.min(most + 1).max(1);
            let why = "at most; each starts only if the writer is ahead and a processor is idle";
            (threads - 1, Start::WhenBehind, why.to_owned())
        }
    }
}

fn enlarged(PipeSize { was, is }: PipeSize) -> Choice {
    let why = match is > was {
        true => format!("enlarged from {}", size(was as u64)),
        false if is >= PIPE_BYTES_MAX => "large enough".to_owned(),
        false => {
            "no larger one is allowed (/proc/sys/fs/pipe-max-size, pipe-user-pages-soft)".to_owned()
        }
    };
    Choice { what: "pipe", value: size(is as u64), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(cores: u32, config: &Config, order: Order) -> (RingPlan, Vec<Choice>) {
        let pipe = Some(PipeSize { was: 64 << 10, is: 1 << 20 });
        decide_stream(&StreamFacts { what: "a pipe", why: "so", pipe, cores }, config, (order, 0))
    }

    #[test]
    fn with_little_memory_nothing_is_read_ahead() {
        for (limit_bytes, expected) in
            [(None, ReadAhead::Default), (Some(15 << 20), ReadAhead::Off)]
        {
            let config = Config::default().with(|config| config.memory.limit_bytes = limit_bytes);
            assert_eq!(decide(2, &config, Order::AnyOrder).0.read_ahead, expected);
        }
    }

    #[test]
    fn threads_are_as_many_as_processors_up_to_three_or_explicit() {
        let explicit = |workers| Config::default().with(|config| config.io.workers = workers);
        let few = Config::default().with(|config| config.io.threads_max = Some(2));
        let large = explicit(Some(50)).with(|config| config.io.block_bytes = Some(64 << 20));
        let (any, in_order) = (Order::AnyOrder, Order::InOrder);
        for (cores, config, order, workers, start) in [
            (1, explicit(None), any, 0, Start::WhenBehind),
            (2, explicit(None), any, 1, Start::WhenBehind),
            (64, explicit(None), any, 2, Start::WhenBehind),
            (64, few, any, 1, Start::WhenBehind),
            (2, explicit(Some(5)), any, 5, Start::Explicit),
            (2, explicit(Some(5)), in_order, 1, Start::Explicit),
            (2, large, any, 15, Start::Explicit),
            (64, explicit(None), in_order, 0, Start::Explicit),
        ] {
            let (ring, _) = decide(cores, &config, order);
            assert_eq!((ring.workers, ring.start), (workers, start), "{cores} {config:?}");
        }
    }

    #[test]
    fn the_plan_says_whether_the_pipe_was_enlarged() {
        let why = |was, is| enlarged(PipeSize { was, is }).why;
        assert_eq!(why(65_536, 1 << 20), "enlarged from 64 KiB");
        assert_eq!(why(1 << 20, 1 << 20), "large enough");
        assert!(why(8192, 8192).starts_with("no larger one is allowed"));
        let (_, choices) = decide(2, &Config::default(), Order::AnyOrder);
        assert_eq!((choices[0].what, &*choices[0].value), ("pipe", "1 MiB"));
    }
}
