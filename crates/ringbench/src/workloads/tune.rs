//! Finds the best settings for a device, and tells `ringsum`.
//!
//! A short guided search, not the whole grid: one setting is changed at a time, from the built-in ones on,
//! and what is better beyond doubt is kept. At the end the winner and the built-in settings are measured
//! again in turn, and only a winner that wins there, too, is written down.

use std::env;
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use blockring::{EngineKind, RunOptions, Source, Tuning, Tunings};
use ringsum::tuned::{self, DeviceId, Entry};

use crate::advice;
use crate::args::Common;
use crate::cache::Cache;
use crate::case::{Case, Chart, Group, Metric, show_scaled};
use crate::runner::Rounds;
use crate::session::{Cost, Planned, Session, Work};
use crate::values::{parse_size, show_size};
use crate::workload::limits;
use crate::workload::target::Target;

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
    /// Read no more than this of it, each time
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = parse_size)]
    read_max: u64,
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

impl Settings {
    /// What a plan takes without being told.
    fn built_in() -> Settings {
        let Tuning { engine, block_bytes, depth, .. } = Tuning::built_in();
        Settings { engine, block_bytes, depth }
    }

    fn name(self) -> String {
        format!("{}, {} x {}", self.engine, show_size(self.block_bytes.into()), self.depth)
    }

    fn pool_threads(self) -> Option<u32> {
        (self.engine == EngineKind::Pool).then_some(self.depth)
    }

    /// The same as `ringsum` gets it from its file.
    fn tunings(self) -> Tunings {
        Tunings::new(move |_| Some(Ok(self.tuning())))
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
    if args.read_max < BYTES_MIN {
        bail!("less than {} says nothing: take a larger --read-max", show_size(BYTES_MIN));
    }
    let path = config_path(args)?;
    // Before anything is measured: there may be nothing to write it down for.
    let device = device_of(&args.path)?;
    let before = tuned::load(&path)?;
    let mut session = Session::new("tune", common, &target.described())?;
    let search = Search { bytes_max: args.read_max };
    let built_in = Settings::built_in();
    // So large are all plans of its kind.
    let mut groups: Vec<_> =
        Step::ALL.iter().map(|step| search.step(&target, *step, built_in)).collect();
    groups.push(search.last_word(&target, Settings { depth: 8, ..built_in }));
    let room = target.room();
    if !session.announce(&Work { groups, room })? {
        return Ok(true);
    }
    target.make(&mut session)?;
    if !common.smoke {
        check_followed(&session, &target)?;
    }
    let mut best = built_in;
    for step in Step::ALL {
        if session.goes_on() {
            let group = session.measure(search.step(&target, step, best))?;
            best = better(group, &step.candidates(best));
        }
    }
    if session.goes_on() && best != built_in {
        session.measure(search.last_word(&target, best))?;
    }
    if session.goes_on() {
        let writes = !args.no_write && !common.smoke;
        let known = tuned::applicable(&before, &tuned::kernel_release(), &device).is_some();
        match verdict(&mut session, device.clone(), best) {
            Some(entry) if writes => {
                tuned::save(&path, &entry)?;
                session.conclude(format!("Written to {}.", path.display()));
            }
            None if writes && known => {
                tuned::remove(&path, &device)?;
                let path = path.display();
                session.conclude(format!("What was found before was taken out of {path}."));
            }
            _ => session.conclude("Nothing was written."),
        }
    }
    session.finish()
}

/// Whether `ringsum` would follow a setting here at all: otherwise all candidates are the same.
fn check_followed(session: &Session<'_>, target: &Target) -> anyhow::Result<()> {
    // What stays in the page cache shows in the plan.
    let _ = session.drop_pages(&target.paths());
    let candidate = Settings { block_bytes: 256 << 10, depth: 8, ..Settings::built_in() };
    let source = Source::open(target.path())?;
    let tunings = candidate.tunings();
    let run = RunOptions { tunings: Some(&tunings), ..RunOptions::default() };
    let plan = ringsum::plan(&source, &ringsum::Options::default(), &run)?;
    if plan.block_bytes() == u64::from(candidate.block_bytes) {
        return Ok(());
    }
    let why = |what: &str| plan.choices().iter().find(|choice| choice.what == what);
    let why = why("tuned").or(why("cache")).map_or("", |choice| &*choice.why);
    bail!("{}: settings for cold files are not followed here: {why}", target.path().display())
}

fn config_path(args: &Args) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.config {
        return Ok(path.clone());
    }
    if let Some(user) = env::var_os("SUDO_USER").filter(|user| user != "root" && !args.no_write) {
        bail!(
            "under sudo, settings would be written for root, and not for {0}: name {0}'s with --config \
             ~{0}/.config/ringsum/tuned.json",
            user.to_string_lossy()
        );
    }
    let (xdg, home) = (env::var_os("XDG_CONFIG_HOME"), env::var_os("HOME"));
    tuned::default_path(xdg.as_deref(), home.as_deref())
        .context("neither XDG_CONFIG_HOME nor HOME is set: name a file with --config")
}

fn device_of(path: &Path) -> anyhow::Result<DeviceId> {
    let metadata = fs::metadata(path)?;
    let device = match metadata.file_type().is_block_device() {
        true => metadata.st_rdev(),
        false => metadata.st_dev(),
    };
    Ok(DeviceId::of(device)?)
}

/// How candidates are measured.
struct Search {
    /// Of a longer source, the start.
    bytes_max: u64,
}

const LAST_WORD: &str = "5: the best against the built-in";
const BUILT_IN_CASE: &str = "built-in";
const BEST_CASE: &str = "best";

impl Search {
    fn step<'a>(&self, target: &'a Target, step: Step, best: Settings) -> Planned<'a> {
        let about = "How fast ringsum hashes a cold file: the best settings so far, and others.";
        let group = Group::new(step.name(), about, Metric::BytesPerS, Chart::Bars);
        let mut planned = Planned::new(group, &target.paths(), ROUNDS);
        for settings in step.candidates(best) {
            self.add(&mut planned, target, settings.name(), Some(settings));
        }
        planned
    }

    fn last_word<'a>(&self, target: &'a Target, best: Settings) -> Planned<'a> {
        let about = "How fast ringsum hashes a cold file with what it would do anyway, and with what was found.";
        let group = Group::new(LAST_WORD, about, Metric::BytesPerS, Chart::Bars);
        let mut planned = Planned::new(group, &target.paths(), FINAL_ROUNDS);
        self.add(&mut planned, target, BUILT_IN_CASE.to_owned(), None);
        self.add(&mut planned, target, BEST_CASE.to_owned(), Some(best));
        planned
    }

    fn add<'a>(
        &self,
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
        let tunings = settings.map(Settings::tunings);
        let bytes = target.len().min(self.bytes_max);
        let bytes_max = self.bytes_max;
        planned.add(case, Cache::Cold, Cost::read(bytes), move || {
            limits::hash_start(target.path(), bytes_max, None, tunings.as_ref())
        });
    }
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

/// Bytes per second of the built-in settings and of the best ones, and the gain, if that is worth writing down.
fn won(group: &Group) -> Option<(f64, f64, f64)> {
    let (built_in, best) = (group.case(BUILT_IN_CASE)?, group.case(BEST_CASE)?);
    let gain = advice::differ(group.metric, &group.values(built_in), &group.values(best))?;
    (gain >= WRITE_GAIN_MIN).then_some((group.median(built_in)?, group.median(best)?, gain))
}

/// Says what was found. What is to be written down, if that is better than what is built in.
fn verdict(session: &mut Session<'_>, device: DeviceId, best: Settings) -> Option<Entry> {
    let rates = session.group(LAST_WORD).and_then(won);
    let Some((built_in_rate, rate, gain)) = rates else {
        let tried = match best == Settings::built_in() {
            true => "nothing that was tried is better".to_owned(),
            false => {
                format!("measured again in turn, {} is not better beyond the noise", best.name())
            }
        };
        let built_in = Settings::built_in().name();
        session.conclude(format!("The built-in settings ({built_in}) are right here: {tried}."));
        return None;
    };
    session.result("built_in_bytes_per_s", built_in_rate);
    session.result("best_bytes_per_s", rate);
    session.conclude(format!(
        "{} hashes {}B/s, {:.1} % more than the built-in settings.",
        best.name(),
        show_scaled(rate),
        (gain - 1.0) * 100.0
    ));
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
        engine: best.engine,
        pool_threads: best.pool_threads(),
        block_bytes: best.block_bytes,
        depth: best.depth,
        bytes_per_s: rate,
        built_in_bytes_per_s: built_in_rate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Sample;

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
        let built_in = Settings::built_in();
        let other = Settings { depth: 8, ..built_in };
        let third = Settings { depth: 4, ..built_in };
        let all = [built_in, other, third];
        let little = group(&[(built_in, 1000.0), (other, 1015.0), (third, 900.0)]);
        assert_eq!(better(&little, &all), built_in);
        let much = group(&[(built_in, 1000.0), (other, 1100.0), (third, 1050.0)]);
        assert_eq!(better(&much, &all), other);
        let failed = group(&[(other, 1100.0)]);
        assert_eq!(better(&failed, &all), other);
    }

    #[test]
    fn only_what_wins_the_last_word_is_written() {
        let last_word = |built_in: [u64; 5], best: [u64; 5]| {
            let mut group = Group::new("g", "", Metric::BytesPerS, Chart::Bars);
            for (name, rates) in [(BUILT_IN_CASE, built_in), (BEST_CASE, best)] {
                let sample = |bytes| Sample { wall_s: 1.0, bytes, ..Sample::default() };
                group.cases.push(Case { samples: rates.map(sample).to_vec(), ..Case::new(name) });
            }
            won(&group)
        };
        let even = [1000, 1001, 999, 1000, 1002];
        let (built_in, best, gain) = last_word(even, [1100, 1101, 1099, 1100, 1102]).unwrap();
        assert_eq!((built_in, best, (gain * 1000.0).round()), (1000.0, 1100.0, 1100.0));
        assert_eq!(last_word(even, [1020, 1021, 1019, 1020, 1022]), None, "not by enough");
        assert_eq!(last_word(even, [700, 1500, 800, 1400, 1300]), None, "not beyond the noise");
        assert_eq!(last_word(even, [900, 901, 899, 900, 902]), None, "it is slower");
        assert_eq!(won(&Group::new("g", "", Metric::BytesPerS, Chart::Bars)), None);
    }

    #[test]
    fn each_step_changes_one_thing() {
        let built_in = Settings::built_in();
        for step in Step::ALL {
            let candidates = step.candidates(built_in);
            assert_eq!(candidates[0], built_in);
            assert!(candidates.len() > 2, "{step:?}");
            for other in &candidates[1..] {
                match step {
                    Step::Depth | Step::DepthAgain => {
                        assert_eq!(Settings { depth: built_in.depth, ..*other }, built_in);
                    }
                    Step::Block => assert_eq!(other.engine, built_in.engine),
                    Step::Engine => {
                        assert_eq!(Settings { engine: built_in.engine, ..*other }, built_in);
                    }
                }
            }
        }
    }
}
