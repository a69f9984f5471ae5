//! Methods to read a file that are not engines of the library, since one of those is always better. They
//! exist to be measured against them.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use blockring::{Buffer, HugePages, Source, Wait};
use io_uring::{IoUring, opcode, types};
use rustix::io::ReadWriteFlags;
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size};

use super::pipe_ends::splice_some;
use super::reading::{self, MEMORY_BYTES_MAX, Until};
use crate::model::case::{Missing, Sample};
use crate::model::environment::fits_into_memory;
use crate::runner::{Stopwatch, interrupt};

/// Requests in flight, of methods that have several.
const DEPTH: u32 = 16;

/// A method to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Read,
    Pread,
    Readv,
    Preadv,
    Preadv2,
    /// From the file into a pipe, and out of it into `/dev/null`: no process sees the bytes.
    Splice,
    /// io_uring with a new buffer for each request, which is freed when the request has ended.
    BuffersFreed,
    /// The same, and all buffers are kept until the end.
    BuffersKept,
    /// io_uring with one buffer for the whole file.
    OneBuffer,
}

impl Method {
    pub(crate) const ALL: [(Method, &str); 9] = [
        (Method::Read, "read"),
        (Method::Pread, "pread"),
        (Method::Readv, "readv"),
        (Method::Preadv, "preadv"),
        (Method::Preadv2, "preadv2"),
        (Method::Splice, "splice"),
        (Method::BuffersFreed, "io_uring, a buffer each, freed"),
        (Method::BuffersKept, "io_uring, a buffer each, kept"),
        (Method::OneBuffer, "io_uring, one buffer for all"),
    ];
}

/// One file that is read from the start on.
struct Reading {
    method: Method,
    file: File,
    block_bytes: u32,
    /// Length of the file, or less if the sample ends before, in bytes.
    end: u64,
    until: Until,
    clock: Stopwatch,
    bytes: u64,
    blocks: u64,
}

/// Reads a file from the start on.
pub(crate) fn read(
    method: Method,
    path: &Path,
    direct: bool,
    block_bytes: u32,
    until: Until,
) -> Result<Sample, Missing> {
    let file = reading::open(path, direct)?;
    // (The metadata of a device has no length.)
    let end = Source::open(path)?.len().unwrap_or(0).min(until.bytes);
    let keeps_all = matches!(method, Method::OneBuffer | Method::BuffersKept);
    if keeps_all && (end > MEMORY_BYTES_MAX || !fits_into_memory(end)) {
        return Missing::unavailable(
            "it would take more than 1 GiB, or half of the available memory",
        );
    }
    let clock = Stopwatch::start();
    let mut reading = Reading { method, file, block_bytes, end, until, clock, bytes: 0, blocks: 0 };
    match method {
        Method::Splice => reading
            .splice()
            .map_err(|e| Missing::unsupported("splice, through a pipe that holds a block", &e))?,
        Method::BuffersFreed | Method::BuffersKept | Method::OneBuffer => {
            let ring = IoUring::new(DEPTH).map_err(|e| Missing::unsupported("io_uring", &e))?;
            reading.uring(ring)?;
        }
        _ => reading.one_by_one()?,
    }
    Ok(reading.clock.sample(reading.bytes, reading.blocks))
}

impl Reading {
    fn continues(&self) -> bool {
        self.bytes < self.end
            && !interrupt::is_interrupted()
            && self.until.time.is_none_or(|time| self.clock.elapsed() < time)
    }

    fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.blocks += 1;
    }

    /// A buffer for one block, of pages of the base size: a huge page would be zeroed for each.
    fn buffer(&self) -> io::Result<Buffer> {
        Buffer::new(self.block_bytes, HugePages::Off).map_err(io::Error::other)
    }

    fn one_by_one(&mut self) -> io::Result<()> {
        let mut block =
            Buffer::new(self.block_bytes, HugePages::Advise).map_err(io::Error::other)?;
        while self.continues() {
            let (mut file, offset) = (&self.file, self.bytes);
            let read = match self.method {
                Method::Read => file.read(&mut block)?,
                Method::Readv => file.read_vectored(&mut [IoSliceMut::new(&mut block)])?,
                Method::Preadv => {
                    rustix::io::preadv(file, &mut [IoSliceMut::new(&mut block)], offset)?
                }
                Method::Preadv2 => {
                    let flags = ReadWriteFlags::empty();
                    rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut block)], offset, flags)?
                }
                _ => file.read_at(&mut block, offset)?,
            };
            if read == 0 {
                break;
            }
            self.count(read);
        }
        Ok(())
    }

    fn splice(&mut self) -> io::Result<()> {
        let (reader, writer) = io::pipe()?;
        let null = File::options().write(true).open("/dev/null")?;
        let block = self.block_bytes as usize;
        // A smaller pipe would split the blocks.
        fcntl_setpipe_size(&writer, block.max(4096))?;
        while self.continues() {
            let (mut offset, to, flags) = (self.bytes, writer.as_fd(), SpliceFlags::MOVE);
            let mut moved =
                rustix::pipe::splice(&self.file, Some(&mut offset), to, None, block, flags)?;
            if moved == 0 {
                break;
            }
            self.count(moved);
            while moved > 0 {
                moved -= splice_some(&reader, &null, moved, Wait::Sleep)?;
            }
        }
        Ok(())
    }

    fn uring(&mut self, mut ring: IoUring) -> io::Result<()> {
        let block_bytes = u64::from(self.block_bytes);
        let mut whole = match self.method {
            Method::OneBuffer => {
                // A direct read of the last block is as long as the others.
                let bytes = self.end.next_multiple_of(block_bytes) as u32;
                Some(Buffer::new(bytes, HugePages::Advise).map_err(io::Error::other)?)
            }
            _ => None,
        };
        // Taken once: while the kernel writes into memory, no reference to it may exist.
        let whole_start = whole.as_mut().map(|whole| whole.as_mut_ptr());
        let mut buffers: Vec<Option<Buffer>> = Vec::new();
        let fd = types::Fd(self.file.as_raw_fd());
        let (mut next, mut in_flight, mut result) = (0_u64, 0, Ok(()));
        loop {
            while in_flight < DEPTH && next < self.end && result.is_ok() && self.continues() {
                let start = match whole_start {
                    Some(start) => start.wrapping_add(next as usize),
                    None => match self.buffer() {
                        Ok(mut buffer) => {
                            let start = buffer.as_mut_ptr();
                            buffers.push(Some(buffer));
                            start
                        }
                        // The requests in flight are waited for first.
                        Err(error) => {
                            result = Err(error);
                            break;
                        }
                    },
                };
                let index = buffers.len().saturating_sub(1) as u64;
                let read = opcode::Read::new(fd, start, self.block_bytes).offset(next).build();
                // SAFETY: the memory lives until the request has ended: all are waited for below.
                if unsafe { ring.submission().push(&read.user_data(index)) }.is_err() {
                    break;
                }
                next += block_bytes;
                in_flight += 1;
            }
            if in_flight == 0 {
                return result;
            }
            match ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    // The requests in flight cannot be waited for: their memory must stay.
                    std::mem::forget((whole, buffers));
                    return Err(error);
                }
                _ => {}
            }
            for entry in ring.completion() {
                in_flight -= 1;
                match entry.result() {
                    read @ 0.. => self.count(read as usize),
                    error => result = Err(io::Error::from_raw_os_error(-error)),
                }
                if self.method == Method::BuffersFreed {
                    buffers[entry.user_data() as usize] = None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::scratch::Scratch;

    #[test]
    fn every_method_reads_all_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::with_random(folder.path(), (1 << 20) + 100).unwrap();
        for (method, name) in Method::ALL {
            match read(method, scratch.path(), false, 16 << 10, Until::bytes(u64::MAX)) {
                Ok(sample) => assert_eq!(sample.bytes, (1 << 20) + 100, "{name}"),
                // Some sandboxes refuse io_uring.
                Err(Missing::Unavailable(why)) if name.starts_with("io_uring") => {
                    eprintln!("SKIP {name}: {why}");
                }
                Err(missing) => panic!("{name}: {missing:?}"),
            }
        }
    }
}
