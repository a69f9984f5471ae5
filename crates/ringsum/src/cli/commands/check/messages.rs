//! What is said of lists: in words of our own, or of the tool that this was invoked as.

use super::Counts;
use crate::args::Args;
use crate::session::Session;

/// What is said of a malformed line. What makes the check fail is named; what is only counted is named on demand,
/// as by GNU.
pub(super) fn malformed(args: &Args, number: u64, why: &str) -> Option<String> {
    match args.guise {
        Some(guise) => args
            .warn
            .then(|| format!("{number}: improperly formatted {} checksum line", guise.noun())),
        None => (args.warn || (!args.lenient && !args.status))
            .then(|| format!("{number}: improperly formatted checksum line: {why}")),
    }
}

/// What is said of a list of which nothing was verified; `is_none`: there was nothing in it to verify.
pub(super) fn not_verified(args: &Args, is_none: bool) -> &'static str {
    match args.guise {
        Some(guise) if is_none && guise.is_xxhsum => {
            "no properly formatted xxHash checksum lines found"
        }
        Some(_) if is_none => "no properly formatted checksum lines found",
        _ => "no file was verified",
    }
}

/// What a list is called.
pub(super) fn list_name<'l>(args: &Args, list: &'l [u8]) -> &'l [u8] {
    match (args.guise, list) {
        (Some(_), b"-") => b"'standard input'",
        _ => list,
    }
}

/// The closing words.
pub(super) fn warn(session: &Session<'_>, counts: &Counts) {
    let say = |n: u64, one: &str, many: &str| match n {
        0 => {}
        1 => session.messages.say(&format_args!("WARNING: 1 {one}")),
        n => session.messages.say(&format_args!("WARNING: {n} {many}")),
    };
    say(counts.malformed, "line is improperly formatted", "lines are improperly formatted");
    say(counts.unreadable, "listed file could not be read", "listed files could not be read");
    say(
        counts.changed,
        "listed file changed while it was read",
        "listed files changed while they were read",
    );
    say(counts.mismatched, "computed checksum did NOT match", "computed checksums did NOT match");
    say(counts.extra, "file is in no list", "files are in no list");
}
