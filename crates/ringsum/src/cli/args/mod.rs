//! The command line as plain values: parsed and checked for contradictions, but not used.
//!
//! `examples/man-and-completions.rs` generates the man page and completions from them.

// (Explicit paths, because the example includes this file.)
#[path = "applet.rs"]
pub(crate) mod applet;
#[path = "parse.rs"]
mod parse;
#[path = "values.rs"]
pub(crate) mod values;

use std::path::PathBuf;

use blockring::{CacheMode, Config, EngineKind, IoPriority, RateLimit};
use clap::{ArgGroup, Parser};
use ringsum::{Algorithm, Algorithms};

use self::applet::Applet;
use self::values::{
    AlgorithmArg, ConsumeArg, HugePagesArg, Pattern, StatsFormat, TeeModeArg, When, one_of,
    parse_algorithm, parse_block_bytes, parse_glob, parse_io_priority, parse_memory, parse_rate,
};

/// Least number of files hashed in parallel: with fewer, starting threads costs more than it saves.
const PARALLEL_MIN: usize = 16;

const READING: &str = "I/O options (detected automatically by default)";
const TUNING: &str = "Advanced I/O options (docs/tuning.md)";
const DIAGNOSTICS: &str = "Diagnostics";
const PIPES: &str = "Pipes (docs/pipes.md)";
const TREES: &str = "Trees and lists of files (docs/trees.md)";
const INDEX: &str = "Incremental hashing (docs/index.md)";

/// Print or check BLAKE3 and other checksums, at full disk bandwidth
///
/// With no FILE, or when FILE is -, read standard input. With -r and no FILE, hash the current directory. A drop-in replacement for b3sum.
#[derive(Parser, Debug, Default, PartialEq)]
#[command(
    name = "ringsum",
    version,
    group(ArgGroup::new("walks").args(["recursive", "report_unlisted"]).multiple(true)),
    group(ArgGroup::new("copies").args(["pass_through", "tee"]).multiple(true).conflicts_with_all([
        "check", "recursive", "files_from", "index", "raw", "in_order", "bypass_cache",
    ])),
    after_help = "Exit status: 0 on success, 1 if a file could not be read, changed while it was read, or \
                  failed a check, 2 for a wrong command line (docs/exit-status.md).\n\
                  SIZE and BYTES accept the suffixes k, K or KiB (1024), kB or KB (1000), and so on for M, \
                  G and T."
)]
pub(crate) struct Args {
    /// The tool that it was invoked as, if that is another one
    #[arg(skip)]
    pub(crate) applet: Option<Applet>,

    /// Files to hash, or checksum files to check
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Hash algorithm; repeat to compute several in one pass. `list` prints all of them with their speed on this machine
    ///
    /// Several algorithms imply --tag. With --check, the algorithm of lines that do not name one. MD5, SHA-1, xxHash and CRC-32C detect accidental damage, but not manipulation (docs/algorithms.md).
    #[arg(short, long, value_name = "NAME", value_parser = parse_algorithm())]
    pub(crate) algorithm: Vec<AlgorithmArg>,

    /// Use the keyed mode, with the 32-byte key from standard input
    #[arg(long)]
    pub(crate) keyed: bool,

    /// Use the key derivation mode, with this context string
    #[arg(long, value_name = "CONTEXT", conflicts_with = "keyed")]
    pub(crate) derive_key: Option<String>,

    /// Number of output bytes, before hex encoding: for BLAKE3 (default: 32) and blake2b (1 to 64; default: 64)
    #[arg(short, long, value_name = "LEN")]
    pub(crate) length: Option<u64>,

    /// First output byte of BLAKE3, before hex encoding
    #[arg(long, value_name = "SEEK", default_value_t)]
    pub(crate) seek: u64,

    /// Maximum number of threads [default: the number of processors]
    ///
    /// Without it, or with 0, the environment variable RAYON_NUM_THREADS applies, as for b3sum.
    #[arg(long, value_name = "NUM", conflicts_with = "workers")]
    pub(crate) num_threads: Option<usize>,

    /// Disable memory mapping (which only --engine mmap enables)
    #[arg(long)]
    pub(crate) no_mmap: bool,

    /// Omit filenames in the output
    #[arg(long)]
    pub(crate) no_names: bool,

    /// Write raw output bytes to stdout, without filenames; takes a single FILE
    #[arg(long)]
    pub(crate) raw: bool,

    /// Write BSD-style lines: BLAKE3 (FILE) = HASH; implied by several algorithms
    #[arg(long)]
    pub(crate) tag: bool,

    /// Read checksums from the FILEs and check them
    #[arg(short, long, conflicts_with_all = ["keyed", "derive_key", "length", "raw", "tag", "no_names"])]
    pub(crate) check: bool,

    /// With --check, do not print OK for each successfully verified file
    #[arg(long, requires = "check", overrides_with_all = ["status", "warn"])]
    pub(crate) quiet: bool,

    /// With --check, print nothing; report the result in the exit status
    #[arg(long, requires = "check", overrides_with_all = ["quiet", "warn"])]
    pub(crate) status: bool,

    /// With --check, ignore missing files
    #[arg(long, requires = "check")]
    pub(crate) ignore_missing: bool,

    /// With --check, fail for improperly formatted lines (the default)
    #[arg(long, requires = "check", overrides_with = "lenient")]
    pub(crate) strict: bool,

    /// With --check, count improperly formatted lines, but do not fail for them
    #[arg(long, requires = "check", overrides_with = "strict")]
    pub(crate) lenient: bool,

    /// With --check, warn about each improperly formatted line
    #[arg(short, long, requires = "check", overrides_with_all = ["quiet", "status"])]
    pub(crate) warn: bool,

    /// With --check, report files under DIR that no checksum file lists, and renamed files
    #[arg(long, value_name = "DIR", requires = "check", help_heading = TREES)]
    pub(crate) report_unlisted: Vec<PathBuf>,

    /// Hash all files in directories, recursively; skip devices, pipes and sockets
    #[arg(short, long, conflicts_with_all = ["check", "raw"], help_heading = TREES)]
    pub(crate) recursive: bool,

    /// Read the names of the files to hash from FILE, one per line; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["check", "raw"], help_heading = TREES)]
    pub(crate) files_from: Option<PathBuf>,

    /// Read devices, FIFOs and sockets in lists (--check, --files-from) and beside -r
    ///
    /// By default they are not opened, so that the author of a list cannot make the program hang or start a device. Files named on the command line without -r are always read.
    #[arg(long, help_heading = TREES)]
    pub(crate) allow_special: bool,

    /// With --files-from, names end with NUL instead of newline
    #[arg(short = '0', long, requires = "files_from", help_heading = TREES)]
    pub(crate) null: bool,

    /// End each output line with NUL instead of newline, and do not escape names; with --check, read such lines
    #[arg(short, long, conflicts_with_all = ["raw", "json"], help_heading = TREES)]
    pub(crate) zero: bool,

    /// With -r, follow symbolic links (those on the command line are always followed)
    #[arg(long, requires = "walks", help_heading = TREES)]
    pub(crate) follow: bool,

    /// With -r, do not cross file system boundaries
    #[arg(short = 'x', long, requires = "walks", help_heading = TREES)]
    pub(crate) one_file_system: bool,

    /// With -r, hash only files that match a glob; may be repeated
    ///
    /// A glob without a slash matches file names; one with a slash matches paths below the named directory.
    #[arg(long, value_name = "GLOB", requires = "walks", value_parser = parse_glob, help_heading = TREES)]
    pub(crate) include: Vec<Pattern>,

    /// With -r, skip files and directories that match a glob; may be repeated
    ///
    /// A glob without a slash matches file names; one with a slash matches paths below the named directory.
    #[arg(long, value_name = "GLOB", requires = "walks", value_parser = parse_glob, help_heading = TREES)]
    pub(crate) exclude: Vec<Pattern>,

    /// With -r, respect .gitignore files in the tree
    #[arg(long, requires = "walks", help_heading = TREES)]
    pub(crate) gitignore: bool,

    /// Print each line as soon as its file is hashed, not in the order of the names
    #[arg(long, help_heading = TREES)]
    pub(crate) unordered: bool,

    /// Threads that open and read small files, per device, 1 to 1024 [default: 16, or 1 on rotational disks]
    #[arg(
        short,
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=1024),
        help_heading = TREES
    )]
    pub(crate) jobs: Option<u32>,

    /// Write one JSON object per line (docs/json-format.md)
    #[arg(long, conflicts_with_all = ["raw", "tag", "no_names"], help_heading = TREES)]
    pub(crate) json: bool,

    /// Print one digest per tree, over all paths, types, links and hashes (docs/tree-digest.md)
    #[arg(
        long,
        requires = "recursive",
        conflicts_with_all = [
            "check", "files_from", "unordered", "keyed", "derive_key", "length", "seek", "include", "exclude", "gitignore",
            "follow",
        ],
        help_heading = TREES
    )]
    pub(crate) tree_digest: bool,

    /// Cache hashes in FILE, and do not read unchanged files again
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["check", "keyed", "derive_key", "length", "seek", "raw", "bypass_cache"],
        help_heading = INDEX
    )]
    pub(crate) index: Option<PathBuf>,

    /// With --index, read all files, and report those whose contents differ but metadata does not (bit rot)
    #[arg(long, requires = "index", help_heading = INDEX)]
    pub(crate) verify_index: bool,

    /// Copy the input to stdout; the checksum goes to stderr, or to --output
    ///
    /// From pipe to pipe, HOW is `copy` (the default) or `share`. `share` saves a copy by sharing pages between the pipes; if the producer writes to pages that it gave away (vmsplice, splice), the output differs from what was hashed.
    #[arg(
        short,
        long,
        value_name = "HOW",
        default_missing_value = "copy",
        num_args = 0..=1,
        require_equals = true,
        help_heading = PIPES
    )]
    pub(crate) pass_through: Option<TeeModeArg>,

    /// Copy the input to FILE, and fsync it before the checksum is printed; may be repeated
    #[arg(long, value_name = "FILE", help_heading = PIPES)]
    pub(crate) tee: Vec<PathBuf>,

    /// Write checksums to FILE instead of stdout
    #[arg(short, long, value_name = "FILE", conflicts_with = "check")]
    pub(crate) output: Option<PathBuf>,

    /// Retry files that change while being read, up to N times: after 250 ms, 500 ms, ... up to 8 s
    #[arg(
        long,
        value_name = "N",
        default_value_t,
        allow_negative_numbers = true,
        conflicts_with_all = ["pass_through", "tee", "list_bad_ranges"]
    )]
    pub(crate) retry_changed: u32,

    /// Continue past read errors and list every bad range; a file with bad ranges gets no checksum
    ///
    /// Prints one line per range to stderr; --json puts them into the objects. Reads one file after another, on one thread, in pieces of 1 MiB (docs/exit-status.md).
    #[arg(
        long,
        conflicts_with_all = [
            "check", "index", "raw", "pass_through", "tee", "engine", "block_size", "depth", "slots", "workers",
            "in_order", "stats", "trace", "explain",
        ]
    )]
    pub(crate) list_bad_ranges: bool,

    /// Ignored; for compatibility with GNU coreutils
    #[arg(short, long)]
    pub(crate) binary: bool,

    /// Ignored; for compatibility with GNU coreutils
    #[arg(short, long)]
    pub(crate) text: bool,

    /// Print to stderr how each input is read, and why
    #[arg(long, help_heading = DIAGNOSTICS)]
    pub(crate) explain: bool,

    /// Print I/O statistics and a wait-time breakdown to stderr
    #[arg(
        long,
        value_name = "FORMAT",
        default_missing_value = "text",
        num_args = 0..=1,
        require_equals = true,
        help_heading = DIAGNOSTICS
    )]
    pub(crate) stats: Option<StatsFormat>,

    /// Write a trace of all events to FILE, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE", help_heading = DIAGNOSTICS)]
    pub(crate) trace: Option<PathBuf>,

    /// Show progress on a terminal: after one second, always, or never
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        default_missing_value = "always",
        num_args = 0..=1,
        require_equals = true
    )]
    pub(crate) progress: When,

    /// How reads reach the kernel
    #[arg(long, value_name = "ENGINE", value_parser = one_of(engines(), EngineKind::name), help_heading = READING)]
    pub(crate) engine: Option<EngineKind>,

    /// How reads use the page cache
    #[arg(long, value_name = "MODE", value_parser = one_of(CacheMode::ALL, CacheMode::name), help_heading = READING)]
    pub(crate) cache: Option<CacheMode>,

    /// Block size, 512 bytes to 64MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_block_bytes, help_heading = READING)]
    pub(crate) block_size: Option<u32>,

    /// Queue depth: maximum number of reads in flight per thread, 1 to 32768; at most --slots
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = READING)]
    pub(crate) depth: Option<u32>,

    /// Buffers per thread, 1 to 32768; at most 1GiB in all
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = READING)]
    pub(crate) slots: Option<u32>,

    /// Threads besides the first, 0 to 1024
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = READING)]
    pub(crate) workers: Option<u32>,

    /// Memory limit for the whole process, at least 8MiB (docs/limits.md)
    ///
    /// Buffers, threads and queues shrink to fit. Explicit options that do not fit are an error. By default, less memory is used if the machine or the control group has little.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, help_heading = READING)]
    pub(crate) memory: Option<u64>,

    /// Read at most this many bytes per second, over all files
    #[arg(long, value_name = "BYTES", value_parser = parse_rate, help_heading = READING)]
    pub(crate) limit_rate: Option<std::num::NonZero<u64>>,

    /// I/O priority: idle, or best-effort:N with N from 0 (highest) to 7 (lowest)
    #[arg(long, value_name = "CLASS", value_parser = parse_io_priority, help_heading = READING)]
    pub(crate) io_priority: Option<IoPriority>,

    /// Read from the device, never from the page cache; fail if that is not supported
    #[arg(long, help_heading = READING)]
    pub(crate) bypass_cache: bool,

    /// Ignore the settings that `ringbench tune` measured on this machine (docs/tuning.md)
    #[arg(long, help_heading = TUNING)]
    pub(crate) no_tuned: bool,

    /// Threads of the engine pool, 1 to 1024
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = TUNING)]
    pub(crate) pool_threads: Option<u32>,

    /// Hash blocks in order, one after another, even if any order would do
    #[arg(long, help_heading = TUNING)]
    pub(crate) in_order: bool,

    /// Busy-wait instead of sleeping
    #[arg(long, help_heading = TUNING)]
    pub(crate) spin: bool,

    /// Submit the next read after each hashed block, or after all that have arrived
    #[arg(long, value_name = "HOW", value_enum, default_value_t, help_heading = TUNING)]
    pub(crate) consume: ConsumeArg,

    /// Pages of the buffers
    #[arg(long, value_name = "PAGES", value_enum, default_value_t, help_heading = TUNING)]
    pub(crate) huge_pages: HugePagesArg,

    /// io_uring: each read waits for all earlier ones (IOSQE_IO_DRAIN)
    #[arg(long, help_heading = TUNING)]
    pub(crate) io_drain: bool,

    /// io_uring: the reads of one submission run one after another (IOSQE_IO_LINK)
    #[arg(long, help_heading = TUNING)]
    pub(crate) io_link: bool,

    /// io_uring: a kernel thread polls for submissions; it sleeps after IDLE_MS, 0 to 60000 (0: one second)
    #[arg(
        long,
        value_name = "IDLE_MS",
        default_missing_value = "0",
        num_args = 0..=1,
        require_equals = true,
        help_heading = TUNING
    )]
    pub(crate) sqpoll: Option<u32>,

    /// io_uring: the processor of that thread
    #[arg(long, value_name = "CPU", requires = "sqpoll", help_heading = TUNING)]
    pub(crate) sqpoll_cpu: Option<u32>,

    /// io_uring: poll the device for completions; needs direct I/O and a device with poll queues
    #[arg(long, help_heading = TUNING)]
    pub(crate) iopoll: bool,

    /// io_uring: register the buffers once
    #[arg(long, help_heading = TUNING)]
    pub(crate) fixed_buffers: bool,

    /// io_uring: register the file once
    #[arg(long, help_heading = TUNING)]
    pub(crate) fixed_file: bool,
}

impl Args {
    /// Returns the requested algorithms; BLAKE3 by default.
    pub(crate) fn algorithms(&self) -> Algorithms {
        let mut requested = self.algorithm.iter().filter_map(|algorithm| match algorithm {
            AlgorithmArg::Is(Algorithm::Blake2b(default)) => {
                let bytes = self.length.and_then(|bytes| bytes.try_into().ok());
                Some(Algorithm::Blake2b(bytes.unwrap_or(*default)))
            }
            AlgorithmArg::Is(algorithm) => Some(*algorithm),
            AlgorithmArg::List => None,
        });
        let Some(first) = requested.next() else { return Algorithms::default() };
        let mut algorithms = Algorithms::from(first);
        algorithms.extend(requested);
        algorithms
    }

    /// Whether to only list the algorithms.
    pub(crate) fn lists_algorithms(&self) -> bool {
        self.algorithm.contains(&AlgorithmArg::List)
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
            let threads_max = self.num_threads.filter(|&n| n > 0);
            config.io.engine = self.engine;
            config.io.cache = self.cache;
            config.io.bypass_cache = self.bypass_cache;
            config.io.block_bytes = self.block_size;
            config.io.queue_depth = self.depth;
            config.io.slots = self.slots;
            config.io.workers = self.workers;
            config.io.threads_max = threads_max.map(|n| n.try_into().unwrap_or(u32::MAX));
            config.io.pool_threads = self.pool_threads;
            config.io.in_order = self.in_order;
            config.io.wait = if self.spin { blockring::Wait::Spin } else { blockring::Wait::Sleep };
            config.io.consume = self.consume.into();
            config.io.rate_limit = self.limit_rate.map(RateLimit::new);
            config.io.priority = self.io_priority;
            config.memory.huge_pages = self.huge_pages.into();
            config.uring.drain = self.io_drain;
            config.uring.link = self.io_link;
            config.uring.sqpoll = self.sqpoll;
            config.uring.sqpoll_cpu = self.sqpoll_cpu;
            config.uring.iopoll = self.iopoll;
            config.uring.fixed_buffers = self.fixed_buffers;
            config.uring.fixed_file = self.fixed_file;
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
        !selects && !self.one_file_system && !self.follow
    }
}

/// All engines except `null`, which reads nothing.
fn engines() -> impl Iterator<Item = EngineKind> {
    EngineKind::ALL.into_iter().filter(|engine| *engine != EngineKind::Null)
}

#[cfg(test)]
mod tests;
