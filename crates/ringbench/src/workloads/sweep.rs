//! `ringbench sweep`: every combination of block size, depth, cache mode and engine; other methods to read;
//! and the number of reads in flight when the consumer is slow.

use std::io::{BufReader, Read, Seek};

use blockring::{CacheMode, Consume, EngineKind, RunOptions, Trace};
use serde_json::Value;

use super::fio;
use super::methods::{self, Method};
use super::reading::{self, MEMORY_BYTES_MAX, Until};
use super::target::{Target, Workload};
use crate::cli::args::SweepArgs;
use crate::model::case::{Case, Chart, Group, Metric, Missing, Sample};
use crate::model::units::show_size;
use crate::runner::{Cost, GroupPlan, Rounds, Session};

const ROUNDS: Rounds = Rounds::fixed(3);

/// How often the slow consumer hashes each block.
const SLOWDOWNS: [u32; 5] = [0, 1, 2, 4, 8];

/// Bytes that the slow consumer reads: few enough to keep every change of the number in flight.
const SLOW_BYTES: u64 = 128 << 20;

/// Reads in flight of the engines that are compared with other methods.
const METHODS_DEPTH: u32 = 16;

pub(crate) fn run(args: &SweepArgs) -> anyhow::Result<bool> {
    Workload { name: "sweep", plan, conclude }.run(args, &args.target, &args.run)
}

fn plan<'a>(args: &'a SweepArgs, target: &'a Target) -> Vec<GroupPlan<'a>> {
    let wants = |part: &str| args.only.iter().any(|only| only == part);
    let mut groups = Vec::new();
    if wants("grid") {
        groups.extend(grids(args).into_iter().map(|grid| grid_group(args, target, grid)));
    }
    if wants("ways") {
        groups.extend(args.caches.iter().map(|&cache| methods_group(args, target, cache)));
    }
    if wants("slow") {
        groups.push(slow_group(args, target));
    }
    groups
}

/// The settings of one heat map.
#[derive(Clone, Copy)]
struct Grid {
    engine: EngineKind,
    cache: CacheMode,
    consume: Consume,
    fixed_buffers: bool,
}

fn grids(args: &SweepArgs) -> Vec<Grid> {
    let mut grids = Vec::new();
    for &cache in &args.caches {
        for &engine in &args.engines {
            let plain = Grid { engine, cache, consume: Consume::Each, fixed_buffers: false };
            if engine == EngineKind::IoUring {
                grids.extend([plain, Grid { consume: Consume::Batch, ..plain }]);
                grids.extend((!args.article).then_some(Grid { fixed_buffers: true, ..plain }));
            } else if !args.article {
                grids.push(plain);
            }
        }
    }
    grids.truncate(if args.run.smoke { 3 } else { usize::MAX });
    grids
}

fn axes(args: &SweepArgs) -> (Vec<u32>, Vec<u32>) {
    if args.run.smoke {
        (vec![4096, 65536], vec![1, 4])
    } else if args.article {
        let blocks = (0..=14).map(|shift| 1024 << shift).collect();
        (blocks, vec![1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4000])
    } else {
        (args.block_sizes.clone(), args.depths.clone())
    }
}

fn cost(args: &SweepArgs, target: &Target, cache: CacheMode) -> Cost {
    let cost = Cost::time(args.run.sample_time(args.time).as_secs_f64());
    // Emptying the page cache takes a moment.
    let emptying = if cache == CacheMode::Direct { 0.0 } else { 0.5 };
    let read_bytes = cost.read_bytes.min(target.len());
    Cost { read_bytes, seconds: cost.seconds + emptying, ..cost }
}

fn grid_group<'a>(args: &SweepArgs, target: &'a Target, grid: Grid) -> GroupPlan<'a> {
    let Grid { engine, cache, consume, fixed_buffers } = grid;
    let mut name = format!("{engine} {cache}");
    if fixed_buffers {
        name.push_str(", fixed buffers");
    }
    if consume == Consume::Batch {
        name.push_str(", consumed in batches");
    }
    let about = format!("The rate of reading a cold file by block size and depth: {name}.");
    let group = Group::new(name, about, Metric::BytesPerS, Chart::heat("depth", "block"));
    let mut plan = GroupPlan::new(group, &target.paths(), ROUNDS);
    let (blocks, depths) = axes(args);
    let until = Until::time(args.run.sample_time(args.time));
    let cost = cost(args, target, cache);
    for &block_bytes in &blocks {
        for &depth in &depths {
            let block = show_size(block_bytes);
            let case = Case::new(format!("{block} x {depth}")).with("block", block);
            let case = case.with("depth", depth).with("cache state", "cold");
            if u64::from(block_bytes) * u64::from(depth) > MEMORY_BYTES_MAX {
                plan.add_missing(case, "it would take more than 1 GiB of memory");
                continue;
            }
            let config = reading::config(engine, cache, block_bytes, depth).with(|config| {
                config.io.consume = consume;
                config.uring.fixed_buffers = fixed_buffers;
            });
            plan.add(case, reading::cold(cache), cost, move || {
                reading::from_start(target.path(), &config, until)
            });
        }
    }
    plan
}

fn methods_group<'a>(args: &SweepArgs, target: &'a Target, cache: CacheMode) -> GroupPlan<'a> {
    let about = format!(
        "The rate of reading a cold file ({cache}) by methods that are not engines of this library, and by \
         its engines; {METHODS_DEPTH} reads are in flight, if a method has several."
    );
    let group = Group::new(
        format!("methods, {cache}"),
        about,
        Metric::BytesPerS,
        Chart::heat("block", "method"),
    );
    let mut plan = GroupPlan::new(group, &target.paths(), ROUNDS);
    let until = Until {
        bytes: target.len().min(MEMORY_BYTES_MAX),
        time: Some(args.run.sample_time(args.time)),
    };
    let (state, cost) = (reading::cold(cache), cost(args, target, cache));
    let blocks: &[u32] =
        if args.run.smoke { &[65536] } else { &[16 << 10, 64 << 10, 512 << 10, 4 << 20] };
    for &block_bytes in blocks {
        let case = |name: &str| {
            let block = show_size(block_bytes);
            let case = Case::new(format!("{name}, {block}")).with("block", block);
            case.with("method", name).with("cache state", "cold")
        };
        for engine in [EngineKind::IoUring, EngineKind::Libaio, EngineKind::Pool, EngineKind::Pread]
        {
            let config = reading::config(engine, cache, block_bytes, METHODS_DEPTH);
            plan.add(case(&format!("ours: {engine}")), state, cost, move || {
                reading::from_start(target.path(), &config, until)
            });
        }
        for (method, name) in Method::ALL {
            let direct = cache == CacheMode::Direct;
            plan.add(case(name), state, cost, move || {
                methods::read(method, target.path(), direct, block_bytes, until)
            });
        }
        let job = fio::Job {
            engine: "posixaio",
            direct: cache == CacheMode::Direct,
            block_bytes,
            depth: METHODS_DEPTH,
            time: until.time,
            ..fio::Job::of(target.path(), until.bytes)
        };
        job.add_to(&mut plan, case("POSIX AIO (fio)"), state, cost);
    }
    plan
}

fn slow_group<'a>(args: &SweepArgs, target: &'a Target) -> GroupPlan<'a> {
    let about = "Reads in flight over time if each block is hashed this often, on one thread, with 16 blocks \
                 of 512 KiB.";
    let group = Group::new("a slow consumer", about, Metric::BytesPerS, Chart::InFlight);
    let mut plan = GroupPlan::new(group, &target.paths(), ROUNDS);
    let cache = target.cold_mode();
    let bytes = target.len().min(if args.run.smoke { 1 << 20 } else { SLOW_BYTES });
    for times in SLOWDOWNS {
        let case = Case::new(format!("hashed {times} times")).with("slowdown", times);
        let read = move || slow(target, cache, bytes, times);
        plan.add(case, reading::cold(cache), Cost::read(bytes), read);
    }
    plan
}

fn slow(target: &Target, cache: CacheMode, bytes: u64, times: u32) -> Result<Sample, Missing> {
    let output = tempfile::tempfile()?;
    let trace = Trace::new(output.try_clone()?);
    let config = reading::config(None, cache, 512 << 10, 16);
    let run = RunOptions { trace: Some(&trace), ..RunOptions::default() };
    let hash = |block: &[u8]| {
        for _ in 0..times {
            std::hint::black_box(blake3::hash(block));
        }
    };
    let sample = reading::consume(target.path(), &config, &run, Until::bytes(bytes), &hash)?;
    trace.finish()?;
    (&output).rewind()?;
    Ok(Sample { in_flight: in_flight(BufReader::new(output))?, ..sample })
}

fn in_flight(trace: impl Read) -> anyhow::Result<Vec<(f64, u32)>> {
    let events: Vec<Value> = serde_json::from_reader(trace)?;
    let counts = events.iter().filter(|event| event["ph"] == "C").filter_map(|event| {
        let at_s = event["ts"].as_f64()? / 1e6;
        Some((at_s, event["args"]["requests"].as_u64()? as u32))
    });
    Ok(counts.collect())
}

fn conclude(_args: &SweepArgs, session: &mut Session<'_>) {
    let heats = session.run.groups.iter().filter(|group| matches!(group.chart, Chart::Heat { .. }));
    let best = heats.filter_map(|group| {
        let words = format!("{}: {}", group.name, group.best_in_words()?);
        Some((words, group.best()?.1))
    });
    if let Some((words, rate)) = best.max_by(|a, b| a.1.total_cmp(&b.1)) {
        session.result("best_bytes_per_s", rate);
        session.conclude(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_of_a_trace_is_found() {
        let trace = br#"[{"ph":"M","name":"x"},{"ph":"C","ts":1500.0,"args":{"requests":16}},
            {"ph":"C","ts":2500.0,"args":{"requests":15}}]"#;
        assert_eq!(in_flight(&trace[..]).unwrap(), [(0.0015, 16), (0.0025, 15)]);
        assert!(in_flight(&b"["[..]).is_err());
    }
}
