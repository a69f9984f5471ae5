//! The command line, as values.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand};

use crate::values::{parse_size, parse_time};
use crate::workload::{batch, compare, limits, pipe, pool, random, sweep, tune};

/// Measures files, devices and pipes: where the limit is, how far from it everything is, and what to set.
///
/// Each workload prints tables, and with -o writes a file that `ringbench report` draws. What it will take
/// says --dry-run. Nothing else should run meanwhile; as root, the page cache can be emptied before cold
/// runs.
#[derive(Debug, Parser)]
#[command(name = "ringbench", version, max_term_width = 110)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Where the limits are: of reading, of hashing, of copying; and which of them bounds ringsum here
    Limits(limits::Args),
    /// Block sizes, depths, cache modes, engines and more, each with each, as heat maps
    Sweep(sweep::Args),
    /// ringsum and whichever other programs are installed, in turn
    Compare(compare::Args),
    /// Random reads: engines, depths, threads; with latencies
    Random(random::Args),
    /// A server in small: threads that write blocks with fsync, and read and verify random ones
    Pool(pool::Args),
    /// Lookups of many keys at once, by how many, against one after another
    Batch(batch::Args),
    /// How fast pipes are: write, vmsplice, splice, huge pages, busy loops
    Pipe(pipe::Args),
    /// Find the best settings for a device, and tell ringsum
    Tune(tune::Args),
    /// Draw runs: one page of HTML, Markdown or CSV
    Report(crate::report::Args),
}

/// What every workload understands.
#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Of the run")]
pub(crate) struct Common {
    /// Write everything that is measured to this file, as JSON, after every sample
    #[arg(short, long, value_name = "RUN.json")]
    pub(crate) output: Option<PathBuf>,
    /// Write even if the file exists
    #[arg(long, requires = "output")]
    pub(crate) overwrite: bool,
    /// Measure each case so many times [default: as often as the spread asks for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: Option<u32>,
    /// Rounds that do not count, before [default: by what they gain, for warm runs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) warm_up: Option<u32>,
    /// Begin nothing after so long: 90s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) limit_time: Option<Duration>,
    /// Do not start if more than this may be read and written: 512M, 100G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) limit_bytes: Option<u64>,
    /// Say what would be measured and what that would take, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Everything once, and tiny: shows that it works, and nothing else
    #[arg(long)]
    pub(crate) smoke: bool,
    /// No progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
