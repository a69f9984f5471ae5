//! Whether direct reads of a file bypass every page cache and reach the device.
//!
//! That `O_DIRECT` is accepted proves nothing: file systems fall back to the page cache when they
//! cannot read directly. So this lists the file systems that document when they do, and rejects all
//! others. The caches of a drive, a controller or the host of a virtual machine are out of scope.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Statx, StatxAttributes, StatxFlags, fstatfs, statx};

use super::file_system::{Storage, file_system};
use super::{Source, SourceKind};
use crate::config::SLOT_ALIGN_BYTES;
use crate::sys::{self, FileExtent};

/// Most layers of devices and files: more than that is a cycle.
const LAYERS_MAX: u32 = 8;

/// Checks that direct reads of `source` reach a device. The error says why they do not, or why that
/// is unknown.
pub(crate) fn check(source: &Source, storage: Storage, file_system: &str) -> Result<(), String> {
    check_layer(source, storage, file_system, LAYERS_MAX)
}

fn check_layer(
    source: &Source,
    storage: Storage,
    file_system: &str,
    layers_left: u32,
) -> Result<(), String> {
    match (source.kind(), storage) {
        (_, Storage::Memory) => Err(format!("{file_system} is in memory: there is no device")),
        (_, Storage::Network) => Err(format!(
            "{file_system} is on another machine, which may read from its own cache; run it there"
        )),
        (_, Storage::Fuse) => {
            Err("a FUSE server reads as it likes; use the files below it".to_owned())
        }
        (_, Storage::Pseudo) => {
            Err(format!("the kernel makes up the content of {file_system}: there is no device"))
        }
        (SourceKind::BlockDevice, _) => device(source.device(), layers_left),
        (SourceKind::File, _) => {
            file(source, file_system)?;
            if file_system != "btrfs" {
                return device(source.device(), layers_left);
            }
            let devices = btrfs_devices(source.file())
                .map_err(|error| format!("the devices of the btrfs are not known: {error}"))?;
            devices.into_iter().try_for_each(|number| device(number, layers_left))
        }
        (kind, _) => Err(format!("{} has no device", kind.name())),
    }
}

/// Checks that the file system reads this file without the page cache.
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
        "ext4" => offers(&stat, "ext4 keeps it in its journal (data=journal) or in its inode"),
        "XFS" => offers(&stat, "XFS offers no direct I/O for it"),
        "F2FS" => offers(&stat, "F2FS compresses it or keeps it in its inode"),
        "btrfs" => btrfs(source.file()),
        other => Err(format!(
            "{other} does not document when it reads without the page cache (ext4, XFS, F2FS and \
             btrfs do)"
        )),
    }
}

/// For a file system that reports for each file whether it supports direct I/O: `STATX_DIOALIGN` is
/// 0 if reads would use the page cache.
fn offers(stat: &Statx, why_not: &str) -> Result<(), String> {
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Err("this kernel does not report which files have direct I/O (it needs Linux 6.1)"
            .to_owned());
    }
    match stat.stx_dio_offset_align {
        0 => Err(why_not.to_owned()),
        _ => Ok(()),
    }
}

/// btrfs reads compressed and inline extents through the page cache, and requests that are not
/// whole sectors of its own (`btrfs_dio_iomap_begin` and `check_direct_IO` of Linux 6.18). Also
/// requests into pages that do not exist yet: hence the pinned memory in `plan/engine.rs`.
fn btrfs(file: &File) -> Result<(), String> {
    let sector_bytes = fstatfs(file).map_or(0, |stat| stat.f_bsize);
    if sector_bytes as u64 > SLOT_ALIGN_BYTES.into() {
        return Err(format!(
            "btrfs has sectors of {sector_bytes} bytes here, and reads smaller requests through the \
             page cache"
        ));
    }
    let mut bad = None;
    let looked = sys::for_each_extent(file, |extent: FileExtent| {
        bad = match () {
            () if extent.has(FileExtent::ENCODED) => Some("compressed"),
            () if extent.has(FileExtent::INLINE) => Some("in the metadata"),
            () => None,
        };
        bad.is_none()
    });
    match (looked, bad) {
        (Ok(()), None) => Ok(()),
        (Ok(()), Some(how)) => Err(format!(
            "btrfs keeps a part of the file {how}, and reads that through the page cache"
        )),
        (Err(error), _) => Err(format!("the extents of the file are not known: FIEMAP: {error}")),
    }
}

/// Returns the device numbers of a btrfs.
fn btrfs_devices(file: &File) -> io::Result<Vec<u64>> {
    let folder = format!("/sys/fs/btrfs/{}/devices", sys::btrfs_uuid(file)?);
    let devices: io::Result<Vec<u64>> =
        fs::read_dir(folder)?.map(|device| device_number(&device?.path().join("dev"))).collect();
    match devices {
        Ok(devices) if devices.is_empty() => Err(io::ErrorKind::NotFound.into()),
        devices => devices,
    }
}

/// Parses the number in a sysfs file `dev`: `MAJOR:MINOR`.
fn device_number(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    let number = text.trim().split_once(':').and_then(|(major, minor)| {
        Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    });
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Checks that a device stores its content itself, as do the devices that it consists of.
fn device(number: u64, layers_left: u32) -> Result<(), String> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let Some(layers_left) = layers_left.checked_sub(1) else {
        return Err("too many layers of devices are below it".to_owned());
    };
    let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let folder = fs::canonicalize(folder)
        .map_err(|error| format!("device {major}:{minor} is not in sysfs: {error}"))?;
    // The folder of a partition is inside that of its disk.
    let disk = match folder.join("partition").exists() {
        true => folder.parent().unwrap_or(&folder),
        false => &folder,
    };
    let name = disk.file_name().unwrap_or_default().to_string_lossy();
    let is_numbered = |driver: &str| {
        name.strip_prefix(driver).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    if is_numbered("ram") || is_numbered("zram") {
        return Err(format!("{name} is in memory: there is no device"));
    }
    if is_numbered("nbd") || is_numbered("rbd") {
        return Err(format!("{name} is on another machine: run it there"));
    }
    if is_numbered("loop") {
        return loop_device(disk, &name, layers_left);
    }
    // Drivers of disks, and of devices made of disks (LVM, encryption, RAID), but not of user-space
    // drivers (ublk) or of file systems with their own caches (ZFS volumes).
    let drivers = ["nvme", "mmcblk", "pmem", "sd", "vd", "xvd", "hd", "sr", "dm-", "md"];
    if !drivers.into_iter().any(|driver| name.starts_with(driver)) {
        return Err(format!("it is not known whether {name} stores its content itself"));
    }
    let slaves = match fs::read_dir(disk.join("slaves")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        slaves => slaves.map_err(|error| format!("the parts of {name} are not known: {error}"))?,
    };
    for slave in slaves {
        let slave = slave.and_then(|slave| device_number(&slave.path().join("dev")));
        let slave = slave.map_err(|error| format!("the parts of {name} are not known: {error}"))?;
        device(slave, layers_left)?;
    }
    Ok(())
}

/// Whether this file is the backing file of a loop device.
fn is_backing(source: &Source, name: &str) -> bool {
    let of_device =
        File::open(format!("/dev/{name}")).and_then(|device| sys::loop_backing(&device));
    match (of_device, source.file().metadata()) {
        (Ok(backing), Ok(metadata)) => backing == (metadata.dev(), metadata.ino()),
        _ => false,
    }
}

/// Checks a loop device: it is as good as its backing file, if it reads that with direct I/O.
fn loop_device(disk: &Path, name: &str, layers_left: u32) -> Result<(), String> {
    let attribute = |file: &str| fs::read(disk.join("loop").join(file)).unwrap_or_default();
    if attribute("dio").trim_ascii() != b"1" {
        return Err(format!(
            "{name} reads its file through the page cache; give it direct I/O (losetup --direct-io=on)"
        ));
    }
    let backing = attribute("backing_file");
    let backing = Path::new(OsStr::from_bytes(backing.strip_suffix(b"\n").unwrap_or(&backing)));
    let below = match Source::open(backing) {
        // The path may lead to another file by now, or in this mount namespace.
        Ok(source) if !is_backing(&source, name) => {
            Err("which file that is cannot be told without read access to the device".to_owned())
        }
        Ok(source) => {
            let (file_system, storage) = file_system(source.file());
            check_layer(&source, storage, file_system, layers_left)
        }
        Err(error) => Err(error.to_string()),
    };
    below.map_err(|why| format!("{name} is a loop device over {}: {why}", backing.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_without_a_device_are_refused() {
        let pipe = std::io::pipe().expect("a pipe").0;
        let pipe =
            Source::from_file(File::from(std::os::fd::OwnedFd::from(pipe)), "-").expect("it");
        let cases = [
            (Storage::Memory, "tmpfs", "is in memory"),
            (Storage::Network, "NFS", "another machine"),
            (Storage::Fuse, "FUSE", "as it likes"),
            (Storage::Pseudo, "proc", "makes up"),
            (Storage::Local, "", "a pipe has no device"),
        ];
        for (storage, file_system, part) in cases {
            let why = check(&pipe, storage, file_system).expect_err(part);
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn a_device_that_is_not_in_sysfs_is_refused() {
        let why = device(rustix::fs::makedev(4095, 0), LAYERS_MAX).expect_err("no such device");
        assert!(why.contains("4095:0 is not in sysfs"), "{why}");
        let why = device(rustix::fs::makedev(4095, 0), 0).expect_err("too deep");
        assert!(why.contains("too many layers"), "{why}");
    }
}
