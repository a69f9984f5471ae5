//! `ringbench batch`: lookups of many keys at once, as the MultiGet of a database makes them, against a
//! loop that reads one after another.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use blockring::{BatchReader, Buffer, CacheMode, Config, EngineKind, Extent, HugePages, Source};

use super::reading::{self, Blocks, MEMORY_BYTES_MAX};
use super::target::{Target, Workload};
use crate::cli::args::BatchArgs;
use crate::model::case::{Case, Chart, Group, Metric, Missing, Sample, latencies};
use crate::model::units::{show_scaled, show_size};
use crate::runner::{Cost, GroupPlan, Rounds, Session, Stopwatch, interrupt};

const ROUNDS: Rounds = Rounds { min: 7, max: 9 };

const GROUP: &str = "lookups";
const LOOP: &str = "a loop of pread";

pub(crate) fn run(args: &BatchArgs) -> anyhow::Result<bool> {
    Workload { name: "batch", plan, conclude }.run(args, &args.target, &args.run)
}

fn plan<'a>(args: &'a BatchArgs, target: &'a Target) -> Vec<GroupPlan<'a>> {
    let size = show_size(args.block_size);
    let about =
        format!("Lookups of {size} per second, {}, by the number of keys in a batch.", args.cache);
    let group = Group::new(GROUP, about, Metric::OperationsPerS, Chart::lines("batch", "method"));
    let mut plan = GroupPlan::new(group, &target.paths(), ROUNDS);
    let state = reading::cold(args.cache);
    let time = args.run.sample_time(args.time);
    let cost = Cost::time(time.as_secs_f64());
    for &batch in &args.batches {
        let case = |method: &str| {
            let case = Case::new(format!("{method}, batch of {batch}")).with("method", method);
            case.with("batch", batch).with("cache", args.cache)
        };
        if u64::from(batch) * u64::from(args.block_size) > MEMORY_BYTES_MAX {
            plan.add_missing(case("any"), "it would take more than 1 GiB of memory");
            continue;
        }
        let lookups = Lookups { args, target, batch, time };
        plan.add(case(LOOP), state, cost, move || lookups.one_by_one());
        for &engine in &args.engines {
            plan.add(case(engine.name()), state, cost, move || lookups.at_once(engine));
        }
    }
    vec![plan]
}

/// Lookups of one batch of random keys after another.
#[derive(Clone, Copy)]
struct Lookups<'a> {
    args: &'a BatchArgs,
    target: &'a Target,
    batch: u32,
    time: Duration,
}

impl Lookups<'_> {
    /// Repeats batches until the time is over.
    fn repeat(
        &self,
        mut look_up: impl FnMut(&[Extent]) -> Result<(), Missing>,
    ) -> Result<Sample, Missing> {
        let mut latency = latencies();
        let mut random = fastrand::Rng::with_seed(1);
        let record_bytes = self.args.block_size;
        let records = Blocks { bytes: self.target.len(), block_bytes: record_bytes };
        let (clock, mut keys) = (Stopwatch::start(), 0);
        while clock.elapsed() < self.time && !interrupt::is_interrupted() {
            let extents = reading::random_extents(records, self.batch as usize, &mut random);
            let start = Instant::now();
            look_up(&extents)?;
            latency += start.elapsed().as_nanos() as u64;
            keys += u64::from(self.batch);
        }
        let sample = clock.sample(keys * u64::from(record_bytes), keys);
        Ok(Sample { latency_ns: Some((&latency).into()), ..sample })
    }

    fn at_once(&self, engine: EngineKind) -> Result<Sample, Missing> {
        let source = Source::open(self.target.path())?;
        let config = Config::default().with(|config| {
            config.io.engine = Some(engine);
            config.io.cache = Some(self.args.cache);
        });
        let mut reader = BatchReader::new(&source, &config)?;
        self.repeat(|extents| {
            for record in reader.read_batch(extents)?.iter() {
                let record = record.map_err(|error| Missing::Failed(error.to_string()))?;
                std::hint::black_box(record[0]);
            }
            Ok(())
        })
    }

    fn one_by_one(&self) -> Result<Sample, Missing> {
        let record_bytes = self.args.block_size;
        if self.args.cache == CacheMode::Direct && !record_bytes.is_multiple_of(4096) {
            return Missing::unavailable("a single direct read must be a multiple of 4096 bytes");
        }
        let file = self.open().map_err(|error| Missing::unsupported("open", &error))?;
        let mut record = Buffer::new(record_bytes, HugePages::Off)?;
        self.repeat(|extents| {
            for Extent { offset, len } in extents {
                if interrupt::is_interrupted() {
                    break;
                }
                file.read_exact_at(&mut record[..*len as usize], *offset)?;
                std::hint::black_box(record[0]);
            }
            Ok(())
        })
    }

    fn open(&self) -> std::io::Result<File> {
        let file = reading::open(self.target.path(), self.args.cache == CacheMode::Direct)?;
        // As the library does.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        Ok(file)
    }
}

fn conclude(args: &BatchArgs, session: &mut Session<'_>) {
    let largest = args.batches.iter().max().map_or(0, |batch| *batch);
    let alone = format!("{LOOP}, batch of {largest}");
    let Some((best, rate)) = session.best(GROUP) else { return };
    session.result("best_operations_per_s", rate);
    if let Some(rate) = session.median(GROUP, &alone) {
        session.result("loop_operations_per_s", rate);
    }
    if let Some(ratio) = session.compare(GROUP, &best, &alone) {
        session.conclude(format!("{best}: {}/s; {LOOP} {}", show_scaled(rate), ratio.in_words()));
    }
}
