//! Messages about checksum files: our own, or those of the tool that the command was invoked as.

use ringsum::Algorithm;

use super::CheckCounts;
use crate::cli::args::Args;
use crate::cli::inputs::lines::ListedFile;
use crate::cli::session::Session;

/// Most malformed lines of one checksum file that are reported individually, because a binary file
/// has millions. With `--warn` all are.
const MALFORMED_MAX: u64 = 10;

/// Most missing files whose lines are reported: all others have their verdicts.
const MISSING_MAX: u64 = 10;

/// Shortest digest of BLAKE3 that a checksum file may have.
const SHORTEST_BLAKE3_BYTES: usize = 16;

/// Returns the message about a malformed line, the `count`-th of its list. Lines that make the
/// check fail are reported; lines that are only counted are reported on demand, as in GNU tools.
pub(super) fn malformed(args: &Args, number: u64, count: u64, why: &str) -> Option<String> {
    match args.applet {
        Some(applet) => args
            .warn
            .then(|| format!("{number}: improperly formatted {} checksum line", applet.noun())),
        None if args.warn => Some(format!("{number}: improperly formatted checksum line: {why}")),
        None if args.lenient || args.status || count > MALFORMED_MAX => None,
        None => Some(format!("{number}: improperly formatted checksum line: {why}")),
    }
}

/// Returns the message about the `count`-th missing file: where it is listed. Its verdict says the
/// rest. b3sum prints no such message, and other tools one without the line.
pub(super) fn missing(args: &Args, listed: &ListedFile, count: u64) -> Option<String> {
    let is_quiet = args.applet.is_some() || args.status || args.json || count > MISSING_MAX;
    let name = String::from_utf8_lossy(&listed.line.listed);
    (!is_quiet).then(|| format!("{}: {name} is missing", listed.number))
}

/// Returns the names of the other algorithms whose digests have this length; BLAKE2b and BLAKE3 have
/// many.
pub(super) fn others_of(algorithm: Algorithm, bytes: usize) -> String {
    let fitting = |other: Algorithm| match (other, u8::try_from(bytes)) {
        (Algorithm::Blake2b(longest), Ok(bytes @ 1..)) if bytes <= longest => {
            Some(Algorithm::Blake2b(bytes))
        }
        (Algorithm::Blake3, _) if bytes >= SHORTEST_BLAKE3_BYTES => Some(other),
        _ => (other.bytes() == bytes).then_some(other),
    };
    let others = Algorithm::ALL.into_iter().filter(|other| other.name() != algorithm.name());
    let names: Vec<_> = others.filter_map(fitting).map(|other| other.to_string()).collect();
    match names.split_last() {
        Some((end, rest)) if !rest.is_empty() => format!("{} or {end}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// Returns the message about malformed lines of a list that were not reported individually.
pub(super) fn more_malformed(args: &Args, count: u64) -> Option<String> {
    let is_quiet = args.applet.is_some() || args.warn || args.lenient || args.status;
    let more = count.checked_sub(MALFORMED_MAX).filter(|more| *more > 0 && !is_quiet)?;
    let lines = if more == 1 { "line" } else { "lines" };
    Some(format!("{more} more improperly formatted checksum {lines}; --warn reports all of them"))
}

/// Returns the message about a list with no verified file. `is_empty`: it names no file.
pub(super) fn not_verified(args: &Args, is_empty: bool) -> &'static str {
    match args.applet {
        Some(applet) if is_empty && applet.is_xxhsum => {
            "no properly formatted xxHash checksum lines found"
        }
        Some(_) if is_empty => "no properly formatted checksum lines found",
        _ => "no file was verified",
    }
}

/// Returns the name of a list in messages.
pub(super) fn list_name<'l>(args: &Args, list: &'l [u8]) -> &'l [u8] {
    match (args.applet, list) {
        (Some(_), b"-") => b"'standard input'",
        _ => list,
    }
}

/// Prints the closing warnings.
pub(super) fn warn(session: &Session<'_>, counts: &CheckCounts) {
    let say = |n: u64, one: &str, many: &str| match n {
        0 => {}
        1 => session.say(&format_args!("WARNING: 1 {one}")),
        n => session.say(&format_args!("WARNING: {n} {many}")),
    };
    say(counts.malformed, "line is improperly formatted", "lines are improperly formatted");
    say(counts.unreadable, "listed file could not be read", "listed files could not be read");
    say(
        counts.changed,
        "listed file changed while it was read",
        "listed files changed while they were read",
    );
    say(counts.mismatched, "computed checksum did NOT match", "computed checksums did NOT match");
    say(counts.unlisted, "file is unlisted", "files are unlisted");
}
