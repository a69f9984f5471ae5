//! How to read what has no places, or does not say how long it is: by one read after another.

use super::{
    ASKED, Choice, HANDED_OVER_SLOTS, RingPlan, Spread, consumers, hands_over, limited_block_bytes,
    size,
};
use crate::config::{CacheMode, Config, EngineKind, Order, Uring, WORKERS_MAX, slots_max};
use crate::pipe;

/// Block of streams, in bytes: it stays in the core's own cache between the read and the consumer. 128 KiB to 1
/// MiB took the same time for 1 GiB of `cat FILE |` (0.35 to 0.37 s), 64 KiB more (0.43). It is not in a
/// huge page: to zero 2 MiB takes longer than a small stream, and 512 KiB in one were no faster.
const STREAM_BLOCK_BYTES: u32 = 256 << 10;

/// Most threads that take turns to read a stream and hash it, if nobody says how many: one at a time reads, at 8
/// GiB/s at best, and a core hashes 6 to 7, so that more should only wait. Measured with two processors only.
const STREAM_THREADS_MAX: u32 = 3;

/// What is known of a stream.
pub(crate) struct StreamFacts {
    /// What it is.
    pub(crate) what: &'static str,
    /// Why it is read as one.
    pub(crate) why: &'static str,
    /// Of a pipe: what it holds.
    pub(crate) pipe: Option<pipe::Size>,
    /// Processors for this process.
    pub(crate) cores: u32,
}

/// The plan, and the reasons.
pub(crate) fn decide_stream(
    facts: &StreamFacts,
    config: &Config,
    order: Order,
) -> (RingPlan, Vec<Choice>) {
    let order = if config.in_order { Order::InOrder } else { order };
    let limited = config.rate_limit.as_ref().map_or(u32::MAX, limited_block_bytes);
    let block_bytes = config.block_bytes.unwrap_or(STREAM_BLOCK_BYTES.min(limited));
    let (workers, spread, workers_why) = workers(facts, config, order, block_bytes);
    let (slots, slots_why) = match order {
        Order::AnyOrder if config.slots.is_some_and(|n| n > 1) => {
            (1, "for each thread, not as many as asked for: one is read, or consumed")
        }
        Order::AnyOrder => {
            (1, "for each thread: they take turns to read, and consume what they read")
        }
        Order::InOrder => {
            let most = slots_max(block_bytes);
            match config.slots {
                Some(n) if n > most => (most, "clamped to 1 GiB"),
                Some(n) => (n, ASKED),
                None if workers > 0 => {
                    let slots = HANDED_OVER_SLOTS.min(most);
                    (slots, "some to read into while others are consumed")
                }
                None => (1, "each is consumed before the next"),
            }
        }
    };
    let ring = RingPlan {
        engine: EngineKind::Stream,
        cache: CacheMode::Buffered,
        block_bytes,
        depth: 1,
        slots,
        workers,
        worker_slots: slots,
        spread,
        align: 1,
        order,
        advise: false,
        pool_threads: 1,
        consume: config.consume,
        spin: config.spin,
        huge_pages: config.huge_pages,
        uring: Uring::default(),
    };
    let block_why = match config.block_bytes {
        Some(_) => ASKED,
        None => "stays in the core's cache between read and consumer",
    };
    let choice = |what, value: String, why: &str| Choice { what, value, why: why.to_owned() };
    let mut choices: Vec<_> = facts.pipe.map(enlarged).into_iter().collect();
    choices.extend([
        choice("engine", ring.engine.name().to_owned(), &format!("{}: {}", facts.what, facts.why)),
        choice("block", size(block_bytes.into()), block_why),
        choice("depth", "1".to_owned(), "a stream is read by one read after another"),
        choice("slots", slots.to_string(), slots_why),
        choice("workers", workers.to_string(), &workers_why),
    ]);
    (ring, choices)
}

/// Threads besides the calling one, when they start, and why so.
fn workers(
    facts: &StreamFacts,
    config: &Config,
    order: Order,
    block_bytes: u32,
) -> (u32, Spread, String) {
    let (most, why) = match order {
        Order::AnyOrder => (WORKERS_MAX.min(slots_max(block_bytes) - 1), "1 GiB of blocks in all"),
        Order::InOrder => (1, "in order, one consumes"),
    };
    match config.workers {
        Some(n) if n > most => (most, Spread::Asked, format!("asked for {n}; {why}")),
        Some(n) => (n, Spread::Asked, ASKED.to_owned()),
        None if order == Order::InOrder && hands_over(config, facts.cores) => {
            let (workers, why) = consumers(config);
            (workers, Spread::AtOnce, why)
        }
        None if order == Order::InOrder => {
            (0, Spread::Asked, "in order, this thread consumes".to_owned())
        }
        None if config.rate_limit.is_some() => {
            (0, Spread::Asked, "not needed at a limited rate".to_owned())
        }
        None => {
            let threads = facts.cores.min(STREAM_THREADS_MAX);
            let threads = threads.min(config.threads_max.unwrap_or(u32::MAX)).max(1);
            let why = "at most: one more when whoever writes is ahead and a processor is idle";
            (threads - 1, Spread::WhenBehind, why.to_owned())
        }
    }
}

fn enlarged(pipe::Size { was, is }: pipe::Size) -> Choice {
    let why = match is > was {
        true => format!("enlarged from {}", size(was as u64)),
        false if is >= pipe::BYTES_MAX => "large enough".to_owned(),
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
        let pipe = Some(pipe::Size { was: 64 << 10, is: 1 << 20 });
        decide_stream(&StreamFacts { what: "a pipe", why: "so", pipe, cores }, config, order)
    }

    #[test]
    fn threads_are_as_many_as_there_are_processors_up_to_three_or_as_was_asked() {
        let asked = |workers| Config { workers, ..Config::default() };
        let few = Config { threads_max: Some(2), ..Config::default() };
        let (any, in_order) = (Order::AnyOrder, Order::InOrder);
        for (cores, config, order, workers, spread) in [
            (1, asked(None), any, 0, Spread::WhenBehind),
            (2, asked(None), any, 1, Spread::WhenBehind),
            (64, asked(None), any, 2, Spread::WhenBehind),
            (64, few, any, 1, Spread::WhenBehind),
            (2, asked(Some(5)), any, 5, Spread::Asked),
            (2, asked(Some(5)), in_order, 1, Spread::Asked),
            (2, Config { block_bytes: Some(64 << 20), ..asked(Some(50)) }, any, 15, Spread::Asked),
            (64, asked(None), in_order, 0, Spread::Asked),
        ] {
            let (ring, _) = decide(cores, &config, order);
            assert_eq!((ring.workers, ring.spread), (workers, spread), "{cores} {config:?}");
        }
    }

    #[test]
    fn what_was_done_to_the_pipe_is_said() {
        let why = |was, is| enlarged(pipe::Size { was, is }).why;
        assert_eq!(why(65_536, 1 << 20), "enlarged from 64 KiB");
        assert_eq!(why(1 << 20, 1 << 20), "large enough");
        assert!(why(8192, 8192).starts_with("no larger one is allowed"));
        let (_, choices) = decide(2, &Config::default(), Order::AnyOrder);
        assert_eq!((choices[0].what, &*choices[0].value), ("pipe", "1 MiB"));
    }
}
