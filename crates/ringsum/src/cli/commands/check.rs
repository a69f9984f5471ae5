//! `ringsum --check LIST...`: hashes the files named in checksum files, and compares.
//!
//! Lines on standard output follow b3sum; the closing warnings follow GNU tools.
//! `docs/formats.md` specifies both.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;

use blockring::ErrorKind;
use ringsum::Algorithm;
use ringsum::checkfile::Expected;
use ringsum::files::{Failure, Hashed, InputFile, Job, Outcome};

use super::hash::hash_in_parallel;
use super::unlisted::{ListedNames, report_unlisted};
use crate::cli::Status;
use crate::cli::cache::resume::ResumeStore;
use crate::cli::inputs::check_lists::lines_of;
use crate::cli::inputs::lines::{CheckLine, ListedFile, digest_of};
use crate::cli::inputs::stat_ahead::StatAhead;
use crate::cli::inputs::trees::{self, StatResult};
use crate::cli::open::is_stdin;
use crate::cli::output::{Color, OutputError, json};
use crate::cli::session::Session;

mod messages;

/// CheckCounts of outcomes.
#[derive(Debug, Default, Clone, Copy)]
struct CheckCounts {
    matched: u64,
    mismatched: u64,
    unreadable: u64,
    /// Changed while they were read.
    changed: u64,
    malformed: u64,
    /// Lists that could not be read, or with no verified file.
    bad_lists: u64,
    unlisted: u64,
}

impl CheckCounts {
    fn add(&mut self, more: CheckCounts) {
        self.matched += more.matched;
        self.mismatched += more.mismatched;
        self.unreadable += more.unreadable;
        self.changed += more.changed;
        self.malformed += more.malformed;
        self.bad_lists += more.bad_lists;
        self.unlisted += more.unlisted;
    }
}

/// A line; if it names a file, with the reason why it cannot be hashed, as far as `stat` shows.
struct CheckTag(CheckLine, Option<Failure>);

/// Checks every list. A list that cannot be read is reported, and the run continues.
pub(crate) fn run(session: &Session<'_>) -> anyhow::Result<Status> {
    trees::raise_open_files();
    let default = [Path::new("-").to_owned()];
    let lists: &[_] = if session.args.files.is_empty() { &default } else { &session.args.files };
    let mut checker = Checker::new(session, lists);
    let mut checked = check_lists(session, lists, &mut checker);
    if checked.is_ok() && !session.args.report_unlisted.is_empty() {
        let listed = std::mem::take(&mut checker.listed);
        checked = report_unlisted(session, listed).map(|found| {
            checker.counts.unlisted = found.unlisted;
            checker.counts.unreadable += found.unreadable;
        });
    }
    session.finish()?;
    let is_cut_short = match checked {
        Ok(()) => false,
        Err(error) if error.downcast_ref().is_some_and(OutputError::reader_left) => true,
        Err(error) => return Err(error),
    };
    let mut counts = checker.counts;
    if !session.args.status && !is_cut_short && session.args.applet.is_none() {
        for (list, hint) in &checker.hints {
            session.say_of(list, hint);
        }
        messages::warn(session, &counts);
    }
    counts.add(checker.total);
    let malformed = if session.args.lenient { 0 } else { counts.malformed };
    let unread = counts.unreadable + counts.changed;
    let bad = counts.mismatched + unread + counts.bad_lists + malformed + counts.unlisted;
    // A check that did not finish has not succeeded.
    Ok(if bad == 0 && !is_cut_short { Status::Success } else { Status::Failure })
}

fn check_lists(
    session: &Session<'_>,
    lists: &[PathBuf],
    checker: &mut Checker<'_>,
) -> anyhow::Result<()> {
    // About 30 lines justify a thread that looks up names ahead.
    let bytes = |list: &Path| std::fs::metadata(list).map_or(u64::MAX, |metadata| metadata.len());
    let bytes = lists.iter().map(|list| bytes(list)).fold(0, u64::saturating_add);
    let threads = (bytes / 4096).min(7) as usize + 1;
    let lines = lists.iter().enumerate().flat_map(|(place, list)| lines_of(session, place, list));
    // (A digest in the index is never used: everything that is checked is read.)
    let index = session.args.index.as_ref();
    let resumes = match index {
        Some(path) => Some(ResumeStore::open(path, session.args.resume_bytes)?),
        None => None,
    };
    let shares = session.shares();
    let threads = shares.threads(threads);
    let comes_slowly = bytes == u64::MAX;
    let ahead = StatAhead::new(lines, comes_slowly, shares.names_bytes(), CheckLine::bytes);
    let reported = thread::scope(|scope| {
        let jobs = ahead.start(scope, threads, |line: CheckLine| job_of(session, line));
        let jobs = trees::counted(session, jobs);
        let tag_bytes = |CheckTag(line, _): &CheckTag| line.bytes();
        let report = |outcome| checker.report(outcome);
        hash_in_parallel(session, jobs, tag_bytes, (None, resumes.as_ref()), report, &|| ())
    });
    Ok(reported?)
}

/// Returns the job for a line. The list may be untrusted: a special file, which could block or
/// start a device when it is opened, is not opened unless `--allow-special` is given.
fn job_of(session: &Session<'_>, line: CheckLine) -> Job<CheckTag> {
    let CheckLine::File(listed) = &line else {
        return Job { tag: CheckTag(line, None), file: None };
    };
    let path = match session.args.applet {
        Some(applet) if applet.is_stdin(&listed.line.name) => Path::new("-"),
        _ => Path::new(OsStr::from_bytes(&listed.line.name)),
    };
    let algorithms = Some(listed.algorithms());
    let extended = listed.needs_extended_output(session.args.seek);
    let found = match trees::stat(path.to_owned()) {
        StatResult::File(file)
            if file.is_regular || is_stdin(path) || session.args.allow_special =>
        {
            let is_separate = file.is_separate || !session.supports_sharing();
            Ok(InputFile { is_separate, extended, algorithms, ..file })
        }
        StatResult::File(_) => {
            let what = trees::type_of(path);
            // (The tool that the command was invoked as has no such option.)
            let with = if session.args.applet.is_some() { "ringsum --check " } else { "" };
            Err(Failure::Other(format!("it is {what}; {with}--allow-special reads it")))
        }
        StatResult::Directory(_) => Err(Failure::Open(io::Error::from_raw_os_error(libc::EISDIR))),
        StatResult::Failed(_, error) => Err(Failure::Open(error)),
    };
    let (file, failure) = match found {
        Ok(file) => (Some(file), None),
        Err(failure) => (None, Some(failure)),
    };
    Job { tag: CheckTag(line, failure), file }
}

/// CheckCounts of one list.
#[derive(Debug, Default)]
struct ListCounts {
    reported: u64,
    /// Files that were compared or could not be read, except ignored ones.
    verified: u64,
    malformed: u64,
    /// Digests whose algorithm is assumed.
    assumed: Assumed,
    /// Its name and its number of files, once its end has been read.
    end: Option<(Vec<u8>, u64)>,
}

/// Comparisons with digests whose algorithm was inferred from their length alone. If none of them
/// matched, the algorithm may be another one.
#[derive(Debug, Default)]
struct Assumed {
    matched: bool,
    mismatched: u64,
    /// The assumed algorithm, and the length of the digest in bytes.
    algorithm: Option<(Algorithm, usize)>,
}

/// Compares digests, and reports the results.
struct Checker<'a> {
    session: &'a Session<'a>,
    names: &'a [PathBuf],
    counts: CheckCounts,
    /// Missing files so far: the first few have messages.
    missing: u64,
    /// The counts of lists that have been reported.
    total: CheckCounts,
    /// Hints about lists, for the end.
    hints: Vec<(Vec<u8>, String)>,
    /// Lists by their position.
    lists: HashMap<usize, ListCounts>,
    /// For `--report-unlisted`.
    listed: ListedNames,
}

impl<'a> Checker<'a> {
    fn new(session: &'a Session<'a>, names: &'a [PathBuf]) -> Checker<'a> {
        Checker {
            session,
            names,
            counts: CheckCounts::default(),
            missing: 0,
            total: CheckCounts::default(),
            hints: Vec::new(),
            lists: HashMap::new(),
            listed: ListedNames::default(),
        }
    }

    fn report(&mut self, outcome: Outcome<CheckTag>) -> Result<(), OutputError> {
        let Outcome { job, result } = outcome;
        let CheckTag(line, failure) = job.tag;
        let args = self.session.args;
        match line {
            CheckLine::File(listed) => {
                let result = match (result, failure) {
                    (Some(result), _) => result,
                    (None, Some(failure)) => Err(failure),
                    (None, None) => Err(Failure::Other("it was not read".to_owned())),
                };
                self.compare(listed, result)
            }
            CheckLine::Malformed { list, place, number, why } => {
                self.counts.malformed += 1;
                let counts = self.lists.entry(place).or_default();
                counts.malformed += 1;
                if let Some(text) = messages::malformed(args, number, counts.malformed, &why) {
                    self.session.say_of(messages::list_name(args, &list), &text);
                }
                Ok(())
            }
            CheckLine::BadList { list, why } => {
                self.counts.bad_lists += 1;
                self.session.say_of(messages::list_name(args, &list), &why);
                Ok(())
            }
            CheckLine::ListEnd { list, place, files } => {
                let counts = self.lists.entry(place).or_default();
                if let Some(text) = messages::more_malformed(args, counts.malformed) {
                    self.session.say_of(messages::list_name(args, &list), &text);
                }
                counts.end = Some((list, files));
                self.end_list(place);
                Ok(())
            }
        }
    }

    /// Reports the result of a list once it is complete: with `--unordered` its end may come first.
    fn end_list(&mut self, place: usize) {
        let Some(ListCounts { reported, verified, assumed, end: Some((list, files)), .. }) =
            self.lists.get(&place)
        else {
            return;
        };
        if reported != files {
            return;
        }
        let (args, is_empty) = (self.session.args, *files == 0);
        let warns_now = args.applet.is_some() && !args.status;
        if warns_now && !is_empty {
            messages::warn(self.session, &self.counts);
        }
        if *verified == 0 {
            self.counts.bad_lists += 1;
            // As in GNU tools, --status hides that all files are missing, but not an empty list.
            if !args.status || is_empty {
                let text = messages::not_verified(args, is_empty);
                self.session.say_of(messages::list_name(args, list), &text);
            }
        }
        // (A single mismatch among several files is usually damage.)
        if let Assumed { matched: false, mismatched, algorithm: Some((algorithm, bytes)) } = assumed
            && (*mismatched > 1 || *files == 1)
            && !args.status
            && let others = messages::others_of(*algorithm, *bytes)
            && !others.is_empty()
        {
            let text = format!(
                "no checksum without a tag is the {algorithm} of its file; if they are {others}, use -a"
            );
            self.hints.push((list.clone(), text));
        }
        if args.applet.is_some() {
            // (Other tools count per list.)
            self.total.add(std::mem::take(&mut self.counts));
        }
    }

    fn compare(
        &mut self,
        listed: ListedFile,
        result: Result<Hashed, Failure>,
    ) -> Result<(), OutputError> {
        let is_ignored = self.session.args.ignore_missing;
        let is_ignored = is_ignored && result.as_ref().is_err_and(no_such_file);
        let counts = self.lists.entry(listed.place).or_default();
        counts.reported += 1;
        counts.verified += u64::from(!is_ignored);
        let (place, matched) = (listed.place, self.counts.matched);
        let printed = self.compare_file(listed, result);
        if self.session.args.applet.is_some()
            && self.session.args.ignore_missing
            && self.counts.matched == matched
            && !is_ignored
        {
            // (Other tools count only matches then.)
            self.lists.entry(place).or_default().verified -= 1;
        }
        self.end_list(place);
        printed
    }

    fn compare_file(
        &mut self,
        listed: ListedFile,
        result: Result<Hashed, Failure>,
    ) -> Result<(), OutputError> {
        let args = self.session.args;
        if !args.report_unlisted.is_empty() {
            let is_missing = result.as_ref().is_err_and(no_such_file);
            self.listed.add(&listed, is_missing, self.session.shares().kept_bytes());
        }
        let name = &listed.line.name;
        let hashed = match &result {
            Err(failure) if no_such_file(failure) && args.ignore_missing => return Ok(()),
            Err(failure) => {
                match failure.change() {
                    Some(_) => self.counts.changed += 1,
                    None => self.counts.unreadable += 1,
                }
                if (args.status && !args.json) || args.applet.is_some() {
                    self.session.say_of(name, failure);
                }
                let status = if no_such_file(failure) { "missing" } else { "unreadable" };
                if status == "missing" {
                    self.missing += 1;
                    if let Some(text) = messages::missing(args, &listed, self.missing) {
                        self.session.say_of(self.list_name(&listed), &text);
                    }
                }
                return self.verdict(&listed, json::status_of(failure, status), Err(failure));
            }
            Ok(hashed) => hashed,
        };
        self.session.progress.show(name);
        let matches = listed.matches(hashed, args.seek);
        // (What standard input should be is often something else than what it is.)
        if listed.line.is_assumed && name != b"-" {
            let assumed = &mut self.lists.entry(listed.place).or_default().assumed;
            let Expected { algorithm, digest } = &listed.line.first;
            if matches {
                assumed.matched = true;
            } else {
                assumed.mismatched += 1;
                assumed.algorithm = Some((*algorithm, digest.len()));
            }
        }
        if !matches {
            self.counts.mismatched += 1;
            return self.verdict(&listed, "mismatch", Ok(hashed));
        }
        self.counts.matched += 1;
        if args.quiet { Ok(()) } else { self.verdict(&listed, "ok", Ok(hashed)) }
    }

    /// Prints `NAME: VERDICT` with the name as written in the line, or an object. (GNU tools
    /// escape a name only if it has a newline.)
    fn verdict(
        &self,
        listed: &ListedFile,
        status: &str,
        hashed: Result<&Hashed, &Failure>,
    ) -> Result<(), OutputError> {
        let (args, output) = (self.session.args, &self.session.output);
        if args.status {
            return Ok(());
        }
        if args.json {
            let object = self.object(listed, status, hashed);
            return self.session.progress.suspend(|| output.write(object.line().as_bytes()));
        }
        let (color, text) = match (status, hashed) {
            (_, Err(_)) if args.applet.is_some() => (Color::Bad, "FAILED open or read".to_owned()),
            (_, Err(failure)) => (Color::Bad, format!("FAILED ({failure})")),
            ("ok", _) => (Color::Good, "OK".to_owned()),
            _ => (Color::Bad, "FAILED".to_owned()),
        };
        let end = if args.zero { b"\0" } else { b"\n" };
        let verdict = output.verdict(args.color, color, text.as_bytes());
        let name = match args.applet {
            Some(applet) if !applet.is_xxhsum && !listed.line.name.contains(&b'\n') => {
                &listed.line.name
            }
            _ => &listed.line.listed,
        };
        let line = [&output.name(name), &b": "[..], &verdict, end].concat();
        self.session.progress.suspend(|| output.write(&line))
    }

    fn list_name(&self, listed: &ListedFile) -> &[u8] {
        self.names[listed.place].as_os_str().as_bytes()
    }

    fn object(
        &self,
        listed: &ListedFile,
        status: &str,
        hashed: Result<&Hashed, &Failure>,
    ) -> json::Object {
        let expected = &listed.line.first;
        let mut object = json::object(&listed.line.name, status);
        object = object.with("expected", hex::encode(&expected.digest));
        let has_others = *listed.algorithms() != [Algorithm::Blake3];
        let by_name = |digest: &Expected, bytes: &[u8]| {
            (digest.algorithm.name().to_owned(), hex::encode(bytes).into())
        };
        if has_others {
            let digests = listed.expected().map(|digest| by_name(digest, &digest.digest));
            let digests: serde_json::Map<_, _> = digests.collect();
            object = object.with("expected_digests", digests);
        }
        let hashed = match hashed {
            Err(failure) => {
                let object = object.with_name("list", self.list_name(listed));
                return object.with("line", listed.number).with_failure(failure);
            }
            Ok(hashed) => hashed,
        };
        object = object.with_fingerprint(hashed.fingerprint.as_ref());
        let found = |expected: &Expected| {
            let digest = digest_of(hashed, expected.algorithm)?;
            let output = digest.output(self.session.args.seek, expected.digest.len());
            Some(output.unwrap_or_else(|| digest.to_vec()))
        };
        if let Some(found) = found(expected) {
            object = object.with("hash", hex::encode(found));
        }
        if has_others {
            let digests =
                listed.expected().filter_map(|digest| Some(by_name(digest, &found(digest)?)));
            let digests: serde_json::Map<_, _> = digests.collect();
            object = object.with("digests", digests);
        }
        object
    }
}

fn no_such_file(failure: &Failure) -> bool {
    match failure {
        Failure::Open(error) | Failure::Read(ErrorKind::Open(error)) => {
            error.kind() == io::ErrorKind::NotFound
        }
        _ => false,
    }
}
