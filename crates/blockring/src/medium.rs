//! Whether direct reads of a file are reads of a device, so that what they bring is what the medium
//! holds.
//!
//! That `O_DIRECT` is accepted proves nothing: file systems read through the page cache all the same
//! where they cannot do otherwise. So this names those of which it is known when they do, and refuses the
//! others. What a drive, a controller or the host of a virtual machine has in a cache of its own,
//! nobody here can know.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Statx, StatxAttributes, StatxFlags, fstatfs, statx};

use crate::facts::{Storage, file_system};
use crate::slab::Slab;
use crate::source::{Source, SourceKind};
use crate::sys::{self, FileExtent};

/// Devices and files that may lie below each other: more than that is a circle.
const LAYERS_MAX: u32 = 8;

/// Whether direct reads of `source` are reads of a device, or why that is not so or not known.
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
        (_, Storage::Memory) => Err(format!("{file_system} is in memory: there is no medium")),
        (_, Storage::Network) => Err(format!(
            "{file_system} is on another machine, which may read it out of its cache; run it there"
        )),
        (_, Storage::Fuse) => {
            Err("a FUSE file system reads as it likes; run it on what is below".to_owned())
        }
        (SourceKind::BlockDevice, _) => device(source.device(), layers_left),
        (SourceKind::File, _) => {
            file(source, file_system)?;
            if file_system != "btrfs" {
                return device(source.device(), layers_left);
            }
            let devices = btrfs_devices(source.file())
                .map_err(|error| format!("which devices the btrfs is on is not known: {error}"))?;
            devices.into_iter().try_for_each(|number| device(number, layers_left))
        }
        (kind, _) => Err(format!("{} has no medium", kind.name())),
    }
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

/// btrfs reads compressed and inline extents through the page cache, and what is not in whole sectors of
/// its own (`btrfs_dio_iomap_begin` and `check_direct_IO` of Linux 6.18). Into memory whose pages are not
/// there yet, too: `choose.rs` takes pinned memory for that.
fn btrfs(file: &File) -> Result<(), String> {
    let sector_bytes = fstatfs(file).map_or(0, |stat| stat.f_bsize);
    if sector_bytes as u64 > Slab::ALIGN_BYTES_MAX.into() {
        return Err(format!(
            "btrfs has sectors of {sector_bytes} bytes here, and reads others through the page cache"
        ));
    }
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

/// The numbers of the devices that a btrfs is on.
fn btrfs_devices(file: &File) -> io::Result<Vec<u64>> {
    let folder = format!("/sys/fs/btrfs/{}/devices", sys::btrfs_uuid(file)?);
    let devices: io::Result<Vec<u64>> =
        fs::read_dir(folder)?.map(|device| device_number(&device?.path().join("dev"))).collect();
    match devices {
        Ok(devices) if devices.is_empty() => Err(io::ErrorKind::NotFound.into()),
        devices => devices,
    }
}

/// The number in a file `dev` of sysfs: `MAJOR:MINOR`.
fn device_number(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    let number = text.trim().split_once(':').and_then(|(major, minor)| {
        Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    });
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Whether a device holds its content itself, and so does whatever it is made of.
fn device(number: u64, layers_left: u32) -> Result<(), String> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let Some(layers_left) = layers_left.checked_sub(1) else {
        return Err("there are too many layers below it to look at".to_owned());
    };
    let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let folder = fs::canonicalize(folder)
        .map_err(|error| format!("device {major}:{minor} is not in sysfs: {error}"))?;
    // A partition's folder lies in that of its disk.
    let disk = match folder.join("partition").exists() {
        true => folder.parent().unwrap_or(&folder),
        false => &folder,
    };
    let name = disk.file_name().unwrap_or_default().to_string_lossy();
    let is_numbered = |driver: &str| {
        name.strip_prefix(driver).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    if is_numbered("ram") || is_numbered("zram") {
        return Err(format!("{name} is in memory: there is no medium"));
    }
    if is_numbered("nbd") || is_numbered("rbd") {
        return Err(format!("{name} is on another machine: run it there"));
    }
    if is_numbered("loop") {
        return loop_device(disk, &name, layers_left);
    }
    // Drivers of disks, and of what is made of disks (LVM, encryption, RAID); not those of programs
    // (ublk) and of file systems with caches of their own (ZFS volumes).
    let drivers = ["nvme", "mmcblk", "pmem", "sd", "vd", "xvd", "hd", "sr", "dm-", "md"];
    if !drivers.into_iter().any(|driver| name.starts_with(driver)) {
        return Err(format!("it is not known whether {name} holds its content itself"));
    }
    let slaves = match fs::read_dir(disk.join("slaves")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        slaves => {
            slaves.map_err(|error| format!("what {name} is made of is not known: {error}"))?
        }
    };
    for slave in slaves {
        let slave = slave.and_then(|slave| device_number(&slave.path().join("dev")));
        let slave =
            slave.map_err(|error| format!("what {name} is made of is not known: {error}"))?;
        device(slave, layers_left)?;
    }
    Ok(())
}

/// Whether a loop device is over this very file.
fn is_backing(source: &Source, name: &str) -> bool {
    let of_device =
        File::open(format!("/dev/{name}")).and_then(|device| sys::loop_backing(&device));
    match (of_device, source.file().metadata()) {
        (Ok(backing), Ok(metadata)) => backing == (metadata.dev(), metadata.ino()),
        _ => false,
    }
}

/// A loop device is as good as its file, if it reads that past the page cache.
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
        // A path may lead to another file by now, or here.
        Ok(source) if !is_backing(&source, name) => {
            Err("which file that is cannot be told (it takes read access to the device)".to_owned())
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
    fn a_device_that_cannot_be_looked_at_is_refused() {
        let why = device(rustix::fs::makedev(4095, 0), LAYERS_MAX).expect_err("no such device");
        assert!(why.contains("4095:0 is not in sysfs"), "{why}");
        let why = device(rustix::fs::makedev(4095, 0), 0).expect_err("too deep");
        assert!(why.contains("too many layers"), "{why}");
    }
}
