//! Finds the best settings for a device, and tells `ringsum`.
//!
//! A short guided search, not the whole grid: one setting is changed at a time, from the built-in ones on,
//! and what is better beyond doubt is kept. At the end the winner and the built-in settings are measured
//! again in turn, and only a winner that wins there, too, is written down.

use std::env;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use blockring::{EngineKind, Source, Tuning, Tunings};
use ringsum::tuned::{self, DeviceId, Entry};

use crate::advice;
use crate::args::{Common, parse_size, show_size};
use crate::cache::Cache;
use crate::case::{Case, Chart, Group, Metric, Sample, show_scaled};
use crate::process;
use crate::runner::Rounds;
use crate::session::{Cost, Planned, Session, Work};
use crate::workload::target::{Target, failed};

/// Find the best settings for a device, and write them to where ringsum reads them.
///
/// ringsum uses them for cold files on that device, says so with --explain, and ignores them when the kernel
/// or the device is another. Changes one setting at a time, from the built-in ones on; at the end both are
/// measured again, and nothing is written that is not better.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A folder on the file system, a large file on it, or the device
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Of the file that is made in a folder
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    size: u64,
    /// Where to write [default: $XDG_CONFIG_HOME/ringsum/tuned.json, or ~/.config/ringsum/tuned.json]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Measure, and write nothing for ringsum
    #[arg(long)]
    no_write: bool,
    #[command(flatten)]
    common: Common,
}

const BYTES_MIN: u64 = 64 << 20;

/// The search.
const ROUNDS: Rounds = Rounds::Auto { min: 3, max: 5 };

/// The last word.
const FINAL_ROUNDS: Rounds = Rounds::Fixed(11);

/// A candidate takes the place of the best one if it is faster by this factor.
const GAIN_MIN: f64 = 1.02;

/// What is written is faster than the built-in settings by this factor, besides being so beyond the noise.
const WRITE_GAIN_MIN: f64 = 1.03;

/// One set of settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Settings {
    engine: EngineKind,
    block_bytes: u32,
    depth: u32,
}

/// What a plan takes without being told.
const BUILT_IN: Settings =
    Settings { engine: EngineKind::IoUring, block_bytes: 512 << 10, depth: 16 };

impl Settings {
    fn name(self) -> String {
        format!("{}, {} x {}", self.engine, show_size(self.block_bytes.into()), self.depth)
    }

    fn pool_threads(self) -> Option<u32> {
        (self.engine == EngineKind::Pool).then_some(self.depth)
    }

    fn tuning(self) -> Tuning {
        Tuning {
            engine: self.engine,
            pool_threads: self.pool_threads(),
            block_bytes: self.block_bytes,
            depth: self.depth,
            why: "measured".to_owned(),
        }
    }
}

/// What is tried next, from the best so far.
#[derive(Debug, Clone, Copy)]
enum Step {
    Depth,
    /// With as many bytes in flight.
    Block,
    /// Half and twice as many in flight.
    DepthAgain,
    Engine,
}

impl Step {
    const ALL: [Step; 4] = [Step::Depth, Step::Block, Step::DepthAgain, Step::Engine];

    fn name(self) -> &'static str {
        match self {
            Step::Depth => "1: depth",
            Step::Block => "2: block",
            Step::DepthAgain => "3: depth again",
            Step::Engine => "4: engine",
        }
    }

    /// The best so far stands first.
    fn candidates(self, best: Settings) -> Vec<Settings> {
        let depth = |depth: u32| Settings { depth: depth.max(1), ..best };
        let block = |block_bytes: u32| {
            let depth = (best.block_bytes * best.depth / block_bytes).clamp(2, 128);
            Settings { block_bytes, depth, ..best }
        };
        let others: Vec<Settings> = match self {
            Step::Depth => [4, 8, 32, 64].into_iter().map(depth).collect(),
            Step::Block => {
                [128, 256, 1024, 2048, 4096].into_iter().map(|k| block(k << 10)).collect()
            }
            Step::DepthAgain => vec![depth(best.depth / 2), depth(best.depth * 2)],
            Step::Engine => [EngineKind::Libaio, EngineKind::Pool]
                .into_iter()
                .map(|engine| Settings { engine, ..best })
                .collect(),
        };
        let mut all = vec![best];
        for candidate in others {
            if !all.contains(&candidate) {
                all.push(candidate);
            }
        }
        all
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let common = &args.common;
    let mut target = Target::new(&args.path, args.size, BYTES_MIN, common.smoke)?;
    let path = config_path(args)?;
    let mut session = Session::new("tune", common, &target.described())?;
    // So large are all plans of its kind.
    let mut groups: Vec<_> =
        Step::ALL.iter().map(|step| step_group(&target, *step, BUILT_IN)).collect();
    groups.push(final_group(&target, Settings { depth: 8, ..BUILT_IN }));
    let room = target.room();
    if !session.announce(&Work { groups, room })? {
        return Ok(true);
    }
    target.make()?;
    // Before anything is measured: there may be nothing to write it down for.
    let device = device_of(&target)?;
    let before = tuned::load(&path)?;
    let mut best = BUILT_IN;
    for step in Step::ALL {
        if session.goes_on() {
            let group = session.measure(step_group(&target, step, best))?;
            best = better(group, &step.candidates(best));
        }
    }
    if session.goes_on() && best != BUILT_IN {
        session.measure(final_group(&target, best))?;
    }
    if session.goes_on() {
        let known = tuned::applicable(&before, &tuned::kernel_release(), &device).is_some();
        let entry = verdict(&mut session, device, best, known);
        match entry.filter(|_| !args.no_write && !common.smoke) {
            Some(entry) => {
                tuned::save(&path, &entry)?;
                session.conclude(format!("Written to {}.", path.display()));
            }
            None => session.conclude("Nothing was written."),
        }
    }
    session.finish()
}

fn config_path(args: &Args) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.config {
        return Ok(path.clone());
    }
    let (xdg, home) = (env::var_os("XDG_CONFIG_HOME"), env::var_os("HOME"));
    tuned::default_path(xdg.as_deref(), home.as_deref())
        .context("neither XDG_CONFIG_HOME nor HOME is set: name a file with --config")
}

fn device_of(target: &Target) -> anyhow::Result<DeviceId> {
    let source = Source::open(target.path())?;
    Ok(DeviceId::of(source.device())?)
}

fn add<'a>(
    planned: &mut Planned<'a>,
    target: &'a Target,
    name: String,
    settings: Option<Settings>,
) {
    let mut case = Case::new(name).with("cache state", "cold");
    if let Some(Settings { engine, block_bytes, depth }) = settings {
        let block = show_size(block_bytes.into());
        case = case.with("engine", engine).with("block", block).with("depth", depth);
    }
    // The very way that ringsum takes them.
    let tuned = settings.map(|settings| Tunings::new(move |_| Some(Ok(settings.tuning()))));
    let config = blockring::Config { tuned, ..blockring::Config::default() };
    let options = ringsum::Options { config, ..ringsum::Options::default() };
    planned.add(case, Cache::Cold, Cost::read(target.len()), move || {
        let (start, cpu) = (Instant::now(), process::own_cpu());
        let digest = ringsum::hash_file(target.path(), &options).map_err(failed)?;
        Ok(Sample {
            wall_s: start.elapsed().as_secs_f64(),
            cpu_s: Some((process::own_cpu() - cpu).as_secs_f64()),
            bytes: target.len(),
            operations: 1,
            digest: Some(digest.hash().to_hex().to_string()),
            ..Sample::default()
        })
    });
}

fn step_group<'a>(target: &'a Target, step: Step, best: Settings) -> Planned<'a> {
    let about = "How fast ringsum hashes a cold file: the best settings so far, and others.";
    let group = Group::new(step.name(), about, Metric::BytesPerS, Chart::Bars);
    let mut planned = Planned::new(group, &target.paths(), ROUNDS);
    for settings in step.candidates(best) {
        add(&mut planned, target, settings.name(), Some(settings));
    }
    planned
}

const FINAL: &str = "5: the best against the built-in";
const BUILT_IN_CASE: &str = "built-in";
const BEST_CASE: &str = "best";

fn final_group<'a>(target: &'a Target, best: Settings) -> Planned<'a> {
    let about = "How fast ringsum hashes a cold file with what it would do anyway, and with what was found.";
    let group = Group::new(FINAL, about, Metric::BytesPerS, Chart::Bars);
    let mut planned = Planned::new(group, &target.paths(), FINAL_ROUNDS);
    add(&mut planned, target, BUILT_IN_CASE.to_owned(), None);
    add(&mut planned, target, BEST_CASE.to_owned(), Some(best));
    planned
}

/// The candidate to go on with: the first, unless another is better by enough.
fn better(group: &Group, candidates: &[Settings]) -> Settings {
    let rate = |settings: &Settings| group.median(group.case(&settings.name())?);
    let mut best = candidates[0];
    let mut most = rate(&best).unwrap_or(0.0) * GAIN_MIN;
    for candidate in &candidates[1..] {
        if let Some(rate) = rate(candidate).filter(|rate| *rate > most) {
            (best, most) = (*candidate, rate);
        }
    }
    best
}

/// Says what was found. What is to be written down, if anything: the built-in settings only where others are
/// written there (`known`).
fn verdict(
    session: &mut Session<'_>,
    device: DeviceId,
    best: Settings,
    known: bool,
) -> Option<Entry> {
    let rates = session.group(FINAL).and_then(|group| {
        let (built_in, best) = (group.case(BUILT_IN_CASE)?, group.case(BEST_CASE)?);
        let gain = advice::differ(group.metric, &group.values(built_in), &group.values(best));
        Some((group.median(built_in)?, group.median(best)?, gain.unwrap_or(1.0)))
    });
    let (settings, built_in_rate, rate) = match rates {
        Some((built_in, rate, gain)) if gain >= WRITE_GAIN_MIN => {
            session.result("built_in_bytes_per_s", built_in);
            session.result("best_bytes_per_s", rate);
            session.conclude(format!(
                "{} hashes {}B/s, {:.1} % more than the built-in settings.",
                best.name(),
                show_scaled(rate),
                (gain - 1.0) * 100.0
            ));
            (best, built_in, rate)
        }
        rates => {
            let tried = match best == BUILT_IN {
                true => "nothing that was tried is better".to_owned(),
                false => format!(
                    "measured again in turn, {} is not better beyond the noise",
                    best.name()
                ),
            };
            session.conclude(format!(
                "The built-in settings ({}) are right here: {tried}.",
                BUILT_IN.name()
            ));
            if !known {
                return None;
            }
            session.conclude("They take the place of what was found before.");
            let first = session.groups().first();
            let searched = first.and_then(|group| group.median(group.case(&BUILT_IN.name())?));
            let rate = rates.map(|(built_in, ..)| built_in).or(searched)?;
            (BUILT_IN, rate, rate)
        }
    };
    let facts = session.facts();
    let date = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    Some(Entry {
        device,
        kernel: tuned::kernel_release(),
        date,
        file_system: match facts.get("file system") {
            Some(name) if facts.get("kind").is_none_or(|kind| kind != "block device") => {
                name.clone()
            }
            _ => "a block device".to_owned(),
        },
        engine: settings.engine,
        pool_threads: settings.pool_threads(),
        block_bytes: settings.block_bytes,
        depth: settings.depth,
        bytes_per_s: rate,
        built_in_bytes_per_s: built_in_rate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(rates: &[(Settings, f64)]) -> Group {
        let mut group = Group::new("g", "", Metric::BytesPerS, Chart::Bars);
        for (settings, rate) in rates {
            let mut case = Case::new(settings.name());
            case.samples.push(Sample { wall_s: 1.0, bytes: *rate as u64, ..Sample::default() });
            group.cases.push(case);
        }
        group
    }

    #[test]
    fn a_candidate_must_be_better_by_enough() {
        let other = Settings { depth: 8, ..BUILT_IN };
        let third = Settings { depth: 4, ..BUILT_IN };
        let all = [BUILT_IN, other, third];
        let little = group(&[(BUILT_IN, 1000.0), (other, 1015.0), (third, 900.0)]);
        assert_eq!(better(&little, &all), BUILT_IN);
        let much = group(&[(BUILT_IN, 1000.0), (other, 1100.0), (third, 1050.0)]);
        assert_eq!(better(&much, &all), other);
        let failed = group(&[(other, 1100.0)]);
        assert_eq!(better(&failed, &all), other);
    }

    #[test]
    fn each_step_changes_one_thing() {
        for step in Step::ALL {
            let candidates = step.candidates(BUILT_IN);
            assert_eq!(candidates[0], BUILT_IN);
            assert!(candidates.len() > 2, "{step:?}");
            for other in &candidates[1..] {
                match step {
                    Step::Depth | Step::DepthAgain => {
                        assert_eq!(Settings { depth: BUILT_IN.depth, ..*other }, BUILT_IN);
                    }
                    Step::Block => assert_eq!(other.engine, BUILT_IN.engine),
                    Step::Engine => {
                        assert_eq!(Settings { engine: BUILT_IN.engine, ..*other }, BUILT_IN);
                    }
                }
            }
        }
    }
}
