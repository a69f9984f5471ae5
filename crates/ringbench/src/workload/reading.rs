//! One sample of reading through the ring, with a consumer that does nothing or as much as it is told.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use blockring::{Block, BoxError, Config, Extent, Order, Plan, Source};

use crate::case::{Missing, Sample};
use crate::interrupt;
use crate::process;
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
    bytes: AtomicU64,
    blocks: AtomicU64,
}

/// After so many blocks the clock is looked at: less than 1 % of the 300 ns that a block may cost.
const BLOCKS_PER_LOOK: u64 = 16;

impl Counter {
    fn new(time: Option<Duration>) -> Counter {
        let (bytes, blocks) = (AtomicU64::new(0), AtomicU64::new(0));
        Counter { start: Instant::now(), time, bytes, blocks }
    }

    fn count(&self, block: &Block<'_>) -> Result<(), BoxError> {
        self.bytes.fetch_add(block.bytes.len() as u64, Ordering::Relaxed);
        let blocks = self.blocks.fetch_add(1, Ordering::Relaxed);
        if interrupt::is_interrupted() {
            return Err(Enough.into());
        }
        match self.time {
            // Large blocks take a while each.
            Some(time)
                if (blocks.is_multiple_of(BLOCKS_PER_LOOK) || block.bytes.len() >= 65536)
                    && self.start.elapsed() >= time =>
            {
                Err(Enough.into())
            }
            _ => Ok(()),
        }
    }

    fn is_over(&self) -> bool {
        interrupt::is_interrupted() || self.time.is_some_and(|time| self.start.elapsed() >= time)
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
    order: Order,
    until: Until,
    work: &(dyn Fn(&[u8]) + Sync),
) -> Result<Sample, Missing> {
    let source = Source::open(path).map_err(|error| missing(&error))?;
    let plan = Plan::choose(&source, config, order).map_err(|error| missing(&error))?;
    let range = 0..source.len().unwrap_or(0).min(until.bytes);
    let cpu = process::own_cpu();
    let counter = Counter::new(until.time);
    let result = match order {
        Order::AnyOrder => plan.range_any_order(range, |block| {
            work(block.bytes);
            counter.count(&block)
        }),
        Order::InOrder => plan.range_in_order(range, |block| {
            work(block.bytes);
            counter.count(&block)
        }),
    };
    unless_enough(result)?;
    Ok(sample(&plan, &counter, cpu))
}

/// A sample of random reads: `extents` over and over, from a different one each time, until it is enough.
pub(crate) fn scattered(
    source: &Source,
    config: &Config,
    extents: &[Extent],
    until: Until,
) -> Result<Sample, Missing> {
    let plan = Plan::choose(source, config, Order::AnyOrder).map_err(|error| missing(&error))?;
    let cpu = process::own_cpu();
    let counter = Counter::new(until.time);
    while !counter.is_over() {
        let read = counter.bytes.load(Ordering::Relaxed);
        let longest = extents.iter().map(|extent| u64::from(extent.len)).max().unwrap_or(0);
        let left = until.bytes.saturating_sub(read) / longest.max(1);
        let part = &extents[..extents.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
        if part.is_empty() {
            break;
        }
        unless_enough(plan.extents_any_order(part, |block| counter.count(&block)))?;
    }
    Ok(sample(&plan, &counter, cpu))
}

fn sample(plan: &Plan<'_>, counter: &Counter, cpu: Duration) -> Sample {
    let wall = counter.start.elapsed();
    let latency = plan.stats().and_then(|stats| stats.latency());
    Sample {
        wall_s: wall.as_secs_f64(),
        cpu_s: Some((process::own_cpu() - cpu).as_secs_f64()),
        bytes: counter.bytes.load(Ordering::Relaxed),
        operations: counter.blocks.load(Ordering::Relaxed),
        latency_ns: latency.map(Into::into),
        ..Sample::default()
    }
}

/// Random places in `len` bytes, each at a multiple of `block_bytes`, the same for the same `seed`: splitmix64
/// (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
pub(crate) fn random_extents(len: u64, block_bytes: u32, count: usize, seed: u64) -> Vec<Extent> {
    let blocks = (len / u64::from(block_bytes)).max(1);
    let mut state = seed;
    let next = |_| {
        let offset = splitmix(&mut state) % blocks * u64::from(block_bytes);
        Extent { offset, len: block_bytes.min(len.min(u32::MAX.into()) as u32) }
    };
    (0..count).map(next).collect()
}

pub(crate) fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
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
        let scratch = crate::scratch::Scratch::with_random(folder.path(), "t", 1 << 20).unwrap();
        let config = Config { block_bytes: Some(4096), depth: Some(4), ..Config::default() };
        let until = |bytes, time| Until { bytes, time };
        let read =
            |until| from_start(scratch.path(), &config, Order::AnyOrder, until, &|_| {}).unwrap();
        let all = read(until(u64::MAX, None));
        assert_eq!((all.bytes, all.operations), (1 << 20, 256));
        assert_eq!(read(until(8192, None)).operations, 2);
        assert!(read(until(u64::MAX, Some(Duration::from_nanos(1)))).operations < 256);
        let source = Source::open(scratch.path()).unwrap();
        let extents = random_extents(1 << 20, 4096, 10, 1);
        let sample = scattered(&source, &config, &extents, until(25 * 4096, None)).unwrap();
        assert_eq!(sample.operations, 25, "the list twice, and half of it");
    }
}
