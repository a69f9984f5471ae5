//! The options of all subcommands.

use std::path::PathBuf;
use std::time::Duration;

use blockring::{CacheMode, EngineKind};
use clap::builder::ValueParser;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, value_parser};
use clap_complete::Shell;
use clap_mangen::Man;

use super::values::{one_of, parse_block, parse_pipe_size, parse_time};
use crate::model::units::parse_size;

/// Measures files, devices and pipes: their limits, and how close programs come to them.
///
/// Each workload prints tables; with -o it also writes a run file, which `ringbench report` draws.
/// --dry-run prints how long a workload takes and how much it reads and writes. Nothing else should
/// run during a measurement. As root, the page cache is emptied before cold runs.
#[derive(Debug, Parser)]
#[command(name = "ringbench", version, max_term_width = 100)]
#[command(arg_required_else_help = true, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    /// Print the man page or a completion script
    #[arg(long, value_name = "WHAT", required = true)]
    pub(crate) generate: Option<Generate>,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What `--generate` prints.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Generate {
    Man,
    CompleteBash,
    CompleteZsh,
    CompleteFish,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure how fast reading, hashing and copying can be, and ringsum
    ///
    /// Bypasses the page cache if possible. In a folder, a file is created and removed.
    Limits(LimitsArgs),
    /// Measure block sizes, depths, cache modes and engines, as heat maps
    ///
    /// Also measures other ways to read, and how a slow consumer changes the number of reads in flight.
    /// In a folder, a file is created and removed.
    Sweep(SweepArgs),
    /// Compare ringsum with other installed programs
    ///
    /// Measures time, processor time and memory, and checks that equal algorithms find equal digests.
    Compare(CompareArgs),
    /// Measure random reads: engines, depths, threads, latencies
    ///
    /// fio runs with the same settings for comparison. In a folder, a file is created and removed.
    Random(RandomArgs),
    /// Measure a small server: durable writes, and reads that are verified
    ///
    /// Writes only to a file that it has created itself, and removes it. Never writes to a device.
    Pool(PoolArgs),
    /// Measure batches of lookups against a loop of single reads
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
    /// Turn saved runs into an HTML page, Markdown, CSV or SVG
    Report(ReportArgs),
    /// Compare two saved runs: which cases changed by more than noise
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
    /// Number of samples of each case [default: until the medians are known well enough]. From 7 on, up
    /// to two rounds that are left out are replaced
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
    /// Also measure the files of this folder, and ringsum -r
    #[arg(long, value_name = "FOLDER")]
    pub(crate) tree: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Block sizes
    #[arg(short, long = "block-size", value_name = "LIST", value_delimiter = ',', value_parser = parse_block,
        default_value = "4K,16K,64K,128K,256K,512K,1M,4M,16M")]
    pub(crate) block_sizes: Vec<u32>,
    /// Numbers of reads in flight
    #[arg(short, long = "queue-depth", value_name = "LIST", value_delimiter = ',', value_parser = depth(),
        default_value = "1,2,4,8,16,32,64,128")]
    pub(crate) depths: Vec<u32>,
    /// Cache modes
    #[arg(short, long = "page-cache", value_name = "LIST", value_delimiter = ',', value_parser = cache(),
        default_value = "direct,buffered")]
    pub(crate) caches: Vec<CacheMode>,
    /// Engines
    #[arg(short, long = "engine", value_name = "LIST", value_delimiter = ',', value_parser = engine(),
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
    #[arg(short, long = "engine", value_name = "LIST", value_delimiter = ',', value_parser = engine(),
        default_value = "io_uring,libaio,pool,pread")]
    pub(crate) engines: Vec<EngineKind>,
    /// Numbers of reads in flight on each thread
    #[arg(short, long = "queue-depth", value_name = "LIST", value_delimiter = ',', value_parser = depth(),
        default_value = "1,4,16,32,64,128,256")]
    pub(crate) depths: Vec<u32>,
    /// Numbers of threads
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', default_value = "1",
        value_parser = value_parser!(u32).range(1..=1024))]
    pub(crate) jobs: Vec<u32>,
    /// Cache modes
    #[arg(short, long = "page-cache", value_name = "LIST", value_delimiter = ',', value_parser = cache(),
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
    pub(crate) jobs: Vec<u32>,
    /// Number of reads for each write
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = value_parser!(u64).range(1..=1_000_000))]
    pub(crate) reads_per_write: u64,
    /// Duration of a sample
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
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
    pub(crate) block_size: u32,
    /// Numbers of keys in a batch
    #[arg(short = 'k', long, value_name = "LIST", value_delimiter = ',',
        default_value = "1,4,16,32,64,128,256,1024", value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batches: Vec<u32>,
    /// Engines
    #[arg(short, long = "engine", value_name = "LIST", value_delimiter = ',', value_parser = engine(),
        default_value = "io_uring,libaio,pool")]
    pub(crate) engines: Vec<EngineKind>,
    /// Cache mode
    #[arg(short, long = "page-cache", value_name = "MODE", value_parser = cache(), default_value = "direct")]
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
    /// Sizes of the block that each system call gets
    #[arg(short, long = "block-size", value_name = "LIST", value_delimiter = ',', value_parser = parse_pipe_size,
        default_value = "16K,64K,256K,1M")]
    pub(crate) block_sizes: Vec<u64>,
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
    /// The group of each run that --format svg draws [default: the one that answers the question of
    /// the workload]
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
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
    /// The main chart of each run, or that of --group, one below the other
    Svg,
}

impl Generate {
    /// The page or the script.
    pub(crate) fn print(self) -> Vec<u8> {
        let (mut text, mut command) = (Vec::new(), Cli::command());
        let shell = match self {
            Generate::Man => return man_page(command),
            Generate::CompleteBash => Shell::Bash,
            Generate::CompleteZsh => Shell::Zsh,
            Generate::CompleteFish => Shell::Fish,
        };
        clap_complete::generate(shell, &mut command, "ringbench", &mut text);
        text
    }
}

/// One page, with the options of all subcommands.
fn man_page(mut command: clap::Command) -> Vec<u8> {
    command.build();
    let mut page = Vec::new();
    // Writing to a vector does not fail.
    let _ = Man::new(command.clone()).render(&mut page);
    for subcommand in command.get_subcommands().filter(|it| it.get_name() != "help") {
        let mut part = Vec::new();
        let name = subcommand.get_name().to_uppercase();
        let man = Man::new(subcommand.clone());
        let _ = man.render_description_section(&mut part);
        let _ = man.render_options_section(&mut part);
        let part = String::from_utf8_lossy(&part);
        let part = part.replace(".SH DESCRIPTION", &format!(".SH {name}"));
        page.extend(part.replace(".SH OPTIONS", ".SS Options").into_bytes());
    }
    page
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
        Cli::command().debug_assert();
    }

    #[test]
    fn a_letter_has_one_meaning() {
        let meanings = [
            ('b', "block-size"),
            ('c', "page-cache"),
            ('d', "queue-depth"),
            ('e', "engine"),
            ('j', "jobs"),
            ('k', "batches"),
            ('n', "count"),
            ('o', "output"),
            ('p', "pipe-sizes"),
            ('q', "quiet"),
            ('t', "time"),
        ];
        let command = Cli::command();
        for command in command.get_subcommands() {
            for option in command.get_arguments() {
                let Some(letter) = option.get_short() else { continue };
                let (name, command) = (option.get_long().unwrap(), command.get_name());
                let meaning = meanings.iter().find(|(known, _)| *known == letter);
                let meaning = meaning.unwrap_or_else(|| panic!("{command} -{letter} {name}")).1;
                assert_eq!(name, meaning, "{command} -{letter}");
            }
        }
    }

    #[test]
    fn help_fits_into_a_terminal() {
        let help = Cli::command().term_width(80).render_help().to_string();
        assert!(help.lines().count() <= 25, "{help}");
    }

    #[test]
    fn everything_is_generated() {
        for what in Generate::value_variants() {
            let text = String::from_utf8(what.print()).unwrap();
            for word in ["limits", "diff", "overwrite"] {
                assert!(text.contains(word), "{what:?}, {word}: {text}");
            }
        }
    }
}
