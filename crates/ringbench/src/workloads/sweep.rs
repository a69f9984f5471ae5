//! Everything with everything: block sizes, depths, cache modes, engines and more; other ways of reading
//! beside them; and how many requests are in flight when the consumer is slow.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use blockring::{CacheMode, Config, Consume, EngineKind, RunOptions, SLAB_BYTES_MAX, Trace};
use serde_json::Value;

use crate::args::Common;
use crate::cache::Cache;
use crate::case::{Case, Chart, Group, Metric, Missing, Sample, show_scaled};
use crate::runner::Rounds;
use crate::session::{Cost, Planned, Session};
use crate::values::{parse_block, parse_size, parse_time, show_size};
use crate::workload::reading::{self, Until};
use crate::workload::target::{Target, carry_out, failed};
use crate::workload::ways::{self, Pieces, Way};
use crate::workload::{parse_cache, parse_engine};

/// Block sizes, depths, cache modes, engines and more, each with each, as heat maps.
///
/// Beside them ways of reading that are no engines here, and what a slow consumer does to the number of
/// reads in flight. In a folder, a file of its own is made and removed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A file, a block device, or a folder
    #[arg(value_name = "FILE|DIR|DEVICE")]
    path: PathBuf,
    /// Of the file that is made in a folder
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    size: u64,
    /// Bytes of a block
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = parse_block,
        default_value = "4K,16K,64K,128K,256K,512K,1M,4M,16M")]
    block_sizes: Vec<u32>,
    /// Reads in flight
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128",
        value_parser = clap::value_parser!(u32).range(1..=32768))]
    depths: Vec<u32>,
    /// What the page cache has to do with it: direct, buffered, dontcache
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = parse_cache,
        default_value = "direct,buffered")]
    caches: Vec<CacheMode>,
    /// Engines
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = parse_engine,
        default_value = "io_uring,libaio,pool")]
    engines: Vec<EngineKind>,
    /// From 1K to 16M, depths from 1 to 4000, with and without O_DIRECT, blocks consumed each as it comes or
    /// all that have come: the grid of the article on io_uring and BLAKE3
    #[arg(long, conflicts_with_all = ["block_sizes", "depths", "caches", "engines"])]
    article: bool,
    /// How long each sample goes on, at most
    #[arg(short, long, value_name = "TIME", default_value = "300ms", value_parser = parse_time)]
    time: Duration,
    /// Only these: grid, ways, slow
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = ["grid", "ways", "slow"],
        default_value = "grid,ways,slow")]
    only: Vec<String>,
    #[command(flatten)]
    common: Common,
}

const BYTES_MIN: u64 = 64 << 20;

const ROUNDS: Rounds = Rounds::Fixed(3);

/// How often the slow consumer hashes each block.
const SLOWDOWNS: [u32; 5] = [0, 1, 2, 4, 8];

/// What a slow consumer reads, in bytes: few enough that every change of the number in flight is kept.
const SLOW_BYTES: u64 = 128 << 20;

/// One map.
#[derive(Debug, Clone, Copy)]
struct Grid {
    engine: EngineKind,
    cache: CacheMode,
    consume: Consume,
    fixed: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let common = &args.common;
    let mut target = Target::new(&args.path, args.size, BYTES_MIN, common.smoke)?;
    let mut session = Session::new("sweep", common, &target.described())?;
    if !carry_out(args, &mut target, &mut session, plan)? {
        return Ok(true);
    }
    conclude(&mut session);
    session.finish()
}

fn plan<'a>(args: &'a Args, target: &'a Target) -> Vec<Planned<'a>> {
    let wants = |what: &str| args.only.iter().any(|only| only == what);
    let mut groups = Vec::new();
    if wants("grid") {
        groups.extend(grids(args).into_iter().map(|grid| grid_group(args, target, grid)));
    }
    if wants("ways") {
        groups.extend(args.caches.iter().map(|cache| ways_group(args, target, *cache)));
    }
    if wants("slow") {
        groups.push(slow_group(args, target));
    }
    groups
}

fn grids(args: &Args) -> Vec<Grid> {
    let mut grids = Vec::new();
    let plain = |engine, cache| Grid { engine, cache, consume: Consume::Each, fixed: false };
    for &cache in &args.caches {
        for &engine in &args.engines {
            grids.push(plain(engine, cache));
            if engine == EngineKind::IoUring {
                grids.push(Grid { consume: Consume::Batch, ..plain(engine, cache) });
                if !args.article {
                    grids.push(Grid { fixed: true, ..plain(engine, cache) });
                }
            }
        }
    }
    grids.truncate(if args.common.smoke { 3 } else { usize::MAX });
    grids.retain(|grid| !args.article || grid.engine == EngineKind::IoUring);
    grids
}

fn axes(args: &Args) -> (Vec<u32>, Vec<u32>) {
    if args.common.smoke {
        return (vec![4096, 65536], vec![1, 4]);
    }
    if !args.article {
        return (args.block_sizes.clone(), args.depths.clone());
    }
    let blocks = (0..=14).map(|shift| 1024 << shift).collect();
    (blocks, vec![1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4000])
}

fn sample_time(args: &Args) -> Duration {
    if args.common.smoke { Duration::from_millis(2) } else { args.time }
}

fn state(cache: CacheMode) -> Cache {
    if cache == CacheMode::Direct { Cache::Any } else { Cache::Cold }
}

fn grid_group<'a>(args: &Args, target: &'a Target, grid: Grid) -> Planned<'a> {
    let mut name = format!("{} {}", grid.engine, grid.cache);
    if grid.fixed {
        name.push_str(", fixed buffers");
    }
    if grid.consume == Consume::Batch {
        name.push_str(", consumed in batches");
    }
    let about = format!("How fast a cold file is read by block size and depth: {name}.");
    let heat = Chart::Heat { x: "depth".to_owned(), y: "block".to_owned() };
    let group = Group::new(name, about, Metric::BytesPerS, heat);
    let mut planned = Planned::new(group, &target.paths(), ROUNDS);
    let (blocks, depths) = axes(args);
    let time = sample_time(args);
    for &block_bytes in &blocks {
        for &depth in &depths {
            let block = show_size(block_bytes.into());
            let case = Case::new(format!("{block} x {depth}")).with("block", block);
            let case = case.with("depth", depth).with("cache state", "cold");
            if u64::from(block_bytes) * u64::from(depth) > SLAB_BYTES_MAX {
                planned.add_missing(case, "it would take more than 1 GiB of memory");
                continue;
            }
            let config = Config::default().with(|config| {
                config.io.engine = Some(grid.engine);
                config.io.cache = Some(grid.cache);
                config.io.block_bytes = Some(block_bytes);
                config.io.queue_depth = Some(depth);
                config.io.workers = Some(0);
                config.io.consume = grid.consume;
                config.io.pool_threads =
                    (grid.engine == EngineKind::Pool).then_some(depth.min(1024));
                config.uring.fixed_buffers = grid.fixed;
            });
            let until = Until { bytes: u64::MAX, time: Some(time) };
            planned.add(case, state(grid.cache), cost(target, time, grid.cache), move || {
                reading::from_start(target.path(), &config, &RunOptions::default(), until, &|_| {})
            });
        }
    }
    planned
}

fn cost(target: &Target, time: Duration, cache: CacheMode) -> Cost {
    let dropping = if cache == CacheMode::Direct { 0.0 } else { 0.5 };
    let cost = Cost::time(time.as_secs_f64()).at_most(target.len());
    Cost { seconds: cost.seconds + dropping, ..cost }
}

fn ways_group<'a>(args: &Args, target: &'a Target, cache: CacheMode) -> Planned<'a> {
    let direct = cache == CacheMode::Direct;
    let about = format!(
        "How fast a cold file is read ({cache}) by other ways than this library's, and by its own; with \
         16 in flight where a way has several."
    );
    let heat = Chart::Heat { x: "block".to_owned(), y: "way".to_owned() };
    let group = Group::new(format!("ways, {cache}"), about, Metric::BytesPerS, heat);
    let mut planned = Planned::new(group, &target.paths(), ROUNDS);
    let time = sample_time(args);
    let until = Until { bytes: target.len().min(SLAB_BYTES_MAX), time: Some(time) };
    let blocks: &[u32] =
        if args.common.smoke { &[65536] } else { &[16 << 10, 64 << 10, 512 << 10, 4 << 20] };
    for &block_bytes in blocks {
        let case = |name: &str| {
            let block = show_size(block_bytes.into());
            let case = Case::new(format!("{name}, {block}")).with("block", block);
            case.with("way", name).with("cache state", "cold")
        };
        let ours = |engine, huge_pages| {
            Config::default().with(|config| {
                config.io.engine = Some(engine);
                config.io.cache = Some(cache);
                config.io.block_bytes = Some(block_bytes);
                config.io.queue_depth = Some(16);
                config.io.workers = Some(0);
                config.memory.huge_pages = huge_pages;
            })
        };
        for engine in [EngineKind::IoUring, EngineKind::Libaio, EngineKind::Pool, EngineKind::Pread]
        {
            let config = ours(engine, blockring::HugePages::Advise);
            let case = case(&format!("ours: {engine}"));
            planned.add(case, state(cache), cost(target, time, cache), move || {
                reading::from_start(target.path(), &config, &RunOptions::default(), until, &|_| {})
            });
        }
        for way in Way::ALL {
            let depth = if way.is_asynchronous() { 16 } else { 1 };
            planned.add(case(way.name()), state(cache), cost(target, time, cache), move || {
                let pieces = Pieces { path: target.path(), direct, block_bytes, depth, until };
                ways::read(way, pieces)
            });
        }
    }
    planned
}

/// What a trace writes, kept in memory.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn slow_group<'a>(args: &Args, target: &'a Target) -> Planned<'a> {
    let about = "Reads in flight over time when each block is hashed so many times, on one thread, with 16 \
                 blocks of 512 KiB.";
    let group = Group::new("a slow consumer", about, Metric::BytesPerS, Chart::InFlight);
    let mut planned = Planned::new(group, &target.paths(), ROUNDS);
    let cache = if target.has_direct() { CacheMode::Direct } else { CacheMode::Buffered };
    let bytes = target.len().min(if args.common.smoke { 1 << 20 } else { SLOW_BYTES });
    for times in SLOWDOWNS {
        let case = Case::new(format!("hashed {times} times")).with("slowdown", times);
        planned
            .add(case, state(cache), Cost::read(bytes), move || slow(target, cache, bytes, times));
    }
    planned
}

fn slow(target: &Target, cache: CacheMode, bytes: u64, times: u32) -> Result<Sample, Missing> {
    let kept = Kept::default();
    let trace = Trace::new(kept.clone());
    let config = Config::default().with(|config| {
        config.io.cache = Some(cache);
        config.io.block_bytes = Some(512 << 10);
        config.io.queue_depth = Some(16);
        config.io.workers = Some(0);
    });
    let run = RunOptions { trace: Some(&trace), ..RunOptions::default() };
    let until = Until { bytes, time: None };
    let hash = |block: &[u8]| {
        for _ in 0..times {
            std::hint::black_box(blake3::hash(block));
        }
    };
    let sample = reading::from_start(target.path(), &config, &run, until, &hash)?;
    trace.finish().map_err(failed)?;
    let events = kept.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Sample { in_flight: in_flight(&events).map_err(failed)?, ..sample })
}

/// The counter of a trace: `(seconds, requests)`.
fn in_flight(trace: &[u8]) -> anyhow::Result<Vec<(f64, u32)>> {
    let events: Vec<Value> = serde_json::from_slice(trace)?;
    let counted = events.iter().filter(|event| event["ph"] == "C").filter_map(|event| {
        let at_s = event["ts"].as_f64()? / 1e6;
        Some((at_s, event["args"]["requests"].as_u64()? as u32))
    });
    Ok(counted.collect())
}

fn conclude(session: &mut Session<'_>) {
    let mut best: Option<(String, f64)> = None;
    for group in session.groups() {
        let Chart::Heat { .. } = group.chart else { continue };
        let Some((case, rate)) = group.best() else { continue };
        if best.as_ref().is_none_or(|(_, most)| rate > *most) {
            best = Some((format!("{}, {}", group.name, case.name), rate));
        }
    }
    if let Some((name, rate)) = best {
        session.result("best_bytes_per_s", rate);
        session.conclude(format!("Fastest: {name}, {}B/s.", show_scaled(rate)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_of_a_trace_is_found() {
        let trace = br#"[{"ph":"M","name":"x"},{"ph":"C","ts":1500.0,"args":{"requests":16}},
            {"ph":"C","ts":2500.0,"args":{"requests":15}}]"#;
        assert_eq!(in_flight(trace).unwrap(), [(0.0015, 16), (0.0025, 15)]);
        assert!(in_flight(b"[").is_err());
    }
}
