//! System calls that no crate wraps, each as a safe function of its own.
#![allow(unsafe_code)]

pub(crate) mod sigbus;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Of `linux/fs.h`.
const BLKGETSIZE64: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<usize>(0x12, 114);

/// `cachestat(2)`, the same number on every architecture that Linux 6.5 and later give it to, but
/// Alpha.
const SYS_CACHESTAT: libc::c_long = 451;

/// Length of a block device in bytes.
pub(crate) fn block_device_bytes(device: &File) -> io::Result<u64> {
    let mut bytes = 0_u64;
    // SAFETY: BLKGETSIZE64 writes one u64 through its argument.
    match unsafe { libc::ioctl(device.as_raw_fd(), BLKGETSIZE64 as libc::Ioctl, &raw mut bytes) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(bytes),
    }
}

/// Pages of `offset..offset + len` of a file that are in the page cache.
///
/// # Errors
///
/// `EPERM` for a file that is neither ours nor open for writing, `ENOSYS` before Linux 6.5.
pub(crate) fn cached_pages(file: &File, offset: u64, len: u64) -> io::Result<u64> {
    let range = [offset, len];
    // nr_cache, nr_dirty, nr_writeback, nr_evicted, nr_recently_evicted
    let mut counts = [0_u64; 5];
    // SAFETY: the kernel reads the two words of the range and writes the five counts.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0)
    };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(counts[0]),
    }
}

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
    // SAFETY: memory that the caller vouches for. (`preadv2` is younger, and filters may refuse it.)
    let result = unsafe {
        match flags {
            0 => libc::pread64(fd.as_raw_fd(), buffer.cast(), len, offset),
            flags => libc::preadv2(fd.as_raw_fd(), &part, 1, offset, flags),
        }
    };
    match result {
        -1 => Err(io::Error::last_os_error()),
        n => Ok(n as usize),
    }
}

/// [`pread`] into a buffer that is already there.
pub(crate) fn pread_into(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    offset: u64,
    flags: i32,
) -> io::Result<usize> {
    // SAFETY: the slice is valid for writes of its length.
    unsafe { pread(fd, buffer.as_mut_ptr(), buffer.len(), offset, flags) }
}

/// `RWF_DONTCACHE` of `linux/fs.h` (since Linux 6.14): drop from the page cache what this read had
/// to bring in.
pub(crate) const RWF_DONTCACHE: i32 = 0x80;
