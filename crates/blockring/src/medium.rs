//! Whether direct reads of a file are reads of a device, so that what they bring is what the medium
//! holds.
//!
//! That `O_DIRECT` is accepted proves nothing: file systems read through the page cache all the same
//! where they cannot do otherwise. So this names those of which it is known when they do, and refuses the
//! others. What a drive, a controller or the host of a virtual machine has in a cache of its own,
//! nobody here can know.

use std::fs::File;

use rustix::fs::{AtFlags, Statx, StatxAttributes, StatxFlags, statx};

use crate::facts::{Queue, Storage};
use crate::source::{Source, SourceKind};
use crate::sys::{self, FileExtent};

/// Whether direct reads of `source` are reads of a device, or why that is not so or not known.
pub(crate) fn check(source: &Source, storage: Storage, file_system: &str) -> Result<(), String> {
    match (source.kind(), storage) {
        (_, Storage::Memory) => {
            return Err(format!("{file_system} is in memory: there is no medium"));
        }
        (_, Storage::Network) => {
            return Err(format!(
                "{file_system} is on another machine, which may read it out of its cache; run it there"
            ));
        }
        (_, Storage::Fuse) => {
            return Err("a FUSE file system reads as it likes; run it on what is below".to_owned());
        }
        (SourceKind::BlockDevice, _) => {}
        (SourceKind::File, _) => file(source, file_system)?,
        (kind, _) => return Err(format!("{} has no medium", kind.name())),
    }
    device(source.device())
}

/// Whether the file system reads this file past the page cache.
fn file(source: &Source, file_system: &str) -> Result<(), String> {
    let flags = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
    let stat = statx(source.file(), "", AtFlags::EMPTY_PATH, flags)
        .map_err(|error| format!("statx: {error}"))?;
    let has = |attribute: StatxAttributes| stat.stx_attributes.contains(attribute);
    if has(StatxAttributes::ENCRYPTED) {
        return Err("the file is encrypted: it is decrypted in the page cache".to_owned());
    }
    if has(StatxAttributes::VERITY) {
        return Err("the file has fs-verity: it is verified in the page cache".to_owned());
    }
    match file_system {
        "ext4" => tells(&stat, "ext4 has it in its journal (data=journal) or in its inode"),
        "XFS" => tells(&stat, "XFS offers no direct I/O for it"),
        "F2FS" => tells(&stat, "F2FS compresses it or keeps it in its inode"),
        "btrfs" => btrfs(source.file()),
        other => Err(format!(
            "it is not known when {other} reads past the page cache (it is of ext4, XFS, F2FS and \
             btrfs)"
        )),
    }
}

/// A file system that says for each file whether it has direct I/O: `STATX_DIOALIGN` is 0 where reads
/// would go through the page cache.
fn tells(stat: &Statx, why_not: &str) -> Result<(), String> {
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Err(
            "this kernel does not say which files have direct I/O (it needs Linux 6.1)".to_owned()
        );
    }
    match stat.stx_dio_offset_align {
        0 => Err(why_not.to_owned()),
        _ => Ok(()),
    }
}

/// btrfs reads compressed and inline extents through the page cache, and no other (`btrfs_dio_iomap_begin`
/// of Linux).
fn btrfs(file: &File) -> Result<(), String> {
    let mut bad = None;
    let looked = sys::for_each_extent(file, |extent: FileExtent| {
        bad = match () {
            () if extent.is_encoded() => Some("compressed"),
            () if extent.is_inline() => Some("in the metadata"),
            () => None,
        };
        bad.is_none()
    });
    match (looked, bad) {
        (Ok(()), None) => Ok(()),
        (Ok(()), Some(how)) => Err(format!(
            "btrfs has a part of the file {how}, and reads that through the page cache"
        )),
        (Err(error), _) => Err(format!("where btrfs has the file is not known: FIEMAP: {error}")),
    }
}

/// Whether a device is one that holds its content itself.
fn device(device: u64) -> Result<(), String> {
    let queue = Queue::of(device);
    // By the kernel's `admin-guide/devices.txt`.
    match rustix::fs::major(device) {
        1 => Err("a RAM disk is in memory: there is no medium".to_owned()),
        43 => Err("a network block device is on another machine: run it there".to_owned()),
        7 if queue.attribute("loop/dio").as_deref() != Some("1") => {
            Err("a loop device reads its file through the page cache; give it direct I/O (losetup \
                 --direct-io=on)"
                .to_owned())
        }
        _ if queue.attribute("comp_algorithm").is_some() => {
            Err("zram is in memory: there is no medium".to_owned())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_medium_is_named() {
        let pipe = std::io::pipe().expect("a pipe").0;
        let pipe =
            Source::from_file(File::from(std::os::fd::OwnedFd::from(pipe)), "-").expect("it");
        let cases = [
            (Storage::Memory, "tmpfs", "is in memory"),
            (Storage::Network, "NFS", "another machine"),
            (Storage::Fuse, "FUSE", "as it likes"),
            (Storage::Local, "", "a pipe has no medium"),
        ];
        for (storage, file_system, part) in cases {
            let why = check(&pipe, storage, file_system).expect_err(part);
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn devices_that_hold_nothing_are_named() {
        let of = |major, minor| device(rustix::fs::makedev(major, minor));
        assert!(of(1, 0).expect_err("ram0").contains("RAM disk"));
        assert!(of(43, 0).expect_err("nbd0").contains("another machine"));
        assert!(of(7, 1023).expect_err("a loop device").contains("--direct-io=on"));
        assert_eq!(of(0, 0), Ok(()));
    }
}
