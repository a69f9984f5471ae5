//! The options of all subcommands.

use std::path::PathBuf;
use std::time::Duration;

use blockring::{CacheMode, EngineKind};
use clap::builder::ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};

use super::values::{one_of, parse_block, parse_pipe_size, parse_time};
use crate::model::units::parse_size;

/// Measures files, devices and pipes: their limits, how close programs come to them, and which settings
/// are best.
///
/// Each workload prints tables; with -o it also writes a run file, which `ringbench report` draws.
/// --dry-run prints how long a workload takes and how much it reads and writes. Keep the machine idle
/// meanwhile. As root, the page cache is emptied before cold runs.
#[derive(Debug, Parser)]
#[command(name = "ringbench", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure the limits of reading, hashing and copying, and which of them bounds ringsum
    ///
    /// Bypasses the page cache if possible. In a folder, a file is created and removed.
    Limits(LimitsArgs),
    /// Measure every combination of block size, depth, cache mode and engine, as heat maps
    ///
    /// Also measures other ways to read, and how a slow consumer changes the number of reads in flight.
    /// In a folder, a file is created and removed.
    Sweep(SweepArgs),
    /// Compare ringsum with other installed programs
    ///
    /// Measures time, processor time and memory, and checks that equal algorithms find equal digests.
    Compare(CompareArgs),
    /// Measure random reads and their latencies, by engine, depth and number of threads
    ///
    /// fio runs with the same settings for comparison. In a folder, a file is created and removed.
    Random(RandomArgs),
    /// Measure a small server: threads that write blocks with fsync, and read and verify random ones
    ///
    /// Writes only to a file that it has created itself, and removes it. Never writes to a device.
    Pool(PoolArgs),
    /// Measure lookups of many keys in one batch, against a loop that reads one after another
    ///
    /// In a folder, a file is created and removed.
    Batch(BatchArgs),
    /// Measure pipes: write, vmsplice, splice, huge pages, busy loops
    ///
    /// The bytes that arrive at the far end are counted and discarded.
    Pipe(PipeArgs),
    /// Find the best settings for a device, and save them for ringsum
    ///
    /// ringsum uses them for cold files on that device, as --explain reports, and ignores them under
    /// another kernel or on another device. The search starts at the built-in settings and changes one at
    /// a time. At the end both are measured again, and only settings that are better are saved.
    Tune(TuneArgs),
    /// Write saved runs as one page of HTML, as Markdown or as CSV
    Report(ReportArgs),
    /// Compare two saved runs of one command: the cases that changed by more than the noise
    Diff(DiffArgs),
}

/// Options that every workload has.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Run options")]
pub(crate) struct RunArgs {
    /// Write all samples to this file, as JSON, while they are taken
    #[arg(short, long, value_name = "RUN.json")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite the output file if it exists
    #[arg(long, requires = "output")]
    pub(crate) overwrite: bool,
    /// Number of samples of each case [default: until the medians are known well enough]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1000))]
    pub(crate) runs: Option<u32>,
    /// Number of warm-up rounds, which are not counted [default: warm runs until they get no faster]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(0..=100))]
    pub(crate) warm_up: Option<u32>,
    /// Start no sample after this time: 90s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) limit_time: Option<Duration>,
    /// Refuse to start if more than this may be read and written: 512M, 100G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) limit_bytes: Option<u64>,
    /// Print the plan with its time, reads and writes, and exit
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take one tiny sample of everything, to check that it works
    #[arg(long)]
    pub(crate) smoke: bool,
    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl RunArgs {
    /// The duration of a sample, which is tiny in a smoke test.
    pub(crate) fn sample_time(&self, time: Duration) -> Duration {
        if self.smoke { Duration::from_millis(3) } else { time }
    }
}

/// The file to read.
#[derive(Debug, Clone, Args)]
pub(crate) struct TargetArgs {
    /// A file, a block device, or a folder
    #[arg(value_name = "FILE|DIR|DEVICE")]
    pub(crate) path: PathBuf,
    /// Size of the file that is created in a folder
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub(crate) size: u64,
}

#[derive(Debug, Args)]
pub(crate) struct LimitsArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Read at most this much of it
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = parse_size)]
    pub(crate) read_max: u64,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Block sizes
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = parse_block,
        default_value = "4K,16K,64K,128K,256K,512K,1M,4M,16M")]
    pub(crate) block_sizes: Vec<u32>,
    /// Numbers of reads in flight
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = depth(),
        default_value = "1,2,4,8,16,32,64,128")]
    pub(crate) depths: Vec<u32>,
    /// Cache modes
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = cache(),
        default_value = "direct,buffered")]
    pub(crate) caches: Vec<CacheMode>,
    /// Engines
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = engine(),
        default_value = "io_uring,libaio,pool")]
    pub(crate) engines: Vec<EngineKind>,
    /// The grid of the article on io_uring and BLAKE3: blocks of 1K to 16M, depths of 1 to 4000, with and
    /// without O_DIRECT, blocks consumed one by one or all at once
    #[arg(long, conflicts_with_all = ["block_sizes", "depths", "caches", "engines"])]
    pub(crate) article: bool,
    /// Longest duration of a sample
    #[arg(short, long, value_name = "TIME", default_value = "300ms", value_parser = parse_time)]
    pub(crate) time: Duration,
    /// Only these parts: the grid, other ways to read, a slow consumer
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = ["grid", "ways", "slow"],
        default_value = "grid,ways,slow")]
    pub(crate) only: Vec<String>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// A file, a block device, or a folder with files
    #[arg(value_name = "FILE|TREE")]
    pub(crate) path: PathBuf,
    /// Only with an empty page cache [default: both]
    #[arg(long)]
    pub(crate) cold: bool,
    /// Only with everything in the page cache
    #[arg(long, conflicts_with = "cold")]
    pub(crate) warm: bool,
    /// Run each cold command twice, and count the second run: in a virtual machine whose host reclaims
    /// free memory, the first program to fill the page cache pays for that
    #[arg(long)]
    pub(crate) primed: bool,
    /// Another command, for a shell; {} stands for the file or folder
    #[arg(long, value_name = "COMMAND")]
    pub(crate) also: Vec<String>,
    /// Only programs whose name starts with one of these, and the commands of --also
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// The ringsum to measure [default: from the folder of ringbench, then from PATH]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) ringsum: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RandomArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Bytes of a read
    #[arg(short, long, value_name = "SIZE", default_value = "4K", value_parser = parse_block)]
    pub(crate) block_size: u32,
    /// Engines
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = engine(),
        default_value = "io_uring,libaio,pool,pread")]
    pub(crate) engines: Vec<EngineKind>,
    /// Numbers of reads in flight on each thread
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = depth(),
        default_value = "1,4,16,32,64,128,256")]
    pub(crate) depths: Vec<u32>,
    /// Numbers of threads
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', default_value = "1",
        value_parser = value_parser!(u32).range(1..=1024))]
    pub(crate) jobs: Vec<u32>,
    /// Cache modes
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = cache(),
        default_value = "direct")]
    pub(crate) caches: Vec<CacheMode>,
    /// Duration of a sample
    #[arg(short, long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    pub(crate) time: Duration,
    /// Number of reads of a sample, whatever time that takes
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "time",
        value_parser = value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Seed of the random offsets
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Do not run fio
    #[arg(long)]
    pub(crate) no_fio: bool,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PoolArgs {
    /// A folder on the file system to measure, or a new file in it
    #[arg(value_name = "FOLDER|NEW-FILE")]
    pub(crate) path: PathBuf,
    /// Overwrite NEW-FILE if it is an existing regular file; its content is lost
    #[arg(long)]
    pub(crate) destroy_existing: bool,
    /// Size of the file
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    pub(crate) size: u64,
    /// Bytes of a block
    #[arg(short, long, value_name = "SIZE", default_value = "4K", value_parser = parse_block)]
    pub(crate) block_size: u32,
    /// Numbers of threads
    #[arg(short, long, value_name = "LIST", value_delimiter = ',',
        default_value = "2,4,8,16,32,64,128,256,512", value_parser = value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Vec<u32>,
    /// Number of reads for each write
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = value_parser!(u64).range(1..=1_000_000))]
    pub(crate) reads_per_write: u64,
    /// Duration of a sample
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub(crate) time: Duration,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BatchArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Bytes of a record
    #[arg(short, long, value_name = "SIZE", default_value = "4K", value_parser = parse_block)]
    pub(crate) record_size: u32,
    /// Numbers of keys in a batch
    #[arg(short, long, value_name = "LIST", value_delimiter = ',',
        default_value = "1,4,16,32,64,128,256,1024", value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batches: Vec<u32>,
    /// Engines
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = engine(),
        default_value = "io_uring,libaio,pool")]
    pub(crate) engines: Vec<EngineKind>,
    /// Cache mode
    #[arg(short, long, value_name = "MODE", value_parser = cache(), default_value = "direct")]
    pub(crate) cache: CacheMode,
    /// Duration of a sample
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub(crate) time: Duration,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PipeArgs {
    /// Sizes of the pipe
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = parse_pipe_size,
        default_value = "64K,256K,1M")]
    pub(crate) pipe_sizes: Vec<u64>,
    /// Sizes of the buffer that each system call gets
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = parse_pipe_size,
        default_value = "16K,64K,256K,1M")]
    pub(crate) buffer_sizes: Vec<u64>,
    /// Duration of a sample
    #[arg(short, long, value_name = "TIME", default_value = "300ms", value_parser = parse_time)]
    pub(crate) time: Duration,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Read at most this much of it for each sample
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = parse_size)]
    pub(crate) read_max: u64,
    /// The file of settings [default: $XDG_CONFIG_HOME/ringsum/tuned.json, or
    /// ~/.config/ringsum/tuned.json]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Measure, but save nothing for ringsum
    #[arg(long)]
    pub(crate) no_write: bool,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Files that were written with -o
    #[arg(required = true, value_name = "RUN.json")]
    pub(crate) runs: Vec<PathBuf>,
    /// Write to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Output format [default: by the extension of FILE, or html]
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,
    /// Overwrite the output file if it exists
    #[arg(long, requires = "output")]
    pub(crate) overwrite: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// A file that was written with -o
    #[arg(value_name = "OLD.json")]
    pub(crate) old: PathBuf,
    /// Another one, of the same command on the same machine
    #[arg(value_name = "NEW.json")]
    pub(crate) new: PathBuf,
}

/// The formats of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A self-contained page with charts
    Html,
    /// Tables in text
    #[value(alias = "md")]
    Markdown,
    /// One row per sample
    Csv,
}

fn engine() -> ValueParser {
    one_of(EngineKind::ALL, EngineKind::name)
}

fn cache() -> ValueParser {
    one_of(CacheMode::ALL, CacheMode::name)
}

fn depth() -> ValueParser {
    value_parser!(u32).range(1..=32768).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
