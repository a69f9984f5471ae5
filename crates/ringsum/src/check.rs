//! `ringsum --check LIST...`: hashes what the lists name, and compares.
//!
//! Lines on standard output are b3sum's, warnings at the end are GNU's. Both are specified in
//! `docs/check-format.md`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;

use ringsum::Digest;
use ringsum::many::{Failure, Hashed, Outcome, Task, ToHash};

use crate::Status;
use crate::ahead::Ahead;
use crate::extra::{Listed, report_extra};
use crate::hash::{length, run_together};
use crate::json;
use crate::lines::{Line, Lines, OwnedEntry};
use crate::lists::lines_of;
use crate::output::OutputError;
use crate::session::Session;
use crate::trees::{self, Looked};

/// What came of the lines.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    matched: u64,
    mismatched: u64,
    unreadable: u64,
    /// Changed while they were read.
    changed: u64,
    malformed: u64,
    /// Lists that could not be read, or in which nothing could be checked.
    bad_lists: u64,
    /// Files that are in no list.
    extra: u64,
}

/// What is said of a line in its turn; of an entry with the reason, if its file could not even be looked
/// at, or is no file.
struct Said(Line, Option<Failure>);

/// Checks every list; one that cannot be read gives a message, and the others go on.
pub(crate) fn run(session: &Session<'_>) -> anyhow::Result<Status> {
    trees::raise_open_files();
    let default = [Path::new("-").to_owned()];
    let lists: &[_] = if session.args.files.is_empty() { &default } else { &session.args.files };
    count_ahead(session, lists);
    let mut checking = Checking::new(session);
    let mut checked = check_lists(session, lists, &mut checking);
    if checked.is_ok() && !session.args.report_extra.is_empty() {
        let listed = std::mem::take(&mut checking.listed);
        checked = report_extra(session, listed).map(|found| {
            checking.counts.extra = found.extra;
            checking.counts.unreadable += found.unreadable;
        });
    }
    session.finish()?;
    let reader_left = match checked {
        Ok(()) => false,
        // What was found until then still counts.
        Err(error) if error.downcast_ref().is_some_and(OutputError::reader_left) => true,
        Err(error) => return Err(error),
    };
    let counts = checking.counts;
    if !session.args.status && !reader_left {
        warn(session, &counts);
    }
    let malformed = if session.args.lenient { 0 } else { counts.malformed };
    let unread = counts.unreadable + counts.changed;
    let bad = counts.mismatched + unread + counts.bad_lists + malformed + counts.extra;
    Ok(if bad == 0 { Status::Success } else { Status::Failure })
}

fn check_lists(
    session: &Session<'_>,
    lists: &[PathBuf],
    checking: &mut Checking<'_>,
) -> anyhow::Result<()> {
    let shares = session.shares();
    // Some 30 lines are worth a thread that looks at files ahead of their turn.
    let bytes = |list: &Path| std::fs::metadata(list).map_or(u64::MAX, |metadata| metadata.len());
    let bytes = lists.iter().map(|list| bytes(list)).fold(0, u64::saturating_add);
    let threads = (bytes / 4096).min(7) as usize + 1;
    let lines = lists.iter().enumerate().flat_map(|(place, list)| lines_of(session, place, list));
    let ahead = Ahead::new(lines, bytes == u64::MAX);
    let told = thread::scope(|scope| {
        let looked = ahead.look(scope, threads, |line: Line| task_of(line, shares));
        run_together(session, looked, None, |outcome| checking.tell(outcome), &|| ())
    });
    Ok(told?)
}

/// Looks at the file that a line names.
fn task_of(line: Line, shares: bool) -> Task<Said> {
    let Line::Entry(entry) = &line else { return Task { tag: Said(line, None), file: None } };
    let (file, failure) = match trees::look(OsStr::from_bytes(&entry.name).into()) {
        Looked::File(file) => (Some(file), None),
        Looked::Directory(_) => (None, Some(io::Error::from_raw_os_error(libc::EISDIR))),
        Looked::Failed(_, error) => (None, Some(error)),
    };
    let file = file.map(|file| ToHash { is_regular: file.is_regular && shares, ..file });
    Task { tag: Said(line, failure.map(Failure::Open)), file }
}

/// What came of the entries of one list.
#[derive(Debug, Default)]
struct ListCounts {
    told: u64,
    /// Compared, or to be read in vain: not those that are passed over.
    verified: u64,
    /// Its name and its number of entries, once its end was met.
    end: Option<(Vec<u8>, u64)>,
}

/// What has been found so far.
struct Checking<'a> {
    session: &'a Session<'a>,
    counts: Counts,
    /// What came of each list, by its place.
    lists: HashMap<usize, ListCounts>,
    /// What files not in the lists are compared with.
    listed: Listed,
}

impl<'a> Checking<'a> {
    fn new(session: &'a Session<'a>) -> Checking<'a> {
        let (counts, lists) = (Counts::default(), HashMap::new());
        Checking { session, counts, lists, listed: Listed::default() }
    }

    fn tell(&mut self, outcome: Outcome<Said>) -> Result<(), OutputError> {
        let Outcome { task, result } = outcome;
        let Said(line, failure) = task.tag;
        match line {
            Line::Entry(entry) => {
                let result = match (result, failure) {
                    (Some(result), _) => result,
                    (None, Some(failure)) => Err(failure),
                    (None, None) => Err(Failure::Alone("it was not read".to_owned())),
                };
                self.compare(entry, result)
            }
            Line::Malformed { list, number, why } => {
                self.counts.malformed += 1;
                let args = self.session.args;
                // What makes the check fail is named; what is only counted is named on demand, as by GNU.
                if args.warn || (!args.lenient && !args.status) {
                    let text =
                        format!("{number}: improperly formatted BLAKE3 checksum line: {why}");
                    self.session.say_of(&list, &text);
                }
                Ok(())
            }
            Line::BadList { list, why } => {
                self.counts.bad_lists += 1;
                self.session.say_of(&list, &why);
                Ok(())
            }
            Line::End { list, place, entries } => {
                self.lists.entry(place).or_default().end = Some((list, entries));
                self.end_list(place);
                Ok(())
            }
        }
    }

    /// Judges a list, if that was all of it: without an order, its end may come first.
    fn end_list(&mut self, place: usize) {
        let counts = self.lists.get(&place);
        let Some(ListCounts { told, verified, end: Some((list, entries)) }) = counts else {
            return;
        };
        if told == entries && *verified == 0 {
            self.counts.bad_lists += 1;
            // As GNU: --status hides that all files are missing, but not that this is no list.
            if !self.session.args.status || *entries == 0 {
                self.session.say_of(list, &"no file was verified");
            }
        }
    }

    fn compare(
        &mut self,
        entry: OwnedEntry,
        result: Result<Hashed, Failure>,
    ) -> Result<(), OutputError> {
        let passed_over = self.session.args.ignore_missing;
        let passed_over = passed_over && result.as_ref().is_err_and(Failure::is_missing);
        let counts = self.lists.entry(entry.place).or_default();
        counts.told += 1;
        counts.verified += u64::from(!passed_over);
        let place = entry.place;
        let said = self.compare_entry(entry, result);
        self.end_list(place);
        said
    }

    fn compare_entry(
        &mut self,
        entry: OwnedEntry,
        result: Result<Hashed, Failure>,
    ) -> Result<(), OutputError> {
        let args = self.session.args;
        if !args.report_extra.is_empty() {
            let is_missing = result.as_ref().is_err_and(Failure::is_missing);
            self.listed.add(&entry, is_missing);
        }
        let hashed = match &result {
            Err(failure) if failure.is_missing() && args.ignore_missing => return Ok(()),
            Err(failure) => {
                match failure.change() {
                    Some(_) => self.counts.changed += 1,
                    None => self.counts.unreadable += 1,
                }
                if args.status && !args.json {
                    self.session.say_of(&entry.name, failure);
                }
                let status = if failure.is_missing() { "missing" } else { "unreadable" };
                return self.verdict(&entry, json::status_of(failure, status), Err(failure));
            }
            Ok(hashed) => hashed,
        };
        self.session.progress.show(&entry.name);
        let digest = hashed.digest();
        match digest.is_some_and(|digest| is_expected(digest, args.seek, &entry.digest)) {
            true => {
                self.counts.matched += 1;
                match args.quiet {
                    true => Ok(()),
                    false => self.verdict(&entry, "ok", Ok(hashed)),
                }
            }
            false => {
                self.counts.mismatched += 1;
                self.verdict(&entry, "mismatch", Ok(hashed))
            }
        }
    }

    /// `NAME: VERDICT` on standard output, with the name as the line has it; or an object.
    fn verdict(
        &self,
        entry: &OwnedEntry,
        status: &str,
        hashed: Result<&Hashed, &Failure>,
    ) -> Result<(), OutputError> {
        let (args, output) = (self.session.args, &self.session.output);
        if args.status {
            return Ok(());
        }
        if args.json {
            let expected = hex::encode(&entry.digest);
            let mut object = json::object(&entry.name, status).with("expected", expected);
            match hashed {
                Err(failure) => object = object.with_failure(failure),
                Ok(hashed) => {
                    object = object.with_stamp(hashed.stamp.as_ref());
                    if let Some(digest) = hashed.digest() {
                        let mut found = vec![0; entry.digest.len()];
                        let mut reader = digest.reader();
                        reader.set_position(args.seek);
                        reader.fill(&mut found);
                        object = object.with("hash", hex::encode(found));
                    }
                }
            }
            return self.session.progress.suspend(|| output.write(object.line().as_bytes()));
        }
        let text = match (status, hashed) {
            (_, Err(failure)) => format!("FAILED ({failure})"),
            ("ok", _) => "OK".to_owned(),
            _ => "FAILED".to_owned(),
        };
        let end = if args.zero { b"\0" } else { b"\n" };
        let line = [&output.name(&entry.listed), &b": "[..], text.as_bytes(), end].concat();
        self.session.progress.suspend(|| output.write(&line))
    }
}

/// Compares as many bytes as the line has, from `seek` on, in constant time as far as is possible for
/// a length that is not known beforehand.
pub(crate) fn is_expected(digest: &Digest, seek: u64, expected: &[u8]) -> bool {
    let mut found = vec![0; expected.len()];
    let mut reader = digest.reader();
    reader.set_position(seek);
    reader.fill(&mut found);
    found.iter().zip(expected).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
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
    say(
        counts.changed,
        "listed file changed while it was read",
        "listed files changed while they were read",
    );
    say(counts.mismatched, "computed checksum did NOT match", "computed checksums did NOT match");
    say(counts.extra, "file is in no list", "files are in no list");
}

/// Counts what the lists name, for the progress. A list that can be read only once tells nothing beforehand.
fn count_ahead(session: &Session<'_>, lists: &[PathBuf]) {
    let (lists, zero) = (lists.to_vec(), session.args.zero);
    session.progress.count_ahead(move |ahead| {
        for list in lists {
            let is_file = std::fs::metadata(&list).is_ok_and(|metadata| metadata.is_file());
            let Some(file) = is_file.then(|| File::open(&list).ok()).flatten() else { return };
            for line in Lines::new(0, &list, BufReader::new(file), zero) {
                if let Line::Entry(entry) = line {
                    ahead.add(length(Path::new(OsStr::from_bytes(&entry.name))).unwrap_or(0));
                }
            }
        }
    });
}
