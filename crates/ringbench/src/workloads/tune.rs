//! `ringbench tune`: finds the best settings for a device, and saves them for ringsum.
//!
//! The search is short and guided instead of a grid: it starts at the built-in settings, changes one at a
//! time, and keeps what is better beyond doubt. At the end the winner and the built-in settings are measured
//! again in interleaved rounds, and a winner that does not win there too is not saved.

use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};
use blockring::{EngineKind, RunOptions, Source, Tuning};
use ringsum::tuned::{self, DeviceId, TunedEntry};

use super::limits;
use super::target::{BYTES_MIN, Target};
use crate::cli::args::TuneArgs;
use crate::model::case::{Case, Chart, Group, Metric};
use crate::model::comparison::Ratio;
use crate::model::environment::{self, Facts};
use crate::model::units::{show_scaled, show_size};
use crate::runner::{Cache, Cost, GroupPlan, Rounds, Session};

/// Rounds of the search.
const ROUNDS: Rounds = Rounds { min: 3, max: 5 };

/// Rounds of the final comparison.
const FINAL_ROUNDS: Rounds = Rounds::fixed(11);

/// The factor by which a candidate must be faster to replace the best one so far.
const GAIN_MIN: f64 = 1.02;

/// The factor by which settings must be faster than the built-in ones to be saved, beyond the noise.
const SAVE_GAIN_MIN: f64 = 1.03;

const FINAL: &str = "5: the best against the built-in";
const BUILT_IN_CASE: &str = "built-in";
const BEST_CASE: &str = "best";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Settings {
    engine: EngineKind,
    block_bytes: u32,
    depth: u32,
}

impl Settings {
    /// The settings of a plan that was not tuned.
    fn built_in() -> Settings {
        let Tuning { engine, block_bytes, depth, .. } = Tuning::default();
        Settings { engine, block_bytes, depth }
    }

    fn name(self) -> String {
        format!("{}, {} x {}", self.engine, show_size(self.block_bytes), self.depth)
    }

    fn pool_threads(self) -> Option<u32> {
        (self.engine == EngineKind::Pool).then_some(self.depth)
    }

    /// The same as `ringsum` gets it from its file.
    fn tuning(self) -> Tuning {
        let Settings { engine, block_bytes, depth } = self;
        let (pool_threads, why) = (self.pool_threads(), "measured".to_owned());
        Tuning { engine, pool_threads, block_bytes, depth, why }
    }
}

/// A step of the search: its name, and what to try from the best settings so far.
type Step = (&'static str, fn(Settings) -> Vec<Settings>);

const STEPS: [Step; 4] = [
    ("1: depth", |best| [4, 8, 32, 64].map(|depth| Settings { depth, ..best }).to_vec()),
    // With as many bytes in flight.
    ("2: block", |best| {
        let block = |kib: u32| {
            let depth = (best.block_bytes * best.depth / (kib << 10)).clamp(2, 128);
            Settings { block_bytes: kib << 10, depth, ..best }
        };
        [128, 256, 1024, 2048, 4096].map(block).to_vec()
    }),
    ("3: depth again", |best| {
        let depths = [(best.depth / 2).max(1), best.depth * 2];
        depths.map(|depth| Settings { depth, ..best }).to_vec()
    }),
    ("4: engine", |best| {
        let engines = [EngineKind::Libaio, EngineKind::Pool];
        engines.map(|engine| Settings { engine, ..best }).to_vec()
    }),
];

/// The best settings so far, and then the others that a step tries.
fn candidates((_, others): Step, best: Settings) -> Vec<Settings> {
    let others = others(best).into_iter().filter(|other| *other != best);
    [best].into_iter().chain(others).collect()
}

pub(crate) fn run(args: &TuneArgs) -> anyhow::Result<bool> {
    let smoke = args.run.smoke;
    let mut target = Target::new(&args.target, smoke)?;
    if args.read_max < BYTES_MIN {
        bail!("--read-max is at least {}", show_size(BYTES_MIN));
    }
    let path = config_path(args)?;
    // Before anything is measured: there may be no device to save settings for.
    let device = DeviceId::of(environment::device_of(&fs::metadata(&args.target.path)?))?;
    tuned::load(&path)?;
    let mut session = Session::new("tune", &args.run, &target.paths());
    let built_in = Settings::built_in();
    // Later steps have as many candidates, whatever the best settings are.
    let steps = STEPS.iter().map(|step| step_plan(args, &target, *step, built_in));
    let last = final_plan(args, &target, Settings { depth: 8, ..built_in });
    if !session.announce(&steps.chain([last]).collect::<Vec<_>>(), target.room())? {
        return Ok(true);
    }
    target.create(&mut session)?;
    if !smoke {
        check_followed(&session, &target)?;
    }
    let mut best = built_in;
    for step in STEPS {
        if session.continues() {
            let group = session.measure(step_plan(args, &target, step, best));
            best = better(group, &candidates(step, best));
        }
    }
    if session.continues() && best != built_in {
        session.measure(final_plan(args, &target, best));
    }
    if session.continues() {
        let kernel = environment::kernel_release();
        let entry = conclude(&mut session, device.clone(), kernel, best);
        let is_changed = !args.no_write && !smoke && tuned::update(&path, &device, entry.as_ref())?;
        let name = path.display();
        session.conclude(match entry {
            _ if !is_changed => "nothing was saved".to_owned(),
            Some(_) => format!("saved to {name}"),
            None => format!("the settings found earlier were removed from {name}"),
        });
    }
    session.finish()
}

/// Checks that `ringsum` would use settings here at all: otherwise all candidates are the same.
fn check_followed(session: &Session<'_>, target: &Target) -> anyhow::Result<()> {
    // Pages that stay in the page cache show in the plan.
    let _ = session.drop_pages(&target.paths());
    let candidate = Settings { block_bytes: 256 << 10, depth: 8, ..Settings::built_in() };
    let source = Source::open(target.path())?;
    let tuning = move |_| Some(Ok(candidate.tuning()));
    let run = RunOptions { tuning: Some(&tuning), ..RunOptions::default() };
    let plan = ringsum::plan(&source, &ringsum::Options::default(), &run)?;
    if plan.block_bytes() == u64::from(candidate.block_bytes) {
        return Ok(());
    }
    let why = |what: &str| plan.choices().iter().find(|choice| choice.what == what);
    let why = why("tuned").or(why("cache")).map_or("", |choice| &*choice.why);
    bail!("{}: ringsum does not use settings for cold files here: {why}", target.path().display())
}

fn config_path(args: &TuneArgs) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.config {
        return Ok(path.clone());
    }
    if let Some(user) = env::var_os("SUDO_USER").filter(|user| user != "root" && !args.no_write) {
        bail!(
            "under sudo, settings would be saved for root instead of {0}: use --config \
             ~{0}/.config/ringsum/tuned.json",
            user.to_string_lossy()
        );
    }
    let (xdg, home) = (env::var_os("XDG_CONFIG_HOME"), env::var_os("HOME"));
    tuned::default_path(xdg.as_deref(), home.as_deref())
        .context("neither XDG_CONFIG_HOME nor HOME is set: use --config FILE")
}

fn step_plan<'a>(args: &TuneArgs, target: &'a Target, step: Step, best: Settings) -> GroupPlan<'a> {
    let about =
        "The rate at which ringsum hashes a cold file: the best settings so far, and others.";
    let group = Group::new(step.0, about, Metric::BytesPerS, Chart::Bars);
    let mut plan = GroupPlan::new(group, &target.paths(), ROUNDS);
    for settings in candidates(step, best) {
        add(&mut plan, args, target, settings.name(), Some(settings));
    }
    plan
}

fn final_plan<'a>(args: &TuneArgs, target: &'a Target, best: Settings) -> GroupPlan<'a> {
    let about =
        "The rate at which ringsum hashes a cold file: the built-in settings, and the best found.";
    let group = Group::new(FINAL, about, Metric::BytesPerS, Chart::Bars);
    let mut plan = GroupPlan::new(group, &target.paths(), FINAL_ROUNDS);
    add(&mut plan, args, target, BUILT_IN_CASE.to_owned(), None);
    add(&mut plan, args, target, BEST_CASE.to_owned(), Some(best));
    plan
}

fn add<'a>(
    plan: &mut GroupPlan<'a>,
    args: &TuneArgs,
    target: &'a Target,
    name: String,
    settings: Option<Settings>,
) {
    let mut case = Case::new(name).with("cache state", "cold");
    if let Some(Settings { engine, block_bytes, depth }) = settings {
        let block = show_size(block_bytes);
        case = case.with("engine", engine).with("block", block).with("depth", depth);
    }
    let bytes_max = args.read_max;
    plan.add(case, Cache::Cold, Cost::read(target.len().min(bytes_max)), move || {
        limits::hash_start(target.path(), bytes_max, (None, None), settings.map(Settings::tuning))
    });
}

/// The candidate to continue with: the first, unless another is better by enough.
fn better(group: &Group, candidates: &[Settings]) -> Settings {
    let rate = |settings: &Settings| group.median_of(&settings.name());
    let mut best = candidates[0];
    let mut most = rate(&best).unwrap_or(0.0) * GAIN_MIN;
    for candidate in &candidates[1..] {
        if let Some(rate) = rate(candidate).filter(|rate| *rate > most) {
            (best, most) = (*candidate, rate);
        }
    }
    best
}

/// Bytes per second of the built-in and of the best settings, and the gain, if it is worth saving.
fn gain(group: &Group) -> Option<(f64, f64, Ratio)> {
    let gain = group.compare(BEST_CASE, BUILT_IN_CASE)?;
    let is_worth = gain.differs() && gain.value >= SAVE_GAIN_MIN;
    is_worth.then_some((group.median_of(BUILT_IN_CASE)?, group.median_of(BEST_CASE)?, gain))
}

/// Draws the conclusion. Returns the entry to save, if the best settings are better than the built-in ones.
fn conclude(
    session: &mut Session<'_>,
    device: DeviceId,
    kernel: String,
    best: Settings,
) -> Option<TunedEntry> {
    let rates = session.group(FINAL).and_then(gain);
    let Some((built_in_bytes_per_s, bytes_per_s, gain)) = rates else {
        let built_in = Settings::built_in();
        let tried = match best == built_in {
            true => "none of the others is faster".to_owned(),
            false => format!("measured again, {} is not faster beyond doubt", best.name()),
        };
        session.conclude(format!("keep the built-in settings ({}): {tried}", built_in.name()));
        return None;
    };
    session.result("built_in_bytes_per_s", built_in_bytes_per_s);
    session.result("best_bytes_per_s", bytes_per_s);
    session.conclude(format!(
        "{} hashes {}B/s, {} times as much as the built-in settings",
        best.name(),
        show_scaled(bytes_per_s),
        gain.show()
    ));
    let target = session.run.environment.targets.first();
    let facts = target.map_or_else(Facts::new, |target| target.facts.clone());
    let is_device = facts.get("kind").is_some_and(|kind| kind == "block device");
    let file_system = facts.get("file system").filter(|_| !is_device);
    let Settings { engine, block_bytes, depth } = best;
    Some(TunedEntry {
        device,
        kernel,
        date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
        file_system: file_system.map_or("a block device", |name| name).to_owned(),
        engine,
        pool_threads: best.pool_threads(),
        block_bytes,
        depth,
        bytes_per_s,
        built_in_bytes_per_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::case::Sample;

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
    fn only_settings_that_win_the_final_are_saved() {
        let final_gain = |built_in: [u64; 7], best: [u64; 7]| {
            let mut group = Group::new("g", "", Metric::BytesPerS, Chart::Bars);
            for (name, rates) in [(BUILT_IN_CASE, built_in), (BEST_CASE, best)] {
                let sample = |bytes| Sample { wall_s: 1.0, bytes, ..Sample::default() };
                group.cases.push(Case { samples: rates.map(sample).to_vec(), ..Case::new(name) });
            }
            gain(&group)
        };
        let even = [1000, 1001, 999, 1000, 1002, 998, 1000];
        let (built_in, best, factor) = final_gain(even, even.map(|rate| rate + 100)).unwrap();
        assert_eq!((built_in, best, (factor.value * 1000.0).round()), (1000.0, 1100.0, 1100.0));
        assert_eq!(final_gain(even, even.map(|rate| rate + 20)), None, "not by enough");
        let noisy = [700, 1500, 800, 1400, 1300, 1600, 1250];
        assert_eq!(final_gain(even, noisy), None, "not beyond doubt");
        assert_eq!(final_gain(even, even.map(|rate| rate - 100)), None, "it is slower");
        assert_eq!(gain(&Group::new("g", "", Metric::BytesPerS, Chart::Bars)), None);
    }

    #[test]
    fn each_step_changes_one_thing() {
        let built_in = Settings::built_in();
        for step in STEPS {
            let all = candidates(step, built_in);
            assert_eq!(all[0], built_in);
            assert!(all.len() > 2, "{}", step.0);
            for other in &all[1..] {
                let same = match step.0 {
                    "2: block" => other.engine == built_in.engine,
                    "4: engine" => Settings { engine: built_in.engine, ..*other } == built_in,
                    _ => Settings { depth: built_in.depth, ..*other } == built_in,
                };
                assert!(same, "{}: {other:?}", step.0);
            }
        }
    }
}
