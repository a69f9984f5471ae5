//! What is known of a source before it is read: file system, device, direct I/O, residency.
//!
//! Each fact is gathered by one function that never fails: what the system does not say is `None`
//! or carries the reason. Choosing by them is `choose.rs`'s business.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, AtFlags, StatxFlags, fadvise, statx};

use crate::config::{CacheMode, Config, HugePages};
use crate::slab::Slab;
use crate::source::{Source, SourceKind};
use crate::{medium, sys};

/// Where the bytes of a file come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// A disk of this machine, as far as is known.
    Local,
    /// Memory: tmpfs and the like.
    Memory,
    /// Another machine.
    Network,
    /// A program of this machine.
    Fuse,
    /// Another file system, of which nothing tells which it is.
    Unknown,
}

/// What is known of a seekable source with content.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) len: u64,
    pub(crate) kind: SourceKind,
    pub(crate) file_system: &'static str,
    pub(crate) storage: Storage,
    /// Share of the bytes in the page cache, 0 to 1; `None` where nothing tells.
    pub(crate) resident: Option<f64>,
    /// Alignment of direct reads in bytes, or why there are none.
    pub(crate) direct: Result<u32, String>,
    /// The source opened for them.
    pub(crate) direct_file: Option<File>,
    /// What `queue/rotational` says; `None` where there is no such file, or it means nothing.
    pub(crate) rotational: Option<bool>,
    /// Time of scattered direct reads of 4 KiB, the second shortest of several; taken only where
    /// `rotational` says 1.
    pub(crate) seek: Option<Duration>,
    /// Why `RWF_DONTCACHE` cannot be used here, if it cannot. Known only where it may be needed.
    pub(crate) dontcache: Result<(), String>,
    /// Why direct reads here might not be of the medium. Known only where that was asked for.
    pub(crate) medium: Result<(), String>,
    /// Why the device cannot be polled. Known only where that was asked for.
    pub(crate) poll_queues: Result<(), String>,
}

impl Facts {
    /// Gathers what a plan for `source` depends on. Costs some 20 system calls, and three small
    /// reads of the device where it claims to be rotational. A cache mode that is asked for is looked
    /// into wherever the source is; otherwise `dontcache` is only where direct I/O cannot be had,
    /// since the look may bring a page in.
    pub(crate) fn of(source: &Source, len: u64, config: &Config) -> Facts {
        let asked = config.cache_asked();
        let (file_system, storage) = match source.kind() {
            SourceKind::BlockDevice => ("a block device", Storage::Local),
            _ => file_system(source.file()),
        };
        let resident = resident(source.file(), len);
        let mut facts = Facts::new(source, len, (file_system, storage), resident);
        let is_resident = facts.resident.is_some_and(|part| part >= 1.0);
        if is_resident && matches!(asked, None | Some(CacheMode::Buffered)) {
            // The device will not be read: what it could do is no matter, and to find out takes longer
            // (0.3 ms) than a small file.
            facts.direct = Err("not looked for, since all is in the page cache".to_owned());
            return facts;
        }
        facts.look_at_device(source, config, |file, align, turns| match turns {
            true => seek_within(file, len, align),
            false => direct_read(file, 0, align).map(|_| None),
        });
        if let Ok(align) = facts.direct
            && !source.start().is_multiple_of(align.into())
        {
            let start = source.start();
            let why = format!("it is read from byte {start} on, which is no multiple of {align}");
            (facts.direct, facts.direct_file) = (Err(why), None);
            facts.dontcache = dontcache(source.file());
        }
        facts
    }

    /// What a plan for many files of one device depends on, as if each were long and not in the page
    /// cache. `samples`: some of the files, none of them empty, and far from each other; whether the
    /// device turns, several show better than one.
    pub(crate) fn of_many(samples: &[Source], config: &Config) -> Option<Facts> {
        let source = samples.first()?;
        let (file_system, storage) = file_system(source.file());
        let mut facts = Facts::new(source, LONG_BYTES, (file_system, storage), Some(0.0));
        facts.look_at_device(source, config, |file, align, turns| {
            let first = direct_read(file, 0, align);
            match turns && samples.len() >= 3 {
                true => first.and_then(|_| seek_between(samples, align)),
                false => first.map(|_| None),
            }
        });
        Some(facts)
    }

    fn new(
        source: &Source,
        len: u64,
        (file_system, storage): (&'static str, Storage),
        resident: Option<f64>,
    ) -> Facts {
        Facts {
            len,
            kind: source.kind(),
            file_system,
            storage,
            resident,
            direct: Err(format!("{file_system} has no direct I/O")),
            direct_file: None,
            rotational: None,
            seek: None,
            dontcache: Ok(()),
            medium: Ok(()),
            poll_queues: Ok(()),
        }
    }

    /// `first_reads`: makes the first direct reads, with the alignment that they need, and returns how
    /// long they took on a device that says that it turns. That a file could be opened for them proves
    /// little (overlayfs may refuse the read instead).
    fn look_at_device(
        &mut self,
        source: &Source,
        config: &Config,
        first_reads: impl Fn(&File, u32, bool) -> io::Result<Option<Duration>>,
    ) {
        let asked = config.cache_asked();
        if self.storage == Storage::Local || asked == Some(CacheMode::Direct) {
            let queue = Queue::of(source.device());
            self.rotational = queue.read("rotational").map(|value| value != 0);
            match open_direct(source, &queue) {
                Ok((file, align)) => {
                    let seek = first_reads(&file, align, self.rotational == Some(true));
                    match seek.as_ref().map_err(io::Error::raw_os_error) {
                        Err(Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                            self.direct = Err("direct I/O refused at the first read".to_owned());
                        }
                        // What else fails, the reading of the file will meet, and say.
                        _ => {
                            self.seek = seek.ok().flatten();
                            self.direct = Ok(align);
                            self.direct_file = Some(file);
                        }
                    }
                }
                Err(why) => self.direct = Err(why),
            }
        }
        if self.seek.is_none() && !Queue::is_plain_disk(source.device()) {
            self.rotational = self.rotational.filter(|turns| !turns);
        }
        let falls_back = self.storage == Storage::Local && self.direct.is_err();
        if asked == Some(CacheMode::Dontcache) || falls_back {
            self.dontcache = dontcache(source.file());
        }
        if config.medium {
            self.medium = medium::check(source, self.storage, self.file_system);
        }
        if config.uring.iopoll {
            self.poll_queues = Queue::of(source.device()).has_poll_queues();
        }
    }

    /// Whether moving from one place to another is dear on this device.
    pub(crate) fn is_rotational(&self) -> bool {
        self.rotational == Some(true) && self.seek.is_none_or(|seek| seek >= SEEK_MAX)
    }
}

/// `queue/rotational` is 1 by default on virtio, Xen, nbd and loop devices and what is stacked on them. A disk turns once
/// in 4 to 11 ms; anything that answers in under 1 ms does not turn.
const SEEK_MAX: Duration = Duration::from_millis(1);

/// Name and kind of the file system, by the magic numbers of `linux/magic.h` and of the file
/// systems' own headers.
pub(crate) fn file_system(file: &File) -> (&'static str, Storage) {
    let Ok(stat) = rustix::fs::fstatfs(file) else {
        return ("an unknown file system", Storage::Local);
    };
    match stat.f_type as u32 {
        0xEF53 => ("ext4", Storage::Local),
        0x5846_5342 => ("XFS", Storage::Local),
        0x9123_683E => ("btrfs", Storage::Local),
        0xF2F5_2010 => ("F2FS", Storage::Local),
        0x2FC1_2FC1 => ("ZFS", Storage::Local),
        0xCA45_1A4E => ("bcachefs", Storage::Local),
        0x794C_7630 => ("overlayfs", below(file)),
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
        0x6573_5546 => ("FUSE", Storage::Fuse),
        // Without a device of its own it may pass reads on, too.
        _ if rustix::fs::fstat(file).is_ok_and(|stat| rustix::fs::major(stat.st_dev) == 0) => {
            ("an unknown file system", below(file))
        }
        _ => ("an unknown file system", Storage::Local),
    }
}

/// Where a file is that a file system has from another one. Which that is, is not told: the paths of an
/// overlay's layers (`lowerdir=` in mountinfo) are those of whoever mounted it, and mean nothing in a container.
/// But each file is asked where it lies on its device, and the one below answers. File systems on disks do; FUSE,
/// 9P, NFS and what is in memory do not (nor do SquashFS and ZFS, which are read well without direct I/O).
fn below(file: &File) -> Storage {
    match sys::lies_on_a_device(file) {
        true => Storage::Local,
        false => Storage::Unknown,
    }
}

/// What counts as long, in bytes: 1 GiB.
const LONG_BYTES: u64 = 1 << 30;

/// Windows looked at to tell how much of a large file is resident, and their size in bytes.
///
/// `cachestat` of a whole 1 GiB file took 0.07 ms when all of it was resident, but 20 ms when it had
/// just been evicted (the kernel looks at every shadow entry); 64 windows of 64 KiB take under
/// 0.1 ms in either case.
const WINDOWS: u64 = 64;
const WINDOW_BYTES: u64 = 64 << 10;

/// Share of the bytes that are in the page cache, from evenly spread windows; all of a small file.
pub(crate) fn resident(file: &File, len: u64) -> Option<f64> {
    let (windows, window_bytes) = match len <= WINDOWS * WINDOW_BYTES {
        true => (1, len),
        false => (WINDOWS, WINDOW_BYTES),
    };
    let step = if windows == 1 { 0 } else { (len - window_bytes) / (windows - 1) };
    let page_bytes = rustix::param::page_size() as u64;
    let starts = (0..windows).map(|i| i * step / page_bytes * page_bytes);
    let pages = window_bytes.div_ceil(page_bytes) * windows;
    let cached: io::Result<u64> =
        starts.clone().map(|start| sys::cached_pages(file, start, window_bytes)).sum();
    match cached {
        Ok(cached) => Some((cached as f64 / pages as f64).min(1.0)),
        // Not our file (EPERM), or a kernel before 6.5.
        Err(_) => resident_by_reading(file, starts.step_by(4)),
    }
}

/// Share of the bytes of a small file that are in the page cache; `None` where the kernel does not say,
/// since the file is not ours or the kernel is older than 6.5.
pub(crate) fn resident_if_told(file: &File, len: u64) -> Option<f64> {
    let pages = len.div_ceil(rustix::param::page_size() as u64);
    let cached = sys::cached_pages(file, 0, len).ok()?;
    Some((cached as f64 / pages as f64).min(1.0))
}

/// Bytes of a block of the file system that holds a file, where that is a power of two; otherwise 1.
pub(crate) fn block_bytes(source: &Source) -> u32 {
    let bytes = rustix::fs::fstatfs(source.file()).map_or(1, |stat| stat.f_bsize);
    u32::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(1)
}

/// Share of `starts` whose byte can be read without waiting for the device.
///
/// `mincore` would say of a file that is not ours that every page is there.
fn resident_by_reading(file: &File, starts: impl Iterator<Item = u64>) -> Option<f64> {
    // A miss starts read-ahead, and would make resident what it asks about.
    fadvise(file, 0, None, Advice::Random).ok()?;
    let (mut hits, mut looks) = (0_u32, 0_u32);
    for start in starts {
        looks += 1;
        match sys::pread_into(file.as_fd(), &mut [0], start, libc::RWF_NOWAIT) {
            Ok(_) => hits += 1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let page = rustix::param::page_size() as u64;
                let _ = fadvise(file, start, std::num::NonZero::new(page), Advice::DontNeed);
            }
            Err(_) => {
                let _ = fadvise(file, 0, None, Advice::Normal);
                return None;
            }
        }
    }
    let _ = fadvise(file, 0, None, Advice::Normal);
    (looks > 0).then(|| f64::from(hits) / f64::from(looks))
}

/// The folder of a block device in sysfs, or of the device that a partition is on.
struct Queue(Option<String>);

impl Queue {
    fn of(device: u64) -> Queue {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        // Major 0 is no device: btrfs, overlayfs and others make up a number for each mount.
        let base = (major != 0).then(|| format!("/sys/dev/block/{major}:{minor}"));
        Queue(base)
    }

    /// Whether the device belongs to a driver of real disks, by the majors of the kernel's
    /// `admin-guide/devices.txt` (IDE, SCSI). Others say of anything that it turns, which counts for
    /// nothing unless it was measured.
    fn is_plain_disk(device: u64) -> bool {
        matches!(rustix::fs::major(device), 3 | 8 | 22 | 65..=71 | 128..=135)
    }

    fn read(&self, name: &str) -> Option<u32> {
        let base = self.0.as_deref()?;
        let text = fs::read_to_string(format!("{base}/queue/{name}"))
            .or_else(|_| fs::read_to_string(format!("{base}/../queue/{name}")));
        text.ok()?.trim().parse().ok()
    }

    /// Whether completions can be polled for: elsewhere a request of a polled ring may never end, and
    /// its process with it.
    fn has_poll_queues(&self) -> Result<(), String> {
        match self.read("io_poll") {
            Some(1..) => Ok(()),
            Some(0) => {
                Err("IOPOLL: the device has no poll queues (queue/io_poll is 0; for NVMe, load \
                            the driver with nvme.poll_queues=N)"
                    .to_owned())
            }
            None => {
                Err("IOPOLL: it is not known which device this is on, so not whether it has poll \
                         queues"
                    .to_owned())
            }
        }
    }
}

/// The source opened for direct reads, with their alignment in bytes: of offset, length and memory
/// alike. Or why there are none.
fn open_direct(source: &Source, queue: &Queue) -> Result<(File, u32), String> {
    let asked = statx(source.file(), "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let known = asked.ok().filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    let known = known.map(|stat| stat.stx_dio_offset_align.max(stat.stx_dio_mem_align));
    if known == Some(0) {
        return Err("the file system offers no direct I/O for this file".to_owned());
    }
    let file = source.reopen_direct().map_err(|e| format!("direct I/O refused at open: {e}"))?;
    // Where the file system does not say (Linux before 6.1; btrfs, overlayfs and others still), the
    // device does.
    let align = known.or_else(|| queue.read("logical_block_size")).unwrap_or(4096);
    match align <= Slab::ALIGN_BYTES_MAX {
        true => Ok((file, align)),
        false => Err(format!("direct I/O here needs memory aligned to {align} bytes")),
    }
}

fn direct_read(file: &File, offset: u64, bytes: u32) -> io::Result<usize> {
    let slab = Slab::new(1, bytes, HugePages::Off).map_err(|_| io::ErrorKind::OutOfMemory)?;
    #[expect(unsafe_code)]
    // SAFETY: the slot holds `bytes`, and the call is over before the slab goes.
    unsafe {
        sys::pread(file.as_fd(), slab.slot(0), bytes as usize, offset, 0)
    }
}

/// The time of a scattered direct read of a file, by up to six.
fn seek_within(file: &File, len: u64, align: u32) -> io::Result<Option<Duration>> {
    let bytes = align.max(4096);
    // Neither the first nor the last blocks, and far from each other.
    seek_of([5, 1, 3, 6, 2, 4].map(|part| {
        let offset = (len / 7 * part) / u64::from(bytes) * u64::from(bytes);
        move || timed(|| direct_read(file, offset, bytes))
    }))
}

/// The time of a direct read of files that lie far from each other.
fn seek_between(files: &[Source], align: u32) -> io::Result<Option<Duration>> {
    seek_of(files.iter().map(|source| {
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

/// The second shortest of the times of reads, none of which is made after two that were shorter than any move of a
/// disk's arm. (The median of three is what other work on the machine makes of it: with 8 busy threads on two processors
/// a virtual SSD was taken for a disk that turns in 6 of 25 runs, and so in none. With 20, it was 10 to 15, and is 8.)
fn seek_of(
    reads: impl IntoIterator<Item = impl FnOnce() -> io::Result<Duration>>,
) -> io::Result<Option<Duration>> {
    let mut times = Vec::new();
    for read in reads {
        times.push(read()?);
        times.sort_unstable();
        if times.get(1).is_some_and(|second| *second < SEEK_MAX) {
            break;
        }
    }
    Ok(times.get(1).or(times.first()).copied())
}

/// Asks for one byte without waiting: a kernel or file system without the flag refuses it before it
/// looks for the byte.
pub(crate) fn dontcache(file: &File) -> Result<(), String> {
    let flags = sys::RWF_DONTCACHE | libc::RWF_NOWAIT;
    match sys::pread_into(file.as_fd(), &mut [0], 0, flags) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Err("the file system or the kernel has no RWF_DONTCACHE (it needs Linux 6.14)"
                .to_owned())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn residency_is_seen_both_ways() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![1; 6 << 20]).unwrap();
        let file = file.as_file();
        assert_eq!(resident(file, 6 << 20), Some(1.0));
        let starts = || (0..8).map(|i| i * (512 << 10));
        assert_eq!(resident_by_reading(file, starts()), Some(1.0));
        // Out of the cache, where the file system is one that lets go (tmpfs does not).
        file.sync_all().unwrap();
        fadvise(file, 0, None, Advice::DontNeed).unwrap();
        if file_system(file).1 == Storage::Memory {
            let text = b"SKIP residency of a cold file: the temporary files are in memory\n";
            io::stderr().write_all(text).unwrap();
            return;
        }
        assert!(resident(file, 6 << 20).unwrap() < 0.1);
        assert!(resident_by_reading(file, starts()).unwrap() < 0.1);
        assert!(resident(file, 6 << 20).unwrap() < 0.1, "looking made it resident");
    }

    #[test]
    fn two_short_reads_show_that_a_device_does_not_turn() {
        let seek = |millis: &[u64]| {
            let made = std::cell::Cell::new(0);
            let reads = millis.iter().map(|time| {
                let made = &made;
                move || {
                    made.set(made.get() + 1);
                    Ok(Duration::from_millis(*time))
                }
            });
            let seek = seek_of(reads).unwrap().map(|seek| seek.as_millis() as u64);
            (seek, made.get())
        };
        assert_eq!(seek(&[0, 0, 9, 9, 9, 9]), (Some(0), 2), "no more reads than it takes");
        assert_eq!(seek(&[12, 0, 30, 0, 9, 9]), (Some(0), 4), "others were busy");
        assert_eq!(seek(&[9, 0, 8, 12, 7, 11]), (Some(7), 6), "one was in the cache of the disk");
        assert_eq!(seek(&[9]), (Some(9), 1));
        assert_eq!(seek(&[]), (None, 0));
        let refused = || Err(io::Error::from_raw_os_error(libc::EINVAL));
        assert_eq!(seek_of([refused]).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn facts_of_a_file_in_proc_and_of_a_plain_one() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        let source = Source::open(file.path()).unwrap();
        let facts = Facts::of(&source, 100_000, &Config::default());
        assert_eq!((facts.len, facts.kind), (100_000, SourceKind::File));
        if let Ok(align) = facts.direct {
            assert!(align.is_power_of_two() && align <= 65536, "{align}");
        }
    }
}
