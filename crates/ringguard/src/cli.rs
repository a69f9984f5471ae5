//! The command line as plain values.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use blockring::{EngineKind, IoPriority, RateLimit, parse_size};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::data::Reading;
use crate::generate::Generate;
use crate::geometry::MILLION;
use crate::scrub::ScrubArgs;

/// Find and repair damaged bytes in files
///
/// A sidecar (FILE.guard) stores BLAKE3 digests, their tree nodes and parity. It is created in a single read of the files, nearly as fast as they can be hashed.
#[derive(Parser, Debug)]
#[command(
    name = "ringguard",
    version,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    after_help = "Exit status: 0 if everything is intact or was repaired, 1 if something is damaged but can be repaired, 2 for a usage error, 3 if something is damaged beyond repair, 4 if a file could not be read or written."
)]
pub(crate) struct Cli {
    /// Print the man page or a shell completion script
    #[arg(long, value_name = "WHAT", required = true)]
    pub(crate) generate: Option<Generate>,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Create a sidecar and print the digests
    Create(CreateArgs),
    /// Check files against their sidecar and list damaged ranges
    Verify(VerifyArgs),
    /// Repair damaged and missing files
    Repair(RepairArgs),
    /// Show what a sidecar protects
    Info(InfoArgs),
}

#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// Files to protect; with -r, also directories
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Sidecar to write [default: FILE.guard]
    #[arg(short, long, value_name = "NAME.guard")]
    pub(crate) output: Option<PathBuf>,
    /// Protect all regular files in directories and their subdirectories
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Amount of parity as a percentage of the data, 0 to 100%; 0 stores only digests and tree nodes
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = parse_percent)]
    pub(crate) redundancy: u32,
    /// How precisely damage is located, in bytes: 1K to 1M
    #[arg(long, value_name = "SIZE", default_value = "16K", value_parser = parse_group)]
    pub(crate) group_size: u32,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// Sidecars, or files that have one; with -r, also directories
    #[arg(value_name = "NAME.guard|FILE", required = true)]
    pub(crate) names: Vec<PathBuf>,
    /// Also compare the digests with those in a checksum file
    #[arg(long, value_name = "LIST")]
    pub(crate) check: Option<PathBuf>,
    /// Verify the parity even if no file is damaged
    #[arg(long)]
    pub(crate) parity: bool,
    /// Read from the device, never from the page cache
    #[arg(long)]
    pub(crate) bypass_cache: bool,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Args, Debug)]
pub(crate) struct RepairArgs {
    /// Sidecars, or files that have one
    #[arg(value_name = "NAME.guard|FILE", required = true)]
    pub(crate) names: Vec<PathBuf>,
    /// Overwrite only the damaged parts of each file, after saving them in NAME.guard.undo
    #[arg(long)]
    pub(crate) in_place: bool,
    /// Restore what an interrupted repair with --in-place overwrote
    #[arg(long, conflicts_with = "in_place")]
    pub(crate) undo: bool,
    /// Do not keep the damaged file as NAME.damaged
    #[arg(long, conflicts_with_all = ["in_place", "undo"])]
    pub(crate) discard: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    /// Sidecars, or files that have one
    #[arg(value_name = "NAME.guard|FILE", required = true)]
    pub(crate) names: Vec<PathBuf>,
    /// Print one JSON object per sidecar
    #[arg(long)]
    pub(crate) json: bool,
}

/// The options of every command that reads files.
#[derive(Args, Debug, Clone)]
pub(crate) struct CommonArgs {
    /// Directory that file names are relative to [default: the sidecar's directory]
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) io: IoArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

impl CommonArgs {
    /// Returns the directory that the names in a sidecar are relative to.
    pub(crate) fn base_of(&self, sidecar: &Path) -> PathBuf {
        match &self.directory {
            Some(directory) => directory.clone(),
            None => sidecar.parent().map(Path::to_owned).unwrap_or_default(),
        }
    }
}

/// When to show progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// If standard error is a terminal
    Auto,
    /// Even if standard error is not a terminal
    Always,
    /// Never
    Never,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct ReportArgs {
    /// Print one JSON object per file (fields: docs/ringguard.md)
    #[arg(long)]
    pub(crate) json: bool,
    /// Print nothing about intact files
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// When to show progress
    #[arg(long, value_name = "WHEN", default_value = "auto", default_missing_value = "always", num_args = 0..=1, require_equals = true)]
    pub(crate) progress: When,
    /// Explain how files are read and how much damage can be repaired
    #[arg(long)]
    pub(crate) explain: bool,
}

#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "I/O options (detected automatically by default)")]
pub(crate) struct IoArgs {
    /// Comma-separated settings; keys: engine, page-cache, block-size, queue-depth, workers
    #[arg(long = "io", value_name = "KEY=VALUE", value_delimiter = ',')]
    pub(crate) settings: Vec<String>,
    /// Maximum memory, such as 64MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub(crate) memory: Option<u64>,
    /// Maximum number of bytes to read per second, such as 100MB
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) limit_rate: Option<NonZero<u64>>,
    /// I/O priority: idle, or best-effort:N with N from 0 (highest) to 7 (lowest)
    #[arg(long, value_name = "CLASS", value_parser = IoPriority::from_str)]
    pub(crate) io_priority: Option<IoPriority>,
}

/// The keys of `--io` that apply to reading in columns.
const IO_KEYS: [&str; 5] = ["engine", "page-cache", "block-size", "queue-depth", "workers"];

/// Memory without a limit by the user, in bytes.
const MEMORY_BYTES: u64 = 64 << 20;

/// Longest run, in bytes. Shards are read in runs, because longer reads are faster: 64 KiB at depth
/// 32 read 2.3 GB/s, 256 KiB 3.0, 512 KiB up to 3.4. But all memory is proportional to it, and its
/// pages and caches take time, too: `create` of 1 GiB was as fast with 128 KiB as with 256, and took 50 MiB
/// instead of 75 (AMD EPYC, medians of 7).
const RUN_BYTES: u32 = 128 << 10;

impl IoArgs {
    /// Returns how to read. The memory covers the blocks, the chunks of the code and its sums.
    pub(crate) fn reading(&self, bypass_cache: bool) -> Result<Reading, String> {
        let memory = self.memory.unwrap_or(MEMORY_BYTES);
        let mut reading = Reading::default();
        // With 16 shards a chunk takes 16 runs: four of them and two sums are open at a time.
        let most = (memory / 128).max(16 << 10);
        reading.run_bytes = RUN_BYTES.min(1 << most.ilog2());
        let config = &mut reading.config;
        for setting in &self.settings {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            if !IO_KEYS.contains(&key) {
                return Err(format!("--io {setting}: the keys are {}", IO_KEYS.join(", ")));
            }
            config.set(key, value).map_err(|error| format!("--io {error}"))?;
        }
        if let Some(EngineKind::Stream | EngineKind::Mmap) = config.io.engine {
            return Err(
                "--io engine: reading in columns needs io_uring, libaio, pool or pread".into()
            );
        }
        if let Some(bytes) = config.io.block_bytes {
            if !bytes.is_power_of_two() || !(4096..=4 << 20).contains(&bytes) {
                return Err("--io block-size: a power of two from 4KiB to 4MiB".to_owned());
            }
            reading.run_bytes = bytes;
        }
        config.io.rate_limit = self.limit_rate.map(RateLimit::new);
        config.io.priority = self.io_priority;
        config.io.bypass_cache = bypass_cache;
        config.memory.limit_bytes = self.memory.map(|bytes| bytes / 4);
        config.validate().map_err(|error| error.to_string())?;
        Ok(reading)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory.unwrap_or(MEMORY_BYTES)
    }
}

pub(crate) fn parse_percent(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>();
    match number {
        Ok(percent) if (0.0..=100.0).contains(&percent) => {
            Ok((percent / 100.0 * MILLION as f64).round() as u32)
        }
        _ => Err("a share of the data from 0 to 100%".to_owned()),
    }
}

fn parse_group(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text)
        .filter(|bytes| bytes.is_power_of_two() && (1 << 10..=1 << 20).contains(bytes));
    bytes.map(|bytes| bytes as u32).ok_or_else(|| "a power of two from 1K to 1M".to_owned())
}

fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).ok_or_else(|| "not a size such as 64MiB".to_owned())?;
    (bytes >= 8 << 20).then_some(bytes).ok_or_else(|| "the minimum is 8MiB".to_owned())
}

fn parse_rate(text: &str) -> Result<NonZero<u64>, String> {
    parse_size(text).and_then(NonZero::new).ok_or_else(|| "not a rate such as 100MB".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_and_shares() {
        assert_eq!(parse_percent("5%"), Ok(50_000));
        assert_eq!(parse_percent("0"), Ok(0));
        assert!(parse_percent("101").is_err() && parse_percent("NaN").is_err());
        assert!(parse_group("3K").is_err());
        assert_eq!(parse_group("1M"), Ok(1 << 20));
    }
}
