//! Blocks directly in the page cache, through windows of the file that are mapped for a while and
//! then unmapped, so that neither memory nor page tables grow with the file.
//!
//! With a window for each block, `MADV_POPULATE_READ` faults the pages in and reports a truncated
//! file or a bad sector like any failed read. Longer windows are not populated, which is 5 % faster
//! (AMD EPYC): the consumer faults the pages in. In both cases the handler in `sys/sigbus.rs`
//! catches what goes wrong while the consumer reads, and the block fails.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, Stat, fstat};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::{Completion, Engine, Read, Setup};
use crate::sys::{self, sigbus};

/// Bytes of a window for several blocks, and its alignment in the file. 1.5 GB with two threads
/// took 0.37 s with windows of 256 KiB, 0.21 with 4 MiB, 0.19 with 16 and with 64 MiB (AMD EPYC):
/// each munmap interrupts the other processors.
const WINDOW_BYTES: u64 = 16 << 20;

/// The engine whose blocks are in the page cache.
pub(crate) struct MmapEngine {
    /// The window of the block in each slot, and the block's address.
    blocks: Vec<Option<(Rc<Window>, *const u8)>>,
    windows: Windows,
    /// The last window, if the next block may lie in it, too.
    last: Option<Rc<Window>>,
    page_bytes: u64,
}

/// How much of a file is mapped at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Windows {
    /// One block, populated at once: what cannot be read is an error of the read.
    Block,
    /// [`WINDOW_BYTES`]: what cannot be read is an error when the block is released.
    Long,
}

/// A mapped part of a file. Field order matters: the guard is dropped before the mapping, so that
/// the handler never patches an address that has been reused.
struct Window {
    guard: sigbus::Window,
    map: Map,
    /// The part of the file, in bytes; it starts at a page boundary.
    range: Range<u64>,
    /// Device and inode of the file. While it is mapped, no other file can have these numbers.
    file: (u64, u64),
}

struct Map {
    start: *mut u8,
    len: usize,
}

impl Map {
    fn new(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Map> {
        // SAFETY: a new mapping at an address chosen by the kernel overlaps nothing.
        let start =
            unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, fd, offset)? };
        Ok(Map { start: start.cast(), len })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this owns the mapping; the pump releases a slot only after the consumer is done.
        let _ = unsafe { munmap(self.start.cast(), self.len) };
    }
}

impl MmapEngine {
    pub(super) fn new(setup: &Setup<'_>, windows: Windows) -> Result<MmapEngine, String> {
        sigbus::install().map_err(|error| {
            format!(
                "a file truncated under a mapping would end the process: no SIGBUS handler: {error}"
            )
        })?;
        let page_bytes = sys::page_bytes();
        if let Some(Err(error)) = setup.file.map(|file| Map::new(file, 0, page_bytes)) {
            // Files of FUSE servers that handle every read themselves have no pages to map.
            let why = match error.raw_os_error() {
                Some(libc::ENODEV) => " (ENODEV): its file system keeps no pages of it".to_owned(),
                _ => format!(": {error}"),
            };
            return Err(format!("this file cannot be mapped{why}; use another engine"));
        }
        Ok(MmapEngine {
            blocks: (0..setup.slots).map(|_| None).collect(),
            windows,
            last: None,
            page_bytes: page_bytes as u64,
        })
    }

    /// Unmaps the last window, once its blocks are released.
    pub(super) fn close_window(&mut self) {
        self.last = None;
    }

    /// Maps the window of `read`. Returns whether the file ends within it: the rest of its last page
    /// is mapped as zeros.
    fn open(&mut self, read: &Read<'_>) -> io::Result<bool> {
        let mut stat = fstat(read.fd)?;
        let file = (stat.st_dev, stat.st_ino);
        let end = read.offset + u64::from(read.len);
        let fits = |window: &&Rc<Window>| {
            let range = &window.range;
            window.file == file && range.start <= read.offset && end <= range.end
                // Some of its pages may have been replaced by zeros.
                && !window.guard.poisoned().load(Ordering::Acquire)
        };
        let window = match self.last.as_ref().filter(fits) {
            Some(window) => Rc::clone(window),
            None => {
                // Unmapped first, so that there is never more than one without a block.
                self.last = None;
                let window = Rc::new(self.map(read, file, &stat)?);
                stat = fstat(read.fd)?;
                window
            }
        };
        if self.windows == Windows::Long {
            self.last = Some(Rc::clone(&window));
        }
        let skip = (read.offset - window.range.start) as usize;
        let bytes = window.map.start.wrapping_add(skip).cast_const();
        self.blocks[read.slot as usize] = Some((window, bytes));
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Ok(is_file && (stat.st_size as u64) < end)
    }

    fn map(&self, read: &Read<'_>, file: (u64, u64), stat: &Stat) -> io::Result<Window> {
        let end = read.offset + u64::from(read.len);
        let (start, end) = match self.windows {
            Windows::Block => (read.offset, end),
            Windows::Long => {
                let start = read.offset - read.offset % WINDOW_BYTES;
                (start, (start + WINDOW_BYTES).min(stat.st_size as u64).max(end))
            }
        };
        let start = start - start % self.page_bytes;
        let end = end.next_multiple_of(self.page_bytes);
        let len = (end - start) as usize;
        let map = Map::new(read.fd, start, len)?;
        let guard = sigbus::Window::guard(map.start.addr(), len)?;
        if self.windows == Windows::Block {
            // SAFETY: the range is the mapping made above.
            let populated = unsafe { madvise(map.start.cast(), len, Advice::LinuxPopulateRead) };
            populated.map_err(|error| match error {
                rustix::io::Errno::INVAL => io::Error::new(
                    io::ErrorKind::Unsupported,
                    "the kernel cannot populate a mapping (MADV_POPULATE_READ needs Linux 5.14)",
                ),
                error => error.into(),
            })?;
        }
        Ok(Window { guard, map, range: start..end, file })
    }
}

/// Determines by plain reads why the pages of `read` are not available. `Ok(true)`: they are now;
/// `Ok(false)`: the file ends before them.
fn diagnose(read: &Read<'_>) -> io::Result<bool> {
    let mut scratch = vec![0; 64 << 10];
    let mut done = 0;
    while done < read.len as usize {
        let piece = scratch.len().min(read.len as usize - done);
        match sys::pread_into(read.fd, &mut scratch[..piece], read.offset + done as u64, 0)? {
            0 => return Ok(false),
            n => done += n,
        }
    }
    Ok(true)
}

impl Engine for MmapEngine {
    unsafe fn submit(&mut self, read: Read<'_>) -> io::Result<Option<Completion>> {
        let mut result = Err(io::Error::from_raw_os_error(libc::EFAULT));
        // A file that is truncated and grows again may need a second try; more is another fault.
        for _ in 0..3 {
            result = match self.open(&read) {
                Ok(false) => Ok(read.len),
                Ok(true) => Ok(0),
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => match diagnose(&read) {
                    Ok(true) => continue,
                    Ok(false) => Ok(0),
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            break;
        }
        Ok(Some(Completion { slot: read.slot, result }))
    }

    fn block(&self, slot: u32) -> Option<*const u8> {
        self.blocks[slot as usize].as_ref().map(|(_, bytes)| *bytes)
    }

    fn damage(&self, slot: u32) -> Option<&'static AtomicBool> {
        self.blocks[slot as usize].as_ref().map(|(window, _)| window.guard.poisoned())
    }

    fn release(&mut self, slot: u32) {
        self.blocks[slot as usize] = None;
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::Uring;
    use super::*;
    use crate::sys::fake_page;

    /// Whole pages of any size: those behind the end of a file are not there.
    const LEN: usize = 5 * (64 << 10);

    fn read(
        engine: &mut MmapEngine,
        file: &std::fs::File,
        offset: u64,
        len: u32,
    ) -> io::Result<u32> {
        let buffer = ptr::null_mut();
        let file_bytes = LEN as u64;
        let fd = file.as_fd();
        let read = Read { fd, slot: 0, buffer, offset, len, flags: 0, file_bytes };
        // SAFETY: the engine has memory of its own.
        let completion = unsafe { engine.submit(read) };
        completion.unwrap().unwrap().result
    }

    fn bytes(engine: &MmapEngine, len: u32) -> Vec<u8> {
        // SAFETY: the block was read, has that many bytes, and is not released.
        unsafe { std::slice::from_raw_parts(engine.block(0).expect("it was read"), len as usize) }
            .to_vec()
    }

    /// (Without truncation: the handler finds a window by the number of its first page, and a mapping starts at a page
    /// of the real size only.)
    #[test]
    fn windows_start_and_end_at_pages_of_any_size() {
        let content: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
        fake_page::each(|page_bytes| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &content).unwrap();
            let file = file.as_file();
            let setup = Setup {
                depth: 1,
                slots: 1,
                slab: None,
                file: Some(file.as_fd()),
                wakes: false,
                pool_threads: 1,
                uring: Uring::default(),
                copy_or_map: None,
            };
            let mut engine = MmapEngine::new(&setup, Windows::Block).unwrap();
            let page = page_bytes as u64;
            for offset in [0, 1, page - 1, page, page + 1, 4096, 12_288, 65_536, 65_537, 200_001] {
                for len in [1, 511, 4096, page_bytes as u32 - 1, page_bytes as u32 + 1] {
                    assert_eq!(read(&mut engine, file, offset, len).unwrap(), len, "{offset}");
                    let expected = &content[offset as usize..][..len as usize];
                    assert!(bytes(&engine, len) == expected, "{page_bytes} {offset} {len}");
                    assert!(!engine.damage(0).unwrap().load(Ordering::Acquire));
                    engine.release(0);
                }
            }
        });
    }
}
