//! The hash cache of `--index`: hashes of earlier runs, and whether they are still valid.

mod index;
pub(crate) mod resume;

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blockring::Fingerprint;
use ringsum::files::Hashed;
use ringsum::files::walk::Entry;
use rustix::fs::{Mode, OFlags, StatFs, StatVfs};

use self::index::{COMPANIONS, IndexError, is_settled};
pub(super) use self::index::{Index, Metadata, Record};
use crate::cli::lock;
use crate::cli::own_file::OwnFile;
use crate::cli::session::Session;

/// How long a run waits at its end, or when interrupted, for another process to unlock the index.
const FINISH_WAIT: Duration = Duration::from_secs(2);
pub(crate) const INTERRUPTED_WAIT: Duration = Duration::from_millis(500);

/// The hash cache of a run.
pub(crate) struct HashCache {
    index: Mutex<Index>,
    /// Identity of the index itself, and its path in the tree once a walk has found it there.
    own: Option<OwnFile>,
    own_path: Mutex<Option<Vec<u8>>>,
    /// `--verify-index`: every file is read and compared with its record.
    verifies: bool,
    /// Ids of file systems by device number, which may change with the next boot. `None` for file
    /// systems whose files change without a change of metadata.
    file_systems: Mutex<HashMap<u64, Option<u64>>>,
    counts: Mutex<CacheCounts>,
    /// Files that were not looked up, because the index was locked.
    missed: AtomicU64,
    /// The first error of the index.
    failed: Mutex<Option<IndexError>>,
}

/// Numbers of files by outcome.
#[derive(Debug, Default, Clone, Copy)]
struct CacheCounts {
    unchanged: u64,
    changed: u64,
    new: u64,
    corrupt: u64,
    gone: u64,
}

/// The cache entry of a file.
pub(crate) struct CacheEntry {
    /// Its absolute path.
    key: Vec<u8>,
    record: Option<Record>,
    /// When it was looked up, in nanoseconds since 1970.
    began_ns: i64,
}

impl CacheEntry {
    /// Memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<CacheEntry>() + self.key.len()
    }
}

impl HashCache {
    /// Opens the index, and warns if other users can change it.
    pub(crate) fn open(
        session: &Session<'_>,
        path: &Path,
        verifies: bool,
    ) -> Result<HashCache, IndexError> {
        let index = Index::open(path)?;
        if let Some(weakness) = index::weakness(path) {
            let text = format!(
                "warning: other users can hide changes of files by writing to the index: {weakness}"
            );
            session.say_of(path.as_os_str().as_bytes(), &text);
        }
        // (Closing a descriptor that was opened for reading would release SQLite's locks.)
        let own = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        Ok(HashCache {
            index: Mutex::new(index),
            own: own.and_then(|fd| OwnFile::of(fd.as_fd())),
            own_path: Mutex::default(),
            verifies,
            file_systems: Mutex::default(),
            counts: Mutex::default(),
            missed: AtomicU64::new(0),
            failed: Mutex::default(),
        })
    }

    /// The key of a named file.
    pub(crate) fn key_of(path: &Path) -> Vec<u8> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        path.into_os_string().into_vec()
    }

    /// The prefix of the keys of all files of a tree, before a slash.
    pub(crate) fn key_of_tree(root: &Path) -> Vec<u8> {
        // Resolved, so that a file has one key whatever name its tree is walked by.
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        match root.as_os_str().as_bytes() {
            b"/" => Vec::new(),
            _ => root.into_os_string().into_vec(),
        }
    }

    /// Whether an entry of a tree is the index itself or one of SQLite's files beside it, which
    /// change during the run.
    pub(crate) fn is_own(&self, entry: &Entry) -> bool {
        if self.own.as_ref().is_some_and(|own| own.is(entry)) {
            // (Its companions come after it in the order of the walk.)
            *lock(&self.own_path) = Some(entry.path());
            return true;
        }
        let mut companions = COMPANIONS.into_iter();
        let Some(end) = companions.find(|end| entry.name().ends_with(end.as_bytes())) else {
            return false;
        };
        let path = entry.path();
        lock(&self.own_path).as_deref() == path.strip_suffix(end.as_bytes())
    }

    /// Whether the index has failed; it is then no longer used.
    fn has_failed(&self) -> bool {
        lock(&self.failed).is_some()
    }

    fn fail(&self, error: IndexError) {
        lock(&self.failed).get_or_insert(error);
    }

    /// Starts looking up the files of a tree, in the order of the walk.
    pub(crate) fn start_tree(&self, root: &Path) {
        lock(&self.index).start_tree(&HashCache::key_of_tree(root));
    }

    /// Call when all files of the tree were looked up: removes the records of all others.
    pub(crate) fn finish_tree(&self) {
        if self.has_failed() {
            return;
        }
        match lock(&self.index).finish_tree() {
            Ok(gone) => lock(&self.counts).gone += gone,
            // (They stay until a later run.)
            Err(IndexError::Busy(..)) if !self.verifies => {}
            Err(error) => self.fail(error),
        }
    }

    /// Looks up a file. Fast in ascending order of keys; a locked index is a miss.
    pub(crate) fn look_up(&self, key: Vec<u8>) -> CacheEntry {
        let record = match self.has_failed() {
            true => None,
            false => lock(&self.index).get(&key).unwrap_or_else(|error| {
                self.missed.fetch_add(1, Ordering::Relaxed);
                if self.verifies || !matches!(error, IndexError::Busy(..)) {
                    self.fail(error);
                }
                None
            }),
        };
        CacheEntry { key, record, began_ns: now_ns() }
    }

    /// Returns the recorded hash of an unchanged file.
    pub(crate) fn cached(
        &self,
        entry: &CacheEntry,
        device: u64,
        fingerprint: &Fingerprint,
    ) -> Option<[u8; 32]> {
        if self.verifies {
            return None;
        }
        let record = entry.record.as_ref()?;
        (record.metadata == self.metadata(entry, device, fingerprint)?).then_some(record.hash)
    }

    /// Records the hash of a file. Returns true if the file is corrupt: it has the recorded size and
    /// times, and other contents.
    pub(crate) fn record(&self, entry: &CacheEntry, hashed: &Hashed) -> bool {
        let metadata = hashed.fingerprint.as_ref();
        let metadata =
            metadata.and_then(|fingerprint| self.metadata(entry, hashed.device, fingerprint));
        // Changes of its contents could not be detected.
        let Some(metadata) = metadata else { return false };
        let mut counts = lock(&self.counts);
        if hashed.is_cached {
            counts.unchanged += 1;
            return false;
        }
        let Some(hash) = hashed.digests.hash().map(<[u8; 32]>::from) else { return false };
        match &entry.record {
            Some(record) if record.metadata == metadata && record.hash == hash => {
                counts.unchanged += 1;
                return false;
            }
            // (The recorded hash stays.)
            Some(record) if record.metadata == metadata => {
                counts.corrupt += 1;
                return true;
            }
            Some(_) => counts.changed += 1,
            None => counts.new += 1,
        }
        drop(counts);
        if self.has_failed() {
            return false;
        }
        let recorded = match is_settled(metadata.ctime_ns, entry.began_ns) {
            true => lock(&self.index).put(&entry.key, Record { metadata, hash }),
            false if entry.record.is_some() => lock(&self.index).remove(&entry.key),
            false => Ok(()),
        };
        if let Err(error) = recorded {
            self.fail(error);
        }
        false
    }

    /// Writes what has been recorded so far, before the process ends early.
    pub(crate) fn flush(&self) -> Result<(), IndexError> {
        lock(&self.index).flush(INTERRUPTED_WAIT)
    }

    /// Writes everything, prints the changes not stored and, with `--verify-index`, the counts.
    ///
    /// # Errors
    ///
    /// The first error of the index. A lock is one only if the index is verified: otherwise the
    /// files are just read again next time.
    pub(crate) fn finish(&self, session: &Session<'_>) -> Result<(), IndexError> {
        if let Some(error) = lock(&self.failed).take() {
            return Err(error);
        }
        let mut index = lock(&self.index);
        match index.flush(FINISH_WAIT) {
            Err(IndexError::Busy(..)) if !self.verifies => {}
            flushed => flushed?,
        }
        if let Some(text) = locked(self.missed.load(Ordering::Relaxed), index.unstored()) {
            session.messages.say(&text);
        }
        drop(index);
        if self.verifies {
            let CacheCounts { unchanged, changed, new, corrupt, gone } = *lock(&self.counts);
            session.messages.say(&format_args!(
                "index: {unchanged} unchanged, {changed} changed, {new} new, {gone} gone, {corrupt} corrupt"
            ));
        }
        Ok(())
    }

    fn metadata(
        &self,
        entry: &CacheEntry,
        device: u64,
        fingerprint: &Fingerprint,
    ) -> Option<Metadata> {
        Some(metadata(self.file_system(&entry.key, device)?, fingerprint))
    }

    /// Returns the id of a file system ([`id_of`]), cached by its device number.
    fn file_system(&self, key: &[u8], device: u64) -> Option<u64> {
        if let Some(id) = lock(&self.file_systems).get(&device) {
            return *id;
        }
        // (The file may be gone by now: the next one of this device then answers.)
        let id = id_of(&rustix::fs::statfs(key).ok()?, &rustix::fs::statvfs(key).ok()?, device);
        *lock(&self.file_systems).entry(device).or_insert(id)
    }
}

/// The warning about an index that another process had locked. `missed`: files that were not looked up;
/// `unstored`: changes that were not stored. Of a file that was not looked up, the index may have the
/// right record already.
fn locked(missed: u64, unstored: u64) -> Option<String> {
    let why = "warning: another process has locked the index";
    let count = |n: u64, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
    match (missed, unstored) {
        (_, 0) => None,
        (0, _) => {
            Some(format!("{why}: {} not stored", count(unstored, "change was", "changes were")))
        }
        _ => Some(format!(
            "{why}: {} hashed without it, and {}, which it may already have, {} not stored",
            count(missed, "file was", "files were"),
            count(unstored, "change", "changes"),
            if unstored == 1 { "was" } else { "were" }
        )),
    }
}

/// File systems in memory, where a store into a mapping changes no time: tmpfs, ramfs, hugetlbfs, by
/// the numbers of `linux/magic.h`. (Files of pseudo file systems have no fingerprint.)
const CHANGES_WITHOUT_NOTICE: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// The id of a file system, which survives a reboot, or its device number if it has none. `None` if its
/// files can change without a change of their times.
fn id_of(file_system: &StatFs, volume: &StatVfs, device: u64) -> Option<u64> {
    let is_unnoticed = CHANGES_WITHOUT_NOTICE.contains(&(file_system.f_type as u32));
    (!is_unnoticed).then_some(if volume.f_fsid == 0 { device } else { volume.f_fsid })
}

fn metadata(file_system: u64, fingerprint: &Fingerprint) -> Metadata {
    let nanoseconds = |(s, ns): (i64, i64)| s.saturating_mul(1_000_000_000).saturating_add(ns);
    Metadata {
        file_system,
        inode: fingerprint.inode,
        size: fingerprint.len,
        mtime_ns: nanoseconds(fingerprint.mtime),
        ctime_ns: nanoseconds(fingerprint.ctime),
    }
}

/// Nanoseconds since 1970, by the clock that file systems use.
fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
