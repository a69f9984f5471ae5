//! One run at a time on each disk: two that read from one disk are slower together than one after the other.
//!
//! A lock is a file in the state directory, locked by `flock(2)`, so it ends with its process. It is never removed:
//! a process that waits for a removed file would wait for another lock than the next one that comes.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Most devices on top of each other (a partition of a RAID of encrypted disks) that are looked through.
const LAYERS_MAX: u32 = 16;

pub(crate) struct DeviceLocks {
    state: PathBuf,
    /// The directory of the last lock, and its disks: sidecars of one directory follow each other.
    last: Option<(PathBuf, Vec<String>)>,
}

/// Locks that end when this is dropped.
pub(crate) struct Locked(#[expect(dead_code, reason = "held")] Vec<File>);

impl DeviceLocks {
    pub(crate) fn new(state: &Path) -> DeviceLocks {
        DeviceLocks { state: state.to_owned(), last: None }
    }

    /// Locks the disks below a directory, and waits for other runs to release them.
    pub(crate) fn lock(&mut self, directory: &Path) -> Result<Locked> {
        if self.last.as_ref().is_none_or(|(of, _)| of != directory) {
            self.last = Some((directory.to_owned(), disks_of(directory)));
        }
        let disks = self.last.iter().flat_map(|(_, disks)| disks);
        // In one order, so that two runs never wait for each other.
        let files = disks.map(|disk| self.lock_disk(disk)).collect::<Result<_>>()?;
        Ok(Locked(files))
    }

    fn lock_disk(&self, disk: &str) -> Result<File> {
        let path = self.state.join(format!("device-{disk}.lock"));
        let lock = || -> std::io::Result<File> {
            let file = File::options().create(true).append(true).open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => {}
                locked => return Ok(locked.map(|()| file)?),
            }
            eprintln!("ringguard: waiting for another run that reads from device {disk}");
            loop {
                match flock(&file, FlockOperation::LockExclusive) {
                    Err(Errno::INTR) => {}
                    locked => return Ok(locked.map(|()| file)?),
                }
            }
        };
        lock().with_context(|| path.display().to_string())
    }
}

/// Returns the disks that hold a directory, sorted. If they are unknown (a network file system), the number of the file
/// system stands for them.
fn disks_of(directory: &Path) -> Vec<String> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let Ok(metadata) = fs::metadata(directory) else { return Vec::new() };
    let mut device = metadata.dev();
    if rustix::fs::major(device) == 0 {
        // btrfs and others have a number of their own, and the device is named where they are mounted.
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let source = fs::canonicalize(directory).ok().and_then(|path| source_of(&mounts, &path));
        let source = source.and_then(|source| fs::metadata(source).ok());
        if let Some(source) = source.filter(|source| source.file_type().is_block_device()) {
            device = source.rdev();
        }
    }
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mut disks = Vec::new();
    disks_below(Path::new("/sys/dev/block"), &number, LAYERS_MAX, &mut disks);
    disks.sort();
    disks.dedup();
    disks
}

/// Returns the device that the file system of a path was mounted from, as `mountinfo` names it.
fn source_of(mounts: &str, path: &Path) -> Option<PathBuf> {
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let point = PathBuf::from(unescaped(before.split(' ').nth(4)?));
        path.starts_with(&point).then(|| (point, unescaped(after.split(' ').nth(1).unwrap_or(""))))
    };
    // Of two at one place, the later one hides the other.
    let innermost =
        mounts.lines().filter_map(mount).max_by_key(|(point, _)| point.components().count());
    innermost.map(|(_, source)| source.into())
}

/// Undoes the octal escapes of `mountinfo`: space, tab, newline and backslash.
fn unescaped(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Adds the disks below a device: that of a partition, and those of a RAID, a volume or an encrypted device.
fn disks_below(sysfs: &Path, number: &str, layers: u32, disks: &mut Vec<String>) {
    let Ok(mut folder) = fs::canonicalize(sysfs.join(number)) else {
        disks.push(number.to_owned());
        return;
    };
    if folder.join("partition").exists() {
        folder.pop();
    }
    let number_of = |folder: &Path| fs::read_to_string(folder.join("dev"));
    let slaves = fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
    let below: Vec<_> = slaves.filter_map(|slave| number_of(&slave.path()).ok()).collect();
    if below.is_empty() || layers == 0 {
        let number = number_of(&folder).unwrap_or_else(|_| number.to_owned());
        disks.push(number.trim().to_owned());
        return;
    }
    for slave in below {
        disks_below(sysfs, slave.trim(), layers - 1, disks);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn disks_are_found_below_partitions_and_volumes() {
        let folder = tempfile::tempdir().unwrap();
        let (numbers, devices) = (folder.path().join("block"), folder.path().join("devices"));
        fs::create_dir_all(&numbers).unwrap();
        let device = |path: &str, number: &str, slaves: &[&str]| {
            let place = devices.join(path);
            fs::create_dir_all(place.join("slaves")).unwrap();
            fs::write(place.join("dev"), format!("{number}\n")).unwrap();
            symlink(&place, numbers.join(number)).unwrap();
            for slave in slaves {
                let name = Path::new(slave).file_name().unwrap();
                symlink(devices.join(slave), place.join("slaves").join(name)).unwrap();
            }
        };
        device("sda", "8:0", &[]);
        device("sda/sda1", "8:1", &[]);
        fs::write(devices.join("sda/sda1/partition"), "1\n").unwrap();
        device("sdb", "8:16", &[]);
        // A RAID of a partition and a whole disk, and an encrypted device on it.
        device("md0", "9:0", &["sda/sda1", "sdb"]);
        device("dm-0", "253:0", &["md0"]);
        let found = |number: &str| {
            let mut disks = Vec::new();
            disks_below(&numbers, number, LAYERS_MAX, &mut disks);
            disks.sort();
            disks
        };
        assert_eq!(found("8:0"), ["8:0"]);
        assert_eq!(found("8:1"), ["8:0"]);
        assert_eq!(found("253:0"), ["8:0", "8:16"]);
        assert_eq!(found("0:77"), ["0:77"], "no device");
        // A device below itself ends somewhere.
        symlink(devices.join("dm-0"), devices.join("sdb/slaves/dm-0")).unwrap();
        assert!(found("253:0").contains(&"8:0".to_owned()));
    }

    #[test]
    fn the_innermost_mount_names_the_device() {
        let mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            30 22 0:31 /data /srv/a\\040b rw shared:1 - btrfs /dev/sdb rw\n\
            31 22 0:40 / /srv/nfs rw - nfs host:/x rw\n";
        let of = |path| source_of(mounts, Path::new(path)).unwrap();
        assert_eq!(of("/srv/a b/c"), Path::new("/dev/sdb"));
        assert_eq!(of("/srv/a"), Path::new("/dev/sda1"));
        assert_eq!(of("/srv/nfs"), Path::new("host:/x"));
        assert_eq!(source_of("", Path::new("/")), None);
    }
}
