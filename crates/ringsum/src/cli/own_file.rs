//! Recognizes the run's own files in a tree, whatever path the walk reaches them by.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringsum::files::walk::Entry;
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags};

/// A regular file that this run writes to.
#[derive(Debug)]
pub(crate) struct OwnFile {
    fd: OwnedFd,
    device: u64,
    inode: u64,
}

impl OwnFile {
    /// Returns `None` if it is not a regular file.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Option<OwnFile> {
        let stat = rustix::fs::fstat(fd).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
        let fd = is_file.then(|| fd.try_clone_to_owned().ok()).flatten()?;
        Some(OwnFile { fd, device: stat.st_dev, inode: stat.st_ino })
    }

    /// Whether an entry is this file: by device and inode, which bind mounts preserve. An overlayfs
    /// has its own device number; through it, inode, birth time and size identify a file.
    pub(crate) fn is(&self, entry: &Entry) -> bool {
        let (device, inode) = entry.id();
        inode == self.inode && (device == self.device || self.is_layer_of(entry).unwrap_or(false))
    }

    fn is_layer_of(&self, entry: &Entry) -> Option<bool> {
        let fd = entry.open().ok()?;
        let (ours, other) = (identity(self.fd.as_fd())?, identity(fd.as_fd())?);
        let is_overlay = is_overlayfs(self.fd.as_fd()) || is_overlayfs(fd.as_fd());
        Some(is_overlay && ours == other)
    }
}

/// Inode, birth time, and size.
fn identity(fd: BorrowedFd<'_>) -> Option<(u64, (i64, u32), u64)> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let statx: Statx = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted).ok()?;
    let has_birth_time = statx.stx_mask & StatxFlags::BTIME.bits() != 0;
    let birth_time = (statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec);
    has_birth_time.then_some((statx.stx_ino, birth_time, statx.stx_size))
}

fn is_overlayfs(fd: BorrowedFd<'_>) -> bool {
    /// `OVERLAYFS_SUPER_MAGIC` of `linux/magic.h`.
    const OVERLAYFS: u32 = 0x794c_7630;
    rustix::fs::fstatfs(fd).is_ok_and(|stat| stat.f_type as u32 == OVERLAYFS)
}
