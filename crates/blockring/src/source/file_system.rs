//! The file system of a file: its name, the source of its bytes, and whether it reports sizes.

use std::fs::File;

use rustix::fs::fstatfs;

use crate::sys;

/// Where the bytes of a file come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// A disk of this machine, as far as is known.
    Local,
    /// Memory: tmpfs and the like.
    Memory,
    /// Another machine.
    Network,
    /// A program on this machine.
    Fuse,
    /// The kernel generates the bytes when they are read, and file sizes are meaningless.
    Pseudo,
    /// Another file system, and it is unknown which.
    Unknown,
}

const FUSE: u32 = 0x6573_5546;

/// Whether a file is on FUSE, which may be mounted over a block device.
pub(super) fn is_fuse(file: &File) -> bool {
    fstatfs(file).is_ok_and(|stat| stat.f_type as u32 == FUSE)
}

/// Returns the name and storage of a file's file system, by the magic numbers of `linux/magic.h`
/// and of the file systems' own headers.
pub(crate) fn file_system(file: &File) -> (&'static str, Storage) {
    let Ok(stat) = fstatfs(file) else {
        return ("an unknown file system", Storage::Local);
    };
    match stat.f_type as u32 {
        0xEF53 => ("ext4", Storage::Local),
        0x5846_5342 => ("XFS", Storage::Local),
        0x9123_683E => ("btrfs", Storage::Local),
        0xF2F5_2010 => ("F2FS", Storage::Local),
        0x2FC1_2FC1 => ("ZFS", Storage::Local),
        0xCA45_1A4E => ("bcachefs", Storage::Local),
        0x794C_7630 => ("overlayfs", storage_below(file)),
        0x7371_7368 => ("SquashFS", Storage::Local),
        0xE0F5_E1E2 => ("EROFS", Storage::Local),
        0x4D44 => ("FAT", Storage::Local),
        0x2011_BAB0 => ("exFAT", Storage::Local),
        0x7366_746E => ("NTFS", Storage::Local),
        0x9660 => ("ISO 9660", Storage::Local),
        0x0102_1994 => ("tmpfs", Storage::Memory),
        0x8584_58F6 => ("ramfs", Storage::Memory),
        0x9584_58F6 => ("hugetlbfs", Storage::Memory),
        0x6969 => ("NFS", Storage::Network),
        0xFF53_4D42 | 0xFE53_4D42 => ("SMB", Storage::Network),
        0x0102_1997 => ("9P", Storage::Network),
        0x00C3_6400 => ("Ceph", Storage::Network),
        0x5346_414F | 0x6B41_4653 => ("AFS", Storage::Network),
        0x0BD0_0BD0 => ("Lustre", Storage::Network),
        0x4750_4653 => ("GPFS", Storage::Network),
        0x0116_1970 => ("GFS2", Storage::Network),
        FUSE => ("FUSE", Storage::Fuse),
        0x9FA0 => ("proc", Storage::Pseudo),
        0x6265_6572 => ("sysfs", Storage::Pseudo),
        0x6462_6720 => ("debugfs", Storage::Pseudo),
        0x7472_6163 => ("tracefs", Storage::Pseudo),
        0x0027_E0EB | 0x6367_7270 => ("cgroup", Storage::Pseudo),
        0x7363_6673 => ("securityfs", Storage::Pseudo),
        0x6265_6570 => ("configfs", Storage::Pseudo),
        0xCAFE_4A11 => ("bpf", Storage::Pseudo),
        0xDE5E_81E4 => ("efivarfs", Storage::Pseudo),
        0x6165_676C => ("pstore", Storage::Pseudo),
        0xF97C_FF8C => ("selinuxfs", Storage::Pseudo),
        0x4341_5D53 => ("smackfs", Storage::Pseudo),
        0x5A3C_69F0 => ("apparmorfs", Storage::Pseudo),
        0x4249_4E4D => ("binfmt_misc", Storage::Pseudo),
        0x0765_5821 => ("resctrl", Storage::Pseudo),
        0x6573_5543 => ("fusectl", Storage::Pseudo),
        0x6759_6969 => ("rpc_pipefs", Storage::Pseudo),
        0xABBA_1974 => ("xenfs", Storage::Pseudo),
        // Without its own device it may also pass reads on.
        _ if rustix::fs::fstat(file).is_ok_and(|stat| rustix::fs::major(stat.st_dev) == 0) => {
            ("an unknown file system", storage_below(file))
        }
        _ => ("an unknown file system", Storage::Local),
    }
}

/// Returns the storage of a file that its file system takes from another one. Which one is unknown:
/// the paths of an overlay's layers (`lowerdir=` in mountinfo) are those of the process that
/// mounted it, and are meaningless in a container. But the extents of the file on the device can be
/// requested, and the file system below answers: those on disks do, while FUSE, 9P, NFS and file
/// systems in memory do not. (Nor do SquashFS and ZFS, which read well without direct I/O.)
fn storage_below(file: &File) -> Storage {
    match sys::reports_extents(file) {
        true => Storage::Local,
        false => Storage::Unknown,
    }
}

/// Returns the block size of a file's file system in bytes if it is a power of two, otherwise 1.
pub(crate) fn file_system_block_bytes(file: &File) -> u32 {
    let bytes = fstatfs(file).map_or(1, |stat| stat.f_bsize);
    u32::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(1)
}
