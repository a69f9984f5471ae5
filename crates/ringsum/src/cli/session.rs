//! What hashing and checking share: from a path to its digest, with plan and progress shown.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use blockring::{Choice, Config, Plan, Shared, Source, Stats, Trace, Tunings};
use ringsum::many::{BadRanges, Budget, Failure, Hashed, can_share};
use ringsum::{Algorithms, Found, Mode, Options, tuned};

use crate::args::Args;
use crate::ends;
use crate::inputs::{self, InputError, Inputs};
use crate::limits;
use crate::mapping;
use crate::output::{Messages, Output, To};
use crate::progress::Progress;
use crate::statistics::{Of, Report};
use crate::values::StatsFormat;

/// When a file that changed is read again: an editor, or a program that puts a new file in the place of an old
/// one, is done within milliseconds; for one that writes for longer, each time is twice as long as the one
/// before, up to what people wait for a prompt.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(8);

/// One invocation.
pub(crate) struct Session<'a> {
    pub(crate) args: &'a Args,
    pub(crate) messages: &'a Messages,
    pub(crate) output: Output,
    inputs: Mutex<Inputs>,
    pub(crate) progress: Progress,
    pub(crate) options: Options,
    /// What to make of files.
    pub(crate) algorithms: Algorithms,
    /// How what is hashed by itself is read, with its part of the memory.
    alone: Config,
    /// Present where statistics are wanted: a start without them does not touch what they are made of.
    totals: Option<Mutex<Totals>>,
}

/// What all inputs took.
struct Totals {
    format: StatsFormat,
    start: Instant,
    inputs: u64,
    /// Some were read together, and nothing was said of each.
    together: bool,
    stats: Stats,
}

/// Why there is no digest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DigestError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Hash(#[from] ringsum::Error),
    #[error("{0}")]
    Unreadable(BadRanges),
    #[error("--map-errors goes on after a failed read, and {0} has no places to go on from")]
    NoPlaces(&'static str),
}

impl DigestError {
    /// The same as what happens to one of many.
    pub(crate) fn into_failure(self) -> Failure {
        match self {
            DigestError::Hash(error) => error.into(),
            DigestError::Input(InputError::Blockring(error)) => Failure::Read(error.into_parts().1),
            DigestError::Unreadable(ranges) => Failure::Unreadable(ranges),
            error @ (DigestError::Input(_) | DigestError::NoPlaces(_)) => {
                Failure::Alone(error.to_string())
            }
        }
    }
}

impl<'a> Session<'a> {
    /// # Errors
    ///
    /// Standard output is closed, or the key cannot be had, or a trace not be written.
    pub(crate) fn new(args: &'a Args, messages: &'a Messages) -> anyhow::Result<Session<'a>> {
        ends::check(args)?;
        let mut inputs = Inputs::new();
        let mode = match &args.derive_key {
            Some(context) => Mode::derive_key(context),
            None if args.keyed => Mode::Keyed(inputs.key()?),
            None => Mode::Hash,
        };
        let trace = match &args.trace {
            Some(path) => {
                let file = create_trace(path).map_err(|error| no_trace(path, &error))?;
                Some(Trace::new(file))
            }
            None => None,
        };
        if args.may_map() {
            #[expect(unsafe_code)]
            // SAFETY: the hash of bytes that change under it is some hash, and is not printed.
            unsafe {
                blockring::allow_mmap()?;
            }
        }
        let given = args.config(trace);
        let memory_bytes = match args.reads_many() {
            true => given.memory_bytes.or_else(limits::memory_bytes),
            false => given.memory_bytes,
        };
        let config = Config { memory_bytes, tuned: tunings(args), ..given };
        let alone = match args.reads_many() {
            true => Budget::of(&config).alone(&config),
            false => config.clone(),
        };
        // Last: it empties a file.
        let output = Output::new(destination(args))?;
        Ok(Session {
            args,
            messages,
            output,
            inputs: Mutex::new(inputs),
            progress: Progress::new(args.progress),
            options: Options { mode, config },
            algorithms: args.algorithms(),
            alone,
            totals: args.stats.map(|format| {
                let (start, stats) = (Instant::now(), Stats::default());
                Mutex::new(Totals { format, start, inputs: 0, together: false, stats })
            }),
        })
    }

    /// Everything is done: the bar goes, the totals are said, the trace is written to its end.
    pub(crate) fn finish(&self) -> anyhow::Result<()> {
        self.progress.finish();
        // Of one input, people have seen them.
        let is_news = |t: &MutexGuard<'_, Totals>| {
            t.format == StatsFormat::Json || t.inputs != 1 || t.together
        };
        if let Some(totals) = self.totals.as_ref().map(lock).filter(is_news) {
            let report =
                Report { stats: &totals.stats, of: Of::All(totals.inputs, totals.start.elapsed()) };
            self.messages.report(None, totals.format, report.format(totals.format));
        }
        if let (Some(trace), Some(path)) = (&self.options.config.trace, &self.args.trace) {
            trace.finish().map_err(|error| no_trace(path, &error))?;
        }
        Ok(())
    }

    /// Hashes one input.
    pub(crate) fn hash(&self, path: &Path, algorithms: &Algorithms) -> Result<Hashed, DigestError> {
        let source = lock(&self.inputs).open(path)?;
        let hashed = self.hash_source(&source, path, algorithms)?;
        lock(&self.inputs).finish(&source, path);
        Ok(hashed)
    }

    /// The same, once more if the file changed meanwhile and that was asked for.
    pub(crate) fn hash_again(&self, path: &Path) -> Result<Hashed, Failure> {
        let mut again = 0;
        loop {
            let failure = match self.hash(path, &self.algorithms) {
                Ok(hashed) => return Ok(hashed),
                Err(error) => error.into_failure(),
            };
            match failure.change().and_then(|_| self.again_after(path, again)) {
                Some(after) => thread::sleep(after),
                None => return Err(failure),
            }
            again += 1;
        }
    }

    /// When to read a file that changed again, and has been so often; standard input cannot be.
    pub(crate) fn again_after(&self, path: &Path, again: u32) -> Option<Duration> {
        let is_due = again < self.args.retry_changed && !inputs::is_stdin(path);
        is_due.then(|| (AGAIN_AFTER * (1 << again.min(30))).min(AGAIN_AFTER_MAX))
    }

    /// How the memory of a run over many files is shared out.
    pub(crate) fn budget(&self) -> Budget {
        Budget::of(&self.options.config)
    }

    /// Whether files are read together with others, if there are many.
    pub(crate) fn shares(&self) -> bool {
        can_share(&self.options.config) && !self.args.map_errors
    }

    /// Hashes what is open already; `path` is what it is called.
    pub(crate) fn hash_source(
        &self,
        source: &Source,
        path: &Path,
        algorithms: &Algorithms,
    ) -> Result<Hashed, DigestError> {
        let mode = &self.options.mode;
        let plan = ringsum::plan_sums(source, &self.alone, algorithms)?;
        if self.args.map_errors {
            return mapping::hash(self, &plan, path);
        }
        let observe = |bytes| self.progress.add(bytes);
        let hash = || ringsum::sums_planned(&plan, mode, algorithms, &observe);
        Ok(Hashed::read(self.carry_out(&plan, path, hash)?, source))
    }

    /// Opens a file to be read as it comes; `-` is standard input.
    pub(crate) fn open_stream(&self, path: &Path) -> Result<Source, InputError> {
        lock(&self.inputs).open_stream(path)
    }

    /// Explains a plan, has it carried out, and says what that took.
    pub(crate) fn carry_out(
        &self,
        plan: &Plan<'_>,
        path: &Path,
        hash: impl FnOnce() -> Result<Found, ringsum::Error>,
    ) -> Result<Found, ringsum::Error> {
        if self.args.explain {
            let name = path.as_os_str().as_encoded_bytes();
            let text = format!("plan\n{plan}");
            self.progress.suspend(|| self.messages.say_lines(Some(name), &text));
        }
        let found = hash();
        if let (Some(totals), Some(stats)) = (&self.totals, plan.stats()) {
            let mut totals = lock(totals);
            totals.stats.add(&stats);
            let report = Report { stats: &stats, of: Of::Input(path, plan.choices()) };
            let text = report.format(totals.format);
            let name = path.as_os_str().as_encoded_bytes();
            self.progress.suspend(|| self.messages.report(Some(name), totals.format, text));
        }
        found
    }

    /// Says how files of one device are read.
    pub(crate) fn explain_shared(&self, shared: &Shared) {
        if !self.args.explain {
            return;
        }
        let mut text = "plan for the files of a device".to_owned();
        for Choice { what, value, why } in shared.choices() {
            text.push_str(&format!("\n  {what:8} {value:16} {why}"));
        }
        self.progress.suspend(|| self.messages.say_lines(None, &text));
    }

    /// Opens a list of names or of hashes; `-` is standard input.
    pub(crate) fn open_list(&self, path: &Path) -> Result<File, InputError> {
        lock(&self.inputs).open_list(path)
    }

    /// Prints a message about an input, out of the way of the progress.
    pub(crate) fn say_of(&self, name: &[u8], text: &dyn std::fmt::Display) {
        self.progress.suspend(|| self.messages.say_of(name, text));
    }

    /// Counts inputs that are done; `together`: nothing was said of each of them.
    pub(crate) fn count_inputs(&self, inputs: u64, together: bool) {
        if let Some(totals) = &self.totals {
            let mut totals = lock(totals);
            totals.inputs += inputs;
            totals.together |= together;
        }
    }

    /// Adds what reading the files of one device took.
    pub(crate) fn add_stats(&self, shared: &Shared) {
        if let (Some(totals), Some(stats)) = (&self.totals, shared.stats()) {
            lock(totals).stats.add(&stats);
        }
    }
}

/// What was measured on this machine, for plans to look at where it counts: a small file's never does, and so
/// costs no system call.
fn tunings(args: &Args) -> Option<Tunings> {
    if args.no_tuned {
        return None;
    }
    let [config_home, home] = ["XDG_CONFIG_HOME", "HOME"].map(std::env::var_os);
    tuned::default_path(config_home.as_deref(), home.as_deref()).map(tuned::tunings)
}

/// Where hashes go.
fn destination(args: &Args) -> To<'_> {
    match &args.output {
        Some(path) => To::File(path),
        None if args.pass_through.is_some() => To::Stderr,
        None => To::Stdout,
    }
}

/// Takes a lock, whatever happened to who held it before.
pub(crate) fn lock<X>(mutex: &Mutex<X>) -> MutexGuard<'_, X> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates the file of a trace, or writes over an old one; over nothing else, since a file to hash is
/// quickly named in its place.
fn create_trace(path: &Path) -> io::Result<File> {
    if path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0) {
        let mut start = Vec::new();
        File::open(path)?.take(Trace::START.len() as u64).read_to_end(&mut start)?;
        if start != Trace::START {
            let why = "there is such a file, and it is no trace; name another one";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
    }
    File::create(path)
}

fn no_trace(path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow::anyhow!("{}: the trace: {error}", path.display())
}
