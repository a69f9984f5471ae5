//! The values of options: sizes, rates and names.

use std::ffi::OsStr;
use std::num::NonZero;

use blockring::{TeeMode, parse_size};
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command, Error, ValueEnum};
use ringsum::Algorithm;

/// The format of statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatsFormat {
    /// Human-readable
    Text,
    /// One JSON object per line (docs/formats.md)
    Json,
}

/// [`TeeMode`] as the value of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TeeModeArg {
    /// Write the bytes that were hashed
    Copy,
    /// Share pages between the pipes
    Share,
}

impl From<TeeModeArg> for TeeMode {
    fn from(arg: TeeModeArg) -> TeeMode {
        match arg {
            TeeModeArg::Copy => TeeMode::Copy,
            TeeModeArg::Share => TeeMode::Share,
        }
    }
}

/// One or more algorithms: names separated by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AlgorithmList(pub(crate) Vec<Algorithm>);

/// Parses algorithm names, which completions list.
#[derive(Clone)]
pub(crate) struct AlgorithmParser;

impl TypedValueParser for AlgorithmParser {
    type Value = AlgorithmList;

    fn parse_ref(
        &self,
        command: &Command,
        _: Option<&Arg>,
        value: &OsStr,
    ) -> Result<AlgorithmList, Error> {
        let text = value.to_string_lossy();
        let parse = |name: &str| {
            Algorithm::from_name(name).ok_or_else(|| {
                let hint = did_you_mean(name, Algorithm::ALL.map(Algorithm::name));
                let what = format!("there is no algorithm {name:?}{hint}; see --list-algorithms");
                command.clone().error(ErrorKind::ValueValidation, what)
            })
        };
        text.split(',').map(parse).collect::<Result<_, _>>().map(AlgorithmList)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Algorithm::ALL.into_iter().map(|algorithm| algorithm.name().into())))
    }
}

/// When to show progress, or to use color.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub(crate) enum When {
    /// On a terminal (progress: after one second)
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Least memory limit of the command, in bytes: half of it for the process itself. (With it,
/// 100,000 files took 5.9 to 7.4 MiB, on one thread for small files: that is the floor.)
pub(crate) const MEMORY_BYTES_MIN: u64 = 8 << 20;

pub(crate) fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).ok_or_else(|| "not a size such as 64MiB".to_owned())?;
    let is_enough = bytes >= MEMORY_BYTES_MIN;
    is_enough.then_some(bytes).ok_or_else(|| "the minimum is 8MiB".to_owned())
}

/// A valid glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(pub(crate) String);

/// Longest glob, in bytes: as long as a path can be. A compiled glob takes a few hundred times its
/// length, and the compiler recurses into nested braces (50,000 of them overflowed the stack).
pub(crate) const GLOB_BYTES_MAX: usize = 4096;

pub(crate) fn parse_glob(text: &str) -> Result<Pattern, String> {
    if text.is_empty() {
        return Err("an empty glob matches nothing".to_owned());
    }
    if text.len() > GLOB_BYTES_MAX {
        return Err("a glob has at most 4096 bytes".to_owned());
    }
    globset::Glob::new(text).map_err(|error| error.kind().to_string())?;
    Ok(Pattern(text.to_owned()))
}

/// Parses a number of threads for small files.
pub(crate) fn parse_jobs(text: &str) -> Result<u32, String> {
    let threads = text.parse().ok().filter(|threads| (1..=1024).contains(threads));
    threads
        .ok_or_else(|| "use 1 to 1024 threads, or leave --jobs out to use the default".to_owned())
}

/// Parses a rate in bytes per second, at least 1.
pub(crate) fn parse_rate(text: &str) -> Result<NonZero<u64>, String> {
    let rate = text.strip_suffix("/s").unwrap_or(text);
    let bytes = parse_size(rate).and_then(NonZero::new);
    bytes.ok_or_else(|| "not a number of bytes per second such as 50MiB".to_owned())
}

/// Returns `; did you mean X?` if a name is similar.
pub(super) fn did_you_mean<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    // (The least similarity that clap takes for the same purpose.)
    let similar = |name: &'n str| (strsim::jaro_winkler(word, name), name);
    let best = names.into_iter().map(similar).filter(|(similarity, _)| *similarity > 0.7);
    let best = best.max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.map_or(String::new(), |(_, name)| format!("; did you mean {name}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_suggested() {
        assert_eq!(did_you_mean("iouring", ["pread", "io_uring"]), "; did you mean io_uring?");
        assert_eq!(did_you_mean("x", ["pread"]), "");
    }

    #[test]
    fn memory() {
        assert_eq!(parse_memory("8M"), Ok(8 << 20));
        assert_eq!(parse_memory("1G"), Ok(1 << 30));
        for text in ["8191K", "0", "little", "-1"] {
            assert!(parse_memory(text).is_err(), "{text}");
        }
    }

    #[test]
    fn jobs() {
        assert_eq!(parse_jobs("1").and(parse_jobs("1024")), Ok(1024));
        for text in ["0", "1025", "-1", "", "two"] {
            assert!(parse_jobs(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates() {
        assert_eq!(parse_rate("10M/s").map(NonZero::get), Ok(10 << 20));
        assert!(parse_rate("0").is_err() && parse_rate("fast").is_err());
    }
}
