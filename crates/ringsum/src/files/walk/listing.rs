//! Directory listing: the entries of a directory and their types, read, selected and sorted.
//!
//! If a directory has more entries than memory allows, one pass keeps the first of them, and the
//! next pass those after.

use std::cmp::Ordering;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{AtFlags, FileType, RawDir};
use rustix::io::Errno;

use super::Select;

/// One entry of a directory: 24 bytes besides its name.
#[derive(Clone, Copy)]
pub(super) struct EntryRecord {
    name_start: usize,
    pub(super) inode: u64,
    /// 1-based index into `Listing::extras`; 0 for most entries, which have none.
    pub(super) extra: u32,
    name_len: u16,
    /// `Unknown` for a failed entry.
    pub(super) kind: FileType,
}

/// Data that only followed links and failed entries have.
#[derive(Clone, Copy)]
pub(super) struct Extra {
    pub(super) device: Option<u64>,
    pub(super) errno: Option<Errno>,
}

/// How to read a directory.
pub(super) struct Reading<'r> {
    /// Determine the types of link targets.
    pub(super) follow: bool,
    /// Only entries after this one.
    pub(super) after: Option<&'r Key>,
    /// Most bytes of entries that are kept; at least one entry is kept.
    pub(super) bytes_max: usize,
    pub(super) stop: &'r AtomicBool,
}

/// Sort key of an entry.
pub(super) struct Key {
    name: Box<[u8]>,
    kind: FileType,
}

impl Key {
    /// Compares an entry to this key.
    fn compared_by(&self, name: &[u8], kind: FileType) -> Ordering {
        compare(name, kind, &self.name, self.kind)
    }
}

/// The content of a directory, or a part of it.
#[derive(Default)]
pub(super) struct Listing {
    names: Vec<u8>,
    pub(super) records: Vec<EntryRecord>,
    extras: Vec<Extra>,
    /// Indices of the records of directories to descend into.
    pub(super) children: Vec<usize>,
    /// The last entry of this part, if there are more.
    pub(super) more_after: Option<Key>,
}

impl Listing {
    /// Reads until the end, an error, or `stop`.
    pub(super) fn read(
        &mut self,
        directory: BorrowedFd<'_>,
        how: &Reading<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                Err(error) => {
                    // The position of the next pass cannot be known.
                    self.more_after = None;
                    return Err(error);
                }
            };
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                let mut kind = entry.file_type();
                let mut inode = entry.ino();
                let mut extra = None;
                let stat = |flags| rustix::fs::statat(directory, name, flags);
                let mut failed = |errno| {
                    extra = Some(Extra { device: None, errno: Some(errno) });
                    FileType::Unknown
                };
                if !is_one_name(name.to_bytes()) {
                    kind = failed(Errno::IO);
                } else if kind == FileType::Unknown {
                    kind = match stat(AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                        Err(errno) => failed(errno),
                    };
                }
                if how.follow && kind == FileType::Symlink {
                    kind = match stat(AtFlags::empty()) {
                        Ok(stat) => {
                            inode = stat.st_ino;
                            extra = Some(Extra { device: Some(stat.st_dev), errno: None });
                            FileType::from_raw_mode(stat.st_mode)
                        }
                        Err(errno) => failed(errno),
                    };
                }
                let name = name.to_bytes();
                if self.takes(how, name, kind) {
                    let kept = self.push(name, kind, inode, extra).and_then(|()| {
                        match self.bytes() > how.bytes_max {
                            true => self.cut(how.bytes_max / 8 * 7),
                            false => Ok(()),
                        }
                    });
                    if kept.is_err() {
                        self.more_after = None;
                        return kept;
                    }
                }
            }
            if how.stop.load(Relaxed) {
                break;
            }
        }
        Ok(())
    }

    /// Whether an entry belongs to this part, as far as is known.
    fn takes(&self, how: &Reading<'_>, name: &[u8], kind: FileType) -> bool {
        how.after.is_none_or(|after| after.compared_by(name, kind).is_gt())
            && self.more_after.as_ref().is_none_or(|last| last.compared_by(name, kind).is_le())
    }

    /// Returns its size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.names.len() + self.records.len() * size_of::<EntryRecord>()
    }

    /// Drops the last entries until at most `bytes_max` are left, but keeps at least one.
    fn cut(&mut self, bytes_max: usize) -> Result<(), Errno> {
        self.sort();
        let mut kept = Listing::default();
        for record in &self.records {
            let name = name_of(&self.names, record);
            let bytes = kept.bytes() + name.len() + size_of::<EntryRecord>();
            if bytes > bytes_max && !kept.records.is_empty() {
                break;
            }
            kept.push(name, record.kind, record.inode, self.extra(record))?;
        }
        if kept.records.len() < self.records.len() {
            kept.more_after = kept
                .records
                .last()
                .map(|last| Key { name: kept.name(last).into(), kind: last.kind });
            *self = kept;
        }
        Ok(())
    }

    /// Adds an entry. Fails if there is no memory for it: a listing may be large.
    pub(super) fn push(
        &mut self,
        name: &[u8],
        kind: FileType,
        inode: u64,
        extra: Option<Extra>,
    ) -> Result<(), Errno> {
        let reserved = self.names.try_reserve(name.len());
        let reserved = reserved.and_then(|()| self.records.try_reserve(1));
        let reserved =
            reserved.and_then(|()| self.extras.try_reserve(usize::from(extra.is_some())));
        reserved.map_err(|_| Errno::NOMEM)?;
        self.extras.extend(extra);
        self.records.push(EntryRecord {
            name_start: self.names.len(),
            inode,
            extra: if extra.is_some() { self.extras.len() as u32 } else { 0 },
            // `d_reclen` has 16 bits, so the length of a name fits.
            name_len: name.len() as u16,
            kind,
        });
        self.names.extend_from_slice(name);
        Ok(())
    }

    /// Drops entries that are not selected. `path` is the directory's, relative to the root.
    pub(super) fn select(&mut self, select: &dyn Select, mut path: Vec<u8>) {
        if !path.is_empty() {
            path.push(b'/');
        }
        let prefix_len = path.len();
        let names = &self.names;
        self.records.retain(|record| {
            path.truncate(prefix_len);
            path.extend_from_slice(name_of(names, record));
            match record.kind {
                FileType::Directory => select.descends(&path),
                _ => select.selects(&path),
            }
        });
    }

    /// Sorts the records and indexes the directories. Without memory for the index, it drops the
    /// directories and fails.
    pub(super) fn finish(&mut self) -> Result<(), Errno> {
        self.sort();
        self.names.shrink_to_fit();
        self.records.shrink_to_fit();
        let is_directory = |record: &EntryRecord| record.kind == FileType::Directory;
        let count = self.records.iter().filter(|record| is_directory(record)).count();
        self.children.clear();
        if self.children.try_reserve_exact(count).is_err() {
            self.records.retain(|record| !is_directory(record));
            return Err(Errno::NOMEM);
        }
        let directories = self.records.iter().enumerate();
        let directories = directories.filter(|(_, record)| is_directory(record));
        self.children.extend(directories.map(|(index, _)| index));
        Ok(())
    }

    fn sort(&mut self) {
        let names = &self.names;
        self.records.sort_unstable_by(|a, b| {
            compare(name_of(names, a), a.kind, name_of(names, b), b.kind)
                .then(a.inode.cmp(&b.inode))
        });
    }

    pub(super) fn name(&self, record: &EntryRecord) -> &[u8] {
        name_of(&self.names, record)
    }

    pub(super) fn extra(&self, record: &EntryRecord) -> Option<Extra> {
        self.extras.get((record.extra as usize).checked_sub(1)?).copied()
    }
}

/// Whether a name is a single path component. Linux before 5.4 passes on names that a server sent,
/// such as `../x`; since then it fails with the same error.
fn is_one_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&b'/')
}

fn name_of<'a>(names: &'a [u8], record: &EntryRecord) -> &'a [u8] {
    &names[record.name_start..record.name_start + usize::from(record.name_len)]
}

/// Byte order with a `/` after a directory's name, which is the order of whole paths below it.
pub(super) fn compare(a: &[u8], a_kind: FileType, b: &[u8], b_kind: FileType) -> Ordering {
    let common = a.len().min(b.len());
    let after = |name: &[u8], kind| match name.get(common) {
        Some(&byte) => Some(byte),
        None => (kind == FileType::Directory).then_some(b'/'),
    };
    a[..common].cmp(&b[..common]).then_with(|| after(a, a_kind).cmp(&after(b, b_kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_no_further_than_into_its_directory() {
        let names: [&[u8]; 7] = [b"", b"a", b"..a", b"../a", b"a/b", b"/", b"a/"];
        let found: Vec<_> = names.into_iter().filter(|name| is_one_name(name)).collect();
        assert_eq!(found, [&b"a"[..], b"..a"]);
    }
}
