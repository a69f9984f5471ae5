//! Parses a command line to values that do not contradict each other.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use blockring::EngineKind;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};
use ringsum::Algorithm;

use super::Args;

/// Longest hash in a JSON object, in bytes: objects are built in memory.
const JSON_LENGTH_MAX: u64 = 1 << 20;

impl Args {
    /// Parses and checks a whole command line, including the program's name.
    ///
    /// # Errors
    ///
    /// The error message; or the help or version text, which is not an error.
    pub(crate) fn parse_from_line(line: Vec<OsString>) -> Result<Args, clap::Error> {
        if let Some(args) = Args::of_names_alone(&line) {
            return Ok(args);
        }
        let mut command = Args::command();
        let program = line.first().map_or(Path::new(""), Path::new);
        if program.file_name() == Some("b3sum".as_ref()) {
            let version = concat!(env!("CARGO_PKG_VERSION"), " (ringsum)");
            command = command.name("b3sum").version(version);
        }
        let args = Args::from_arg_matches(&command.try_get_matches_from(line)?)?;
        let wrong = |what: &dyn Display| Args::command().error(ErrorKind::ValueValidation, what);
        args.check_combinations().map_err(|what| wrong(&what))?;
        args.check_algorithms().map_err(|what| wrong(&what))?;
        Ok(args)
    }

    /// Checks rules that the parser does not cover.
    fn check_combinations(&self) -> Result<(), String> {
        let has_names = !self.files.is_empty() || self.recursive;
        let reads_stdin =
            |path: &Option<PathBuf>| path.as_ref().is_some_and(|path| path.as_os_str() == "-");
        let has_files = has_names || self.files_from.is_some();
        // (Here, because the parser's message names only the option that is missing.)
        let walks = self.recursive || !self.report_unlisted.is_empty();
        let needs = [
            (self.quiet, "--quiet", self.check, "--check"),
            (self.status, "--status", self.check, "--check"),
            (self.ignore_missing, "--ignore-missing", self.check, "--check"),
            (self.strict, "--strict", self.check, "--check"),
            (self.lenient, "--lenient", self.check, "--check"),
            (self.warn, "--warn", self.check, "--check"),
            (!self.report_unlisted.is_empty(), "--report-unlisted", self.check, "--check"),
            (!self.include.is_empty(), "--include", walks, "-r/--recursive"),
            (!self.exclude.is_empty(), "--exclude", walks, "-r/--recursive"),
            (self.gitignore, "--gitignore", walks, "-r/--recursive"),
            (self.follow, "-L/--follow", walks, "-r/--recursive"),
            (self.one_file_system, "-x/--one-file-system", walks, "-r/--recursive"),
            (self.max_depth.is_some(), "--max-depth", walks, "-r/--recursive"),
            (self.tree_digest, "--tree-digest", self.recursive, "-r/--recursive"),
            (self.null, "-0/--null", self.files_from.is_some(), "--files-from"),
            (self.verify_index, "--verify-index", self.index.is_some(), "--index"),
        ];
        let unmet = needs.iter().find(|(is_set, _, is_met, _)| *is_set && !is_met);
        if let Some((_, option, _, needed)) = unmet {
            return Err(format!("{option} needs {needed}"));
        }
        let io = |keys: &[&str]| self.io.iter().find_map(|options| options.first_of(keys));
        if self.list_bad_ranges
            && let Some(key) =
                io(&["engine", "block-size", "queue-depth", "slots", "workers", "order"])
        {
            return Err(format!(
                "--list-bad-ranges reads in pieces of 1 MiB: leave out --io {key}"
            ));
        }
        if self.num_threads.is_some() && io(&["workers"]).is_some() {
            return Err("--num-threads and --io workers contradict each other".to_owned());
        }
        if io(&["sqpoll-cpu"]).is_some() && io(&["sqpoll"]).is_none() {
            return Err("--io sqpoll-cpu is the processor of sqpoll: add sqpoll=0".to_owned());
        }
        if self.copies() && io(&["order"]).is_some() {
            return Err("--pass-through and --tee copy in order: leave out --io order".to_owned());
        }
        let config = self.config();
        let is_subtree = |bytes: u32| bytes.is_power_of_two() && bytes >= 1024;
        let what = match () {
            () if self.raw && self.files.len() > 1 => {
                Err("--raw takes a single FILE: the raw bytes of several could not be told apart")
            }
            () if self.keyed && (!has_files || reads_stdin(&self.files_from)) => {
                Err("--keyed reads the key from standard input: name the FILEs to hash")
            }
            () if self.copies() && self.files.len() > 1 => {
                Err("--pass-through and --tee take a single FILE, or standard input")
            }
            () if self.copies() && !config.io.block_bytes.is_none_or(is_subtree) => {
                Err("--pass-through and --tee need a block-size of 2^k KiB")
            }
            () if self.json && self.blake3_bytes() > JSON_LENGTH_MAX => {
                Err("--json writes hashes of at most 1 MiB: use a smaller --length")
            }
            () if self.no_mmap && config.io.engine == Some(EngineKind::Mmap) => {
                Err("--no-mmap and --io engine=mmap contradict each other")
            }
            () => Ok(()),
        };
        what.map_err(str::to_owned)
    }

    /// Checks which options apply to which algorithms.
    fn check_algorithms(&self) -> Result<(), &'static str> {
        let algorithms = self.algorithms();
        let has = |name: &str| algorithms.iter().any(|other| other.name() == name);
        let is_long = |most| self.length.is_some_and(|bytes| bytes == 0 || bytes > most);
        match self {
            Args { raw: true, .. } if algorithms.len() > 1 => {
                Err("--raw takes one --algorithm: the raw bytes of several could not be told apart")
            }
            _ if *algorithms == [Algorithm::Blake3] => Ok(()),
            Args { keyed: true, .. } | Args { derive_key: Some(_), .. } if !has("blake3") => {
                Err("--keyed and --derive-key are modes of BLAKE3: add -a blake3")
            }
            Args { seek: 1.., .. } if !has("blake3") => {
                Err("--seek applies to the output of BLAKE3: add -a blake3")
            }
            Args { length: Some(_), .. } if !has("blake3") && !has("blake2b") => {
                Err("--length applies to blake3 and blake2b; the others have one length each")
            }
            _ if has("blake2b") && is_long(64) => Err("blake2b has a --length from 1 to 64"),
            Args { index: Some(_), .. } => Err("--index caches BLAKE3 only"),
            Args { tree_digest: true, .. } => Err("--tree-digest supports BLAKE3 only"),
            _ => Ok(()),
        }
    }

    /// Parses the line `ringsum NAME...` without options; `None` for any other. Building and
    /// running the whole parser for it takes 0.2 ms, where a process that hashes a 1,000-byte file
    /// takes 1.0 ms.
    pub(crate) fn of_names_alone(line: &[OsString]) -> Option<Args> {
        let names = line.get(1..)?;
        let is_name = |name: &OsString| match name.as_encoded_bytes() {
            b"-" => true,
            name => !name.starts_with(b"-"),
        };
        let files = names.iter().map(PathBuf::from).collect();
        names.iter().all(is_name).then(|| Args { files, ..Args::default() })
    }
}
