//! `--report-extra`: files that are in no list, and where files that are missing have gone.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ringsum::checkfile::Wanted;
use ringsum::many::{Hashed, Outcome, PROCESS_BYTES, Task, ToHash};
use ringsum::walk::{Kind, Walk};
use ringsum::{Algorithm, Algorithms};

use crate::hash::run_together;
use crate::json;
use crate::lines::OwnedEntry;
use crate::output::OutputError;
use crate::session::Session;
use crate::trees;

/// What the lists have, as far as that matters for what they do not have.
#[derive(Default)]
pub(crate) struct Listed {
    /// Hashes of names: 16 bytes each, however long the names are. (In a set they took 36.)
    names: Vec<[u8; 16]>,
    /// Entries whose file is missing.
    missing: Vec<OwnedEntry>,
    directories: Directories,
    /// What that takes, in bytes.
    bytes: u64,
}

/// What is kept of a missing entry besides its bytes.
const MISSING_BYTES: u64 = (2 * size_of::<OwnedEntry>() + 48) as u64;

impl Listed {
    /// Takes down an entry; of those that are more than `bytes_max` allows, only that there are.
    pub(crate) fn add(&mut self, entry: &OwnedEntry, is_missing: bool, bytes_max: Option<u64>) {
        self.bytes += 16;
        if is_missing {
            let bytes = entry.first.digest.len() + entry.name.len() + entry.listed.len();
            self.bytes += bytes as u64 + MISSING_BYTES;
        }
        if bytes_max.is_some_and(|most| self.bytes > most) {
            (self.names, self.missing) = (Vec::new(), Vec::new());
            return;
        }
        let key = self.directories.key_of(Path::new(OsStr::from_bytes(&entry.name)));
        self.names.push(key);
        if is_missing {
            self.missing.push(entry.clone());
        }
    }
}

/// Which directories names lead to. Names that follow each other are in the same one, as a rule.
#[derive(Default)]
struct Directories {
    last: Option<(PathBuf, PathBuf)>,
}

impl Directories {
    /// The same for all ways to write a name: its directory is where the kernel finds it.
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

/// What came up besides the lists.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct FoundExtra {
    /// Files that are in no list.
    pub(crate) extra: u64,
    /// Directories and files that could not be read.
    pub(crate) unreadable: u64,
}

/// A file that is in no list, or something that could not be read.
enum Tag {
    Extra(Vec<u8>),
    Failed(Vec<u8>, String),
}

/// Walks the directories, and says of each file that is in no list that it is extra, or that it is one of
/// the missing ones.
pub(crate) fn report_extra(
    session: &Session<'_>,
    mut listed: Listed,
) -> anyhow::Result<FoundExtra> {
    if let Some(most) = session.budget().kept_bytes().filter(|most| listed.bytes > *most) {
        let wanted = (PROCESS_BYTES + listed.bytes * 4).div_ceil(1 << 20);
        anyhow::bail!(
            "--report-extra was not done: what it keeps of the names in the lists is more than the {} KiB that the \
             memory allowed has for it; --memory {wanted}M would do",
            most >> 10
        );
    }
    listed.names.sort_unstable();
    let mut missing = Missing::default();
    for entry in &listed.missing {
        missing.add(entry);
    }
    let mut found = FoundExtra::default();
    let mut walks = Vec::new();
    for root in &session.args.report_extra {
        match Walk::new(root, &trees::walk_options(session)?) {
            Ok(walk) => walks.push(walk),
            Err(error) => {
                found.unreadable += 1;
                session.say_of(root.as_os_str().as_bytes(), &error);
            }
        }
    }
    // Without anything missing, there is nothing to recognize.
    let (hashes, alone) = (!listed.missing.is_empty(), !session.shares());
    let mut directories = Directories::default();
    let algorithms = missing.algorithms;
    let extended = listed.missing.iter().any(|entry| entry.is_extended(session.args.seek));
    let tasks = walks.into_iter().flatten().filter_map(|entry| {
        let name = entry.path();
        let mut key = || directories.key_of(Path::new(OsStr::from_bytes(&name)));
        match entry.kind() {
            Kind::Failed(error) => {
                Some(Task { tag: Tag::Failed(name, error.to_string()), file: None })
            }
            Kind::File if listed.names.binary_search(&key()).is_err() => {
                let file = ToHash { alone, extended, algorithms, ..entry.into() };
                Some(Task { tag: Tag::Extra(name), file: hashes.then_some(file) })
            }
            _ => None,
        }
    });
    let tell = |outcome| tell(session, outcome, &missing, &mut found);
    let weigh = |tag: &Tag| match tag {
        Tag::Extra(name) => name.len(),
        Tag::Failed(name, why) => name.len() + why.len(),
    };
    run_together(session, tasks.map(Some), weigh, None, tell, &|| ())?;
    Ok(found)
}

fn tell(
    session: &Session<'_>,
    Outcome { task, result }: Outcome<Tag>,
    missing: &Missing<'_>,
    found: &mut FoundExtra,
) -> Result<(), OutputError> {
    let name = match (&task.tag, &result) {
        (Tag::Failed(name, why), _) => {
            found.unreadable += 1;
            session.say_of(name, why);
            return Ok(());
        }
        (Tag::Extra(name), Some(Err(failure))) => {
            found.unreadable += 1;
            session.say_of(name, failure);
            name
        }
        (Tag::Extra(name), _) => name,
    };
    found.extra += 1;
    let hashed = result.as_ref().and_then(|result| result.as_ref().ok());
    let from = hashed.and_then(|hashed| missing.find(hashed, session.args.seek));
    say(session, name, from)
}

/// Bytes of a digest that entries are looked up by.
const KEY_BYTES: usize = 4;

/// Entries whose file is missing, by the first digest that each has.
#[derive(Default)]
struct Missing<'a> {
    by_digest: HashMap<(Algorithm, [u8; KEY_BYTES]), Vec<&'a OwnedEntry>>,
    /// What files have to be hashed with to be recognized.
    algorithms: Option<Algorithms>,
}

impl<'a> Missing<'a> {
    fn add(&mut self, entry: &'a OwnedEntry) {
        for Wanted { algorithm, .. } in entry.wanted() {
            self.algorithms.get_or_insert_with(|| (*algorithm).into()).add(*algorithm);
        }
        let Wanted { algorithm, digest } = &entry.first;
        if let Some(key) = digest.first_chunk() {
            self.by_digest.entry((*algorithm, *key)).or_default().push(entry);
        }
    }

    /// The entry that a file is what it says.
    fn find(&self, hashed: &Hashed, seek: u64) -> Option<&'a OwnedEntry> {
        self.algorithms?.as_slice().iter().find_map(|algorithm| {
            let value = hashed.value(*algorithm, seek, KEY_BYTES)?;
            let entries = self.by_digest.get(&(*algorithm, *value.first_chunk()?))?;
            entries.iter().find(|entry| entry.is_met_by(hashed, seek)).copied()
        })
    }
}

/// `NAME: EXTRA`, or `OLD: MOVED to NAME`.
fn say(session: &Session<'_>, name: &[u8], from: Option<&OwnedEntry>) -> Result<(), OutputError> {
    let (args, output) = (session.args, &session.output);
    if args.status {
        return Ok(());
    }
    if args.json {
        let object = match from {
            None => json::object(name, "extra"),
            Some(from) => json::object(&from.name, "moved").with_name("to", name),
        };
        return session.progress.suspend(|| output.write(object.line().as_bytes()));
    }
    let shown = |name: &[u8]| match args.zero {
        true => output.name(name).into_owned(),
        false => output.name(&ringsum::checkfile::escape(name)).into_owned(),
    };
    let mut line = match from {
        None => [&shown(name), &b": EXTRA"[..]].concat(),
        Some(from) => [&output.name(&from.listed), &b": MOVED to "[..], &shown(name)].concat(),
    };
    line.push(if args.zero { 0 } else { b'\n' });
    session.progress.suspend(|| output.write(&line))
}
