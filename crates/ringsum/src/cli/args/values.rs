//! The values of options: sizes, rates, priorities and names.

use std::num::NonZero;

use blockring::{Consume, HugePages, IoPriority, TeeMode};
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ringsum::Algorithm;

/// The format of statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatsFormat {
    /// Human-readable
    Text,
    /// One JSON object per line (docs/stats-format.md)
    Json,
}

/// [`Consume`] as the value of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub(crate) enum ConsumeArg {
    /// After each block
    #[default]
    Each,
    /// After all blocks that have arrived
    Batch,
}

impl From<ConsumeArg> for Consume {
    fn from(arg: ConsumeArg) -> Consume {
        match arg {
            ConsumeArg::Each => Consume::Each,
            ConsumeArg::Batch => Consume::Batch,
        }
    }
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

/// [`HugePages`] as the value of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub(crate) enum HugePagesArg {
    /// Normal pages
    Off,
    /// Transparent huge pages, if available
    #[default]
    Advise,
    /// Reserved huge pages, or fail
    Hugetlb,
}

impl From<HugePagesArg> for HugePages {
    fn from(arg: HugePagesArg) -> HugePages {
        match arg {
            HugePagesArg::Off => HugePages::Off,
            HugePagesArg::Advise => HugePages::Advise,
            HugePagesArg::Hugetlb => HugePages::Hugetlb,
        }
    }
}

/// [`Algorithm`] as the value of an option, or the request for a list of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AlgorithmArg {
    Is(Algorithm),
    List,
}

/// Returns a parser of algorithm names.
pub(crate) fn parse_algorithm() -> impl TypedValueParser<Value = AlgorithmArg> {
    let names = Algorithm::ALL.map(Algorithm::name).into_iter().chain(["list"]);
    PossibleValuesParser::new(names)
        .map(|name| Algorithm::from_name(&name).map_or(AlgorithmArg::List, AlgorithmArg::Is))
}

/// When to show progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub(crate) enum When {
    /// After one second
    #[default]
    Auto,
    /// From the start
    Always,
    /// Never
    Never,
}

/// Returns a parser for the names of `values`, which help and completions list.
pub(crate) fn one_of<T: Copy + Send + Sync + 'static>(
    values: impl IntoIterator<Item = T>,
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let values: Vec<T> = values.into_iter().collect();
    PossibleValuesParser::new(values.iter().copied().map(name)).try_map(move |text| {
        values.iter().copied().find(|&value| name(value) == text).ok_or("not one of the values")
    })
}

pub(crate) fn parse_block_bytes(text: &str) -> Result<u32, String> {
    let range = "a block is from 512 bytes to 64MiB";
    let bytes = parse_size(text).ok_or_else(|| format!("not a size such as 512KiB; {range}"))?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| (512..=64 << 20).contains(bytes))
        .ok_or_else(|| range.to_owned())
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

/// Parses a number of bytes with a unit, as in GNU tools: K, M, G, T and KiB, ... are powers of
/// 1024; KB, ... of 1000. Saturates.
fn parse_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit = unit.trim_start().to_ascii_lowercase();
    let (power, base) = match unit.as_str() {
        "" | "b" => (0, 1024),
        "k" | "kib" => (1, 1024),
        "m" | "mib" => (2, 1024),
        "g" | "gib" => (3, 1024),
        "t" | "tib" => (4, 1024),
        "kb" => (1, 1000_u64),
        "mb" => (2, 1000),
        "gb" => (3, 1000),
        "tb" => (4, 1000),
        _ => return None,
    };
    Some(number.saturating_mul(base.pow(power)))
}

/// Parses a rate in bytes per second, at least 1.
pub(crate) fn parse_rate(text: &str) -> Result<NonZero<u64>, String> {
    let rate = text.strip_suffix("/s").unwrap_or(text);
    let bytes = parse_size(rate).and_then(NonZero::new);
    bytes.ok_or_else(|| "not a number of bytes per second such as 50MiB".to_owned())
}

/// Parses `idle`, or `best-effort:N`.
pub(crate) fn parse_io_priority(text: &str) -> Result<IoPriority, String> {
    let level = match text.split_once(':') {
        None if text == "idle" => return Ok(IoPriority::Idle),
        Some(("best-effort", level)) => level.parse().ok().filter(|level| *level <= 7),
        _ => None,
    };
    let level = level.ok_or_else(|| "use idle, or best-effort:N with N from 0 to 7".to_owned());
    level.map(IoPriority::BestEffort)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let cases = [
            ("512", Some(512)),
            ("512KiB", Some(512 << 10)),
            ("512k", Some(512 << 10)),
            ("1M", Some(1 << 20)),
            ("1MB", Some(1_000_000)),
            ("2 MiB", Some(2 << 20)),
            ("64TiB", Some(64 << 40)),
            ("99999999999T", Some(u64::MAX)),
            ("", None),
            ("M", None),
            ("-1", None),
            ("1.5M", None),
            ("1X", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), bytes, "{text:?}");
        }
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
    fn rates_and_priorities() {
        assert_eq!(parse_rate("10M/s").map(NonZero::get), Ok(10 << 20));
        assert!(parse_rate("0").is_err() && parse_rate("fast").is_err());
        assert_eq!(parse_io_priority("idle"), Ok(IoPriority::Idle));
        assert_eq!(parse_io_priority("best-effort:0"), Ok(IoPriority::BestEffort(0)));
        for text in ["", "best-effort", "best-effort:", "best-effort:8", "idle:1", "realtime:0"] {
            assert!(parse_io_priority(text).is_err(), "{text}");
        }
    }
}
