//! One run: what it will take is said and checked before it starts, each group is measured, and everything
//! is written down as it comes.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::advice;
use crate::args::Common;
use crate::cache::{self, Cache, Dropping};
use crate::case::{Case, Group, Missing, Sample};
use crate::environment::{DiskCounter, Environment};
use crate::export;
use crate::interrupt;
use crate::progress::Progress;
use crate::run_file::{Run, RunFile, State};
use crate::runner::{self, Ended, Rounds, Runner, Schedule, Step, WARM_UP_ROUNDS_MAX, WarmUp};
use crate::scratch;

/// What a workload wants to measure, and what that takes.
pub(crate) struct Work<'a> {
    pub(crate) groups: Vec<Planned<'a>>,
    /// Room that files of its own need: folder and bytes.
    pub(crate) room: Vec<(PathBuf, u64)>,
}

/// A group, and how its cases are measured.
pub(crate) struct Planned<'a> {
    /// Its cases come with the [`CasePlan`]s.
    pub(crate) group: Group,
    pub(crate) cases: Vec<CasePlan<'a>>,
    /// What is emptied or filled before a sample, and what disks are watched by.
    pub(crate) paths: Vec<PathBuf>,
    /// What rounds there are where the user says nothing.
    pub(crate) rounds: Rounds,
    /// Whether the first rounds are slower because they are the first: what is in memory alone.
    pub(crate) warms_up: bool,
}

/// How a case is measured.
pub(crate) struct CasePlan<'a> {
    pub(crate) case: Case,
    pub(crate) cache: Cache,
    pub(crate) cost: Cost,
    /// Measured twice in a row, of which the second counts.
    primed: bool,
    /// The last that is done before it, and not measured.
    ready: Option<Box<dyn FnMut() + 'a>>,
    pub(crate) measure: Box<dyn FnMut() -> Result<Sample, Missing> + 'a>,
}

/// The file of a run is written again after so long at the earliest: it may have a megabyte, and the disk that
/// it is on may be the one that is measured.
const BETWEEN_SAVES: Duration = Duration::from_secs(1);

/// What one sample takes, about.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) seconds: f64,
}

/// Bytes per second that are assumed before anything is measured: those of a SATA SSD.
const ASSUMED_BYTES_PER_S: f64 = 5e8;

/// What a single drive can deliver: 16 lanes' worth of PCI Express 4.0 is 32e9, a drive has 4 of them.
const FASTEST_BYTES_PER_S: f64 = 8e9;

impl Cost {
    /// To read so much once.
    pub(crate) fn read(bytes: u64) -> Cost {
        let seconds = bytes as f64 / ASSUMED_BYTES_PER_S + 0.5;
        Cost { read_bytes: bytes, written_bytes: 0, seconds }
    }

    /// To go on for so long, with the fastest device.
    pub(crate) fn time(seconds: f64) -> Cost {
        let read_bytes = (seconds * FASTEST_BYTES_PER_S) as u64;
        Cost { read_bytes, written_bytes: 0, seconds: seconds + 0.1 }
    }

    /// The same where nothing is read from a device.
    pub(crate) fn memory(seconds: f64) -> Cost {
        Cost { seconds, ..Cost::default() }
    }

    /// So much is read besides.
    pub(crate) fn reading(self, read_bytes: u64) -> Cost {
        Cost { read_bytes: self.read_bytes + read_bytes, ..self }
    }

    /// At most so much of it is read.
    pub(crate) fn at_most(self, read_bytes: u64) -> Cost {
        Cost { read_bytes: self.read_bytes.min(read_bytes), ..self }
    }

    fn add(&mut self, other: Cost, times: u32) {
        self.read_bytes =
            self.read_bytes.saturating_add(other.read_bytes.saturating_mul(times.into()));
        self.written_bytes =
            self.written_bytes.saturating_add(other.written_bytes.saturating_mul(times.into()));
        self.seconds += other.seconds * f64::from(times);
    }
}

impl CasePlan<'_> {
    /// How often it is run for one sample.
    fn times(&self) -> u32 {
        if self.primed { 2 } else { 1 }
    }
}

impl<'a> Planned<'a> {
    fn live(&self) -> impl Iterator<Item = &CasePlan<'a>> {
        self.cases.iter().filter(|case| case.case.missing.is_none())
    }

    pub(crate) fn new(group: Group, paths: &[PathBuf], rounds: Rounds) -> Planned<'a> {
        Planned {
            group,
            cases: Vec::new(),
            paths: paths.to_vec(),
            rounds,
            warms_up: paths.is_empty(),
        }
    }

    pub(crate) fn add(
        &mut self,
        case: Case,
        cache: Cache,
        cost: Cost,
        measure: impl FnMut() -> Result<Sample, Missing> + 'a,
    ) {
        self.cases.push(CasePlan {
            case,
            cache,
            cost,
            primed: false,
            ready: None,
            measure: Box::new(measure),
        });
    }

    /// The case that was added last is measured twice in a row, and the second counts.
    pub(crate) fn prime(&mut self) {
        if let Some(last) = self.cases.last_mut() {
            last.primed = true;
        }
    }

    /// What is done before each sample of the case that was added last, after the page cache was seen to.
    pub(crate) fn get_ready_by(&mut self, ready: impl FnMut() + 'a) {
        if let Some(last) = self.cases.last_mut() {
            last.ready = Some(Box::new(ready));
        }
    }

    /// A case that cannot run, with the reason.
    pub(crate) fn add_missing(&mut self, case: Case, why: impl Into<String>) {
        let missing = Missing::Unavailable(why.into());
        let case = Case { missing: Some(missing), ..case };
        self.cases.push(CasePlan {
            case,
            cache: Cache::Any,
            cost: Cost::default(),
            primed: false,
            ready: None,
            measure: Box::new(|| Err(Missing::Unavailable(String::new()))),
        });
    }
}

/// Whether two paths lead to one file.
fn is_same(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    identity(a).is_some_and(|a| Some(a) == identity(b))
}

/// One invocation.
pub(crate) struct Session<'a> {
    common: &'a Common,
    file: Option<RunFile>,
    targets: Vec<PathBuf>,
    run: Run,
    start: Instant,
    dropping: Dropping,
    progress: Progress,
    last_saved: Option<Instant>,
    /// Why the run could not be written, the last time.
    not_saved: Option<anyhow::Error>,
}

impl<'a> Session<'a> {
    /// # Errors
    ///
    /// The file of the run cannot be made.
    pub(crate) fn new(
        workload: &str,
        common: &'a Common,
        targets: &[PathBuf],
    ) -> anyhow::Result<Session<'a>> {
        let command = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let mut run = Run::new(workload, command, Environment::capture(targets));
        run.advice = advice::of_environment(&run.environment);
        Ok(Session {
            common,
            file: None,
            targets: targets.to_vec(),
            run,
            start: Instant::now(),
            // A small run leaves the page cache of others alone.
            dropping: if common.smoke { Dropping::ByFile } else { Dropping::find() },
            progress: Progress::new(!common.quiet),
            last_saved: None,
            not_saved: None,
        })
    }

    fn rounds(&self, planned: &Planned<'_>) -> Rounds {
        match (self.common.runs, self.common.smoke) {
            (Some(runs), _) => Rounds::Fixed(runs),
            (None, true) => Rounds::Fixed(1),
            (None, false) => planned.rounds,
        }
    }

    fn warm_up(&self, planned: &Planned<'_>) -> WarmUp {
        match self.common.warm_up {
            Some(rounds) => WarmUp::Fixed(rounds),
            None if self.common.smoke => WarmUp::Fixed(0),
            None if planned.warms_up => WarmUp::Auto,
            None if planned.cases.iter().all(|case| case.cache == Cache::Warm) => WarmUp::Auto,
            // What comes from a device has nothing to warm.
            None => WarmUp::Fixed(0),
        }
    }

    /// How often each case is measured at most, warming up included.
    fn times(&self, planned: &Planned<'_>) -> u32 {
        let extra = match self.warm_up(planned) {
            WarmUp::Fixed(rounds) => rounds,
            WarmUp::Auto => WARM_UP_ROUNDS_MAX,
        };
        self.rounds(planned).max() + extra
    }

    /// Checks what all this will take against the limits. `false` if that was all that was wanted
    /// (`--dry-run`).
    ///
    /// # Errors
    ///
    /// It takes more than is allowed, or than there is.
    pub(crate) fn announce(&mut self, work: &Work<'_>) -> anyhow::Result<bool> {
        let mut total = Cost::default();
        for planned in &work.groups {
            let times = self.times(planned);
            planned.live().for_each(|case| total.add(case.cost, times * case.times()));
        }
        for (_, bytes) in &work.room {
            total.add(Cost { written_bytes: *bytes, ..Cost::read(*bytes) }, 1);
            total.read_bytes -= bytes;
        }
        if self.common.dry_run {
            let mut out = std::io::stdout().lock();
            out.write_all(self.describe(work, total)?.as_bytes())?;
            out.flush()?;
            return Ok(false);
        }
        for (folder, bytes) in &work.room {
            scratch::check_room(folder, *bytes)?;
        }
        if let Some(limit) = self.common.limit_bytes {
            let bytes = total.read_bytes.saturating_add(total.written_bytes);
            if bytes > limit {
                bail!(
                    "this reads and writes up to {} MiB, and the limit is {} MiB: take fewer runs or a \
                     smaller file, or raise --limit-bytes; --dry-run shows the plan",
                    bytes >> 20,
                    limit >> 20,
                );
            }
        }
        if let Some(path) = &self.common.output {
            if self.targets.iter().any(|target| is_same(target, path)) {
                bail!("{}: it is what is to be measured: name another file", path.display());
            }
            self.file = Some(RunFile::create(path, self.common.overwrite)?);
        }
        self.progress.start(self.limited(total.seconds));
        Ok(true)
    }

    fn limited(&self, seconds: f64) -> f64 {
        self.common.limit_time.map_or(seconds, |limit| seconds.min(limit.as_secs_f64()))
    }

    /// The plan in words.
    fn describe(&self, work: &Work<'_>, total: Cost) -> anyhow::Result<String> {
        use std::fmt::Write;
        let mut text = String::new();
        for planned in &work.groups {
            let rounds = match self.rounds(planned) {
                Rounds::Fixed(rounds) => format!("{rounds} each"),
                Rounds::Auto { min, max } => format!("{min} to {max} each, by the spread"),
            };
            writeln!(text, "{}: {}", planned.group.name, rounds)?;
            for CasePlan { case, cost, .. } in &planned.cases {
                match &case.missing {
                    Some(missing) => {
                        writeln!(text, "  {:40} not here: {}", case.name, missing.why())?
                    }
                    None => writeln!(
                        text,
                        "  {:40} about {:.1} s, {} MiB read, {} MiB written",
                        case.name,
                        cost.seconds,
                        cost.read_bytes >> 20,
                        cost.written_bytes >> 20
                    )?,
                }
            }
        }
        for (folder, bytes) in &work.room {
            writeln!(text, "room in {}: {} MiB, while it runs", folder.display(), bytes >> 20)?;
        }
        writeln!(
            text,
            "in all at most {} min {:02} s, {} MiB read and {} MiB written{}",
            total.seconds as u64 / 60,
            total.seconds as u64 % 60,
            total.read_bytes >> 20,
            total.written_bytes >> 20,
            match self.common.limit_time {
                Some(limit) => format!("; the limit is {} s", limit.as_secs()),
                None => String::new(),
            }
        )?;
        Ok(text)
    }

    /// Measures one group, and keeps what came of it.
    ///
    /// # Errors
    ///
    /// The run cannot be written.
    pub(crate) fn measure(&mut self, mut planned: Planned<'_>) -> anyhow::Result<&Group> {
        let schedule = Schedule {
            rounds: self.rounds(&planned),
            warm_up: self.warm_up(&planned),
            deadline: self.common.limit_time,
        };
        let costs: Vec<f64> =
            planned.cases.iter().map(|plan| plan.cost.seconds * f64::from(plan.times())).collect();
        let times = f64::from(self.times(&planned));
        let all_s: f64 =
            planned.live().map(|plan| plan.cost.seconds * f64::from(plan.times())).sum();
        let mut group = planned.group;
        group.cases = planned.cases.iter().map(|plan| plan.case.clone()).collect();
        let before_s = self.progress.done_s();
        self.run.groups.push(group.clone());
        let mut live = Live {
            disk: planned.paths.first().map(|path| DiskCounter::of(path)),
            cases: &mut planned.cases,
            paths: planned.paths,
            start: self.start,
            dropping: self.dropping,
            disk_before: None,
            not_cold: None,
        };
        let (progress, run, file) = (&self.progress, &mut self.run, &self.file);
        let (last_saved, not_saved) = (&mut self.last_saved, &mut self.not_saved);
        let ended = runner::carry_out(&mut group, &schedule, &mut live, &mut |group, step| {
            match step {
                Step::Begins { case, round, warms_up } => {
                    let what = if warms_up { "warm-up" } else { "round" };
                    progress.say(&format!(
                        "{}: {}, {what} {}",
                        group.name,
                        group.cases[case].name,
                        round + 1
                    ));
                }
                Step::Ended { case } => {
                    progress.done(costs[case]);
                    if let Some(last) = run.groups.last_mut() {
                        last.cases[case] = group.cases[case].clone();
                    }
                    if let Some(file) = file
                        && last_saved.is_none_or(|last| last.elapsed() >= BETWEEN_SAVES)
                    {
                        // A disk that is full now may not be at the end.
                        *not_saved = file.save(run).err();
                        *last_saved = Some(Instant::now());
                    }
                }
            }
            Ok(())
        })?;
        if let Some(why) = live.not_cold {
            group.advice.push(format!("the page cache could not be emptied: {why}"));
        }
        group.advice.extend(advice::of_group(&group, ended));
        match ended {
            Ended::Interrupted => self.run.state = State::Interrupted,
            Ended::Deadline => self.run.state = State::CutShort,
            Ended::Enough | Ended::Unsettled => {}
        }
        // Rounds that were not needed are done, too.
        self.progress.done_up_to(before_s + all_s * times);
        self.run.groups.pop();
        self.run.groups.push(group);
        Ok(&self.run.groups[self.run.groups.len() - 1])
    }

    /// Takes down the facts of what is measured.
    pub(crate) fn look_at(&mut self, targets: &[PathBuf]) {
        self.run.environment = Environment::capture(targets);
    }

    /// Empties the page cache of `paths`, as far as that can be had.
    ///
    /// # Errors
    ///
    /// What stayed.
    pub(crate) fn drop_pages(&self, paths: &[PathBuf]) -> anyhow::Result<()> {
        self.dropping.drop_pages(paths)
    }

    /// Whether there is any sense in measuring more.
    pub(crate) fn goes_on(&self) -> bool {
        self.run.state == State::Running && !interrupt::is_interrupted()
    }

    /// Measures all groups that were announced.
    ///
    /// # Errors
    ///
    /// The run cannot be written.
    pub(crate) fn measure_all(&mut self, work: Work<'_>) -> anyhow::Result<()> {
        for planned in work.groups {
            if !self.goes_on() {
                break;
            }
            self.measure(planned)?;
        }
        Ok(())
    }

    pub(crate) fn groups(&self) -> &[Group] {
        &self.run.groups
    }

    pub(crate) fn group(&self, name: &str) -> Option<&Group> {
        self.run.groups.iter().find(|group| group.name == name)
    }

    /// What the system says of the first target.
    pub(crate) fn facts(&self) -> BTreeMap<String, String> {
        let first = self.run.environment.targets.first();
        first.map_or_else(BTreeMap::new, |target| target.facts.clone())
    }

    /// Keeps a group that was not measured, but made of others.
    pub(crate) fn add(&mut self, group: Group) {
        if !group.cases.is_empty() {
            self.run.groups.push(group);
        }
    }

    /// A number that the run comes to, by a name that a program can use: its words, joined; its unit is last.
    pub(crate) fn result(&mut self, name: &str, value: f64) {
        let words =
            name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let name = words.collect::<Vec<_>>().join("_").to_lowercase();
        self.run.results.insert(name, value);
    }

    /// What the run comes to, in words.
    pub(crate) fn conclude(&mut self, words: impl Into<String>) {
        self.run.conclusions.push(words.into());
    }

    /// Writes and prints what there is. The run, and whether all that should have run has.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub(crate) fn finish(mut self) -> anyhow::Result<bool> {
        self.progress.finish();
        if self.run.state == State::Running {
            self.run.state = match interrupt::is_interrupted() {
                true => State::Interrupted,
                false => State::Finished,
            };
        }
        if let Some(file) = &self.file {
            self.not_saved = file.save(&self.run).err();
        }
        export::print(&self.run)?;
        match self.not_saved.take() {
            Some(error) => Err(error),
            None => Ok(!self.run.has_failures() && self.run.state != State::Interrupted),
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            file.discard_if_empty();
        }
    }
}

/// The machine itself.
struct Live<'a, 'b> {
    cases: &'b mut Vec<CasePlan<'a>>,
    paths: Vec<PathBuf>,
    start: Instant,
    dropping: Dropping,
    disk: Option<DiskCounter>,
    disk_before: Option<u64>,
    not_cold: Option<String>,
}

impl Live<'_, '_> {
    fn see_to_cache(&mut self, case: usize) -> Result<(), Missing> {
        match self.cases[case].cache {
            Cache::Any => Ok(()),
            Cache::Cold => {
                if let Err(why) = self.dropping.drop_pages(&self.paths) {
                    self.not_cold = Some(why.to_string());
                }
                Ok(())
            }
            // Each time: a kernel may give pages back that nobody has read for some seconds (DAMON).
            Cache::Warm => {
                cache::fill(&self.paths).map_err(|error| Missing::Failed(format!("{error:#}")))
            }
        }
    }
}

impl Runner for Live<'_, '_> {
    fn prepare(&mut self, case: usize) -> Result<(), Missing> {
        self.see_to_cache(case)?;
        if self.cases[case].primed {
            (self.cases[case].measure)()?;
            self.see_to_cache(case)?;
        }
        if let Some(ready) = &mut self.cases[case].ready {
            ready();
        }
        self.disk_before = self.disk.as_ref().and_then(DiskCounter::read_bytes);
        Ok(())
    }

    fn measure(&mut self, case: usize) -> Result<Sample, Missing> {
        let mut sample = (self.cases[case].measure)()?;
        let after = self.disk.as_ref().and_then(DiskCounter::read_bytes);
        let delivered =
            after.zip(self.disk_before).map(|(after, before)| after.saturating_sub(before));
        sample.disk_read_bytes = sample.disk_read_bytes.or(delivered);
        Ok(sample)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn is_interrupted(&self) -> bool {
        interrupt::is_interrupted()
    }
}
