//! From the words of a command line to values that go together.

use std::ffi::OsString;
use std::path::PathBuf;

use blockring::EngineKind;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};
use ringsum::many::Budget;

use super::Args;
use crate::values::{ConsumeArg, HugePagesArg, When};

/// Longest hash in an object, in bytes: objects are made in memory.
const JSON_LENGTH_MAX: u64 = 1 << 20;

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
        let has_names = !args.files.is_empty() || args.recursive;
        let reads_stdin =
            |path: &Option<PathBuf>| path.as_ref().is_some_and(|path| path.as_os_str() == "-");
        if args.keyed
            && ((!has_names && args.files_from.is_none()) || reads_stdin(&args.files_from))
        {
            return Err(wrong(
                &"--keyed reads the key from standard input: name the FILEs to hash",
            ));
        }
        // (That they require it counts for nothing to the parser where something else excludes it.)
        let of_check = args.quiet
            || args.status
            || args.ignore_missing
            || args.strict
            || args.lenient
            || args.warn
            || !args.report_extra.is_empty();
        if of_check && !args.check {
            return Err(wrong(
                &"--quiet, --status, --ignore-missing, --strict, --lenient, --warn and --report-extra go \
                  with --check",
            ));
        }
        if args.passes_on() && args.files.len() > 1 {
            return Err(wrong(&"--pass-through and --tee take one FILE, or standard input"));
        }
        if args.passes_on()
            && args.block_size.is_some_and(|bytes| !bytes.is_power_of_two() || bytes < 1024)
        {
            return Err(wrong(&"--pass-through and --tee take a --block-size of 2^k KiB"));
        }
        if args.json && args.blake3_bytes() > JSON_LENGTH_MAX {
            return Err(wrong(&"--json writes hashes of at most 1 MiB: take a smaller --length"));
        }
        if args.no_mmap && args.engine == Some(EngineKind::Mmap) {
            return Err(wrong(&"--no-mmap and --engine mmap contradict each other"));
        }
        args.of_algorithms().map_err(|what| wrong(&what))?;
        args.fits().map_err(|error| wrong(&error))?;
        Ok(args)
    }

    /// What goes with which digests.
    fn of_algorithms(&self) -> Result<(), &'static str> {
        let algorithms = self.algorithms();
        let has = |name: &str| algorithms.as_slice().iter().any(|other| other.name() == name);
        let is_long = |most| self.length.is_some_and(|bytes| bytes == 0 || bytes > most);
        match self {
            Args { raw: true, .. } if algorithms.as_slice().len() > 1 => {
                Err("--raw takes one --algorithm: raw bytes of several could not be told apart")
            }
            _ if algorithms.is_blake3() => Ok(()),
            Args { keyed: true, .. } | Args { derive_key: Some(_), .. } if !has("blake3") => {
                Err("--keyed and --derive-key are modes of BLAKE3: add -a blake3")
            }
            Args { seek: 1.., .. } if !has("blake3") => {
                Err("--seek is of the output of BLAKE3: add -a blake3")
            }
            Args { length: Some(_), .. } if !has("blake3") && !has("blake2b") => {
                Err("--length is of BLAKE3 and blake2b; the others have one length each")
            }
            _ if has("blake2b") && is_long(64) => Err("blake2b has a --length from 1 to 64"),
            Args { index: Some(_), .. } => Err("--index remembers BLAKE3, and nothing else"),
            Args { tree_digest: true, .. } => Err("--tree-digest is made of BLAKE3 alone"),
            _ => Ok(()),
        }
    }

    /// Whether what is asked for is in its ranges, and fits into the memory that is allowed.
    fn fits(&self) -> Result<(), String> {
        let config = self.config(None);
        config.validate().map_err(|error| error.to_string())?;
        let Some(memory) = self.memory.filter(|_| self.reads_many()) else { return Ok(()) };
        let budget = Budget::of(&config);
        let most = budget.jobs_max();
        if self.jobs.is_some_and(|jobs| jobs as usize > most) {
            return Err(format!("--memory has room for --jobs {most} at most"));
        }
        // The least part that any file of many is read with.
        let least = budget.alone(&config);
        let part = memory.div_ceil(least.memory_bytes.unwrap_or(memory).max(1));
        least.validate().map_err(|error| {
            format!("of many files, some have 1/{part} of the --memory for their blocks: {error}")
        })
    }

    /// The line `ringsum NAME...`, without any option. To build and run the whole parser for it takes
    /// a tenth of the time in which a small file is hashed (measured: see the README).
    pub(crate) fn of_names_alone(line: &[OsString]) -> Option<Args> {
        let names = line.get(1..)?;
        let is_name = |name: &OsString| match name.as_encoded_bytes() {
            b"-" => true,
            [first, ..] => *first != b'-',
            [] => false,
        };
        let is_plain = names.iter().all(is_name);
        is_plain.then(|| Args::of_files(names.iter().map(PathBuf::from).collect()))
    }

    /// What a line of names is, without any option.
    pub(crate) fn of_files(files: Vec<PathBuf>) -> Args {
        Args {
            guise: None,
            files,
            algorithm: Vec::new(),
            keyed: false,
            derive_key: None,
            length: None,
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
            report_extra: Vec::new(),
            recursive: false,
            files_from: None,
            allow_special: false,
            null: false,
            zero: false,
            follow: false,
            one_file_system: false,
            include: Vec::new(),
            exclude: Vec::new(),
            gitignore: false,
            unordered: false,
            jobs: None,
            json: false,
            tree_digest: false,
            index: None,
            verify_index: false,
            pass_through: None,
            tee: Vec::new(),
            output: None,
            retry_changed: 0,
            map_errors: false,
            strict: false,
            lenient: false,
            warn: false,
            binary: false,
            text: false,
            explain: false,
            stats: None,
            trace: None,
            progress: When::Auto,
            engine: None,
            cache: None,
            block_size: None,
            depth: None,
            slots: None,
            workers: None,
            memory: None,
            limit_rate: None,
            io_priority: None,
            medium: false,
            no_tuned: false,
            pool_threads: None,
            in_order: false,
            spin: false,
            consume: ConsumeArg::Each,
            huge_pages: HugePagesArg::Advise,
            io_drain: false,
            io_link: false,
            sqpoll: None,
            sqpoll_cpu: None,
            iopoll: false,
            fixed_buffers: false,
            fixed_file: false,
        }
    }
}
