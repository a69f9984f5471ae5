//! `ringbench random`: random reads, by engine, depth and number of threads, with their latencies.

use blockring::{CacheMode, Config, EngineKind};

use super::fio;
use super::reading::{self, Blocks, Until};
use super::target::{Target, Workload};
use crate::cli::args::RandomArgs;
use crate::model::case::{Case, Chart, Group, Metric};
use crate::model::units::show_size;
use crate::runner::{Cost, GroupPlan, Rounds, Session};

const ROUNDS: Rounds = Rounds { min: 3, max: 5 };

/// Latencies are shown at the largest depth up to this: a deeper queue adds waiting, and few programs
/// have one.
const LATENCY_DEPTH_MAX: u32 = 32;

pub(crate) fn run(args: &RandomArgs) -> anyhow::Result<bool> {
    Workload { name: "random", plan, conclude }.run(args, &args.target, &args.run)
}

/// An engine with its options.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    engine: EngineKind,
    set: fn(&mut Config),
}

fn fixed(config: &mut Config) {
    (config.uring.fixed_buffers, config.uring.fixed_file) = (true, true);
}

fn sqpoll(config: &mut Config) {
    fixed(config);
    // The kernel's default of one second.
    config.uring.sqpoll = Some(0);
}

fn variants(args: &RandomArgs, cache: CacheMode) -> Vec<Variant> {
    let mut variants = Vec::new();
    for &engine in &args.engines {
        let plain = Variant { name: engine.name(), engine, set: |_| () };
        variants.push(plain);
        if engine == EngineKind::IoUring {
            variants.push(Variant { name: "io_uring, fixed", set: fixed, ..plain });
            variants.push(Variant { name: "io_uring, SQPOLL", set: sqpoll, ..plain });
            if cache == CacheMode::Direct {
                let iopoll = |config: &mut Config| config.uring.iopoll = true;
                variants.push(Variant { name: "io_uring, IOPOLL", set: iopoll, ..plain });
            }
        }
    }
    variants
}

fn plan<'a>(args: &'a RandomArgs, target: &'a Target) -> Vec<GroupPlan<'a>> {
    let group = |cache| move |jobs| group(args, target, cache, jobs);
    args.caches.iter().flat_map(|&cache| args.jobs.iter().copied().map(group(cache))).collect()
}

fn group<'a>(
    args: &'a RandomArgs,
    target: &'a Target,
    cache: CacheMode,
    jobs: u32,
) -> GroupPlan<'a> {
    let block_bytes = args.block_size;
    let threads = if jobs == 1 { String::new() } else { format!(", {jobs} threads") };
    let about = format!(
        "Random reads of {} per second, {cache}{threads}, by the number in flight on each thread.",
        show_size(block_bytes)
    );
    let group = Group::new(
        format!("{cache}{threads}"),
        about,
        Metric::OperationsPerS,
        Chart::lines("depth", "method"),
    );
    let mut plan = GroupPlan::new(group, &target.paths(), ROUNDS);
    let time = args.run.sample_time(args.time);
    let (until, cost) = match args.count.map(|count| count.saturating_mul(block_bytes.into())) {
        Some(bytes) => (Until::bytes(bytes), Cost::read(bytes)),
        None => (Until::time(time), Cost::time(time.as_secs_f64())),
    };
    let state = reading::cold(cache);
    let depths = if args.run.smoke { &args.depths[..1] } else { &args.depths };
    for &depth in depths {
        let case = |method: &str| {
            let case = Case::new(format!("{method}, depth {depth}")).with("method", method);
            let case = case.with("depth", depth).with("jobs", jobs).with("cache", cache);
            // Reads through the page cache find a part of the file there.
            if cache == CacheMode::Direct { case.with("cache state", "cold") } else { case }
        };
        for Variant { name, engine, set } in variants(args, cache) {
            if depth > 1 && engine == EngineKind::Pread {
                plan.add_missing(case(name), "it has one read at a time");
                continue;
            }
            let config = reading::config(engine, cache, block_bytes, depth).with(|config| {
                config.io.workers = Some(jobs - 1);
                config.observe.stats = true;
                set(config);
            });
            let blocks = Blocks { bytes: target.len(), block_bytes };
            plan.add(case(name), state, cost, move || {
                reading::scattered(target.path(), &config, blocks, args.seed, until)
            });
        }
        for engine in ["io_uring", "libaio"].into_iter().filter(|_| !args.no_fio) {
            let case = case(&format!("fio {engine}"));
            if cache == CacheMode::Dontcache {
                plan.add_missing(case, "fio has no such cache mode");
                continue;
            }
            let job = fio::Job {
                random: true,
                engine,
                direct: cache == CacheMode::Direct,
                block_bytes,
                depth,
                jobs,
                time: until.time,
                io_bytes: until.bytes / u64::from(jobs),
                ..fio::Job::of(target.path(), target.len())
            };
            job.add_to(&mut plan, case, state, cost);
        }
    }
    plan
}

fn conclude(args: &RandomArgs, session: &mut Session<'_>) {
    let few = args.depths.iter().copied().filter(|depth| *depth <= LATENCY_DEPTH_MAX);
    let depth = few.max().unwrap_or(args.depths[0]).to_string();
    for group in session.run.groups.clone() {
        if let Some(((_, rate), words)) = group.best().zip(group.best_in_words()) {
            session.result(&format!("{} operations per s", group.name), rate);
            session.conclude(format!("{}: {words}", group.name));
        }
        let mut latencies = Group {
            name: format!("{}: latencies at depth {depth}", group.name),
            about: format!("The time of one read with {depth} in flight, {}.", group.name),
            chart: Chart::Latency,
            advice: Vec::new(),
            ..group
        };
        latencies.cases.retain(|case| case.parameters.get("depth") == Some(&depth));
        if !latencies.cases.is_empty() {
            session.run.groups.push(latencies);
        }
    }
}
