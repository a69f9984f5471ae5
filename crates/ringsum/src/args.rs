//! The command line, as plain values: parsed, checked against each other, and not yet used.
//!
//! The same definitions make the man page and the completions (`examples/man-and-completions.rs`).

use std::ffi::OsString;
use std::path::PathBuf;

use blockring::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, CacheMode, Config, DEPTH_MAX, EngineKind, SLOTS_MAX,
    WORKERS_MAX,
};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, ValueEnum};

const READING: &str = "I/O options (each is chosen by the facts of the file when it is not given)";

/// Print or check BLAKE3 hashes, at the speed of the device
///
/// With no FILE, or when FILE is -, read standard input. A drop-in replacement for b3sum.
#[derive(Parser, Debug, PartialEq)]
#[command(
    name = "ringsum",
    version,
    after_help = "Exit status: 0 if all is well, 1 if a file could not be read, changed while it was \
                  read, or failed a check, 2 for a wrong command line.\n\
                  Sizes take k, K or KiB (1024), kB or KB (1000), and so on with M and G."
)]
pub(crate) struct Args {
    /// Files to hash, or check files to check
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Use the keyed mode, with the 32-byte key from standard input
    #[arg(long, requires = "files")]
    pub(crate) keyed: bool,

    /// Use the key derivation mode, with this context string
    #[arg(long, value_name = "CONTEXT", conflicts_with = "keyed")]
    pub(crate) derive_key: Option<String>,

    /// The number of output bytes, before hex encoding
    #[arg(short, long, value_name = "LEN", default_value_t = 32)]
    pub(crate) length: u64,

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

    /// Write BSD-style lines: BLAKE3 (FILE) = HASH
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

    /// Accepted for GNU's sake; means nothing
    #[arg(short, long)]
    binary: bool,

    /// Accepted for GNU's sake; means nothing
    #[arg(short, long)]
    text: bool,

    /// Say on standard error how each input is read, and why so
    #[arg(long)]
    pub(crate) explain: bool,

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
    engine: Option<EngineKind>,

    /// What reads do to the page cache
    #[arg(long, value_name = "MODE", value_parser = one_of(CacheMode::ALL, CacheMode::name), help_heading = READING)]
    cache: Option<CacheMode>,

    /// Bytes of a block, 512 to 64MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_block_bytes, help_heading = READING)]
    block_size: Option<u32>,

    /// The most reads in flight on one thread, 1 to 32768; no more than there are slots
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)),
        help_heading = READING
    )]
    depth: Option<u32>,

    /// Blocks of memory on one thread, 1 to 32768; 1GiB in all at most
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(SLOTS_MAX)),
        help_heading = READING
    )]
    slots: Option<u32>,

    /// Threads besides the first, 0 to 1024
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(WORKERS_MAX)),
        help_heading = READING
    )]
    workers: Option<u32>,
}

/// When progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// After a second of work
    Auto,
    /// At once
    Always,
    /// Not at all
    Never,
}

impl Args {
    /// Parses and checks a whole command line, the program's name included.
    ///
    /// # Errors
    ///
    /// What is wrong with it; or the help or version text, which is no mistake.
    pub(crate) fn parse_from_line(line: Vec<OsString>) -> Result<Args, clap::Error> {
        if let Some(args) = Args::of_names_alone(&line) {
            return Ok(args);
        }
        let args = Args::from_arg_matches(&Args::command().try_get_matches_from(line)?)?;
        let wrong =
            |what: &dyn std::fmt::Display| Args::command().error(ErrorKind::ValueValidation, what);
        if args.raw && args.files.len() > 1 {
            return Err(wrong(
                &"--raw takes one FILE: raw bytes of several could not be told apart",
            ));
        }
        if args.no_mmap && args.engine == Some(EngineKind::Mmap) {
            return Err(wrong(&"--no-mmap and --engine mmap contradict each other"));
        }
        args.config().validate().map_err(|error| wrong(&error))?;
        Ok(args)
    }

    /// The line `ringsum NAME...`, without any option. To build and run the whole parser for it takes
    /// a tenth of the time in which a small file is hashed (measured: see the README).
    fn of_names_alone(line: &[OsString]) -> Option<Args> {
        let names = line.get(1..)?;
        let is_name = |name: &OsString| match name.as_encoded_bytes() {
            b"-" => true,
            [first, ..] => *first != b'-',
            [] => false,
        };
        names.iter().all(is_name).then(|| Args {
            files: names.iter().map(PathBuf::from).collect(),
            keyed: false,
            derive_key: None,
            length: 32,
            seek: 0,
            num_threads: None,
            no_mmap: false,
            no_names: false,
            raw: false,
            tag: false,
            check: false,
            quiet: false,
            status: false,
            ignore_missing: false,
            strict: false,
            lenient: false,
            warn: false,
            binary: false,
            text: false,
            explain: false,
            progress: When::Auto,
            engine: None,
            cache: None,
            block_size: None,
            depth: None,
            slots: None,
            workers: None,
        })
    }

    /// What the options say about reading.
    pub(crate) fn config(&self) -> Config {
        let environment = || std::env::var("RAYON_NUM_THREADS").ok()?.parse().ok();
        let given = |n: &usize| *n > 0;
        let threads_max = self.num_threads.filter(given).or_else(|| environment().filter(given));
        Config {
            engine: self.engine,
            cache: self.cache,
            block_bytes: self.block_size,
            depth: self.depth,
            slots: self.slots,
            workers: self.workers,
            threads_max: threads_max.map(|n| n.try_into().unwrap_or(u32::MAX)),
        }
    }

    /// Whether a file may be mapped, so that its truncation must be survived.
    pub(crate) fn may_map(&self) -> bool {
        self.engine == Some(EngineKind::Mmap)
    }
}

/// Without `null`: it reads nothing, and what is made of nothing is no hash.
const ENGINES: [EngineKind; 3] = [EngineKind::IoUring, EngineKind::Pread, EngineKind::Mmap];

/// A parser of the names of these values, which help and completions show.
fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    values: [T; N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(values.map(name)).try_map(move |text| {
        values.into_iter().find(|&value| name(value) == text).ok_or("not one of the values")
    })
}

fn parse_block_bytes(text: &str) -> Result<u32, String> {
    let range = "a block is from 512 bytes to 64MiB";
    let bytes = parse_size(text).ok_or_else(|| format!("not a size such as 512KiB; {range}"))?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(bytes))
        .ok_or_else(|| range.to_owned())
}

/// A number of bytes, with a unit as GNU tools have them: K, M, G, T and KiB, ... are powers of 1024,
/// KB, ... of 1000. No number that overflows comes back as a small one.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_sound() {
        Args::command().debug_assert();
    }

    /// The short way has to give what the parser gives, or leave the line to it.
    #[test]
    fn names_alone_are_parsed_as_by_the_parser() {
        let lines: [&[&str]; 8] =
            [&[], &["a"], &["a", "-", "b c"], &[""], &["a", ""], &["--"], &["-a"], &["a", "--tag"]];
        for names in lines {
            let line: Vec<_> = ["ringsum"].iter().chain(names).map(OsString::from).collect();
            let parsed = Args::command().try_get_matches_from(&line);
            let parsed = parsed.and_then(|matches| Args::from_arg_matches(&matches));
            match Args::of_names_alone(&line) {
                Some(args) => assert_eq!(args, parsed.expect("a line of names")),
                None => assert!(parsed.is_err() || names.iter().any(|name| name.starts_with('-'))),
            }
        }
        assert!(Args::of_names_alone(&["ringsum".into(), "a".into()]).is_some());
    }

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
    fn legal_ranges_are_named() {
        let cases: [(&[&str], &str); 8] = [
            (&["--block-size", "0"], "from 512 bytes to 64MiB"),
            (&["--block-size", "64TiB"], "from 512 bytes to 64MiB"),
            (&["--block-size", "big"], "from 512 bytes to 64MiB"),
            (&["--depth", "0"], "1..=32768"),
            (&["--slots", "99999"], "1..=32768"),
            (&["--slots", "32768", "--block-size", "64M"], "at most 16 slots"),
            (&["--engine", "aio"], "io_uring, pread, mmap"),
            (&["--cache", "none"], "direct, buffered, dontcache"),
        ];
        for (options, part) in cases {
            let line = ["ringsum"].iter().chain(options).map(OsString::from).collect();
            let error = Args::parse_from_line(line).expect_err(part);
            let text = error.to_string();
            assert!(text.contains(part), "{text}");
            assert_eq!(error.exit_code(), 2);
        }
    }
}
