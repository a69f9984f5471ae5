//! Resuming: chaining values of a long file are stored while it is hashed, so that a run that was
//! interrupted goes on where it was.
//!
//! They are an optimization only: whatever fails here costs time, and is no error. A thread of its
//! own writes them, because a write waits for the disk.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use blockring::{Source, SourceKind};
use ringsum::Subtree;

use super::index::{Index, IndexError, Metadata, ResumeChange, StoredSubtree, is_settled};
use super::{id_of, now_ns};
use crate::cli::lock;

/// Bytes of a subtree whose value is stored: a killed run loses one of them for each thread at
/// most, and what was read in the last second.
pub(crate) const SUBTREE_BYTES: u64 = 1 << 30;

/// The shortest file that is resumed, in subtrees.
const SUBTREES_MIN: u64 = 4;

/// How often values are written.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// After this time without success, no more values are stored.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// The values of the files that are being hashed.
pub(crate) struct ResumeStore {
    subtree_bytes: u64,
    shared: Arc<Shared>,
}

struct Shared {
    index: Mutex<Index>,
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    changes: Vec<(Vec<u8>, ResumeChange)>,
    /// Files with values in the index, as far as this run knows.
    stored: HashSet<Vec<u8>>,
    has_writer: bool,
    is_over: bool,
    /// When a write failed for the first time since the last one that did not.
    failing_since: Option<Instant>,
    /// The index stayed locked, or cannot be written.
    is_given_up: bool,
}

/// A file whose values are stored.
pub(crate) struct FileResume<'a> {
    store: &'a ResumeStore,
    key: Vec<u8>,
    metadata: Metadata,
    /// Values of an earlier run.
    pub(crate) known: Vec<Subtree>,
}

impl ResumeStore {
    /// Opens the index a second time. (SQLite keeps the two apart, and one need not wait for the
    /// other on the way to a line.)
    pub(crate) fn open(path: &Path, subtree_bytes: Option<u64>) -> Result<ResumeStore, IndexError> {
        Ok(ResumeStore {
            subtree_bytes: subtree_bytes.unwrap_or(SUBTREE_BYTES),
            shared: Arc::new(Shared {
                index: Mutex::new(Index::open(path)?),
                queue: Mutex::default(),
                wake: Condvar::new(),
            }),
        })
    }

    /// The shortest file that is resumed, in bytes.
    pub(crate) fn file_bytes_min(&self) -> u64 {
        self.subtree_bytes.saturating_mul(SUBTREES_MIN)
    }

    /// Returns what is known of a long file; `None` for any other, and for one that has just
    /// changed, as for its hash.
    pub(crate) fn find(&self, key: Vec<u8>, source: &Source) -> Option<FileResume<'_>> {
        let fingerprint = source.fingerprint();
        let is_long = fingerprint.len >= self.file_bytes_min();
        if source.kind() != SourceKind::File || source.start() != 0 || !is_long {
            return None;
        }
        let (kind, id) = (rustix::fs::fstatfs(source).ok()?, rustix::fs::fstatvfs(source).ok()?);
        let metadata = super::metadata(id_of(&kind, &id, source.device())?, &fingerprint);
        if !is_settled(metadata.ctime_ns, now_ns()) {
            return None;
        }
        let found = lock(&self.shared.index).subtrees(&key, metadata, self.subtree_bytes);
        let found = found.unwrap_or_default();
        if !found.is_empty() {
            lock(&self.shared.queue).stored.insert(key.clone());
        }
        let is_aligned = |found: &StoredSubtree| {
            let end = found.start.checked_add(found.len);
            found.start.is_multiple_of(self.subtree_bytes)
                && end.is_some_and(|end| end <= fingerprint.len)
        };
        let known = found.into_iter().filter(is_aligned).map(|found| Subtree {
            offset: found.start,
            len: found.len,
            cv: found.value,
        });
        Some(FileResume { store: self, key, metadata, known: known.collect() })
    }

    /// Queues a change, and starts the thread that writes.
    fn queue(&self, key: Vec<u8>, change: ResumeChange) {
        let mut queue = lock(&self.shared.queue);
        if queue.is_given_up {
            return;
        }
        queue.changes.push((key, change));
        if !queue.has_writer {
            let shared = Arc::clone(&self.shared);
            let writer = thread::Builder::new().name("resume".to_owned());
            queue.has_writer = writer.spawn(move || shared.write_at_intervals()).is_ok();
        }
    }

    /// Writes what has been queued. Waits up to `wait` for another process.
    pub(crate) fn flush(&self, wait: Duration) {
        self.shared.write(wait);
    }

    /// Ends the thread that writes, and writes the rest.
    pub(crate) fn finish(&self, wait: Duration) {
        lock(&self.shared.queue).is_over = true;
        self.shared.wake.notify_all();
        self.shared.write(wait);
    }
}

impl Shared {
    fn write_at_intervals(&self) {
        let mut queue = lock(&self.queue);
        while !queue.is_over && !queue.is_given_up {
            let waited = self.wake.wait_timeout(queue, WRITE_INTERVAL);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            self.write(Duration::ZERO);
            queue = lock(&self.queue);
        }
    }

    fn write(&self, wait: Duration) {
        // (Held meanwhile, so that changes are written in their order.)
        let mut index = lock(&self.index);
        let mut changes = std::mem::take(&mut lock(&self.queue).changes);
        if changes.is_empty() {
            return;
        }
        let written = index.change_subtrees(&changes, wait);
        let mut queue = lock(&self.queue);
        match written {
            Ok(()) => queue.failing_since = None,
            Err(error) => {
                let since = *queue.failing_since.get_or_insert_with(Instant::now);
                // Another process has locked it, or it will never work.
                let may_work = matches!(error, IndexError::Busy(..));
                queue.is_given_up = !may_work || since.elapsed() >= GIVE_UP_AFTER;
                if !queue.is_given_up {
                    changes.append(&mut queue.changes);
                    queue.changes = changes;
                }
            }
        }
    }
}

impl FileResume<'_> {
    /// Stores the value of a subtree.
    pub(crate) fn add(&self, subtree: Subtree) {
        let Subtree { offset: start, len, cv: value } = subtree;
        let stored = StoredSubtree { metadata: self.metadata, start, len, value };
        lock(&self.store.shared.queue).stored.insert(self.key.clone());
        self.store.queue(self.key.clone(), ResumeChange::Put(stored));
    }

    /// Removes the values of a file that is done.
    pub(crate) fn done(self) {
        let mut queue = lock(&self.store.shared.queue);
        if !queue.stored.remove(&self.key) {
            return;
        }
        // Those that were not written need not be.
        queue.changes.retain(|(key, _)| *key != self.key);
        drop(queue);
        self.store.queue(self.key, ResumeChange::Remove);
    }

    /// Bytes of a subtree.
    pub(crate) fn subtree_bytes(&self) -> u64 {
        self.store.subtree_bytes
    }
}
