//! `ringsum --check LIST...`: hashes what the lists name, and compares.
//!
//! Lines on standard output are b3sum's, warnings at the end are GNU's. Both are specified in
//! `docs/check-format.md`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringsum::Digest;
use ringsum::checkfile::{self, Entry, LINE_BYTES_MAX};

use crate::Status;
use crate::hash::length;
use crate::inputs::Patient;
use crate::output::OutputError;
use crate::session::Session;

/// A UTF-8 byte order mark, which some editors put at the start of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What came of the lines.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    matched: u64,
    mismatched: u64,
    unreadable: u64,
    malformed: u64,
    /// Lists that could not be read, or in which nothing could be checked.
    bad_lists: u64,
}

/// Checks every list; one that cannot be read gives a message, and the others go on.
pub(crate) fn run(mut session: Session<'_>) -> anyhow::Result<Status> {
    let lists: &[_] = match &*session.args.files {
        [] => &[Path::new("-").to_owned()],
        lists => lists,
    };
    session.progress.expect(|| lists.iter().map(|list| listed_bytes(list)).sum());
    let mut counts = Counts::default();
    let checked = lists.iter().try_for_each(|list| check_list(&mut session, list, &mut counts));
    session.finish()?;
    let reader_left = match checked {
        Ok(()) => false,
        // What was found until then still counts.
        Err(error) if error.reader_left() => true,
        Err(error) => return Err(error.into()),
    };
    if !session.args.status && !reader_left {
        warn(&session, &counts);
    }
    let malformed = if session.args.lenient { 0 } else { counts.malformed };
    let bad = counts.mismatched + counts.unreadable + counts.bad_lists + malformed;
    Ok(if bad == 0 { Status::Success } else { Status::Failure })
}

fn check_list(
    session: &mut Session<'_>,
    list: &Path,
    counts: &mut Counts,
) -> Result<(), OutputError> {
    let name = list.as_os_str().as_bytes();
    let file = match session.inputs.open_list(list) {
        Ok(file) => file,
        Err(error) => {
            counts.bad_lists += 1;
            session.progress.suspend(|| session.messages.say_of(name, &error));
            return Ok(());
        }
    };
    let before = *counts;
    let mut has_entries = false;
    let mut lines = Lines::new(file);
    loop {
        match lines.next() {
            Ok(None) => break,
            Ok(Some((number, line))) => {
                has_entries |= check_line(session, name, number, line, counts)?;
            }
            Err(error) => {
                counts.bad_lists += 1;
                session.progress.suspend(|| session.messages.say_of(name, &error));
                return Ok(());
            }
        }
    }
    let compared = counts.matched + counts.mismatched - before.matched - before.mismatched;
    if compared == 0 && counts.unreadable == before.unreadable {
        counts.bad_lists += 1;
        // As GNU: --status hides that all files are missing, but not that this is no list.
        if !session.args.status || !has_entries {
            session.progress.suspend(|| session.messages.say_of(name, &"no file was verified"));
        }
    }
    Ok(())
}

/// The lines of a list with their numbers, from 1.
struct Lines {
    reader: BufReader<Patient>,
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    fn new(file: File) -> Lines {
        Lines { reader: BufReader::new(Patient(file)), line: Vec::new(), number: 0 }
    }

    fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        self.line.clear();
        // One byte more than is allowed, so that a line that is too long shows.
        let most = LINE_BYTES_MAX as u64 + 1;
        if self.reader.by_ref().take(most).read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        if self.line.len() > LINE_BYTES_MAX && self.line.last() != Some(&b'\n') {
            self.reader.skip_until(b'\n')?;
        }
        self.number += 1;
        let line = &self.line[..];
        let first = self.number == 1;
        let line = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| first).unwrap_or(line);
        Ok(Some((self.number, line)))
    }
}

/// Returns whether the line names a file.
fn check_line(
    session: &mut Session<'_>,
    list: &[u8],
    number: u64,
    line: &[u8],
    counts: &mut Counts,
) -> Result<bool, OutputError> {
    let entry = match checkfile::parse(line) {
        Ok(None) => return Ok(false),
        Ok(Some(entry)) => entry,
        Err(why) => {
            counts.malformed += 1;
            let args = session.args;
            // What makes the check fail is named; what is only counted is named on demand, as by GNU.
            if args.warn || (!args.lenient && !args.status) {
                let text = format!("{number}: improperly formatted BLAKE3 checksum line: {why}");
                session.progress.suspend(|| session.messages.say_of(list, &text));
            }
            return Ok(false);
        }
    };
    check_entry(session, &entry, counts)?;
    Ok(true)
}

fn check_entry(
    session: &mut Session<'_>,
    entry: &Entry<'_>,
    counts: &mut Counts,
) -> Result<(), OutputError> {
    match session.digest(Path::new(OsStr::from_bytes(&entry.name))) {
        Err(error) if error.is_missing() && session.args.ignore_missing => Ok(()),
        Err(error) => {
            counts.unreadable += 1;
            let reason = error.reason();
            if session.args.status {
                session.progress.suspend(|| session.messages.say_of(&entry.name, &reason));
            }
            verdict(session, entry, &format!("FAILED ({reason})"))
        }
        Ok(digest) if is_expected(&digest, session.args.seek, &entry.digest) => {
            counts.matched += 1;
            match session.args.quiet {
                true => Ok(()),
                false => verdict(session, entry, "OK"),
            }
        }
        Ok(_) => {
            counts.mismatched += 1;
            verdict(session, entry, "FAILED")
        }
    }
}

/// Compares as many bytes as the line has, from `seek` on, in constant time as far as is possible for
/// a length that is not known beforehand.
fn is_expected(digest: &Digest, seek: u64, expected: &[u8]) -> bool {
    let mut found = vec![0; expected.len()];
    let mut reader = digest.reader();
    reader.set_position(seek);
    reader.fill(&mut found);
    found.iter().zip(expected).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

/// `NAME: VERDICT` on standard output, with the name as the line has it.
fn verdict(session: &Session<'_>, entry: &Entry<'_>, text: &str) -> Result<(), OutputError> {
    if session.args.status {
        return Ok(());
    }
    let line = [&session.output.name(&entry.listed), &b": "[..], text.as_bytes(), b"\n"].concat();
    session.progress.suspend(|| session.output.write(&line))
}

/// GNU's closing words.
fn warn(session: &Session<'_>, counts: &Counts) {
    let say = |n: u64, one: &str, many: &str| match n {
        0 => {}
        1 => session.messages.say(&format_args!("WARNING: 1 {one}")),
        n => session.messages.say(&format_args!("WARNING: {n} {many}")),
    };
    say(counts.malformed, "line is improperly formatted", "lines are improperly formatted");
    say(counts.unreadable, "listed file could not be read", "listed files could not be read");
    say(counts.mismatched, "computed checksum did NOT match", "computed checksums did NOT match");
}

/// Bytes that a list will take to check. A list that can be read only once tells nothing beforehand.
fn listed_bytes(list: &Path) -> Option<u64> {
    let is_file = std::fs::metadata(list).is_ok_and(|metadata| metadata.is_file());
    let mut lines = Lines::new(is_file.then(|| File::open(list).ok()).flatten()?);
    let mut bytes = 0_u64;
    while let Ok(Some((_, line))) = lines.next() {
        if let Ok(Some(entry)) = checkfile::parse(line) {
            let name = Path::new(OsStr::from_bytes(&entry.name));
            bytes = length(name)?.saturating_add(bytes);
        }
    }
    Some(bytes)
}
