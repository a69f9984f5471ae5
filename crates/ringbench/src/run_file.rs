//! The file of a run: everything that was measured, raw, with what it was measured on. Written anew after
//! every sample, so that nothing is lost.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::case::{Group, Missing};
use crate::environment::Environment;
use crate::output_file::OutputFile;

const FORMAT: &str = "ringbench-run";

/// Of the format. A file of another one is refused.
pub(crate) const VERSION: u32 = 1;

/// One run of one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    format: String,
    version: u32,
    pub(crate) workload: String,
    /// The whole command line.
    pub(crate) command: Vec<String>,
    /// RFC 3339, UTC.
    pub(crate) started: String,
    pub(crate) state: State,
    pub(crate) environment: Environment,
    /// What it comes to, in numbers, by name and unit.
    #[serde(default)]
    pub(crate) results: BTreeMap<String, f64>,
    /// What it comes to, in words.
    #[serde(default)]
    pub(crate) conclusions: Vec<String>,
    /// What is to be known before the numbers are believed, in words.
    #[serde(default)]
    pub(crate) advice: Vec<String>,
    pub(crate) groups: Vec<Group>,
}

/// How far a run came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Running,
    Finished,
    /// The limit on time was reached.
    CutShort,
    /// By Ctrl-C.
    Interrupted,
}

/// What every version of a run file has.
#[derive(Deserialize)]
struct Header {
    format: String,
    version: u32,
}

impl Run {
    pub(crate) fn new(workload: &str, command: Vec<String>, environment: Environment) -> Run {
        Run {
            format: FORMAT.to_owned(),
            version: VERSION,
            workload: workload.to_owned(),
            command,
            started: jiff::Timestamp::now()
                .round(jiff::Unit::Second)
                .map_or_else(|_| jiff::Timestamp::now().to_string(), |now| now.to_string()),
            state: State::Running,
            environment,
            results: BTreeMap::new(),
            conclusions: Vec::new(),
            advice: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// # Errors
    ///
    /// It cannot be read, is no run file, or one of another version.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Run> {
        let text = fs::read(path).with_context(|| format!("{}", path.display()))?;
        Run::parse(&text).with_context(|| format!("{}", path.display()))
    }

    /// # Errors
    ///
    /// It is no run file, or one of another version.
    pub(crate) fn parse(text: &[u8]) -> anyhow::Result<Run> {
        let not_one = "it is not a run file of ringbench";
        let header: Header = serde_json::from_slice(text).context(not_one)?;
        if header.format != FORMAT {
            bail!("{not_one}");
        }
        if header.version != VERSION {
            bail!(
                "it is of version {} of the format, and this ringbench reads version {VERSION}: use the \
                 ringbench that wrote it, or measure again",
                header.version,
            );
        }
        serde_json::from_slice(text).context(not_one)
    }

    /// Whether something that should have run failed.
    pub(crate) fn has_failures(&self) -> bool {
        let mut cases = self.groups.iter().flat_map(|group| &group.cases);
        cases.any(|case| matches!(case.missing, Some(Missing::Failed(_))))
    }
}

/// Where a run is written.
#[derive(Debug)]
pub(crate) struct RunFile {
    file: OutputFile,
}

impl RunFile {
    /// Makes the file, so that whether it can be written is known before hours of measuring.
    ///
    /// # Errors
    ///
    /// It exists, and `overwrite` is not set; or it cannot be made.
    pub(crate) fn create(path: &Path, overwrite: bool) -> anyhow::Result<RunFile> {
        Ok(RunFile { file: OutputFile::create(path, overwrite)? })
    }

    /// Puts the run in the place of what the file held: all of it, or nothing.
    ///
    /// # Errors
    ///
    /// It cannot be written: then what it held is still there.
    pub(crate) fn save(&self, run: &Run) -> anyhow::Result<()> {
        let written = self.file.replace(|file| {
            serde_json::to_writer_pretty(&mut *file, run)?;
            file.write_all(b"\n")
        });
        written.context("it holds what was measured until the last time it could be written")
    }

    /// Takes away a file that nothing was written to.
    pub(crate) fn discard_if_empty(&self) {
        self.file.discard_if_empty();
    }
}
