//! Change detection: the values reported by `stat` that change when a file does.

use std::fs::File;
use std::io;

use crate::error::{Change, ErrorKind};

/// Size, times and identity of a file. Times are seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    /// Inode number in its file system.
    pub inode: u64,
    /// Type and permissions (`st_mode`).
    pub mode: u32,
    /// Length in bytes.
    pub len: u64,
    /// Last modification of its content, unless a process set it to another time.
    pub mtime: (i64, i64),
    /// Last change of its content or its attributes.
    pub ctime: (i64, i64),
}

impl Fingerprint {
    pub(super) fn of(stat: &rustix::fs::Stat) -> Fingerprint {
        Fingerprint {
            inode: stat.st_ino,
            mode: stat.st_mode,
            len: stat.st_size as u64,
            mtime: (stat.st_mtime, stat.st_mtime_nsec as i64),
            ctime: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }

    /// Returns how the open file differs from this; `None` if it does not.
    ///
    /// Since Linux 6.13 every write that follows a `stat` changes the times. Before, two events
    /// within one clock tick (1 to 10 ms) may have the same time.
    pub(super) fn change(&self, file: &File) -> Result<Option<Change>, ErrorKind> {
        let now = match rustix::fs::fstat(file) {
            Ok(stat) => Fingerprint::of(&stat),
            Err(error) => {
                let error = io::Error::from(error);
                return Err(ErrorKind::Inspect { operation: "fstat", error });
            }
        };
        let (from, to) = (self.len, now.len);
        Ok(match () {
            () if to < from => Some(Change::Shrank { from, to }),
            () if to > from => Some(Change::Grew { from, to }),
            // Files in /proc report no length, and meaningless times.
            () if from == 0 || now == *self => None,
            () if now.mtime != self.mtime => Some(Change::Rewritten),
            () => Some(Change::StatusChanged),
        })
    }
}
