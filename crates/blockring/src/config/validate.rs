//! Checks a configuration: each option against its range, and the options against each other.

use super::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, CacheMode, Config, EngineKind, HugePages, IoPriority,
    MEMORY_BYTES_MIN, POOL_THREADS_MAX, QUEUE_DEPTH_MAX, SLOTS_MAX, SQPOLL_IDLE_MS_MAX,
    WORKERS_MAX, size, stride_bytes,
};
use crate::rate_limit::RateLimit;

/// An invalid [`Config`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number is out of range.
    #[error("{name} is {value}, and must be from {min} to {max}")]
    Range {
        /// The option.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The smallest valid value.
        min: u64,
        /// The largest valid value.
        max: u64,
    },
    /// The slots of all threads would take more than 1 GiB, or more than [`Memory::limit_bytes`](super::Memory::limit_bytes).
    #[error("{slots} slots of {block_bytes} bytes on {threads} thread{} are more than {}: {}",
        if *.threads == 1 { "" } else { "s" }, size(*.bytes_max), what_fits(*.block_bytes, *.bytes_max))]
    Slab {
        /// Slots of each thread.
        slots: u32,
        /// Bytes of a block.
        block_bytes: u32,
        /// Threads that read.
        threads: u32,
        /// Most bytes that all of them may take.
        bytes_max: u64,
    },
    /// [`Config::set`]: no option has this name.
    #[error("there is no option {key:?}")]
    Key {
        /// The name.
        key: String,
    },
    /// [`Config::set`]: the option does not have this value.
    #[error("{key}={value}: the values are {values}")]
    Value {
        /// The option.
        key: &'static str,
        /// The value.
        value: String,
        /// Its values: see [`Knob::values`](crate::Knob::values).
        values: &'static str,
    },
    /// Two options exclude each other.
    #[error("{0}")]
    Contradiction(&'static str),
}

/// Suggests the largest setting that fits.
fn what_fits(block_bytes: u32, bytes_max: u64) -> String {
    match bytes_max / stride_bytes(block_bytes) {
        0 => format!("use blocks of at most {}", size(1 << bytes_max.max(1).ilog2())),
        slots => format!("use at most {slots} slots of this size in all"),
    }
}

impl Config {
    /// Checks every option against its range, and the options against each other.
    ///
    /// # Errors
    ///
    /// The first invalid option.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Config { io, memory, uring, .. } = self;
        let range = |name, value: Option<u32>, min: u32, max: u32| match value {
            Some(v) if v < min || v > max => {
                Err(ConfigError::Range { name, value: v.into(), min: min.into(), max: max.into() })
            }
            _ => Ok(()),
        };
        range("block-size", io.block_bytes, BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)?;
        range("queue-depth", io.queue_depth, 1, QUEUE_DEPTH_MAX)?;
        range("slots", io.slots, 1, SLOTS_MAX)?;
        range("workers", io.workers, 0, WORKERS_MAX)?;
        range("pool-threads", io.pool_threads, 1, POOL_THREADS_MAX)?;
        range("sqpoll", uring.sqpoll, 0, SQPOLL_IDLE_MS_MAX)?;
        if let Some(IoPriority::BestEffort(level @ 8..)) = io.priority {
            let (value, min, max) = (level.into(), 0, 7);
            return Err(ConfigError::Range { name: "I/O priority", value, min, max });
        }
        if let Some(value @ 0..MEMORY_BYTES_MIN) = memory.limit_bytes {
            let (min, max) = (MEMORY_BYTES_MIN, u64::MAX);
            return Err(ConfigError::Range { name: "memory", value, min, max });
        }
        self.fits()?;
        match self.contradiction() {
            Some(what) => Err(ConfigError::Contradiction(what)),
            None => Ok(()),
        }
    }

    /// Checks that the explicit numbers fit into memory if all others are as small as possible.
    fn fits(&self) -> Result<(), ConfigError> {
        let slots = self.explicit_slots().unwrap_or(1);
        let block_bytes = self.io.block_bytes.unwrap_or(BLOCK_BYTES_MIN);
        let (threads, bytes_max) = (self.explicit_threads(), self.slab_bytes_max());
        let bytes = stride_bytes(block_bytes) * u64::from(slots) * u64::from(threads);
        match bytes > bytes_max {
            true => Err(ConfigError::Slab { slots, block_bytes, threads, bytes_max }),
            false => Ok(()),
        }
    }

    /// Returns a message if two options exclude each other.
    fn contradiction(&self) -> Option<&'static str> {
        let Config { io, memory, uring, mmap, .. } = self;
        let too_long = |limit: &RateLimit| {
            let second = limit.bytes_per_s().get().max(4096);
            io.block_bytes.is_some_and(|bytes| u64::from(bytes) > second)
        };
        let not_direct = matches!(io.cache, Some(CacheMode::Buffered | CacheMode::Dontcache));
        let not_buffered = io.bypass_cache || io.cache.is_some_and(|c| c != CacheMode::Buffered);
        let is_mmap = io.engine == Some(EngineKind::Mmap);
        let other_engine = |wanted| io.engine.is_some_and(|engine| engine != wanted);
        let rules = [
            (
                is_mmap && mmap.is_none(),
                "engine mmap needs Config::allow_mmap: the bytes of a mapping may change",
            ),
            (
                is_mmap && not_buffered,
                "engine mmap reads the page cache itself: it works with cache mode buffered only",
            ),
            (
                is_mmap && memory.huge_pages != HugePages::default(),
                "engine mmap has no slots, so no huge pages for them",
            ),
            (
                uring.is_set() && other_engine(EngineKind::IoUring),
                "drain, link, SQPOLL, IOPOLL, fixed buffers and a fixed file are options of the \
                 engine io_uring, and another engine was chosen",
            ),
            (
                io.pool_threads.is_some() && other_engine(EngineKind::Pool),
                "pool threads are an option of the engine pool, and another engine was chosen",
            ),
            (
                io.bypass_cache && not_direct,
                "bypassing the page cache works with cache mode direct only",
            ),
            (
                uring.iopoll && not_direct,
                "IOPOLL polls the device: it works with cache mode direct only",
            ),
            (
                io.rate_limit.as_ref().is_some_and(too_long),
                "a block is larger than the rate limit per second: use smaller blocks, or leave the \
                 block size out",
            ),
            (
                uring.drain && uring.link,
                "drain and link are two ways to force an order: use one of them",
            ),
        ];
        rules.into_iter().find_map(|(is_wrong, what)| is_wrong.then_some(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_legal_range() {
        type Change = fn(&mut Config);
        let cases: [(Change, &str); 15] = [
            (|c| c.memory.limit_bytes = Some(1), "from 262144"),
            (
                |c| (c.memory.limit_bytes, c.io.block_bytes) = (Some(4 << 20), Some(8 << 20)),
                "at most 4 MiB",
            ),
            (
                |c| (c.memory.limit_bytes, c.io.workers) = (Some(4 << 20), Some(1024)),
                "at most 1024 slots",
            ),
            (
                |c| {
                    c.memory.limit_bytes = Some(4 << 20);
                    (c.io.queue_depth, c.io.block_bytes) = (Some(9), Some(512 << 10));
                },
                "more than 4 MiB: use at most 8 slots",
            ),
            (
                |c| {
                    c.memory.limit_bytes = Some(4 << 20);
                    (c.io.slots, c.io.workers, c.io.block_bytes) =
                        (Some(5), Some(1), Some(1 << 20));
                },
                "5 slots of 1048576 bytes on 2 threads",
            ),
            (|c| c.io.block_bytes = Some(511), "from 512 to 67108864"),
            (|c| c.io.block_bytes = Some(u32::MAX), "from 512 to 67108864"),
            (|c| c.io.queue_depth = Some(0), "from 1 to 32768"),
            (|c| c.io.slots = Some(32769), "from 1 to 32768"),
            (|c| c.io.workers = Some(1025), "from 0 to 1024"),
            (|c| (c.io.slots, c.io.block_bytes) = (Some(17), Some(64 << 20)), "at most 16 slots"),
            (|c| c.io.priority = Some(IoPriority::BestEffort(8)), "from 0 to 7"),
            (
                |c| (c.uring.iopoll, c.io.engine) = (true, Some(EngineKind::Libaio)),
                "options of the engine io_uring",
            ),
            (
                |c| (c.io.bypass_cache, c.io.cache) = (true, Some(CacheMode::Buffered)),
                "direct only",
            ),
            (|c| c.io.engine = Some(EngineKind::Mmap), "needs Config::allow_mmap"),
        ];
        for (change, part) in cases {
            let config = Config::default().with(change);
            let message = config.validate().expect_err(part).to_string();
            assert!(message.contains(part), "{message}");
        }
        Config::default().validate().expect("the default is legal");
    }
}
