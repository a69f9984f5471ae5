//! Direct reads (`O_DIRECT`): whether a source supports them, and the alignment that they need.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxFlags, statx};

use super::Source;
use super::device::Queue;
use crate::config::SLOT_ALIGN_BYTES;
use crate::sys;

/// Opens the source for direct reads. Returns the file and the alignment in bytes (of offset,
/// length and memory alike), or why direct reads are not available.
pub(super) fn open_direct(source: &Source, queue: &Queue) -> Result<(File, u32), String> {
    let stat = statx(source.file(), "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let known = stat.ok().filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    let known = known.map(|stat| stat.stx_dio_offset_align.max(stat.stx_dio_mem_align));
    if known == Some(0) {
        return Err("the file system offers no direct I/O for this file".to_owned());
    }
    let file = source.reopen_direct().map_err(|e| format!("direct I/O refused at open: {e}"))?;
    // If the file system does not report it (Linux before 6.1; btrfs, overlayfs and others still),
    // use the device's.
    let align = known.or_else(|| queue.read("logical_block_size")).unwrap_or(4096);
    match align <= SLOT_ALIGN_BYTES {
        true => Ok((file, align)),
        false => Err(format!("direct I/O here needs memory aligned to {align} bytes")),
    }
}

/// Performs a direct read of up to a page.
pub(super) fn direct_read(file: &File, offset: u64, bytes: u32) -> io::Result<usize> {
    let mut page = sys::Page([0; 4096]);
    let bytes = (bytes as usize).min(page.0.len());
    sys::pread_into(file.as_fd(), &mut page.0[..bytes], offset, 0)
}
