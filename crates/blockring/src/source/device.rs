//! The block device under a source: its attributes in sysfs, and its response time.

use std::fs::{self, File};
use std::io;
use std::time::{Duration, Instant};

use super::Source;
use super::direct::direct_read;

/// The sysfs folder of a block device, or of the device that contains a partition.
pub(super) struct Queue(Option<String>);

impl Queue {
    pub(super) fn of(device: u64) -> Queue {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        // Major 0 is not a device: btrfs, overlayfs and others invent a number for each mount.
        Queue((major != 0).then(|| format!("/sys/dev/block/{major}:{minor}")))
    }

    /// Whether the device belongs to a driver of real disks, by the majors in the kernel's
    /// `admin-guide/devices.txt` (IDE, SCSI). Other drivers report any device as rotational, which
    /// is ignored unless a measurement confirms it.
    pub(super) fn is_plain_disk(device: u64) -> bool {
        matches!(rustix::fs::major(device), 3 | 8 | 22 | 65..=71 | 128..=135)
    }

    pub(super) fn read(&self, name: &str) -> Option<u32> {
        let base = self.0.as_deref()?;
        let text = fs::read_to_string(format!("{base}/queue/{name}"))
            .or_else(|_| fs::read_to_string(format!("{base}/../queue/{name}")));
        text.ok()?.trim().parse().ok()
    }

    /// Checks that completions can be polled. Otherwise a request of a polled ring may never end,
    /// nor its process.
    pub(super) fn has_poll_queues(&self) -> Result<(), String> {
        match self.read("io_poll") {
            Some(1..) => Ok(()),
            Some(0) => {
                Err("IOPOLL: the device has no poll queues (queue/io_poll is 0; for NVMe, load \
                     the driver with nvme.poll_queues=N)"
                    .to_owned())
            }
            None => {
                Err("IOPOLL: the device is not known, so it may have no poll queues".to_owned())
            }
        }
    }
}

/// Least seek time of a rotational device: a disk rotates once in 4 to 11 ms, while other devices
/// answer in under 1 ms. Needed because virtio, Xen, nbd and loop devices, and devices stacked on
/// them, are reported as rotational by default.
pub(super) const SEEK_MIN: Duration = Duration::from_millis(1);

/// Measures scattered direct reads within a file, up to six.
pub(super) fn seek_within(file: &File, len: u64) -> io::Result<Option<Duration>> {
    // Far from each other, and excluding the first and the last blocks.
    seek_time([5, 1, 3, 6, 2, 4].map(|part| {
        let offset = (len / 7 * part) / 4096 * 4096;
        move || timed(|| direct_read(file, offset, 4096))
    }))
}

/// Measures direct reads of files that are far from each other.
pub(super) fn seek_between(files: &[Source], align: u32) -> io::Result<Option<Duration>> {
    seek_time(files.iter().map(|source| {
        move || {
            let file = source.reopen_direct()?;
            timed(|| direct_read(&file, 0, align))
        }
    }))
}

fn timed(read: impl FnOnce() -> io::Result<usize>) -> io::Result<Duration> {
    let start = Instant::now();
    read()?;
    Ok(start.elapsed())
}

/// Returns the second shortest time. Stops after two reads that were shorter than any seek. (The
/// median of three measures other work on the machine: with 8 busy threads on two processors a
/// virtual SSD was taken for a rotational disk in 6 of 25 runs, and with this in none. With 20 busy
/// threads it was 10 to 15, and is 8.)
fn seek_time(
    reads: impl IntoIterator<Item = impl FnOnce() -> io::Result<Duration>>,
) -> io::Result<Option<Duration>> {
    let mut times = Vec::new();
    for read in reads {
        times.push(read()?);
        times.sort_unstable();
        if times.get(1).is_some_and(|second| *second < SEEK_MIN) {
            break;
        }
    }
    Ok(times.get(1).or(times.first()).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_short_reads_show_that_a_device_is_not_rotational() {
        let seek = |millis: &[u64]| {
            let made = std::cell::Cell::new(0);
            let reads = millis.iter().map(|time| {
                let made = &made;
                move || {
                    made.set(made.get() + 1);
                    Ok(Duration::from_millis(*time))
                }
            });
            let seek = seek_time(reads).unwrap().map(|seek| seek.as_millis() as u64);
            (seek, made.get())
        };
        assert_eq!(seek(&[0, 0, 9, 9, 9, 9]), (Some(0), 2), "no more reads than needed");
        assert_eq!(seek(&[12, 0, 30, 0, 9, 9]), (Some(0), 4), "the device was busy");
        assert_eq!(seek(&[9, 0, 8, 12, 7, 11]), (Some(7), 6), "one was in the disk's cache");
        assert_eq!(seek(&[9]), (Some(9), 1));
        assert_eq!(seek(&[]), (None, 0));
        let refused = || Err(io::Error::from_raw_os_error(libc::EINVAL));
        assert_eq!(seek_time([refused]).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
