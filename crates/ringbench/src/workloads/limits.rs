//! `ringbench limits`: the limits of reading, of hashing in memory, of copying out of the page cache and of
//! pipes, and of the files of a tree; what they predict for ringsum, and how close it comes.

mod model;
mod tree;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::bail;
use blockring::{
    CacheMode, Config, EngineKind, HugePages, Order, Plan, RunOptions, Source, Tuning,
};

use self::tree::Tree;
use super::pipe_ends::write_all;
use super::reading::{self, Until};
use super::target::{BYTES_MIN, Target, Workload};
use super::{fio, pipe};
use crate::cli::args::LimitsArgs;
use crate::model::case::{Case, Chart, Group, Metric, Missing, Sample};
use crate::model::environment::{self, available_bytes, fits_into_memory};
use crate::model::units::show_size;
use crate::runner::{Cache, Cost, GroupPlan, ROUNDS, Stopwatch, interrupt, together};

/// Blocks and depths that were best, or nearly so, on the machines measured so far.
const SHAPES: [(u32, u32); 5] =
    [(512 << 10, 16), (256 << 10, 32), (512 << 10, 32), (1 << 20, 16), (4 << 20, 8)];

/// The shape that is compared with fio: that of [`fio::Job::of`].
const FIO_SHAPE: (u32, u32) = (512 << 10, 32);

/// Pages that are compared with fio.
const FIO_PAGES: [(&str, HugePages); 2] =
    [("pages of 4 KiB", HugePages::Off), ("reserved huge pages", HugePages::Hugetlb)];

const READING: &str = "reading";
const HASHING: &str = "hashing in memory";
const COPYING: &str = "copying out of the page cache";
const TOGETHER: &str = "reading and hashing";
const PIPE: &str = "through a pipe";
const HASHED: &str = "BLAKE3";
const HASHED_CACHED: &str = "BLAKE3, in a cache";
const COPIED: &str = "copied";
const MAPPED: &str = "mapped";
const COLD: &str = "ringsum, cold";
const WARM: &str = "ringsum, warm";
const WARM_COPY: &str = "ringsum, warm, copied";
const WARM_MAPPING: &str = "ringsum, warm, mapped";
const PIPE_ALONE: &str = "write and read";
const PIPE_HASHED: &str = "ringsum";
const LOOP: &str = "the loop itself";

/// What to measure.
struct Limits<'a> {
    args: &'a LimitsArgs,
    tree: Option<Tree>,
}

pub(crate) fn run(args: &LimitsArgs) -> anyhow::Result<bool> {
    if args.read_max < BYTES_MIN {
        bail!("--read-max is at least {}", show_size(BYTES_MIN));
    }
    let tree = args.tree.as_deref().map(Tree::new).transpose()?;
    let limits = Limits { args, tree };
    Workload { name: "limits", plan, conclude: model::conclude }.run(
        &limits,
        &args.target,
        &args.run,
    )
}

fn plan<'a>(limits: &'a Limits<'_>, target: &'a Target) -> Vec<GroupPlan<'a>> {
    let args = limits.args;
    let (smoke, bytes) = (args.run.smoke, target.len().min(args.read_max));
    let mut groups = vec![
        reading_group(target, bytes),
        hashing_group(smoke),
        copying_group(target, bytes, smoke),
        together_group(target, bytes),
        pipe_group(bytes, smoke),
        loop_group(target, smoke),
    ];
    groups.extend(limits.tree.iter().flat_map(Tree::groups));
    groups
}

fn shape_name((block_bytes, depth): (u32, u32)) -> String {
    format!("{} x {depth}", show_size(block_bytes))
}

/// The name of a case in the comparison with fio.
fn fio_case(program: &str, pages: &str) -> String {
    format!("{program}, {}, {pages}", shape_name(FIO_SHAPE))
}

fn reading_group(target: &Target, bytes: u64) -> GroupPlan<'_> {
    let about = "The rate at which blocks come from the device and are discarded.";
    let group = Group::new(READING, about, Metric::BytesPerS, Chart::Bars);
    let mut plan = GroupPlan::new(group, &target.paths(), ROUNDS);
    let cache = target.cold_mode();
    let (state, cost) = (reading::cold(cache), Cost::read(bytes));
    let case = |name: String, (block_bytes, depth): (u32, u32)| {
        let case = Case::new(name).with("block", show_size(block_bytes)).with("depth", depth);
        case.with("cache", cache).with("cache state", "cold")
    };
    let read = move |(block_bytes, depth), pages| {
        let config = reading::config(None, cache, block_bytes, depth);
        let config = config.with(|config| config.memory.huge_pages = pages);
        move || reading::from_start(target.path(), &config, Until::bytes(bytes))
    };
    for shape in SHAPES {
        let case = case(format!("ours, {}", shape_name(shape)), shape);
        plan.add(case, state, cost, read(shape, HugePages::Advise));
    }
    let engine = fio_engine(target, cache);
    for (name, pages) in FIO_PAGES {
        plan.add(case(fio_case("ours", name), FIO_SHAPE), state, cost, read(FIO_SHAPE, pages));
        let job = fio::Job {
            engine,
            direct: cache == CacheMode::Direct,
            huge_pages: pages == HugePages::Hugetlb,
            ..fio::Job::of(target.path(), bytes)
        };
        job.add_to(&mut plan, case(fio_case("fio", name), FIO_SHAPE), state, cost);
    }
    plan
}

/// fio's name of the engine that is chosen for this file.
fn fio_engine(target: &Target, cache: CacheMode) -> &'static str {
    let Ok(source) = Source::open(target.path()) else { return "psync" };
    let config = reading::config(None, cache, FIO_SHAPE.0, FIO_SHAPE.1);
    let plan = Plan::choose(&source, &config, &RunOptions::default());
    let choices = plan.as_ref().map_or(&[][..], Plan::choices);
    let engine = choices.iter().find(|choice| choice.what == "engine");
    match engine.map(|choice| &*choice.value) {
        Some("io_uring") => "io_uring",
        Some("libaio") => "libaio",
        _ => "psync",
    }
}

/// 1, 2, 4, ... and all processors.
pub(crate) fn thread_counts() -> Vec<u32> {
    powers_up_to(environment::processors())
}

fn powers_up_to(max: u32) -> Vec<u32> {
    let powers = std::iter::successors(Some(1), |n| Some(n * 2));
    powers.take_while(|n| *n < max).chain([max]).collect()
}

fn threads_name(threads: u32, method: &str) -> String {
    format!("{method}, {threads} threads")
}

/// A group whose cases are numbers of threads.
fn by_threads<'a>(name: &str, about: &str, target: Option<&Target>) -> GroupPlan<'a> {
    let group = Group::new(name, about, Metric::BytesPerS, Chart::lines("threads", "method"));
    let paths = target.map_or_else(Vec::new, Target::paths);
    GroupPlan { warms_up: true, ..GroupPlan::new(group, &paths, ROUNDS) }
}

fn threads_case(threads: u32, method: &str) -> Case {
    Case::new(threads_name(threads, method)).with("threads", threads).with("method", method)
}

fn hashing_group(smoke: bool) -> GroupPlan<'static> {
    let about = "The rate at which BLAKE3 hashes blocks of 256 KiB by the number of threads: from memory, as \
                 they come from a device, and from a cache of the processor, as they come from a copy.";
    let mut plan = by_threads(HASHING, about, None);
    // More than the caches of a processor hold, on each thread.
    let (bytes, time_ms) = if smoke { (1 << 20, 5) } else { (128 << 20, 400) };
    for (name, bytes) in [(HASHED, bytes), (HASHED_CACHED, COPIED_BYTES)] {
        for threads in thread_counts() {
            let hash = move || hash(threads, bytes, Duration::from_millis(time_ms));
            plan.add(threads_case(threads, name), Cache::Any, Cost::memory(0.8), hash);
        }
    }
    plan
}

fn hash(threads: u32, bytes: usize, time: Duration) -> Result<Sample, Missing> {
    // A quarter of the available memory, at most.
    let most = available_bytes() / 4 / u64::from(threads);
    let bytes = bytes.min(usize::try_from(most).unwrap_or(usize::MAX)).max(COPIED_BYTES);
    // Not zeros: pages with the same content may be merged.
    let prepare = |_| Ok((0..bytes).map(|i| (i >> 12) as u8 ^ i as u8).collect::<Vec<u8>>());
    let (blocks, sample) = together(0..threads, prepare, |memory, start| {
        let mut blocks = 0;
        for block in memory.chunks_exact(COPIED_BYTES).cycle() {
            std::hint::black_box(blake3::hash(block));
            blocks += 1;
            if start.elapsed() >= time {
                break;
            }
        }
        Ok(blocks)
    })?;
    let operations: u64 = blocks.into_iter().sum();
    Ok(Sample { bytes: operations * COPIED_BYTES as u64, operations, ..sample })
}

/// Bytes that `ringsum` copies out of the page cache or a pipe and then hashes.
const COPIED_BYTES: usize = 256 << 10;

/// Shortest sample of copying, in seconds: starting threads takes some 0.1 ms.
const COPYING_S_MIN: f64 = 0.2;

fn copying_group(target: &Target, bytes: u64, smoke: bool) -> GroupPlan<'_> {
    let about = "The rate at which blocks come out of the page cache, copied (pread, 256 KiB) or mapped (4 MiB), \
                 with a byte of each cache line read, by the number of threads.";
    let mut plan = by_threads(COPYING, about, Some(target));
    let bytes = bytes.min(if smoke { 1 << 20 } else { 256 << 20 });
    for (name, engine) in [(COPIED, EngineKind::Pread), (MAPPED, EngineKind::Mmap)] {
        for threads in thread_counts() {
            let case = threads_case(threads, name).with("cache state", "warm");
            let config = reading::config(None, CacheMode::Buffered, 0, 1);
            let config = config.with(|config| {
                // What ringsum uses.
                config.io.block_bytes = None;
                config.io.workers = Some(threads - 1);
            });
            // A mapping has no cost before its pages are touched, and a copy may have to be fetched.
            let touch = |block: &[u8]| {
                block.iter().step_by(64).for_each(|byte| _ = std::hint::black_box(*byte));
            };
            let run = RunOptions::default();
            let until = Until::bytes(bytes);
            let read = move || {
                let config = of_engine(config.clone(), engine);
                reading::consume(target.path(), &config, &run, until, &touch)
            };
            let fill = read.clone();
            let cost = Cost { read_bytes: bytes, ..Cost::memory(0.5) };
            let copying = plan.add(case, Cache::Any, cost, move || copy(&read, smoke));
            // An error appears when it is measured.
            copying.prepare = Some(Box::new(move || _ = fill()));
        }
    }
    plan
}

/// Repeats `read` until it has taken long enough.
fn copy(read: &dyn Fn() -> Result<Sample, Missing>, once: bool) -> Result<Sample, Missing> {
    let mut all = read()?;
    while !once && all.wall_s < COPYING_S_MIN && !interrupt::is_interrupted() {
        let next = read()?;
        all.wall_s += next.wall_s;
        all.cpu_s = all.cpu_s.zip(next.cpu_s).map(|(all, next)| all + next);
        all.bytes += next.bytes;
        all.operations += next.operations;
    }
    Ok(all)
}

fn together_group(target: &Target, bytes: u64) -> GroupPlan<'_> {
    let about =
        "The rate at which ringsum hashes the file, from the device and from the page cache.";
    let group = Group::new(TOGETHER, about, Metric::BytesPerS, Chart::Bars);
    let mut plan = GroupPlan::new(group, &target.paths(), ROUNDS);
    let cache = target.cold_mode();
    // If it is not available, ringsum chooses.
    let direct = Some(cache).filter(|cache| *cache == CacheMode::Direct);
    let hash = move |engine, cache| move || hash_start(target.path(), bytes, (engine, cache), None);
    let cold = Case::new(COLD).with("cache state", "cold");
    plan.add(cold, reading::cold(cache), Cost::read(bytes), hash(None, direct));
    for (name, engine) in
        [(WARM, None), (WARM_COPY, Some(EngineKind::Pread)), (WARM_MAPPING, Some(EngineKind::Mmap))]
    {
        let warm = Case::new(name).with("cache state", "warm");
        match bytes == target.len() && fits_into_memory(bytes) {
            true => _ = plan.add(warm, Cache::Warm, Cost::read(bytes), hash(engine, None)),
            false => {
                plan.add_missing(warm, "the file does not fit into half of the available memory");
            }
        }
    }
    plan
}

/// A configuration with an engine, of which a mapping needs a permission.
fn of_engine(config: Config, engine: EngineKind) -> Config {
    match engine {
        EngineKind::Mmap => reading::mapped(config),
        _ => config.with(|config| config.io.engine = Some(engine)),
    }
}

/// Bytes that go through a pipe in one sample: 0.1 s and more.
const PIPE_BYTES: u64 = 512 << 20;

fn pipe_group(bytes: u64, smoke: bool) -> GroupPlan<'static> {
    let about = "The rate of a pipe from one thread to another (write and read), and of ringsum at its end.";
    let group = Group::new(PIPE, about, Metric::BytesPerS, Chart::Bars);
    let mut plan = GroupPlan { warms_up: true, ..GroupPlan::new(group, &[], ROUNDS) };
    let (bytes, time_ms) = if smoke { (1 << 20, 3) } else { (bytes.min(PIPE_BYTES), 200) };
    let alone = move || pipe::write_and_read(Duration::from_millis(time_ms));
    plan.add(Case::new(PIPE_ALONE), Cache::Any, Cost::memory(0.3), alone);
    plan.add(Case::new(PIPE_HASHED), Cache::Any, Cost::memory(0.3), move || hash_pipe(bytes));
    plan
}

fn hash_pipe(bytes: u64) -> Result<Sample, Missing> {
    let (reader, writer) = io::pipe()?;
    let block: Vec<u8> = (0..256 << 10).map(|i| (i % 251) as u8).collect();
    let source = Source::from_file(File::from(OwnedFd::from(reader)), "a pipe")?;
    let clock = Stopwatch::start();
    let digests = thread::scope(|scope| {
        // The reader reports what is wrong with the pipe.
        scope.spawn(move || {
            (0..bytes / block.len() as u64).try_for_each(|_| write_all(&writer, &block))
        });
        ringsum::digest_source(&source, &ringsum::Options::default())
    });
    digests.map_err(anyhow::Error::from)?;
    Ok(clock.sample(bytes, 1))
}

/// Hashes a file as `ringsum` does; of a longer one, the largest power of two up to `bytes_max`.
pub(crate) fn hash_start(
    path: &Path,
    bytes_max: u64,
    (engine, cache): (Option<EngineKind>, Option<CacheMode>),
    tuning: Option<Tuning>,
) -> Result<Sample, Missing> {
    let config = Config::default().with(|config| config.io.cache = cache);
    let config = match engine {
        Some(engine) => of_engine(config, engine),
        None => config,
    };
    let options = ringsum::Options { config, ..ringsum::Options::default() };
    let source = Source::open(path)?;
    let len = source.len().unwrap_or(0);
    let bytes = if len <= bytes_max { len } else { 1 << bytes_max.max(1 << 20).ilog2() };
    let range = (bytes < len).then_some(0..bytes);
    let tuning = move |_| tuning.clone().map(Ok);
    let run = RunOptions { range, tuning: Some(&tuning), ..RunOptions::default() };
    let clock = Stopwatch::start();
    let plan = ringsum::plan(&source, &options, &run).map_err(anyhow::Error::from)?;
    let digests = ringsum::digest_planned(&plan, &source, &options, None, &|_| ());
    let hash = digests.map_err(anyhow::Error::from)?.hash();
    let digest = hash.map(|hash| hash.to_hex().to_string());
    Ok(Sample { digest, ..clock.sample(bytes, 1) })
}

fn loop_group(target: &Target, smoke: bool) -> GroupPlan<'_> {
    let about = "The cost of a block of 4 KiB on one thread if nothing is read (engine null).";
    let group = Group::new(LOOP, about, Metric::NsPerOperation, Chart::Bars);
    let mut plan = GroupPlan::new(group, &[], ROUNDS);
    let config = Config::default().with(|config| {
        config.io.engine = Some(EngineKind::Null);
        config.io.block_bytes = Some(4096);
        config.io.workers = Some(0);
    });
    let until = Until::bytes(if smoke { 1 << 20 } else { 4 << 30 });
    for order in [Order::AnyOrder, Order::InOrder] {
        let config = config.clone();
        plan.add(Case::new(order.to_string()), Cache::Any, Cost::memory(0.5), move || {
            let run = RunOptions { order, ..RunOptions::default() };
            reading::consume(target.path(), &config, &run, until, &|_| ())
        });
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_go_up_in_powers_of_two() {
        assert_eq!(powers_up_to(1), [1]);
        assert_eq!(powers_up_to(2), [1, 2]);
        assert_eq!(powers_up_to(6), [1, 2, 4, 6]);
    }
}
