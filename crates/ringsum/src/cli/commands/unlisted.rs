//! `--report-unlisted`: files that no checksum file lists, and the new names of missing files.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ringsum::checkfile::{Expected, escape};
use ringsum::files::walk::{Kind, Walk};
use ringsum::files::{Hashed, InputFile, Job, Outcome};
use ringsum::{Algorithm, Algorithms};

use super::hash::hash_in_parallel;
use crate::cli::inputs::lines::ListedFile;
use crate::cli::inputs::trees;
use crate::cli::memory::PROCESS_BYTES;
use crate::cli::output::{OutputError, json};
use crate::cli::session::Session;

/// The names in the checksum files.
#[derive(Default)]
pub(super) struct ListedNames {
    /// Hashes of the names: 16 bytes each, whatever their length. (In a set they took 36.)
    names: Vec<[u8; 16]>,
    /// Files that are missing.
    missing: Vec<ListedFile>,
    directories: Directories,
    /// Memory in bytes.
    bytes: u64,
    /// Whether memory did not suffice for all names.
    is_incomplete: bool,
}

/// Memory of a missing file besides its own bytes.
const MISSING_BYTES: u64 = (2 * size_of::<ListedFile>() + 48) as u64;

impl ListedNames {
    /// Adds a file. Beyond `bytes_max`, only its memory is counted.
    pub(super) fn add(&mut self, listed: &ListedFile, is_missing: bool, bytes_max: Option<u64>) {
        self.bytes += 16;
        if is_missing {
            let line = &listed.line;
            let bytes = line.first.digest.len() + line.name.len() + line.listed.len();
            self.bytes += bytes as u64 + MISSING_BYTES;
        }
        self.is_incomplete |= bytes_max.is_some_and(|most| self.bytes > most);
        self.is_incomplete = self.is_incomplete || self.names.try_reserve(1).is_err();
        if self.is_incomplete {
            (self.names, self.missing) = (Vec::new(), Vec::new());
            return;
        }
        let key = self.directories.key_of(Path::new(OsStr::from_bytes(&listed.line.name)));
        self.names.push(key);
        if is_missing {
            self.missing.push(listed.clone());
        }
    }
}

/// Canonical directories of names. Consecutive names are usually in the same one.
#[derive(Default)]
struct Directories {
    last: Option<(PathBuf, PathBuf)>,
}

impl Directories {
    /// Returns a key that is the same for all spellings of a path: its directory is canonical.
    fn key_of(&mut self, path: &Path) -> [u8; 16] {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        if self.last.as_ref().is_none_or(|(given, _)| given != parent) {
            let found = parent.canonicalize().or_else(|_| std::path::absolute(parent));
            self.last = Some((parent.to_owned(), found.unwrap_or_else(|_| parent.to_owned())));
        }
        let directory = self.last.as_ref().map_or(parent, |(_, found)| found);
        let hash = blake3::hash(directory.join(name).as_os_str().as_bytes());
        let mut key = [0; 16];
        key.copy_from_slice(&hash.as_bytes()[..16]);
        key
    }
}

/// Counts of outcomes.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct UnlistedCounts {
    pub(super) unlisted: u64,
    /// Directories and files that could not be read.
    pub(super) unreadable: u64,
}

/// The name of an unlisted file; or of a directory or a file that could not be read, and why.
struct UnlistedTag(Vec<u8>, Option<String>);

/// Walks the directories, and reports each unlisted file as unlisted, or as one of the missing
/// files under a new name.
pub(super) fn report_unlisted(
    session: &Session<'_>,
    mut listed: ListedNames,
) -> anyhow::Result<UnlistedCounts> {
    if listed.is_incomplete {
        let wanted = (PROCESS_BYTES + listed.bytes * 4).div_ceil(1 << 20);
        anyhow::bail!(
            "--report-unlisted was not done: the names in the lists take more memory than it may use; use \
             --memory {wanted}M or more"
        );
    }
    listed.names.sort_unstable();
    let mut missing = Missing::default();
    for file in &listed.missing {
        missing.add(file);
    }
    let mut counts = UnlistedCounts::default();
    let mut walks = Vec::new();
    for root in &session.args.report_unlisted {
        match Walk::new(root, &trees::walk_options(session)?) {
            Ok(walk) => walks.push(walk),
            Err(error) => {
                counts.unreadable += 1;
                session.say_of(root.as_os_str().as_bytes(), &error);
            }
        }
    }
    // If no file is missing, none needs to be recognized.
    let (hashes, is_separate) = (!listed.missing.is_empty(), !session.supports_sharing());
    let mut directories = Directories::default();
    let algorithms = missing.algorithms;
    let seek = session.args.seek;
    let extended = listed.missing.iter().any(|file| file.needs_extended_output(seek));
    let jobs = walks.into_iter().flatten().filter_map(|entry| {
        let name = entry.path();
        let mut key = || directories.key_of(Path::new(OsStr::from_bytes(&name)));
        match entry.kind() {
            Kind::Failed(error) => {
                Some(Job { tag: UnlistedTag(name, Some(error.to_string())), file: None })
            }
            Kind::File if listed.names.binary_search(&key()).is_err() => {
                let file = InputFile { is_separate, extended, algorithms, ..entry.into() };
                Some(Job { tag: UnlistedTag(name, None), file: hashes.then_some(file) })
            }
            _ => None,
        }
    });
    let report = |outcome| report(session, outcome, &missing, &mut counts);
    let tag_bytes = |UnlistedTag(name, why): &_| name.len() + why.as_ref().map_or(0, String::len);
    hash_in_parallel(session, jobs.map(Some), tag_bytes, (None, None), report, &|| ())?;
    Ok(counts)
}

fn report(
    session: &Session<'_>,
    Outcome { job, result }: Outcome<UnlistedTag>,
    missing: &Missing<'_>,
    counts: &mut UnlistedCounts,
) -> Result<(), OutputError> {
    let UnlistedTag(name, why) = &job.tag;
    if let Some(why) = why {
        counts.unreadable += 1;
        session.say_of(name, why);
        return Ok(());
    }
    if let Some(Err(failure)) = &result {
        counts.unreadable += 1;
        session.say_of(name, failure);
    }
    counts.unlisted += 1;
    let hashed = result.as_ref().and_then(|result| result.as_ref().ok());
    let old = hashed.and_then(|hashed| missing.find(hashed, session.args.seek));
    print(session, name, old)
}

/// Bytes of a digest by which missing files are looked up.
const KEY_BYTES: usize = 4;

/// Missing files by the start of their first digest.
#[derive(Default)]
struct Missing<'a> {
    by_digest: HashMap<(Algorithm, [u8; KEY_BYTES]), Vec<&'a ListedFile>>,
    /// The algorithms needed to recognize them.
    algorithms: Option<Algorithms>,
}

impl<'a> Missing<'a> {
    fn add(&mut self, listed: &'a ListedFile) {
        for Expected { algorithm, .. } in listed.expected() {
            self.algorithms.get_or_insert_with(|| (*algorithm).into()).extend([*algorithm]);
        }
        let Expected { algorithm, digest } = &listed.line.first;
        if let Some(key) = digest.first_chunk() {
            self.by_digest.entry((*algorithm, *key)).or_default().push(listed);
        }
    }

    /// Returns the missing file with these digests.
    fn find(&self, hashed: &Hashed, seek: u64) -> Option<&'a ListedFile> {
        hashed.digests.iter().find_map(|digest| {
            let start = digest.output(seek, KEY_BYTES).unwrap_or_else(|| digest.to_vec());
            let files = self.by_digest.get(&(digest.algorithm(), *start.first_chunk()?))?;
            files.iter().find(|listed| listed.matches(hashed, seek)).copied()
        })
    }
}

/// Prints `NAME: UNLISTED`, or `OLD: RENAMED to NAME`.
fn print(session: &Session<'_>, name: &[u8], old: Option<&ListedFile>) -> Result<(), OutputError> {
    let (args, output) = (session.args, &session.output);
    if args.status {
        return Ok(());
    }
    if args.json {
        let object = match old {
            None => json::object(name, "unlisted"),
            Some(old) => json::object(&old.line.name, "renamed").with_name("to", name),
        };
        return session.progress.suspend(|| output.write(object.line().as_bytes()));
    }
    let shown = |name: &[u8]| match args.zero {
        true => output.name(name).into_owned(),
        false => output.name(&escape(name)).into_owned(),
    };
    let mut line = match old {
        None => [&shown(name), &b": UNLISTED"[..]].concat(),
        Some(old) => [&output.name(&old.line.listed), &b": RENAMED to "[..], &shown(name)].concat(),
    };
    line.push(if args.zero { 0 } else { b'\n' });
    session.progress.suspend(|| output.write(&line))
}
