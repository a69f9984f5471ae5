//! The command line, as plain values: parsed, checked against each other, and not yet used.
//!
//! The same definitions make the man page and the completions (`examples/man-and-completions.rs`).

// (Its place is said for the example that makes the man page out of this file.)
#[path = "args/parse.rs"]
mod parse;

use std::path::PathBuf;

use blockring::{
    CacheMode, Config, Consume, DEPTH_MAX, EngineKind, HugePages, IoPriority, POOL_THREADS_MAX,
    RateLimit, SLOTS_MAX, SQPOLL_IDLE_MS_MAX, Sqpoll, Trace, Uring, WORKERS_MAX,
};
use clap::{ArgGroup, Parser};
use ringsum::many::{JOBS_MAX, PROCESS_BYTES};
use ringsum::{Algorithm, Algorithms, BLAKE2B_BYTES};

use crate::guise::Guise;
use crate::values::{
    AlgorithmArg, ConsumeArg, HugePagesArg, PassingArg, Pattern, StatsFormat, When, one_of,
    parse_algorithm, parse_block_bytes, parse_glob, parse_io_priority, parse_memory, parse_rate,
};

/// From so many files on they are hashed together: threads for fewer would take longer to start than to be
/// of use.
const TOGETHER_MIN: usize = 16;

const READING: &str = "I/O options (each is chosen by the facts of the file when it is not given)";
const TUNING: &str = "More I/O options (docs/tuning.md says what each costs, and when it helps)";
const LOOKING: &str = "A look inside";
const PIPES: &str = "Pipes (docs/pipes.md)";
const TREES: &str = "Trees and lists of files (docs/trees.md)";
const INDEXES: &str = "What has not changed (docs/index.md)";

/// Print or check BLAKE3 and other digests, at the speed of the device
///
/// With no FILE, or when FILE is -, read standard input; with -r and no FILE, the current directory. A drop-in replacement for b3sum.
#[derive(Parser, Debug, PartialEq)]
#[command(
    name = "ringsum",
    version,
    group(ArgGroup::new("walks").args(["recursive", "report_extra"]).multiple(true)),
    group(ArgGroup::new("passes").args(["pass_through", "tee"]).multiple(true).conflicts_with_all([
        "check", "recursive", "files_from", "index", "raw", "in_order", "medium",
    ])),
    after_help = "Exit status: 0 if all is well, 1 if a file could not be read, changed while it was \
                  read, or failed a check, 2 for a wrong command line, 130 after Ctrl-C \
                  (docs/exit-status.md).\n\
                  Sizes take k, K or KiB (1024), kB or KB (1000), and so on with M and G."
)]
pub(crate) struct Args {
    /// The tool that it was invoked as, if that is another
    #[arg(skip)]
    pub(crate) guise: Option<Guise>,

    /// Files to hash, or check files to check
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Which digest; may be repeated, and the file is read once. `list` lists them, with how fast they are here
    ///
    /// With several, lines are BSD-style. With --check, it is that of lines that do not say which. MD5, SHA-1, xxHash and CRC-32C find damage, and are no defence against people who make files on purpose (docs/algorithms.md).
    #[arg(short, long, value_name = "NAME", value_parser = parse_algorithm())]
    pub(crate) algorithm: Vec<AlgorithmArg>,

    /// Use the keyed mode, with the 32-byte key from standard input
    #[arg(long)]
    pub(crate) keyed: bool,

    /// Use the key derivation mode, with this context string
    #[arg(long, value_name = "CONTEXT", conflicts_with = "keyed")]
    pub(crate) derive_key: Option<String>,

    /// The number of output bytes, before hex encoding: of BLAKE3 (default: 32), and of blake2b (1 to 64; default: 64)
    #[arg(short, long, value_name = "LEN")]
    pub(crate) length: Option<u64>,

    /// The first output byte, before hex encoding
    #[arg(long, value_name = "SEEK", default_value_t = 0)]
    pub(crate) seek: u64,

    /// The most threads to use; 0 is the default: as many as there are processors
    ///
    /// Without it, or with 0, the environment variable RAYON_NUM_THREADS counts, as for b3sum.
    #[arg(long, value_name = "NUM", conflicts_with = "workers")]
    pub(crate) num_threads: Option<usize>,

    /// Do not map files into memory (they never are, unless --engine mmap says so)
    #[arg(long)]
    pub(crate) no_mmap: bool,

    /// Omit file names in the output
    #[arg(long)]
    pub(crate) no_names: bool,

    /// Write raw output bytes to standard output, without names; takes one FILE
    #[arg(long)]
    pub(crate) raw: bool,

    /// Write BSD-style lines: BLAKE3 (FILE) = HASH; always with several algorithms
    #[arg(long)]
    pub(crate) tag: bool,

    /// Read hashes and names from the FILEs, and check them
    #[arg(short, long, conflicts_with_all = ["keyed", "derive_key", "length", "raw", "tag", "no_names"])]
    pub(crate) check: bool,

    /// With --check: print nothing for files that are as they should be
    #[arg(long, requires = "check", overrides_with_all = ["status", "warn"])]
    pub(crate) quiet: bool,

    /// With --check: print nothing; the exit status tells
    #[arg(long, requires = "check", overrides_with_all = ["quiet", "warn"])]
    pub(crate) status: bool,

    /// With --check: say nothing of files that do not exist, and do not fail for them
    #[arg(long, requires = "check")]
    pub(crate) ignore_missing: bool,

    /// With --check: fail for malformed lines. That is the default here
    #[arg(long, requires = "check", overrides_with = "lenient")]
    pub(crate) strict: bool,

    /// With --check: count malformed lines, but do not fail for them
    #[arg(long, requires = "check", overrides_with = "strict")]
    pub(crate) lenient: bool,

    /// With --check: name each malformed line even with --lenient
    #[arg(short, long, requires = "check", overrides_with_all = ["quiet", "status"])]
    pub(crate) warn: bool,

    /// With --check: name the files under DIR that no list has, and where missing ones have gone
    #[arg(long, value_name = "DIR", requires = "check", help_heading = TREES)]
    pub(crate) report_extra: Vec<PathBuf>,

    /// Hash every file in directories, and in theirs; devices, pipes and sockets are left out
    #[arg(short, long, conflicts_with_all = ["check", "raw"], help_heading = TREES)]
    pub(crate) recursive: bool,

    /// Read the names of files to hash from FILE, one a line; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["check", "raw"], help_heading = TREES)]
    pub(crate) files_from: Option<PathBuf>,

    /// Read devices, FIFOs and sockets that a list names (--check, --files-from), or that are named beside -r
    ///
    /// Without it they are not opened, so that whoever makes a list cannot have one hang, or set a device in motion. What is named on the command line without -r is read in any case.
    #[arg(long, help_heading = TREES)]
    pub(crate) allow_special: bool,

    /// With --files-from: names end with NUL, not with a newline
    #[arg(short = '0', long, requires = "files_from", help_heading = TREES)]
    pub(crate) null: bool,

    /// End each line with NUL, not with a newline, and escape no name; with --check, read such lists
    #[arg(short, long, conflicts_with_all = ["raw", "json"], help_heading = TREES)]
    pub(crate) zero: bool,

    /// With -r: follow symbolic links (those named on the command line always are)
    #[arg(long, requires = "walks", help_heading = TREES)]
    pub(crate) follow: bool,

    /// With -r: stay on the file system of each directory that is named
    #[arg(short = 'x', long, requires = "walks", help_heading = TREES)]
    pub(crate) one_file_system: bool,

    /// With -r: hash only files that match one of these globs
    ///
    /// A glob without a slash is of names; one with a slash is of the path from the named directory on.
    #[arg(long, value_name = "GLOB", requires = "walks", value_parser = parse_glob, help_heading = TREES)]
    pub(crate) include: Vec<Pattern>,

    /// With -r: leave out files and directories that match one of these globs
    ///
    /// A glob without a slash is of names; one with a slash is of the path from the named directory on.
    #[arg(long, value_name = "GLOB", requires = "walks", value_parser = parse_glob, help_heading = TREES)]
    pub(crate) exclude: Vec<Pattern>,

    /// With -r: leave out what .gitignore files in the tree say
    #[arg(long, requires = "walks", help_heading = TREES)]
    pub(crate) gitignore: bool,

    /// Print each line as soon as its file is done, not in the order of the names
    #[arg(long, help_heading = TREES)]
    pub(crate) unordered: bool,

    /// Threads that open and read small files, on each device: 1 to 1024 (default: 16; 1 on disks that turn)
    #[arg(
        short,
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=JOBS_MAX as i64),
        help_heading = TREES
    )]
    pub(crate) jobs: Option<u32>,

    /// Write one JSON object a line: docs/json-format.md
    #[arg(long, conflicts_with_all = ["raw", "tag", "no_names"], help_heading = TREES)]
    pub(crate) json: bool,

    /// One digest for each tree: of all its paths, types, links and hashes (docs/tree-digest.md)
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

    /// Remember hashes in FILE, and do not read again what did not change
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["check", "keyed", "derive_key", "length", "seek", "raw", "medium"],
        help_heading = INDEXES
    )]
    pub(crate) index: Option<PathBuf>,

    /// With --index: read everything, and report files with the same times and other bytes
    #[arg(long, requires = "index", help_heading = INDEXES)]
    pub(crate) verify_index: bool,

    /// Write the input to standard output as well; its hash goes to standard error, or to --output
    ///
    /// With HOW, from pipe to pipe: `copy` writes it (the default); `share` has the pipes share pages, which saves a copy, and passes on other bytes than were hashed if the producer writes to pages that it gave away (vmsplice, splice).
    #[arg(
        short,
        long,
        value_name = "HOW",
        default_missing_value = "copy",
        num_args = 0..=1,
        require_equals = true,
        help_heading = PIPES
    )]
    pub(crate) pass_through: Option<PassingArg>,

    /// Write the input to FILE as well, and bring it to the device before the hash is printed; may be repeated
    #[arg(long, value_name = "FILE", help_heading = PIPES)]
    pub(crate) tee: Vec<PathBuf>,

    /// Write hashes to FILE, not to standard output
    #[arg(short, long, value_name = "FILE", conflicts_with = "check")]
    pub(crate) output: Option<PathBuf>,

    /// Read a file that changed while it was read again, up to N times: after 250 ms, 500 ms, ... up to 8 s
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true,
        conflicts_with_all = ["pass_through", "tee", "map_errors"]
    )]
    pub(crate) retry_changed: u32,

    /// Go on where a file cannot be read, and name every bad range; a file that has any gets no hash
    ///
    /// A line on standard error for each range; with --json, objects have them. Reads one file after another, on one thread, in pieces of 1 MiB (docs/exit-status.md).
    #[arg(
        long,
        conflicts_with_all = [
            "check", "index", "raw", "pass_through", "tee", "engine", "block_size", "depth", "slots", "workers",
            "in_order", "stats", "trace",
        ]
    )]
    pub(crate) map_errors: bool,

    /// Accepted for GNU's sake; means nothing
    #[arg(short, long)]
    pub(crate) binary: bool,

    /// Accepted for GNU's sake; means nothing
    #[arg(short, long)]
    pub(crate) text: bool,

    /// Say on standard error how each input is read, and why so
    #[arg(long, help_heading = LOOKING)]
    pub(crate) explain: bool,

    /// Say on standard error what reading each input took, and who waited for whom
    #[arg(
        long,
        value_name = "FORMAT",
        default_missing_value = "text",
        num_args = 0..=1,
        require_equals = true,
        help_heading = LOOKING
    )]
    pub(crate) stats: Option<StatsFormat>,

    /// Write what happens when to FILE, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE", help_heading = LOOKING)]
    pub(crate) trace: Option<PathBuf>,

    /// Show progress on a terminal: after a second of work, at once, or not at all
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "auto",
        default_missing_value = "always",
        num_args = 0..=1,
        require_equals = true
    )]
    pub(crate) progress: When,

    /// How reads reach the kernel
    #[arg(long, value_name = "ENGINE", value_parser = one_of(ENGINES, EngineKind::name), help_heading = READING)]
    pub(crate) engine: Option<EngineKind>,

    /// What reads do to the page cache
    #[arg(long, value_name = "MODE", value_parser = one_of(CacheMode::ALL, CacheMode::name), help_heading = READING)]
    pub(crate) cache: Option<CacheMode>,

    /// Bytes of a block, 512 to 64MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_block_bytes, help_heading = READING)]
    pub(crate) block_size: Option<u32>,

    /// The most reads in flight on one thread, 1 to 32768; no more than there are slots
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)),
        help_heading = READING
    )]
    pub(crate) depth: Option<u32>,

    /// Blocks of memory on one thread, 1 to 32768; 1GiB in all at most
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(SLOTS_MAX)),
        help_heading = READING
    )]
    pub(crate) slots: Option<u32>,

    /// Threads besides the first, 0 to 1024
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(WORKERS_MAX)),
        help_heading = READING
    )]
    pub(crate) workers: Option<u32>,

    /// The most memory to use in all, 8MiB or more (docs/limits.md)
    ///
    /// Blocks, threads and what waits for its turn become as few as that takes; what is named and does not fit is refused. Without it, little memory is used where the machine or the control group has little.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, help_heading = READING)]
    pub(crate) memory: Option<u64>,

    /// Read at most so many bytes per second, over all files
    #[arg(long, value_name = "BYTES", value_parser = parse_rate, help_heading = READING)]
    pub(crate) limit_rate: Option<std::num::NonZero<u64>>,

    /// The place in the device's queue: idle, or best-effort:N with N from 0 (first) to 7 (last)
    #[arg(long, value_name = "CLASS", value_parser = parse_io_priority, help_heading = READING)]
    pub(crate) io_priority: Option<IoPriority>,

    /// Hash what the medium holds, never what the page cache has of it; fail where that cannot be had
    #[arg(long, help_heading = READING)]
    pub(crate) medium: bool,

    /// Do not follow settings that were measured on this machine (docs/tuning.md)
    #[arg(long, help_heading = TUNING)]
    pub(crate) no_tuned: bool,

    /// Threads of the engine pool, 1 to 1024
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(POOL_THREADS_MAX)),
        help_heading = TUNING
    )]
    pub(crate) pool_threads: Option<u32>,

    /// Hash blocks one after another, in order, even if any order would do
    #[arg(long, help_heading = TUNING)]
    pub(crate) in_order: bool,

    /// Wait in a busy loop instead of sleeping
    #[arg(long, help_heading = TUNING)]
    pub(crate) spin: bool,

    /// Request again after each block is hashed, or after all that have come
    #[arg(long, value_name = "HOW", default_value = "each", help_heading = TUNING)]
    pub(crate) consume: ConsumeArg,

    /// Which pages hold the blocks
    #[arg(long, value_name = "PAGES", default_value = "advise", help_heading = TUNING)]
    pub(crate) huge_pages: HugePagesArg,

    /// io_uring: each read waits for all before it (IOSQE_IO_DRAIN)
    #[arg(long, help_heading = TUNING)]
    pub(crate) io_drain: bool,

    /// io_uring: the reads of one submission run one after another (IOSQE_IO_LINK)
    #[arg(long, help_heading = TUNING)]
    pub(crate) io_link: bool,

    /// io_uring: a kernel thread takes requests, and sleeps after so many idle milliseconds (0: one second)
    #[arg(
        long,
        value_name = "IDLE_MS",
        default_missing_value = "0",
        num_args = 0..=1,
        require_equals = true,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(SQPOLL_IDLE_MS_MAX)),
        help_heading = TUNING
    )]
    pub(crate) sqpoll: Option<u32>,

    /// io_uring: the processor of that thread
    #[arg(long, value_name = "CPU", requires = "sqpoll", help_heading = TUNING)]
    pub(crate) sqpoll_cpu: Option<u32>,

    /// io_uring: poll the device for completions; needs direct I/O and a device with poll queues
    #[arg(long, help_heading = TUNING)]
    pub(crate) iopoll: bool,

    /// io_uring: pin the blocks once, not for each read
    #[arg(long, help_heading = TUNING)]
    pub(crate) fixed_buffers: bool,

    /// io_uring: look the file up once, not for each read
    #[arg(long, help_heading = TUNING)]
    pub(crate) fixed_file: bool,
}

impl Args {
    /// What to make of files: BLAKE3, unless something was asked for.
    pub(crate) fn algorithms(&self) -> Algorithms {
        let mut asked = self.algorithm.iter().filter_map(|algorithm| match algorithm {
            AlgorithmArg::Is(Algorithm::Blake2b(_)) => {
                let bytes = self.length.and_then(|bytes| bytes.try_into().ok());
                Some(Algorithm::Blake2b(bytes.unwrap_or(BLAKE2B_BYTES)))
            }
            AlgorithmArg::Is(algorithm) => Some(*algorithm),
            AlgorithmArg::List => None,
        });
        let Some(first) = asked.next() else { return Algorithms::default() };
        let mut algorithms = Algorithms::from(first);
        for algorithm in asked {
            // Once is enough.
            algorithms.add(algorithm);
        }
        algorithms
    }

    /// Whether digests are to be listed, and nothing else is to be done.
    pub(crate) fn lists_algorithms(&self) -> bool {
        self.algorithm.contains(&AlgorithmArg::List)
    }

    /// Bytes of BLAKE3's output.
    pub(crate) fn blake3_bytes(&self) -> u64 {
        self.length.unwrap_or(blake3::OUT_LEN as u64)
    }

    /// Whether anything else of BLAKE3's output is wanted than the first 32 bytes in hexadecimal digits.
    pub(crate) fn blake3_is_extended(&self) -> bool {
        let out = blake3::OUT_LEN as u64;
        self.raw || self.seek > 0 || self.blake3_bytes() != out
    }

    /// Whether the input goes on to somewhere.
    pub(crate) fn passes_on(&self) -> bool {
        self.pass_through.is_some() || !self.tee.is_empty()
    }

    /// What the options say about reading, and no more: not what was measured. `trace`: where `--trace` goes.
    pub(crate) fn config(&self, trace: Option<Trace>) -> Config {
        let environment = || std::env::var("RAYON_NUM_THREADS").ok()?.parse().ok();
        let given = |n: &usize| *n > 0;
        let threads_max = self.num_threads.filter(given).or_else(|| environment().filter(given));
        Config {
            engine: self.engine,
            cache: self.cache,
            block_bytes: self.block_size,
            depth: self.depth,
            slots: self.slots,
            memory_bytes: self.memory.map(|bytes| bytes - PROCESS_BYTES),
            workers: self.workers,
            consumers: 0,
            threads_max: threads_max.map(|n| n.try_into().unwrap_or(u32::MAX)),
            pool_threads: self.pool_threads,
            in_order: self.in_order,
            spin: self.spin,
            consume: match self.consume {
                ConsumeArg::Each => Consume::Each,
                ConsumeArg::Batch => Consume::Batch,
            },
            huge_pages: match self.huge_pages {
                HugePagesArg::Off => HugePages::Off,
                HugePagesArg::Advise => HugePages::Advise,
                HugePagesArg::Hugetlb => HugePages::Hugetlb,
            },
            uring: Uring {
                drain: self.io_drain,
                link: self.io_link,
                sqpoll: self.sqpoll.map(|idle_ms| Sqpoll { idle_ms, cpu: self.sqpoll_cpu }),
                iopoll: self.iopoll,
                fixed_buffers: self.fixed_buffers,
                fixed_file: self.fixed_file,
            },
            medium: self.medium,
            rate_limit: self.limit_rate.map(RateLimit::new),
            io_priority: self.io_priority,
            tuned: None,
            stats: self.stats.is_some(),
            trace,
        }
    }

    /// Whether files are hashed together, so that the memory is shared out among more than what one file takes.
    pub(crate) fn reads_many(&self) -> bool {
        let is_list = self.check || self.files_from.is_some();
        self.recursive || is_list || self.index.is_some() || self.files.len() >= TOGETHER_MIN
    }

    /// Whether a run sees all that is remembered of a tree.
    pub(crate) fn sees_all(&self) -> bool {
        let selects = !self.include.is_empty() || !self.exclude.is_empty() || self.gitignore;
        !selects && !self.one_file_system && !self.follow
    }

    /// Whether a file may be mapped, so that its truncation must be survived.
    pub(crate) fn may_map(&self) -> bool {
        self.engine == Some(EngineKind::Mmap)
    }
}

/// Without `null`: it reads nothing, and what is made of nothing is no hash.
const ENGINES: [EngineKind; 6] = [
    EngineKind::IoUring,
    EngineKind::Libaio,
    EngineKind::Pool,
    EngineKind::Pread,
    EngineKind::Stream,
    EngineKind::Mmap,
];

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
