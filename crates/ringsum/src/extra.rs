//! `--report-extra`: files that are in no list, and where files that are missing have gone.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use ringsum::many::{Outcome, Place, Task, ToHash, can_share};
use ringsum::walk::{Entry, Kind, Walk};

use crate::check::is_expected;
use crate::hash::run_together;
use crate::json;
use crate::lists::OwnedEntry;
use crate::output::OutputError;
use crate::session::Session;
use crate::trees;

/// What the lists have, as far as that matters for what they do not have.
#[derive(Default)]
pub(crate) struct Listed {
    /// Hashes of absolute names: 16 bytes each, however long the names are.
    names: HashSet<[u8; 16]>,
    /// Entries whose file is missing.
    missing: Vec<OwnedEntry>,
}

impl Listed {
    /// Takes down an entry.
    pub(crate) fn add(&mut self, entry: &OwnedEntry, is_missing: bool) {
        self.names.insert(key_of(Path::new(OsStr::from_bytes(&entry.name))));
        if is_missing {
            let OwnedEntry { digest, name, listed } = entry;
            let (digest, name, listed) = (digest.clone(), name.clone(), listed.clone());
            self.missing.push(OwnedEntry { digest, name, listed });
        }
    }
}

/// The same for all ways to write a name, as far as no symbolic link is in it.
fn key_of(path: &Path) -> [u8; 16] {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut plain = PathBuf::new();
    for component in absolute.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    let hash = blake3::hash(plain.as_os_str().as_bytes());
    let mut key = [0; 16];
    key.copy_from_slice(&hash.as_bytes()[..16]);
    key
}

/// A file that is in no list, or why it is not known whether there are such.
enum Tag {
    Extra,
    Failed(String),
}

/// Walks the directories, and says of each file that is in no list that it is extra, or that it is one of
/// the missing ones. Returns how many there are, with what could not be read.
pub(crate) fn report_extra(session: &Session<'_>, listed: Listed) -> anyhow::Result<u64> {
    let mut by_digest: HashMap<&[u8], Vec<&OwnedEntry>> = HashMap::new();
    for entry in &listed.missing {
        by_digest.entry(&entry.digest[..16]).or_default().push(entry);
    }
    let options = trees::walk_options(session)?;
    // Without anything missing, there is nothing to recognize.
    let hashes = !listed.missing.is_empty();
    let shares = can_share(&session.options.config);
    let mut walks = Vec::new();
    let mut extra = 0;
    for root in &session.args.report_extra {
        match Walk::new(root, &options) {
            Ok(walk) => walks.push(walk),
            Err(error) => {
                extra += 1;
                session.say_of(root.as_os_str().as_bytes(), &error);
            }
        }
    }
    let tasks = walks.into_iter().flatten().filter_map(|entry| match entry.kind() {
        Kind::Failed(error) => Some(task(Tag::Failed(error.to_string()), entry, false)),
        Kind::File => {
            let name = entry.path();
            let is_listed = listed.names.contains(&key_of(Path::new(OsStr::from_bytes(&name))));
            (!is_listed).then(|| task(Tag::Extra, entry, hashes && shares))
        }
        _ => None,
    });
    let tasks = tasks.map(|(tag, entry, hashes)| match hashes {
        true => {
            let (device, inode) = (entry.device(), entry.inode());
            let file = ToHash { place: Place::Entry(entry), device, inode, is_regular: true };
            Task { tag: (tag, Vec::new()), file: Some(file) }
        }
        false => Task { tag: (tag, entry.path()), file: None },
    });
    let tell = |Outcome { task, result }: Outcome<(Tag, Vec<u8>)>| {
        extra += 1;
        let name = match &task.file {
            Some(ToHash { place: Place::Entry(entry), .. }) => entry.path(),
            _ => task.tag.1.clone(),
        };
        let why = match (&task.tag.0, &result) {
            (Tag::Failed(why), _) => Some(why.clone()),
            (Tag::Extra, Some(Err(failure))) => Some(failure.to_string()),
            (Tag::Extra, _) => None,
        };
        if let Some(why) = why {
            session.say_of(&name, &why);
        }
        let digest = result.as_ref().and_then(|result| result.as_ref().ok()?.digest());
        let from = digest.and_then(|digest| {
            let mut key = [0; 16];
            let mut reader = digest.reader();
            reader.set_position(session.args.seek);
            reader.fill(&mut key);
            let same = |entry: &&&OwnedEntry| is_expected(digest, session.args.seek, &entry.digest);
            by_digest.get(&key[..])?.iter().find(same).copied()
        });
        say(session, &name, from)
    };
    run_together(session, tasks, None, tell, &|| ())?;
    Ok(extra)
}

fn task(tag: Tag, entry: Entry, hashes: bool) -> (Tag, Entry, bool) {
    (tag, entry, hashes)
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
