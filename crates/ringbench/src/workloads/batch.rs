//! Lookups of many keys at once, as a database's MultiGet makes them, against one after another.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use blockring::{
    BatchReader, Buffer, CacheMode, Config, EngineKind, Extent, HugePages, SLAB_BYTES_MAX,
};
use hdrhistogram::Histogram;

use crate::args::Common;
use crate::cache::Cache;
use crate::case::{Case, Chart, Group, Metric, Missing, Sample};
use crate::interrupt;
use crate::process;
use crate::runner::Rounds;
use crate::session::{Cost, Planned, Session};
use crate::values::{parse_block, parse_size, parse_time, show_size};
use crate::workload::reading;
use crate::workload::target::{Target, carry_out, failed, missing, refused};
use crate::workload::{parse_cache, parse_engine};

/// Lookups of many keys at once, by how many, against a loop that reads one after another.
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
    /// Bytes of a record
    #[arg(short, long, value_name = "SIZE", default_value = "4K", value_parser = parse_block)]
    record_size: u32,
    /// Keys of a batch
    #[arg(short, long, value_name = "LIST", value_delimiter = ',',
        default_value = "1,4,16,32,64,128,256,1024", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batches: Vec<u32>,
    /// Engines
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = parse_engine,
        default_value = "io_uring,libaio,pool")]
    engines: Vec<EngineKind>,
    /// What the page cache has to do with it: direct, buffered, dontcache
    #[arg(short, long, value_name = "MODE", value_parser = parse_cache, default_value = "direct")]
    cache: CacheMode,
    /// How long each sample goes on
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    time: Duration,
    #[command(flatten)]
    common: Common,
}

const BYTES_MIN: u64 = 64 << 20;

const ROUNDS: Rounds = Rounds::Auto { min: 3, max: 7 };

const LOOP: &str = "a loop of pread";

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let mut target = Target::new(&args.path, args.size, BYTES_MIN, args.common.smoke)?;
    let mut session = Session::new("batch", &args.common, &target.described())?;
    if !carry_out(args, &mut target, &mut session, plan)? {
        return Ok(true);
    }
    conclude(&mut session);
    session.finish()
}

fn plan<'a>(args: &'a Args, target: &'a Target) -> Vec<Planned<'a>> {
    let about = format!(
        "Lookups of {} a second, {}, by how many are asked for at once.",
        show_size(args.record_size.into()),
        args.cache
    );
    let chart = Chart::Lines { x: "batch".to_owned(), by: "way".to_owned() };
    let group = Group::new("lookups", about, Metric::OperationsPerS, chart);
    let mut planned = Planned::new(group, &target.paths(), ROUNDS);
    let state = if args.cache == CacheMode::Direct { Cache::Any } else { Cache::Cold };
    let time = if args.common.smoke { Duration::from_millis(3) } else { args.time };
    let cost = Cost::time(time.as_secs_f64());
    for batch in &args.batches {
        let bytes = u64::from(*batch) * u64::from(args.record_size);
        if bytes > SLAB_BYTES_MAX {
            let case = Case::new(format!("{batch} at once")).with("batch", batch);
            planned.add_missing(case, "it would take more than 1 GiB of memory");
            continue;
        }
        let case = |way: &str| {
            let case = Case::new(format!("{way}, {batch} at once")).with("way", way);
            case.with("batch", batch).with("cache", args.cache)
        };
        planned.add(case(LOOP), state, cost, move || one_by_one(args, target, *batch, time));
        for engine in &args.engines {
            planned.add(case(engine.name()), state, cost, move || {
                at_once(args, target, *engine, *batch, time)
            });
        }
    }
    vec![planned]
}

/// The keys of one batch after the other, until the time is over.
fn lookups(
    target: &Target,
    args: &Args,
    batch: u32,
    time: Duration,
    mut look_up: impl FnMut(&[Extent]) -> Result<(), Missing>,
) -> Result<Sample, Missing> {
    let mut latency = Histogram::<u64>::new(3).map_err(failed)?;
    let (start, cpu) = (Instant::now(), process::own_cpu());
    let mut keys = 0;
    while start.elapsed() < time && !interrupt::is_interrupted() {
        let extents =
            reading::random_extents(target.len(), args.record_size, batch as usize, keys + 1);
        let began = Instant::now();
        look_up(&extents)?;
        // It grows with what it is given.
        let _ = latency.record(began.elapsed().as_nanos() as u64);
        keys += u64::from(batch);
    }
    Ok(Sample {
        wall_s: start.elapsed().as_secs_f64(),
        cpu_s: Some((process::own_cpu() - cpu).as_secs_f64()),
        bytes: keys * u64::from(args.record_size),
        operations: keys,
        latency_ns: Some((&latency).into()),
        ..Sample::default()
    })
}

fn at_once(
    args: &Args,
    target: &Target,
    engine: EngineKind,
    batch: u32,
    time: Duration,
) -> Result<Sample, Missing> {
    let source = blockring::Source::open(target.path()).map_err(|error| missing(&error))?;
    let config = Config::default().with(|config| {
        config.io.engine = Some(engine);
        config.io.cache = Some(args.cache);
    });
    let reader = BatchReader::new(&source, &config);
    let mut reader = reader.map_err(|error| missing(&error))?;
    lookups(target, args, batch, time, |extents| {
        let records = reader.read_batch(extents).map_err(|error| missing(&error))?;
        for record in records.iter() {
            let record = record.map_err(|error| Missing::Failed(error.to_string()))?;
            std::hint::black_box(record[0]);
        }
        Ok(())
    })
}

fn one_by_one(args: &Args, target: &Target, batch: u32, time: Duration) -> Result<Sample, Missing> {
    let is_aligned = args.record_size.is_multiple_of(4096);
    if args.cache == CacheMode::Direct && !is_aligned {
        let why = "a direct read of its own must be of a multiple of 4096 bytes";
        return Err(Missing::Unavailable(why.to_owned()));
    }
    let file = open(target, args.cache).map_err(|error| refused("opening it", &error))?;
    let mut record = Buffer::new(args.record_size, HugePages::Off).map_err(failed)?;
    lookups(target, args, batch, time, |extents| {
        for Extent { offset, len } in extents {
            if interrupt::is_interrupted() {
                break;
            }
            file.read_exact_at(&mut record[..*len as usize], *offset).map_err(failed)?;
            std::hint::black_box(record[0]);
        }
        Ok(())
    })
}

fn open(target: &Target, cache: CacheMode) -> std::io::Result<File> {
    let flags = if cache == CacheMode::Direct { libc::O_DIRECT } else { 0 };
    let file = OpenOptions::new().read(true).custom_flags(flags).open(target.path())?;
    // What the ring tells the kernel, too.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
    Ok(file)
}

fn conclude(session: &mut Session<'_>) {
    let Some(group) = session.group("lookups").cloned() else { return };
    let medians = |case: &Case| group.median(case);
    let largest =
        group.cases.iter().filter_map(|case| case.parameters["batch"].parse::<u32>().ok()).max();
    let Some(largest) = largest else { return };
    let of = |way: &str| medians(group.case(&format!("{way}, {largest} at once"))?);
    if let (Some((best, rate)), Some(alone)) = (group.best(), of(LOOP)) {
        let words =
            format!("{}: {:.1} times as many lookups as {LOOP} makes.", best.name, rate / alone);
        session.result("best_operations_per_s", rate);
        session.result("loop_operations_per_s", alone);
        session.conclude(words);
    }
}
