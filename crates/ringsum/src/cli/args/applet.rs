//! Applets: invoked through a link with the name of another tool (`sha256sum`, `md5sum`, `b2sum`,
//! `xxhsum`, ...), the command takes that tool's options and prints its messages (differences:
//! `docs/compatibility.md`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};
use ringsum::Algorithm;
use ringsum::checkfile::{LineEnd, Reader};

use super::Args;
use super::values::AlgorithmList;

/// Another tool that the command stands in for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Applet {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its default algorithm.
    algorithm: Algorithm,
    /// Whether it selects one of several algorithms with `-H`.
    pub(crate) is_xxhsum: bool,
    /// Whether it prints, and reads without a tag, the bytes of digests in reverse order.
    pub(crate) is_little_endian: bool,
}

const XXHASHES: [Algorithm; 4] =
    [Algorithm::Xxh64, Algorithm::Xxh32, Algorithm::Xxh128, Algorithm::Xxh3];

/// The names of the tools, and their default algorithms.
const APPLETS: [(&str, Algorithm); 12] = [
    ("sha256sum", Algorithm::Sha256),
    ("sha512sum", Algorithm::Sha512),
    ("sha384sum", Algorithm::Sha384),
    ("sha224sum", Algorithm::Sha224),
    ("sha1sum", Algorithm::Sha1),
    ("md5sum", Algorithm::Md5),
    ("b2sum", Algorithm::Blake2b(64)),
    ("xxhsum", Algorithm::Xxh64),
    ("xxh32sum", Algorithm::Xxh32),
    ("xxh64sum", Algorithm::Xxh64),
    ("xxh128sum", Algorithm::Xxh128),
    ("xxh3sum", Algorithm::Xxh3),
];

/// Returns a text in the quotation marks of GNU tools: those of the locale.
fn quoted(text: &str) -> String {
    // (As in the C library, the first one that is not empty counts.)
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(std::env::var_os);
    let locale = locale.map(|name| name.to_string_lossy().to_ascii_lowercase());
    let locale = locale.filter(|name| !name.is_empty()).map(|name| name.replace('-', "")).next();
    match locale.is_some_and(|name| name.contains(".utf8")) {
        true => format!("‘{text}’"),
        false => format!("'{text}'"),
    }
}

/// Returns the message about a wrong command line. `name`: that of the program.
fn wrong(name: &str, what: &str) -> Parsed {
    let mut text: String = what.lines().map(|line| format!("{name}: {line}\n")).collect();
    // (GNU tools do not print this for a value out of range.)
    if !what.starts_with("invalid length") {
        text.push_str(&format!("Try '{name} --help' for more information.\n"));
    }
    Parsed::Wrong(text)
}

/// Returns the length in bytes of BLAKE2b for a number of bits, with 0 for the default; or why
/// there is none, in the words of GNU tools.
fn bytes_of_bits(text: &str) -> Result<Option<u64>, String> {
    let shown = quoted(text);
    // (As `strtoumax` reads a number, but without its minus sign.)
    let digits = text.trim_ascii_start();
    let digits = digits.strip_prefix('+').unwrap_or(digits);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("invalid length: {shown}"));
    }
    let Ok(bits) = digits.parse::<u64>() else {
        return Err(format!("invalid length: {shown}: Value too large for defined data type"));
    };
    match bits {
        0 => Ok(None),
        bits if bits % 8 != 0 => {
            Err(format!("invalid length: {shown}\nlength is not a multiple of 8"))
        }
        513.. => {
            let name = quoted("BLAKE2b");
            Err(format!("invalid length: {shown}\nmaximum digest length for {name} is 512 bits"))
        }
        bits => Ok(Some(bits / 8)),
    }
}

/// A parsed command line.
pub(crate) enum Parsed {
    Args(Box<Args>),
    /// Help or version text, for standard output.
    Text(String),
    /// The error message.
    Wrong(String),
}

impl Applet {
    /// Returns the tool that the command was invoked as; `None` for ringsum itself, and for b3sum.
    pub(crate) fn of(program: &OsStr) -> Option<Applet> {
        let name = program.as_bytes().rsplit(|&byte| byte == b'/').next()?;
        let (name, algorithm) = APPLETS.into_iter().find(|(tool, _)| tool.as_bytes() == name)?;
        let is_xxhsum = name.starts_with("xxh");
        Some(Applet { name, algorithm, is_xxhsum, is_little_endian: false })
    }

    /// Returns a reader for its checksum files.
    pub(crate) fn reader(&self) -> Reader {
        if self.is_xxhsum {
            // (It writes XXH3 with a tag, or with a prefix before the digits.)
            let untagged = [Algorithm::Xxh64, Algorithm::Xxh32, Algorithm::Xxh128];
            return Reader::new(&untagged, &XXHASHES, None, LineEnd::Newline);
        }
        let reader = Reader::new(&[], &[self.algorithm], None, LineEnd::Newline);
        match self.algorithm {
            Algorithm::Blake2b(longest) => reader.gnu(1..=longest.into()),
            other => reader.gnu(other.bytes()..=other.bytes()),
        }
    }

    /// Returns the tool's name for its algorithm.
    pub(crate) fn noun(&self) -> String {
        if self.is_xxhsum { "xxHash".to_owned() } else { self.algorithm.to_string() }
    }

    /// Returns the tool's name for standard input in checksum lines.
    pub(crate) fn stdin_name(&self) -> &'static [u8] {
        if self.is_xxhsum { b"stdin" } else { b"-" }
    }

    /// Whether a name in a checksum file is the tool's name for standard input, apart from `-`.
    pub(crate) fn is_stdin(&self, name: &[u8]) -> bool {
        self.is_xxhsum && name == self.stdin_name()
    }

    /// Parses and checks a command line of the tool, including the program's name.
    pub(crate) fn parse(self, line: Vec<OsString>) -> Parsed {
        if let Some(mut args) = Args::of_names_alone(&line) {
            args.algorithm = vec![AlgorithmList(vec![self.algorithm])];
            return Parsed::Args(Box::new(self.args(args)));
        }
        let text = |word: Option<&OsString>| {
            word.map(|word| word.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let (program, last) = (text(line.first()), text(line.last()));
        let name = if self.is_xxhsum { self.name } else { &*program };
        let matches = match self.command().try_get_matches_from(line) {
            Ok(matches) => matches,
            Err(error) if !error.use_stderr() => return Parsed::Text(error.to_string()),
            Err(error) => return wrong(name, &self.what_is_wrong(&error, &last)),
        };
        match self.args_of(&matches) {
            Ok(args) => Parsed::Args(Box::new(args)),
            Err(what) => wrong(name, &what),
        }
    }
    /// Sets the fields that are the same for all its command lines.
    fn args(self, args: Args) -> Args {
        // (Malformed lines fail only with --strict.)
        Args { applet: Some(self), lenient: !args.strict, ..args }
    }

    fn command(&self) -> Command {
        let flag = |name: &'static str, help| {
            Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
        };
        let mut command = Command::new(self.name)
            .version(concat!("(ringsum) ", env!("CARGO_PKG_VERSION")))
            .about(format!(
                "Print or check {} checksums\n\nWith no FILE, or when FILE is -, read standard input.",
                self.noun()
            ))
            .args_override_self(true)
            .infer_long_args(true)
            .after_help("This is ringsum, invoked by that name; what differs is in docs/compatibility.md.")
            .arg(Arg::new("files").value_name("FILE").num_args(0..).value_parser(clap::value_parser!(OsString)))
            .arg(flag("check", "read checksums from the FILEs and check them").short('c'))
            .arg(flag("tag", "create a BSD-style checksum"))
            .arg(flag("status", "with --check, print nothing; report the result in the exit status").overrides_with_all(["quiet", "warn"]))
            .arg(flag("strict", "with --check, exit non-zero for improperly formatted lines"));
        let quiet =
            flag("quiet", "with --check, don't print OK for each successfully verified file");
        let quiet = quiet.overrides_with_all(["status", "warn"]);
        let warn = flag("warn", "with --check, warn about improperly formatted lines");
        let warn = warn.overrides_with_all(["status", "quiet"]);
        if self.is_xxhsum {
            let ignore_missing = flag("ignore-missing", "with --check, ignore missing files");
            let little_endian =
                flag("little-endian", "print and read digests with their bytes in reverse order");
            return command
                .arg(quiet.short('q'))
                .arg(warn)
                .arg(ignore_missing)
                .arg(little_endian)
                .arg(
                Arg::new("algorithm")
                    .short('H')
                    .value_name("N")
                    .value_parser(["0", "1", "2", "3", "32", "64", "128"])
                    .help(
                        "algorithm: 0 or 32, 1 or 64 (the default of xxhsum), 2 or 128, 3 for XXH3",
                    ),
            );
        }
        if matches!(self.algorithm, Algorithm::Blake2b(_)) {
            let length = Arg::new("length")
                .short('l')
                .long("length")
                .value_name("BITS")
                .allow_hyphen_values(true);
            command = command.arg(length.help("digest length in bits: a multiple of 8, up to 512"));
        }
        command
            .arg(quiet)
            .arg(warn.short('w'))
            .arg(
                flag("binary", "read in binary mode (marks lines with *)")
                    .short('b')
                    .overrides_with("text"),
            )
            .arg(
                flag("text", "read in text mode (the default)").short('t').overrides_with("binary"),
            )
            .arg(flag("zero", "end each line with NUL, and do not escape names").short('z'))
            .arg(flag("ignore-missing", "with --check, ignore missing files"))
    }

    fn args_of(self, matches: &ArgMatches) -> Result<Args, String> {
        let has =
            |name: &str| matches.try_get_one::<bool>(name).ok().flatten().copied().unwrap_or(false);
        let check = has("check");
        for option in ["ignore-missing", "status", "warn", "quiet", "strict"] {
            if has(option) && !check && !self.is_xxhsum {
                return Err(format!(
                    "the --{option} option is meaningful only when verifying checksums"
                ));
            }
        }
        let conflicts = [
            (has("tag") && has("text"), "--tag does not support --text mode"),
            (has("zero") && check, "the --zero option is not supported when verifying checksums"),
            (has("tag") && check, "the --tag option is meaningless when verifying checksums"),
            (
                (has("binary") || has("text")) && check,
                "the --binary and --text options are meaningless when verifying checksums",
            ),
        ];
        if let Some((_, why)) = conflicts.into_iter().find(|(is_there, _)| *is_there) {
            return Err(why.to_owned());
        }
        let files = matches.get_many::<OsString>("files").into_iter().flatten();
        let files = files.map(PathBuf::from).collect();
        let applet = Applet { is_little_endian: has("little-endian"), ..self };
        Ok(applet.args(Args {
            algorithm: vec![AlgorithmList(vec![self.algorithm_of(matches)])],
            length: self.length_of(matches)?,
            check,
            tag: has("tag"),
            quiet: has("quiet"),
            status: has("status"),
            warn: has("warn"),
            strict: has("strict"),
            ignore_missing: has("ignore-missing"),
            zero: has("zero"),
            binary: has("binary"),
            files,
            ..Args::default()
        }))
    }

    fn algorithm_of(&self, matches: &ArgMatches) -> Algorithm {
        let asked = matches.try_get_one::<String>("algorithm").ok().flatten();
        match asked.map(String::as_str) {
            Some("0" | "32") => Algorithm::Xxh32,
            Some("1" | "64") => Algorithm::Xxh64,
            Some("2" | "128") => Algorithm::Xxh128,
            Some("3") => Algorithm::Xxh3,
            _ => self.algorithm,
        }
    }

    /// Returns the digest length of b2sum in bytes, if requested. (0 bits mean the default.)
    fn length_of(&self, matches: &ArgMatches) -> Result<Option<u64>, String> {
        let asked = matches.try_get_one::<String>("length").ok().flatten();
        asked.map_or(Ok(None), |text| bytes_of_bits(text))
    }

    /// Describes a command-line error in the words of GNU tools. `last`: the last argument.
    fn what_is_wrong(&self, error: &clap::Error, last: &str) -> String {
        let named = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(named)) => named.as_str(),
            _ => "",
        };
        match (error.kind(), named.strip_prefix("--"), named.strip_prefix('-')) {
            (ErrorKind::UnknownArgument, Some(start), _) => match &self.possible(start)[..] {
                possible @ [_, _, ..] => {
                    format!("option '{named}' is ambiguous; possibilities: {}", possible.join(" "))
                }
                _ => format!("unrecognized option '{named}'"),
            },
            (ErrorKind::UnknownArgument, None, Some(letter)) => {
                format!("invalid option -- '{letter}'")
            }
            (ErrorKind::InvalidValue, _, _) if named.starts_with("--length") => {
                match last.starts_with("--") {
                    true => "option '--length' requires an argument".to_owned(),
                    false => "option requires an argument -- 'l'".to_owned(),
                }
            }
            (ErrorKind::TooManyValues, Some(_), _) => {
                format!("option '{named}' doesn't allow an argument")
            }
            _ => {
                let text = error.to_string();
                let first = text.split("\n\n").next().unwrap_or_default();
                let first = first.trim_start_matches("error: ");
                first.split_whitespace().collect::<Vec<_>>().join(" ")
            }
        }
    }

    /// Returns the long options that start with `start`, quoted.
    fn possible(&self, start: &str) -> Vec<String> {
        let mut command = self.command();
        command.build();
        let longs = command.get_arguments().filter_map(Arg::get_long);
        let mut longs: Vec<_> = longs.filter(|long| long.starts_with(start)).collect();
        longs.sort_unstable();
        longs.into_iter().map(|long| format!("'--{long}'")).collect()
    }
}
