//! `ringbench limits`: the limits of reading, of hashing in memory, and of copying out of the page cache;
//! which of them bounds ringsum, and how close it comes.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use blockring::{
    CacheMode, Config, EngineKind, HugePages, Order, Plan, RunOptions, Source, Tuning,
};

use super::fio;
use super::reading::{self, Until};
use super::target::{BYTES_MIN, Target, Workload};
use crate::cli::args::LimitsArgs;
use crate::model::case::{Case, Chart, Group, Metric, Missing, Sample};
use crate::model::environment::{self, available_bytes, fits_into_memory};
use crate::model::units::{show_scaled, show_size};
use crate::runner::{Cache, Cost, GroupPlan, Rounds, Session, Stopwatch, interrupt, together};

/// Blocks and depths that were best, or nearly so, on the machines measured so far.
const SHAPES: [(u32, u32); 5] =
    [(512 << 10, 16), (256 << 10, 32), (512 << 10, 32), (1 << 20, 16), (4 << 20, 8)];

/// The shape that is compared with fio: that of [`fio::Job::of`].
const FIO_SHAPE: (u32, u32) = (512 << 10, 32);

/// Pages that are compared with fio.
const FIO_PAGES: [(&str, HugePages); 2] =
    [("pages of 4 KiB", HugePages::Off), ("reserved huge pages", HugePages::Hugetlb)];

const ROUNDS: Rounds = Rounds { min: 5, max: 15 };

const READING: &str = "reading";
const HASHING: &str = "hashing in memory";
const COPYING: &str = "copying out of the page cache";
const TOGETHER: &str = "reading and hashing";
const LOOP: &str = "the loop itself";

pub(crate) fn run(args: &LimitsArgs) -> anyhow::Result<bool> {
    if args.read_max < BYTES_MIN {
        bail!("--read-max is at least {}", show_size(BYTES_MIN));
    }
    Workload { name: "limits", plan, conclude }.run(args, &args.target, &args.run)
}

fn plan<'a>(args: &'a LimitsArgs, target: &'a Target) -> Vec<GroupPlan<'a>> {
    let (smoke, bytes) = (args.run.smoke, target.len().min(args.read_max));
    vec![
        reading_group(target, bytes),
        hashing_group(smoke),
        copying_group(target, bytes, smoke),
        together_group(target, bytes),
        loop_group(target, smoke),
    ]
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

/// A group whose cases are numbers of threads.
fn by_threads<'a>(name: &str, about: &str, target: Option<&Target>) -> GroupPlan<'a> {
    let group = Group::new(name, about, Metric::BytesPerS, Chart::lines("threads", "method"));
    let paths = target.map_or_else(Vec::new, Target::paths);
    GroupPlan { warms_up: true, ..GroupPlan::new(group, &paths, ROUNDS) }
}

fn threads_case(threads: u32, method: &str) -> Case {
    Case::new(format!("{threads} threads")).with("threads", threads).with("method", method)
}

fn hashing_group(smoke: bool) -> GroupPlan<'static> {
    let about =
        "The rate at which BLAKE3 hashes blocks of 512 KiB in memory, by the number of threads.";
    let mut plan = by_threads(HASHING, about, None);
    // More than the caches of a processor hold, on each thread.
    let (bytes, time_ms) = if smoke { (1 << 20, 5) } else { (128 << 20, 400) };
    for threads in thread_counts() {
        let hash = move || hash(threads, bytes, Duration::from_millis(time_ms));
        plan.add(threads_case(threads, "BLAKE3"), Cache::Any, Cost::memory(0.8), hash);
    }
    plan
}

fn hash(threads: u32, bytes: usize, time: Duration) -> Result<Sample, Missing> {
    const BLOCK_BYTES: usize = 512 << 10;
    // A quarter of the available memory, at most.
    let most = available_bytes() / 4 / u64::from(threads);
    let bytes = bytes.min(usize::try_from(most).unwrap_or(usize::MAX)).max(BLOCK_BYTES);
    // Not zeros: pages with the same content may be merged.
    let prepare = |_| Ok((0..bytes).map(|i| (i >> 12) as u8 ^ i as u8).collect::<Vec<u8>>());
    let (blocks, sample) = together(0..threads, prepare, |memory, start| {
        let mut blocks = 0;
        for block in memory.chunks_exact(BLOCK_BYTES).cycle() {
            std::hint::black_box(blake3::hash(block));
            blocks += 1;
            if start.elapsed() >= time {
                break;
            }
        }
        Ok(blocks)
    })?;
    let operations: u64 = blocks.into_iter().sum();
    Ok(Sample { bytes: operations * BLOCK_BYTES as u64, operations, ..sample })
}

/// Shortest sample of copying, in seconds: starting threads takes some 0.1 ms.
const COPYING_S_MIN: f64 = 0.2;

fn copying_group(target: &Target, bytes: u64, smoke: bool) -> GroupPlan<'_> {
    let about = "The rate at which pread copies blocks of 256 KiB out of the page cache, by the number of \
                 threads.";
    let mut plan = by_threads(COPYING, about, Some(target));
    let bytes = bytes.min(if smoke { 1 << 20 } else { 256 << 20 });
    for threads in thread_counts() {
        let case = threads_case(threads, "pread").with("cache state", "warm");
        let config = reading::config(EngineKind::Pread, CacheMode::Buffered, 256 << 10, 1);
        let config = config.with(|config| config.io.workers = Some(threads - 1));
        let read = move || reading::from_start(target.path(), &config, Until::bytes(bytes));
        let fill = read.clone();
        let cost = Cost { read_bytes: bytes, ..Cost::memory(0.5) };
        let copying = plan.add(case, Cache::Any, cost, move || copy(&read, smoke));
        // An error appears when it is measured.
        copying.prepare = Some(Box::new(move || _ = fill()));
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
    let hash = move |cache| move || hash_start(target.path(), bytes, cache, None);
    let cold = Case::new("ringsum, cold").with("cache state", "cold");
    plan.add(cold, reading::cold(cache), Cost::read(bytes), hash(direct));
    let warm = Case::new("ringsum, warm").with("cache state", "warm");
    match bytes == target.len() && fits_into_memory(bytes) {
        true => _ = plan.add(warm, Cache::Warm, Cost::read(bytes), hash(None)),
        false => plan.add_missing(warm, "the file does not fit into half of the available memory"),
    }
    plan
}

/// Hashes a file as `ringsum` does; of a longer one, the largest power of two up to `bytes_max`.
pub(crate) fn hash_start(
    path: &Path,
    bytes_max: u64,
    cache: Option<CacheMode>,
    tuning: Option<Tuning>,
) -> Result<Sample, Missing> {
    let config = Config::default().with(|config| config.io.cache = cache);
    let options = ringsum::Options { config, ..ringsum::Options::default() };
    let source = Source::open(path)?;
    let len = source.len().unwrap_or(0);
    let bytes = if len <= bytes_max { len } else { 1 << bytes_max.max(1 << 20).ilog2() };
    let range = (bytes < len).then_some(0..bytes);
    let tuning = move |_| tuning.clone().map(Ok);
    let run = RunOptions { range, tuning: Some(&tuning), ..RunOptions::default() };
    let clock = Stopwatch::start();
    let plan = ringsum::plan(&source, &options, &run).map_err(anyhow::Error::from)?;
    let digests = ringsum::digest_planned(&plan, &source, &options, &|_| ());
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

fn conclude(_args: &LimitsArgs, session: &mut Session<'_>) {
    let reading = best_of_ours(session);
    let (hashing, copying) = (session.best(HASHING), session.best(COPYING));
    let cold = session.median(TOGETHER, "ringsum, cold");
    let warm = session.median(TOGETHER, "ringsum, warm");
    let pair = |(pages, _): &(&'static str, HugePages)| {
        let of = |program| session.median(READING, &fio_case(program, pages));
        Some((*pages, of("ours")?, of("fio")?))
    };
    // Reserved huge pages, if there are any: they do not slow the device down.
    let pair = FIO_PAGES.iter().rev().find_map(pair);
    let value = |best: &Option<(String, f64)>| best.as_ref().map(|(_, value)| *value);
    let numbers = [
        ("read_bytes_per_s", value(&reading)),
        ("hash_bytes_per_s", value(&hashing)),
        ("hash_1_thread_bytes_per_s", session.median(HASHING, "1 threads")),
        ("copy_bytes_per_s", value(&copying)),
        ("ringsum_cold_bytes_per_s", cold),
        ("ringsum_warm_bytes_per_s", warm),
        ("fio_bytes_per_s", pair.map(|(.., fio)| fio)),
        ("ours_as_fio_bytes_per_s", pair.map(|(_, ours, _)| ours)),
        ("loop_ns_per_block", session.median(LOOP, "any order")),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            session.result(name, value);
        }
    }
    if let (Some((shape, read)), Some((_, hash))) = (reading, hashing) {
        session.conclude(cold_limit(&shape, read, hash, cold));
        if let Some((_, copy)) = copying {
            session.conclude(warm_limit(hash, copy, warm));
        }
    }
    if let Some((pages, ours, fio)) = pair {
        session.conclude(format!(
            "with the same settings ({}, {pages}) fio reads {}B/s and ringbench {}B/s: {:+.1} %",
            shape_name(FIO_SHAPE),
            show_scaled(fio),
            show_scaled(ours),
            (ours / fio - 1.0) * 100.0
        ));
    }
}

/// The fastest case of reading that is not fio's.
fn best_of_ours(session: &Session<'_>) -> Option<(String, f64)> {
    let mut group = session.group(READING)?.clone();
    group.cases.retain(|case| case.name.starts_with("ours"));
    group.best().map(|(case, rate)| (case.name.clone(), rate))
}

/// The part of a limit that ringsum reaches, in words. (A little more than all of it is noise.)
fn reached(ringsum: Option<f64>, limit: f64) -> String {
    let Some(percent) = ringsum.map(|ringsum| ringsum / limit * 100.0) else {
        return String::new();
    };
    let changed =
        if percent > 103.0 { ", so the speed changed meanwhile: measure again" } else { "" };
    format!("; ringsum reaches {percent:.0} % of that{changed}")
}

/// The lower limit of reading and hashing, in words.
fn cold_limit(shape: &str, read: f64, hash: f64, ringsum: Option<f64>) -> String {
    let (limit, what) = match read < hash {
        true => (read, "the device"),
        false => (hash, "hashing"),
    };
    format!(
        "cold, the limit is {what}: reading is at most {}B/s ({shape}), and hashing on all processors {}B/s{}",
        show_scaled(read),
        show_scaled(hash),
        reached(ringsum, limit)
    )
}

/// The limit of hashing out of the page cache, in words.
fn warm_limit(hash: f64, copy: f64, ringsum: Option<f64>) -> String {
    let copying = match copy < hash {
        true => "an engine that copies is slower",
        false => "an engine that copies is not bound by it",
    };
    format!(
        "warm, the limit is hashing, {}B/s{}: a mapping is hashed without a copy. Copying alone reaches \
         {}B/s: {copying}",
        show_scaled(hash),
        reached(ringsum, hash),
        show_scaled(copy)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_limit_is_the_limit() {
        let slow = cold_limit("512K x 16", 5e8, 1e10, Some(4e8));
        assert!(slow.starts_with("cold, the limit is the device"), "{slow}");
        assert!(
            slow.contains("500 MB/s") && slow.ends_with("ringsum reaches 80 % of that"),
            "{slow}"
        );
        let fast = cold_limit("512K x 16", 2e10, 1e10, None);
        assert!(fast.starts_with("cold, the limit is hashing"), "{fast}");
        let copied = warm_limit(1e10, 5e9, Some(9e9));
        assert!(copied.contains("reaches 90 %") && copied.contains("is slower"), "{copied}");
        assert!(warm_limit(1e10, 2e10, None).contains("is not bound by it"));
    }

    #[test]
    fn threads_go_up_in_powers_of_two() {
        assert_eq!(powers_up_to(1), [1]);
        assert_eq!(powers_up_to(2), [1, 2]);
        assert_eq!(powers_up_to(6), [1, 2, 4, 6]);
    }
}
