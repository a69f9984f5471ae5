//! Random reads: engines by depth and threads, with latencies; fio beside them.

use std::path::PathBuf;
use std::time::Duration;

use blockring::{CacheMode, Config, EngineKind, Source, Sqpoll};

use crate::args::Common;
use crate::cache::Cache;
use crate::case::{Case, Chart, Group, Metric, show_scaled};
use crate::runner::Rounds;
use crate::session::{Cost, Planned, Session};
use crate::values::{parse_block, parse_size, parse_time, show_size};
use crate::workload::fio;
use crate::workload::reading::{self, Places, Until};
use crate::workload::target::{Target, carry_out, missing};
use crate::workload::{parse_cache, parse_engine};

/// Random reads: engines by depth and threads, IOPS and latencies; fio on the same settings beside them.
///
/// In a folder, a file of its own is made and removed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A file, a block device, or a folder
    #[arg(value_name = "FILE|DIR|DEVICE")]
    path: PathBuf,
    /// Of the file that is made in a folder
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    size: u64,
    /// Bytes of a read
    #[arg(short, long, value_name = "SIZE", default_value = "4K", value_parser = parse_block)]
    block_size: u32,
    /// Engines
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = parse_engine,
        default_value = "io_uring,libaio,pool,pread")]
    engines: Vec<EngineKind>,
    /// Reads in flight on each thread
    #[arg(short, long, value_name = "LIST", value_delimiter = ',',
        default_value = "1,4,16,32,64,128,256", value_parser = clap::value_parser!(u32).range(1..=32768))]
    depths: Vec<u32>,
    /// Threads that read
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: Vec<u32>,
    /// What the page cache has to do with it: direct, buffered, dontcache
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = parse_cache,
        default_value = "direct")]
    caches: Vec<CacheMode>,
    /// How long each sample goes on
    #[arg(short, long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    time: Duration,
    /// So many reads each, whatever time that takes
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "time",
        value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Where the reads go: another number, other places
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Without fio
    #[arg(long)]
    no_fio: bool,
    #[command(flatten)]
    common: Common,
}

/// Every read of a smaller file is likely to be in some cache below us.
const BYTES_MIN: u64 = 64 << 20;

const ROUNDS: Rounds = Rounds::Auto { min: 3, max: 5 };

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let common = &args.common;
    let mut target = Target::new(&args.path, args.size, BYTES_MIN, common.smoke)?;
    let mut session = Session::new("random", common, &target.described())?;
    if !carry_out(args, &mut target, &mut session, plan)? {
        return Ok(true);
    }
    let depth = args.depths.iter().copied().filter(|depth| *depth <= 32).max();
    conclude(&mut session, depth.unwrap_or(args.depths[0]));
    session.finish()
}

/// One way to make requests.
#[derive(Debug, Clone, Copy)]
struct Way {
    name: &'static str,
    engine: EngineKind,
    set: fn(&mut Config),
}

impl Way {
    fn config(self, depth: u32) -> Config {
        Config::default().with(|config| {
            config.io.engine = Some(self.engine);
            config.io.pool_threads = (self.engine == EngineKind::Pool).then_some(depth.min(1024));
            (self.set)(config);
        })
    }
}

/// Why fio cannot stand beside ours.
fn no_fio(cache: CacheMode) -> Option<String> {
    match cache {
        CacheMode::Dontcache => Some("fio has no such cache mode".to_owned()),
        _ => fio::unavailable(),
    }
}

fn ways(args: &Args, cache: CacheMode) -> Vec<Way> {
    let mut ways = Vec::new();
    for engine in &args.engines {
        let plain = Way { name: engine.name(), engine: *engine, set: |_| () };
        ways.push(plain);
        if *engine == EngineKind::IoUring {
            let fixed: fn(&mut Config) = |config| {
                (config.uring.fixed_buffers, config.uring.fixed_file) = (true, true);
            };
            ways.push(Way { name: "io_uring, fixed", set: fixed, ..plain });
            let sqpoll: fn(&mut Config) = |config| {
                (config.uring.fixed_buffers, config.uring.fixed_file) = (true, true);
                config.uring.sqpoll = Some(Sqpoll { idle_ms: 0, cpu: None });
            };
            ways.push(Way { name: "io_uring, SQPOLL", set: sqpoll, ..plain });
            if cache == CacheMode::Direct {
                let iopoll: fn(&mut Config) = |config| config.uring.iopoll = true;
                ways.push(Way { name: "io_uring, IOPOLL", set: iopoll, ..plain });
            }
        }
    }
    ways
}

fn plan<'a>(args: &'a Args, target: &'a Target) -> Vec<Planned<'a>> {
    let mut groups = Vec::new();
    for cache in &args.caches {
        for jobs in &args.jobs {
            groups.push(group(args, target, *cache, *jobs));
        }
    }
    groups
}

fn group<'a>(args: &'a Args, target: &'a Target, cache: CacheMode, jobs: u32) -> Planned<'a> {
    let block_bytes = args.block_size;
    let threads = if jobs == 1 { String::new() } else { format!(", {jobs} threads") };
    let about = format!(
        "Random reads of {} a second, {cache}{threads}, by how many are in flight on a thread.",
        show_size(block_bytes.into())
    );
    let chart = Chart::Lines { x: "depth".to_owned(), by: "way".to_owned() };
    let group = Group::new(format!("{cache}{threads}"), about, Metric::OperationsPerS, chart);
    let mut planned = Planned::new(group, &target.paths(), ROUNDS);
    let state = if cache == CacheMode::Direct { Cache::Any } else { Cache::Cold };
    let time = if args.common.smoke { Duration::from_millis(4) } else { args.time };
    let until = match args.count {
        Some(count) => Until { bytes: count.saturating_mul(block_bytes.into()), time: None },
        None => Until { bytes: u64::MAX, time: Some(time) },
    };
    let depths = if args.common.smoke { &args.depths[..1] } else { &args.depths };
    for depth in depths {
        let case = |way: &str| {
            let case = Case::new(format!("{way}, depth {depth}")).with("way", way);
            let case = case.with("depth", depth).with("jobs", jobs).with("cache", cache);
            // Of the page cache, a part comes back.
            if cache == CacheMode::Direct { case.with("cache state", "cold") } else { case }
        };
        let cost = match args.count {
            Some(count) => Cost::read(count.saturating_mul(block_bytes.into())),
            None => Cost::time(time.as_secs_f64()),
        };
        for way in ways(args, cache) {
            if *depth > 1 && way.engine == EngineKind::Pread {
                planned.add_missing(case(way.name), "it has one read at a time");
                continue;
            }
            let config = way.config(*depth).with(|config| {
                config.io.cache = Some(cache);
                config.io.block_bytes = Some(block_bytes);
                config.io.queue_depth = Some(*depth);
                config.io.workers = Some(jobs - 1);
                config.observe.stats = true;
            });
            planned.add(case(way.name), state, cost, move || {
                let source = Source::open(target.path()).map_err(|error| missing(&error))?;
                let places = Places { len: target.len(), block_bytes, seed: args.seed };
                reading::scattered(&source, &config, places, until)
            });
        }
        for engine in ["io_uring", "libaio"].into_iter().filter(|_| !args.no_fio) {
            let case = case(&format!("fio {engine}"));
            if let Some(why) = no_fio(cache) {
                planned.add_missing(case, why);
                continue;
            }
            planned.add(case, state, cost, move || {
                let job = fio::Job {
                    path: target.path(),
                    random: true,
                    engine,
                    direct: cache == CacheMode::Direct,
                    block_bytes,
                    depth: *depth,
                    jobs,
                    time: args.count.is_none().then_some(time),
                    huge_pages: false,
                    range_bytes: target.len(),
                    bytes: until.bytes / u64::from(jobs),
                };
                job.run()
            });
        }
    }
    planned
}

fn conclude(session: &mut Session<'_>, depth: u32) {
    let groups = session.groups().to_vec();
    for group in &groups {
        let mut latencies = group.clone();
        latencies.name = format!("{}: latencies at depth {depth}", group.name);
        latencies.about = format!(
            "How long one read takes with {depth} in flight, {}: the slowest ones.",
            group.name
        );
        latencies.chart = Chart::Latency;
        latencies.advice.clear();
        let depth = depth.to_string();
        latencies.cases.retain(|case| case.parameters.get("depth") == Some(&depth));
        if let Some((best, rate)) = group.best() {
            session.result(&format!("{} operations per s", group.name), rate);
            let words = format!(
                "{}: at most {} reads/s, with {}.",
                group.name,
                show_scaled(rate).trim(),
                best.name
            );
            session.conclude(words);
        }
        session.add(latencies);
    }
}
