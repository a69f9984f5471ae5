//! System calls that no crate wraps, each as a safe function.
#![allow(unsafe_code)]

pub(crate) mod aio;
pub(crate) mod priority;
pub(crate) mod sigbus;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

/// From `linux/fs.h`.
const BLKGETSIZE64: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<usize>(0x12, 114);

/// `cachestat(2)` (since Linux 6.5); the number is the same on every architecture except Alpha.
const SYS_CACHESTAT: libc::c_long = 451;

/// Returns the result of a system call, or the error that it left in `errno`.
fn check(result: impl TryInto<usize>) -> io::Result<usize> {
    // Only -1 is negative.
    result.try_into().map_err(|_| io::Error::last_os_error())
}

/// Calls `ioctl` with a structure that the kernel fills in.
///
/// # Safety
///
/// `request` must write no more than a `T`.
unsafe fn ioctl<T>(file: &File, request: libc::c_ulong, to: &mut T) -> io::Result<()> {
    // SAFETY: the caller guarantees that the kernel writes within `to`.
    check(unsafe { libc::ioctl(file.as_raw_fd(), request as libc::Ioctl, ptr::from_mut(to)) })
        .map(drop)
}

/// Returns the length of a block device in bytes.
pub(crate) fn block_device_bytes(device: &File) -> io::Result<u64> {
    let mut bytes = 0_u64;
    // SAFETY: BLKGETSIZE64 writes one u64.
    unsafe { ioctl(device, BLKGETSIZE64.into(), &mut bytes) }.map(|()| bytes)
}

/// Returns the number of pages of `offset..offset + len` of a file that are in the page cache:
/// `EPERM` for another user's file that is not open for writing, `ENOSYS` before Linux 6.5.
pub(crate) fn cached_pages(file: &File, offset: u64, len: u64) -> io::Result<u64> {
    let range = [offset, len];
    // nr_cache, nr_dirty, nr_writeback, nr_evicted, nr_recently_evicted
    let mut counts = [0_u64; 5];
    // SAFETY: the kernel reads the two words of the range and writes the five counts.
    check(unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0)
    })?;
    Ok(counts[0])
}

/// Returns the size of a page of memory and of the page cache, in bytes: 4 KiB on x86-64, and 4, 16 or 64 KiB on
/// arm64, depending on how the kernel was built.
pub(crate) fn page_bytes() -> usize {
    #[cfg(test)]
    if let Some(bytes) = fake_page::bytes() {
        return bytes;
    }
    rustix::param::page_size()
}

/// Larger pages, as tests see them: on the thread that asks for them. Mappings and reads of multiples of a larger
/// page are valid with smaller ones, too.
#[cfg(test)]
pub(crate) mod fake_page {
    use std::cell::Cell;

    thread_local! {
        // (`const`, so that the SIGBUS handler may read it.)
        static BYTES: Cell<Option<usize>> = const { Cell::new(None) };
    }

    pub(super) fn bytes() -> Option<usize> {
        BYTES.get()
    }

    /// Runs `test` with pages of 4, 16 and 64 KiB, as far as they are not smaller than the real ones.
    pub(crate) fn each(mut test: impl FnMut(usize)) {
        let real = rustix::param::page_size();
        for bytes in [4 << 10, 16 << 10, 64 << 10].into_iter().filter(|bytes| *bytes >= real) {
            BYTES.set(Some(bytes));
            test(bytes);
            BYTES.set(None);
        }
    }
}

/// Memory for one direct read: alignment and size are those of the largest sector in use, not those of a page.
#[repr(align(4096))]
pub(crate) struct Page(pub(crate) [u8; 4096]);

/// `pread`, with the flags of `preadv2`.
///
/// # Safety
///
/// `buffer` must be valid for writes of `len` bytes until the call returns.
pub(crate) unsafe fn pread(
    fd: BorrowedFd<'_>,
    buffer: *mut u8,
    len: usize,
    offset: u64,
    flags: i32,
) -> io::Result<usize> {
    let offset = offset.try_into().map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    let part = libc::iovec { iov_base: buffer.cast(), iov_len: len };
    // SAFETY: the caller guarantees the memory. (`preadv2` is newer, and filters may refuse it.)
    check(unsafe {
        match flags {
            0 => libc::pread64(fd.as_raw_fd(), buffer.cast(), len, offset),
            flags => libc::preadv2(fd.as_raw_fd(), &part, 1, offset, flags),
        }
    })
}

/// [`pread`] into a slice.
pub(crate) fn pread_into(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    offset: u64,
    flags: i32,
) -> io::Result<usize> {
    // SAFETY: the slice is valid for writes of its length.
    unsafe { pread(fd, buffer.as_mut_ptr(), buffer.len(), offset, flags) }
}

/// Returns the time that processors have been idle since system start, over all of them
/// (`/proc/stat`). `None` if it is not accessible.
pub(crate) fn idle_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    // cpu USER NICE SYSTEM IDLE IOWAIT ...: in clock ticks.
    let mut numbers = text.lines().next()?.split_ascii_whitespace().skip(4);
    let mut next = || numbers.next()?.parse::<u64>().ok();
    let ticks = next()? + next()?;
    Some(Duration::from_secs(ticks) / rustix::param::clock_ticks_per_second() as u32)
}

/// `RWF_DONTCACHE` from `linux/fs.h` (since Linux 6.14): uncaches what this read cached.
pub(crate) const RWF_DONTCACHE: i32 = 0x80;

/// Returns device and inode of the backing file of a loop device.
pub(crate) fn loop_backing(device: &File) -> io::Result<(u64, u64)> {
    /// `struct loop_info64` from `linux/loop.h`: 232 bytes that begin with these two numbers.
    #[repr(C)]
    struct Info([u64; 29]);
    const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
    let mut info = Info([0; 29]);
    // SAFETY: the kernel writes the whole structure and no more.
    unsafe { ioctl(device, LOOP_GET_STATUS64, &mut info) }.map(|()| (info.0[0], info.0[1]))
}

/// Returns the UUID of a file's btrfs, in the format of sysfs.
pub(crate) fn btrfs_uuid(file: &File) -> io::Result<String> {
    /// `struct btrfs_ioctl_fs_info_args` from `linux/btrfs.h`: two numbers and the UUID, in 1 KiB.
    #[repr(C, align(8))]
    struct Info([u8; 1024]);
    const BTRFS_IOC_FS_INFO: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<Info>(0x94, 31);
    let mut info = Info([0; 1024]);
    // SAFETY: the kernel writes the whole structure and no more.
    unsafe { ioctl(file, BTRFS_IOC_FS_INFO.into(), &mut info)? };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let uuid = &info.0[16..32];
    let groups = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]];
    Ok(groups.map(hex).join("-"))
}

/// A contiguous part of a file on its device: `struct fiemap_extent` from `linux/fiemap.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FileExtent {
    logical: u64,
    /// Its start on the device, in bytes.
    pub(crate) physical: u64,
    len: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

impl FileExtent {
    const LAST: u32 = 0x1;
    /// It is compressed or encrypted.
    pub(crate) const ENCODED: u32 = 0x8;
    /// It is part of the file system's metadata.
    pub(crate) const INLINE: u32 = 0x200;

    /// Whether a flag is set.
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// `struct fiemap`, with room for some extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    len: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [FileExtent; 64],
}

/// From `linux/fs.h`: `_IOWR('f', 11, struct fiemap)`, whose size excludes extents.
const FS_IOC_FIEMAP: rustix::ioctl::Opcode =
    rustix::ioctl::opcode::read_write::<[u64; 4]>(b'f', 11);

/// Whether the file system reports the extents of a file, which only file systems on devices do.
/// Writes nothing to the device.
pub(crate) fn reports_extents(file: &File) -> bool {
    // `struct fiemap` for the first byte, without room for extents, so that they are only counted.
    let mut map: [u64; 4] = [0, 1, 0, 0];
    // SAFETY: the kernel writes only to the header.
    unsafe { ioctl(file, FS_IOC_FIEMAP.into(), &mut map) }.is_ok()
}

/// Calls `visit` for each extent of a file until it returns false. Delayed allocations are written
/// to the device first.
pub(crate) fn for_each_extent(
    file: &File,
    mut visit: impl FnMut(FileExtent) -> bool,
) -> io::Result<()> {
    const FIEMAP_FLAG_SYNC: u32 = 1;
    let mut start = 0;
    loop {
        let mut map = Fiemap {
            start,
            len: u64::MAX - start,
            flags: FIEMAP_FLAG_SYNC,
            mapped: 0,
            count: 64,
            reserved: 0,
            extents: [FileExtent::default(); 64],
        };
        // SAFETY: the kernel writes at most `count` extents after the header, and there is room.
        unsafe { ioctl(file, FS_IOC_FIEMAP.into(), &mut map)? };
        let extents = &map.extents[..map.mapped.min(64) as usize];
        let more = extents.iter().all(|extent| visit(*extent));
        match extents.last() {
            Some(last) if more && !last.has(FileExtent::LAST) => {
                // Without progress, the loop would be endless.
                match last.logical.checked_add(last.len) {
                    Some(end) if end > start => start = end,
                    _ => return Err(io::Error::other("FIEMAP makes no progress")),
                }
            }
            _ => return Ok(()),
        }
    }
}
