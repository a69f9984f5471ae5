//! One sample of reading through the ring: from the start of a file, or at random offsets.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use blockring::{
    AllowMmap, Block, BoxError, CacheMode, Config, EngineKind, ErrorKind, Extent, Plan, RunOptions,
    Source,
};

use crate::model::case::{Missing, Sample};
use crate::runner::{Cache, Stopwatch, interrupt};

/// Most memory that the library takes for the blocks of a run, in bytes.
pub(crate) const MEMORY_BYTES_MAX: u64 = 1 << 30;

/// Most threads that the library takes for the engine `pool`.
const POOL_THREADS_MAX: u32 = 1024;

/// A configuration with one thread that consumes; of the engine `pool`, with a thread for each request.
pub(crate) fn config(
    engine: impl Into<Option<EngineKind>>,
    cache: CacheMode,
    block_bytes: u32,
    depth: u32,
) -> Config {
    Config::default().with(|config| {
        config.io.engine = engine.into();
        config.io.cache = Some(cache);
        config.io.block_bytes = Some(block_bytes);
        config.io.queue_depth = Some(depth);
        config.io.workers = Some(0);
        let is_pool = config.io.engine == Some(EngineKind::Pool);
        config.io.pool_threads = is_pool.then_some(depth.min(POOL_THREADS_MAX));
    })
}

/// The same configuration, with the engine `mmap`.
pub(crate) fn mapped(config: Config) -> Config {
    #[expect(unsafe_code)]
    // SAFETY: bytes that change are only read, and hashed.
    let allowed = unsafe { AllowMmap::new() };
    config.allow_mmap(allowed).with(|config| config.io.engine = Some(EngineKind::Mmap))
}

/// The page cache that cold reads in this mode start from: direct reads bypass it.
pub(crate) fn cold(cache: CacheMode) -> Cache {
    if cache == CacheMode::Direct { Cache::Any } else { Cache::Cold }
}

/// The end of a sample: after so many bytes, or after some time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Until {
    pub(crate) bytes: u64,
    pub(crate) time: Option<Duration>,
}

impl Until {
    pub(crate) fn bytes(bytes: u64) -> Until {
        Until { bytes, time: None }
    }

    pub(crate) fn time(time: Duration) -> Until {
        Until { bytes: u64::MAX, time: Some(time) }
    }
}

/// Counts blocks, and ends the sample when there are enough.
struct Counter {
    clock: Stopwatch,
    time: Option<Duration>,
    /// Most blocks in flight. If the sample ends by time, counting starts after as many blocks: then
    /// memory and ring are set up, and as many are in flight as at the end.
    in_flight: u64,
    bytes: AtomicU64,
    blocks: AtomicU64,
    /// Bytes and time, in nanoseconds, before counting started.
    skipped_bytes: AtomicU64,
    skipped_ns: AtomicU64,
    /// Time of the last block that counts, in nanoseconds; 0 before it.
    enough_ns: AtomicU64,
}

/// Blocks between two looks at the clock: less than 1 % of the 300 ns that a block may cost.
const BLOCKS_PER_LOOK: u64 = 16;

/// Blocks of this size and more take long enough for a look at the clock after each, in bytes.
const LARGE_BLOCK_BYTES: u64 = 65536;

/// The first and the last blocks in flight are left out only of a sample with this many times as many
/// blocks; of a shorter one, they are too large a part (4 MiB x 128, of 1 GiB: 5.1 GB/s from a disk that
/// gives 3.8).
const STEADY_TIMES: u64 = 8;

/// A sample ends after this many times its time even if it is not steady yet.
const PATIENCE: u32 = 10;

impl Counter {
    fn new(config: &Config, time: Option<Duration>) -> Counter {
        let threads = 1 + u64::from(config.io.workers.unwrap_or(0));
        Counter {
            clock: Stopwatch::start(),
            time,
            in_flight: u64::from(config.io.queue_depth.unwrap_or(1)) * threads,
            bytes: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            skipped_bytes: AtomicU64::new(0),
            skipped_ns: AtomicU64::new(0),
            enough_ns: AtomicU64::new(0),
        }
    }

    fn count(&self, block: &Block<'_>) -> Result<(), BoxError> {
        let len = block.bytes.len() as u64;
        let bytes = self.bytes.fetch_add(len, Ordering::Relaxed) + len;
        let blocks = self.blocks.fetch_add(1, Ordering::Relaxed) + 1;
        if blocks == self.in_flight && self.time.is_some() {
            self.skipped_bytes.store(bytes, Ordering::Relaxed);
            self.skipped_ns.store(self.now_ns(), Ordering::Relaxed);
        }
        let looks = blocks.is_multiple_of(BLOCKS_PER_LOOK) || len >= LARGE_BLOCK_BYTES;
        if interrupt::is_interrupted() || (looks && self.is_over()) {
            // The library waits for the blocks in flight; neither they nor that time count.
            let now = self.now_ns();
            let _ = self.enough_ns.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            return Err("enough was read".into());
        }
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        (self.clock.elapsed().as_nanos() as u64).max(1)
    }

    fn is_steady(&self) -> bool {
        self.blocks.load(Ordering::Relaxed) >= STEADY_TIMES * self.in_flight
    }

    fn is_over(&self) -> bool {
        let elapsed = self.clock.elapsed();
        let is_late = |time| elapsed >= time * PATIENCE || (elapsed >= time && self.is_steady());
        interrupt::is_interrupted() || self.time.is_some_and(is_late)
    }

    /// Ends a run of `plan`. An end before the end of the file that this counter caused is no error.
    fn end(&self, run: Result<(), blockring::Error>) -> Result<(), Missing> {
        match run {
            Err(blockring::Error { kind: ErrorKind::Consumer(_), .. })
                if self.enough_ns.load(Ordering::Relaxed) > 0 =>
            {
                Ok(())
            }
            run => Ok(run?),
        }
    }

    fn sample(&self, plan: &Plan) -> Result<Sample, Missing> {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (mut bytes, mut blocks) = (load(&self.bytes), load(&self.blocks));
        if bytes == 0 && self.time.is_some() {
            return Missing::unavailable("nothing was read in this time: use a longer --time");
        }
        let mut wall_ns = match load(&self.enough_ns) {
            0 => self.now_ns(),
            enough => enough,
        };
        let skipped_ns = load(&self.skipped_ns);
        if skipped_ns > 0 && self.is_steady() {
            bytes -= load(&self.skipped_bytes);
            blocks -= self.in_flight;
            wall_ns = wall_ns.saturating_sub(skipped_ns);
        }
        let sample = self.clock.sample_of(Duration::from_nanos(wall_ns), bytes, blocks);
        let latency = plan.stats().and_then(|stats| stats.latency());
        Ok(Sample { latency_ns: latency.map(Into::into), ..sample })
    }
}

/// Opens a file for plain system calls.
pub(crate) fn open(path: &Path, direct: bool) -> io::Result<File> {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    File::options().read(true).custom_flags(flags).open(path)
}

/// Reads from the start on, and discards the blocks.
pub(crate) fn from_start(path: &Path, config: &Config, until: Until) -> Result<Sample, Missing> {
    consume(path, config, &RunOptions::default(), until, &|_| ())
}

/// Reads from the start on, and calls `consumer` with each block.
pub(crate) fn consume(
    path: &Path,
    config: &Config,
    run: &RunOptions<'_>,
    until: Until,
    consumer: &(dyn Fn(&[u8]) + Sync),
) -> Result<Sample, Missing> {
    let source = Source::open(path)?;
    let range = Some(0..source.len().unwrap_or(0).min(until.bytes));
    let plan = Plan::choose(&source, config, &RunOptions { range, ..run.clone() })?;
    let counter = Counter::new(config, until.time);
    counter.end(plan.any_order(&source, |block| {
        consumer(block.bytes);
        counter.count(&block)
    }))?;
    counter.sample(&plan)
}

/// The blocks that random reads choose from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocks {
    /// Of all of them.
    pub(crate) bytes: u64,
    pub(crate) block_bytes: u32,
}

/// Random reads that are planned at once: 0.25 ms of work, against 0.5 s and more of reading.
const READS_AT_ONCE: usize = 65536;

pub(crate) fn scattered(
    path: &Path,
    config: &Config,
    blocks: Blocks,
    seed: u64,
    until: Until,
) -> Result<Sample, Missing> {
    let source = Source::open(path)?;
    let plan = Plan::choose(&source, config, &RunOptions::default())?;
    let mut random = fastrand::Rng::with_seed(seed);
    let counter = Counter::new(config, until.time);
    while !counter.is_over() {
        let left = until.bytes.saturating_sub(counter.bytes.load(Ordering::Relaxed));
        let count = usize::try_from(left / u64::from(blocks.block_bytes)).unwrap_or(usize::MAX);
        let extents = random_extents(blocks, count.min(READS_AT_ONCE), &mut random);
        if extents.is_empty() {
            break;
        }
        counter.end(plan.read_extents(&source, &extents, |block| counter.count(&block)))?;
    }
    counter.sample(&plan)
}

/// Random blocks, independent of each other: some may come twice.
pub(crate) fn random_extents(
    Blocks { bytes, block_bytes }: Blocks,
    count: usize,
    random: &mut fastrand::Rng,
) -> Vec<Extent> {
    let (block, blocks) = (u64::from(block_bytes), (bytes / u64::from(block_bytes)).max(1));
    let len = block.min(bytes) as u32;
    (0..count).map(|_| Extent { offset: random.u64(0..blocks) * block, len }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::scratch::Scratch;

    #[test]
    fn random_extents_are_blocks_of_the_file_and_repeat() {
        let blocks = Blocks { bytes: 1 << 20, block_bytes: 4096 };
        let extents = |seed| random_extents(blocks, 1000, &mut fastrand::Rng::with_seed(seed));
        assert!(extents(7).iter().all(|e| e.offset % 4096 == 0 && e.offset + 4096 <= 1 << 20));
        assert_eq!(extents(7), extents(7));
        assert_ne!(extents(7), extents(8));
        let distinct: std::collections::BTreeSet<_> = extents(7).iter().map(|e| e.offset).collect();
        assert!(distinct.len() > 240, "most of 256 blocks: {}", distinct.len());
    }

    #[test]
    fn a_sample_ends_where_it_should() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::with_random(folder.path(), 1 << 20).unwrap();
        let path = scratch.path();
        let config = config(None, CacheMode::Buffered, 4096, 4);
        let all = from_start(path, &config, Until::bytes(u64::MAX)).unwrap();
        assert_eq!((all.bytes, all.operations), (1 << 20, 256));
        assert_eq!(from_start(path, &config, Until::bytes(8192)).unwrap().operations, 2);
        let short = from_start(path, &config, Until::time(Duration::from_nanos(1))).unwrap();
        assert!((1..256).contains(&short.operations), "{short:?}");
        assert_eq!(short.bytes, short.operations * 4096);
        // If all of it is in flight at once, nothing is left out.
        let deep = config.clone().with(|config| config.io.queue_depth = Some(256));
        let at_once = from_start(path, &deep, Until::time(Duration::from_secs(9)));
        assert_eq!(at_once.unwrap().bytes, 1 << 20);
        let blocks = Blocks { bytes: 1 << 20, block_bytes: 4096 };
        let sample = scattered(path, &config, blocks, 1, Until::bytes(70_000 * 4096)).unwrap();
        assert_eq!(sample.operations, 70_000, "the extents of two rounds");
    }
}
