//! One sample of reading through the ring, with a consumer that does nothing or as much as it is told.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use blockring::{Block, BoxError, Config, Extent, Plan, RunOptions, Source};

use crate::case::{Missing, Sample};
use crate::interrupt;
use crate::process;
use crate::workload::splitmix;
use crate::workload::target::missing;

/// How long a sample goes on: until so much is read, or so much time has passed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Until {
    pub(crate) bytes: u64,
    pub(crate) time: Option<Duration>,
}

/// What is in the way of the next block.
#[derive(Debug)]
struct Enough;

impl std::fmt::Display for Enough {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("enough was read")
    }
}

impl std::error::Error for Enough {}

/// Counts what comes, and ends it when it is enough.
struct Counter {
    start: Instant,
    time: Option<Duration>,
    /// Blocks that are in flight at most. So many come before it is counted, where there is a time: then memory
    /// and ring are there, and as many are in flight as at the end.
    in_flight: u64,
    bytes: AtomicU64,
    blocks: AtomicU64,
    /// What had come when it began to be counted, and when that was, in nanoseconds after the start.
    skipped_bytes: AtomicU64,
    skipped_ns: AtomicU64,
    /// When it was enough; 0: not yet.
    enough_ns: AtomicU64,
}

/// After so many blocks the clock is looked at: less than 1 % of the 300 ns that a block may cost.
const BLOCKS_PER_LOOK: u64 = 16;

/// A part of a run counts by itself if so many times as much came as is in flight: of less, the first and the last
/// are too large a part (4 MiB x 128, of 1 GiB: 5.1 GB/s from a disk that gives 3.8).
const STEADY_TIMES: u64 = 8;

/// A sample that must wait for its blocks ends after so many times its time all the same.
const PATIENCE: u32 = 10;

impl Counter {
    fn new(config: &Config, time: Option<Duration>) -> Counter {
        let zero = || AtomicU64::new(0);
        let threads = 1 + u64::from(config.io.workers.unwrap_or(0));
        let in_flight = u64::from(config.io.queue_depth.unwrap_or(1)) * threads;
        let (bytes, blocks, enough_ns) = (zero(), zero(), zero());
        let (skipped_bytes, skipped_ns) = (zero(), zero());
        let start = Instant::now();
        Counter { start, time, in_flight, bytes, blocks, skipped_bytes, skipped_ns, enough_ns }
    }

    fn count(&self, block: &Block<'_>) -> Result<(), BoxError> {
        let len = block.bytes.len() as u64;
        let bytes = self.bytes.fetch_add(len, Ordering::Relaxed) + len;
        let blocks = self.blocks.fetch_add(1, Ordering::Relaxed) + 1;
        if blocks == self.in_flight && self.time.is_some() {
            self.skipped_bytes.store(bytes, Ordering::Relaxed);
            self.skipped_ns.store(self.now_ns(), Ordering::Relaxed);
        }
        // Large blocks take a while each.
        let looks = blocks.is_multiple_of(BLOCKS_PER_LOOK) || len >= 65536;
        if interrupt::is_interrupted() || (looks && self.is_over()) {
            // What is in flight is waited for, and counts no more, nor does the time of that.
            let now = self.now_ns();
            let _ = self.enough_ns.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            return Err(Enough.into());
        }
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        (self.start.elapsed().as_nanos() as u64).max(1)
    }

    fn is_over(&self) -> bool {
        let Some(time) = self.time else { return interrupt::is_interrupted() };
        let (elapsed, blocks) = (self.start.elapsed(), self.blocks.load(Ordering::Relaxed));
        interrupt::is_interrupted()
            || (elapsed >= time && blocks >= STEADY_TIMES * self.in_flight)
            || elapsed >= time * PATIENCE
    }

    /// Bytes, blocks, and the time that they took: from when as many were in flight as at the end. Of fewer
    /// than [`STEADY_TIMES`] as many as are in flight, all, and all of the time.
    fn counted(&self) -> (u64, u64, Duration) {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (bytes, blocks) = (load(&self.bytes), load(&self.blocks));
        let end_ns = match load(&self.enough_ns) {
            0 => self.now_ns(),
            enough => enough,
        };
        let (skipped_bytes, skipped_ns) = (load(&self.skipped_bytes), load(&self.skipped_ns));
        match skipped_ns > 0 && blocks >= STEADY_TIMES * self.in_flight {
            true => {
                let wall = Duration::from_nanos(end_ns.saturating_sub(skipped_ns));
                (bytes - skipped_bytes, blocks - self.in_flight, wall)
            }
            false => (bytes, blocks, Duration::from_nanos(end_ns)),
        }
    }
}

/// An end before the end of the file that we have made ourselves is none.
fn unless_enough(result: Result<(), blockring::Error>) -> Result<(), Missing> {
    match result {
        Err(error) if is_enough(&error) => Ok(()),
        result => result.map_err(|error| missing(&error)),
    }
}

fn is_enough(error: &blockring::Error) -> bool {
    matches!(error.kind(), blockring::ErrorKind::Consumer(error) if error.is::<Enough>())
}

/// A sample of everything from the start on, as `config` says. `work` is what is done with each block.
pub(crate) fn from_start(
    path: &Path,
    config: &Config,
    run: &RunOptions<'_>,
    until: Until,
    work: &(dyn Fn(&[u8]) + Sync),
) -> Result<Sample, Missing> {
    let source = Source::open(path).map_err(|error| missing(&error))?;
    let range = Some(0..source.len().unwrap_or(0).min(until.bytes));
    let run = RunOptions { range, ..run.clone() };
    let plan = Plan::choose(&source, config, &run).map_err(|error| missing(&error))?;
    let cpu = process::own_cpu();
    let counter = Counter::new(config, until.time);
    unless_enough(plan.any_order(&source, |block| {
        work(block.bytes);
        counter.count(&block)
    }))?;
    sample(&plan, &counter, cpu)
}

/// Where random reads go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub(crate) len: u64,
    pub(crate) block_bytes: u32,
    pub(crate) seed: u64,
}

/// Places that are made at once: a quarter of a millisecond's work, which half a second and more of reading
/// follows.
const PLACES_AT_ONCE: usize = 65536;

/// A sample of random reads, none of them twice but by chance.
pub(crate) fn scattered(
    source: &Source,
    config: &Config,
    places: Places,
    until: Until,
) -> Result<Sample, Missing> {
    let Places { len, block_bytes, seed } = places;
    let plan = Plan::choose(source, config, &RunOptions::default());
    let plan = plan.map_err(|error| missing(&error))?;
    let cpu = process::own_cpu();
    let counter = Counter::new(config, until.time);
    let mut pass = 0;
    while !counter.is_over() {
        let left = until.bytes.saturating_sub(counter.bytes.load(Ordering::Relaxed));
        let count = usize::try_from(left / u64::from(block_bytes)).unwrap_or(usize::MAX);
        let extents =
            random_extents(len, block_bytes, count.min(PLACES_AT_ONCE), seed ^ (pass << 32));
        if extents.is_empty() {
            break;
        }
        unless_enough(plan.read_extents(source, &extents, |block| counter.count(&block)))?;
        pass += 1;
    }
    sample(&plan, &counter, cpu)
}

fn sample(plan: &Plan, counter: &Counter, cpu: Duration) -> Result<Sample, Missing> {
    let (bytes, operations, wall) = counter.counted();
    if bytes == 0 && counter.time.is_some() {
        let why = "nothing came in this time: take a longer --time";
        return Err(Missing::Unavailable(why.to_owned()));
    }
    let latency = plan.stats().and_then(|stats| stats.latency());
    Ok(Sample {
        wall_s: wall.as_secs_f64(),
        cpu_s: Some((process::own_cpu() - cpu).as_secs_f64()),
        bytes,
        operations,
        latency_ns: latency.map(Into::into),
        ..Sample::default()
    })
}

/// Random places in `len` bytes, each at a multiple of `block_bytes`, the same for the same `seed`.
pub(crate) fn random_extents(len: u64, block_bytes: u32, count: usize, seed: u64) -> Vec<Extent> {
    let blocks = (len / u64::from(block_bytes)).max(1);
    let mut state = seed;
    let next = |_| {
        let offset = splitmix(&mut state) % blocks * u64::from(block_bytes);
        Extent { offset, len: block_bytes.min(len.min(u32::MAX.into()) as u32) }
    };
    (0..count).map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_places_are_blocks_of_the_file_and_repeat() {
        let extents = random_extents(1 << 20, 4096, 1000, 7);
        assert!(extents.iter().all(|e| e.offset % 4096 == 0 && e.offset + 4096 <= 1 << 20));
        assert_eq!(extents, random_extents(1 << 20, 4096, 1000, 7));
        assert_ne!(extents, random_extents(1 << 20, 4096, 1000, 8));
        let distinct: std::collections::BTreeSet<_> = extents.iter().map(|e| e.offset).collect();
        assert!(distinct.len() > 240, "most of 256 blocks: {}", distinct.len());
        // The first output for a seed of 0, from the authors' own test vectors.
        assert_eq!(splitmix(&mut 0), 0xE220_A839_7B1D_CDAF);
    }

    #[test]
    fn a_sample_ends_where_it_should() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = crate::scratch::Scratch::with_random(folder.path(), 1 << 20).unwrap();
        let config = Config::default().with(|config| {
            config.io.block_bytes = Some(4096);
            config.io.queue_depth = Some(4);
        });
        let until = |bytes, time| Until { bytes, time };
        let read = |until| {
            from_start(scratch.path(), &config, &RunOptions::default(), until, &|_| {}).unwrap()
        };
        let all = read(until(u64::MAX, None));
        assert_eq!((all.bytes, all.operations), (1 << 20, 256));
        assert_eq!(read(until(8192, None)).operations, 2);
        let short = read(until(u64::MAX, Some(Duration::from_nanos(1))));
        assert!((1..256).contains(&short.operations), "{short:?}");
        assert_eq!(short.bytes, short.operations * 4096);
        // All of it in flight at once: then all of the time counts, and not what was left when it had come.
        let config = config.with(|config| config.io.queue_depth = Some(256));
        let at_once = from_start(
            scratch.path(),
            &config,
            &RunOptions::default(),
            until(u64::MAX, Some(Duration::from_secs(9))),
            &|_| {},
        );
        assert_eq!(at_once.unwrap().bytes, 1 << 20);
        let source = Source::open(scratch.path()).unwrap();
        let places = Places { len: 1 << 20, block_bytes: 4096, seed: 1 };
        let sample = scattered(&source, &config, places, until(70_000 * 4096, None)).unwrap();
        assert_eq!(sample.operations, 70_000, "the list once, and a part of the next");
    }
}
