//! One invocation: checks the plan against the limits, measures group by group, and writes down every
//! sample.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::bail;
use indicatif::ProgressBar;

use super::cache::Dropping;
use super::live::Live;
use super::plan::{Cache, CasePlan, Cost, GroupPlan};
use super::progress;
use super::schedule::{self, Ended, Rounds, Schedule, Step, WARM_UP};
use super::{advice, interrupt, scratch};
use crate::cli::args::RunArgs;
use crate::model::case::Group;
use crate::model::comparison::Ratio;
use crate::model::environment::Environment;
use crate::model::output_file::OutputFile;
use crate::model::run_file::{Run, RunState};
use crate::report;

/// Shortest time between two writes of the run file: it may have a megabyte, and its disk may be the one
/// that is measured.
const BETWEEN_SAVES: Duration = Duration::from_secs(1);

/// A folder where a workload creates a file, and the size of that in bytes.
pub(crate) type Room<'a> = (&'a Path, u64);

pub(crate) struct Session<'a> {
    args: &'a RunArgs,
    file: Option<OutputFile>,
    targets: Vec<PathBuf>,
    pub(crate) run: Run,
    start: Instant,
    dropping: Dropping,
    progress: ProgressBar,
    last_saved: Option<Instant>,
    /// Why the last write of the run file failed.
    not_saved: Option<anyhow::Error>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(workload: &str, args: &'a RunArgs, targets: &[PathBuf]) -> Session<'a> {
        let command = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let mut run = Run::new(workload, command, Environment::capture(targets));
        run.advice = advice::of_environment(&run.environment);
        Session {
            args,
            file: None,
            targets: targets.to_vec(),
            run,
            start: Instant::now(),
            // A smoke test leaves the page cache of other files alone.
            dropping: if args.smoke { Dropping::ByFile } else { Dropping::find() },
            progress: progress::bar(!args.quiet),
            last_saved: None,
            not_saved: None,
        }
    }

    fn schedule(&self, plan: &GroupPlan<'_>) -> Schedule {
        let is_warm = plan.warms_up || plan.cases.iter().all(|case| case.cache == Cache::Warm);
        let rounds = match (self.args.runs, self.args.smoke) {
            (Some(runs), _) => Rounds::fixed(runs),
            (None, true) => Rounds::fixed(1),
            (None, false) => plan.rounds,
        };
        let warm_up = match self.args.warm_up {
            Some(rounds) => Rounds::fixed(rounds),
            None if is_warm && !self.args.smoke => WARM_UP,
            // Reads from a device have nothing to warm up.
            None => Rounds::fixed(0),
        };
        Schedule { rounds, warm_up, deadline: self.args.limit_time }
    }

    /// The most samples of each case, including warm-up.
    fn times_max(&self, plan: &GroupPlan<'_>) -> u32 {
        let Schedule { rounds, warm_up, .. } = self.schedule(plan);
        rounds.max + rounds.spare() + warm_up.max
    }

    /// Checks the cost of the plan against the limits, and creates the run file. Returns `false` if the plan
    /// is only printed (`--dry-run`).
    pub(crate) fn announce(
        &mut self,
        groups: &[GroupPlan<'_>],
        room: Option<Room<'_>>,
    ) -> anyhow::Result<bool> {
        let mut total = Cost::default();
        for plan in groups {
            let times = self.times_max(plan);
            plan.live().for_each(|case| total.add(case.cost, times * case.times()));
        }
        if let Some((_, bytes)) = room {
            total.add(Cost { written_bytes: bytes, read_bytes: 0, ..Cost::read(bytes) }, 1);
        }
        if self.args.dry_run {
            self.print_plan(groups, room, total)?;
            return Ok(false);
        }
        if let Some((folder, bytes)) = room {
            scratch::check_room(folder, bytes)?;
        }
        let bytes = total.read_bytes.saturating_add(total.written_bytes);
        if let Some(limit) = self.args.limit_bytes.filter(|limit| bytes > *limit) {
            bail!(
                "this reads and writes up to {} MiB, which exceeds the limit of {} MiB: use fewer runs or a \
                 smaller file, or raise --limit-bytes; --dry-run prints the plan",
                bytes >> 20,
                limit >> 20,
            );
        }
        if let Some(path) = &self.args.output {
            if self.targets.iter().any(|target| is_same(target, path)) {
                bail!("{}: this is the file to measure: use another output file", path.display());
            }
            self.file = Some(OutputFile::create(path, self.args.overwrite)?);
        }
        let limit = self.args.limit_time.map_or(f64::INFINITY, |limit| limit.as_secs_f64());
        self.progress.set_length(to_ms(total.seconds.min(limit)));
        self.progress.reset_elapsed();
        Ok(true)
    }

    fn print_plan(
        &self,
        groups: &[GroupPlan<'_>],
        room: Option<Room<'_>>,
        total: Cost,
    ) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        let transfer = |cost: Cost| {
            let (read, written) = (cost.read_bytes >> 20, cost.written_bytes >> 20);
            format!("{read} MiB read, {written} MiB written")
        };
        for plan in groups {
            let rounds = match self.schedule(plan).rounds {
                Rounds { min, max } if min == max => max.to_string(),
                Rounds { min, max } => format!("{min} to {max}"),
            };
            writeln!(out, "{}: {rounds} samples of each case", plan.group.name)?;
            for CasePlan { case, cost, .. } in &plan.cases {
                let planned = match &case.missing {
                    Some(missing) => format!("unavailable: {}", missing.why()),
                    None => format!("about {:.1} s, {}", cost.seconds, transfer(*cost)),
                };
                writeln!(out, "  {:40} {planned}", case.name)?;
            }
        }
        if let Some((folder, bytes)) = room {
            writeln!(out, "temporary file in {}: {} MiB", folder.display(), bytes >> 20)?;
        }
        let (seconds, limit) = (total.seconds as u64, self.args.limit_time);
        let (minutes, seconds) = (seconds / 60, seconds % 60);
        let limit =
            limit.map_or_else(String::new, |it| format!("; the limit is {} s", it.as_secs()));
        writeln!(out, "total: at most {minutes} min {seconds:02} s, {}{limit}", transfer(total))?;
        out.flush()
    }

    pub(crate) fn measure(&mut self, mut plan: GroupPlan<'_>) -> &Group {
        let schedule = self.schedule(&plan);
        let samples_ms: Vec<u64> = plan.cases.iter().map(|case| to_ms(case.sample_s())).collect();
        let round_s: f64 = plan.live().map(|case| case.sample_s()).sum();
        let group_ms = to_ms(round_s * f64::from(self.times_max(&plan)));
        let end_ms = self.progress.position() + group_ms;
        let mut group = plan.group.clone();
        group.cases = plan.cases.iter().map(|plan| plan.case.clone()).collect();
        let place = self.run.groups.len();
        self.run.groups.push(group.clone());
        let mut live = Live::new(&mut plan, self.start, self.dropping);
        let ended =
            schedule::carry_out(&mut group, &schedule, &mut live, &mut |group, step| match step {
                Step::Starts { case, round, warms_up } => {
                    let kind = if warms_up { "warm-up" } else { "round" };
                    let (group, case) = (&group.name, &group.cases[case].name);
                    self.progress.set_message(format!("{group}: {case}, {kind} {}", round + 1));
                }
                Step::Ended { case } => {
                    self.progress.inc(samples_ms[case]);
                    self.run.groups[place].cases[case] = group.cases[case].clone();
                    self.save_now_and_then();
                }
            });
        if let Some(why) = live.not_cold {
            group.advice.push(format!("the page cache could not be emptied: {why}"));
        }
        group.advice.extend(advice::of_group(&group, ended));
        match ended {
            Ended::Interrupted => self.run.state = RunState::Interrupted,
            Ended::Deadline => self.run.state = RunState::CutShort,
            Ended::Enough | Ended::Unsettled => {}
        }
        // Rounds that were not necessary are done as well.
        self.progress.set_position(end_ms);
        self.run.groups[place] = group;
        &self.run.groups[place]
    }

    fn save_now_and_then(&mut self) {
        if let Some(file) = &self.file
            && self.last_saved.is_none_or(|last| last.elapsed() >= BETWEEN_SAVES)
        {
            // A full disk may have room again at the end.
            self.not_saved = self.run.save(file).err();
            self.last_saved = Some(Instant::now());
        }
    }

    /// Measures all groups that were announced.
    pub(crate) fn measure_all(&mut self, groups: Vec<GroupPlan<'_>>) {
        for plan in groups {
            if self.continues() {
                self.measure(plan);
            }
        }
    }

    pub(crate) fn continues(&self) -> bool {
        self.run.state == RunState::Running && !interrupt::is_interrupted()
    }

    pub(crate) fn drop_pages(&self, paths: &[PathBuf]) -> anyhow::Result<()> {
        self.dropping.drop_pages(paths)
    }

    pub(crate) fn group(&self, name: &str) -> Option<&Group> {
        self.run.groups.iter().find(|group| group.name == name)
    }

    pub(crate) fn median(&self, group: &str, case: &str) -> Option<f64> {
        self.group(group)?.median_of(case)
    }

    /// The ratio of the times of two cases of a group.
    pub(crate) fn compare(&self, group: &str, a: &str, b: &str) -> Option<Ratio> {
        self.group(group)?.compare(a, b)
    }

    /// The name and the median of the best case of a group.
    pub(crate) fn best(&self, group: &str) -> Option<(String, f64)> {
        self.group(group)?.best().map(|(case, median)| (case.name.clone(), median))
    }

    /// Adds a number to the results, under its name in words that are joined; the unit stands last.
    pub(crate) fn result(&mut self, name: &str, value: f64) {
        let words =
            name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let name = words.collect::<Vec<_>>().join("_").to_lowercase();
        self.run.results.insert(name, value);
    }

    pub(crate) fn conclude(&mut self, words: impl Into<String>) {
        self.run.conclusions.push(words.into());
    }

    /// Writes and prints the run. Returns whether everything ran that should have.
    pub(crate) fn finish(mut self) -> anyhow::Result<bool> {
        self.progress.finish_and_clear();
        if self.run.state == RunState::Running {
            self.run.state = match interrupt::is_interrupted() {
                true => RunState::Interrupted,
                false => RunState::Finished,
            };
        }
        if self.run.state == RunState::Interrupted {
            // The last round is incomplete, and the cases may have too few others.
            (self.run.conclusions, self.run.predictions) = (Vec::new(), Vec::new());
        }
        if let Some(file) = &self.file {
            self.not_saved = self.run.save(file).err();
        }
        report::print(&self.run)?;
        match self.not_saved.take() {
            Some(error) => Err(error),
            None => Ok(!self.run.has_failures() && self.run.state != RunState::Interrupted),
        }
    }
}

fn to_ms(seconds: f64) -> u64 {
    (seconds * 1e3) as u64
}

/// Whether two paths lead to the same file.
fn is_same(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    identity(a).is_some_and(|a| Some(a) == identity(b))
}
