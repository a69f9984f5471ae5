//! Where the limits are: of reading, of hashing in memory, of copying out of the page cache; which of them
//! bounds a hasher here, and how far from it ours is.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use blockring::{
    CacheMode, Config, EngineKind, HugePages, Order, Plan, RunOptions, Source, Tunings,
};

use crate::args::Common;
use crate::cache::Cache;
use crate::case::{Case, Chart, Group, Metric, Missing, Sample, show_scaled};
use crate::interrupt;
use crate::process;
use crate::runner::Rounds;
use crate::session::{Cost, Planned, Session};
use crate::together::{Together, together};
use crate::values::{parse_size, show_size};
use crate::workload::fio;
use crate::workload::reading::{self, Until};
use crate::workload::target::{Target, carry_out, failed, missing};

/// Find the limits of reading, hashing and copying, and which of them bounds ringsum here.
///
/// Reads past the page cache where that is offered. In a folder, a file of its own is made and removed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A file, a block device, or a folder
    #[arg(value_name = "FILE|DIR|DEVICE")]
    path: PathBuf,
    /// Of the file that is made in a folder
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    size: u64,
    /// Read no more than this of it
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = parse_size)]
    read_max: u64,
    #[command(flatten)]
    common: Common,
}

/// A file of less says more about starting than about reading: 64 MiB take 17 ms at 3.8 GB/s.
const BYTES_MIN: u64 = 64 << 20;

/// Block and depth: what was best or near it on the machines that were measured.
const SHAPES: [(u32, u32); 5] =
    [(512 << 10, 16), (256 << 10, 32), (512 << 10, 32), (1 << 20, 16), (4 << 20, 8)];

/// The shape that is compared with fio, on the same pages.
const FIO_SHAPE: (u32, u32) = (512 << 10, 32);

const ROUNDS: Rounds = Rounds::Auto { min: 5, max: 15 };

const READING: &str = "reading";
const HASHING: &str = "hashing in memory";
const COPYING: &str = "copying out of the page cache";
const TOGETHER: &str = "reading and hashing";
const LOOP: &str = "the loop itself";

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let common = &args.common;
    let mut target = Target::new(&args.path, args.size, BYTES_MIN, common.smoke)?;
    if args.read_max < BYTES_MIN {
        bail!("less than {} says nothing: take a larger --read-max", show_size(BYTES_MIN));
    }
    let mut session = Session::new("limits", common, &target.described())?;
    if !carry_out(args, &mut target, &mut session, plan)? {
        return Ok(true);
    }
    conclude(&mut session);
    session.finish()
}

fn plan<'a>(args: &'a Args, target: &'a Target) -> Vec<Planned<'a>> {
    let smoke = args.common.smoke;
    let bytes = target.len().min(args.read_max);
    vec![
        reading_group(target, bytes),
        hashing_group(smoke),
        copying_group(target, bytes, smoke),
        together_group(target, bytes),
        loop_group(target, smoke),
    ]
}

fn shape_name((block_bytes, depth): (u32, u32)) -> String {
    format!("{} x {depth}", show_size(block_bytes.into()))
}

fn reading_group(target: &Target, bytes: u64) -> Planned<'_> {
    let about = "How fast blocks come from the device when nothing is done with them.";
    let group = Group::new(READING, about, Metric::BytesPerS, Chart::Bars);
    let mut planned = Planned::new(group, &target.paths(), ROUNDS);
    let direct = target.has_direct();
    // Past the page cache there is nothing to empty.
    let (cache, state) =
        if direct { (CacheMode::Direct, Cache::Any) } else { (CacheMode::Buffered, Cache::Cold) };
    let case = |name: String, (block_bytes, depth): (u32, u32)| {
        let case =
            Case::new(name).with("block", show_size(block_bytes.into())).with("depth", depth);
        case.with("cache", cache).with("cache state", "cold")
    };
    let read = move |(block_bytes, depth), huge_pages| {
        let config = Config::default().with(|config| {
            config.io.cache = Some(cache);
            config.io.block_bytes = Some(block_bytes);
            config.io.queue_depth = Some(depth);
            config.io.workers = Some(0);
            config.memory.huge_pages = huge_pages;
        });
        let until = Until { bytes, time: None };
        move || reading::from_start(target.path(), &config, &RunOptions::default(), until, &|_| {})
    };
    for shape in SHAPES {
        let name = format!("ours, {}", shape_name(shape));
        planned.add(case(name, shape), state, Cost::read(bytes), read(shape, HugePages::Advise));
    }
    for (name, pages) in FIO_PAGES {
        let ours = case(as_fio("ours", name), FIO_SHAPE);
        let fio = case(as_fio("fio", name), FIO_SHAPE);
        planned.add(ours, state, Cost::read(bytes), read(FIO_SHAPE, pages));
        if let Some(why) = fio::unavailable() {
            planned.add_missing(fio, why);
            continue;
        }
        planned.add(fio, state, Cost::read(bytes), move || {
            let job = fio::Job {
                path: target.path(),
                random: false,
                engine: fio_engine(target),
                direct,
                block_bytes: FIO_SHAPE.0,
                depth: FIO_SHAPE.1,
                jobs: 1,
                time: None,
                huge_pages: pages == HugePages::Hugetlb,
                range_bytes: bytes,
                bytes,
            };
            // What ours says where there are none reserved.
            job.run().map_err(|missing| match pages {
                HugePages::Hugetlb => Missing::Unavailable(missing.why().to_owned()),
                _ => missing,
            })
        });
    }
    planned
}

/// Pages that both fio and we can have.
const FIO_PAGES: [(&str, HugePages); 2] =
    [("pages of 4 KiB", HugePages::Off), ("reserved huge pages", HugePages::Hugetlb)];

/// What a case is called that has the shape and the pages of fio's.
fn as_fio(who: &str, pages: &str) -> String {
    format!("{who}, {}, {pages}", shape_name(FIO_SHAPE))
}

/// What fio calls the engine that ours is here.
fn fio_engine(target: &Target) -> &'static str {
    let Ok(source) = Source::open(target.path()) else { return "psync" };
    let cache = target.has_direct().then_some(CacheMode::Direct);
    let config = Config::default().with(|config| {
        config.io.cache = cache;
        config.io.block_bytes = Some(FIO_SHAPE.0);
    });
    match Plan::choose(&source, &config, &RunOptions::default()).map(|plan| plan.engine()) {
        Ok(EngineKind::IoUring) => "io_uring",
        Ok(EngineKind::Libaio) => "libaio",
        _ => "psync",
    }
}

fn cores() -> u32 {
    thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

/// 1, 2, 4, ... and all.
pub(crate) fn thread_counts(most: u32) -> Vec<u32> {
    let mut counts: Vec<u32> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < most).collect();
    counts.push(most);
    counts
}

fn hashing_group(smoke: bool) -> Planned<'static> {
    let about =
        "How fast BLAKE3 hashes blocks of 512 KiB that lie in memory, by the number of threads.";
    let lines = Chart::Lines { x: "threads".to_owned(), by: "what".to_owned() };
    let group = Group::new(HASHING, about, Metric::BytesPerS, lines);
    let mut planned = Planned::new(group, &[], ROUNDS);
    // More than the caches of a processor hold, on each thread.
    let (bytes, time) = if smoke { (1 << 20, 5) } else { (128 << 20, 400) };
    let time = Duration::from_millis(time);
    for threads in thread_counts(cores()) {
        let case = Case::new(format!("{threads} threads")).with("threads", threads);
        let case = case.with("what", "BLAKE3");
        planned.add(case, Cache::Any, Cost::memory(0.8), move || hash(threads, bytes, time));
    }
    planned
}

fn hash(threads: u32, bytes: usize, time: Duration) -> Result<Sample, Missing> {
    const BLOCK_BYTES: usize = 512 << 10;
    // All of it must fit, four times over.
    let most = available_bytes() / 4 / u64::from(threads);
    let bytes = bytes.min(usize::try_from(most).unwrap_or(usize::MAX)).max(BLOCK_BYTES);
    // Not zeros: each page is to be one of its own.
    let prepare = |_| (0..bytes).map(|i| (i >> 12) as u8 ^ i as u8).collect::<Vec<u8>>();
    let hashed = together(threads as usize, prepare, |_, memory, start| {
        let mut blocks = 0;
        for block in memory.chunks_exact(BLOCK_BYTES).cycle() {
            std::hint::black_box(blake3::hash(block));
            blocks += 1;
            if start.elapsed() >= time {
                break;
            }
        }
        blocks
    });
    let Together { results, wall, cpu } = hashed.map_err(failed)?;
    let blocks: u64 = results.into_iter().sum();
    Ok(Sample {
        wall_s: wall.as_secs_f64(),
        cpu_s: Some(cpu.as_secs_f64()),
        bytes: blocks * BLOCK_BYTES as u64,
        operations: blocks,
        ..Sample::default()
    })
}

/// Copying goes on for this long at least: starting threads takes some 0.1 ms.
const COPYING_S_MIN: f64 = 0.2;

fn copying_group(target: &Target, bytes: u64, smoke: bool) -> Planned<'_> {
    let about =
        "How fast pread copies blocks of 256 KiB out of the page cache, by the number of threads.";
    let lines = Chart::Lines { x: "threads".to_owned(), by: "what".to_owned() };
    let group = Group::new(COPYING, about, Metric::BytesPerS, lines);
    let mut planned = Planned::new(group, &target.paths(), ROUNDS);
    planned.warms_up = true;
    let bytes = bytes.min(if smoke { 1 << 20 } else { 256 << 20 });
    for threads in thread_counts(cores()) {
        let case = Case::new(format!("{threads} threads")).with("threads", threads);
        let case = case.with("what", "pread").with("cache state", "warm");
        let config = Config::default().with(|config| {
            config.io.engine = Some(EngineKind::Pread);
            config.io.cache = Some(CacheMode::Buffered);
            config.io.block_bytes = Some(256 << 10);
            config.io.workers = Some(threads - 1);
        });
        let until = Until { bytes, time: None };
        let again = config.clone();
        planned.add(case, Cache::Any, Cost::memory(0.5).reading(bytes), move || {
            let mut all = Sample { cpu_s: Some(0.0), ..Sample::default() };
            loop {
                let run = RunOptions::default();
                let one = reading::from_start(target.path(), &config, &run, until, &|_| {})?;
                all.wall_s += one.wall_s;
                all.cpu_s = all.cpu_s.zip(one.cpu_s).map(|(all, one)| all + one);
                all.bytes += one.bytes;
                all.operations += one.operations;
                if smoke || all.wall_s >= COPYING_S_MIN || interrupt::is_interrupted() {
                    break Ok(all);
                }
            }
        });
        planned.get_ready_by(move || {
            // What is wrong with it shows when it is measured.
            let _ =
                reading::from_start(target.path(), &again, &RunOptions::default(), until, &|_| {});
        });
    }
    planned
}

fn together_group(target: &Target, bytes: u64) -> Planned<'_> {
    let about = "How fast ringsum hashes this, from the device and from the page cache.";
    let group = Group::new(TOGETHER, about, Metric::BytesPerS, Chart::Bars);
    let mut planned = Planned::new(group, &target.paths(), ROUNDS);
    let case = |name: &str, state| Case::new(name).with("cache state", state);
    let direct = target.has_direct().then_some(CacheMode::Direct);
    let state = if direct.is_some() { Cache::Any } else { Cache::Cold };
    let hash = move |cache| move || hash_start(target.path(), bytes, cache, None);
    planned.add(case("ringsum, cold", "cold"), state, Cost::read(bytes), hash(direct));
    match bytes == target.len() && fits_into_memory(bytes) {
        true => {
            planned.add(case("ringsum, warm", "warm"), Cache::Warm, Cost::read(bytes), hash(None))
        }
        false => {
            planned.add_missing(case("ringsum, warm", "warm"), "not all of it fits into memory")
        }
    }
    planned
}

/// Hashes a file, or the start of a long one, as `ringsum` does.
pub(crate) fn hash_start(
    path: &Path,
    bytes_max: u64,
    cache: Option<CacheMode>,
    tunings: Option<&Tunings>,
) -> Result<Sample, Missing> {
    let config = Config::default().with(|config| config.io.cache = cache);
    let options = ringsum::Options { config, ..ringsum::Options::default() };
    let source = Source::open(path).map_err(|error| missing(&error))?;
    let len = source.len().unwrap_or(0);
    let bytes = if len <= bytes_max { len } else { 1 << bytes_max.max(1 << 20).ilog2() };
    let range = (bytes < len).then_some(0..bytes);
    let run = RunOptions { range, tunings, ..RunOptions::default() };
    let (start, cpu) = (Instant::now(), process::own_cpu());
    let plan = ringsum::plan(&source, &options, &run).map_err(failed)?;
    let digests = ringsum::digest_planned(&plan, &source, &options, &|_| ()).map_err(failed)?;
    Ok(Sample {
        wall_s: start.elapsed().as_secs_f64(),
        cpu_s: Some((process::own_cpu() - cpu).as_secs_f64()),
        bytes,
        operations: 1,
        digest: digests.hash().map(|hash| hash.to_hex().to_string()),
        ..Sample::default()
    })
}

/// Memory that programs can still have, in bytes (`MemAvailable`); 0 where the kernel does not say.
fn available_bytes() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find(|line| line.starts_with("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Whether half of the memory that is available holds so much.
pub(crate) fn fits_into_memory(bytes: u64) -> bool {
    bytes <= available_bytes() / 2
}

fn loop_group(target: &Target, smoke: bool) -> Planned<'_> {
    let about =
        "What one block of 4 KiB costs us, on one thread, when nothing is read (engine null).";
    let group = Group::new(LOOP, about, Metric::NsPerOperation, Chart::Bars);
    let mut planned = Planned::new(group, &[], ROUNDS);
    let config = Config::default().with(|config| {
        config.io.engine = Some(EngineKind::Null);
        config.io.block_bytes = Some(4096);
        config.io.workers = Some(0);
    });
    let until = Until { bytes: if smoke { 1 << 20 } else { 4 << 30 }, time: None };
    for (name, order) in [("any order", Order::AnyOrder), ("in order", Order::InOrder)] {
        let config = config.clone();
        planned.add(Case::new(name), Cache::Any, Cost::memory(0.5), move || {
            let run = RunOptions { order, ..RunOptions::default() };
            reading::from_start(target.path(), &config, &run, until, &|_| {})
        });
    }
    planned
}

fn conclude(session: &mut Session<'_>) {
    let best = |session: &Session<'_>, group: &str| {
        session
            .group(group)
            .and_then(|group| group.best().map(|(case, value)| (case.name.clone(), value)))
    };
    let of = |session: &Session<'_>, group: &str, case: &str| {
        let group = session.group(group)?;
        group.median(group.case(case)?)
    };
    let reading = best_of_ours(session);
    let hashing = best(session, HASHING);
    let copying = best(session, COPYING);
    let (cold, warm) =
        (of(session, TOGETHER, "ringsum, cold"), of(session, TOGETHER, "ringsum, warm"));
    let hash_1 = of(session, HASHING, "1 threads");
    let pair = |session: &Session<'_>, pages| {
        let of = |who| of(session, READING, &as_fio(who, pages));
        Some((pages, of("ours")?, of("fio")?))
    };
    // The pages that do not hold the device back, where there are any.
    let pair = pair(session, FIO_PAGES[1].0).or_else(|| pair(session, FIO_PAGES[0].0));
    let null = of(session, LOOP, "any order");
    let numbers = [
        ("read_bytes_per_s", reading.as_ref().map(|(_, value)| *value)),
        ("hash_bytes_per_s", hashing.as_ref().map(|(_, value)| *value)),
        ("hash_1_thread_bytes_per_s", hash_1),
        ("copy_bytes_per_s", copying.as_ref().map(|(_, value)| *value)),
        ("ringsum_cold_bytes_per_s", cold),
        ("ringsum_warm_bytes_per_s", warm),
        ("fio_bytes_per_s", pair.map(|(.., fio)| fio)),
        ("ours_as_fio_bytes_per_s", pair.map(|(_, ours, _)| ours)),
        ("loop_ns_per_block", null),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            session.result(name, value);
        }
    }
    if let (Some((how, read)), Some((_, hash))) = (reading, hashing) {
        session.conclude(bound(&how, read, hash, cold));
        if let Some((_, copy)) = copying {
            session.conclude(bound_warm(hash, copy, warm));
        }
    }
    if let Some((pages, ours, fio)) = pair {
        session.conclude(format!(
            "On the same settings ({}, {pages}) fio reads {}B/s and this {}B/s: {:+.1} %.",
            shape_name(FIO_SHAPE),
            show_scaled(fio),
            show_scaled(ours),
            (ours / fio - 1.0) * 100.0
        ));
    }
}

/// The fastest way of reading; fio's is not ours.
fn best_of_ours(session: &Session<'_>) -> Option<(String, f64)> {
    let mut group = session.group(READING)?.clone();
    group.cases.retain(|case| case.name.starts_with("ours"));
    group.best().map(|(case, rate)| (case.name.clone(), rate))
}

/// How much of a limit is reached, in words. More than all of it says something of the limit.
fn reached(ringsum: Option<f64>, limit: f64) -> String {
    match ringsum.map(|ringsum| ringsum / limit * 100.0) {
        Some(percent @ ..=103.0) => format!("; ringsum reaches {percent:.0} % of it"),
        Some(percent) => format!(
            "; ringsum was measured at {percent:.0} % of it, so that the speed changed meanwhile: measure again"
        ),
        None => String::new(),
    }
}

/// Which limit comes first out of the page cache, in words.
fn bound_warm(hash: f64, copy: f64, ringsum: Option<f64>) -> String {
    let reached = reached(ringsum, hash);
    let copied = match copy < hash {
        true => "an engine that copies is bound by that first",
        false => "so that copying is not what bounds it",
    };
    format!(
        "Out of the page cache a mapping is hashed without a copy, and hashing is the limit, {}B/s{reached}. \
         Copying alone gives {}B/s: {copied}.",
        show_scaled(hash),
        show_scaled(copy)
    )
}

/// Which limit comes first, in words.
fn bound(how: &str, read: f64, hash: f64, ringsum: Option<f64>) -> String {
    let (limit, what) = match read < hash {
        true => (read, "The device is the limit"),
        false => (hash, "Hashing is the limit"),
    };
    let reached = reached(ringsum, limit);
    format!(
        "{what}: it is read at {}B/s at most ({how}), and all processors hash {}B/s{reached}.",
        show_scaled(read),
        show_scaled(hash)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_limit_is_the_limit() {
        let slow = bound("512K x 16", 5e8, 1e10, Some(4e8));
        assert!(slow.starts_with("The device is the limit"), "{slow}");
        assert!(
            slow.contains("500 MB/s") && slow.ends_with("ringsum reaches 80 % of it."),
            "{slow}"
        );
        let fast = bound("512K x 16", 2e10, 1e10, None);
        assert!(fast.starts_with("Hashing is the limit"), "{fast}");
        let copied = bound_warm(1e10, 5e9, Some(9e9));
        assert!(
            copied.contains("reaches 90 %") && copied.contains("bound by that first"),
            "{copied}"
        );
        assert!(bound_warm(1e10, 2e10, None).contains("is not what bounds it"));
    }

    #[test]
    fn threads_go_up_in_powers_of_two() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(2), [1, 2]);
        assert_eq!(thread_counts(6), [1, 2, 4, 6]);
    }
}
