//! Every knob, typed, with its legal range; no flags, no environment, no facts of a source.
//!
//! `None` means *choose by the facts*: [`Plan`](crate::Plan) does. An engine, a cache mode or a block
//! size that is set here is used as it is or refused, never replaced; numbers that exceed what is of
//! use are clamped, and the plan says so.

use std::fmt;

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

/// How a request reaches the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineKind {
    /// Many requests in flight through one ring shared with the kernel. Needs Linux 5.6.
    IoUring,
    /// One `preadv2` at a time on the thread that consumes the block.
    Pread,
    /// Blocks lent straight out of a mapping of the page cache. Needs Linux 5.14
    /// (`MADV_POPULATE_READ`) and [`allow_mmap`](crate::allow_mmap).
    Mmap,
    /// No I/O at all: every read "succeeds" at once and the block holds whatever the slab held.
    /// It measures the cost of this library and of the consumer.
    Null,
}

impl EngineKind {
    /// The name used in options and messages.
    pub const fn name(self) -> &'static str {
        match self {
            EngineKind::IoUring => "io_uring",
            EngineKind::Pread => "pread",
            EngineKind::Mmap => "mmap",
            EngineKind::Null => "null",
        }
    }

    /// Whether a request is finished when it is submitted, so that a second slot gains nothing.
    pub(crate) const fn is_synchronous(self) -> bool {
        !matches!(self, EngineKind::IoUring)
    }

    /// Whether blocks lie in the engine's own memory and no slab is needed.
    pub(crate) const fn lends(self) -> bool {
        matches!(self, EngineKind::Mmap)
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
/// A source that is read as a stream (a pipe, a file without a length) has only the block size of all
/// this, and refuses an engine or a cache mode.
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
    /// consumes (and the first need not be the calling thread); in [`Order::InOrder`] one of them consumes what the calling thread reads
    /// and more than one is the same as one.
    pub workers: Option<u32>,
    /// Most threads to use in all, the calling one included, when `workers` is not set. Default: as
    /// many as there are processors for this process. 0 counts as 1.
    pub threads_max: Option<u32>,
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
        SLAB_BYTES_MAX / u64::from(*.block_bytes)
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
        if let (Some(slots), Some(block_bytes)) = (self.slots, self.block_bytes)
            && u64::from(slots) * u64::from(block_bytes) > SLAB_BYTES_MAX
        {
            return Err(ConfigError::Slab { slots, block_bytes, threads: 1 });
        }
        if self.engine == Some(EngineKind::Mmap)
            && matches!(self.cache, Some(CacheMode::Direct | CacheMode::Dontcache))
        {
            return Err(ConfigError::Contradiction(
                "engine mmap reads the page cache itself: it goes with cache mode buffered only",
            ));
        }
        Ok(())
    }

    /// Whether nothing about how to read was asked for, so that a small file may be read in one go.
    pub(crate) fn is_auto(&self) -> bool {
        self.engine.is_none()
            && self.cache.is_none()
            && self.block_bytes.is_none()
            && self.depth.is_none()
            && self.slots.is_none()
            && self.workers.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_named_in_the_error() {
        let cases: [(Config, &str); 6] = [
            (Config { block_bytes: Some(511), ..Config::default() }, "from 512 to 67108864"),
            (Config { block_bytes: Some(u32::MAX), ..Config::default() }, "from 512 to 67108864"),
            (Config { depth: Some(0), ..Config::default() }, "from 1 to 32768"),
            (Config { slots: Some(32769), ..Config::default() }, "from 1 to 32768"),
            (Config { workers: Some(1025), ..Config::default() }, "from 0 to 1024"),
            (
                Config { slots: Some(17), block_bytes: Some(64 << 20), ..Config::default() },
                "at most 16 slots",
            ),
        ];
        for (config, part) in cases {
            let message = config.validate().expect_err(part).to_string();
            assert!(message.contains(part), "{message}");
        }
        Config::default().validate().expect("the default is legal");
    }
}
