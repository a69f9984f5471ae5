//! `--report-extra`: files that are in no list, and where files that are missing have gone.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ringsum::many::{Outcome, Place, Task, ToHash};
use ringsum::walk::{Kind, Walk};

use crate::check::is_expected;
use crate::hash::run_together;
use crate::json;
use crate::lines::OwnedEntry;
use crate::output::OutputError;
use crate::session::Session;
use crate::trees;

/// What the lists have, as far as that matters for what they do not have.
#[derive(Default)]
pub(crate) struct Listed {
    /// Hashes of names: 16 bytes each, however long the names are.
    names: HashSet<[u8; 16]>,
    /// Entries whose file is missing.
    missing: Vec<OwnedEntry>,
    directories: Directories,
}

impl Listed {
    /// Takes down an entry.
    pub(crate) fn add(&mut self, entry: &OwnedEntry, is_missing: bool) {
        let key = self.directories.key_of(Path::new(OsStr::from_bytes(&entry.name)));
        self.names.insert(key);
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
pub(crate) fn report_extra(session: &Session<'_>, listed: Listed) -> anyhow::Result<FoundExtra> {
    let mut by_digest: HashMap<&[u8], Vec<&OwnedEntry>> = HashMap::new();
    for entry in &listed.missing {
        by_digest.entry(&entry.digest[..16]).or_default().push(entry);
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
    let (hashes, is_regular) = (!listed.missing.is_empty(), session.shares());
    let mut directories = Directories::default();
    let tasks = walks.into_iter().flatten().filter_map(|entry| {
        let name = entry.path();
        let mut key = || directories.key_of(Path::new(OsStr::from_bytes(&name)));
        match entry.kind() {
            Kind::Failed(error) => {
                Some(Task { tag: Tag::Failed(name, error.to_string()), file: None })
            }
            Kind::File if !listed.names.contains(&key()) => {
                let (device, inode) = (entry.device(), entry.inode());
                let file = ToHash { place: Place::Entry(entry), device, inode, is_regular };
                Some(Task { tag: Tag::Extra(name), file: hashes.then_some(file) })
            }
            _ => None,
        }
    });
    let tell = |outcome| tell(session, outcome, &by_digest, &mut found);
    run_together(session, tasks.map(Some), None, tell, &|| ())?;
    Ok(found)
}

fn tell(
    session: &Session<'_>,
    Outcome { task, result }: Outcome<Tag>,
    missing: &HashMap<&[u8], Vec<&OwnedEntry>>,
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
    let digest = result.as_ref().and_then(|result| result.as_ref().ok()?.digest());
    let from = digest.and_then(|digest| {
        let mut key = [0; 16];
        let mut reader = digest.reader();
        reader.set_position(session.args.seek);
        reader.fill(&mut key);
        let same = |entry: &&&OwnedEntry| is_expected(digest, session.args.seek, &entry.digest);
        missing.get(&key[..])?.iter().find(same).copied()
    });
    say(session, name, from)
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
        true => name.to_vec(),
        false => output.name(&ringsum::checkfile::escape(name)).into_owned(),
    };
    let mut line = match from {
        None => [&shown(name), &b": EXTRA"[..]].concat(),
        Some(from) => [&output.name(&from.listed), &b": MOVED to "[..], &shown(name)].concat(),
    };
    line.push(if args.zero { 0 } else { b'\n' });
    session.progress.suspend(|| output.write(&line))
}
