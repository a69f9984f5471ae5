//! What hashing and checking share: from a path to its digest, with plan and progress shown.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Instant;

use blockring::{Config, Stats, Trace};
use ringsum::{Digest, Mode};

use crate::args::{Args, StatsFormat};
use crate::inputs::{InputError, Inputs};
use crate::output::{Messages, Output};
use crate::progress::Progress;
use crate::statistics::{Of, Report};

/// One invocation.
pub(crate) struct Session<'a> {
    pub(crate) args: &'a Args,
    pub(crate) messages: &'a Messages,
    pub(crate) output: Output,
    pub(crate) inputs: Inputs,
    pub(crate) progress: Progress,
    mode: Mode,
    config: Config,
    /// Present where statistics are wanted: a start without them does not touch what they are made of.
    totals: Option<Totals>,
}

/// What all inputs took.
struct Totals {
    format: StatsFormat,
    start: Instant,
    inputs: u64,
    stats: Stats,
}

/// Why there is no digest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DigestError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Hash(#[from] ringsum::Error),
}

impl DigestError {
    fn blockring(&self) -> Option<&blockring::Error> {
        match self {
            DigestError::Input(InputError::Blockring(error))
            | DigestError::Hash(ringsum::Error::Read(error)) => Some(error),
            _ => None,
        }
    }

    /// What happened, without the path: whoever prints it has that.
    pub(crate) fn reason(&self) -> String {
        match self.blockring() {
            Some(error) => error.kind().to_string(),
            None => self.to_string(),
        }
    }

    /// Whether there is no such file.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(
            self.blockring().map(blockring::Error::kind),
            Some(blockring::ErrorKind::Open(error)) if error.kind() == io::ErrorKind::NotFound
        )
    }
}

impl<'a> Session<'a> {
    /// # Errors
    ///
    /// Standard output is closed, or the key cannot be had, or a trace not be written.
    pub(crate) fn new(args: &'a Args, messages: &'a Messages) -> anyhow::Result<Session<'a>> {
        let output = Output::new()?;
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
        Ok(Session {
            args,
            messages,
            output,
            inputs,
            progress: Progress::new(args.progress),
            mode,
            config: args.config(trace),
            totals: args.stats.map(|format| {
                let (start, stats) = (Instant::now(), Stats::default());
                Totals { format, start, inputs: 0, stats }
            }),
        })
    }

    /// Everything is done: the bar goes, the totals are said, the trace is written to its end.
    pub(crate) fn finish(&self) -> anyhow::Result<()> {
        self.progress.finish();
        // Of one input, people have seen them.
        let is_news = |t: &&Totals| t.format == StatsFormat::Json || t.inputs != 1;
        if let Some(Totals { format, start, inputs, stats }) = self.totals.as_ref().filter(is_news)
        {
            let report = Report { stats, of: Of::All(*inputs, start.elapsed()) };
            self.messages.report(None, *format, &report.format(*format));
        }
        if let (Some(trace), Some(path)) = (&self.config.trace, &self.args.trace) {
            trace.finish().map_err(|error| no_trace(path, &error))?;
        }
        Ok(())
    }

    /// Hashes one input.
    pub(crate) fn digest(&mut self, path: &Path) -> Result<Digest, DigestError> {
        let source = self.inputs.open(path)?;
        let plan = ringsum::plan(&source, &self.config)?;
        if self.args.explain {
            let name = path.as_os_str().as_encoded_bytes();
            let text = format!("plan\n{plan}");
            self.progress.suspend(|| self.messages.say_of(name, &text));
        }
        let observe = |bytes| self.progress.add(bytes);
        let digest = ringsum::hash_planned(&plan, &self.mode, &observe);
        if let (Some(totals), Some(stats)) = (&mut self.totals, plan.stats()) {
            totals.inputs += 1;
            totals.stats.add(&stats);
            let report = Report { stats: &stats, of: Of::Input(path, plan.choices()) };
            let text = report.format(totals.format);
            let name = path.as_os_str().as_encoded_bytes();
            self.progress.suspend(|| self.messages.report(Some(name), totals.format, &text));
        }
        let digest = digest?;
        self.inputs.finish(&source, path);
        Ok(digest)
    }
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
