//! The command line as plain values: parsed and checked for contradictions, but not used.

pub(crate) mod applet;
pub(crate) mod help;
mod io;
mod parse;
pub(crate) mod values;

use std::path::PathBuf;
use std::str::FromStr;

use blockring::{Config, IoPriority, RateLimit};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, ArgGroup, Parser};
use ringsum::{Algorithm, Algorithms};

use self::applet::Applet;
use self::help::{Generate, ShortHelp};
use self::io::{IoOptions, IoParser};
use self::values::{
    AlgorithmList, AlgorithmParser, Pattern, StatsFormat, TeeModeArg, When, parse_glob, parse_jobs,
    parse_memory, parse_rate,
};

/// Least number of files hashed in parallel: with fewer, starting threads costs more than it saves.
const PARALLEL_MIN: usize = 16;

// The groups of `--help` and of the man page, in this order.
const DIGESTS: &str = "Digests";
const CHECKING: &str = "Checking";
const TREES: &str = "Trees and lists of files";
const OUTPUT: &str = "Output";
const INDEX: &str = "Index of known digests";
const PIPES: &str = "Pipes and copies";
const READING: &str = "Reading";
const DIAGNOSTICS: &str = "Diagnostics";
const HELP: &str = "Help";

/// Print or check BLAKE3 and other digests of files, trees, devices and pipes
///
/// With no FILE, or when FILE is -, read standard input. With -r and no FILE, hash the current directory. The options, the output and the check files of b3sum work unchanged.
#[derive(Parser, Debug, Default, PartialEq)]
#[command(
    name = "ringsum",
    version,
    disable_help_flag = true,
    disable_version_flag = true,
    next_help_heading = DIGESTS,
    group(ArgGroup::new("copies").args(["pass_through", "tee"]).multiple(true).conflicts_with_all([
        "check", "recursive", "files_from", "index", "raw", "bypass_cache",
    ])),
    after_long_help = help::AFTER_HELP
)]
pub(crate) struct Args {
    /// The tool that it was invoked as, if that is another one
    #[arg(skip)]
    pub(crate) applet: Option<Applet>,

    /// Files to hash, or check files with --check
    // (An empty name is a missing file, which must not hide the others.)
    #[arg(value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub(crate) files: Vec<PathBuf>,

    /// Digest algorithm; several in one pass with commas or by repeating it
    ///
    /// Several algorithms imply --tag. With --check, the algorithm of lines that do not name one. Upper case and other spellings are accepted: SHA256, sha-256.
    #[arg(short, long, value_name = "NAME", value_parser = AlgorithmParser, hide_possible_values = true)]
    pub(crate) algorithm: Vec<AlgorithmList>,

    /// Print all algorithms, with their speed on this machine
    #[arg(long, exclusive = true)]
    pub(crate) list_algorithms: bool,

    /// Use BLAKE3's keyed mode, with the 32-byte key from standard input
    #[arg(long)]
    pub(crate) keyed: bool,

    /// Use BLAKE3's key derivation mode, with this context string
    #[arg(long, value_name = "CONTEXT", conflicts_with = "keyed")]
    pub(crate) derive_key: Option<String>,

    /// Number of output bytes, before hex encoding: of blake3 (default: 32) and blake2b (1 to 64, default: 64)
    #[arg(short, long, value_name = "LEN")]
    pub(crate) length: Option<u64>,

    /// First output byte of BLAKE3, before hex encoding
    #[arg(long, value_name = "SEEK", default_value_t, hide = true)]
    pub(crate) seek: u64,

    /// Read digests from the FILEs and check them
    #[arg(short, long, conflicts_with_all = ["keyed", "derive_key", "length", "raw", "tag", "no_names"], help_heading = CHECKING)]
    pub(crate) check: bool,

    /// With --check, do not print OK for each verified file
    #[arg(long, overrides_with_all = ["status", "warn"], help_heading = CHECKING)]
    pub(crate) quiet: bool,

    /// With --check, print no verdicts; the exit status tells the result
    #[arg(long, overrides_with_all = ["quiet", "warn"], help_heading = CHECKING)]
    pub(crate) status: bool,

    /// With --check, skip files that do not exist
    #[arg(long, help_heading = CHECKING)]
    pub(crate) ignore_missing: bool,

    #[arg(long, overrides_with = "lenient", hide = true)]
    pub(crate) strict: bool,

    /// With --check, count improperly formatted lines, but do not fail for them
    #[arg(long, overrides_with = "strict", hide = true)]
    pub(crate) lenient: bool,

    /// With --check, warn about each improperly formatted line
    #[arg(short, long, overrides_with_all = ["quiet", "status"], hide = true)]
    pub(crate) warn: bool,

    /// With --check, also report files under DIR that no check file lists, and renamed files
    #[arg(long, value_name = "DIR", help_heading = CHECKING)]
    pub(crate) report_unlisted: Vec<PathBuf>,

    /// Hash all files in directories, recursively; skip devices, pipes and sockets
    #[arg(short, long, conflicts_with_all = ["check", "raw"], help_heading = TREES)]
    pub(crate) recursive: bool,

    /// With -r, hash only files that match GLOB; may be repeated
    ///
    /// A glob without a slash matches file names; one with a slash matches paths below the named directory.
    #[arg(long, value_name = "GLOB", value_parser = parse_glob, help_heading = TREES)]
    pub(crate) include: Vec<Pattern>,

    /// With -r, skip files and directories that match GLOB; may be repeated
    #[arg(long, value_name = "GLOB", value_parser = parse_glob, help_heading = TREES)]
    pub(crate) exclude: Vec<Pattern>,

    /// With -r, respect .gitignore files in the tree
    #[arg(long, help_heading = TREES)]
    pub(crate) gitignore: bool,

    /// With -r, follow symbolic links (those on the command line are always followed)
    #[arg(short = 'L', long, help_heading = TREES)]
    pub(crate) follow: bool,

    /// With -r, do not cross file system boundaries
    #[arg(short = 'x', long, help_heading = TREES)]
    pub(crate) one_file_system: bool,

    /// With -r, descend at most N levels of directories; with 1, hash only the files directly in each DIR
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = TREES
    )]
    pub(crate) max_depth: Option<u32>,

    /// Print one digest per tree, over all paths, types, links and digests
    #[arg(
        long,
        conflicts_with_all = [
            "check", "files_from", "unordered", "keyed", "derive_key", "length", "seek", "include", "exclude",
            "gitignore", "follow", "max_depth",
        ],
        help_heading = TREES
    )]
    pub(crate) tree_digest: bool,

    /// Read the names of the files to hash from FILE, one per line; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["check", "raw"], help_heading = TREES)]
    pub(crate) files_from: Option<PathBuf>,

    /// With --files-from, names end with NUL instead of newline
    #[arg(short = '0', long, help_heading = TREES)]
    pub(crate) null: bool,

    /// Threads that open and read small files, per device, 1 to 1024 [default: 16, or 1 on rotational disks]
    #[arg(
        short,
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = parse_jobs,
        help_heading = TREES
    )]
    pub(crate) jobs: Option<u32>,

    #[arg(long, hide = true)]
    pub(crate) allow_special: bool,

    /// Omit filenames
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) no_names: bool,

    /// Write raw bytes, without the name; takes a single FILE
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) raw: bool,

    /// Write BSD-style lines: BLAKE3 (FILE) = HASH; implied by several algorithms
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) tag: bool,

    /// Write one JSON object per line
    #[arg(long, conflicts_with_all = ["raw", "tag", "no_names"], help_heading = OUTPUT)]
    pub(crate) json: bool,

    /// End lines with NUL instead of newline, and do not escape names; with --check, read such lines
    #[arg(short, long, conflicts_with_all = ["raw", "json"], help_heading = OUTPUT)]
    pub(crate) zero: bool,

    /// Print each line as soon as its file is hashed, not in the order of the names
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) unordered: bool,

    /// Write digests to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", conflicts_with = "check", help_heading = OUTPUT)]
    pub(crate) output: Option<PathBuf>,

    /// Show progress on a terminal: after one second, always, or never
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        default_missing_value = "always",
        num_args = 0..=1,
        require_equals = true,
        hide_possible_values = true,
        help_heading = OUTPUT
    )]
    pub(crate) progress: When,

    /// Color OK, FAILED and errors: auto, always or never (also NO_COLOR)
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        default_missing_value = "always",
        num_args = 0..=1,
        require_equals = true,
        hide_possible_values = true,
        help_heading = OUTPUT
    )]
    pub(crate) color: When,

    /// Keep digests in FILE, and do not read unchanged files again
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["keyed", "derive_key", "length", "seek", "raw", "bypass_cache"],
        help_heading = INDEX
    )]
    pub(crate) index: Option<PathBuf>,

    /// With --index, read all files, and report those whose content differs but metadata does not (bit rot)
    #[arg(long, help_heading = INDEX)]
    pub(crate) verify_index: bool,

    /// Bytes of the parts whose chaining values --index stores; files of four parts or more go on where a run was interrupted
    // (For tests: with the default, 1 GiB, they would take minutes.)
    #[arg(long, value_name = "BYTES", hide = true, value_parser = clap::builder::RangedU64ValueParser::<u64>::new().range(1 << 20..=1 << 40))]
    pub(crate) resume_bytes: Option<u64>,

    /// Copy the input to standard output; the digest goes to standard error, or to --output
    ///
    /// From pipe to pipe, HOW is `copy` (the default) or `share`. `share` saves a copy by sharing pages between the pipes; if the producer writes to pages that it gave away (vmsplice, splice), the output differs from what was hashed.
    #[arg(
        short,
        long,
        value_name = "HOW",
        default_missing_value = "copy",
        num_args = 0..=1,
        require_equals = true,
        hide_possible_values = true,
        help_heading = PIPES
    )]
    pub(crate) pass_through: Option<TeeModeArg>,

    /// Copy the input to FILE, and sync it before the digest is printed; may be repeated
    #[arg(long, value_name = "FILE", help_heading = PIPES)]
    pub(crate) tee: Vec<PathBuf>,

    /// Read at most BYTES per second, over all files
    #[arg(long, value_name = "BYTES", value_parser = parse_rate, help_heading = READING)]
    pub(crate) limit_rate: Option<std::num::NonZero<u64>>,

    /// I/O priority: idle, or best-effort:N with N from 0 (highest) to 7 (lowest)
    #[arg(long, value_name = "CLASS", value_parser = IoPriority::from_str, help_heading = READING)]
    pub(crate) io_priority: Option<IoPriority>,

    /// Memory limit of the whole process, at least 8MiB
    ///
    /// Buffers, threads and queues shrink to fit. Explicit options that do not fit are an error. By default, less memory is used if the machine or the control group has little.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, help_heading = READING)]
    pub(crate) memory: Option<u64>,

    /// Read from the device, never from the page cache; fail if that is not supported
    #[arg(long, help_heading = READING)]
    pub(crate) bypass_cache: bool,

    /// Retry files that change while being read, up to N times: after 250 ms, 500 ms, ... up to 8 s
    #[arg(
        long,
        value_name = "N",
        default_value_t,
        allow_negative_numbers = true,
        conflicts_with_all = ["pass_through", "tee", "list_bad_ranges"],
        hide = true
    )]
    pub(crate) retry_changed: u32,

    /// Continue past read errors and list every bad range; a file with bad ranges gets no digest
    ///
    /// Prints one line per range to standard error; --json puts them into the objects. Reads one file after another, on one thread, in pieces of 1 MiB.
    #[arg(
        long,
        conflicts_with_all = ["check", "index", "raw", "pass_through", "tee", "stats", "trace", "explain"],
        help_heading = READING
    )]
    pub(crate) list_bad_ranges: bool,

    /// Maximum number of threads [default: the number of processors]
    ///
    /// Without it, or with 0, the environment variable RAYON_NUM_THREADS applies, as for b3sum.
    #[arg(long, value_name = "NUM", help_heading = READING)]
    pub(crate) num_threads: Option<usize>,

    /// How to read, if detection is not good enough; `--io help` lists the keys
    #[arg(
        long,
        value_name = "KEY=VALUE[,...]",
        allow_hyphen_values = true,
        value_parser = IoParser,
        help_heading = READING
    )]
    pub(crate) io: Vec<IoOptions>,

    /// Print to standard error how each input is read, and why
    #[arg(long, help_heading = DIAGNOSTICS)]
    pub(crate) explain: bool,

    /// Print I/O statistics and what the time was spent on to standard error: text or json
    #[arg(
        long,
        value_name = "FORMAT",
        default_missing_value = "text",
        num_args = 0..=1,
        require_equals = true,
        hide_possible_values = true,
        help_heading = DIAGNOSTICS
    )]
    pub(crate) stats: Option<StatsFormat>,

    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) trace: Option<PathBuf>,

    #[arg(short, long, hide = true)]
    pub(crate) binary: bool,

    #[arg(short, long, hide = true)]
    pub(crate) text: bool,

    #[arg(long, hide = true)]
    pub(crate) no_mmap: bool,

    #[arg(long, value_name = "WHAT", value_enum, exclusive = true, hide = true)]
    pub(crate) generate: Option<Generate>,

    /// Print all options; -h prints the most used
    #[arg(long, action = ArgAction::HelpLong, help_heading = HELP)]
    help: Option<bool>,

    #[arg(short = 'h', action = ArgAction::Set, num_args = 0, default_missing_value = "", value_parser = ShortHelp, hide = true)]
    short_help: Option<ShortHelp>,

    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version, help_heading = HELP)]
    version: Option<bool>,
}

impl Args {
    /// Returns the requested algorithms; BLAKE3 by default.
    pub(crate) fn algorithms(&self) -> Algorithms {
        let mut requested =
            self.algorithm.iter().flat_map(|list| &list.0).map(|algorithm| match algorithm {
                Algorithm::Blake2b(default) => {
                    let bytes = self.length.and_then(|bytes| bytes.try_into().ok());
                    Algorithm::Blake2b(bytes.unwrap_or(*default))
                }
                algorithm => *algorithm,
            });
        let Some(first) = requested.next() else { return Algorithms::default() };
        let mut algorithms = Algorithms::from(first);
        algorithms.extend(requested);
        algorithms
    }

    /// Returns the length of BLAKE3's output in bytes.
    pub(crate) fn blake3_bytes(&self) -> u64 {
        self.length.unwrap_or(blake3::OUT_LEN as u64)
    }

    /// Whether more of BLAKE3's output is needed than the first 32 bytes.
    pub(crate) fn needs_extended_output(&self) -> bool {
        let out = blake3::OUT_LEN as u64;
        self.raw || self.seek > 0 || self.blake3_bytes() != out
    }

    /// Whether the input is copied.
    pub(crate) fn copies(&self) -> bool {
        self.pass_through.is_some() || !self.tee.is_empty()
    }

    /// Returns the configuration as far as the options alone determine it: without the environment,
    /// the memory limit, and permission to map.
    pub(crate) fn config(&self) -> Config {
        Config::default().with(|config| {
            self.io.iter().for_each(|options| options.apply(config));
            let threads_max = self.num_threads.filter(|&n| n > 0);
            config.io.threads_max = threads_max.map(|n| n.try_into().unwrap_or(u32::MAX));
            config.io.bypass_cache = self.bypass_cache;
            config.io.rate_limit = self.limit_rate.map(RateLimit::new);
            config.io.priority = self.io_priority;
            config.observe.stats = self.stats.is_some();
        })
    }

    /// Whether there may be many files, which then share the memory.
    pub(crate) fn reads_many(&self) -> bool {
        let is_list = self.check || self.files_from.is_some();
        self.recursive || is_list || self.index.is_some() || self.files.len() >= PARALLEL_MIN
    }

    /// Whether a walk visits all cached files of a tree.
    pub(crate) fn sees_all(&self) -> bool {
        let selects = !self.include.is_empty() || !self.exclude.is_empty() || self.gitignore;
        !selects && !self.one_file_system && !self.follow && self.max_depth.is_none()
    }
}

#[cfg(test)]
mod tests;
