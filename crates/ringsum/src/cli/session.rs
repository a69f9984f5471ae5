//! One invocation: the state shared by all commands, and hashing one input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use blockring::{BadRange, Plan, RunOptions, Source, SourceKind, Trace};
use ringsum::files::{Failure, Hashed, supports_sharing};
use ringsum::{Algorithm, Algorithms, BadRanges, Digests, Mode, Options, Resume};

use super::args::Args;
use super::lock;
use super::memory::Shares;
use super::open::{self, InputError, Inputs, conflicts};
use super::output::progress::ProgressBar;
use super::output::statistics::Totals;
use super::output::{Messages, Output, To};
use super::settings::Settings;

/// Delay before a file that changed is read again. An editor, or a program that replaces a file,
/// finishes within milliseconds; for a program that writes for longer, the delay doubles each time,
/// up to the time that users wait for a prompt.
const RETRY_AFTER: Duration = Duration::from_millis(250);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(8);

/// Start of every trace, and of hardly any other file.
const TRACE_START: &[u8] = b"[\n{\"pid\":";

/// One invocation.
pub(crate) struct Session<'a> {
    pub(crate) args: &'a Args,
    pub(crate) messages: &'a Messages,
    pub(crate) output: Output,
    inputs: Mutex<Inputs>,
    pub(crate) progress: ProgressBar,
    settings: Settings,
    trace: Option<Trace>,
    pub(crate) totals: Totals,
}

/// Why an input has no digest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DigestError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Hash(#[from] ringsum::Error),
    #[error("{0}")]
    Unreadable(BadRanges),
    #[error("--list-bad-ranges needs a seekable file, but this is {0}")]
    NotSeekable(SourceKind),
    #[error("--list-bad-ranges reads files of /proc and /sys from their start only")]
    PseudoFromTheMiddle,
}

impl From<DigestError> for Failure {
    fn from(error: DigestError) -> Failure {
        match error {
            DigestError::Hash(error) => error.into(),
            DigestError::Input(InputError::Blockring(error)) => Failure::Read(error.kind),
            DigestError::Input(InputError::Open(failure)) => failure,
            DigestError::Unreadable(ranges) => Failure::Unreadable(ranges),
            error => Failure::Other(error.to_string()),
        }
    }
}

impl<'a> Session<'a> {
    /// # Errors
    ///
    /// If standard output is closed, the key cannot be read, or the trace cannot be written.
    pub(crate) fn new(
        args: &'a Args,
        mut settings: Settings,
        messages: &'a Messages,
    ) -> anyhow::Result<Session<'a>> {
        conflicts::check(args)?;
        let mut inputs = Inputs::new();
        settings.options.mode = match &args.derive_key {
            Some(context) => Mode::derive_key(context),
            None if args.keyed => Mode::Keyed(inputs.key()?),
            None => Mode::Hash,
        };
        let create = |path| create_trace(path).map_err(|error| trace_failed(path, &error));
        let trace = args.trace.as_deref().map(create).transpose()?;
        // Last, because it truncates a file.
        let output = Output::new(destination(args))?;
        Ok(Session {
            args,
            messages,
            output,
            inputs: Mutex::new(inputs),
            progress: ProgressBar::new(args.progress),
            settings,
            trace,
            totals: Totals::new(args.stats),
        })
    }

    /// Removes the progress bar, prints the total statistics, and completes the trace.
    pub(crate) fn finish(&self) -> anyhow::Result<()> {
        self.progress.finish();
        self.totals.print(self.messages);
        if let (Some(trace), Some(path)) = (&self.trace, &self.args.trace) {
            trace.finish().map_err(|error| trace_failed(path, &error))?;
        }
        Ok(())
    }

    /// Returns the options for many files.
    pub(crate) fn options(&self) -> &Options {
        &self.settings.options
    }

    /// Returns the options for one input.
    pub(crate) fn options_for(&self, source: &Source, algorithms: &Algorithms) -> Options {
        let mode = self.settings.options.mode.clone();
        let config = self.settings.config_for(source).clone();
        Options { mode, algorithms: *algorithms, config }
    }

    /// Returns the options for plans of single inputs.
    pub(crate) fn run_options(&self) -> RunOptions<'_> {
        let (tuning, trace) = (self.settings.tuning.as_deref(), self.trace.as_ref());
        let skip_holes = !self.args.list_bad_ranges;
        RunOptions { tuning, trace, skip_holes, ..RunOptions::default() }
    }

    pub(crate) fn algorithms(&self) -> &Algorithms {
        &self.settings.options.algorithms
    }

    pub(crate) fn shares(&self) -> Shares {
        self.settings.shares
    }

    /// Whether files can share readers.
    pub(crate) fn supports_sharing(&self) -> bool {
        let is_plain = self.trace.is_none() && !self.args.list_bad_ranges;
        is_plain && supports_sharing(&self.settings.options.config)
    }

    /// Hashes one input.
    pub(crate) fn hash(&self, path: &Path, algorithms: &Algorithms) -> Result<Hashed, DigestError> {
        let source = lock(&self.inputs).open(path)?;
        let hashed = self.hash_source(&source, path, algorithms, None)?;
        lock(&self.inputs).finish(&source, path);
        Ok(hashed)
    }

    /// Hashes one input. If it changes while it is read, retries as `--retry-changed` allows.
    pub(crate) fn hash_with_retries(&self, path: &Path) -> Result<Hashed, Failure> {
        let mut retries = 0;
        loop {
            let failure = match self.hash(path, self.algorithms()) {
                Ok(hashed) => return Ok(hashed),
                Err(error) => Failure::from(error),
            };
            match failure.change().and_then(|_| self.retry_after(path, retries)) {
                Some(after) => thread::sleep(after),
                None => return Err(failure),
            }
            retries += 1;
        }
    }

    /// The delay before a changed file is read again; `None` if it is not, as for standard input.
    pub(crate) fn retry_after(&self, path: &Path, retries: u32) -> Option<Duration> {
        let is_retried = retries < self.args.retry_changed && !open::is_stdin(path);
        is_retried.then(|| (RETRY_AFTER * (1 << retries.min(30))).min(RETRY_AFTER_MAX))
    }

    /// Hashes an open input; `path` is its name, `resume` what is known of it.
    pub(crate) fn hash_source(
        &self,
        source: &Source,
        path: &Path,
        algorithms: &Algorithms,
        resume: Option<&Resume<'_>>,
    ) -> Result<Hashed, DigestError> {
        let options = self.options_for(source, algorithms);
        let skip = resume.map(Resume::ranges).unwrap_or_default();
        let run = RunOptions { skip: &skip, ..self.run_options() };
        let mut plan = ringsum::plan(source, &options, &run)?;
        let applies = resume.is_some_and(|resume| resume.applies(&plan, source, &options));
        if !skip.is_empty() && !applies {
            plan = ringsum::plan(source, &options, &self.run_options())?;
        }
        if self.args.list_bad_ranges {
            return self.list_bad_ranges(&plan, source, path, &options);
        }
        let progress = |bytes| self.progress.add(bytes);
        let hash = || ringsum::digest_planned(&plan, source, &options, resume, &progress);
        let note = resume.map(|resume| explain_resume(resume, &plan, source, &options));
        Ok(Hashed::new(self.carry_out(&plan, path, note.as_deref(), hash)?, source))
    }

    /// Hashes a source, or lists its unreadable ranges: one line for each as it is found, or with
    /// `--json` in the object. A file that has any gets no digest.
    fn list_bad_ranges(
        &self,
        plan: &Plan,
        source: &Source,
        path: &Path,
        options: &Options,
    ) -> Result<Hashed, DigestError> {
        let progress = |bytes| self.progress.add(bytes);
        if source.len().is_none() || source.is_pseudo() {
            return match source.kind() {
                // A pseudo file has no storage device that could fail.
                SourceKind::File if source.start() == 0 => {
                    let digests = ringsum::digest_planned(plan, source, options, None, &progress)?;
                    Ok(Hashed::new(digests, source))
                }
                SourceKind::File => Err(DigestError::PseudoFromTheMiddle),
                kind => Err(DigestError::NotSeekable(kind)),
            };
        }
        let digests = ringsum::digest_scan(plan, source, options, &progress, |range| {
            if !self.args.json {
                self.say_of(path.as_os_str().as_encoded_bytes(), &bad_range(range));
            }
        })?;
        let digests = digests.map_err(DigestError::Unreadable)?;
        Ok(Hashed::new(digests, source))
    }

    /// Opens an input to be read as a stream; `-` is standard input.
    pub(crate) fn open_stream(&self, path: &Path) -> Result<Source, InputError> {
        lock(&self.inputs).open_stream(path)
    }

    /// Prints the plan and a note on it if requested, runs `hash`, and prints statistics.
    pub(crate) fn carry_out(
        &self,
        plan: &Plan,
        path: &Path,
        note: Option<&str>,
        hash: impl FnOnce() -> Result<Digests, ringsum::Error>,
    ) -> Result<Digests, ringsum::Error> {
        if self.args.explain {
            let name = path.as_os_str().as_encoded_bytes();
            let note = note.map(|note| format!("\n  {note}")).unwrap_or_default();
            let text = format!("plan\n{plan}{note}");
            self.progress.suspend(|| self.messages.say_lines(Some(name), &text));
        }
        let digests = hash();
        if self.args.stats.is_some() {
            self.progress.suspend(|| self.totals.add_input(self.messages, path, plan));
        }
        digests
    }

    /// Prints the plan for the files of a device if requested.
    pub(crate) fn explain_device(&self, plan: &Plan) {
        if !self.args.explain {
            return;
        }
        let text = format!("plan for the files of a device\n{plan}");
        self.progress.suspend(|| self.messages.say_lines(None, &text));
    }

    /// Opens a list of names or a checksum file; `-` is standard input.
    pub(crate) fn open_list(&self, path: &Path) -> Result<File, InputError> {
        lock(&self.inputs).open_list(path)
    }

    /// Prints a message about an input, after the lines that precede it.
    pub(crate) fn say_of(&self, name: &[u8], text: &dyn std::fmt::Display) {
        self.output.flush_before_message();
        self.progress.suspend(|| self.messages.say_of(name, text));
    }

    /// Prints a message about the run, after the lines that precede it.
    pub(crate) fn say(&self, text: &dyn std::fmt::Display) {
        self.output.flush_before_message();
        self.progress.suspend(|| self.messages.say(text));
    }
}

/// Returns where checksums are written.
fn destination(args: &Args) -> To<'_> {
    match &args.output {
        Some(path) => To::File(path),
        None if args.pass_through.is_some() => To::Stderr,
        None => To::Stdout,
    }
}

/// Returns a line of `--explain`: where hashing goes on, or why it cannot.
fn explain_resume(resume: &Resume<'_>, plan: &Plan, source: &Source, options: &Options) -> String {
    let len = source.len().unwrap_or(0);
    let (bytes, known) = (resume.subtree_bytes, resume.known.len() as u64);
    let mut ranges = resume.ranges().into_iter();
    let next = ranges.next().filter(|range| range.start == 0).map_or(0, |range| range.end);
    let (value, why) = match () {
        () if *options.algorithms != [Algorithm::Blake3] => {
            ("no".to_owned(), "only BLAKE3 can go on where a run was interrupted".to_owned())
        }
        () if !resume.applies(plan, source, options) => {
            ("no".to_owned(), "blocks are hashed in order, or are too long".to_owned())
        }
        () if known == 0 => {
            let why = "the index has nothing of an interrupted run".to_owned();
            ("from the start".to_owned(), why)
        }
        () => (
            format!("{known} of {}", len / bytes),
            format!("parts of {bytes} bytes are known; goes on at byte {next}"),
        ),
    };
    format!("{:11} {value:16} {why}", "resume")
}

fn bad_range(range: &BadRange) -> String {
    let BadRange { offset, len, error } = range;
    format!("unreadable: bytes {offset} to {} ({len}): {error}", offset + len - 1)
}

/// Creates a trace file, or overwrites an old trace, but no other file, because it is easy to name
/// a file to hash by mistake.
fn create_trace(path: &Path) -> io::Result<Trace> {
    if path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0) {
        let mut start = Vec::new();
        File::open(path)?.take(TRACE_START.len() as u64).read_to_end(&mut start)?;
        if start != TRACE_START {
            let why = "it exists and is not a trace; choose another name for --trace";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
    }
    Ok(Trace::new(File::create(path)?))
}

fn trace_failed(path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow::anyhow!("cannot write the trace {}: {error}", path.display())
}
