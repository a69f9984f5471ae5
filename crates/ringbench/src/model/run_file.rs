//! The file of a run: every raw sample, and the environment in which it was taken. Rewritten as samples
//! come, so that nothing is lost.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::case::{Group, Missing};
use super::environment::Environment;
use super::output_file::OutputFile;
use super::prediction::Prediction;

const FORMAT: &str = "ringbench-run";

/// The version of the format. Files of another version are refused.
const VERSION: u32 = 1;

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
    pub(crate) state: RunState,
    pub(crate) environment: Environment,
    /// Results as numbers, by name; the unit stands last.
    #[serde(default)]
    pub(crate) results: BTreeMap<String, f64>,
    /// What a model predicts from other measurements, beside what was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) predictions: Vec<Prediction>,
    /// Results in words.
    #[serde(default)]
    pub(crate) conclusions: Vec<String>,
    /// Caveats, in words.
    #[serde(default)]
    pub(crate) advice: Vec<String>,
    pub(crate) groups: Vec<Group>,
}

/// How far a run got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunState {
    Running,
    Finished,
    /// The time limit was reached.
    CutShort,
    /// By Ctrl-C.
    Interrupted,
}

/// The fields that a run file of any version has.
#[derive(Deserialize)]
struct Header {
    format: String,
    version: u32,
}

impl Run {
    pub(crate) fn new(workload: &str, command: Vec<String>, environment: Environment) -> Run {
        let now = jiff::Timestamp::now();
        Run {
            format: FORMAT.to_owned(),
            version: VERSION,
            workload: workload.to_owned(),
            command,
            started: now.round(jiff::Unit::Second).unwrap_or(now).to_string(),
            state: RunState::Running,
            environment,
            results: BTreeMap::new(),
            predictions: Vec::new(),
            conclusions: Vec::new(),
            advice: Vec::new(),
            groups: Vec::new(),
        }
    }

    pub(crate) fn read(path: &Path) -> anyhow::Result<Run> {
        let run = fs::read(path).map_err(Into::into).and_then(|text| Run::parse(&text));
        run.with_context(|| path.display().to_string())
    }

    pub(crate) fn parse(text: &[u8]) -> anyhow::Result<Run> {
        const NO_RUN_FILE: &str = "not a run file of ringbench";
        let header: Header = serde_json::from_slice(text).context(NO_RUN_FILE)?;
        if header.format != FORMAT {
            bail!(NO_RUN_FILE);
        }
        if header.version != VERSION {
            bail!(
                "it has version {} of the format, and this ringbench reads version {VERSION}: use the \
                 ringbench that wrote it, or measure again",
                header.version,
            );
        }
        serde_json::from_slice(text).context(NO_RUN_FILE)
    }

    /// Replaces the content of `file` by this run.
    pub(crate) fn save(&self, file: &OutputFile) -> anyhow::Result<()> {
        let written = file.replace(|file| {
            serde_json::to_writer_pretty(&mut *file, self)?;
            file.write_all(b"\n")
        });
        written.context("the file holds the samples of the last successful write")
    }

    /// Whether a case failed that should have run.
    pub(crate) fn has_failures(&self) -> bool {
        let mut cases = self.groups.iter().flat_map(|group| &group.cases);
        cases.any(|case| matches!(case.missing, Some(Missing::Failed(_))))
    }
}
