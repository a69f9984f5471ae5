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

use ringsum::Algorithm;
use ringsum::checkfile::{Wanted, others_of};
use ringsum::many::{Failure, Hashed, Outcome, Task, ToHash};

use crate::Status;
use crate::ahead::Ahead;
use crate::extra::{Listed, report_extra};
use crate::hash::{length, run_together};
use crate::inputs::is_stdin;
use crate::json;
use crate::lines::{Line, Lines, OwnedEntry};
use crate::lists::{format_of, known_of, lines_of};
use crate::output::OutputError;
use crate::session::Session;
use crate::trees::{self, Looked};

mod words;

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

impl Counts {
    fn add(&mut self, more: Counts) {
        self.matched += more.matched;
        self.mismatched += more.mismatched;
        self.unreadable += more.unreadable;
        self.changed += more.changed;
        self.malformed += more.malformed;
        self.bad_lists += more.bad_lists;
        self.extra += more.extra;
    }
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
    let mut counts = checking.counts;
    if !session.args.status && !reader_left && session.args.guise.is_none() {
        for (list, hint) in &checking.hints {
            session.say_of(list, hint);
        }
        words::warn(session, &counts);
    }
    counts.add(checking.total);
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
    // Some 30 lines are worth a thread that looks at files ahead of their turn.
    let bytes = |list: &Path| std::fs::metadata(list).map_or(u64::MAX, |metadata| metadata.len());
    let bytes = lists.iter().map(|list| bytes(list)).fold(0, u64::saturating_add);
    let threads = (bytes / 4096).min(7) as usize + 1;
    let lines = lists.iter().enumerate().flat_map(|(place, list)| lines_of(session, place, list));
    let budget = session.budget();
    let threads = budget.threads(threads);
    let ahead = Ahead::new(lines, bytes == u64::MAX, budget.names_bytes(), Line::bytes);
    let told = thread::scope(|scope| {
        let looked = ahead.look(scope, threads, |line: Line| task_of(session, line));
        let weigh = |Said(line, _): &Said| line.bytes();
        run_together(session, looked, weigh, None, |outcome| checking.tell(outcome), &|| ())
    });
    Ok(told?)
}

/// Looks at the file that a line names. Whoever made the list may not be who checks it: what opening alone
/// can hang on, or set in motion, is not opened unless that was asked for.
fn task_of(session: &Session<'_>, line: Line) -> Task<Said> {
    let Line::Entry(entry) = &line else { return Task { tag: Said(line, None), file: None } };
    let path = Path::new(OsStr::from_bytes(&entry.name));
    let algorithms = Some(entry.algorithms());
    let extended = entry.is_extended(session.args.seek);
    let found = match trees::look(path.to_owned()) {
        Looked::File(file) if file.is_regular || is_stdin(path) || session.args.allow_special => {
            Ok(ToHash { alone: file.alone || !session.shares(), extended, algorithms, ..file })
        }
        Looked::File(_) => {
            let what = trees::what_is(path);
            // (The tool that this may have been invoked as has no such option.)
            let with = if session.args.guise.is_some() { "ringsum --check " } else { "" };
            Err(Failure::Alone(format!("it is {what}; {with}--allow-special reads it")))
        }
        Looked::Directory(_) => Err(Failure::Open(io::Error::from_raw_os_error(libc::EISDIR))),
        Looked::Failed(_, error) => Err(Failure::Open(error)),
    };
    let (file, failure) = match found {
        Ok(file) => (Some(file), None),
        Err(failure) => (None, Some(failure)),
    };
    Task { tag: Said(line, failure), file }
}

/// What came of the entries of one list.
#[derive(Debug, Default)]
struct ListCounts {
    told: u64,
    /// Compared, or to be read in vain: not those that are passed over.
    verified: u64,
    /// Compared with a digest of which only the length told what it is of.
    guessed: Guessed,
    /// Its name and its number of entries, once its end was met.
    end: Option<(Vec<u8>, u64)>,
}

/// Digests of one kind that were compared, and none of them matched: then they may be of another.
#[derive(Debug, Default)]
struct Guessed {
    matched: bool,
    mismatched: u64,
    /// What they were taken for, and their length.
    taken_for: Option<(Algorithm, usize)>,
}

/// What has been found so far.
struct Checking<'a> {
    session: &'a Session<'a>,
    counts: Counts,
    /// Of lists that were told of.
    total: Counts,
    /// What is said of lists at the end.
    hints: Vec<(Vec<u8>, String)>,
    /// What came of each list, by its place.
    lists: HashMap<usize, ListCounts>,
    /// What files not in the lists are compared with.
    listed: Listed,
}

impl<'a> Checking<'a> {
    fn new(session: &'a Session<'a>) -> Checking<'a> {
        let (counts, total, hints) = (Counts::default(), Counts::default(), Vec::new());
        Checking { session, counts, total, hints, lists: HashMap::new(), listed: Listed::default() }
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
                if let Some(text) = words::malformed(self.session.args, number, &why) {
                    self.session.say_of(words::list_name(self.session.args, &list), &text);
                }
                Ok(())
            }
            Line::BadList { list, why } => {
                self.counts.bad_lists += 1;
                self.session.say_of(words::list_name(self.session.args, &list), &why);
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
        let Some(ListCounts { told, verified, guessed, end: Some((list, entries)) }) = counts
        else {
            return;
        };
        if told != entries {
            return;
        }
        let (args, is_none) = (self.session.args, *entries == 0);
        let warns_now = args.guise.is_some() && !args.status;
        if warns_now && !is_none {
            words::warn(self.session, &self.counts);
        }
        if *verified == 0 {
            self.counts.bad_lists += 1;
            // As GNU: --status hides that all files are missing, but not that this is no list.
            if !args.status || is_none {
                let text = words::not_verified(args, is_none);
                self.session.say_of(words::list_name(args, list), &text);
            }
        }
        // (One file of several that differs is one that was damaged, as a rule.)
        if let Guessed { matched: false, mismatched, taken_for: Some((algorithm, bytes)) } = guessed
            && (*mismatched > 1 || *entries == 1)
            && !args.status
            && let others = others_of(*algorithm, *bytes)
            && !others.is_empty()
        {
            let text = format!(
                "no digest without a tag is the {algorithm} of its file; if they are of {others}, say so with -a"
            );
            self.hints.push((list.clone(), text));
        }
        if args.guise.is_some() {
            // Other tools count for each list.
            self.total.add(std::mem::take(&mut self.counts));
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
        let (place, matched) = (entry.place, self.counts.matched);
        let said = self.compare_entry(entry, result);
        if self.session.args.guise.is_some()
            && self.session.args.ignore_missing
            && self.counts.matched == matched
            && !passed_over
        {
            // Other tools then count only what matches.
            self.lists.entry(place).or_default().verified -= 1;
        }
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
            self.listed.add(&entry, is_missing, self.session.budget().kept_bytes());
        }
        let hashed = match &result {
            Err(failure) if failure.is_missing() && args.ignore_missing => return Ok(()),
            Err(failure) => {
                match failure.change() {
                    Some(_) => self.counts.changed += 1,
                    None => self.counts.unreadable += 1,
                }
                if (args.status && !args.json) || args.guise.is_some() {
                    self.session.say_of(&entry.name, failure);
                }
                let status = if failure.is_missing() { "missing" } else { "unreadable" };
                return self.verdict(&entry, json::status_of(failure, status), Err(failure));
            }
            Ok(hashed) => hashed,
        };
        self.session.progress.show(&entry.name);
        let is_met = entry.is_met_by(hashed, args.seek);
        if entry.is_assumed {
            let guessed = &mut self.lists.entry(entry.place).or_default().guessed;
            let Wanted { algorithm, digest } = &entry.first;
            match is_met {
                true => guessed.matched = true,
                false => {
                    guessed.mismatched += 1;
                    guessed.taken_for = Some((*algorithm, digest.len()));
                }
            }
        }
        match is_met {
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
            let expected = hex::encode(&entry.first.digest);
            let mut object = json::object(&entry.name, status).with("expected", expected);
            let algorithms = entry.algorithms();
            if !algorithms.is_blake3() {
                let digests = entry.wanted().map(|wanted| {
                    (wanted.algorithm.name().to_owned(), hex::encode(&wanted.digest).into())
                });
                let digests: serde_json::Map<_, _> = digests.collect();
                object = object.with("expected_digests", digests);
            }
            match hashed {
                Err(failure) => object = object.with_failure(failure),
                Ok(hashed) => {
                    object = object.with_stamp(hashed.stamp.as_ref());
                    let Wanted { algorithm, digest } = &entry.first;
                    if let Some(found) = hashed.value(*algorithm, args.seek, digest.len()) {
                        object = object.with("hash", hex::encode(found));
                    }
                    if !algorithms.is_blake3() {
                        let digests = entry.wanted().filter_map(|Wanted { algorithm, digest }| {
                            let found = hashed.value(*algorithm, args.seek, digest.len())?;
                            Some((algorithm.name().to_owned(), hex::encode(found).into()))
                        });
                        let digests: serde_json::Map<_, _> = digests.collect();
                        object = object.with("digests", digests);
                    }
                }
            }
            return self.session.progress.suspend(|| output.write(object.line().as_bytes()));
        }
        let text = match (status, hashed) {
            (_, Err(_)) if args.guise.is_some() => "FAILED open or read".to_owned(),
            (_, Err(failure)) => format!("FAILED ({failure})"),
            ("ok", _) => "OK".to_owned(),
            _ => "FAILED".to_owned(),
        };
        let end = if args.zero { b"\0" } else { b"\n" };
        let text = output.name(text.as_bytes());
        let line = [&output.name(&entry.listed), &b": "[..], &text, end].concat();
        self.session.progress.suspend(|| output.write(&line))
    }
}

/// Counts what the lists name, for the progress. A list that can be read only once tells nothing beforehand.
fn count_ahead(session: &Session<'_>, lists: &[PathBuf]) {
    let (format, special) = (format_of(session.args), session.args.allow_special);
    let lists: Vec<_> =
        lists.iter().map(|list| (list.clone(), known_of(session.args, list))).collect();
    session.progress.count_ahead(move |ahead| {
        for (list, known) in lists {
            let is_file = std::fs::metadata(&list).is_ok_and(|metadata| metadata.is_file());
            let Some(file) = is_file.then(|| File::open(&list).ok()).flatten() else { return };
            for line in Lines::new(0, &list, BufReader::new(file), format.clone(), known) {
                if let Line::Entry(entry) = line {
                    let path = Path::new(OsStr::from_bytes(&entry.name));
                    ahead.add(length(path, special).unwrap_or(0));
                }
            }
        }
    });
}
