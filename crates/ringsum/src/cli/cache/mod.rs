//! Hashes that were found earlier, and whether they are still true: `--index`.

use std::collections::HashMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use ringsum::many::{Found, Hashed};

use crate::index::{self, Index, IndexError, Record, is_settled};
use crate::session::lock;

/// The index of a run.
pub(crate) struct Memory {
    index: Mutex<Index>,
    /// The key of the index itself, and which file it is.
    own_key: Vec<u8>,
    own_file: Option<(u64, u64)>,
    /// Everything is read, and compared with what is remembered.
    verifies: bool,
    /// The ids of file systems, by device number: that one may be another after the next start. `None` for
    /// those whose files change without notice.
    file_systems: Mutex<HashMap<u64, Option<u64>>>,
    counts: Mutex<Counts>,
    /// The first thing that went wrong with the index.
    failed: Mutex<Option<IndexError>>,
}

/// What came of files.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) unchanged: u64,
    pub(crate) changed: u64,
    pub(crate) new: u64,
    pub(crate) corrupt: u64,
    pub(crate) gone: u64,
}

/// What is remembered of a file.
pub(crate) struct Remembered {
    /// Its absolute path.
    key: Vec<u8>,
    record: Option<Record>,
    /// When it was looked up, in nanoseconds since 1970.
    began_ns: i64,
}

impl Remembered {
    /// What it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Remembered>() + self.key.len()
    }
}

/// What a hash says beside what is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing speaks against it.
    Fine,
    /// The file has the times and the size that it had, and other bytes.
    Corrupt,
}

impl Memory {
    pub(crate) fn open(path: &Path, verifies: bool) -> Result<Memory, IndexError> {
        let index = Index::open(path)?;
        let stat = rustix::fs::stat(path).ok();
        Ok(Memory {
            index: Mutex::new(index),
            own_key: Memory::key_of_tree(path),
            own_file: stat.map(|stat| (stat.st_dev, stat.st_ino)),
            verifies,
            file_systems: Mutex::default(),
            counts: Mutex::default(),
            failed: Mutex::default(),
        })
    }

    /// The key of a file that is named.
    pub(crate) fn key_of(path: &Path) -> Vec<u8> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        path.into_os_string().into_vec()
    }

    /// What the keys of all files of a tree begin with, before a slash.
    pub(crate) fn key_of_tree(root: &Path) -> Vec<u8> {
        // By whatever name a tree is walked, its files have one key each.
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        match root.as_os_str().as_bytes() {
            b"/" => Vec::new(),
            _ => root.into_os_string().into_vec(),
        }
    }

    /// Whether a file is of the index itself, which changes meanwhile; and whose locks would go, if it were
    /// opened and closed once more by this process.
    pub(crate) fn is_own(&self, key: &[u8], device: u64, inode: u64) -> bool {
        self.own_file == Some((device, inode))
            || key
                .strip_prefix(&self.own_key[..])
                .is_some_and(|rest| [&b"-journal"[..], b"-wal", b"-shm"].contains(&rest))
    }

    /// Whether the index has failed: then it is left as it is.
    fn has_failed(&self) -> bool {
        lock(&self.failed).is_some()
    }

    /// What is remembered of a file. Looked up in the order of keys, it is fast.
    pub(crate) fn look_up(&self, key: Vec<u8>) -> Remembered {
        let record = match self.has_failed() {
            true => None,
            false => lock(&self.index).get(&key).unwrap_or_else(|error| {
                lock(&self.failed).get_or_insert(error);
                None
            }),
        };
        Remembered { key, record, began_ns: now_ns() }
    }

    /// The hash of a file that is what it was.
    pub(crate) fn known(
        &self,
        remembered: &Remembered,
        device: u64,
        stamp: &blockring::Stamp,
    ) -> Option<[u8; 32]> {
        if self.verifies {
            return None;
        }
        let record = remembered.record.as_ref()?;
        (record.stamp == self.stamp(remembered, device, stamp)?).then_some(record.hash)
    }

    /// Takes down what was found.
    pub(crate) fn take_down(&self, remembered: &Remembered, hashed: &Hashed) -> Verdict {
        let stamp = hashed.stamp.as_ref();
        let stamp = stamp.and_then(|stamp| self.stamp(remembered, hashed.device, stamp));
        // Nothing would show that its content is another one.
        let Some(stamp) = stamp else { return Verdict::Fine };
        let mut counts = lock(&self.counts);
        if matches!(hashed.found, Found::Known(_)) {
            counts.unchanged += 1;
            return Verdict::Fine;
        }
        let Some(hash) = hashed.hash().map(blake3::Hash::into) else { return Verdict::Fine };
        match &remembered.record {
            Some(record) if record.stamp == stamp && record.hash == hash => {
                counts.unchanged += 1;
                return Verdict::Fine;
            }
            // What it should be stays known.
            Some(record) if record.stamp == stamp => {
                counts.corrupt += 1;
                return Verdict::Corrupt;
            }
            Some(_) => counts.changed += 1,
            None => counts.new += 1,
        }
        drop(counts);
        if self.has_failed() {
            return Verdict::Fine;
        }
        let put = match is_settled(stamp.ctime_ns, remembered.began_ns) {
            true => lock(&self.index).put(&remembered.key, Record { stamp, hash }),
            false if remembered.record.is_some() => lock(&self.index).remove(&remembered.key),
            false => Ok(()),
        };
        if let Err(error) = put {
            lock(&self.failed).get_or_insert(error);
        }
        Verdict::Fine
    }

    /// All files of a tree were seen: what is remembered of others can go.
    pub(crate) fn forget_unseen(&self, root: &Path) {
        if self.has_failed() {
            return;
        }
        let root = [&Memory::key_of_tree(root)[..], b"/"].concat();
        match lock(&self.index).forget_unseen(&root) {
            Ok(gone) => lock(&self.counts).gone += gone,
            Err(error) => {
                lock(&self.failed).get_or_insert(error);
            }
        }
    }

    /// Writes what was taken down. Fails with the first thing that went wrong.
    pub(crate) fn flush(&self) -> Result<Counts, IndexError> {
        if let Some(error) = lock(&self.failed).take() {
            return Err(error);
        }
        lock(&self.index).flush()?;
        Ok(*lock(&self.counts))
    }

    fn stamp(
        &self,
        remembered: &Remembered,
        device: u64,
        stamp: &blockring::Stamp,
    ) -> Option<index::Stamp> {
        let ns = |(s, ns): (i64, i64)| s.saturating_mul(1_000_000_000).saturating_add(ns);
        Some(index::Stamp {
            file_system: self.file_system(&remembered.key, device)?,
            inode: stamp.inode,
            size: stamp.len,
            mtime_ns: ns(stamp.mtime),
            ctime_ns: ns(stamp.ctime),
        })
    }

    /// The id of the file system that a device number stands for until the next start; the number itself
    /// where it has none. `None` where files change and their times do not show it.
    fn file_system(&self, key: &[u8], device: u64) -> Option<u64> {
        if let Some(known) = lock(&self.file_systems).get(&device) {
            return *known;
        }
        // The file may be gone by now: then the next tells.
        let kind = rustix::fs::statfs(key).ok()?.f_type as u32;
        let id = rustix::fs::statvfs(key).ok()?.f_fsid;
        let id = (!CHANGES_UNSEEN.contains(&kind)).then_some(if id == 0 { device } else { id });
        *lock(&self.file_systems).entry(device).or_insert(id)
    }
}

/// File systems whose files the kernel makes up when they are read, by the numbers of `linux/magic.h` and of
/// their own sources: proc, sysfs, debugfs, tracefs, cgroup, cgroup2, securityfs, configfs, bpf, efivarfs,
/// pstore, selinuxfs, binfmt_misc. And those in memory, where a store into a mapping moves no time at all:
/// tmpfs, ramfs, hugetlbfs.
const CHANGES_UNSEEN: [u32; 16] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x0027_e0eb,
    0x6367_7270,
    0x7363_6673,
    0x6265_6570,
    0xcafe_4a11,
    0xde5e_81e4,
    0x6165_676c,
    0xf97c_ff8c,
    0x4249_4e4d,
    0x0102_1994,
    0x8584_58f6,
    0x9584_58f6,
];

/// Nanoseconds since 1970, by the clock that file systems use.
fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
